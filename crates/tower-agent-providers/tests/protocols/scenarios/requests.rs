//! Requests, above all the conversation in them.

use std::sync::Arc;

use serde_json::json;
use tower_agent::message::{ProviderData, Reasoning, Text, ToolCall, ToolResult};
use tower_agent::model::{ReasoningEffort, ResponseFormat, ServerTool, ToolChoice};
use tower_agent::tool::ToolDeclaration;
use tower_agent::{
    Agent, AgentRequest, Error, ErrorKind, Message, ModelRequest, Part, Role, Settings, Tool,
};
use tower_agent_providers::Protocol;
use tower_agent_providers::protocol::Call;

use crate::answer::{Answer, Bit, call, reasoning, text};
use crate::column::{Column, Sent, model, streamed};
use crate::columns::{anthropic, chat, gemini, interactions, ollama, responses};
use crate::server::{Server, json as reply};
use test_support::stream;

pub(crate) async fn a_call_is_sent_as_the_protocol_has_it<C: Column>() {
    let answer = Answer::new([text(&["ok"])]);
    let server = Server::start([reply(200, &C::body(&answer))]).await;
    let request = ModelRequest::new([Message::user("Hello, Wörld ✓")]);
    test_support::call(model::<C>(&server), request)
        .await
        .unwrap();
    let seen = server.only();
    assert_eq!(seen.line(), C::LINE);
    let (name, value) = C::key_header();
    assert_eq!(seen.header(name.as_str()), Some(value.to_str().unwrap()));
    assert_eq!(seen.header("content-type"), Some("application/json"));
    assert!(seen.text.contains("Hello, Wörld ✓"), "{}", seen.text);
    assert!(
        seen.text.starts_with(&format!("{{\"{}\":", C::MESSAGES)),
        "{}",
        seen.text
    );
}

fn with_a_tool(extra: serde_json::Value) -> ModelRequest {
    let mut settings = Settings::default();
    settings.extra = extra.as_object().unwrap().clone();
    let look = Arc::new(ToolDeclaration::new("look", "Looks."));
    ModelRequest::new([Message::user("Hi.")])
        .with_tools(Arc::new(vec![look]))
        .with_settings(settings)
}

pub(crate) async fn tools_of_the_server_stand_beside_those_of_the_agent<C: Column>() {
    let answer = Answer::new([text(&["ok"])]);
    let server = Server::start([reply(200, &C::body(&answer))]).await;
    let request = with_a_tool(json!({ "tools": [{ "type": "of_the_server" }] }));
    test_support::call(model::<C>(&server), request)
        .await
        .unwrap();
    let tools = server.only().body["tools"].clone();
    let [own, added] = tools.as_array().unwrap().as_slice() else {
        panic!("{tools}");
    };
    assert!(own.to_string().contains("look"), "{tools}");
    assert_eq!(*added, json!({ "type": "of_the_server" }));
}

pub(crate) async fn no_extra_field_removes_what_the_agent_has_set<C: Column>() {
    let server = Server::start([]).await;
    for name in ["tools", C::MESSAGES] {
        for value in [json!(null), json!("none"), json!({})] {
            let request = with_a_tool(json!({ name: value }));
            let error = test_support::call(model::<C>(&server), request)
                .await
                .unwrap_err();
            assert_eq!(error.kind(), ErrorKind::InvalidRequest, "{error}");
            assert!(error.message().contains(name), "{error}");
        }
    }
    assert!(server.seen().is_empty());
}

