//! Reasoning: blocks and their signatures, and how effort is asked for.

use serde_json::{Value, json};
use tower_agent::message::{ProviderData, Reasoning};
use tower_agent::model::{FinishReason, ReasoningEffort, ToolChoice};
use tower_agent::{Message, ModelRequest, Part, Settings};
use tower_agent_providers::anthropic::{Messages, Thinking};

use super::fixtures::{answer, both, events, messages, streamed, text_block, tool_use, try_body};

fn thinking(text: &str, signature: &str) -> Value {
    json!({ "type": "thinking", "thinking": text, "signature": signature })
}

async fn round_trip(content: Value) -> Vec<Part> {
    let blocks = content.as_array().unwrap();
    let has_calls = blocks.iter().any(|block| block["type"] == "tool_use");
    let reason = if has_calls { "tool_use" } else { "end_turn" };
    let response = both(&answer(content.clone(), reason)).await;
    let sent = messages([Message::user("Hi."), response.message().clone()]);
    assert_eq!(sent[1], json!({ "role": "assistant", "content": content }));
    // A conversation that was saved is sent alike.
    let saved = serde_json::to_string(response.message()).unwrap();
    let loaded: Message = serde_json::from_str(&saved).unwrap();
    assert_eq!(messages([Message::user("Hi."), loaded]), sent);
    response.message().parts().to_vec()
}

#[tokio::test]
async fn several_thinking_blocks_stay_apart_and_keep_their_signatures() {
    let parts = round_trip(json!([
        thinking("First.", "EqA"),
        thinking("Second.", "EqB"),
        text_block("Well."),
        thinking("Third.", "EqC"),
        tool_use("toolu_1", "add", json!({ "a": 1 })),
        tool_use("toolu_2", "add", json!({ "a": 2 })),
    ]))
    .await;
    let texts: Vec<_> = parts
        .iter()
        .filter_map(|part| match part {
            Part::Reasoning(Reasoning { text, .. }) => Some(&**text),
            _ => None,
        })
        .collect();
    assert_eq!(texts, ["First.", "Second.", "Third."]);
}

#[tokio::test]
async fn a_block_that_is_only_a_signature_goes_back() {
    let parts = round_trip(json!([
        thinking("", "EqA"),
        thinking("", "EqB"),
        tool_use("toolu_1", "add", json!({})),
    ]))
    .await;
    assert!(matches!(&parts[0], Part::Reasoning(reasoning) if reasoning.text.is_empty()));
    assert_eq!(parts.len(), 3);
}

#[tokio::test]
async fn redacted_thinking_goes_back() {
    let redacted = json!({ "type": "redacted_thinking", "data": "EmwKAhgBEgy3" });
    let parts = round_trip(json!([
        thinking("Hm.", "EqA"),
        redacted,
        redacted,
        text_block("Well."),
        tool_use("toolu_1", "add", json!({})),
    ]))
    .await;
    assert_eq!(parts.len(), 5);
    assert!(matches!(&parts[2], Part::Reasoning(reasoning) if reasoning.text.is_empty()));
}

#[tokio::test]
async fn reasoning_without_a_signature_goes_back_to_servers_that_have_none() {
    round_trip(
        json!([{ "type": "thinking", "thinking": "Hm.", "signature": "" }, text_block("Yes.")]),
    )
    .await;
}

#[tokio::test]
async fn reasoning_that_was_cut_off_is_not_sent_back() {
    let response = both(&answer(json!([thinking("Hm, let me", "")]), "max_tokens")).await;
    assert_eq!(response.finish_reason(), &FinishReason::Length);
    assert_eq!(response.message().parts(), [Part::reasoning("Hm, let me")]);
    let sent = messages([
        Message::user("Hi."),
        response.message().clone(),
        Message::user("Go on."),
    ]);
    let content = json!([text_block("Hi."), text_block("Go on.")]);
    assert_eq!(sent, json!([{ "role": "user", "content": content }]));
}

#[tokio::test]
async fn a_thinking_block_may_start_without_a_signature() {
    let start = json!({ "type": "content_block_start", "index": 0,
        "content_block": { "type": "thinking", "thinking": "H" } });
    let delta = |delta: Value| json!({ "type": "content_block_delta", "index": 0, "delta": delta });
    let (response, _) = streamed(events(&[
        start,
        delta(json!({ "type": "thinking_delta", "thinking": "m" })),
        delta(json!({ "type": "signature_delta", "signature": "EqA" })),
        json!({ "type": "content_block_stop", "index": 0 }),
        json!({ "type": "message_delta", "delta": { "stop_reason": "end_turn" }, "usage": null }),
        json!({ "type": "message_stop" }),
    ]))
    .await;
    let mut data = ProviderData::default();
    data.set("anthropic", json!({ "signature": "EqA" }));
    let expected =
        Part::Reasoning(serde_json::from_value(json!({ "text": "Hm", "provider": data })).unwrap());
    assert_eq!(response.unwrap().message().parts(), [expected]);
}

fn asked(thinking: Thinking, set: impl FnOnce(&mut Settings)) -> Result<Value, String> {
    let mut request = ModelRequest::new([Message::user("Hi.")]);
    let tool = tower_agent::tool::ToolDeclaration::new("add", "Adds.");
    request.tools_mut().push(tool.into());
    set(request.settings_mut());
    let mut protocol = Messages::default();
    protocol.thinking = thinking;
    try_body(&protocol, &request).map_err(|error| {
        assert_eq!(error.kind(), tower_agent::ErrorKind::InvalidRequest);
        error.message().to_owned()
    })
}

