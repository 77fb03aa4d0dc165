//! Observers are told where a prompt stops to repeat the one before, and who has changed it.

use std::time::Duration;

use futures::{FutureExt, StreamExt};
use serde_json::{Value, json};
use tower::Layer;
use tower::timeout::TimeoutLayer;
use tower_agent::callback::{Bundle, before_model, wrap_model};
use tower_agent::compat::Semantics;
use tower_agent::message::{Arguments, ToolCall};
use tower_agent::stream::{EventKind, Observations, PrefixNote, PromptPart, observer};
use tower_agent::{
    Agent, AgentBuilder, AgentRequest, Error, ErrorKind, Message, ModelRequest, ModelResponse,
    Request, Tool, ToolRequest,
};
use tower_agent_middleware::context_window::ContextWindow;
use tower_agent_middleware::hedge::HedgeLayer;
use tower_agent_middleware::retry::CallRetryLayer;
use tower_agent_test::{PrefixFault, ScriptedModel, StablePrefixLayer, Turn};

const MINUTE: Duration = Duration::from_secs(60);

/// A model that calls `look` so many times, and then answers.
fn looks(times: usize) -> ScriptedModel {
    let calls = (0..times).map(|_| Turn::tool("look", json!({})));
    ScriptedModel::new(calls.chain([Turn::from_text("done")]))
}

fn look() -> Tool {
    Tool::function("look", "Looks.", |_: Value| "seen")
}

/// An agent whose model is called three times, and what the check of prefixes finds there.
fn agent() -> (AgentBuilder, StablePrefixLayer) {
    let prefix = StablePrefixLayer::new();
    let agent = Agent::builder(prefix.layer(looks(2)))
        .instructions("Look closely.")
        .tool(look());
    (agent, prefix)
}

fn told(observations: &mut Observations) -> Vec<PrefixNote> {
    let mut notes = Vec::new();
    while let Some(Some(told)) = observations.next().now_or_never() {
        if let EventKind::PrefixChanged(note) = &told.event.kind {
            notes.push(PrefixNote::clone(note));
        }
    }
    notes
}

/// Runs an agent, streamed or not, and returns what an observer is told.
async fn notes_of(agent: AgentBuilder, is_streamed: bool) -> Vec<PrefixNote> {
    let (observer, mut observations) = observer(4096);
    let bundle = Bundle::new().observer(observer.with_wrappers());
    let agent = agent.global_callbacks(bundle).build().unwrap();
    if is_streamed {
        agent.stream("Look!").for_each(|_| async {}).await;
    } else {
        agent.run("Look!").await.unwrap();
    }
    let notes = told(&mut observations);
    for note in &notes {
        assert_eq!(note.wrapper.is_none(), note.changed_by.is_empty());
    }
    notes
}

/// The same in words, streamed or not. The check of prefixes at the model finds the same.
async fn notes(change: impl Fn(AgentBuilder) -> AgentBuilder) -> Vec<String> {
    let run = async |is_streamed| {
        let (agent, prefix) = agent();
        let notes = notes_of(change(agent), is_streamed).await;
        let found: Vec<_> = notes
            .iter()
            .map(|note| (note.iteration, note.changed.clone()))
            .collect();
        let faults = prefix.faults().into_iter();
        let faults = faults.map(
            |PrefixFault {
                 iteration, changed, ..
             }| (iteration, changed),
        );
        assert_eq!(found, faults.collect::<Vec<_>>());
        let words = notes
            .iter()
            .map(|note| format!("{}: {note}", note.iteration));
        words.collect::<Vec<_>>()
    };
    let plain = run(false).await;
    assert_eq!(plain, run(true).await, "streamed");
    plain
}

fn turn(request: &ModelRequest) -> u32 {
    request.context().iteration()
}

#[tokio::test]
async fn who_changes_nothing_or_the_same_each_time_is_not_named() {
    assert_eq!(notes(|agent| agent).await, Vec::<String>::new());
    let same = notes(|agent| {
        agent.on_model(before_model(|request| {
            request.add_instructions("Be brief.");
            request.settings_mut().temperature = Some(f64::from(turn(request)));
        }))
    });
    assert_eq!(same.await, Vec::<String>::new());
}

