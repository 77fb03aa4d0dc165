//! Redaction in the stream of a run.

use std::sync::{Arc, LazyLock};

use futures::StreamExt;
use proptest::prelude::*;
use serde_json::{Value, json};
use tower_agent::callback::on_model_error;
use tower_agent::stream::{Delta, Event, EventKind};
use tower_agent::{
    Agent, AgentRequest, AgentResponse, Error, ErrorKind, Message, ModelRequest, ModelResponse,
    Part, Recovery, Role, Tool,
};
use tower_agent_middleware::redact::{Detector, Redact};
use tower_agent_test::{ScriptedModel, Turn};

use super::Writing;
use test_support::property::cases;

fn guard() -> Redact {
    Redact::new([Detector::email(), Detector::card()]).unwrap()
}

async fn read(agent: &Agent) -> (Vec<EventKind>, AgentResponse) {
    // A name that does not look like redacted text.
    let mut run = agent.stream(AgentRequest::new("?").with_run_id("run"));
    let events: Vec<Event> = run.by_ref().collect().await;
    (
        events.into_iter().map(|event| event.kind).collect(),
        run.response().await.unwrap(),
    )
}

fn is_taken_back(event: &EventKind) -> bool {
    matches!(
        event,
        EventKind::ResponseReplaced { .. } | EventKind::AttemptDiscarded { .. }
    )
}

fn text_of(events: &[EventKind]) -> String {
    let text = |event: &EventKind| match event {
        EventKind::TextDelta { text, .. } => Some(text.clone()),
        _ => None,
    };
    events.iter().filter_map(text).collect()
}

#[tokio::test]
async fn nothing_redacted_reaches_the_consumer_however_it_is_split() {
    let said = [
        Part::reasoning("jo@example.com has 4111 1111 1111 1111"),
        Part::from_text("To jo@example.com: "),
    ];
    let said = ModelResponse::new(Message::new(Role::Assistant, said));
    let arguments = json!({ "to": "jo@example.com", "card": "4111 1111 1111 1111" });
    for size in 1..30 {
        let model = ScriptedModel::new([
            Turn::response(said.clone()).and_tool("send", arguments.clone()),
            Turn::from_text("jo@example.com has it"),
        ])
        .chunk_size(size);
        let tool = Tool::function("send", "Sends.", |_: Value| "jo@example.com");
        let agent = Agent::builder(model)
            .tool(tool)
            .global_callbacks(guard())
            .build()
            .unwrap();

        let (events, response) = read(&agent).await;

        let seen = format!("{events:?}");
        for secret in ["jo@", "example", "4111", "1111"] {
            assert!(
                !seen.contains(secret),
                "{secret} in pieces of {size}: {seen}"
            );
        }
        assert!(
            !events.iter().any(is_taken_back),
            "in pieces of {size}: {seen}"
        );
        assert_eq!(text_of(&events), "To [email]: [email] has it");
        let json: String = events
            .iter()
            .filter_map(|event| match event {
                EventKind::ToolCallDelta { json, .. } => Some(&**json),
                _ => None,
            })
            .collect();
        let seen: Value = serde_json::from_str(&json).unwrap();
        assert_eq!(seen, json!({ "to": "[email]", "card": "[card]" }));
        assert_eq!(
            response.messages()[1]
                .tool_calls()
                .next()
                .unwrap()
                .arguments,
            seen
        );
    }
}

