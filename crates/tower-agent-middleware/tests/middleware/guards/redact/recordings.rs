//! Nothing that is redacted reaches the file of a recording.

use std::fs;
use std::path::PathBuf;
use std::sync::{Arc, Mutex};

use serde_json::{Value, json};
use tower::Layer;
use tower_agent::{Agent, AgentBuilder, AgentRequest, Error, ErrorKind, Result, Tool};
use tower_agent_middleware::redact::{Detector, Redact};
use tower_agent_test::{Recording, RecordingError, ScriptedModel, Turn};

use test_support::runs::WAYS;

fn file(name: &str) -> PathBuf {
    PathBuf::from(env!("CARGO_TARGET_TMPDIR"))
        .join("redacted")
        .join(format!("{name}.json"))
}

fn guard() -> Redact {
    Redact::new([Detector::email()]).unwrap().redact_input()
}

/// The model knows an address, sends mail to it and to the user's, and the tool knows another.
fn script() -> ScriptedModel {
    let failure = Error::new(ErrorKind::Overloaded, "no place for jo@example.com");
    ScriptedModel::new([
        Turn::tool("mail", json!({ "to": ["[email-1]", "bo@example.com"] })),
        Turn::from_text("Sent to bo@example.com."),
        Turn::error(failure),
    ])
}

fn mail(given: &Arc<Mutex<Vec<Value>>>) -> Tool {
    let given = given.clone();
    Tool::function("mail", "Sends.", move |arguments: Value| {
        given.lock().unwrap().push(arguments);
        "jo@example.com and cy@example.com read it"
    })
}

async fn run(agent: &Agent, streamed: bool) -> Result<String> {
    let request = AgentRequest::new("Write to jo@example.com.").with_run_id("run");
    let response = if streamed {
        tower_agent::RunStream::named(agent.clone(), request, "run")
            .response()
            .await?
    } else {
        agent.run(request).await?
    };
    Ok(serde_json::to_string(response.messages()).unwrap())
}

#[tokio::test]
async fn the_file_has_placeholders_and_replays_with_them() {
    for streamed in WAYS {
        let given = Arc::default();
        let agent = |recording: &Recording, model: ScriptedModel| {
            Agent::builder(model)
                .tool(mail(&given))
                .callbacks(guard().restore_when(|_| true))
                .model_layer(recording.clone())
                .tool_layer(recording.clone())
                .build()
                .unwrap()
        };
        let path = file(&format!("placeholders_{streamed}"));
        let recording = Recording::record(&path);
        let recorded = agent(&recording, script());
        let was = run(&recorded, streamed).await.unwrap();
        let failed = run(&recorded, streamed).await.unwrap_err();
        recording.finish().unwrap();
        let originals = json!({ "to": ["jo@example.com", "bo@example.com"] });
        assert_eq!(
            *given.lock().unwrap(),
            [originals],
            "the tool was given the originals"
        );

        let written = fs::read_to_string(&path).unwrap();
        assert!(!written.contains("@example.com"), "{written}");
        assert!(written.contains("[email-2]"), "{written}");

        let recording = Recording::replay(&path).unwrap();
        let replayed = agent(&recording, ScriptedModel::new([]));
        assert_eq!(run(&replayed, streamed).await.unwrap(), was);
        let error = run(&replayed, streamed).await.unwrap_err();
        assert_eq!(error.to_string(), failed.to_string());
        recording.finish().unwrap();
        assert_eq!(
            given.lock().unwrap().len(),
            1,
            "the tool was not called again"
        );
    }
}

#[tokio::test]
async fn in_any_other_place_the_call_fails_and_nothing_is_written() {
    type Build = fn(AgentBuilder, &Recording) -> AgentBuilder;
    let places: [(&str, Build); 4] = [
        ("outside", |agent, recording| {
            agent.model_layer(recording.clone()).callbacks(guard())
        }),
        ("inside_one", |agent, recording| {
            agent
                .model_layer(guard().around_model())
                .model_layer(recording.clone())
        }),
        ("outside_one", |agent, recording| {
            agent
                .model_layer(recording.clone())
                .model_layer(guard().around_model())
        }),
        ("inside_one_of_tools", |agent, recording| {
            agent
                .tool_layer(guard().around_tool())
                .tool_layer(recording.clone())
        }),
    ];
    let refuses = async |name: &str, agent: Agent, recording: &Recording| {
        let error = run(&agent, false).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Aborted, "{name}: {error}");
        let fault = recording.finish().unwrap_err();
        assert!(
            matches!(fault, RecordingError::Unredacted { .. }),
            "{name}: {fault}"
        );
        assert!(!file(name).exists(), "{name}");
    };
    for (name, build) in places {
        let recording = Recording::record(file(name));
        let agent = Agent::builder(script()).tool(mail(&Arc::default()));
        refuses(name, build(agent, &recording).build().unwrap(), &recording).await;
    }
    let recording = Recording::record(file("model"));
    let agent = Agent::builder(recording.layer(script()))
        .tool(mail(&Arc::default()))
        .global_callbacks(guard())
        .build()
        .unwrap();
    refuses("model", agent, &recording).await;
}
