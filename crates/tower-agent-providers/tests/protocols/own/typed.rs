//! Typed answers where a schema is not taken as the response format: by a tool that nobody sees, or
//! by the instructions.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use futures::StreamExt;
use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::{Value, json};
use tower_agent::agent::{AnswerFormat, AnswerMode};
use tower_agent::callback::{after_model, before_tool};
use tower_agent::model::{FinishReason, ReasoningEffort, ResponseFormat, ServerTool, ToolChoice};
use tower_agent::stream::EventKind;
use tower_agent::tool::ToolDeclaration;
use tower_agent::{
    Action, Agent, AgentRequest, Error, ErrorKind, Message, ModelRequest, ModelResponse,
    Resolution, Settings, Tool,
};
use tower_agent_middleware::approval::{Approval, Decision};
use tower_agent_providers::anthropic::Messages;
use tower_agent_providers::bedrock::Converse;
use tower_agent_providers::gemini::{GenerateContent, Interactions};
use tower_agent_providers::openai::{Chat, Dialect, SchemaSupport};
use tower_agent_providers::protocol::{Call, Protocol};
use tower_agent_providers::{HttpClient, HttpModel, HttpModelBuilder};

use crate::answer::{Answer, call, text};
use crate::column::{Column, streamed};
use crate::columns::anthropic::AnthropicColumn;
use crate::columns::chat::ChatColumn;
use crate::columns::gemini::GeminiColumn;
use crate::columns::interactions::InteractionsColumn;
use crate::server::{Reply, Server, json as reply};
use test_support::runs::WAYS;

/// A type that Anthropic takes in no schema.
#[derive(Debug, Deserialize, JsonSchema, PartialEq)]
struct Tree {
    name: String,
    below: Vec<Tree>,
}

fn oak() -> Tree {
    Tree {
        name: "oak".into(),
        below: Vec::new(),
    }
}

/// A protocol with a model that takes no schema beside tools.
trait NoSchema: Column {
    const REASON: &'static str;

    fn configure(builder: HttpModelBuilder<Self::Protocol>) -> HttpModelBuilder<Self::Protocol> {
        builder.model("gemini-2.5-flash")
    }
}

impl NoSchema for ChatColumn {
    const REASON: &'static str = "the server takes no schema beside tools";

    fn configure(builder: HttpModelBuilder<Chat>) -> HttpModelBuilder<Chat> {
        let mut dialect = Dialect::default();
        dialect.schemas = SchemaSupport::WithoutTools;
        builder.model("any").dialects(dialect)
    }
}

impl NoSchema for AnthropicColumn {
    const REASON: &'static str = "the provider takes no schema that refers to itself";
}

impl NoSchema for GeminiColumn {
    const REASON: &'static str = "models before Gemini 3 take no schema beside tools";
}

impl NoSchema for InteractionsColumn {
    const REASON: &'static str = "models before Gemini 3 take no schema beside tools";
}

fn model<C: NoSchema>(server: &Server) -> HttpModel<C::Protocol, HttpClient> {
    let builder = HttpModel::<C::Protocol, _>::builder().base_url(&server.base_url);
    C::configure(builder.api_key("k")).build().unwrap()
}

fn answers<C: NoSchema>(is_streamed: bool, answers: &[Answer]) -> Vec<Reply> {
    let replies = answers.iter().map(|answer| {
        if is_streamed {
            streamed::<C>(answer)
        } else {
            reply(200, &C::body(answer))
        }
    });
    replies.collect()
}

fn gives(arguments: &[&str]) -> Answer {
    Answer::new([call("call_9", "final_answer", arguments)])
}

fn looks() -> Answer {
    Answer::new([call("call_1", "look", &["{\"at\":", "1}"])])
}

fn look() -> Tool {
    Tool::function("look", "Looks.", |_: Value| "seen")
}

