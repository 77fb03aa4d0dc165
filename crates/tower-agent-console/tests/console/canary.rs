//! A secret in each place where a program can put one: where it is found, and by whom.

use http::Request;
use http_body_util::BodyExt;
use serde_json::{Value, json};
use tower_agent::callback::{before_agent, before_model};
use tower_agent::context::State;
use tower_agent::gauge::Reading;
use tower_agent::message::{MediaSource, Metadata};
use tower_agent::{
    Agent, AgentRequest, Error, ErrorKind, Interrupt, Message, ModelRequest, ModelResponse, Part,
    Request as _, Settings, Tool, ToolRequest,
};
use tower_agent_console::{Console, ConsoleService, Operator};
use tower_agent_middleware::redact::{Detector, Redact};
use tower_agent_test::{ScriptedModel, Turn};

use crate::durable::{listed, run as durable_run};
use crate::world::{User, get, runs, send, service, service_for, user_of};

/// Those that stand in texts of calls, which are kept if they are recorded.
const CONTENT: [&str; 10] = [
    "canary-instructions",
    "canary-user-message",
    "canary-reasoning",
    "canary-answer",
    "canary-argument",
    "canary-result",
    "canary-event",
    "canary-note",
    "canary-tool-error",
    "canary-run-error",
];

/// Those that are kept nowhere.
const NEVER: [&str; 11] = [
    "canary-state",
    "canary-private",
    "canary-extension",
    "canary-metadata",
    "canary-bytes",
    "canary-url",
    "canary-document",
    "canary-setting",
    "canary-description",
    "canary-payload",
    "canary-question",
];

