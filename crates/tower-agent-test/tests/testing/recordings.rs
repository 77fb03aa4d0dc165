//! A run that was recorded is replayed without its model and its tools.

use std::fs;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use futures::StreamExt;
use serde_json::{Value, json};
use tower::{Layer, ServiceExt};
use tower_agent::message::Metadata;
use tower_agent::stream::{Event, EventKind};
use tower_agent::{
    Agent, AgentRequest, AgentResponse, BoxError, Error, ErrorKind, Interrupt, Message,
    ModelRequest, ModelResponse, Part, Request, Resolution, Result, Tool, ToolRequest, Usage,
};
use tower_agent_middleware::retry::CallRetryLayer;
use tower_agent_middleware::timeout::CallTimeoutLayer;
use tower_agent_test::recording::{Recordable, Recorded};
use tower_agent_test::{Recording, RecordingError, ScriptedModel, Turn};

use test_support::call::{Embed, Embedding};
use test_support::runs::WAYS;

fn file(name: &str) -> PathBuf {
    PathBuf::from(env!("CARGO_TARGET_TMPDIR"))
        .join("recordings")
        .join(format!("{name}.json"))
}

/// A model that must not be called.
fn gone() -> ScriptedModel {
    ScriptedModel::new([])
}

fn gone_tool() -> Tool {
    Tool::function("add", "Adds.", |_: Value| {
        Err::<(), _>(Error::abort("the tool was called"))
    })
}

fn add() -> Tool {
    Tool::function("add", "Adds.", |numbers: Value| {
        numbers["a"].as_f64().unwrap() + numbers["b"].as_f64().unwrap()
    })
}

fn sums(recording: &Recording, model: ScriptedModel, tool: Tool) -> Agent {
    Agent::builder(model)
        .name("sums")
        .tool(tool)
        .model_layer(recording.clone())
        .tool_layer(recording.clone())
        .build()
        .unwrap()
}

fn script() -> ScriptedModel {
    let thinking = Message::new(
        tower_agent::Role::Assistant,
        [Part::reasoning("Hm, two sums.")],
    );
    ScriptedModel::new([
        Turn::response(ModelResponse::new(thinking))
            .and_tool("add", json!({ "a": 1, "b": 2 }))
            .and_tool("add", json!({ "a": 0.1, "b": 0.2 }))
            .usage(Usage::new(12, 3)),
        Turn::from_text("3 and 0.3").usage(Usage::new(20, 4)),
    ])
}

async fn run(agent: &Agent, streamed: bool) -> (Result<AgentResponse>, Vec<Event>) {
    if !streamed {
        return (agent.run("Two sums.").await, Vec::new());
    }
    let mut stream = agent.stream("Two sums.");
    let events = stream.by_ref().collect().await;
    (stream.response().await, events)
}

async fn record(name: &str, streamed: bool) -> (AgentResponse, Vec<Event>) {
    let recording = Recording::record(file(name));
    let (response, events) = run(&sums(&recording, script(), add()), streamed).await;
    recording.finish().unwrap();
    (response.unwrap(), events)
}

fn deltas(events: Vec<Event>) -> Vec<tower_agent::stream::Delta> {
    test_support::deltas(events)
}

#[tokio::test]
async fn a_run_replays_streamed_and_not_whichever_way_it_was_recorded() {
    for recorded in WAYS {
        for replayed in WAYS {
            let name = format!("both_ways_{recorded}_{replayed}");
            let (was, told) = record(&name, recorded).await;
            let recording = Recording::replay(file(&name)).unwrap();
            let agent = sums(&recording, gone(), gone_tool());
            let (response, events) = run(&agent, replayed).await;
            let response = response.unwrap();
            assert_eq!(response.messages(), was.messages());
            assert_eq!(
                (response.usage(), response.text()),
                (was.usage(), "3 and 0.3".into())
            );
            recording.finish().unwrap();
            if recorded && replayed {
                // Delta for delta.
                assert_eq!(deltas(events), deltas(told));
            } else if replayed {
                test_support::runs::check(&events, Ok(response)).unwrap();
            }
        }
    }
}