#[tokio::test]
async fn the_band_that_changes_each_part_is_named() {
    let by = async |change: fn(&mut ModelRequest)| {
        let changed = notes(|agent| {
            let other = before_model(|request| request.add_instructions("Be brief."));
            let change = before_model(move |request| {
                if turn(request) == 1 {
                    change(request);
                }
            });
            agent
                .on_model(other.named("other"))
                .model_layer(TimeoutLayer::new(MINUTE))
                .on_model(change.named("changes"))
                .model_layer(TimeoutLayer::new(MINUTE))
                .on_model(before_model(|_| ()).named("inner"))
        })
        .await;
        // There, and back: what it did in the call before is not in this one.
        let [there, back] = &changed[..] else {
            panic!("{changed:?}");
        };
        assert_eq!(there.replacen('1', "2", 1), *back);
        there.clone()
    };
    let part = by(|request| request.add_instructions("Hurry.")).await;
    assert_eq!(part, "1: the instructions changed, by changes");
    let part = by(|request| request.tools_mut().clear()).await;
    assert_eq!(part, "1: the tool `look` changed, by changes");
    let part = by(|request| request.settings_mut().model = Some("other".into())).await;
    assert_eq!(part, "1: the setting `model` changed, by changes");
    let part = by(|request| {
        *request.messages_mut().get_mut(0).unwrap() = Message::user("Look! (It is noon.)");
    });
    assert_eq!(part.await, "1: the message 0 changed, by changes");
}

#[tokio::test]
async fn of_two_the_one_that_made_the_difference_is_named() {
    // Both change the messages. One appends, the other puts a reminder behind all.
    let changed = notes(|agent| {
        let remind = before_model(|request| {
            request
                .messages_mut()
                .push(Message::user("Remember: be kind."));
        });
        let first = before_model(|request| {
            request.messages_mut().get_mut(0).unwrap();
            let first = Message::user("You are at sea. Look!");
            *request.messages_mut().get_mut(0).unwrap() = first;
        });
        agent
            .on_model(first.named("first"))
            .model_layer(TimeoutLayer::new(MINUTE))
            .on_model(remind.named("remind"))
    });
    assert_eq!(
        changed.await,
        [
            "1: the message 1 changed, by remind",
            "2: the message 3 changed, by remind",
        ]
    );
}

#[tokio::test]
async fn a_layer_is_named_with_its_place() {
    let (agent, _) = agent();
    let layer = wrap_model(async |mut request: ModelRequest, mut next| {
        let turn = request.context().iteration();
        request.add_instructions(&format!("This is turn {turn}."));
        next.run(request).await
    });
    let agent = agent.on_model(before_model(|_| ())).model_layer(layer);
    let notes = notes_of(agent, false).await;
    assert_eq!(notes.len(), 2);
    assert_eq!(notes[0].wrapper, Some(1));
    assert_eq!(notes[0].changed_by.len(), 1);
    let json = serde_json::to_value(&notes[0]).unwrap();
    assert_eq!(json["changed"], "instructions");
}

#[tokio::test]
async fn the_context_window_is_named_for_what_it_cuts() {
    let model = ScriptedModel::always(Turn::function(|request| {
        let turn = request.context().iteration();
        Ok(if turn < 12 {
            let call = ToolCall::new(format!("c{turn}"), "read", Arguments::from_text("{}"));
            ModelResponse::from_tool_calls([call])
        } else {
            ModelResponse::from_text("done")
        })
    }));
    let prefix = StablePrefixLayer::new();
    let page = "word ".repeat(100);
    let read = Tool::function("read", "Reads.", move |_: Value| page.clone());
    let agent = Agent::builder(prefix.layer(model))
        .tool(read)
        .on_model(before_model(|_| ()).named("other"))
        .model_layer(TimeoutLayer::new(MINUTE))
        .on_model(ContextWindow::new(1_000));
    let notes = notes_of(agent, false).await;
    assert_eq!(notes.len(), prefix.faults().len());
    assert!(!notes.is_empty());
    for note in notes {
        assert!(matches!(note.changed, PromptPart::Message(_)), "{note}");
        assert_eq!(note.changed_by, ["ContextWindow"]);
    }
}

