//! A run that was watched, saved as a recording, and replayed in a test.

use std::fs;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use serde_json::{Value, json};
use tower_agent::callback::{Bundle, before_model};
use tower_agent::message::MediaSource;
use tower_agent::{
    Agent, AgentRequest, AgentResponse, Error, ErrorKind, Message, ModelRequest, Part, Tool, Usage,
};
use tower_agent_console::{Console, NotRecorded, Operator};
use tower_agent_middleware::redact::{Detector, Redact};
use tower_agent_middleware::retry::CallRetryLayer;
use tower_agent_test::{Recording, ScriptedModel, Turn};

use crate::world::{get, json, latest, runs, service, service_for};

fn file(name: &str, text: &str) -> PathBuf {
    let folder = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join("console-recordings");
    fs::create_dir_all(&folder).unwrap();
    let path = folder.join(format!("{name}.json"));
    fs::write(&path, text).unwrap();
    path
}

fn replay(recording: &Recording) -> Bundle {
    Bundle::new()
        .model_layer(recording.clone())
        .tool_layer(recording.clone())
}

/// The messages, without the ids that belong to a run.
fn transcript(response: &AgentResponse) -> Vec<Value> {
    let bare = |message: &Message| {
        let mut message = json!(message);
        message.as_object_mut().unwrap().remove("id");
        message
    };
    response.messages().iter().map(bare).collect()
}

fn request() -> AgentRequest {
    let picture = Part::image(MediaSource::base64("image/png", "iVBORw0KGgo="));
    let message = Message::user("What is 1 + 2?").with_part(picture);
    AgentRequest::conversation([message])
}

/// An agent that asks another one, which uses a tool; its model fails once.
fn sums(model: ScriptedModel, inner: ScriptedModel, tool: Tool, around: Bundle) -> Agent {
    let adder = Agent::builder(inner)
        .name("adder")
        .tool(tool)
        .build()
        .unwrap();
    Agent::builder(model)
        .name("sums")
        .instructions("You count.")
        .tool(adder.into_tool("Adds."))
        .global_callbacks(around)
        .model_layer(CallRetryLayer::new())
        .build()
        .unwrap()
}

fn script() -> ScriptedModel {
    ScriptedModel::new([
        Turn::error(Error::new(ErrorKind::Overloaded, "later")),
        Turn::tool("adder", json!({ "task": "add 1 and 2" })).usage(Usage::new(10, 2)),
        Turn::from_text("It is 3.").usage(Usage::new(20, 3)),
    ])
}

fn inner_script() -> ScriptedModel {
    ScriptedModel::new([
        Turn::tool("add", json!({ "a": 1, "b": 2 })),
        Turn::from_text("3"),
    ])
}

fn add(calls: &Arc<AtomicUsize>) -> Tool {
    let calls = calls.clone();
    Tool::function("add", "Adds.", move |numbers: Value| {
        calls.fetch_add(1, Ordering::Relaxed);
        numbers["a"].as_i64().unwrap() + numbers["b"].as_i64().unwrap()
    })
}

#[tokio::test(start_paused = true)]
async fn a_run_that_was_watched_is_replayed_in_a_test() {
    let console = Console::new().record_content();
    let calls = Arc::default();
    let agent = sums(script(), inner_script(), add(&calls), console.watch());
    for is_streamed in [false, true] {
        let agent = sums(script(), inner_script(), add(&calls), console.watch());
        let original = if is_streamed {
            agent
                .stream(request().with_run_id("streamed"))
                .response()
                .await
                .unwrap()
        } else {
            agent.run(request().with_run_id("run")).await.unwrap()
        };
        let id = if is_streamed { "streamed" } else { "run" };
        let text = console.recording(id).await.unwrap();
        let made = calls.load(Ordering::Relaxed);

        let path = file(&format!("sums-{is_streamed}"), &text);
        let recording = Recording::replay(&path).unwrap();
        let gone = ScriptedModel::new([]);
        let agent = sums(gone.clone(), gone.clone(), add(&calls), replay(&recording));
        let replayed = agent.run(request()).await.unwrap();
        assert_eq!(transcript(&replayed), transcript(&original));
        recording.finish().unwrap();
        assert_eq!(calls.load(Ordering::Relaxed), made, "no tool is called");

        // Streamed, too, and with another question it says where it differs.
        let recording = Recording::replay(&path).unwrap();
        let agent = sums(gone.clone(), gone.clone(), add(&calls), replay(&recording));
        let streamed = agent.stream(request()).response().await.unwrap();
        assert_eq!(transcript(&streamed), transcript(&original));
        let recording = Recording::replay(&path).unwrap();
        let agent = sums(gone.clone(), gone, add(&calls), replay(&recording));
        let error = agent.run("What is 2 + 2?").await.unwrap_err().to_string();
        assert!(error.contains("What is 2 + 2?"), "{error}");
    }
    drop(agent);
}