fn effort(thinking: Thinking, effort: ReasoningEffort) -> Result<(Value, Value, Value), String> {
    let mut body = asked(thinking, |settings| {
        settings.reasoning_effort = Some(effort)
    })?;
    let mut take = |name: &str| body[name].take();
    Ok((take("thinking"), take("output_config"), take("max_tokens")))
}

#[test]
fn effort_is_adaptive_by_default() {
    let adaptive = |word: &str| {
        Ok((
            json!({ "type": "adaptive" }),
            json!({ "effort": word }),
            json!(16_384),
        ))
    };
    let default = Thinking::default();
    assert_eq!(effort(default, ReasoningEffort::Minimal), adaptive("low"));
    assert_eq!(effort(default, ReasoningEffort::Low), adaptive("low"));
    assert_eq!(effort(default, ReasoningEffort::Medium), adaptive("medium"));
    assert_eq!(effort(default, ReasoningEffort::High), adaptive("high"));
    assert_eq!(
        effort(default, ReasoningEffort::Other("xhigh".into())),
        adaptive("xhigh")
    );
    let body = asked(default, |_| {}).unwrap();
    assert_eq!(
        (body.get("thinking"), body.get("output_config")),
        (None, None)
    );
}

#[test]
fn effort_as_a_budget_is_added_to_the_limit() {
    let budget = |tokens: u32| {
        let thinking = json!({ "type": "enabled", "budget_tokens": tokens });
        Ok((thinking, Value::Null, json!(16_384 + tokens)))
    };
    assert_eq!(
        effort(Thinking::Budget, ReasoningEffort::Minimal),
        budget(1024)
    );
    assert_eq!(effort(Thinking::Budget, ReasoningEffort::Low), budget(4096));
    assert_eq!(
        effort(Thinking::Budget, ReasoningEffort::Medium),
        budget(8192)
    );
    assert_eq!(
        effort(Thinking::Budget, ReasoningEffort::High),
        budget(16_384)
    );
    for thinking in [Thinking::Budget, Thinking::Adaptive] {
        assert_eq!(
            effort(thinking, ReasoningEffort::Other("12000".into())),
            budget(12_000)
        );
    }
    let word = effort(Thinking::Budget, ReasoningEffort::Other("xhigh".into())).unwrap_err();
    assert!(
        word.starts_with("the reasoning effort `xhigh` has no budget"),
        "{word}"
    );
    let less = effort(Thinking::Budget, ReasoningEffort::Other("1000".into())).unwrap_err();
    assert!(less.contains("requires at least 1024"), "{less}");
}

#[test]
fn no_effort_disables_reasoning() {
    for thinking in [Thinking::Budget, Thinking::Adaptive] {
        let (disabled, config, _) = effort(thinking, ReasoningEffort::None).unwrap();
        assert_eq!(
            (disabled, config),
            (json!({ "type": "disabled" }), Value::Null)
        );
    }
}

#[test]
fn settings_that_contradict_reasoning_are_errors() {
    type Set = fn(&mut Settings);
    let always: [(Set, &str); 2] = [
        (
            |settings| settings.temperature = Some(0.2),
            "the temperature is 0.2",
        ),
        (|settings| settings.top_p = Some(0.5), "`top_p` is 0.5"),
    ];
    let with_a_budget: [(Set, &str); 3] = [
        (
            |settings| settings.max_tokens = Some(4096),
            "`max_tokens` is 4096",
        ),
        (
            |settings| settings.tool_choice = Some(ToolChoice::Required),
            "a tool choice that forces",
        ),
        (
            |settings| settings.tool_choice = Some(ToolChoice::Tool("add".into())),
            "a tool choice that forces",
        ),
    ];
    let low = |thinking: Thinking, set: Set| {
        asked(thinking, |settings| {
            settings.reasoning_effort = Some(ReasoningEffort::Low);
            set(settings);
        })
    };
    for (set, message) in always.into_iter().chain(with_a_budget) {
        let error = low(Thinking::Budget, set).unwrap_err();
        assert!(error.starts_with(message), "{error}");
        // They are fine without reasoning.
        asked(Thinking::Budget, set).unwrap();
    }
    for (set, message) in always {
        let error = low(Thinking::Adaptive, set).unwrap_err();
        assert!(error.starts_with(message), "{error}");
    }
    for (set, _) in with_a_budget {
        low(Thinking::Adaptive, set).unwrap();
    }
    let fine: [Set; 4] = [
        |settings| settings.temperature = Some(1.0),
        |settings| settings.top_p = Some(0.95),
        |settings| settings.max_tokens = Some(4097),
        |settings| settings.tool_choice = Some(ToolChoice::Auto),
    ];
    for set in fine {
        low(Thinking::Budget, set).unwrap();
    }
}

#[test]
fn the_callers_own_field_replaces_ours() {
    let own = json!({ "type": "adaptive", "display": "summarized" });
    let body = asked(Thinking::Adaptive, |settings| {
        settings.reasoning_effort = Some(ReasoningEffort::High);
        settings.extra.insert("thinking".into(), own.clone());
    })
    .unwrap();
    assert_eq!(
        (&body["thinking"], &body["output_config"]),
        (&own, &json!({ "effort": "high" }))
    );
}