#[test]
fn a_call_is_seen_at_once_and_its_arguments_when_the_answer_is_complete() {
    let mut writing = Writing::through(&guard());
    let begin = |index, id: &str| {
        let (id, name) = (Arc::from(id), Arc::from("send"));
        Delta::ToolCall { index, id, name }
    };
    let more = |index, json: &str| Delta::Arguments {
        index,
        json: json.to_owned(),
    };
    writing.send(begin(0, "one"));
    writing.send(more(0, r#"{"to": "jo@exa"#));
    writing.send(begin(1, "two"));
    writing.send(more(1, r#"{"n":  1}"#));
    writing.send(more(0, r#"mple.com", "x": 1}"#));
    let starts = |event: &EventKind| matches!(event, EventKind::ToolCallStart(_));
    assert_eq!(writing.seen.iter().filter(|event| starts(event)).count(), 2);
    assert_eq!(writing.seen.len(), 2, "{:?}", writing.seen);

    let (_, seen) = writing.finish();

    let arguments: Vec<_> = seen
        .iter()
        .filter_map(|event| match event {
            EventKind::ToolCallDelta { id, json } => {
                Some((id.rsplit('-').next().unwrap(), &**json))
            }
            _ => None,
        })
        .collect();
    let expected = [("t0", r#"{"to":"[email]","x":1}"#), ("t1", r#"{"n":  1}"#)];
    assert_eq!(
        arguments, expected,
        "what has no match stays as it was written"
    );
}

#[test]
fn a_part_ends_where_another_begins_and_its_held_back_text_is_released() {
    let mut writing = Writing::through(&guard());
    writing.send_text("ask jo@example.com");
    assert_eq!(writing.text, "ask ");
    writing.send(Delta::Reasoning("a@b.co".to_owned()));
    assert_eq!(writing.text, "ask [email]");
    writing.send_text("@x.org");

    writing.send_text(" and c");
    let (id, name) = (Arc::from("1"), Arc::from("send"));
    writing.send(Delta::ToolCall { index: 0, id, name });
    assert_eq!(writing.text, "ask [email]@x.org and c");
    writing.send_text("@d.co");

    let (text, seen) = writing.finish();

    assert_eq!(text, "ask [email]@x.org and c@d.co");
    let thoughts: Vec<_> = seen
        .iter()
        .filter_map(|event| match event {
            EventKind::ReasoningDelta { text, .. } => Some(&**text),
            _ => None,
        })
        .collect();
    assert_eq!(thoughts, ["[email]"]);
}

#[tokio::test]
async fn another_attempt_begins_anew() {
    let broken = Error::new(ErrorKind::Overloaded, "busy");
    let model = ScriptedModel::new([
        Turn::from_text("ask jo@example").failing_after(3, broken),
        Turn::from_text(".com again"),
    ]);
    let agent = Agent::builder(model)
        .callbacks(guard())
        .on_model(on_model_error(|_, _| Recovery::Retry))
        .build()
        .unwrap();

    let (events, response) = read(&agent).await;

    assert_eq!(text_of(&events), "ask .com again");
    assert_eq!(
        events.iter().filter(|event| is_taken_back(event)).count(),
        1
    );
    assert_eq!(response.text(), ".com again");
}

#[tokio::test]
async fn numbers_are_the_same_in_deltas_and_response() {
    let model = ScriptedModel::new([
        Turn::from_text("b@b.co a@a.co b@b.co").and_tool("none", json!("c@c.co a@a.co")),
        Turn::from_text("c@c.co"),
    ]);
    let agent = Agent::builder(model)
        .global_callbacks(guard().numbered())
        .build()
        .unwrap();

    let (events, response) = read(&agent).await;

    assert!(!events.iter().any(is_taken_back), "{events:?}");
    assert_eq!(text_of(&events), "[email-1] [email-2] [email-1][email-3]");
    assert_eq!(response.text(), "[email-3]");
}

/// Pieces of an answer; calls begin before their arguments come.
fn deltas() -> impl Strategy<Value = Vec<Delta>> {
    let words = prop::sample::select(vec![
        "",
        "jo@",
        "example",
        ".com",
        " ",
        "\"",
        "{\"a\":\"",
        "}",
    ]);
    prop::collection::vec((0..4, 0..3_usize, words), 0..20).prop_map(|pieces| {
        let mut begun = Vec::new();
        let mut deltas = Vec::new();
        for (kind, index, words) in pieces {
            let words = words.to_owned();
            match kind {
                0 => deltas.push(Delta::Text(words)),
                1 => deltas.push(Delta::Reasoning(words)),
                2 if !begun.contains(&index) => {
                    begun.push(index);
                    let (id, name) = (format!("{index}").into(), "none".into());
                    deltas.push(Delta::ToolCall { index, id, name });
                }
                _ if begun.contains(&index) => {
                    deltas.push(Delta::Arguments { index, json: words });
                }
                _ => {}
            }
        }
        deltas
    })
}

proptest! {
    #![proptest_config(cases(500))]

    #[test]
    fn the_response_is_what_was_let_through_and_nothing_is_replaced(deltas in deltas()) {
        let model = tower::service_fn(move |request: ModelRequest| {
            let deltas = deltas.clone();
            async move {
                let mut attempt = request.delta_sender().unwrap().open();
                for delta in deltas {
                    attempt.send(delta).await?;
                }
                Ok::<_, Error>(ModelResponse::from(attempt.finish().await?))
            }
        });
        static GUARD: LazyLock<Redact> = LazyLock::new(guard);
        let agent = Agent::builder(model)
            .global_callbacks(GUARD.clone())
            .stop_when(|_| true)
            .build()
            .unwrap();
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();

        let (events, response) = runtime.block_on(read(&agent));

        prop_assert!(!events.iter().any(is_taken_back), "{events:?}");
        let said = &response.messages()[1];
        prop_assert_eq!(text_of(&events), said.text());
        for part in said.parts() {
            let text = serde_json::to_string(part).unwrap();
            prop_assert!(!text.contains("jo@example.com"), "{text}");
        }
    }
}

/// What the model has written for a tool stays as it is, in the stream and in the transcript.
#[tokio::test]
async fn arguments_that_are_kept_are_streamed_as_they_come() {
    let to = json!({ "value": "jo@example.com" });
    let model = ScriptedModel::new([
        Turn::tool("send", to.clone()),
        Turn::from_text("I wrote to jo@example.com."),
    ]);
    let send = Tool::function("send", "Sends.", |to: String| format!("sent to {to}"));
    let agent = Agent::builder(model.clone())
        .tool(send)
        .global_callbacks(guard().redact_input().keep_arguments())
        .build()
        .unwrap();
    let (events, done) = read(&agent).await;
    assert!(!events.iter().any(is_taken_back));
    let json: String = events
        .iter()
        .filter_map(|event| match event {
            EventKind::ToolCallDelta { json, .. } => Some(&**json),
            _ => None,
        })
        .collect();
    assert_eq!(serde_json::from_str::<Value>(&json).unwrap(), to);
    assert_eq!(done.text(), "I wrote to [email].");
    // The model sees its own call as it was, and the result without what is found in it.
    let seen: Vec<_> = model.requests()[1].messages().iter().cloned().collect();
    let call = seen[1].tool_calls().next().unwrap();
    assert_eq!(*call.arguments.value(), to);
    assert_eq!(
        seen[2].tool_results().next().unwrap().text(),
        "sent to [email]"
    );
}
