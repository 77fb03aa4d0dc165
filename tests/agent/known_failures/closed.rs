//! What cannot decide lets nothing pass.

use serde_json::json;
use tower_agent::callback::before_tool;
use tower_agent::testing::{ProbeLayer, ScriptedModel, Turn};
use tower_agent::{Agent, Error, ErrorKind, ModelRequest, Result};
use tower_agent_middleware::guardrail::{Guardrail, Verdict};
use tower_layer::Layer;

use crate::known_failures::{busy, ms, read, shown};
use test_support::log::Log;

#[tokio::test(start_paused = true)]
async fn a_check_that_crashes_hangs_or_fails_lets_nothing_pass_however_often() {
    async fn fails(_: ModelRequest) -> Result<Verdict> {
        Err(busy())
    }
    async fn crashes(_: ModelRequest) -> Result<Verdict> {
        panic!("on purpose")
    }
    async fn hangs(_: ModelRequest) -> Result<Verdict> {
        std::future::pending().await
    }
    let before = [
        Guardrail::before(fails),
        Guardrail::before(crashes),
        Guardrail::before(hangs),
    ];
    for guardrail in before {
        let probe = ProbeLayer::new();
        let agent = Agent::builder(probe.layer(ScriptedModel::always(Turn::from_text("seen"))))
            .model_layer(guardrail.with_timeout(ms(100)))
            .build()
            .unwrap();
        for _ in 0..5 {
            let (events, response) = read(&agent).await;
            assert_eq!(response.unwrap_err().kind(), ErrorKind::Callback);
            assert_eq!(shown(&events), "");
        }
        assert_eq!(probe.calls(), 0);
    }
}

#[tokio::test]
async fn a_callback_that_crashes_before_a_tool_keeps_it_from_running() {
    let log = Log::default();
    let model = ScriptedModel::new([
        Turn::tool("wipe", json!("disk")),
        Turn::from_text("Not done."),
    ]);
    let agent = Agent::builder(model)
        .tool(log.tool("wipe"))
        .on_tool(before_tool(|_| -> () { panic!("on purpose") }))
        .build()
        .unwrap();

    assert_eq!(agent.run("?").await.unwrap().text(), "Not done.");
    assert!(log.all().is_empty());
}

#[tokio::test]
async fn an_abort_around_a_tool_ends_the_run_and_the_model_does_not_read_it() {
    let model = ScriptedModel::new([Turn::tool("wipe", json!("disk"))]);
    let agent = Agent::builder(model.clone())
        .tool(Log::default().tool("wipe"))
        .on_tool(before_tool(|_| Err::<(), _>(Error::abort("not here"))))
        .build()
        .unwrap();

    assert_eq!(agent.run("?").await.unwrap_err().kind(), ErrorKind::Aborted);
    model.assert_done();
}
