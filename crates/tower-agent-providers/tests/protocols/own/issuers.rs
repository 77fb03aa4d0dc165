//! Whose opaque data is: what one server has signed, sealed or numbered goes back to it alone,
//! whatever protocol two servers share.

use std::collections::{BTreeSet, VecDeque};
use std::sync::{Arc, Mutex};

use bytes::Bytes;
use http_body_util::{BodyExt, Full};
use serde_json::{Value, json};
use tower_agent::message::{Messages, Part, ToolResult};
use tower_agent::model::BoxModel;
use tower_agent::{Agent, AgentRequest, Message, ModelRequest, Tool};
use tower_agent_middleware::fallback::Fallback;
use tower_agent_middleware::pool::Pool;
use tower_agent_providers::anthropic::Messages as Claude;
use tower_agent_providers::gemini::{GenerateContent, Interactions};
use tower_agent_providers::ollama::Chat as OllamaChat;
use tower_agent_providers::openai::{Chat, Responses};
use tower_agent_providers::operations::CountTokens;
use tower_agent_providers::protocol::Protocol;
use tower_agent_providers::vertex::{VertexGenerateContent, VertexMessages};
use tower_agent_providers::{HttpModel, HttpModelBuilder, RequestBody};

use test_support::call;

/// What only the server that has sent it can read.
const SEALED: &str = "c2VhbGVkLWJ5LW9uZQ==";

type Sent = Arc<Mutex<Vec<String>>>;

/// A model whose server gives these answers with the status that each has, and what it was sent.
fn serve<P: Protocol>(
    builder: HttpModelBuilder<P>,
    answers: impl IntoIterator<Item = (u16, Value)>,
) -> (BoxModel, Sent) {
    let sent = Sent::default();
    let log = sent.clone();
    let answers: Arc<Mutex<VecDeque<_>>> = Arc::new(Mutex::new(answers.into_iter().collect()));
    let service = tower::service_fn(move |request: http::Request<RequestBody>| {
        let log = log.clone();
        let answers = answers.clone();
        async move {
            let body = request.into_body().collect().await.unwrap().to_bytes();
            log.lock()
                .unwrap()
                .push(String::from_utf8(body.to_vec()).unwrap());
            let (status, answer) = answers.lock().unwrap().pop_front().unwrap();
            let response = http::Response::builder().status(status);
            let response = response.header("content-type", "application/json");
            Ok::<_, std::io::Error>(
                response
                    .body(Full::new(Bytes::from(answer.to_string())))
                    .unwrap(),
            )
        }
    });
    let model = builder.api_key("k").model("m").build_with(service).unwrap();
    (BoxModel::new(model), sent)
}

fn at<P: Protocol + Default>(host: &str) -> HttpModelBuilder<P> {
    HttpModel::<P, ()>::builder().base_url(format!("https://{host}/v1"))
}

/// An answer of each protocol with a call, a text and all the sealed data that it can have.
trait Sealed: Protocol + Default {
    fn answer() -> Value;
}

impl Sealed for Claude {
    fn answer() -> Value {
        json!({ "id": "m", "type": "message", "role": "assistant", "stop_reason": "tool_use",
            "content": [
                { "type": "thinking", "thinking": "hm", "signature": SEALED },
                { "type": "redacted_thinking", "data": SEALED },
                { "type": "server_tool_use", "id": SEALED, "name": "web_search", "input": {} },
                { "type": "text", "text": "I look." },
                { "type": "tool_use", "id": "toolu_1", "name": "look", "input": {}, "caller": SEALED },
            ] })
    }
}

impl Sealed for Responses {
    fn answer() -> Value {
        json!({ "id": "r", "status": "completed", "output": [
            { "type": "reasoning", "id": SEALED, "summary": [], "encrypted_content": SEALED },
            { "type": "web_search_call", "id": SEALED, "status": "completed" },
            { "type": "message", "id": SEALED, "role": "assistant",
              "content": [{ "type": "output_text", "text": "I look." }] },
            { "type": "function_call", "id": SEALED, "call_id": "call_1", "name": "look", "arguments": "{}" },
        ] })
    }
}