/// Returns the parts of this answer, whose calls all have a result, in the next request.
async fn sent_back<C: Column>(answer: &Answer) -> Vec<Vec<Sent>> {
    let last = Answer::new([text(&["Done."])]);
    let body = |answer| reply(200, &C::body(answer));
    let replies = [
        body(answer),
        body(&last),
        streamed::<C>(answer),
        streamed::<C>(&last),
    ];
    let server = Server::start(replies).await;
    let model = model::<C>(&server);
    for is_streamed in [false, true] {
        let mut request = ModelRequest::new([Message::user("Go on.")]);
        for _ in 0..2 {
            let response = if is_streamed {
                stream(model.clone(), request.clone()).await.0.unwrap()
            } else {
                test_support::call(model.clone(), request.clone())
                    .await
                    .unwrap()
            };
            // As it comes out of a store.
            let message = serde_json::to_string(response.message()).unwrap();
            let message: Message = serde_json::from_str(&message).unwrap();
            request.messages_mut().push(message.clone());
            for call in message.tool_calls() {
                let result = ToolResult::new(call, [Part::from_text("done")]);
                request.messages_mut().push(Message::tool(result));
            }
        }
    }
    let seen = server.seen();
    [&seen[1], &seen[3]]
        .map(|seen| C::sent_back(&seen.body))
        .to_vec()
}

fn expected(answer: &Answer) -> Vec<Sent> {
    let said = answer.bits.iter().map(|bit| match bit {
        Bit::Text(words) | Bit::Refusal(words) => Sent::Text(words.concat()),
        Bit::Reasoning { data, .. } => Sent::Reasoning(data.clone()),
        Bit::Call { id, .. } => Sent::Call(id.clone()),
    });
    let results = answer.bits.iter().filter_map(|bit| match bit {
        Bit::Call { id, .. } => Some(Sent::Result(id.clone())),
        _ => None,
    });
    said.chain(results).collect()
}

pub(crate) async fn reasoning_goes_back_beside_its_call<C: Column>() {
    for words in [&["Look", " first."][..], &[]] {
        let answer = Answer::new([
            reasoning(words, "secret+/=_1"),
            call("call_1", "look", &["{\"at\":\"it\"}"]),
            call("call_2", "look", &[]),
        ]);
        for sent in sent_back::<C>(&answer).await {
            assert_eq!(sent, expected(&answer));
        }
    }
}

pub(crate) async fn two_reasoning_parts_stay_apart<C: Column>() {
    let answer = Answer::new([
        reasoning(&["First."], "secret_1"),
        reasoning(&["Second", "."], "secret_2"),
        text(&["So: "]),
        reasoning(&["Third."], "secret_3"),
        call("call_1", "look", &["{}"]),
    ]);
    for sent in sent_back::<C>(&answer).await {
        assert_eq!(sent, expected(&answer));
    }
}

pub(crate) async fn the_data_of_another_provider_is_left_out<C: Column>() {
    const MARK: &str = "not-to-be-sent";
    let mut data = ProviderData::default();
    data.set(
        "another",
        json!({ "id": MARK, "type": MARK, "signature": MARK }),
    );
    let mut reasoned = Reasoning::default();
    reasoned.text = "Hm.".into();
    reasoned.provider = data.clone();
    let mut said = Text::default();
    said.text = "I look.".into();
    said.provider = data.clone();
    let mut call = ToolCall::new("call_1", "look", json!({}));
    call.provider = data.clone();
    let result = ToolResult::new(
        &call,
        [Part::from_text("a cat"), Part::Provider(data.clone())],
    );
    let parts = [
        Part::Reasoning(reasoned),
        Part::Text(said),
        Part::Provider(data.clone()),
        Part::ToolCall(call),
    ];
    let mut message = Message::new(Role::Assistant, parts);
    *message.provider_mut() = data;
    let request = ModelRequest::new([Message::user("Look."), message, Message::tool(result)]);
    let answer = Answer::new([text(&["ok"])]);
    let server = Server::start([reply(200, &C::body(&answer))]).await;
    test_support::call(model::<C>(&server), request)
        .await
        .unwrap();
    let seen = server.only();
    assert!(!seen.text.contains(MARK), "{}", seen.text);
    let sent = C::sent_back(&seen.body);
    assert_eq!(sent.first(), Some(&Sent::Text("I look.".into())));
    assert_eq!(sent.len(), 3, "{sent:?}");
}

