//! Agents: turns that go on, and conversations that move from one provider to another.

use serde_json::{Value, json};
use tower_agent::Tool;
use tower_agent::model::FinishReason;
use tower_agent::{Agent, Error, Message, ModelRequest};

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

#[tokio::test]
async fn a_run_with_the_messages_of_a_paused_turn_continues_it() {
    let search = json!({
        "type": "server_tool_use", "id": "srvtoolu_1", "name": "web_search",
        "input": { "query": "rust" },
    });
    let mut paused = answer(json!([text_block("Searching."), search]), "pause_turn");
    paused["container"] = json!({ "id": "container_1", "expires_at": "2026-11-22T10:00:00Z" });
    let done = answer(json!([text_block("Found.")]), "end_turn");
    let server = Server::start([reply(200, &paused), reply(200, &done), reply(200, &done)]).await;
    let agent = Agent::builder(model(&server)).build().unwrap();

    let first = agent.run("Search.").await.unwrap();
    let second = agent.run(first.messages().clone()).await.unwrap();
    assert_eq!(second.text(), "Found.");
    let mut longer = second.messages().clone();
    longer.push(Message::user("Thanks."));
    agent.run(longer).await.unwrap();

    let seen = server.seen();
    let content = &seen[1].body["messages"];
    assert_eq!(content.as_array().unwrap().len(), 2);
    assert_eq!(
        content[1],
        json!({ "role": "assistant", "content": paused["content"] })
    );
    // The container is that of the turn.
    assert_eq!(seen[1].body["container"], "container_1");
    assert_eq!(seen[2].body.get("container"), None);
}

#[tokio::test]
async fn a_paused_turn_is_seen_in_the_finish_reason() {
    let body = answer(json!([text_block("Searching.")]), "pause_turn");
    let server = Server::start([reply(200, &body)]).await;
    let response = call(model(&server), ModelRequest::new([Message::user("Hi.")]))
        .await
        .unwrap();
    assert_eq!(
        response.finish_reason(),
        &FinishReason::Other("pause_turn".into())
    );
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
