//! A run goes on from what it did, however it ended.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use futures::StreamExt;
use serde_json::{Value, json};
use tokio_util::sync::CancellationToken;
use tower_agent::stream::EventKind;
use tower_agent::testing::{ScriptedModel, Turn};
use tower_agent::{
    Agent, AgentRequest, Checkpoint, Error, ErrorKind, Message, ModelRequest, Request, Tool,
    before_model, wrap_model,
};

/// How often something was paid.
#[derive(Clone, Default)]
struct Paid(Arc<AtomicUsize>);

impl Paid {
    fn tool(&self) -> Tool {
        let paid = self.clone();
        Tool::function("pay", "Pays.", move |_: Value| {
            paid.0.fetch_add(1, Ordering::SeqCst);
            "paid"
        })
    }

    fn times(&self) -> usize {
        self.0.load(Ordering::SeqCst)
    }
}

fn down() -> Turn {
    Turn::error(Error::new(ErrorKind::Overloaded, "503"))
}

fn pays() -> Turn {
    Turn::tool("pay", json!({}))
}

fn saved(checkpoint: &Checkpoint) -> Checkpoint {
    let saved = serde_json::to_string(checkpoint).unwrap();
    let read: Checkpoint = serde_json::from_str(&saved).unwrap();
    assert_eq!(&read, checkpoint);
    read
}

fn of(error: &Error) -> Checkpoint {
    saved(error.checkpoint().expect("a run's error has a checkpoint"))
}

#[tokio::test]
async fn a_run_that_fails_behind_a_tool_goes_on_behind_it() {
    let paid = Paid::default();
    let model = ScriptedModel::new([pays(), down(), Turn::text("Paid.")]);
    let agent = Agent::builder(model).tool(paid.tool()).build().unwrap();

    let error = agent.run("Pay.").await.unwrap_err();
    let response = agent.run(AgentRequest::resume(of(&error))).await.unwrap();

    assert_eq!(paid.times(), 1);
    assert_eq!(response.text(), "Paid.");
    assert_eq!(response.messages().len(), 4);
    assert_eq!((of(&error).turn, response.checkpoint().turn), (1, 2));
}

#[tokio::test]
async fn a_run_out_of_model_calls_or_aborted_keeps_what_it_did() {
    let paid = Paid::default();
    let model = ScriptedModel::new([pays(), Turn::text("Paid.")]);
    let once = Agent::builder(model.clone()).tool(paid.tool()).max_iterations(1).build().unwrap();
    let error = once.run("Pay.").await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::MaxIterations);
    let more = Agent::builder(model).tool(paid.tool()).build().unwrap();
    let response = more.run(AgentRequest::resume(of(&error))).await.unwrap();
    assert_eq!((response.text(), paid.times()), ("Paid.".into(), 1));

    let paid = Paid::default();
    let model = ScriptedModel::new([pays()]);
    let agent = Agent::builder(model).tool(paid.tool()).on_model(before_model(|request| {
        match request.context().iteration() {
            0 => Ok(()),
            _ => Err(Error::abort("enough")),
        }
    }));
    let error = agent.build().unwrap().run("Pay.").await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Aborted);
    assert_eq!(of(&error).messages.len(), 3);
}

#[tokio::test]
async fn a_run_that_is_cancelled_keeps_what_it_did() {
    let paid = Paid::default();
    let token = CancellationToken::new();
    let cancel = token.clone();
    let model = ScriptedModel::new([pays(), Turn::text("Paid.")]);
    let agent = Agent::builder(model)
        .tool(paid.tool())
        .model_layer(wrap_model(move |request: ModelRequest, mut next| {
            let cancel = cancel.clone();
            async move {
                if request.context().iteration() == 1 {
                    cancel.cancel();
                    std::future::pending::<()>().await;
                }
                next.run(request).await
            }
        }))
        .build()
        .unwrap();

    let request = AgentRequest::new("Pay.").with_cancellation(token);
    let error = agent.run(request).await.unwrap_err();

    assert_eq!(error.kind(), ErrorKind::Cancelled);
    assert_eq!((of(&error).messages.len(), paid.times()), (3, 1));
}

#[tokio::test]
async fn a_stream_that_is_not_read_to_its_end_has_what_it_has_shown() {
    let paid = Paid::default();
    let model = ScriptedModel::new([pays(), Turn::text("Paid.")]);
    let agent = Agent::builder(model).tool(paid.tool()).build().unwrap();

    let mut run = agent.stream("Pay.");
    assert_eq!(run.checkpoint().messages.len(), 1);
    while let Some(event) = run.next().await {
        if matches!(event.kind, EventKind::ToolResult { .. }) {
            break;
        }
    }
    let checkpoint = saved(&run.checkpoint());
    drop(run);

    let answers: Vec<_> = checkpoint.messages.iter().flat_map(Message::tool_results).collect();
    assert_eq!((answers.len(), answers[0].text(), paid.times()), (1, "paid".into(), 1));
}

#[tokio::test]
async fn every_ending_has_a_checkpoint_and_the_next_turn_goes_on_from_it() {
    let model = ScriptedModel::always(Turn::text("Yes."));
    let agent = Agent::builder(model).build().unwrap();
    let mut checkpoint = Checkpoint::default();
    for turn in 1..=3 {
        let request = AgentRequest::resume(saved(&checkpoint)).with_message("Well?");
        let response = agent.run(request).await.unwrap();
        checkpoint = response.checkpoint();
        assert_eq!((checkpoint.turn, checkpoint.messages.len()), (turn, 2 * turn as usize));
        assert!(checkpoint.pending.is_empty());
    }
    assert_eq!(checkpoint.messages[4], Message::user("Well?"));
}
