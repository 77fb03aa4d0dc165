//! One thread on several devices of its user: a `GET` shows it, and a device that is behind
//! receives what it has missed.

use std::sync::Arc;

use futures::StreamExt;
use http::{Method, Request, StatusCode};
use http_body_util::{BodyExt, Full};
use serde_json::{Value, json};
use tower::ServiceExt;
use tower_agent::callback::{Recovery, after_model, on_model_error};
use tower_agent::stream::EventKind;
use tower_agent::{
    Action, Agent, BoxError, Error, ErrorKind, Message as ModelMessage, ModelResponse, Part,
    Resolution, Role, Tool,
};
use tower_agent_agui::conversations::{ConversationKey, ConversationQuery, Roles, SealKey};
use tower_agent_agui::{
    AgUi, AgUiBuilder, Conversation, Event, Message, MessageKind, RunAgentInput, TranslateResponse,
    before_translate,
};
use tower_agent_middleware::approval::Approval;
use tower_agent_middleware::redact::{Detector, Redact};
use tower_agent_test::{ScriptedModel, Turn};

fn server(agent: Agent) -> AgUiBuilder {
    AgUi::builder(agent)
        .name("shop")
        .principal(|parts| Some(parts.headers.get("x-user")?.to_str().ok()?.to_owned()))
        .roles(|parts| {
            let role = parts
                .headers
                .get("x-role")
                .and_then(|role| role.to_str().ok());
            Roles::new(role)
        })
}

fn parrot(turns: impl IntoIterator<Item = &'static str>) -> ScriptedModel {
    ScriptedModel::new(turns.into_iter().map(Turn::from_text))
}

fn agent(model: &ScriptedModel) -> Agent {
    Agent::builder(model.clone()).build().unwrap()
}

/// A device of a user.
struct Device {
    user: &'static str,
    name: &'static str,
    role: &'static str,
    shown: Conversation,
    runs: usize,
}

impl Device {
    fn new(user: &'static str, name: &'static str) -> Self {
        Self {
            user,
            name,
            role: "none",
            shown: Conversation::new([]),
            runs: 0,
        }
    }

    fn request(&self, method: Method, uri: &str) -> http::request::Builder {
        Request::builder()
            .method(method)
            .uri(uri)
            .header("x-user", self.user)
            .header("x-role", self.role)
            .header("content-type", "application/json")
    }

    async fn send(
        &mut self,
        server: &AgUi,
        request: Request<Full<bytes::Bytes>>,
    ) -> (StatusCode, Vec<Value>) {
        let response = server.clone().oneshot(request).await.unwrap();
        let status = response.status();
        let body = response.into_body().collect().await.unwrap().to_bytes();
        let text = std::str::from_utf8(&body).unwrap();
        if status != StatusCode::OK {
            return (status, vec![serde_json::from_str(text).unwrap()]);
        }
        let events = super::client::parse(text);
        for event in &events {
            let event: Event = serde_json::from_value(event.clone()).unwrap();
            self.shown.apply(&event);
        }
        (status, events)
    }

    /// Reads the thread from the server.
    async fn opens(&mut self, server: &AgUi) -> (StatusCode, Vec<Value>) {
        let request = self.request(Method::GET, "/agent?threadId=my%20thread");
        let request = request.body(Full::default()).unwrap();
        self.send(server, request).await
    }

    async fn sends(&mut self, server: &AgUi, resume: Value) -> Vec<Value> {
        self.runs += 1;
        let mut messages = self.shown.messages().to_vec();
        // As the official client does.
        messages.retain(|message| !matches!(message.kind, MessageKind::Activity { .. }));
        let input = json!({
            "threadId": "my thread",
            "runId": format!("{}-{}", self.name, self.runs),
            "messages": messages,
            "resume": resume,
        });
        let request = self.request(Method::POST, "/agent");
        let request = request.body(Full::from(input.to_string())).unwrap();
        let (status, events) = self.send(server, request).await;
        assert_eq!(status, StatusCode::OK, "{events:?}");
        events
    }

    async fn says(&mut self, server: &AgUi, text: &str) -> Vec<Value> {
        let mut messages = self.shown.messages().to_vec();
        messages.push(Message::user(format!("{}-u{}", self.name, self.runs), text));
        self.shown = Conversation::new(messages);
        self.sends(server, json!([])).await
    }