#[tokio::test]
async fn a_changed_message_fails_and_the_difference_is_readable() {
    record("changed", false).await;
    let recording = Recording::replay(file("changed")).unwrap();
    let agent = sums(&recording, gone(), gone_tool());
    let error = agent.run("Three sums.").await.unwrap_err();
    let path = file("changed");
    let expected = format!(
        "model call at `sums` differs from call 1 of the recording `{}`\n  \
           messages[0].parts[0].text\n    \
             recorded: Two sums.\n    \
             received: Three sums.",
        path.display(),
    );
    assert_eq!(
        (error.kind(), error.message()),
        (ErrorKind::Aborted, &*expected)
    );
    let typed = error.downcast_ref::<RecordingError>();
    assert!(
        matches!(typed, Some(RecordingError::Differs { number: 1, .. })),
        "{typed:?}"
    );
    assert_eq!(recording.finish().unwrap_err().to_string(), expected);
}

#[tokio::test]
async fn a_difference_is_shown_where_it_is() {
    let long = |word: &str| format!("{} {word} {}", "x".repeat(200), "y".repeat(200));
    let base = || ModelRequest::new([Message::user(long("cat")), Message::assistant("Yes.")]);
    let recording = Recording::record(file("differences"));
    let model = recording.layer(ScriptedModel::new([Turn::from_text("hi")]));
    model.oneshot(base()).await.unwrap();
    recording.finish().unwrap();

    let differs = async |request: ModelRequest| {
        let recording = Recording::replay(file("differences")).unwrap();
        let error = recording.layer(gone()).oneshot(request).await.unwrap_err();
        let Some(RecordingError::Differs { difference, .. }) = error.downcast_ref() else {
            panic!("{error}")
        };
        difference.to_string()
    };
    let request = ModelRequest::new([Message::user(long("cow")), Message::assistant("Yes.")]);
    let (before, after) = ("x".repeat(38), "y".repeat(77));
    assert_eq!(
        differs(request).await,
        format!(
            "  messages[0].parts[0].text\n    \
               recorded: ..{before} cat {after}..\n    \
               received: ..{before} cow {after}.."
        ),
    );
    let mut request = base();
    request.messages_mut().push(Message::user("And?"));
    assert_eq!(
        differs(request).await,
        "  messages[2]\n    \
           recorded: nothing\n    \
           received: {\"parts\":[{\"text\":\"And?\",\"type\":\"text\"}],\"role\":\"user\"}",
    );
    let mut request = base();
    request.messages_mut().pop();
    request.messages_mut().push(Message::user("Yes."));
    assert_eq!(
        differs(request).await,
        "  messages[1]\n    \
           recorded: {\"parts\":[{\"text\":\"Yes.\",\"type\":\"text\"}],\"role\":\"assistant\"}\n    \
           received: {\"parts\":[{\"text\":\"Yes.\",\"type\":\"text\"}],\"role\":\"user\"}",
    );
    let mut request = base();
    request.settings_mut().temperature = Some(0.5);
    assert_eq!(
        differs(request).await,
        "  settings.temperature\n    recorded: nothing\n    received: 0.5",
    );
    let mut request = base();
    request.set_instructions(Some("Be brief.".into()));
    assert_eq!(
        differs(request).await,
        "  instructions\n    recorded: nothing\n    received: \"Be brief.\"",
    );
}

#[tokio::test]
async fn a_call_that_is_not_recorded_and_one_that_is_not_made_fail() {
    record("unused", false).await;
    let recording = Recording::replay(file("unused")).unwrap();
    let path = file("unused");
    assert_eq!(
        recording.finish().unwrap_err().to_string(),
        format!(
            "the run did not make call 1 (model call at `sums`), call 2 (tool call `add` at \
             `sums/m1.0`), call 3 (tool call `add` at `sums/m1.1`), call 4 (model call at \
             `sums`) of the recording `{}`",
            path.display()
        ),
    );
    let other = Agent::builder(gone())
        .name("other")
        .model_layer(recording.clone())
        .build()
        .unwrap();
    let error = other.run("Two sums.").await.unwrap_err();
    assert_eq!(
        error.message(),
        format!(
            "model call at `other` is not in the recording `{}`, or was made before; the next \
             recorded call is model call at `sums`",
            path.display()
        ),
    );
    // Also where every call of the run was made, and then one more.
    let recording = Recording::replay(file("unused")).unwrap();
    let agent = sums(&recording, gone(), gone_tool());
    agent.run("Two sums.").await.unwrap();
    let error = agent.run("Two sums.").await.unwrap_err();
    assert!(
        error.message().ends_with("every recorded call was made"),
        "{error}"
    );
    assert!(recording.finish().is_err());
}

