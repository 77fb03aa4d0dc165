//! Agents: turns that go on, and conversations that move from one provider to another.

use std::sync::{Arc, Mutex};

use serde_json::{Value, json};
use tower_agent::Tool;
use tower_agent::callback::after_model;
use tower_agent::message::Messages;
use tower_agent::model::FinishReason;
use tower_agent::{Agent, Error, ErrorKind, Message, ModelRequest, ModelResponse};

use super::fixtures::{answer, events, events_of, model, text_block, tool_use};
use crate::server::{Server, json as reply, says};
use test_support::call;

fn add() -> Tool {
    Tool::function("add", "Adds.", |_: Value| async { Ok::<_, Error>(3) })
}

#[tokio::test]
async fn thinking_goes_back_beside_its_tool_calls_in_the_next_turn() {
    let asked = json!([
        { "type": "thinking", "thinking": "Two calls.", "signature": "EqA" },
        { "type": "redacted_thinking", "data": "EmwK" },
        { "type": "thinking", "thinking": "", "signature": "EqB" },
        tool_use("toolu_1", "add", json!({})),
        tool_use("toolu_2", "add", json!({ "a": 1 })),
    ]);
    let first = answer(asked.clone(), "tool_use");
    let done = answer(json!([text_block("6")]), "end_turn");
    let server = Server::start([
        reply(200, &first),
        reply(200, &done),
        events(&events_of(&first)),
        events(&events_of(&done)),
    ])
    .await;
    let agent = Agent::builder(model(&server)).tool(add()).build().unwrap();
    assert_eq!(agent.run("Add.").await.unwrap().text(), "6");
    let streamed = agent.stream("Add.").response().await;
    assert_eq!(streamed.unwrap().text(), "6");
    let seen = server.seen();
    for second in [&seen[1].body, &seen[3].body] {
        assert_eq!(
            second["messages"][1],
            json!({ "role": "assistant", "content": asked })
        );
        let result = |id: &str| json!({ "type": "tool_result", "tool_use_id": id, "content": [text_block("3")] });
        let results = json!([result("toolu_1"), result("toolu_2")]);
        assert_eq!(
            second["messages"][2],
            json!({ "role": "user", "content": results })
        );
    }
}

fn paused() -> Value {
    let search = json!({
        "type": "server_tool_use", "id": "srvtoolu_1", "name": "web_search",
        "input": { "query": "rust" },
    });
    let mut paused = answer(json!([text_block("Searching."), search]), "pause_turn");
    paused["container"] = json!({ "id": "container_1", "expires_at": "2026-11-22T10:00:00Z" });
    paused
}

#[tokio::test]
async fn a_paused_turn_goes_on_by_itself() {
    let paused = paused();
    let done = answer(json!([text_block("Found.")]), "end_turn");
    for is_streamed in [false, true] {
        let replies = [&paused, &paused, &done, &done].map(|answer| {
            if is_streamed {
                events(&events_of(answer))
            } else {
                reply(200, answer)
            }
        });
        let server = Server::start(replies).await;
        let reasons: Arc<Mutex<Vec<FinishReason>>> = Arc::default();
        let seen_reasons = reasons.clone();
        let agent = Agent::builder(model(&server))
            .on_model(after_model(move |_, response: &ModelResponse| {
                let reason = response.finish_reason().clone();
                seen_reasons.lock().unwrap().push(reason);
            }))
            .build()
            .unwrap();

        let response = if is_streamed {
            agent.stream("Search.").response().await.unwrap()
        } else {
            agent.run("Search.").await.unwrap()
        };

        assert_eq!(response.text(), "Found.");
        // Each call is one of the run, with its usage, its events and its callbacks.
        let one = call(model(&server), ModelRequest::new([Message::user("Hi.")]));
        let one = one.await.unwrap().usage();
        assert_eq!(response.usage(), one + one + one);
        assert_eq!(
            *reasons.lock().unwrap(),
            [
                FinishReason::PauseTurn,
                FinishReason::PauseTurn,
                FinishReason::Stop
            ]
        );
        let seen = server.seen();
        // Both parts of the turn are one message of the protocol.
        let block = |part: usize| paused["content"][part].clone();
        let content = json!([block(0), block(1), block(0), block(1)]);
        assert_eq!(
            seen[2].body["messages"][1],
            json!({ "role": "assistant", "content": content })
        );
        assert_eq!(seen[2].body["messages"].as_array().unwrap().len(), 2);
        // The container is that of the turn.
        assert_eq!(seen[0].body.get("container"), None);
        assert_eq!(seen[1].body["container"], "container_1");
        assert_eq!(seen[2].body["container"], "container_1");
    }
}