    /// Removes the last messages, as an edit does.
    fn forgets(&mut self, number: usize) {
        let mut messages = self.shown.messages().to_vec();
        messages.retain(|message| !matches!(message.kind, MessageKind::Activity { .. }));
        messages.truncate(messages.len() - number);
        self.shown = Conversation::new(messages);
    }

    /// Returns the conversation in short.
    fn reads(&self) -> Vec<String> {
        let messages = self.shown.messages().iter();
        messages
            .filter(|message| !matches!(message.kind, MessageKind::Activity { .. }))
            .map(|message| {
                let message = serde_json::to_value(message).unwrap();
                let words = message["content"].as_str().unwrap_or("(calls)");
                format!("{}: {words}", message["role"].as_str().unwrap())
            })
            .collect()
    }

    fn ids(&self) -> Vec<Arc<str>> {
        let messages = self.shown.messages().iter();
        messages.map(|message| message.id.clone()).collect()
    }
}

fn kinds(events: &[Value]) -> Vec<&str> {
    events
        .iter()
        .map(|event| event["type"].as_str().unwrap())
        .collect()
}

fn texts(model: &ScriptedModel) -> Vec<String> {
    let requests = model.requests();
    let messages = requests.last().unwrap().messages().clone();
    messages.iter().map(|message| message.text()).collect()
}

#[tokio::test]
async fn a_get_shows_the_thread_on_another_device_which_goes_on_with_it() {
    let model = parrot(["Hello.", "Sunny.", "Bye."]);
    let server = server(agent(&model)).build();
    let mut laptop = Device::new("ada", "laptop");
    laptop.says(&server, "Hi").await;
    laptop.says(&server, "How is the weather?").await;

    let mut phone = Device::new("ada", "phone");
    let (status, events) = phone.opens(&server).await;
    assert_eq!(status, StatusCode::OK);
    let expected = [
        "RUN_STARTED",
        "STATE_SNAPSHOT",
        "MESSAGES_SNAPSHOT",
        "RUN_FINISHED",
    ];
    assert_eq!(kinds(&events), expected);
    assert_eq!(events[0]["threadId"], "my thread");
    assert_eq!(phone.reads(), laptop.reads());
    assert_eq!(phone.ids(), laptop.ids());

    phone.says(&server, "Thanks").await;
    assert_eq!(phone.reads().last().unwrap(), "assistant: Bye.");
    assert_eq!(
        texts(&model),
        ["Hi", "Hello.", "How is the weather?", "Sunny.", "Thanks"]
    );
}

#[tokio::test]
async fn a_device_that_is_behind_receives_first_what_another_one_has_said() {
    let model = parrot(["Hello.", "Sunny.", "Blue.", "Four.", "Bye."]);
    let server = server(agent(&model)).build();
    let mut laptop = Device::new("ada", "laptop");
    laptop.says(&server, "Hi").await;
    let mut phone = Device::new("ada", "phone");
    phone.opens(&server).await;
    phone.says(&server, "How is the weather?").await;

    let events = laptop.says(&server, "Which colour has the sky?").await;
    let snapshot = "MESSAGES_SNAPSHOT";
    assert_eq!(kinds(&events)[..3], ["RUN_STARTED", snapshot, snapshot]);
    let both = [
        "user: Hi",
        "assistant: Hello.",
        "user: How is the weather?",
        "assistant: Sunny.",
        "user: Which colour has the sky?",
        "assistant: Blue.",
    ];
    assert_eq!(laptop.reads(), both);
    let seen = [
        "Hi",
        "Hello.",
        "How is the weather?",
        "Sunny.",
        "Which colour has the sky?",
    ];
    assert_eq!(texts(&model), seen);

    // Now the phone is behind; and then nobody.
    phone.says(&server, "Two and two?").await;
    assert_eq!(phone.reads()[..6], both);
    assert_eq!(phone.reads().last().unwrap(), "assistant: Four.");
    let events = phone.says(&server, "Bye").await;
    assert!(!kinds(&events).contains(&snapshot), "{:?}", kinds(&events));
    assert_eq!(texts(&model).len(), 9);
}

