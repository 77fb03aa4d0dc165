//! A run that one of several tools aborts.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use serde_json::{Value, json};
use tokio::sync::Notify;
use tower::service_fn;
use tower_agent::message::ToolCall;
use tower_agent::{
    BoxError, Error, ErrorKind, ModelRequest, ModelResponse, Resolution, Role, Tool, ToolRequest,
};
use tower_agent_durable::Sqlite;
use tower_agent_durable::journal::UnfinishedStep;

use crate::support::{Count, durable, request};

#[tokio::test]
async fn a_tool_that_has_finished_is_kept_although_one_beside_it_aborts_the_run() {
    let model = service_fn(async |request: ModelRequest| {
        let is_done = request
            .messages()
            .iter()
            .any(|message| message.role() == Role::Tool);
        Ok::<_, BoxError>(if is_done {
            ModelResponse::from_text("Done.")
        } else {
            ModelResponse::from_tool_calls([
                ToolCall::new("c1", "stop", json!({})),
                ToolCall::new("c2", "pay", json!({})),
            ])
        })
    });
    let (paid, has_paid) = (Count::default(), Arc::new(Notify::new()));
    let (pays, tells) = (paid.clone(), has_paid.clone());
    let pay = Tool::function("pay", "Pays.", move |_: Value| {
        pays.one();
        tells.notify_one();
        "paid"
    });
    let is_first = Arc::new(AtomicBool::new(true));
    let stop = move |_: Value, _: ToolRequest| {
        let (is_first, has_paid) = (is_first.swap(false, Ordering::SeqCst), has_paid.clone());
        async move {
            if is_first {
                has_paid.notified().await;
                return Err(Error::abort("stop here"));
            }
            Ok("not stopped")
        }
    };
    let stop = Tool::function_with("stop", "Stops the run once.", stop);
    let database = Sqlite::in_memory().await.unwrap();
    let agent = durable(model, database.clone())
        .tool(stop)
        .tool(pay)
        .build()
        .unwrap();
    let error = agent.run(request()).await.unwrap_err();
    assert_eq!(
        (error.kind(), error.message()),
        (ErrorKind::Aborted, "stop here")
    );

    let asks = agent
        .run(database.runs().request("run 1").await.unwrap())
        .await
        .unwrap();
    let [about_stop] = asks.interrupts() else {
        panic!("{:?}", asks.interrupts())
    };
    assert_eq!(about_stop.payload["tool"], "stop");
    let again = Resolution::resolved(&about_stop.id, UnfinishedStep::RunAgain);
    let next = database
        .runs()
        .request("run 1")
        .await
        .unwrap()
        .with_resolutions([again]);
    assert_eq!(agent.run(next).await.unwrap().text(), "Done.");
    assert_eq!(paid.get(), 1);
}
