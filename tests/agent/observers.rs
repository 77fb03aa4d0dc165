//! Observers: what they are told of runs, streamed or not, and that no run depends on them.

use std::time::SystemTime;

use futures::{FutureExt, StreamExt};
use serde_json::{Value, json};
use tower_agent::callback::{Bundle, before_model, before_tool, on_model_error};
use tower_agent::message::Part;
use tower_agent::stream::{
    self, EventKind, FailedAttempt, NextAttempt, Observation, Observations, Observer,
};
use tower_agent::{
    Agent, AgentRequest, Error, ErrorKind, Interrupt, Recovery, Resolution, Tool, Usage,
};
use tower_agent_middleware::fallback::Fallback;
use tower_agent_middleware::retry::CallRetryLayer;
use tower_agent_test::{ScriptedModel, Turn};

/// Returns what has been told so far.
fn told(observations: &mut Observations) -> Vec<Observation> {
    let mut all = Vec::new();
    while let Some(Some(next)) = observations.next().now_or_never() {
        all.push(next);
    }
    all
}

/// Returns each event as the agent and a word.
fn words(told: &[Observation]) -> Vec<String> {
    let word = |observation: &Observation| {
        let event = &observation.event;
        let word = match &event.kind {
            EventKind::AgentStarted => "starts".to_owned(),
            EventKind::AgentFinished { interrupts, error } => match (&interrupts[..], error) {
                ([], None) => "ends".to_owned(),
                ([], Some(error)) => format!("fails: {}", error.kind()),
                _ => "waits".to_owned(),
            },
            EventKind::StepStarted { iteration } => format!("turn {iteration}"),
            EventKind::StepFinished { .. } => "turn ends".to_owned(),
            EventKind::Usage { usage } => format!("{} tokens", usage.total()),
            EventKind::ToolResult(result) => {
                let text: String = result.parts.iter().filter_map(Part::as_text).collect();
                format!("{} = {text}", result.name)
            }
            EventKind::Callback(note) => {
                format!(
                    "{} {} {:?} at {}",
                    note.hook, note.call, note.decision, note.attempt
                )
            }
            EventKind::AttemptFailed(failed) => failure(failed),
            EventKind::Custom { name, .. } => name.to_string(),
            other => format!("{other:?}"),
        };
        format!("{}: {word}", event.invocation.path)
    };
    told.iter().map(word).collect()
}

fn failure(failed: &FailedAttempt) -> String {
    let FailedAttempt {
        call,
        attempt,
        error,
        usage,
        next,
        ..
    } = failed;
    let next = match next {
        NextAttempt::Retry(_) => "retry",
        NextAttempt::Fallback => "fallback",
        _ => "?",
    };
    format!(
        "{call} {attempt}: {error}, {} tokens, {next}",
        usage.total()
    )
}

fn busy() -> Turn {
    Turn::error(Error::new(ErrorKind::Overloaded, "busy"))
}

fn watched(model: ScriptedModel, observer: &Observer) -> tower_agent::AgentBuilder {
    Agent::builder(model).global_callbacks(Bundle::new().observer(observer.clone()))
}

#[tokio::test]
async fn a_run_that_is_not_streamed_tells_its_turns_decisions_and_attempts() {
    let (observer, mut observations) = stream::observer(1024);
    let worker = Agent::builder(ScriptedModel::new([Turn::from_text("Oslo.")]))
        .name("worker")
        .build()
        .unwrap();
    let model = ScriptedModel::new([
        busy(),
        Turn::tool("worker", json!({ "request": "Where?" })).usage(Usage::new(10, 2)),
        Turn::from_text("In Oslo.").usage(Usage::new(20, 1)),
    ]);
    let boss = watched(model, &observer)
        .name("boss")
        .tool(worker.into_tool("Works."))
        .on_model(on_model_error(|_, _| Recovery::Retry))
        .on_tool(before_tool(|_| ()))
        .build()
        .unwrap();
    let before = SystemTime::now();
    boss.run(AgentRequest::new("Where?").with_run_id("run 1"))
        .await
        .unwrap();

    let told = told(&mut observations);
    assert_eq!(
        words(&told),
        [
            "boss: starts",
            "boss: turn 0",
            "boss: on_error model Retry at 0",
            "boss: model 0: overloaded, 0 tokens, retry",
            "boss: 12 tokens",
            "boss: before tool Continue at 0",
            "boss/worker: starts",
            "boss/worker: turn 0",
            "boss/worker: turn ends",
            "boss/worker: ends",
            "boss: worker = Oslo.",
            "boss: turn ends",
            "boss: turn 1",
            "boss: 21 tokens",
            "boss: turn ends",
            "boss: ends",
        ]
    );
    let mut earlier = before;
    for (number, observation) in told.iter().enumerate() {
        let event = &observation.event;
        assert_eq!((&*observation.run, event.number), ("run 1", number as u64));
        assert!(event.time >= earlier);
        earlier = event.time;
    }
    let worker = &told[6].event.invocation;
    assert_eq!(worker.caller.as_ref().unwrap().agent(), "boss");
    assert!(worker.tool_call.is_some() && !worker.goes_on);
}