/// A run with a call beside the first answer, a wrong answer after a sentence, and the right one.
async fn gives_its_answer<C: NoSchema>() {
    for is_streamed in WAYS {
        let both = Answer::new([
            call("call_1", "final_answer", &["{}"]),
            call("call_2", "look", &["{\"at\":", "1}"]),
        ]);
        let sentence = text(&["I ", "know."]);
        let wrong = call("call_3", "final_answer", &["{\"name\":", "1}"]);
        let right = gives(&["{\"name\":\"oak\",", "\"below\":[]}"]);
        let all = [both, Answer::new([sentence, wrong]), right];
        let server = Server::start(answers::<C>(is_streamed, &all)).await;
        let ran = Arc::<AtomicUsize>::default();
        let seen_calls = Arc::<Mutex<Vec<String>>>::default();
        let agent = Agent::builder(model::<C>(&server))
            .tool(Tool::function("look", "Looks.", {
                let ran = ran.clone();
                move |_: Value| ran.fetch_add(1, Ordering::Relaxed)
            }))
            .on_model(after_model({
                let seen_calls = seen_calls.clone();
                move |_, response| {
                    let calls = response.message().tool_calls();
                    seen_calls
                        .lock()
                        .unwrap()
                        .extend(calls.map(|call| call.name.to_string()));
                }
            }))
            .on_tool(before_tool(|request| {
                assert_eq!(request.name(), "look");
            }))
            .build()
            .unwrap();
        let mut run = agent.stream_typed::<Tree>("Which tree?");
        let events: Vec<_> = run.by_ref().collect().await;
        let done = run.response().await.unwrap();
        assert_eq!(done.value, Some(oak()));
        assert_eq!(ran.load(Ordering::Relaxed), 1);
        assert_eq!(*seen_calls.lock().unwrap(), ["look"]);
        let shown = events.iter().filter_map(|event| match &event.kind {
            EventKind::ToolCallStart(call) => Some(&*call.name),
            _ => None,
        });
        assert_eq!(shown.collect::<Vec<_>>(), ["look"]);
        let said: Value = serde_json::from_str(&done.response.text()).unwrap();
        assert_eq!(said, json!({ "name": "oak", "below": [] }));
        test_support::runs::check(&events, Ok(done.response)).unwrap();
        let bodies = server.seen();
        assert_eq!(bodies.len(), 3);
        for seen in bodies {
            // The tool stands among the tools, and nowhere in the conversation.
            assert_eq!(
                seen.text.matches("\"final_answer\"").count(),
                1,
                "{}",
                seen.text
            );
        }
    }
}

/// A model that gives its answer twice at once: the stream, the text and the value are of the
/// first.
async fn counts_the_first_of_two<C: NoSchema>() {
    for is_streamed in WAYS {
        let both = Answer::new([
            call(
                "call_1",
                "final_answer",
                &["{\"name\":\"oak\",", "\"below\":[]}"],
            ),
            call(
                "call_2",
                "final_answer",
                &["{\"name\":\"ash\",", "\"below\":[]}"],
            ),
        ]);
        let server = Server::start(answers::<C>(is_streamed, &[both])).await;
        let agent = Agent::builder(model::<C>(&server))
            .tool(look())
            .build()
            .unwrap();
        let mut run = agent.stream_typed::<Tree>("Which tree?");
        let events: Vec<_> = run.by_ref().collect().await;
        let done = run.response().await.unwrap();
        assert_eq!(done.value, Some(oak()));
        let said: Value = serde_json::from_str(&done.response.text()).unwrap();
        assert_eq!(said, json!({ "name": "oak", "below": [] }));
        test_support::runs::check(&events, Ok(done.response)).unwrap();
    }
}

/// A wrong answer says what was chosen, and why.
async fn says_why<C: NoSchema>() {
    let server = Server::start(answers::<C>(false, &[gives(&["{}"])])).await;
    let agent = Agent::builder(model::<C>(&server))
        .tool(look())
        .build()
        .unwrap();
    let format = AnswerFormat::of::<Tree>().max_repairs(0);
    let request = AgentRequest::new("Which tree?").with_answer_format(format);
    let error = agent.run_typed::<Tree>(request).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::InvalidAnswer);
    let reason = C::REASON;
    let expected = format!("; the schema was that of the tool `final_answer`, since {reason}");
    assert!(error.message().ends_with(&expected), "{error}");
}