impl Sealed for Chat {
    fn answer() -> Value {
        let details = json!([{ "type": "reasoning.encrypted", "data": SEALED }]);
        let call = json!({ "id": "call_1", "type": "function", "extra_content": { "google": SEALED },
                           "function": { "name": "look", "arguments": "{}" } });
        let message = json!({ "role": "assistant", "content": "I look.", "reasoning": "hm",
                              "reasoning_details": details, "reasoning_opaque": SEALED,
                              "tool_calls": [call] });
        json!({ "choices": [{ "index": 0, "message": message, "finish_reason": "tool_calls" }] })
    }
}

impl Sealed for GenerateContent {
    fn answer() -> Value {
        let parts = json!([
            { "text": "hm", "thought": true, "thoughtSignature": SEALED },
            { "text": "I look." },
            { "functionCall": { "id": "f", "name": "look", "args": {} }, "thoughtSignature": SEALED },
        ]);
        json!({ "candidates": [{ "content": { "role": "model", "parts": parts }, "finishReason": "STOP" }] })
    }
}

impl Sealed for Interactions {
    fn answer() -> Value {
        json!({ "id": "i", "status": "completed", "steps": [
            { "type": "thought", "signature": SEALED },
            { "type": "model_output", "content": [{ "type": "text", "text": "I look." }] },
            { "type": "function_call", "id": "f", "name": "look", "arguments": {}, "signature": SEALED },
        ] })
    }
}

impl Sealed for OllamaChat {
    fn answer() -> Value {
        let call = json!({ "function": { "name": "look", "arguments": {} } });
        let message = json!({ "role": "assistant", "content": "I look.", "thinking": SEALED,
                              "tool_calls": [call] });
        json!({ "model": "m", "message": message, "done": true, "done_reason": "stop" })
    }
}

/// Asks one model, and sends its answer, with results and by way of JSON, to another. Returns the
/// body that the other receives.
async fn across<A: Sealed, B: Protocol>(
    one: HttpModelBuilder<A>,
    other: HttpModelBuilder<B>,
) -> String {
    let (one, _) = serve(one, [(200, A::answer())]);
    let said = call(one, ModelRequest::new([Message::user("hi")]))
        .await
        .unwrap();
    let mut messages = vec![Message::user("hi"), said.message().clone()];
    let results = said.message().tool_calls();
    let results = results.map(|call| ToolResult::new(call, [Part::from_text("a cat")]));
    messages.extend(results.map(Message::tool));
    let stored = serde_json::to_string(&messages).unwrap();
    let messages: Vec<Message> = serde_json::from_str(&stored).unwrap();
    let (other, sent) = serve(other, [(500, json!({}))]);
    call(other, ModelRequest::new(messages)).await.unwrap_err();
    let sent = sent.lock().unwrap();
    assert!(
        sent[0].contains("I look.") && sent[0].contains("a cat"),
        "{}",
        sent[0]
    );
    sent[0].clone()
}

/// Of each two hosts, the data goes from one to the other if they are the same, or `families` has
/// both in one list.
async fn matrix<P: Sealed>(families: &[&[&str]]) {
    for (family, hosts) in families.iter().enumerate() {
        for one in *hosts {
            for (other_family, others) in families.iter().enumerate() {
                for other in *others {
                    let sent = across(at::<P>(one), at::<P>(other)).await;
                    let expected = family == other_family;
                    assert_eq!(sent.contains(SEALED), expected, "{one} to {other}: {sent}");
                }
            }
        }
    }
}

