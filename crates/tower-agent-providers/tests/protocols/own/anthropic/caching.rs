//! The prompt cache: breakpoints, and bodies that begin alike.

use std::sync::Arc;

use serde_json::{Value, json};
use tower_agent::message::{ProviderData, Text, ToolCall, ToolResult};
use tower_agent::model::{CacheRetention, PromptCache};
use tower_agent::tool::{Tool, ToolDeclaration};
use tower_agent::{Agent, ErrorKind, Message, ModelRequest, Part, Role};
use tower_agent_providers::anthropic::Messages;

use super::fixtures::{answer, body, model, text_block, tool_use, try_body};
use crate::server::{Server, json as reply};

fn ephemeral() -> ProviderData {
    let mut data = ProviderData::default();
    data.set(
        "anthropic",
        json!({ "cache_control": { "type": "ephemeral" } }),
    );
    data
}

fn cached(text: &str) -> Part {
    Part::Text(
        serde_json::from_value::<Text>(json!({ "text": text, "provider": ephemeral() })).unwrap(),
    )
}

#[test]
fn the_setting_caches_the_whole_prompt() {
    let cache = |cache: PromptCache| {
        let mut request = ModelRequest::new([Message::user("Hi.")]);
        request.settings_mut().prompt_cache = Some(cache);
        body(&request)["cache_control"].take()
    };
    let key = PromptCache::new().with_key("k");
    assert_eq!(cache(key), json!({ "type": "ephemeral" }));
    for (retention, ttl) in [(CacheRetention::Short, "5m"), (CacheRetention::Long, "1h")] {
        let cache = cache(PromptCache::new().with_retention(retention));
        assert_eq!(cache, json!({ "type": "ephemeral", "ttl": ttl }));
    }
    assert_eq!(
        body(&ModelRequest::new([Message::user("Hi.")])).get("cache_control"),
        None
    );
}

fn marked() -> ModelRequest {
    let mut tool = ToolDeclaration::new("add", "Adds.");
    *tool.provider_mut() = ephemeral();
    let mut results = Message::tool(ToolResult::new(
        &ToolCall::new("a", "add", json!({})),
        [Part::from_text("3")],
    ));
    *results.provider_mut() = ephemeral();
    let request = ModelRequest::new([
        Message::new(Role::System, [cached("Be brief.")]),
        Message::new(Role::User, [cached("1 + 2?"), Part::from_text("Quick.")]),
        Message::new(
            Role::Assistant,
            [ToolCall::new("a", "add", json!({})).into()],
        ),
        results,
    ]);
    request.with_tools(Arc::new(vec![Arc::new(tool)]))
}

#[test]
fn breakpoints_stand_where_the_data_puts_them() {
    let sent = body(&marked());
    let breakpoint = json!({ "type": "ephemeral" });
    assert_eq!(sent["tools"][0]["cache_control"], breakpoint);
    assert_eq!(sent["system"][0]["cache_control"], breakpoint);
    assert_eq!(
        sent["messages"][0]["content"][0]["cache_control"],
        breakpoint
    );
    assert_eq!(sent["messages"][0]["content"][1], text_block("Quick."));
    // A message's own is on its last block.
    assert_eq!(
        sent["messages"][2]["content"][0]["cache_control"],
        breakpoint
    );
    assert_eq!(sent.to_string().matches("cache_control").count(), 4);
}

#[test]
fn more_than_four_breakpoints_are_an_error_before_anything_is_sent() {
    let error = |request: &ModelRequest| try_body(&Messages::default(), request).unwrap_err();
    let mut fifth = marked();
    fifth
        .messages_mut()
        .push(Message::new(Role::User, [cached("And?")]));
    let mut automatic = marked();
    automatic.settings_mut().prompt_cache = Some(PromptCache::new());
    let mut extra = marked();
    extra
        .settings_mut()
        .extra
        .insert("cache_control".into(), json!({ "type": "ephemeral" }));
    for request in [&fifth, &automatic, &extra] {
        let error = error(request);
        assert_eq!(error.kind(), ErrorKind::InvalidRequest);
        assert!(
            error
                .message()
                .starts_with("the prompt has 5 cache breakpoints"),
            "{error}"
        );
    }
    // One on text that is not sent does not count.
    let mut blank = marked();
    blank
        .messages_mut()
        .push(Message::new(Role::User, [cached("")]));
    assert_eq!(body(&blank).to_string().matches("cache_control").count(), 4);
}

#[tokio::test]
async fn each_body_of_a_run_begins_with_the_one_before() {
    let asks = |id: &str| {
        let think = json!({ "type": "thinking", "thinking": "hm", "signature": "Eq" });
        let both = [
            tool_use(id, "add", json!({ "a": 1 })),
            tool_use(&format!("{id}2"), "add", json!({})),
        ];
        reply(200, &answer(json!([think, both[0], both[1]]), "tool_use"))
    };
    let done = reply(200, &answer(json!([text_block("3")]), "end_turn"));
    let server = Server::start([asks("a"), asks("b"), asks("c"), done]).await;
    let add = Tool::function("add", "Adds.", |_: Value| async {
        Ok::<_, tower_agent::Error>(3)
    });
    let agent = Agent::builder(model(&server))
        .instructions("Add.")
        .tool(add)
        .build()
        .unwrap();
    assert_eq!(agent.run("1 + 2?").await.unwrap().text(), "3");
    let seen = server.seen();
    assert_eq!(seen.len(), 4);
    for pair in seen.windows(2) {
        let (before, after) = (&pair[0].text, &pair[1].text);
        let end = before.find("],\"model\"").unwrap();
        assert_eq!(before[..end], after[..end]);
        assert!(after.len() > before.len());
        // The bytes after the messages are the same, too.
        let rest = |text: &str| text[text.find("],\"model\"").unwrap()..].to_owned();
        assert_eq!(rest(before), rest(after));
    }
    // A body that was put together piece by piece is the one that is written at once.
    let last = &seen[3].body["messages"];
    let roles: Vec<_> = last
        .as_array()
        .unwrap()
        .iter()
        .map(|message| message["role"].clone())
        .collect();
    assert_eq!(
        roles,
        [
            "user",
            "assistant",
            "user",
            "assistant",
            "user",
            "assistant",
            "user"
        ]
    );
    assert_eq!(last[2]["content"].as_array().unwrap().len(), 2);
}