/// Something that the program has given the run.
#[derive(Debug)]
struct Extension(#[expect(dead_code, reason = "it must not be read")] &'static str);

fn agent(console: &Console) -> Agent {
    let answer = Message::assistant("canary-answer").with_part(Part::reasoning("canary-reasoning"));
    let mut metadata = Metadata::default();
    metadata.request_id = Some("canary-metadata".into());
    let answer = ModelResponse::new(answer).with_metadata(metadata);
    let model = ScriptedModel::new([
        Turn::tool("act", json!({ "value": "canary-argument" })),
        Turn::tool("break", json!({})),
        Turn::response(answer),
        Turn::tool("ask", json!({})),
        Turn::error(Error::new(ErrorKind::Provider, "canary-run-error")),
    ]);
    let act = Tool::function_with(
        "act",
        "canary-description",
        async |_: String, call: ToolRequest| {
            call.context().emit("progress", "canary-event").await;
            call.context().note("found", "canary-note").await;
            call.context().state().set("key", "canary-state");
            call.context().private_state().set("key", "canary-private");
            "canary-result"
        },
    );
    let breaks = Tool::function("break", "Breaks.", |_: Value| {
        Err::<String, _>(Error::new(ErrorKind::Tool, "canary-tool-error"))
    });
    let ask = Tool::function("ask", "Asks.", |_: Value| {
        let question = Interrupt::new("may I", "confirmation")
            .with_message("canary-question")
            .with_payload(json!("canary-payload"));
        Err::<String, _>(Error::interrupt(question))
    });
    Agent::builder(model)
        .instructions("canary-instructions")
        .tools([act, breaks, ask])
        .global_callbacks(console.watch())
        .build()
        .unwrap()
}

fn request() -> AgentRequest {
    let message = Message::user("canary-user-message")
        .with_part(Part::image(MediaSource::base64(
            "image/png",
            "canary-bytes",
        )))
        .with_part(Part::image(MediaSource::url(
            "https://example.com/canary-url",
        )))
        .with_part(Part::document(MediaSource::base64(
            "application/pdf",
            "canary-document",
        )));
    let mut settings = Settings::default();
    settings.extra.insert("key".into(), "canary-setting".into());
    AgentRequest::conversation([message])
        .with_settings(settings)
        .with_extension(Extension("canary-extension"))
        .with_extension(User("canary-principal"))
}

/// A console with guards and durable runs of somebody.
fn console() -> Console {
    let (durable, _) = listed(vec![durable_run(1, "r1", Some("canary-principal"), "lost")]);
    let console = Console::new().user_id(user_of).durable_runs(durable);
    console.show("limits", |_| async {
        let reading = Reading::new("limit", "free", true);
        Ok(vec![reading.of("canary-principal")])
    });
    console
}

/// Runs to an answer, to a question, and to an error.
async fn run(console: &Console) {
    let agent = agent(console);
    agent.run(request()).await.unwrap();
    agent.run(request()).await.unwrap();
    agent.run(request()).await.unwrap_err();
}

/// Everything that the service sends, and that of texts alone.
async fn everything(service: &ConsoleService) -> (String, String) {
    let mut all = String::new();
    let mut texts = String::new();
    for path in [
        "/api/runs",
        "/api/agents",
        "/api/limits",
        "/api/durable",
        "/api/audit",
        "/api/me",
    ] {
        all += &get(service, path).await.1;
    }
    for run in runs(service).await {
        let id = run["id"].as_str().unwrap();
        let path = format!("/api/runs/{id}");
        all += &get(service, &path).await.1;
        for entry in 0..run["entries"].as_u64().unwrap() {
            texts += &get(service, &format!("{path}/content/{entry}")).await.1;
        }
        for path in ["/api/live".to_owned(), format!("/api/live?run={id}")] {
            let request = Request::get(path).body(String::new()).unwrap();
            let mut body = send(service, request).await.into_body();
            let frame = body.frame().await.unwrap().unwrap();
            all += std::str::from_utf8(frame.data_ref().unwrap()).unwrap();
        }
    }
    (all, texts)
}

#[tokio::test]
async fn nothing_that_was_said_is_kept_unless_content_is_recorded() {
    let console = console();
    run(&console).await;
    let (all, texts) = everything(&service(&console)).await;
    for canary in CONTENT.iter().chain(&NEVER) {
        assert!(!all.contains(canary) && !texts.contains(canary), "{canary}");
    }
    assert!(
        all.contains("canary-principal"),
        "whom the operator may see"
    );
}

#[tokio::test]
async fn what_is_recorded_is_for_those_who_see_content() {
    let console = console().record_content();
    run(&console).await;

    let (all, texts) = everything(&service(&console)).await;
    for canary in CONTENT {
        assert!(texts.contains(canary), "{canary} is recorded");
        assert!(
            !all.contains(canary),
            "{canary} is in its own response alone"
        );
    }
    for canary in NEVER {
        assert!(!all.contains(canary) && !texts.contains(canary), "{canary}");
    }

    let reader = service_for(&console, || Operator::new("rea"));
    let (all, texts) = everything(&reader).await;
    for canary in CONTENT.iter().chain(&NEVER).chain(&["canary-principal"]) {
        assert!(!all.contains(canary) && !texts.contains(canary), "{canary}");
    }
}

/// A recording has all that a replay compares; those who see no content get none.
#[tokio::test]
async fn a_recording_has_neither_state_nor_what_the_application_gave_the_run() {
    let console = Console::new().record_content().user_id(user_of);
    run(&console).await;
    let sees_content = service(&console);
    let reader = service_for(&console, || Operator::new("rea"));
    let mut all = String::new();
    for run in runs(&sees_content).await {
        let id = run["id"].as_str().unwrap();
        let path = format!("/api/runs/{id}/recording");
        let (status, text) = get(&sees_content, &path).await;
        assert_eq!(status, 200, "{text}");
        all += &text;
        assert_eq!(get(&reader, &path).await.0, 403);
    }
    for canary in [
        "canary-answer",
        "canary-setting",
        "canary-description",
        "canary-bytes",
    ] {
        assert!(all.contains(canary), "{canary}");
    }
    for canary in [
        "canary-state",
        "canary-private",
        "canary-extension",
        "canary-principal",
        "canary-event",
        "canary-note",
    ] {
        assert!(!all.contains(canary), "{canary}");
    }
}

#[tokio::test]
async fn what_is_redacted_is_not_kept() {
    let console = Console::new().record_content();
    let model = ScriptedModel::new([
        Turn::tool("mail", json!({ "value": "to jo@example.com" })),
        Turn::from_text("I wrote to jo@example.com."),
    ]);
    let mail = Tool::function("mail", "Mails.", |_: String| "sent to jo@example.com");
    let agent = Agent::builder(model)
        .tool(mail)
        .on_agent(before_agent(|_| ()))
        .on_model(before_model(|_: &mut ModelRequest| ()))
        .global_callbacks(console.watch())
        .global_callbacks(
            Redact::new([Detector::email()])
                .unwrap()
                .restore_when(|_| true),
        )
        .build()
        .unwrap();
    agent.run("?").await.unwrap();
    let (all, texts) = everything(&service(&console)).await;
    assert!(texts.contains("[email"), "{texts}");
    assert!(!all.contains("jo@example.com") && !texts.contains("jo@example.com"));
}

#[tokio::test]
async fn the_state_that_a_run_begins_with_is_not_kept() {
    let console = Console::new().record_content();
    let state = State::default();
    state.set("key", "canary-state");
    let agent = agent(&console);
    agent.run(request().with_state(state)).await.unwrap();
    let (all, texts) = everything(&service(&console)).await;
    assert!(!all.contains("canary-state") && !texts.contains("canary-state"));
}