/// An answer of one protocol, with all that it wants back, is sent by another.
async fn begun_by<A: Column, C: Column>() {
    const THOUGHT: &str = "A thought of another.";
    const SECRET: &str = "data-of-another";
    if A::Protocol::PROVIDER == C::Protocol::PROVIDER {
        return;
    }
    let answer = Answer::new([
        reasoning(&[THOUGHT], SECRET),
        text(&["I look."]),
        call("call_1", "look", &["{\"at\": \"it\"}"]),
        call("call_2", "look", &["{}"]),
    ]);
    let first = Server::start([reply(200, &A::body(&answer))]).await;
    let request = ModelRequest::new([Message::user("Look.")]);
    let said = test_support::call(model::<A>(&first), request)
        .await
        .unwrap();
    let calls: Vec<_> = said.message().tool_calls().cloned().collect();
    let mut conversation = vec![Message::user("Look."), said.message().clone()];
    conversation.extend(
        calls
            .iter()
            .map(|call| Message::tool(ToolResult::new(call, [Part::from_text("a cat")]))),
    );

    let last = Answer::new([text(&["Done."])]);
    let second = Server::start([reply(200, &C::body(&last))]).await;
    test_support::call(model::<C>(&second), ModelRequest::new(conversation))
        .await
        .unwrap();
    let seen = second.only();
    let between = format!("{} to {}", A::Protocol::PROVIDER, C::Protocol::PROVIDER);
    assert!(!seen.text.contains(THOUGHT), "{between}: {}", seen.text);
    assert!(!seen.text.contains(SECRET), "{between}: {}", seen.text);
    let ids = calls.iter().map(|call| call.id.to_string());
    let expected: Vec<_> = [Sent::Text("I look.".into())]
        .into_iter()
        .chain(ids.clone().map(Sent::Call))
        .chain(ids.map(Sent::Result))
        .collect();
    assert_eq!(C::sent_back(&seen.body), expected, "{between}");
}

pub(crate) async fn a_conversation_that_another_protocol_began<C: Column>() {
    begun_by::<anthropic::AnthropicColumn, C>().await;
    begun_by::<chat::ChatColumn, C>().await;
    begun_by::<gemini::GeminiColumn, C>().await;
    begun_by::<interactions::InteractionsColumn, C>().await;
    begun_by::<ollama::OllamaColumn, C>().await;
    begun_by::<responses::ResponsesColumn, C>().await;
}

/// The body, up to the end of its conversation.
fn conversation<C: Column>(body: &str) -> &str {
    let start = format!("{{\"{}\":", C::MESSAGES);
    let list = body
        .strip_prefix(&start)
        .unwrap_or_else(|| panic!("{body}"));
    let mut values = serde_json::Deserializer::from_str(list).into_iter::<serde_json::Value>();
    values.next().unwrap().unwrap();
    // Without the bracket.
    &body[..start.len() + values.byte_offset() - 1]
}

pub(crate) async fn each_body_begins_with_the_bytes_of_the_one_before<C: Column>() {
    let calls = |number: u32| {
        let id = format!("call_{number}");
        Answer::new([
            text(&["I look."]),
            call(&id, "look", &["{\"at\": ", "[1,  2] }"]),
        ])
    };
    let replies = [
        reply(200, &C::body(&calls(1))),
        reply(200, &C::body(&calls(2))),
        reply(200, &C::body(&calls(3))),
        reply(200, &C::body(&Answer::new([text(&["Done."])]))),
    ];
    let server = Server::start(replies).await;
    let look = Tool::function("look", "Looks.", |_: serde_json::Value| "a cat");
    let agent = Agent::builder(model::<C>(&server))
        .instructions("Be brief.")
        .tool(look);
    let response = agent
        .build()
        .unwrap()
        .run("What do you see?")
        .await
        .unwrap();
    assert_eq!(response.text(), "Done.");
    let bodies: Vec<_> = server.seen().into_iter().map(|seen| seen.text).collect();
    assert_eq!(bodies.len(), 4);
    for bodies in bodies.windows(2) {
        let before = conversation::<C>(&bodies[0]);
        assert!(
            bodies[1].starts_with(before),
            "{}\n{}",
            bodies[0],
            bodies[1]
        );
        assert!(conversation::<C>(&bodies[1]).len() > before.len());
    }
}

