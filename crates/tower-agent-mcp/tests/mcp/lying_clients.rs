//! Clients that approve what was not asked, or answer for others.

use std::sync::atomic::Ordering;

use rmcp::ServiceError;
use rmcp::model::{CallToolRequestParams, CallToolResponse};
use serde_json::{Value, json};
use tower_agent::Agent;
use tower_agent_mcp::server::McpServer;
use tower_agent_test::{ScriptedModel, Turn};

use crate::serving::{Waits, approved, asked, clerk, pay, text, waits};
use crate::support::serving;

/// Answers a question of the clerk with this content.
fn answered(state: &str, key: &str, answer: Value) -> CallToolRequestParams {
    let answers = [(key.to_owned(), answer)].into();
    pay()
        .with_request_state(state)
        .with_input_responses(answers)
}

#[tokio::test]
async fn answers_that_are_none_leave_the_question_open() {
    let (agent, paid) = clerk();
    let server = serving(agent);
    let running = asked(&server).await;
    let mut asks = waits(&running).await;
    let yes = json!({ "action": "accept", "content": { "approved": true } });
    for (key, answer) in [
        (None, json!({ "action": "accept" })),
        (
            None,
            json!({ "action": "accept", "content": { "approved": "yes" } }),
        ),
        (None, json!({ "action": "accept", "content": [true] })),
        (
            None,
            json!({ "action": "approve", "content": { "approved": true } }),
        ),
        (None, json!(true)),
        (Some("clerk/m1.1"), yes.clone()),
        (Some(""), yes.clone()),
    ] {
        let answer = running
            .call_tool_once(answered(
                &asks.state,
                key.unwrap_or(&asks.id),
                answer.clone(),
            ))
            .await
            .unwrap();
        // Asked again with the reason, it is another question.
        asks = Waits::of(answer);
        assert_eq!(paid.load(Ordering::SeqCst), 0);
    }
    // The right one still counts.
    let answer = running
        .call_tool_once(answered(&asks.state, &asks.id, yes))
        .await
        .unwrap();
    let CallToolResponse::Complete(result) = answer else {
        panic!("{answer:?}")
    };
    assert_eq!(
        (text(&result), paid.load(Ordering::SeqCst)),
        ("I paid 100.", 1)
    );
}

#[tokio::test]
async fn each_of_two_equal_calls_is_continued_once_by_its_own_state() {
    let (agent, paid) = clerk();
    let server = serving(agent);
    let ada = asked(&server).await;
    let bob = asked(&server).await;
    let of_ada = waits(&ada).await;
    let of_bob = waits(&bob).await;
    assert_ne!(of_ada, of_bob);
    ada.call_tool_once(approved(&of_ada)).await.unwrap();
    // Two at once: one of them is first.
    let (first, second) = futures::join!(
        bob.call_tool_once(approved(&of_bob)),
        bob.call_tool_once(approved(&of_bob))
    );
    assert_eq!(
        [&first, &second]
            .iter()
            .filter(|result| result.is_ok())
            .count(),
        1
    );
    assert!(ada.call_tool_once(approved(&of_bob)).await.is_err());
    assert_eq!(paid.load(Ordering::SeqCst), 2);
}

#[tokio::test]
async fn the_state_of_one_tool_is_none_of_another_with_the_same_arguments() {
    let (agent, paid) = clerk();
    let other = Agent::builder(ScriptedModel::new([Turn::from_text("Who?")])).name("other");
    let server = McpServer::builder("test", "1.0.0")
        .agent(agent)
        .agent(other.build().unwrap());
    let running = asked(&server.build().unwrap()).await;
    let mut elsewhere = approved(&waits(&running).await);
    elsewhere.name = "other".into();
    let Err(ServiceError::McpError(error)) = running.call_tool_once(elsewhere).await else {
        panic!("it was accepted")
    };
    assert_eq!(
        error.message,
        "the request state does not belong to this call"
    );
    assert_eq!(paid.load(Ordering::SeqCst), 0);
}

#[tokio::test]
async fn a_refusal_is_no_approval() {
    for action in ["decline", "cancel"] {
        let (agent, paid) = clerk();
        let server = serving(agent);
        let running = asked(&server).await;
        let Waits { state, id } = waits(&running).await;
        // Whatever the content says.
        let answer = json!({ "action": action, "content": { "approved": true } });
        let params = answered(&state, &id, answer);
        let answer = running.call_tool_once(params).await.unwrap();
        let CallToolResponse::Complete(result) = answer else {
            panic!("{answer:?}")
        };
        assert_eq!(text(&result), "I the approver rejected this call.");
        assert_eq!(paid.load(Ordering::SeqCst), 0);
    }
}