/// A callback edits the answer; a run that waits is resumed by another agent.
async fn is_edited_and_resumed<C: NoSchema>() {
    let right = gives(&["{\"name\":\"ash\",\"below\":[]}"]);
    let server = Server::start(answers::<C>(true, &[looks(), right])).await;
    let build = || {
        let edits = after_model(|_, response| match &*response.text() {
            "" => Action::Continue,
            said => Action::Respond(ModelResponse::from_text(said.replace("ash", "oak"))),
        });
        Agent::builder(model::<C>(&server))
            .tool(look())
            .on_model(edits)
            .on_tool(Approval::of_tools(["look"]))
            .build()
            .unwrap()
    };
    let waits = build()
        .stream_typed::<Tree>("Which tree?")
        .response()
        .await
        .unwrap();
    let [interrupt] = waits.response.interrupts() else {
        panic!("{waits:?}")
    };
    let resolution = Resolution::resolved(&*interrupt.id, Decision::Approve);
    let saved = serde_json::to_string(&waits.response.checkpoint()).unwrap();
    let request = AgentRequest::resume(serde_json::from_str(&saved).unwrap());
    let request = request.with_resolutions([resolution]);
    let done = build()
        .stream_typed::<Tree>(request)
        .response()
        .await
        .unwrap();
    assert_eq!(done.value, Some(oak()));
}

/// An agent that is a tool of a typed one answers as ever.
async fn leaves_sub_agents_alone<C: NoSchema>() {
    let asks = call("call_1", "expert", &["{\"request\":\"Which?\"}"]);
    let all = [
        Answer::new([asks]),
        Answer::new([text(&["An oak."])]),
        gives(&["{\"name\":\"oak\",\"below\":[]}"]),
    ];
    let server = Server::start(answers::<C>(false, &all)).await;
    let expert = Agent::builder(model::<C>(&server))
        .name("expert")
        .build()
        .unwrap();
    let agent = Agent::builder(model::<C>(&server))
        .tool(expert.into_tool("Knows."))
        .build()
        .unwrap();
    let done = agent.run_typed::<Tree>("Which tree?").await.unwrap();
    assert_eq!(done.value, Some(oak()));
    assert!(!server.seen()[1].text.contains("final_answer"));
}

/// A response format works without an agent, too: the response has the text, and no call.
async fn is_text_without_an_agent<C: NoSchema>() {
    for is_streamed in WAYS {
        let server = Server::start(answers::<C>(is_streamed, &[gives(&["{\"a\":", "1}"])])).await;
        let request = request(|_| {});
        let response = if is_streamed {
            test_support::stream(model::<C>(&server), request).await.0
        } else {
            test_support::call(model::<C>(&server), request).await
        };
        let response = response.unwrap();
        assert_eq!(response.text(), "{\"a\":1}");
        assert_eq!(response.message().tool_calls().count(), 0);
        assert_eq!(response.finish_reason(), &FinishReason::Stop);
        assert_eq!(response.metadata().answer_tool.as_deref(), Some(C::REASON));
    }
}

async fn holds<C: NoSchema>() {
    gives_its_answer::<C>().await;
    counts_the_first_of_two::<C>().await;
    says_why::<C>().await;
    is_edited_and_resumed::<C>().await;
    leaves_sub_agents_alone::<C>().await;
    is_text_without_an_agent::<C>().await;
}

#[tokio::test]
async fn chat_gives_its_answer_by_a_tool() {
    holds::<ChatColumn>().await;
}

#[tokio::test]
async fn messages_gives_its_answer_by_a_tool() {
    holds::<AnthropicColumn>().await;
}

#[tokio::test]
async fn generate_content_gives_its_answer_by_a_tool() {
    holds::<GeminiColumn>().await;
}

#[tokio::test]
async fn interactions_gives_its_answer_by_a_tool() {
    holds::<InteractionsColumn>().await;
}

/// Returns a request with a tool and a recursive schema.
fn request(set: impl FnOnce(&mut Settings)) -> ModelRequest {
    let mut settings = Settings::default();
    settings.response_format = Some(ResponseFormat::of::<Tree>());
    set(&mut settings);
    let mut request = ModelRequest::new([Message::user("hi")]).with_settings(settings);
    let tool = ToolDeclaration::new("look", "Looks.");
    request.tools_mut().push(Arc::new(tool));
    request
}