#[tokio::test]
async fn a_run_that_failed_is_replayed_to_the_same_error() {
    let console = Console::new().record_content();
    let build = |model: ScriptedModel, around: Bundle| {
        let broken = Tool::function("break", "Breaks.", |_: Value| {
            Err::<String, _>(Error::new(ErrorKind::Tool, "it broke"))
        });
        let agent = Agent::builder(model).tool(broken).global_callbacks(around);
        agent.build().unwrap()
    };
    let model = ScriptedModel::new([
        Turn::tool("break", json!({})),
        Turn::error(Error::new(ErrorKind::Provider, "no more")),
    ]);
    let error = build(model, console.watch()).run("Go.").await.unwrap_err();
    let id = runs(&service(&console)).await[0]["id"].clone();
    let text = console.recording(id.as_str().unwrap()).await.unwrap();

    let recording = Recording::replay(file("failed", &text)).unwrap();
    let agent = build(ScriptedModel::new([]), replay(&recording));
    let again = agent.run("Go.").await.unwrap_err();
    assert_eq!(
        (again.kind(), again.message()),
        (error.kind(), error.message())
    );
    recording.finish().unwrap();
}

#[tokio::test]
async fn half_a_run_is_refused_by_name() {
    let answers = || ScriptedModel::always(Turn::from_text("x".repeat(4096)));
    let agent = |console: &Console, model: ScriptedModel| {
        let agent = Agent::builder(model).global_callbacks(console.watch());
        agent.build().unwrap()
    };
    let console = Console::new();
    let hi = || AgentRequest::new("Hi.").with_run_id("r");
    let id = "r".to_owned();
    agent(&console, answers()).run(hi()).await.unwrap();
    assert_eq!(
        console.recording("nobody").await.unwrap_err(),
        NotRecorded::UnknownRun {
            run: "nobody".into()
        }
    );
    assert_eq!(
        console.recording("r").await.unwrap_err(),
        NotRecorded::NoContent { run: id.clone() }
    );

    let console = Console::new().record_content().max_bytes(4096);
    agent(&console, answers()).run(hi()).await.unwrap();
    assert_eq!(
        console.recording("r").await.unwrap_err(),
        NotRecorded::NoContent { run: id }
    );

    let console = Console::new().record_content();
    let agent = agent(&console, ScriptedModel::new([Turn::pending()]));
    let run = tokio::spawn(agent.run(hi()));
    while console
        .recording("r")
        .await
        .is_err_and(|error| matches!(error, NotRecorded::UnknownRun { .. }))
    {
        tokio::task::yield_now().await;
    }
    let error = console.recording("r").await.unwrap_err();
    assert!(
        matches!(
            error,
            NotRecorded::Running { .. } | NotRecorded::NoContent { .. }
        ),
        "{error}"
    );
    run.abort();
    drop(run.await);
    assert!(
        console.recording("r").await.is_ok(),
        "a call that was dropped is part of it"
    );
}

#[tokio::test]
async fn what_a_redaction_hides_is_in_no_recording() {
    let console = Console::new().record_content();
    let build = |redact: Redact| {
        let agent = Agent::builder(ScriptedModel::always(Turn::from_text("Hello.")))
            .global_callbacks(console.watch())
            .global_callbacks(redact);
        agent.build().unwrap()
    };
    let emails = || Redact::new([Detector::email()]).unwrap();
    let jo = |id| AgentRequest::new("I am jo@example.com.").with_run_id(id);
    let redacted = build(emails().redact_input());
    redacted.run(jo("redacted")).await.unwrap();
    match console.recording("redacted").await {
        // Hidden before the console has seen it.
        Ok(text) => assert!(!text.contains("jo@example.com"), "{text}"),
        Err(error) => assert!(matches!(error, NotRecorded::Hidden { .. }), "{error}"),
    }

    let hides = before_model(|request: &mut ModelRequest| request.extensions().note_hidden_input());
    let agent = Agent::builder(ScriptedModel::always(Turn::from_text("Hello.")))
        .global_callbacks(console.watch())
        .on_model(hides)
        .build()
        .unwrap();
    agent.run(jo("hidden")).await.unwrap();
    let error = console.recording("hidden").await.unwrap_err();
    assert!(matches!(error, NotRecorded::Hidden { .. }), "{error}");
    assert!(error.to_string().contains("model call"), "{error}");
}

#[tokio::test]
async fn who_takes_a_recording_sees_content_and_is_written_down() {
    let console = Console::new().record_content();
    let agent = Agent::builder(ScriptedModel::always(Turn::from_text("Hello.")))
        .global_callbacks(console.watch())
        .build()
        .unwrap();
    agent.run("Hi.").await.unwrap();
    let sam = service(&console);
    let id = latest(&sam).await["run"]["id"].as_str().unwrap().to_owned();
    let path = format!("/api/runs/{id}/recording");
    let (status, text) = get(&sam, &path).await;
    assert_eq!(status, 200);
    assert_eq!(text, console.recording(&id).await.unwrap());
    assert_eq!(get(&sam, "/api/runs/other/recording").await.0, 404);
    let reader = service_for(&console, || Operator::new("rea"));
    assert_eq!(get(&reader, &path).await.0, 403);

    let audit = json(&sam, "/api/audit").await;
    let rows: Vec<_> = audit["rows"].as_array().unwrap().iter().collect();
    let told = |row: &Value| {
        (
            row["operator"].clone(),
            row["action"].clone(),
            row["status"].clone(),
        )
    };
    assert_eq!(told(rows[0]), (json!("rea"), json!("save"), json!(403)));
    assert_eq!(told(rows[1]), (json!("sam"), json!("save"), json!(404)));
    assert_eq!(told(rows[2]), (json!("sam"), json!("save"), json!(200)));
    assert!(rows[2]["about"].as_str().unwrap().contains(&id));
}