#[tokio::test]
async fn a_device_that_edits_drops_what_it_has_received_on_each_device() {
    let model = parrot(["Hello.", "Sunny.", "Rainy.", "Snowy.", "Foggy."]);
    let server = server(agent(&model)).build();
    let mut laptop = Device::new("ada", "laptop");
    laptop.says(&server, "Hi").await;
    let mut phone = Device::new("ada", "phone");
    phone.opens(&server).await;
    phone.says(&server, "Weather in Oslo?").await;
    // Its own messages.
    phone.forgets(2);
    phone.says(&server, "Weather in Rome?").await;
    assert_eq!(texts(&model), ["Hi", "Hello.", "Weather in Rome?"]);
    // Those that it has received first.
    laptop.says(&server, "Weather in Bern?").await;
    assert_eq!(
        texts(&model),
        [
            "Hi",
            "Hello.",
            "Weather in Rome?",
            "Rainy.",
            "Weather in Bern?"
        ]
    );
    laptop.forgets(4);
    laptop.says(&server, "Weather in Wien?").await;
    assert_eq!(texts(&model), ["Hi", "Hello.", "Weather in Wien?"]);
}

#[tokio::test]
async fn a_device_that_drops_an_earlier_message_starts_a_branch_without_what_it_has_missed() {
    let model = parrot(["Hello.", "Sunny.", "Blue."]);
    let server = server(agent(&model)).build();
    let mut laptop = Device::new("ada", "laptop");
    laptop.says(&server, "Hi").await;
    let mut phone = Device::new("ada", "phone");
    phone.opens(&server).await;
    phone.says(&server, "Weather?").await;
    laptop.forgets(2);
    laptop.says(&server, "Good morning").await;
    assert_eq!(texts(&model), ["Good morning"]);
    assert_eq!(laptop.reads(), ["user: Good morning", "assistant: Blue."]);
}

#[tokio::test]
async fn a_client_that_sends_only_what_is_new_receives_the_whole_thread_once() {
    let model = parrot(["Hello.", "Sunny.", "Blue.", "Four."]);
    let server = server(agent(&model)).allow_partial_history().build();
    let mut laptop = Device::new("ada", "laptop");
    laptop.says(&server, "Hi").await;
    let mut phone = Device::new("ada", "phone");
    phone.opens(&server).await;
    phone.says(&server, "How is the weather?").await;

    laptop.shown = Conversation::default();
    laptop.says(&server, "Which colour has the sky?").await;
    let all = [
        "user: Hi",
        "assistant: Hello.",
        "user: How is the weather?",
        "assistant: Sunny.",
        "user: Which colour has the sky?",
        "assistant: Blue.",
    ];
    assert_eq!(laptop.reads(), all);
    laptop.shown = Conversation::default();
    let events = laptop.says(&server, "Two and two?").await;
    assert!(!kinds(&events).contains(&"MESSAGES_SNAPSHOT"));
    assert_eq!(texts(&model).len(), 7);
}

#[tokio::test]
async fn what_was_missed_is_sent_again_if_the_run_breaks_off() {
    let model = parrot(["Hello.", "Sunny.", "Blue."]);
    let server = server(agent(&model)).build();
    let mut laptop = Device::new("ada", "laptop");
    laptop.says(&server, "Hi").await;
    let mut phone = Device::new("ada", "phone");
    phone.opens(&server).await;
    phone.says(&server, "Weather?").await;

    let mut messages = laptop.shown.messages().to_vec();
    messages.push(Message::user("u", "Sky?"));
    let input = RunAgentInput::new("my thread", "broken", messages.clone());
    drop(server.run_for("ada", input).await.unwrap());
    laptop.shown = Conversation::new(messages);
    laptop.sends(&server, json!([])).await;
    let expected = [
        "user: Hi",
        "assistant: Hello.",
        "user: Weather?",
        "assistant: Sunny.",
        "user: Sky?",
        "assistant: Blue.",
    ];
    assert_eq!(laptop.reads(), expected);
    assert_eq!(
        texts(&model),
        ["Hi", "Hello.", "Weather?", "Sunny.", "Sky?"]
    );
}