#[tokio::test]
async fn a_difference_that_a_callback_hides_is_still_reported() {
    use tower_agent::Recovery;
    use tower_agent::callback::on_model_error;

    record("hidden", false).await;
    let recording = Recording::replay(file("hidden")).unwrap();
    let hides = on_model_error(|_, _| Recovery::Fallback(ModelResponse::from_text("fine")));
    let stack = hides.layer(recording.layer(gone()));
    drop(stack.oneshot(ModelRequest::new([Message::user("?")])).await);
    let error = recording.finish().unwrap_err();
    assert!(
        matches!(error, RecordingError::Unexpected { .. }),
        "{error}"
    );
}

/// Tools that are answered in the opposite order of their calls.
#[tokio::test(start_paused = true)]
async fn parallel_tools_are_matched_by_name_and_arguments() {
    let slow = |delays: [u64; 2]| {
        Tool::function("add", "Adds.", move |numbers: Value| async move {
            let first = numbers["a"] == 1;
            tokio::time::sleep(Duration::from_secs(delays[usize::from(first)])).await;
            if first { "3" } else { "0.3" }
        })
    };
    let recording = Recording::record(file("parallel"));
    let was = sums(&recording, script(), slow([5, 1]))
        .run("Two sums.")
        .await
        .unwrap();
    recording.finish().unwrap();
    let again = Recording::record(file("parallel_again"));
    sums(&again, script(), slow([1, 5]))
        .run("Two sums.")
        .await
        .unwrap();
    again.finish().unwrap();
    // The order in which they end changes nothing in the file.
    let read = |name| fs::read_to_string(file(name)).unwrap();
    assert_eq!(read("parallel"), read("parallel_again"));

    // Nor does the order in which they begin.
    let mut json: Value = serde_json::from_str(&read("parallel")).unwrap();
    json["calls"].as_array_mut().unwrap().swap(1, 2);
    fs::write(file("parallel"), json.to_string()).unwrap();
    let recording = Recording::replay(file("parallel")).unwrap();
    let response = sums(&recording, gone(), gone_tool())
        .run("Two sums.")
        .await
        .unwrap();
    assert_eq!(response.messages(), was.messages());
    recording.finish().unwrap();
}

fn busy() -> Error {
    let mut metadata = Metadata::default();
    metadata.status = Some(529);
    metadata.request_id = Some("req_1".into());
    Error::new(ErrorKind::Overloaded, "busy")
        .with_retry_after(Duration::from_millis(1500))
        .with_metadata(metadata)
}

#[tokio::test(start_paused = true)]
async fn an_error_and_then_a_success_replay_with_the_retry_outside_or_inside() {
    let turns = || {
        [
            Turn::from_text("half an answer").failing_after(2, busy()),
            Turn::from_text("whole"),
        ]
    };
    for is_outside in [true, false] {
        for streamed in WAYS {
            let name = format!("retry_{is_outside}_{streamed}");
            let agent = |recording: &Recording, model: ScriptedModel| {
                let retry = CallRetryLayer::new().restart_streams(true);
                let builder = Agent::builder(model);
                let builder = if is_outside {
                    builder.model_layer(retry).model_layer(recording.clone())
                } else {
                    builder.model_layer(recording.clone()).model_layer(retry)
                };
                builder.build().unwrap()
            };
            let recording = Recording::record(file(&name));
            let (was, told) = run(&agent(&recording, ScriptedModel::new(turns())), streamed).await;
            recording.finish().unwrap();
            let recording = Recording::replay(file(&name)).unwrap();
            let (response, events) = run(&agent(&recording, gone()), streamed).await;
            assert_eq!(response.unwrap().messages(), was.unwrap().messages());
            recording.finish().unwrap();
            let kinds = |events: Vec<Event>| -> Vec<_> {
                let name = |event: &Event| format!("{:?}", event.kind);
                // What a retry inside has decided is not decided again.
                let is_again = |event: &&Event| {
                    is_outside || !matches!(event.kind, EventKind::AttemptFailed(_))
                };
                let names = events.iter().filter(is_again).map(name);
                names
                    .map(|name| name.split(' ').next().unwrap().to_owned())
                    .collect()
            };
            assert_eq!(kinds(events), kinds(told), "{name}");
        }
    }
}

