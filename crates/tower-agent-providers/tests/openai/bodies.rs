//! A body begins with what the one before it said.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use bytes::Bytes;
use http::{Request as HttpRequest, Response};
use http_body_util::{BodyExt, Full};
use proptest::prelude::*;
use serde_json::{Value, json};
use tower::{BoxError, service_fn};
use tower_agent::callback::before_model;
use tower_agent::message::{MediaSource, ProviderData, ToolCall, ToolResult};
use tower_agent::model::ModelService;
use tower_agent::{
    Agent, AgentRequest, Message, ModelRequest, Part, Request, Role, Settings, Tool, ToolResponse,
};
use tower_agent_middleware::retry::CallRetryLayer;
use tower_agent_providers::RequestBody;
use tower_agent_providers::openai::OpenAi;

use test_support::call;
use test_support::property::cases;

use crate::server::{self, Reply, Server, says, whole};

/// The model asks for a tool.
fn asks(id: &str, name: &str, arguments: &str) -> Reply {
    let function = json!({ "name": name, "arguments": arguments });
    let calls = json!([{ "id": id, "type": "function", "function": function }]);
    let message = json!({ "content": "One moment.", "tool_calls": calls });
    server::json(200, &json!({ "choices": [{ "message": message }] }))
}

fn tools() -> [Tool; 2] {
    let picture = Part::image(MediaSource::url("https://example.com/cat.png"));
    let shown = ToolResponse::new("a cat").with_parts([Part::from_text("a cat"), picture]);
    [
        Tool::function("look", "Looks.", move |_: Value| shown.clone()),
        Tool::function("add", "Adds.", |(a, b): (f64, f64)| a + b),
    ]
}

/// The body, up to the end of its messages.
fn said(body: &str) -> &str {
    let (said, rest) = body.rsplit_once("],\"model\":").unwrap();
    assert!(!rest.contains("\"role\""));
    said
}

#[tokio::test]
async fn each_step_begins_with_the_bytes_of_the_one_before() {
    let server = Server::start([
        asks("call_1", "add", r#"{ "value" : [1,  2] }"#),
        asks("call_2", "look", "{}"),
        whole(503, &[], ""),
        asks("call_3", "add", "no JSON"),
        whole(400, &[], ""),
        // Another run.
        says("Done."),
    ])
    .await;
    let agent = Agent::builder(server.model())
        .instructions("Be brief.")
        .tools(tools())
        .model_layer(CallRetryLayer::new().backoff(Duration::ZERO, Duration::ZERO))
        .build()
        .unwrap();
    let failed = agent.run("What do you see?").await.unwrap_err();
    let checkpoint = failed.checkpoint().unwrap().clone();
    let response = agent.run(AgentRequest::resume(checkpoint)).await.unwrap();
    assert_eq!(response.text(), "Done.");

    let bodies: Vec<_> = server.seen().into_iter().map(|seen| seen.text).collect();
    assert_eq!(bodies.len(), 6);
    assert_eq!(bodies[2], bodies[3], "the retry");
    for bodies in bodies.windows(2) {
        assert!(
            bodies[1].starts_with(said(&bodies[0])),
            "{}\n{}",
            bodies[0],
            bodies[1]
        );
    }
    assert!(bodies[4].len() > bodies[0].len() + 500);
}

/// A client that asks for a tool so many times, and what it was sent.
fn offline(turns: usize) -> (impl ModelService, Arc<Mutex<Vec<Value>>>) {
    let seen = Arc::new(Mutex::new(Vec::new()));
    let log = seen.clone();
    let http = service_fn(move |request: HttpRequest<RequestBody>| {
        let log = log.clone();
        async move {
            let body = request.into_body().collect().await?.to_bytes();
            let mut log = log.lock().unwrap();
            log.push(serde_json::from_slice(&body)?);
            let mut message = json!({ "role": "assistant", "content": "ok" });
            if log.len() <= turns {
                let function = json!({ "name": "look", "arguments": "{}" });
                message["tool_calls"] = json!([{ "id": "call", "function": function }]);
            }
            let answer = json!({ "choices": [{ "message": message }] });
            Ok::<_, BoxError>(Response::new(Full::new(Bytes::from(answer.to_string()))))
        }
    });
    let builder = OpenAi::builder()
        .base_url("http://localhost/v1")
        .api_key("")
        .model("m");
    (builder.build_with(http).unwrap(), seen)
}

fn provider() -> impl Strategy<Value = ProviderData> {
    let data = prop_oneof![
        Just(json!(null)),
        Just(json!({})),
        Just(json!({ "cache": true })),
        Just(json!({ "text": "another" })),
        Just(json!({ "type": "text", "text": "whole" })),
        Just(json!({ "role": "developer", "id": "call_0", "content": "mine" })),
    ];
    data.prop_map(|value| {
        let mut data = ProviderData::default();
        data.set("openai", value);
        data.set("another", json!({ "not": "sent" }));
        data
    })
}

fn plain_part() -> impl Strategy<Value = Part> {
    prop_oneof![
        4 => "[a-z\"\\\\\n\u{1f980}]{0,6}".prop_map(Part::from_text),
        1 => Just(Part::image(MediaSource::url("https://example.com/cat.png"))),
        1 => ("[a-z]{0,3}", provider()).prop_map(|(text, provider)| {
            let Part::Text(mut part) = Part::from_text(text) else { unreachable!() };
            part.provider = provider;
            Part::Text(part)
        }),
        1 => provider().prop_map(Part::Provider),
    ]
}

fn part() -> impl Strategy<Value = Part> {
    let result = proptest::collection::vec(plain_part(), 0..3)
        .prop_map(|parts| ToolResult::new(&ToolCall::new("call", "look", json!({})), parts).into());
    let asks = (r#"(\{"a": ?[0-9]{1,30}\}|nope)"#, provider()).prop_map(|(text, provider)| {
        let mut call = ToolCall::from_text("call", "look", text);
        call.provider = provider;
        call.into()
    });
    prop_oneof![3 => plain_part(), 1 => result, 1 => asks]
}