fn cashier(model: &ScriptedModel, approval: Approval) -> Agent {
    let pay = Tool::function("pay", "Pays.", |_: Value| "paid");
    Agent::builder(model.clone())
        .tool(pay)
        .on_tool(approval)
        .build()
        .unwrap()
}

fn wants() -> Turn {
    Turn::tool("pay", json!({ "cents": 5 }))
}

fn interrupts(events: &[Value]) -> Vec<Value> {
    let outcome = &events.last().unwrap()["outcome"];
    outcome["interrupts"]
        .as_array()
        .cloned()
        .unwrap_or_default()
}

fn approve(interrupt: &Value) -> Value {
    json!([{ "interruptId": interrupt["id"], "status": "resolved", "payload": { "approved": true } }])
}

#[tokio::test]
async fn an_open_question_is_answered_on_the_device_that_reads_it() {
    let model = ScriptedModel::new([wants(), Turn::from_text("Done.")]);
    let server = server(cashier(&model, Approval::of_tools(["pay"]))).build();
    let mut laptop = Device::new("ada", "laptop");
    let asked = interrupts(&laptop.says(&server, "Pay.").await);
    let mut phone = Device::new("ada", "phone");
    let (_, events) = phone.opens(&server).await;
    let shown = interrupts(&events);
    assert_eq!(shown, asked);
    phone.sends(&server, approve(&shown[0])).await;
    let expected = [
        "user: Pay.",
        "assistant: (calls)",
        "tool: paid",
        "assistant: Done.",
    ];
    assert_eq!(phone.reads(), expected);
    laptop.sends(&server, json!([])).await;
    assert_eq!(laptop.reads()[..4], expected);
}

#[tokio::test]
async fn a_question_for_a_role_is_shown_to_those_who_have_it() {
    let model = ScriptedModel::new([wants()]);
    let approval = Approval::of_tools(["pay"]).by_role("support");
    let server = server(cashier(&model, approval)).build();
    let mut laptop = Device::new("ada", "laptop");
    laptop.says(&server, "Pay.").await;
    let mut phone = Device::new("ada", "phone");
    let (_, events) = phone.opens(&server).await;
    assert_eq!(events.last().unwrap()["outcome"]["type"], "success");
    let is_waiting = |event: &&Value| event["activityType"] == "WAITING";
    assert_eq!(events.iter().filter(is_waiting).count(), 1);
    phone.role = "support";
    let (_, events) = phone.opens(&server).await;
    assert_eq!(interrupts(&events).len(), 1);
}

#[tokio::test]
async fn a_device_that_has_not_seen_a_question_does_not_close_it() {
    let model = ScriptedModel::new([
        Turn::from_text("Hello."),
        wants(),
        Turn::from_text("Done."),
        Turn::from_text("Blue."),
    ]);
    let server = server(cashier(&model, Approval::of_tools(["pay"]))).build();
    let mut laptop = Device::new("ada", "laptop");
    laptop.says(&server, "Hi").await;
    let mut phone = Device::new("ada", "phone");
    phone.opens(&server).await;
    let asked = interrupts(&phone.says(&server, "Pay.").await);
    let shown = interrupts(&laptop.says(&server, "Which colour has the sky?").await);
    assert_eq!(shown, asked);
    laptop.sends(&server, approve(&shown[0])).await;
    laptop.sends(&server, json!([])).await;
    assert_eq!(laptop.reads().last().unwrap(), "assistant: Blue.");
    let seen = texts(&model);
    assert_eq!(
        seen[seen.len() - 2..],
        ["Done.", "Which colour has the sky?"]
    );
}

#[tokio::test]
async fn a_stranger_learns_nothing_of_a_thread() {
    let model = parrot(["Hello."]);
    let server = server(agent(&model)).build();
    Device::new("ada", "laptop").says(&server, "Hi").await;
    let mut eve = Device::new("eve", "phone");
    let of_ada = eve.opens(&server).await;
    assert_eq!(of_ada.0, StatusCode::NOT_FOUND);
    let unknown = eve.request(Method::GET, "/agent?threadId=other");
    let unknown = unknown.body(Full::default()).unwrap();
    assert_eq!(eve.send(&server, unknown).await, of_ada);
    let nobody = Request::get("/agent?threadId=my%20thread")
        .body(Full::default())
        .unwrap();
    let (status, _) = eve.send(&server, nobody).await;
    assert_eq!(status, StatusCode::UNAUTHORIZED);
    let key = ConversationKey::new("other", "ada", "my thread");
    assert!(server.show(key, Roles::default()).await.unwrap().is_none());
}