fn body<P: Protocol + Default>(host: &str, model: &str, request: &ModelRequest) -> Value {
    let call = Call::new(request).with_host(host).with_model(model);
    let mut body = Vec::new();
    P::default().encode(&call, &mut body).unwrap();
    serde_json::from_slice(&body).unwrap()
}

fn messages(request: &ModelRequest) -> Value {
    body::<Messages>("", "claude", request)
}

fn gemini(request: &ModelRequest) -> Value {
    body::<GenerateContent>("", "gemini-2.5-flash", request)
}

fn groq(request: &ModelRequest) -> Value {
    body::<Chat>("api.groq.com", "llama-3.3-70b", request)
}

fn deepseek(request: &ModelRequest) -> Value {
    body::<Chat>("api.deepseek.com", "deepseek-v4", request)
}

/// Many of its models accept no call that is forced.
fn converse(request: &ModelRequest) -> Value {
    body::<Converse>("", "meta.llama4-scout-17b-instruct-v1:0", request)
}

#[test]
fn a_call_is_forced() {
    let request = request(|_| {});
    assert_eq!(messages(&request)["tool_choice"], json!({ "type": "any" }));
    assert_eq!(groq(&request)["tool_choice"], "required");
    let mode = &gemini(&request)["toolConfig"]["functionCallingConfig"]["mode"];
    assert_eq!(mode, "ANY");
    let sent = body::<Interactions>("", "gemini-2.5-flash", &request);
    assert_eq!(sent["generation_config"]["tool_choice"], "any");
}

/// Where a call cannot be forced, or the caller has chosen otherwise, the model reads the schema.
#[test]
fn otherwise_the_schema_stands_in_the_instructions() {
    type Encode = fn(&ModelRequest) -> Value;
    let all: [Encode; 3] = [messages, gemini, groq];
    let mut cases: Vec<(Encode, ModelRequest)> = vec![
        (deepseek, request(|_| {})),
        (converse, request(|_| {})),
        (
            messages,
            request(|settings| settings.reasoning_effort = Some(ReasoningEffort::High)),
        ),
        (
            gemini,
            request(|settings| settings.server_tools = vec![ServerTool::web_search()]),
        ),
    ];
    for encode in all {
        let auto = request(|settings| settings.tool_choice = Some(ToolChoice::Auto));
        let none = request(|settings| settings.tool_choice = Some(ToolChoice::None));
        let mut own = request(|_| {});
        let tool = ToolDeclaration::new("final_answer", "Is the caller's.");
        own.tools_mut().push(Arc::new(tool));
        cases.extend([(encode, auto), (encode, none), (encode, own)]);
    }
    for (encode, request) in cases {
        let sent = encode(&request).to_string();
        assert!(sent.contains("Give your final answer as JSON"), "{sent}");
        let tools = request.tools().iter().map(|tool| tool.name());
        let own = tools.filter(|name| *name == "final_answer").count();
        assert_eq!(sent.matches("\"final_answer\"").count(), own, "{sent}");
    }
}

/// A mode that is set by hand is not changed.
#[tokio::test]
async fn the_mode_can_be_set_by_hand() {
    let answer = Answer::new([text(&["{\"name\":\"oak\",\"below\":[]}"])]);
    let server = Server::start(answers::<GeminiColumn>(false, &[answer])).await;
    let agent = Agent::builder(model::<GeminiColumn>(&server))
        .instructions("Be brief.")
        .tool(look())
        .build()
        .unwrap();
    let format = AnswerFormat::of::<Tree>().mode(AnswerMode::Text);
    let request = AgentRequest::new("Which tree?").with_answer_format(format);
    let done: Result<Tree, Error> = agent
        .run_typed(request)
        .await
        .and_then(|done| done.into_value());
    assert_eq!(done.unwrap(), oak());
    let sent = server.only().body;
    let instructions = sent["systemInstruction"]["parts"][0]["text"]
        .as_str()
        .unwrap();
    assert!(instructions.starts_with("Be brief.\n\nGive your final answer as JSON"));
    assert!(!sent.to_string().contains("final_answer"));
    assert_eq!(sent.get("toolConfig"), None);
}