fn message() -> impl Strategy<Value = Message> {
    let role = prop_oneof![
        Just(Role::User),
        Just(Role::Assistant),
        Just(Role::Tool),
        Just(Role::System),
    ];
    (role, proptest::collection::vec(part(), 0..3), provider()).prop_map(|(role, parts, data)| {
        let mut message = Message::new(role, parts);
        *message.provider_mut() = data;
        message
    })
}

fn conversation() -> impl Strategy<Value = Vec<Message>> {
    proptest::collection::vec(message(), 0..8)
}

/// The fields that a caller may set besides.
fn extra() -> impl Strategy<Value = serde_json::Map<String, Value>> {
    let name = prop_oneof![
        Just("model"),
        Just("messages"),
        Just("tools"),
        Just("seed"),
        Just("stream"),
        Just("user"),
    ];
    let value = prop_oneof![Just(json!(null)), Just(json!("x")), Just(json!([1]))];
    proptest::collection::btree_map(name.prop_map(String::from), value, 0..4)
        .prop_map(|fields| fields.into_iter().collect())
}

proptest! {
    #![proptest_config(cases(64))]

    /// Each step of a run is told another conversation, which begins like the one before it, and
    /// sends what a request that stands alone does.
    #[test]
    fn cached_bytes_are_the_bytes_that_would_be_written_anew(
        steps in proptest::collection::vec((any::<prop::sample::Index>(), conversation()), 1..5),
    ) {
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        let mut conversations = vec![vec![Message::user("hi")]];
        for (at, more) in steps {
            let mut messages = conversations.last().unwrap().clone();
            messages.truncate(at.index(messages.len() + 1));
            messages.extend(more);
            conversations.push(messages);
        }
        let (model, seen) = offline(conversations.len() - 1);
        let told = conversations.clone();
        let agent = Agent::builder(model)
            .on_model(before_model(move |request| {
                let step = request.context().iteration() as usize;
                *request.messages_mut() = told[step].clone().into();
            }))
            .tool(Tool::function("look", "Looks.", |_: Value| "seen"))
            .build()
            .unwrap();
        runtime.block_on(agent.run("hi")).unwrap();
        let kept = std::mem::take(&mut *seen.lock().unwrap());

        let (model, seen) = offline(0);
        for messages in conversations {
            runtime.block_on(call(model.clone(), ModelRequest::new(messages))).unwrap();
        }
        let messages = |body: &Value| body["messages"].clone();
        let anew: Vec<_> = seen.lock().unwrap().iter().map(messages).collect();
        prop_assert_eq!(kept.iter().map(messages).collect::<Vec<_>>(), anew);
    }

    /// Fields of the caller's take the place of those that are written, or take them away; but none
    /// takes away the messages.
    #[test]
    fn extra_fields_win(extra in extra(), seed in proptest::option::of(any::<u64>())) {
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        let send = |extra| {
            let (model, seen) = offline(0);
            let mut settings = Settings::default();
            (settings.seed, settings.extra) = (seed, extra);
            let request = ModelRequest::new([Message::user("hi")]).with_settings(settings);
            runtime.block_on(call(model, request)).map(|_| seen.lock().unwrap().remove(0))
        };
        let mut expected = send(serde_json::Map::new()).unwrap();
        let fields = expected.as_object_mut().unwrap();
        let mut keeps_messages = true;
        for (name, value) in &extra {
            if name == "messages" {
                let messages = fields["messages"].as_array_mut().unwrap();
                match value {
                    Value::Array(more) => messages.extend(more.clone()),
                    _ => keeps_messages = false,
                }
                continue;
            }
            match value {
                Value::Null => fields.remove(name),
                value => fields.insert(name.clone(), value.clone()),
            };
        }
        if keeps_messages && fields.contains_key("model") {
            prop_assert_eq!(send(extra).unwrap(), expected);
        } else {
            prop_assert!(send(extra).is_err());
        }
    }
}