#[tokio::test]
async fn a_request_without_a_thread_is_refused_and_a_sealed_server_says_that_it_keeps_none() {
    let model = parrot([]);
    let stored = server(agent(&model)).build();
    let sealed = server(agent(&model))
        .stateless(SealKey::new([7; 32]))
        .build();
    let mut ada = Device::new("ada", "phone");
    let request = ada
        .request(Method::GET, "/agent")
        .body(Full::default())
        .unwrap();
    assert_eq!(ada.send(&stored, request).await.0, StatusCode::BAD_REQUEST);
    let (status, error) = ada.opens(&sealed).await;
    assert_eq!(status, StatusCode::METHOD_NOT_ALLOWED);
    let message = error[0]["error"]["message"].as_str().unwrap();
    assert!(message.contains("keeps no threads"), "{message}");
    let accept = ada
        .request(Method::GET, "/agent?threadId=my%20thread")
        .header("accept", "text/html");
    let accept = accept.body(Full::default()).unwrap();
    assert_eq!(
        ada.send(&stored, accept).await.0,
        StatusCode::NOT_ACCEPTABLE
    );
}

#[tokio::test]
async fn what_was_not_streamed_is_not_shown() {
    let parts = [
        Part::reasoning("I think of 1234."),
        Part::from_text("Well."),
    ];
    let thought = ModelResponse::new(ModelMessage::new(Role::Assistant, parts));
    let model = ScriptedModel::new([
        Turn::response(thought),
        Turn::tool("look", json!({})),
        Turn::from_text("Looked."),
    ]);
    let look = Tool::function("look", "Looks.", |_: Value| -> Result<String, BoxError> {
        Err("the database at 10.0.0.7 is down".into())
    });
    let agent = Agent::builder(model.clone()).tool(look).build().unwrap();
    let hide = before_translate(|request| match &request.event().kind {
        EventKind::ReasoningStart { .. }
        | EventKind::ReasoningDelta { .. }
        | EventKind::ReasoningEnd { .. } => Action::Respond(TranslateResponse::none()),
        _ => Action::Continue,
    });
    let server = server(agent).on_translate(hide).build();
    let mut laptop = Device::new("ada", "laptop");
    laptop.says(&server, "Hi").await;
    laptop.says(&server, "Look!").await;
    let mut phone = Device::new("ada", "phone");
    let (_, events) = phone.opens(&server).await;
    let text = json!(events).to_string();
    assert!(
        !text.contains("1234") && !text.contains("10.0.0.7"),
        "{text}"
    );
    assert_eq!(phone.reads(), laptop.reads());
    assert_eq!(phone.ids(), laptop.ids());
    let failed = phone
        .shown
        .messages()
        .iter()
        .find(|message| matches!(message.kind, MessageKind::Tool { .. }));
    assert_eq!(failed.unwrap().metadata.as_ref().unwrap()["isError"], true);
}

#[tokio::test]
async fn a_device_that_does_not_read_what_it_is_shown_does_not_keep_the_server_from_its_end() {
    let model = parrot(["Hello."]);
    let server = server(agent(&model)).build();
    let mut laptop = Device::new("ada", "laptop");
    laptop.says(&server, "Hi").await;
    let request = laptop.request(Method::GET, "/agent?threadId=my%20thread");
    let request = request.body(Full::<bytes::Bytes>::default()).unwrap();
    let unread = server.clone().oneshot(request).await.unwrap();
    assert_eq!(unread.headers()["cache-control"], "no-store");
    server.shutdown(std::time::Duration::ZERO).await;
    drop(unread);
    let (status, _) = laptop.opens(&server).await;
    assert_eq!(status, StatusCode::SERVICE_UNAVAILABLE);
}