#[tokio::test]
async fn a_streamed_run_tells_its_observers_the_same() {
    let run = async |is_streamed: bool| {
        let (observer, mut observations) = stream::observer(1024);
        let model =
            ScriptedModel::new([Turn::tool("look", json!({})), Turn::from_text("It rains.")]);
        let look = Tool::function("look", "Looks.", |_: Value| "rain");
        let agent = watched(model, &observer)
            .tool(look)
            .on_model(before_model(|_| ()))
            .build()
            .unwrap();
        if is_streamed {
            let events: Vec<_> = agent.stream("?").collect().await;
            let agent_started = events.iter().find(|event| event.invocation.number == 1);
            let told = told(&mut observations);
            // The two name the agent alike.
            assert_eq!(
                told[0].event.invocation.id,
                agent_started.unwrap().invocation.id
            );
            words(&told)
        } else {
            agent.run("?").await.unwrap();
            words(&told(&mut observations))
        }
    };
    let plain = run(false).await;
    assert_eq!(plain, run(true).await);
    assert!(
        plain.contains(&"agent: look = rain".to_owned()),
        "{plain:?}"
    );
}

#[tokio::test(start_paused = true)]
async fn layers_tell_of_retries_and_fallbacks() {
    let (observer, mut observations) = stream::observer(1024);
    let first = ScriptedModel::always(busy());
    let second = ScriptedModel::new([Turn::from_text("Yes.")]);
    let model = Fallback::new(first).or(second);
    let agent = Agent::builder(model)
        .global_callbacks(Bundle::new().observer(observer.clone()))
        .build()
        .unwrap();
    assert_eq!(agent.run("?").await.unwrap().text(), "Yes.");
    let words_of = words(&told(&mut observations));
    assert!(
        words_of.contains(&"agent: model 0: overloaded, 0 tokens, fallback".to_owned()),
        "{words_of:?}"
    );

    let model = ScriptedModel::new([busy(), busy(), Turn::from_text("Yes.")]);
    let agent = watched(model, &observer)
        .model_layer(CallRetryLayer::new())
        .on_model(before_model(|_| ()))
        .build()
        .unwrap();
    agent.run("?").await.unwrap();
    let words_of = words(&told(&mut observations));
    assert_eq!(
        &words_of[2..7],
        [
            "agent: before model Continue at 0",
            "agent: model 0: overloaded, 0 tokens, retry",
            "agent: before model Continue at 1",
            "agent: model 1: overloaded, 0 tokens, retry",
            "agent: before model Continue at 2",
        ]
    );
}

#[tokio::test]
async fn a_discarded_attempt_has_the_kind_of_its_error_and_its_tokens() {
    // A response that a callback refuses has spent tokens.
    let (observer, mut observations) = stream::observer(1024);
    let model = ScriptedModel::new([
        Turn::from_text("rude").usage(Usage::new(10, 4)),
        Turn::from_text("Kind.").usage(Usage::new(20, 1)),
    ]);
    let polite = tower_agent::callback::after_model(|_, response: &tower_agent::ModelResponse| {
        if response.message().text() == "rude" {
            return Err(Error::new(ErrorKind::Denied, "rude"));
        }
        Ok(())
    });
    let agent = watched(model, &observer)
        .model_layer(CallRetryLayer::new().retry_if(|error| error.kind() == ErrorKind::Denied))
        .on_model(polite)
        .build()
        .unwrap();
    agent.run("?").await.unwrap();
    let words_of = words(&told(&mut observations));
    assert!(
        words_of.contains(&"agent: model 0: denied, 14 tokens, retry".to_owned()),
        "{words_of:?}"
    );

    // In a stream, the event that takes the text back says so as well.
    let model = ScriptedModel::new([
        Turn::from_text("It rains today.")
            .failing_after(1, Error::new(ErrorKind::Connection, "cut")),
        Turn::from_text("It rains."),
    ]);
    let agent = Agent::builder(model)
        .on_model(on_model_error(|_, _| Recovery::Retry))
        .build()
        .unwrap();
    let events: Vec<_> = agent.stream("?").collect().await;
    let discarded = events.iter().find_map(|event| match &event.kind {
        EventKind::AttemptDiscarded { error, .. } => Some(*error),
        _ => None,
    });
    assert_eq!(discarded, Some(Some(ErrorKind::Connection)));
    let failed = events.iter().find_map(|event| match &event.kind {
        EventKind::AttemptFailed(failed) => Some(failed.error),
        _ => None,
    });
    assert_eq!(failed, Some(ErrorKind::Connection));
    for (number, event) in events.iter().enumerate() {
        assert_eq!(event.number, number as u64);
    }
}