#[tokio::test]
async fn an_error_replays_as_it_was() {
    let recording = Recording::record(file("error"));
    let model = recording.layer(ScriptedModel::new([Turn::error(
        busy().with_retryable(false),
    )]));
    let was = model.oneshot(ModelRequest::default()).await.unwrap_err();
    recording.finish().unwrap();
    let recording = Recording::replay(file("error")).unwrap();
    let error = recording
        .layer(gone())
        .oneshot(ModelRequest::default())
        .await
        .unwrap_err();
    assert_eq!(error.to_string(), was.to_string());
    assert_eq!(
        (error.kind(), error.is_retryable()),
        (ErrorKind::Overloaded, false)
    );
    assert_eq!(error.retry_after(), Some(Duration::from_millis(1500)));
    assert_eq!(error.metadata(), was.metadata());
}

#[tokio::test(start_paused = true)]
async fn a_dropped_stream_replays_what_it_streamed_and_waits_to_be_dropped() {
    let agent = |recording: &Recording, model: ScriptedModel| {
        Agent::builder(model)
            .model_layer(CallTimeoutLayer::new(Duration::from_secs(5)))
            .model_layer(recording.clone())
            .build()
            .unwrap()
    };
    let recording = Recording::record(file("dropped"));
    let model = ScriptedModel::new([Turn::from_text("half of it").hanging_after(1)]);
    let (was, told) = run(&agent(&recording, model), true).await;
    recording.finish().unwrap();
    let recording = Recording::replay(file("dropped")).unwrap();
    let (response, events) = run(&agent(&recording, gone()), true).await;
    let (error, was) = (response.unwrap_err(), was.unwrap_err());
    assert_eq!(
        (error.kind(), error.to_string()),
        (ErrorKind::Timeout, was.to_string())
    );
    assert_eq!(deltas(events), deltas(told));
    recording.finish().unwrap();
    // The timing decides if a call that is dropped begins at all.
    Recording::replay(file("dropped"))
        .unwrap()
        .finish()
        .unwrap();
}

#[tokio::test]
async fn an_interrupted_run_replays_and_resumes() {
    let calls = Arc::new(AtomicUsize::new(0));
    let wipe = |calls: Arc<AtomicUsize>| {
        Tool::function_with("wipe", "Wipes.", move |_: Value, call: ToolRequest| {
            calls.fetch_add(1, Ordering::Relaxed);
            call.ask(Interrupt::new("sure", "confirmation"))
                .map(|_| "done")
        })
    };
    let turns = [
        Turn::tool("wipe", json!({ "what": "disk" })),
        Turn::from_text("Wiped."),
    ];
    let both = async |recording: &Recording, model: ScriptedModel| {
        let agent = Agent::builder(model)
            .tool(wipe(calls.clone()))
            .model_layer(recording.clone())
            .tool_layer(recording.clone())
            .build()
            .unwrap();
        let paused = agent.run("Wipe the disk.").await.unwrap();
        assert_eq!(paused.interrupts().len(), 1);
        let yes = Resolution::resolved(&paused.interrupts()[0].id, json!(true));
        let request = AgentRequest::resume(paused.checkpoint()).with_resolutions([yes]);
        let response = agent.run(request).await.unwrap();
        recording.finish().unwrap();
        response.messages().clone()
    };
    let was = both(
        &Recording::record(file("interrupted")),
        ScriptedModel::new(turns),
    )
    .await;
    assert_eq!(calls.load(Ordering::Relaxed), 2);
    let recording = Recording::replay(file("interrupted")).unwrap();
    assert_eq!(both(&recording, gone()).await, was);
    assert_eq!(calls.load(Ordering::Relaxed), 2);
}