#[tokio::test]
async fn claudes_signatures_go_to_claude_wherever_it_is_served() {
    matrix::<Claude>(&[
        &["api.anthropic.com", "me.services.ai.azure.com"],
        &["api.moonshot.ai", "api.moonshot.cn"],
        &["api.minimax.io"],
        &["api.z.ai"],
        &["openrouter.ai"],
        &["proxy.example.com"],
        &["127.0.0.1"],
    ])
    .await;
    let project =
        |builder: HttpModelBuilder<VertexMessages>| builder.project("p").location("global");
    let vertex = project(at::<VertexMessages>("aiplatform.googleapis.com"));
    let sent = across(at::<Claude>("api.anthropic.com"), vertex).await;
    assert!(sent.contains(SEALED), "{sent}");
    let vertex = project(at::<VertexMessages>("gateway.example.com"));
    let sent = across(at::<Claude>("api.moonshot.ai"), vertex).await;
    assert!(!sent.contains(SEALED), "{sent}");
}

#[tokio::test]
async fn sealed_reasoning_of_responses_goes_to_the_account_that_it_was_sealed_for() {
    matrix::<Responses>(&[
        &["api.openai.com", "eu.api.openai.com"],
        &["one.openai.azure.com"],
        &["two.openai.azure.com"],
        &["openrouter.ai"],
        &["api.x.ai"],
        &["proxy.example.com"],
    ])
    .await;
    let openai = || at::<Responses>("api.openai.com");
    let with_key = |key: &str| openai().header("authorization", format!("Bearer {key}"));
    let sent = across(with_key("one"), with_key("two")).await;
    assert!(!sent.contains(SEALED), "{sent}");
    let sent = across(with_key("one"), with_key("one")).await;
    assert!(sent.contains(SEALED), "{sent}");
    // What names the account counts more than the key.
    let of = |key: &str, account: &str| with_key(key).header("openai-organization", account);
    let sent = across(of("one", "org-1"), of("two", "org-1")).await;
    assert!(sent.contains(SEALED), "{sent}");
    let sent = across(of("one", "org-1"), of("one", "org-2")).await;
    assert!(!sent.contains(SEALED), "{sent}");
    let named = |key: &str| with_key(key).issuer("our organisation");
    let sent = across(named("one"), named("two")).await;
    assert!(sent.contains(SEALED), "{sent}");
}

#[tokio::test]
async fn a_gateway_of_chat_completions_gets_back_what_it_has_sent() {
    matrix::<Chat>(&[
        &["openrouter.ai"],
        &["ai-gateway.vercel.sh"],
        &["generativelanguage.googleapis.com"],
        &["proxy.example.com"],
        &["other.example.com"],
        &["localhost"],
    ])
    .await;
    // Everything, in the fields in which it came.
    let proxy = || at::<Chat>("proxy.example.com");
    let sent: Value = serde_json::from_str(&across(proxy(), proxy()).await).unwrap();
    let message = &sent["messages"][1];
    let expected = &Chat::answer()["choices"][0]["message"];
    for name in [
        "reasoning",
        "reasoning_details",
        "reasoning_opaque",
        "tool_calls",
        "content",
    ] {
        assert_eq!(message[name], expected[name], "{message}");
    }
}

#[tokio::test]
async fn the_data_of_the_other_protocols() {
    let hosts: &[&[&str]] = &[
        &[
            "generativelanguage.googleapis.com",
            "europe-west4-aiplatform.googleapis.com",
        ],
        &["proxy.example.com"],
        &["other.example.com"],
    ];
    matrix::<GenerateContent>(hosts).await;
    matrix::<Interactions>(hosts).await;
    let vertex = at::<VertexGenerateContent>("gateway.example.com").project("p");
    let google = at::<GenerateContent>("generativelanguage.googleapis.com");
    assert!(across(google, vertex).await.contains(SEALED));
    matrix::<OllamaChat>(&[&["ollama.com"], &["localhost"], &["gpu.example.com"]]).await;
}