/// Fails unless a reload shows each message as the device has it.
async fn assert_reload(server: &AgUi, device: &Device, case: &str) {
    let mut reloaded = Device::new(device.user, "reloaded");
    let (status, events) = reloaded.opens(server).await;
    assert_eq!(status, StatusCode::OK, "{case}: {events:?}");
    let has = |device: &Device| {
        let mut messages = json!(device.shown.messages());
        let messages = messages.as_array_mut().unwrap();
        messages.retain(|message| message["role"] != "activity");
        for message in messages.iter_mut() {
            let metadata = message["metadata"].as_object_mut();
            let is_empty = metadata.is_none_or(|metadata| {
                metadata.remove("reader");
                metadata.is_empty()
            });
            if is_empty {
                message.as_object_mut().unwrap().remove("metadata");
            }
        }
        std::mem::take(messages)
    };
    assert_eq!(has(&reloaded), has(device), "{case}");
}

fn thinking() -> Turn {
    let parts = [Part::reasoning("Hm."), Part::from_text("Well.")];
    Turn::response(ModelResponse::new(ModelMessage::new(
        Role::Assistant,
        parts,
    )))
}

fn look() -> Tool {
    Tool::function("look", "Looks.", |_: Value| "seen")
}

fn breaks() -> Tool {
    Tool::function("break", "Breaks.", |_: Value| -> Result<String, BoxError> {
        Err("the database at 10.0.0.7 is down".into())
    })
}

fn scripted(name: &str, turns: impl IntoIterator<Item = Turn>) -> tower_agent::AgentBuilder {
    Agent::builder(ScriptedModel::new(turns)).name(name)
}

#[tokio::test]
async fn a_reload_shows_each_message_as_the_stream_has_told_it() {
    let calls = || Turn::tool("look", json!({ "at": [1, 2.5, "\u{e9}"] }));
    let text = Turn::from_text;
    let helper = || {
        scripted("helper", [calls(), text("Helped.")])
            .tool(look())
            .build()
            .unwrap()
    };
    let retried = [
        Turn::from_text("Half an answer")
            .failing_after(2, Error::new(ErrorKind::Overloaded, "busy")),
        text("The whole answer."),
    ];
    let agents = [
        ("text", scripted("a", [text("Hello.")]).build()),
        ("reasoning", scripted("a", [thinking()]).build()),
        (
            "a tool",
            scripted("a", [calls(), text("Seen.")]).tool(look()).build(),
        ),
        (
            "an error",
            scripted("a", [Turn::tool("break", json!({})), text("Oh.")])
                .tool(breaks())
                .build(),
        ),
        (
            "an unknown tool",
            scripted("a", [Turn::tool("none", json!({})), text("Oh.")]).build(),
        ),
        (
            "a subagent",
            scripted(
                "a",
                [
                    Turn::tool("helper", json!({ "request": "?" })),
                    text("Done."),
                ],
            )
            .tool(helper().into_tool("Helps."))
            .build(),
        ),
        (
            "a team",
            Agent::sequential("team")
                .agent(
                    scripted("first", [calls(), text("One.")])
                        .tool(look())
                        .build()
                        .unwrap(),
                )
                .agent(scripted("second", [text("Two.")]).build().unwrap())
                .build(),
        ),
        (
            "a discarded attempt",
            scripted("a", retried)
                .on_model(on_model_error(|_, _| Recovery::Retry))
                .build(),
        ),
        (
            "a replaced answer",
            scripted("a", [text("It is 1234.")])
                .on_model(after_model(|_, _| {
                    Action::Respond(ModelResponse::from_text("It is hidden."))
                }))
                .build(),
        ),
        (
            "a redacted answer",
            scripted("a", [text("Write to ada@example.com.")])
                .callbacks(Redact::new([Detector::email()]).unwrap())
                .build(),
        ),
        (
            "a failed model",
            scripted(
                "a",
                [calls(), Turn::error(Error::new(ErrorKind::Provider, "ill"))],
            )
            .tool(look())
            .build(),
        ),
    ];
    for (case, agent) in agents {
        let server = server(agent.unwrap()).build();
        let mut laptop = Device::new("ada", "laptop");
        laptop.says(&server, "Hi").await;
        assert!(laptop.shown.messages().len() > 1, "{case}");
        assert_reload(&server, &laptop, case).await;
    }
}