#[tokio::test]
async fn what_the_agent_itself_changes_is_nobodys_else() {
    let tick = Tool::function_with("look", "Looks.", async |_: Value, call: ToolRequest| {
        let turn = call.context().iteration();
        call.context().state().set("clock", turn.to_string());
        "seen"
    });
    let agent = |with_band| {
        let agent = Agent::builder(looks(2))
            .semantics(Semantics::adk_python())
            .instructions("It is {clock?} o'clock.")
            .tool(tick.clone());
        if with_band {
            agent.on_model(before_model(|_| ()))
        } else {
            agent
        }
    };
    // Also where there is no wrapper at all.
    for with_band in [true, false] {
        let notes = notes_of(agent(with_band), false).await;
        let words: Vec<_> = notes.iter().map(ToString::to_string).collect();
        assert_eq!(words, ["the instructions changed"; 2], "{with_band}");
    }
}

#[tokio::test(start_paused = true)]
async fn each_attempt_at_a_call_is_compared_with_the_last_one() {
    let busy = || Turn::error(Error::new(ErrorKind::Overloaded, "busy"));
    let model = ScriptedModel::new([busy(), busy(), Turn::from_text("done")]);
    let stamp = before_model(|request| {
        let at = tokio::time::Instant::now();
        request.add_instructions(&format!("It is {at:?}."));
    });
    let agent = |model| {
        Agent::builder(model)
            .model_layer(CallRetryLayer::new())
            .on_model(stamp.clone().named("stamp"))
    };
    let notes = notes_of(agent(model), false).await;
    let attempts: Vec<_> = notes
        .iter()
        .map(|note| (note.iteration, note.attempt))
        .collect();
    assert_eq!(attempts, [(0, 1), (0, 2)]);
    assert!(notes.iter().all(|note| note.changed_by == ["stamp"]));
}

#[tokio::test(start_paused = true)]
async fn two_attempts_at_the_same_time_are_told_apart() {
    let slow = Turn::from_text("slow").latency(MINUTE);
    let model = ScriptedModel::new([slow, Turn::from_text("done")]);
    let agent = Agent::builder(model).model_layer(HedgeLayer::new(Duration::from_secs(1)));
    assert_eq!(notes_of(agent, false).await, []);
}

#[tokio::test]
async fn calls_of_other_agents_and_of_other_runs_are_not_compared() {
    let worker = Agent::builder(ScriptedModel::always(Turn::from_text("ok")))
        .name("worker")
        .build()
        .unwrap();
    let ask = |text: &str| json!({ "request": text });
    let model = ScriptedModel::new([
        Turn::tool("worker", ask("one")).and_tool("worker", ask("two")),
        Turn::tool("worker", ask("three")),
        Turn::from_text("done"),
        Turn::from_text("again"),
    ]);
    let (observer, mut observations) = observer(4096);
    let agent = Agent::builder(model)
        .tool(worker.into_tool("Works."))
        .global_callbacks(Bundle::new().observer(observer.with_wrappers()))
        .build()
        .unwrap();
    let first = agent.run("Work!").await.unwrap();
    agent
        .run(AgentRequest::resume(first.checkpoint()).with_message("More!"))
        .await
        .unwrap();
    assert_eq!(told(&mut observations), []);
}

#[tokio::test]
async fn only_those_are_told_that_ask_about_wrappers() {
    let (plain, mut of_plain) = observer(64);
    let (asking, mut of_asking) = observer(64);
    let (agent, _) = agent();
    let agent = agent
        .on_model(before_model(|request| {
            let turn = turn(request);
            request.add_instructions(&format!("This is turn {turn}."));
        }))
        .global_callbacks(
            Bundle::new()
                .observer(plain)
                .observer(asking.with_wrappers()),
        )
        .build()
        .unwrap();
    let events: Vec<_> = agent.stream("?").collect().await;
    let is_note = |kind: &EventKind| matches!(kind, EventKind::PrefixChanged(_));
    assert!(!events.iter().any(|event| is_note(&event.kind)));
    assert_eq!(told(&mut of_plain), []);
    assert_eq!(told(&mut of_asking).len(), 2);
}