#[tokio::test]
async fn two_runs_at_once_share_a_recording() {
    let echo = || {
        let said = |request: &ModelRequest| request.messages()[0].text();
        ScriptedModel::always(Turn::function(move |request| {
            Ok(ModelResponse::from_text(said(request).to_uppercase()))
        }))
    };
    let both = async |recording: &Recording, model: ScriptedModel, asked: [&'static str; 2]| {
        let agent = Agent::builder(model)
            .model_layer(recording.clone())
            .build()
            .unwrap();
        let (one, two) = futures::join!(agent.run(asked[0]), agent.run(asked[1]));
        recording.finish().unwrap();
        [one.unwrap().text(), two.unwrap().text()]
    };
    let recording = Recording::record(file("two"));
    assert_eq!(both(&recording, echo(), ["a", "b"]).await, ["A", "B"]);
    let recording = Recording::replay(file("two")).unwrap();
    assert_eq!(both(&recording, gone(), ["b", "a"]).await, ["B", "A"]);
}

#[tokio::test]
async fn sub_agents_are_told_apart_by_their_path() {
    let team = |recording: &Recording, models: [ScriptedModel; 2]| {
        let [boss, worker] = models;
        let worker = Agent::builder(worker)
            .name("worker")
            .model_layer(recording.clone())
            .build()
            .unwrap();
        Agent::builder(boss)
            .name("boss")
            .tool(worker.into_tool("Works."))
            .model_layer(recording.clone())
            .build()
            .unwrap()
    };
    let asks = |what: &str| json!({ "request": what });
    let boss = ScriptedModel::new([
        Turn::tool("worker", asks("one")).and_tool("worker", asks("two")),
        Turn::from_text("Done."),
    ]);
    let worker = ScriptedModel::always(Turn::function(|request| {
        Ok(ModelResponse::from_text(request.messages()[0].text()))
    }));
    let recording = Recording::record(file("team"));
    let was = team(&recording, [boss, worker]).run("Go.").await.unwrap();
    recording.finish().unwrap();
    let written = fs::read_to_string(file("team")).unwrap();
    assert!(
        written.contains(r#""path": "boss/m1.1/worker""#),
        "{written}"
    );
    let recording = Recording::replay(file("team")).unwrap();
    let response = team(&recording, [gone(), gone()]).run("Go.").await.unwrap();
    assert_eq!(response.messages(), was.messages());
    recording.finish().unwrap();
}

#[tokio::test]
async fn a_replayed_agent_used_as_a_tool_is_part_of_its_call() {
    let team = |recording: &Recording, models: [ScriptedModel; 2]| {
        let [boss, worker] = models;
        let worker = Agent::builder(worker)
            .name("worker")
            .model_layer(recording.clone())
            .build()
            .unwrap();
        Agent::builder(boss)
            .tool(worker.into_tool("Works."))
            .model_layer(recording.clone())
            .tool_layer(recording.clone())
            .build()
            .unwrap()
    };
    let boss = [
        Turn::tool("worker", json!({ "request": "one" })),
        Turn::from_text("Done."),
    ];
    let worker = ScriptedModel::new([Turn::from_text("two")]);
    let recording = Recording::record(file("tool_agent"));
    let was = team(&recording, [ScriptedModel::new(boss), worker])
        .run("Go.")
        .await
        .unwrap();
    recording.finish().unwrap();
    let recording = Recording::replay(file("tool_agent")).unwrap();
    let response = team(&recording, [gone(), gone()]).run("Go.").await.unwrap();
    assert_eq!(response.messages(), was.messages());
    recording.finish().unwrap();
}

/// Where the recording is the model itself, the agent counts its tokens.
#[tokio::test]
async fn tokens_are_counted_once_wherever_the_recording_stands() {
    for is_model in [true, false] {
        let agent = |recording: &Recording, model: ScriptedModel| {
            if is_model {
                Agent::builder(recording.layer(model)).build().unwrap()
            } else {
                Agent::builder(model)
                    .model_layer(recording.clone())
                    .build()
                    .unwrap()
            }
        };
        let turns = [Turn::from_text("hi").usage(Usage::new(3, 1))];
        let recording = Recording::record(file("tokens"));
        let was = agent(&recording, ScriptedModel::new(turns))
            .run("?")
            .await
            .unwrap();
        recording.finish().unwrap();
        let recording = Recording::replay(file("tokens")).unwrap();
        let response = agent(&recording, gone()).run("?").await.unwrap();
        assert_eq!(
            (response.usage(), was.usage()),
            (Usage::new(3, 1), Usage::new(3, 1))
        );
    }
}

#[tokio::test]
async fn a_file_of_another_version_and_no_recording_are_typed_errors() {
    fs::create_dir_all(file("").parent().unwrap()).unwrap();
    let read = |text: &str| {
        fs::write(file("odd"), text).unwrap();
        Recording::replay(file("odd")).unwrap_err()
    };
    let error = read(r#"{ "tower_agent_recording": 7, "calls": "of the future" }"#);
    assert!(
        matches!(error, RecordingError::Version { found: 7, .. }),
        "{error}"
    );
    assert!(
        error
            .to_string()
            .ends_with("version 7, and this crate reads version 1; record it again")
    );
    for text in [
        "",
        "{",
        "[]",
        r#"{"calls":[]}"#,
        r#"{"tower_agent_recording":1,"calls":[{}]}"#,
    ] {
        let error = read(text);
        assert!(
            matches!(error, RecordingError::Format { .. }),
            "{text}: {error}"
        );
    }
    let error = Recording::replay(file("missing")).unwrap_err();
    assert!(matches!(error, RecordingError::Read { .. }), "{error}");
    let folder = Recording::record(file("").parent().unwrap());
    assert!(matches!(
        folder.finish().unwrap_err(),
        RecordingError::Write { .. }
    ));
    // Nothing half written is left.
    let left = fs::read_dir(file("").parent().unwrap().parent().unwrap()).unwrap();
    let left = left.map(|entry| entry.unwrap().file_name().into_string().unwrap());
    assert!(left.into_iter().all(|name| !name.ends_with(".tmp")));
}

#[tokio::test]
async fn a_recording_with_a_running_call_is_not_complete() {
    let recording = Recording::record(file("running"));
    let mut model: Recorded<ScriptedModel> = recording.layer(ScriptedModel::new([Turn::pending()]));
    let call = tower::Service::call(&mut model, ModelRequest::default());
    let error = recording.finish().unwrap_err();
    assert!(matches!(error, RecordingError::Running { .. }), "{error}");
    drop(call);
    recording.finish().unwrap();
}

#[tokio::test]
async fn the_file_is_readable_and_the_same_every_time() {
    record("stable", true).await;
    let first = fs::read_to_string(file("stable")).unwrap();
    record("stable", true).await;
    assert_eq!(fs::read_to_string(file("stable")).unwrap(), first);
    let json: Value = serde_json::from_str(&first).unwrap();
    assert_eq!(
        json["calls"][1]["request"]["arguments"],
        json!({ "a": 1, "b": 2 })
    );
    assert_eq!(
        json["calls"][0]["outcome"]["stream"][0]["deltas"][4],
        json!({ "tool_call": { "index": 0, "id": "call_1", "name": "add" } }),
    );
}

#[derive(Clone)]
struct Stored(Embed);

impl Request for Stored {
    type Response = String;
    const CALL: tower_agent::call::CallKind = tower_agent::call::CallKind::Other("stored");

    fn context(&self) -> &tower_agent::RunContext {
        &self.0.context
    }
}

impl Recordable for Stored {
    fn data(&self) -> serde_json::Result<Value> {
        Ok(json!(self.0.text))
    }
}

#[tokio::test]
async fn a_call_that_the_crate_does_not_define_is_recorded() {
    let request = || {
        Stored(Embed {
            text: "a".into(),
            ..Embed::default()
        })
    };
    let recording = Recording::record(file("own"));
    let service = recording.layer(tower::service_fn(|request: Stored| async move {
        let Embedding { text, .. } = <Embed as test_support::call::Call>::response(&request.0.text);
        Ok::<_, BoxError>(text)
    }));
    service.oneshot(request()).await.unwrap();
    recording.finish().unwrap();
    let recording = Recording::replay(file("own")).unwrap();
    let gone = recording.layer(tower::service_fn(async |_: Stored| {
        Err::<String, _>(BoxError::from("gone"))
    }));
    assert_eq!(gone.oneshot(request()).await.unwrap(), "a");
    recording.finish().unwrap();
}

/// Which of two equal calls is answered first is up to the runs; no answer is given twice or lost.
#[tokio::test(start_paused = true)]
async fn two_runs_at_once_that_ask_the_same_share_the_answers() {
    let both = async |recording: &Recording, model: ScriptedModel| {
        let agent = sums(recording, model, gone_tool());
        let (one, two) = futures::join!(agent.run("A number?"), agent.run("A number?"));
        recording.finish().unwrap();
        let mut said = [one.unwrap().text(), two.unwrap().text()];
        said.sort();
        said
    };
    let slow = Turn::from_text("1").latency(Duration::from_secs(2));
    let model = ScriptedModel::new([slow, Turn::from_text("2")]);
    assert_eq!(
        both(&Recording::record(file("same")), model).await,
        ["1", "2"]
    );
    let recording = Recording::replay(file("same")).unwrap();
    assert_eq!(both(&recording, gone()).await, ["1", "2"]);
    // A third one finds nothing left.
    let error = sums(&recording, gone(), gone_tool())
        .run("A number?")
        .await
        .unwrap_err();
    assert!(error.message().contains("was made before"), "{error}");
}

#[tokio::test]
async fn a_file_that_is_cut_anywhere_is_no_recording() {
    record("cut", true).await;
    let whole = fs::read_to_string(file("cut")).unwrap();
    let cuts = (0..whole.trim_end().len()).filter(|at| whole.is_char_boundary(*at));
    for at in cuts.step_by(7) {
        fs::write(file("cut"), &whole[..at]).unwrap();
        let error = Recording::replay(file("cut")).unwrap_err();
        assert!(
            matches!(error, RecordingError::Format { .. }),
            "{at}: {error}"
        );
    }
}

#[tokio::test]
async fn a_recording_that_fails_leaves_the_file_as_it_was() {
    record("kept", false).await;
    let was = fs::read_to_string(file("kept")).unwrap();
    let recording = Recording::record(file("kept"));
    let mut model: Recorded<ScriptedModel> = recording.layer(ScriptedModel::new([Turn::pending()]));
    let running = tower::Service::call(&mut model, ModelRequest::default());
    recording.finish().unwrap_err();
    assert_eq!(fs::read_to_string(file("kept")).unwrap(), was);
    drop(running);
}

#[tokio::test]
async fn a_conversation_that_is_transferred_and_a_tool_that_panics_replay() {
    let desk = |recording: &Recording, desk: ScriptedModel, billing: ScriptedModel, tool: Tool| {
        let billing = Agent::builder(billing)
            .name("billing")
            .model_layer(recording.clone());
        Agent::builder(desk)
            .name("desk")
            .tool(tool)
            .sub_agent(billing.build().unwrap())
            .model_layer(recording.clone())
            .tool_layer(recording.clone())
            .build()
            .unwrap()
    };
    let script = ScriptedModel::new([
        Turn::tool("add", json!({})),
        Turn::tool("transfer_to_agent", json!({ "agent_name": "billing" })),
    ]);
    let panics = Tool::function("add", "Adds.", |_: Value| -> u32 { panic!("no numbers") });
    let recording = Recording::record(file("transferred"));
    let billing = ScriptedModel::new([Turn::from_text("Paid.")]);
    let was = desk(&recording, script, billing, panics)
        .run("Pay.")
        .await
        .unwrap();
    recording.finish().unwrap();
    assert_eq!(was.text(), "Paid.");
    let failed = was
        .messages()
        .iter()
        .flat_map(Message::tool_results)
        .find(|result| result.is_error);
    assert!(failed.unwrap().text().contains("no numbers"));

    let recording = Recording::replay(file("transferred")).unwrap();
    let response = desk(&recording, gone(), gone(), gone_tool())
        .run("Pay.")
        .await
        .unwrap();
    assert_eq!(response.messages(), was.messages());
    recording.finish().unwrap();
}

/// It would go wrong in silence if it were counted as made.
#[tokio::test]
async fn a_call_that_differs_leaves_the_recorded_one_to_be_made() {
    record("left", false).await;
    let recording = Recording::replay(file("left")).unwrap();
    let agent = sums(&recording, gone(), gone_tool());
    agent.run("Three sums.").await.unwrap_err();
    assert_eq!(agent.run("Two sums.").await.unwrap().text(), "3 and 0.3");
    // The difference stands, whatever comes after it.
    assert!(matches!(
        recording.finish().unwrap_err(),
        RecordingError::Differs { number: 1, .. }
    ));
}