#[tokio::test]
async fn a_reload_shows_results_as_a_mapper_has_told_them() {
    let map = before_translate(|request| {
        let EventKind::ToolResult(result) = &request.event().kind else {
            return Action::Continue;
        };
        let told = match &*result.name {
            "look" => vec![Event::tool_call_result(
                result.message.clone(),
                result.id.clone(),
                "looked",
            )],
            _ => Vec::new(),
        };
        Action::Respond(TranslateResponse::new(told))
    });
    let other = Tool::function("other", "Looks.", |_: Value| "a secret");
    let turns = [
        Turn::tool("look", json!({})),
        Turn::tool("other", json!({})),
        Turn::from_text("Done."),
    ];
    let agent = scripted("a", turns)
        .tool(look())
        .tool(other)
        .build()
        .unwrap();
    let server = server(agent).on_translate(map).build();
    let mut laptop = Device::new("ada", "laptop");
    laptop.says(&server, "Hi").await;
    let told = [
        "user: Hi",
        "assistant: (calls)",
        "tool: looked",
        "assistant: (calls)",
        "assistant: Done.",
    ];
    assert_eq!(laptop.reads(), told);
    assert_reload(&server, &laptop, "mapped").await;
}

#[tokio::test]
async fn a_run_that_broke_off_is_shown_as_far_as_it_was_told() {
    let model = ScriptedModel::new([Turn::from_text("A long answer."), Turn::from_text("Yes.")])
        .chunk_size(3);
    let server = server(agent(&model)).build();
    let mut laptop = Device::new("ada", "laptop");
    let input = RunAgentInput::new("my thread", "r", [Message::user("u", "Hi")]);
    laptop.shown = Conversation::new([Message::user("u", "Hi")]);
    let mut run = server.run_for("ada", input).await.unwrap();
    while !laptop.reads().last().unwrap().ends_with("A long") {
        laptop.shown.apply(&run.next().await.unwrap());
    }
    drop(run);
    assert_reload(&server, &laptop, "dropped").await;
}

#[tokio::test]
async fn a_client_that_lies_about_the_agents_words_deceives_no_other_device() {
    let model = parrot(["It is safe.", "Yes."]);
    let server = server(agent(&model)).build();
    let mut laptop = Device::new("ada", "laptop");
    laptop.says(&server, "Is it safe?").await;
    let mut messages = laptop.shown.messages().to_vec();
    messages[1] = Message::assistant(messages[1].id.clone(), "It is not safe.");
    laptop.shown = Conversation::new(messages);
    laptop.says(&server, "Really?").await;
    let mut phone = Device::new("ada", "phone");
    phone.opens(&server).await;
    assert_eq!(phone.reads()[1], "assistant: It is safe.");
}

#[tokio::test]
async fn an_answer_of_support_is_shown_on_each_device() {
    let model = ScriptedModel::new([wants(), Turn::from_text("Done."), Turn::from_text("Bye.")]);
    let approval = Approval::of_tools(["pay"]).by_role("support");
    let server = server(cashier(&model, approval)).build();
    let mut laptop = Device::new("ada", "laptop");
    laptop.says(&server, "Pay.").await;
    let mut early = Device::new("ada", "early");
    early.opens(&server).await;
    let questions = server
        .questions(&ConversationQuery::new(), &Roles::new(["support"]))
        .await
        .unwrap();
    let question = &questions.questions[0];
    let yes = Resolution::resolved(&*question.id, json!({ "approved": true }));
    let run = server
        .answer(question.key.clone(), Roles::new(["support"]), yes)
        .await
        .unwrap();
    drop(run.collect::<Vec<_>>().await);

    let all = [
        "user: Pay.",
        "assistant: (calls)",
        "tool: paid",
        "assistant: Done.",
    ];
    let mut late = Device::new("ada", "late");
    late.opens(&server).await;
    assert_eq!(late.reads(), all);
    early.says(&server, "Bye").await;
    assert_eq!(early.reads()[..4], all);
    laptop.sends(&server, json!([])).await;
    assert_eq!(laptop.reads()[..4], all);
    assert_eq!(laptop.reads()[4..], ["user: Bye", "assistant: Bye."]);
}
