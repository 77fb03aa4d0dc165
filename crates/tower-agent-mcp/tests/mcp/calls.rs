//! One call and its life: progress, cancellation, time, many at once.

use std::sync::Arc;
use std::time::Duration;

use futures::{FutureExt, StreamExt};
use rmcp::model::ProgressNotificationParam;
use serde_json::json;
use tokio::sync::Notify;
use tokio::time::timeout;
use tower_agent::stream::EventKind;
use tower_agent::{AgentRequest, CancellationToken, ErrorKind};
use tower_agent_mcp::PROGRESS;
use tower_agent_test::{ScriptedModel, Turn};

use crate::support::{
    LIFECYCLES, SOON, Server, agent_with_tools_of, ask, fifty_at_once, said, server_of_fifty,
};

#[tokio::test]
async fn progress_is_emitted_on_the_run_in_order_and_before_the_result() {
    for lifecycle in LIFECYCLES {
        let server = Server::new(async |_, context| {
            let token = context.meta.get_progress_token().unwrap();
            for step in 1..=20 {
                let progress = ProgressNotificationParam::new(token.clone(), f64::from(step))
                    .with_total(20.0)
                    .with_message(format!("step {step}"));
                context.peer.notify_progress(progress).await.unwrap();
            }
            Ok(said("done"))
        });
        let client = server.connect(lifecycle).await;
        let model = ScriptedModel::new([Turn::tool("echo", json!({})), Turn::from_text("Done.")]);
        let agent = agent_with_tools_of(&client, model).await;
        let events: Vec<_> = agent.stream("Go.").collect().await;
        let told: Vec<_> = events
            .iter()
            .filter_map(|event| match &event.kind {
                EventKind::Custom { name, value } if **name == *PROGRESS => Some(value.clone()),
                EventKind::ToolResult(_) => Some(json!("result")),
                _ => None,
            })
            .collect();
        let step = |n: u32| {
            let message = format!("step {n}");
            json!({ "tool": "echo", "progress": f64::from(n), "total": 20.0, "message": message })
        };
        let expected: Vec<_> = (1..=20).map(step).chain([json!("result")]).collect();
        assert_eq!(told, expected);
    }
}

/// Never answers, and notes which calls were cancelled.
fn silent() -> (Server, Arc<Notify>, Arc<Notify>) {
    let begun = Arc::new(Notify::new());
    let cancelled = Arc::new(Notify::new());
    let begins = begun.clone();
    let cancels = cancelled.clone();
    let server = Server::new(move |params, context| {
        let begins = begins.clone();
        let cancels = cancels.clone();
        async move {
            if params
                .arguments
                .is_some_and(|arguments| arguments.contains_key("answer"))
            {
                return Ok(said("answered"));
            }
            begins.notify_one();
            context.ct.cancelled().await;
            cancels.notify_one();
            std::future::pending().await
        }
    });
    (server, begun, cancelled)
}

#[tokio::test]
async fn a_dropped_call_is_cancelled_at_the_server() {
    for lifecycle in LIFECYCLES {
        let (server, begun, cancelled) = silent();
        let client = server.connect(lifecycle).await;
        let mut call = std::pin::pin!(ask(&client, "echo", json!({})));
        tokio::select! {
            _ = &mut call => panic!("it is silent"),
            () = begun.notified() => {}
        }
        call.set(ask(&client, "echo", json!({ "answer": 1 })));
        timeout(SOON, cancelled.notified()).await.unwrap();
        assert_eq!(call.await.unwrap().value(), "answered");
    }
}

#[tokio::test]
async fn a_cancelled_run_cancels_its_call() {
    let (server, begun, cancelled) = silent();
    let client = server.client().connect().await.unwrap();
    let model = ScriptedModel::new([Turn::tool("echo", json!({}))]);
    let agent = agent_with_tools_of(&client, model).await;
    let token = CancellationToken::new();
    let run = agent.run(AgentRequest::new("Go.").with_cancellation(token.clone()));
    let stop = async {
        begun.notified().await;
        token.cancel();
        timeout(SOON, cancelled.notified()).await.unwrap();
    };
    let (ended, ()) = futures::join!(run, stop);
    assert_eq!(ended.unwrap_err().kind(), ErrorKind::Cancelled);
}

#[tokio::test(start_paused = true)]
async fn a_server_that_never_answers_hits_the_timeout_and_is_usable_afterwards() {
    for lifecycle in LIFECYCLES {
        let (server, _, cancelled) = silent();
        let builder = server
            .client()
            .lifecycle(lifecycle)
            .call_timeout(Duration::from_secs(5));
        let client = builder.connect().await.unwrap();
        let error = ask(&client, "echo", json!({})).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Timeout);
        assert!(error.message().contains("`echo` within 5s"), "{error}");
        // The tool may have changed something.
        assert!(!error.is_retryable());
        cancelled.notified().await;
        let answer = ask(&client, "echo", json!({ "answer": 1 })).await.unwrap();
        assert_eq!(answer.value(), "answered");
    }
}

#[tokio::test(start_paused = true)]
async fn progress_extends_the_time_of_a_call() {
    let server = Server::new(async |_, context| {
        let token = context.meta.get_progress_token().unwrap();
        for step in 0..5 {
            tokio::time::sleep(Duration::from_secs(4)).await;
            let progress = ProgressNotificationParam::new(token.clone(), f64::from(step));
            context.peer.notify_progress(progress).await.unwrap();
        }
        Ok(said("at last"))
    });
    let client = server
        .client()
        .call_timeout(Duration::from_secs(5))
        .connect()
        .await
        .unwrap();
    assert_eq!(
        ask(&client, "echo", json!({})).await.unwrap().value(),
        "at last"
    );
}

#[tokio::test]
async fn fifty_calls_at_once_each_get_their_own_answer() {
    let server = server_of_fifty();
    for lifecycle in LIFECYCLES {
        fifty_at_once(&server.connect(lifecycle).await).await;
    }
}

#[tokio::test]
async fn an_answer_of_twenty_megabytes_arrives_whole() {
    let server = Server::new(async |_, _| Ok(said(&"x".repeat(20 << 20))));
    let client = server.client().connect().await.unwrap();
    let answer = ask(&client, "echo", json!({})).await.unwrap();
    assert_eq!(answer.value().as_str().unwrap().len(), 20 << 20);
}

#[tokio::test(start_paused = true)]
async fn an_answer_that_is_too_large_fails_its_call_alone() {
    let server = Server::new(async |params, _| {
        let large = params
            .arguments
            .is_some_and(|arguments| arguments.contains_key("large"));
        Ok(said(&"x".repeat(if large { 1 << 20 } else { 1 })))
    });
    let client = server
        .client()
        .max_message_size(1 << 16)
        .connect()
        .await
        .unwrap();
    let large = ask(&client, "echo", json!({ "large": true }));
    let small = async {
        tokio::task::yield_now().await;
        ask(&client, "echo", json!({})).await
    };
    let (large, small) = futures::join!(large, small);
    assert!(large.is_err());
    assert!(small.is_ok());
}

#[tokio::test]
async fn an_abandoned_call_does_not_stop_the_others() {
    let (server, _, _) = silent();
    let client = server.client().connect().await.unwrap();
    let mut stuck = std::pin::pin!(ask(&client, "echo", json!({})));
    assert!((&mut stuck).now_or_never().is_none());
    assert!(ask(&client, "echo", json!({ "answer": 1 })).await.is_ok());
}