#[tokio::test]
async fn a_turn_that_pauses_for_ever_ends_at_the_limit() {
    let server = Server::start([reply(200, &paused()), reply(200, &paused())]).await;
    let agent = Agent::builder(model(&server))
        .max_iterations(2)
        .build()
        .unwrap();
    let error = agent.run("Search.").await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::MaxIterations);
    assert_eq!(server.seen().len(), 2);
}

/// As it comes out of a store, where the run had ended at its limit.
#[tokio::test]
async fn a_run_with_the_messages_of_a_paused_turn_continues_it() {
    let done = answer(json!([text_block("Found.")]), "end_turn");
    let server = Server::start([reply(200, &paused()), reply(200, &done), reply(200, &done)]).await;
    let short = Agent::builder(model(&server))
        .max_iterations(1)
        .build()
        .unwrap();
    let error = short.run("Search.").await.unwrap_err();
    let kept = error.checkpoint().unwrap().messages.clone();
    let kept = serde_json::to_string(&kept).unwrap();
    let kept: Messages = serde_json::from_str(&kept).unwrap();
    let agent = Agent::builder(model(&server)).build().unwrap();

    let response = agent.run(kept).await.unwrap();

    assert_eq!(response.text(), "Found.");
    let mut longer = response.messages().clone();
    longer.push(Message::user("Thanks."));
    agent.run(longer).await.unwrap();
    let seen = server.seen();
    assert_eq!(
        seen[1].body["messages"][1],
        json!({ "role": "assistant", "content": paused()["content"] })
    );
    assert_eq!(seen[1].body["container"], "container_1");
    // That of an earlier turn may have expired.
    assert_eq!(seen[2].body.get("container"), None);
    assert!(!seen[2].text.contains("pause_turn"), "{}", seen[2].text);
}

#[tokio::test]
async fn a_conversation_that_began_with_chat_completions_goes_on_here_and_back() {
    let signature = json!({ "google": { "thought_signature": "EqQ" } });
    let function = json!({ "name": "add", "arguments": "{\"a\": 1}" });
    let calls = json!([{ "id": "functions.add:0", "type": "function", "function": function,
        "extra_content": signature }]);
    let message = json!({ "role": "assistant", "reasoning_content": "Hm.", "tool_calls": calls });
    let asks = json!({ "choices": [{ "message": message, "finish_reason": "tool_calls" }] });
    let thinking = json!({ "type": "thinking", "thinking": "So.", "signature": "EqA" });
    let here = answer(
        json!([thinking, tool_use("toolu_1", "add", json!({}))]),
        "tool_use",
    );
    let done = answer(json!([text_block("Six.")]), "end_turn");
    let chat = Server::start([reply(200, &asks), says("Three."), says("Bye.")]).await;
    let messages = Server::start([reply(200, &here), reply(200, &done)]).await;

    let began = Agent::builder(chat.model()).tool(add()).build().unwrap();
    let went_on = Agent::builder(model(&messages))
        .tool(add())
        .build()
        .unwrap();
    let mut transcript = began.run("1 + 2?").await.unwrap().messages().clone();
    transcript.push(Message::user("Twice?"));
    let mut transcript = went_on.run(transcript).await.unwrap().messages().clone();
    transcript.push(Message::user("Thanks."));
    assert_eq!(began.run(transcript).await.unwrap().text(), "Bye.");

    let seen = messages.seen();
    let result = |id: &str| json!({ "type": "tool_result", "tool_use_id": id, "content": [text_block("3")] });
    let expected = json!([
        { "role": "user", "content": [text_block("1 + 2?")] },
        { "role": "assistant", "content": [tool_use("functions_add_0_0281487c23866cd1", "add", json!({ "a": 1 }))] },
        { "role": "user", "content": [result("functions_add_0_0281487c23866cd1")] },
        { "role": "assistant", "content": [text_block("Three.")] },
        { "role": "user", "content": [text_block("Twice?")] },
        { "role": "assistant", "content": [thinking, tool_use("toolu_1", "add", json!({}))] },
        { "role": "user", "content": [result("toolu_1")] },
    ]);
    assert_eq!(seen[1].body["messages"], expected);
    assert!(!seen[1].text.contains("EqQ") && !seen[1].text.contains("openai"));

    let back = &chat.seen()[2];
    assert!(
        !back.text.contains("EqA") && !back.text.contains("anthropic"),
        "{}",
        back.text
    );
    let calls = &back.body["messages"][1]["tool_calls"][0];
    assert_eq!(
        (&calls["id"], &calls["extra_content"]),
        (&json!("functions.add:0"), &signature)
    );
    let roles: Vec<_> = back.body["messages"]
        .as_array()
        .unwrap()
        .iter()
        .map(|message| message["role"].clone())
        .collect();
    let expected = [
        "user",
        "assistant",
        "tool",
        "assistant",
        "user",
        "assistant",
        "tool",
        "assistant",
        "user",
    ];
    assert_eq!(roles, expected);
}