/// A text that is counted is the text that would be sent.
#[tokio::test]
async fn a_count_of_tokens_leaves_out_what_others_have_made() {
    let (moonshot, _) = serve(at::<Claude>("api.moonshot.ai"), [(200, Claude::answer())]);
    let said = call(moonshot, ModelRequest::new([Message::user("hi")]))
        .await
        .unwrap();
    let request = ModelRequest::new([Message::user("hi"), said.message().clone()]);
    let sent = Sent::default();
    let log = sent.clone();
    let service = tower::service_fn(move |request: http::Request<RequestBody>| {
        let log = log.clone();
        async move {
            let body = request.into_body().collect().await.unwrap().to_bytes();
            log.lock()
                .unwrap()
                .push(String::from_utf8(body.to_vec()).unwrap());
            let body = Full::new(Bytes::from(r#"{"input_tokens":3}"#));
            Ok::<_, std::io::Error>(http::Response::new(body))
        }
    });
    let claude = at::<Claude>("api.anthropic.com").api_key("k").model("m");
    let claude = claude.build_with(service).unwrap();
    let counted = claude.operations();
    tower::ServiceExt::oneshot(counted, CountTokens::new(request))
        .await
        .unwrap();
    let sent = sent.lock().unwrap();
    assert!(
        sent[0].contains("I look.") && !sent[0].contains(SEALED),
        "{}",
        sent[0]
    );
}

fn claude_says(thought: &str, end: Value) -> Value {
    let signature = format!("signature of {thought}");
    let reason = if end["type"] == "text" {
        "end_turn"
    } else {
        "tool_use"
    };
    json!({ "id": "m", "type": "message", "role": "assistant", "stop_reason": reason,
        "content": [{ "type": "thinking", "thinking": thought, "signature": signature }, end] })
}

fn look(id: &str) -> Value {
    json!({ "type": "tool_use", "id": id, "name": "look", "input": {} })
}

fn done() -> Value {
    json!({ "type": "text", "text": "Done." })
}

/// The first fails in the middle, and takes the run over again; the conversation then goes on from
/// a checkpoint with the second alone.
#[tokio::test]
async fn a_run_that_falls_back_and_a_conversation_that_changes_its_model() {
    let busy =
        json!({ "type": "error", "error": { "type": "overloaded_error", "message": "Busy." } });
    let (kimi, kimi_sent) = serve(
        at::<Claude>("api.moonshot.ai"),
        [
            (200, claude_says("kimi one", look("call_0"))),
            (529, busy),
            (200, claude_says("kimi two", done())),
        ],
    );
    let claude = || at::<Claude>("api.anthropic.com");
    let (second, claude_sent) = serve(claude(), [(200, claude_says("claude one", look("call_0")))]);
    let tool = || Tool::function("look", "Looks.", |_: Value| "a cat");
    let models = Fallback::new(kimi).or(second);
    let agent = Agent::builder(models).tool(tool()).build().unwrap();
    let response = agent.run("What do you see?").await.unwrap();
    assert_eq!(response.text(), "Done.");

    let claude_sent = claude_sent.lock().unwrap().clone();
    assert!(!claude_sent[0].contains("kimi"), "{}", claude_sent[0]);
    let kimi_sent = kimi_sent.lock().unwrap().clone();
    assert!(
        kimi_sent[2].contains("signature of kimi one"),
        "{}",
        kimi_sent[2]
    );
    assert!(!kimi_sent[2].contains("claude one"), "{}", kimi_sent[2]);

    let stored = serde_json::to_string(response.messages()).unwrap();
    let stored: Messages = serde_json::from_str(&stored).unwrap();
    let (alone, sent) = serve(claude(), [(200, claude_says("claude two", done()))]);
    let agent = Agent::builder(alone).tool(tool()).build().unwrap();
    let request = AgentRequest::conversation(stored).with_message("And now?");
    agent.run(request).await.unwrap();
    let sent = sent.lock().unwrap().clone();
    assert!(sent[0].contains("signature of claude one"), "{}", sent[0]);
    assert!(!sent[0].contains("kimi"), "{}", sent[0]);
    // Both had numbered their calls alike, and a second time.
    let body: Value = serde_json::from_str(&sent[0]).unwrap();
    let blocks = body["messages"].as_array().unwrap().iter();
    let blocks = blocks.flat_map(|message| message["content"].as_array().unwrap());
    let ids = |kind: &str, field: &str| -> Vec<Value> {
        let blocks = blocks.clone().filter(|block| block["type"] == kind);
        blocks.map(|block| block[field].clone()).collect()
    };
    let calls = ids("tool_use", "id");
    assert_eq!(calls, ids("tool_result", "tool_use_id"));
    assert_eq!(calls.len(), 2);
    assert_ne!(calls[0], calls[1]);
}

#[tokio::test]
async fn keys_of_two_accounts_in_one_pool() {
    let account = |name: &str| {
        let answers = (0..20).map(|step| {
            let sealed = format!("sealed for {name}");
            (
                200,
                json!({ "id": "r", "status": "completed", "output": [
                { "type": "reasoning", "id": "rs", "summary": [], "encrypted_content": sealed },
                { "type": "function_call", "id": "fc", "call_id": format!("call_{name}_{step}"),
                  "name": "look", "arguments": "{}" },
            ] }),
            )
        });
        let key = format!("Bearer key of {name}");
        serve(
            at::<Responses>("api.openai.com").header("authorization", key),
            answers,
        )
    };
    let (one, one_sent) = account("one");
    let (two, two_sent) = account("two");
    let pool = Pool::new([("one", one), ("two", two)]);
    let agent = Agent::builder(pool).tool(Tool::function("look", "Looks.", |_: Value| "a cat"));
    let agent = agent.max_iterations(20).build().unwrap();
    let _ = agent.run("Go on.").await;
    let mut calls = 0;
    for (sent, other, own) in [
        (one_sent, "sealed for two", "sealed for one"),
        (two_sent, "sealed for one", "sealed for two"),
    ] {
        let sent = sent.lock().unwrap();
        calls += sent.len();
        assert!(sent.iter().all(|body| !body.contains(other)));
        assert!(sent.iter().skip(1).all(|body| body.contains(own)));
    }
    assert_eq!(calls, 20);
}

/// As from a host that numbers the calls of each answer anew.
#[tokio::test]
async fn ids_that_stand_twice_are_sent_once() {
    for ids in [
        ["call_0", "call_0", "call_0"],
        ["read:0", "read:0", "read:0"],
        ["ü", "ü", "ü"],
    ] {
        let mut history = vec![Message::user("Look.")];
        for (turn, id) in ids.iter().enumerate() {
            let call = tower_agent::message::ToolCall::new(*id, "read", json!({ "value": turn }));
            history.push(Message::new(
                tower_agent::Role::Assistant,
                [Part::from(call.clone())],
            ));
            history.push(Message::tool(ToolResult::new(
                &call,
                [Part::from_text(format!("text {turn}"))],
            )));
        }
        let mut earlier: Vec<String> = Vec::new();
        for length in 3..=history.len() {
            let (model, sent) = serve(at::<Claude>("api.anthropic.com"), [(500, json!({}))]);
            call(model, ModelRequest::new(history[..length].to_vec()))
                .await
                .unwrap_err();
            let sent = sent.lock().unwrap()[0].clone();
            let body: Value = serde_json::from_str(&sent).unwrap();
            let blocks = body["messages"].as_array().unwrap().iter();
            let blocks = blocks.flat_map(|message| message["content"].as_array().unwrap());
            let ids: Vec<_> = blocks
                .clone()
                .filter_map(|block| block["id"].as_str())
                .collect();
            let results: Vec<_> = blocks
                .clone()
                .filter_map(|block| block["tool_use_id"].as_str())
                .collect();
            assert_eq!(
                ids.iter().collect::<BTreeSet<_>>().len(),
                ids.len(),
                "{sent}"
            );
            assert_eq!(ids[..results.len()], results, "{sent}");
            // What was sent before stays as it is, so that the provider's cache holds.
            assert!(ids.starts_with(&earlier.iter().map(|id| &**id).collect::<Vec<_>>()));
            earlier = ids.into_iter().map(str::to_owned).collect();
        }
    }
}
