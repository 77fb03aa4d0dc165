//! A run that was recorded against the server replays without it, byte for byte.

use std::fs;
use std::path::PathBuf;

use futures::StreamExt;
use tower::Layer;
use tower_agent::{Agent, AgentBuilder, AgentRequest, AgentResponse, Tool};
use tower_agent_providers::testing::HttpRecordingLayer;
use tower_agent_test::{Recording, RecordingError, Trajectory};

use super::*;

fn file(name: &str) -> PathBuf {
    PathBuf::from(env!("CARGO_TARGET_TMPDIR"))
        .join("aimock")
        .join(format!("{name}.json"))
}

/// A server that is not there.
fn gone<S: Spoken>() -> HttpModelBuilder<S::Protocol> {
    let base_url = format!("http://127.0.0.1:9{}", S::PATH);
    HttpModel::<S::Protocol, _>::builder()
        .base_url(base_url)
        .api_key("sk-other")
        .model(S::MODEL)
}

/// Returns an agent whose HTTP calls are recorded, the first recording outermost.
fn over_http<S: Spoken>(model: HttpModelBuilder<S::Protocol>, recordings: &[&Recording]) -> Agent {
    let http = HttpClient::new().unwrap();
    let layer = |recording: &Recording| HttpRecordingLayer::new(recording.clone());
    match recordings {
        [one] => with_its_tools(Agent::builder(
            model.build_with(layer(one).layer(http)).unwrap(),
        )),
        [outer, inner] => {
            let http = layer(outer).layer(layer(inner).layer(http));
            with_its_tools(Agent::builder(model.build_with(http).unwrap()))
        }
        _ => unreachable!(),
    }
}

/// Returns an agent whose model and tool calls are recorded, the first recording outermost.
fn by_calls<S: Spoken>(model: HttpModelBuilder<S::Protocol>, recordings: &[&Recording]) -> Agent {
    let agent = Agent::builder(model.build().unwrap());
    with_its_tools(recordings.iter().fold(agent, |agent, recording| {
        agent
            .model_layer((*recording).clone())
            .tool_layer((*recording).clone())
    }))
}

fn with_its_tools(agent: AgentBuilder) -> Agent {
    let weather = Tool::function("weather", "Tells the weather.", |_: Value| "rain");
    let time = Tool::function("time", "Tells the time.", |_: Value| "noon");
    agent
        .name("forecast")
        .tool(weather)
        .tool(time)
        .build()
        .unwrap()
}

async fn run(
    agent: Agent,
    asked: &str,
    is_streamed: bool,
) -> (Result<AgentResponse, Error>, Vec<Delta>) {
    // Ollama gives calls no ids: the run's id makes them.
    let request = AgentRequest::new(asked).with_run_id("forecast-1");
    if !is_streamed {
        return (agent.run(request).await, Vec::new());
    }
    let mut events = agent.stream(request);
    let told: Vec<_> = events.by_ref().collect().await;
    (events.response().await, deltas(told))
}

async fn replays<S: Spoken>(
    name: &str,
    agent: fn(HttpModelBuilder<S::Protocol>, &[&Recording]) -> Agent,
) {
    for is_streamed in [false, true] {
        let protocol = std::any::type_name::<S>().rsplit("::").next().unwrap();
        let name = format!("{protocol}_{name}_{is_streamed}");
        let Some(server) = start() else { return };
        let recording = Recording::record(file(&name));
        let (was, told) = run(
            agent(builder::<S>(&server), &[&recording]),
            "weather",
            is_streamed,
        )
        .await;
        recording.finish().unwrap();
        drop(server);
        let was = was.unwrap();
        assert_eq!(was.text(), "It rains.");

        // The replay is recorded once more: the two files are the same.
        let copied = file(&format!("{name}_again"));
        let (replay, copy) = (
            Recording::replay(file(&name)).unwrap(),
            Recording::record(&copied),
        );
        let (response, again) = run(
            agent(gone::<S>(), &[&copy, &replay]),
            "weather",
            is_streamed,
        )
        .await;
        let response = response.unwrap();
        assert_eq!(
            (response.messages(), response.usage()),
            (was.messages(), was.usage())
        );
        assert_eq!(again, told);
        Trajectory::of(&response)
            .assert_called_with("weather", |arguments| arguments["city"] == "Tromsø")
            .assert_called_before("weather", "time");
        replay.finish().unwrap();
        copy.finish().unwrap();
        assert!(
            fs::read(file(&name)).unwrap() == fs::read(&copied).unwrap(),
            "{name}"
        );

        // One message is another.
        let replay = Recording::replay(file(&name)).unwrap();
        let (error, _) = run(agent(gone::<S>(), &[&replay]), "weather?", is_streamed).await;
        let error = error.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Aborted, "{error}");
        let lines: Vec<_> = error.message().lines().collect();
        let [call, field, recorded, received] = lines[..] else {
            panic!("{error}")
        };
        assert!(
            call.contains("differs from call 1 of the recording"),
            "{error}"
        );
        assert!(field.contains("[0]"), "{error}");
        assert_eq!(
            (recorded, received),
            ("    recorded: weather", "    received: weather?")
        );
        let fault = replay.finish().unwrap_err();
        assert!(
            matches!(fault, RecordingError::Differs { number: 1, .. }),
            "{fault}"
        );
    }
}

macro_rules! replayed {
    ($($name:ident: $spoken:ty),+ $(,)?) => {
        $(mod $name {
            use super::*;

            #[tokio::test]
            async fn a_run_replays_over_http() {
                replays::<$spoken>("http", over_http::<$spoken>).await;
            }

            #[tokio::test]
            async fn a_run_replays_by_its_calls() {
                replays::<$spoken>("calls", by_calls::<$spoken>).await;
            }
        })+
    };
}

replayed! {
    anthropic: Anthropic,
    chat: ChatCompletions,
    gemini: Gemini,
    ollama_chat: Ollama,
    responses: OpenResponses,
}