#[tokio::test]
async fn an_observer_that_does_not_read_delays_no_run_and_knows_what_it_has_missed() {
    let (observer, mut observations) = stream::observer(2);
    let model = ScriptedModel::new([Turn::tool("look", json!({})), Turn::from_text("It rains.")]);
    let look = Tool::function("look", "Looks.", |_: Value| "rain");
    let agent = watched(model, &observer).tool(look).build().unwrap();
    assert_eq!(agent.run("?").await.unwrap().text(), "It rains.");
    let first = told(&mut observations);
    let numbers: Vec<_> = first.iter().map(|told| told.event.number).collect();
    assert_eq!(numbers, [0, 1]);
    // Two turns, a result, and the end of the agent.
    assert_eq!(observations.dropped(), 5);
}

#[tokio::test]
async fn an_observer_whose_reader_has_gone_is_told_nothing_and_a_reader_without_observers_ends() {
    let (observer, observations) = stream::observer(8);
    drop(observations);
    let model = ScriptedModel::always(Turn::from_text("Yes."));
    let agent = watched(model.clone(), &observer).build().unwrap();
    assert_eq!(agent.run("?").await.unwrap().text(), "Yes.");

    let (observer, mut observations) = stream::observer(8);
    let agent = watched(model, &observer).build().unwrap();
    drop(observer);
    assert!(observations.next().now_or_never().is_none());
    drop(agent);
    assert!(observations.next().await.is_none());
}

#[tokio::test]
async fn observers_of_a_tree_an_agent_and_a_run_are_each_told_once() {
    let (of_tree, mut tree) = stream::observer(1024);
    let (of_run, mut run) = stream::observer(1024);
    let (of_worker, mut worker) = stream::observer(1024);
    let member = |name: &str| {
        let model = ScriptedModel::new([Turn::from_text(name)]);
        Agent::builder(model).name(name)
    };
    let inner = member("inner")
        .callbacks(Bundle::new().observer(of_worker.clone()))
        .global_callbacks(Bundle::new().observer(of_tree.clone()))
        .build()
        .unwrap();
    let team = Agent::sequential("team")
        .agent(member("outer").build().unwrap())
        .agent(inner)
        .global_callbacks(Bundle::new().observer(of_tree.clone()))
        .build()
        .unwrap();
    let request = AgentRequest::new("?")
        .with_callbacks(Bundle::new().observer(of_run.clone()))
        .with_global_callbacks(Bundle::new().observer(of_run));
    team.run(request).await.unwrap();
    let all = words(&told(&mut tree));
    assert_eq!(all.first().unwrap(), "team: starts");
    assert_eq!(
        all.iter()
            .filter(|word| *word == "team/inner: starts")
            .count(),
        1
    );
    assert_eq!(all, words(&told(&mut run)));
    let own = words(&told(&mut worker));
    assert_eq!(own.first().unwrap(), "team/inner: starts");
    assert_eq!(own.last().unwrap(), "team/inner: ends");
}

#[tokio::test]
async fn an_observer_of_two_members_can_tell_them_apart() {
    let (observer, mut observations) = stream::observer(1024);
    let member = |name: &str| {
        watched(ScriptedModel::new([Turn::from_text(name)]), &observer)
            .name(name)
            .build()
            .unwrap()
    };
    let team = Agent::parallel("team")
        .agents([member("one"), member("two")])
        .build()
        .unwrap();
    team.run("?").await.unwrap();
    let told = told(&mut observations);
    let numbers: Vec<_> = told.iter().map(|told| told.event.number).collect();
    assert_eq!(numbers, Vec::from_iter(0..told.len() as u64));
    let mut ids: Vec<_> = told.iter().map(|told| &told.event.invocation.id).collect();
    ids.sort();
    ids.dedup();
    assert_eq!(ids.len(), 2);
}

#[tokio::test]
async fn a_run_that_waits_and_goes_on_is_told_of_and_a_dropped_one_ends() {
    let (observer, mut observations) = stream::observer(1024);
    let ask = before_tool(|request| request.ask(Interrupt::new("q1", "may it?")).map(drop));
    let model = ScriptedModel::new([
        Turn::tool("pay", json!({})),
        Turn::from_text("Paid."),
        Turn::pending(),
    ]);
    let pay = Tool::function("pay", "Pays.", |_: Value| "paid");
    let agent = watched(model, &observer)
        .tool(pay)
        .on_tool(ask)
        .build()
        .unwrap();
    let paused = agent.run("Pay.").await.unwrap();
    let words_of = words(&told(&mut observations));
    assert_eq!(words_of.last().unwrap(), "agent: waits");
    assert!(words_of.contains(&"agent: before tool Failed(Interrupted) at 0".to_owned()));

    let yes = Resolution::resolved(&paused.interrupts()[0].id, true);
    let request = AgentRequest::resume(paused.checkpoint()).with_resolutions([yes]);
    agent.run(request).await.unwrap();
    let words_of = words(&told(&mut observations));
    assert!(
        words_of.contains(&"agent: pay = paid".to_owned()),
        "{words_of:?}"
    );

    let mut run = Box::pin(agent.run("Once more."));
    assert!(futures::poll!(&mut run).is_pending());
    drop(run);
    let words_of = words(&told(&mut observations));
    assert_eq!(words_of.last().unwrap(), "agent: fails: cancelled");
}