pub(crate) async fn no_body_has_the_ids_of_messages<C: Column>() {
    let replies = [
        reply(
            200,
            &C::body(&Answer::new([call("call_1", "look", &["{}"])])),
        ),
        reply(200, &C::body(&Answer::new([text(&["Done."])]))),
    ];
    let server = Server::start(replies).await;
    let look = Tool::function("look", "Looks.", |_: serde_json::Value| "a cat");
    let agent = Agent::builder(model::<C>(&server))
        .tool(look)
        .build()
        .unwrap();
    let question = Message::user("What do you see?").with_id("of-the-client");
    let request = AgentRequest::conversation([question]).with_run_id("of-the-run");
    let response = agent.run(request).await.unwrap();
    assert!(
        response
            .messages()
            .iter()
            .all(|message| message.id().is_some())
    );
    let bodies: Vec<_> = server.seen().into_iter().map(|seen| seen.text).collect();
    assert_eq!(bodies.len(), 2);
    for body in bodies {
        assert!(!body.contains("of-the-"), "{body}");
    }
}

pub(crate) async fn what_the_protocol_lacks_is_an_error_before_anything_is_sent<C: Column>() {
    let server = Server::start([]).await;
    let parts = [Part::from_text("Look."), C::unsupported_part()];
    let message = Message::new(Role::User, parts);
    let request = ModelRequest::new([message]);
    let error = test_support::call(model::<C>(&server), request)
        .await
        .unwrap_err();
    assert_eq!(error.kind(), ErrorKind::InvalidRequest);
    assert!(server.seen().is_empty());
}

fn body<C: Column>(settings: Settings) -> Result<Vec<u8>, Error> {
    let look = ToolDeclaration::new("look", "Looks.");
    let request = ModelRequest::new([Message::user("Look.")]).with_settings(settings);
    let request = request.with_tools(Arc::new(vec![Arc::new(look)]));
    let mut body = Vec::new();
    let call = Call::new(&request).with_model("test-model");
    C::Protocol::default()
        .encode(&call, &mut body)
        .map(|()| body)
}

/// A setting, and how it is set.
type Change = (&'static str, fn(&mut Settings));

/// A setting that a protocol does not have is not left out without a word.
pub(crate) async fn every_setting_is_sent_or_refused<C: Column>() {
    let changes: &[Change] = &[
        ("temperature", |settings| settings.temperature = Some(0.5)),
        ("top_p", |settings| settings.top_p = Some(0.5)),
        ("max_tokens", |settings| settings.max_tokens = Some(7)),
        ("stop", |settings| settings.stop = vec!["END".into()]),
        ("seed", |settings| settings.seed = Some(7)),
        ("no tools", |settings| {
            settings.tool_choice = Some(ToolChoice::None)
        }),
        ("any tool", |settings| {
            settings.tool_choice = Some(ToolChoice::Required)
        }),
        ("one tool", |settings| {
            settings.tool_choice = Some(ToolChoice::Tool("look".into()))
        }),
        ("one call", |settings| {
            settings.parallel_tool_calls = Some(false)
        }),
        ("web search", |settings| {
            settings.server_tools = vec![ServerTool::web_search()]
        }),
        ("low", |settings| {
            settings.reasoning_effort = Some(ReasoningEffort::Low)
        }),
        ("no reasoning", |settings| {
            settings.reasoning_effort = Some(ReasoningEffort::None)
        }),
        ("JSON", |settings| {
            settings.response_format = Some(ResponseFormat::Json)
        }),
        ("schema", |settings| {
            let (name, schema) = ("a".into(), json!({ "type": "object" }));
            let format = ResponseFormat::JsonSchema {
                name,
                schema,
                strict: false,
            };
            settings.response_format = Some(format);
        }),
    ];
    let plain = body::<C>(Settings::default()).unwrap();
    for (name, change) in changes {
        let mut settings = Settings::default();
        change(&mut settings);
        match body::<C>(settings) {
            Ok(body) => assert_ne!(body, plain, "{name} is left out"),
            Err(error) => assert_eq!(error.kind(), ErrorKind::InvalidRequest, "{name}: {error}"),
        }
    }
}
