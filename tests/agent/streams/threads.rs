//! Events from several tasks and threads at once.

use std::collections::HashMap;
use std::sync::Arc;
use std::task::{Context, Wake, Waker};

use futures::{FutureExt, StreamExt};
use serde_json::{Map, Value, json};
use tokio::sync::Semaphore;
use tower_agent::stream::{DeltaSender, Event, EventKind, channel};
use tower_agent::{Agent, AgentRequest, Request, RunContext, State, Tool, ToolRequest};
use tower_agent_test::{ScriptedModel, Turn};

use super::{read, words};

/// An agent that calls one tool, which does this.
fn doing<F, O>(work: F) -> Agent
where
    F: Fn(RunContext) -> O + Clone + Send + Sync + 'static,
    O: Future<Output = ()> + Send + 'static,
{
    let tool = Tool::function_with("work", "Works.", move |_: Value, call: ToolRequest| {
        let work = work(call.context().clone());
        async move {
            work.await;
            "done"
        }
    });
    let model = ScriptedModel::new([Turn::tool("work", json!({})), Turn::from_text("done")]);
    Agent::builder(model).tool(tool).build().unwrap()
}

/// The state that a reader is left with.
fn left(events: &[Event]) -> Value {
    let mut state = Map::new();
    for event in events {
        match &event.kind {
            EventKind::StateSnapshot { state: whole } => state.clone_from(whole),
            EventKind::StateDelta { delta } => {
                let has = |key: &String| state.contains_key(key);
                assert!(delta.removed.iter().all(has), "{delta:?} of {state:?}");
                delta.clone().apply(&mut state);
            }
            _ => {}
        }
    }
    state.into()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn changes_of_the_state_are_emitted_in_order_from_any_thread() {
    let agent = doing(|context| async move {
        let tasks = (0..4).map(|task| {
            let context = context.clone();
            tokio::spawn(async move {
                for number in 0..500 {
                    match number % 5 {
                        4 => drop(context.state().remove("shared")),
                        _ => context.state().set("shared", json!([task, number])),
                    }
                    context.state().set(format!("of {task}"), number);
                    context.emit("told", json!([task, number])).await;
                }
            })
        });
        for task in tasks.collect::<Vec<_>>() {
            task.await.unwrap();
        }
    });

    let (events, response) = read(agent.stream("?")).await;

    assert_eq!(left(&events), json!(response.unwrap().state().snapshot()));
    // A change of the state is emitted before an event that the same thread emits later.
    let mut state = Map::new();
    for event in &events {
        match &event.kind {
            EventKind::StateDelta { delta } => delta.clone().apply(&mut state),
            EventKind::Custom { value, .. } => {
                let of = &state[&format!("of {}", value[0])];
                assert!(
                    of.as_u64() >= value[1].as_u64(),
                    "{of} when {value} is told"
                );
            }
            _ => {}
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn nothing_is_lost_of_what_tasks_tell_at_once_and_each_ones_stays_in_order() {
    let agent = doing(|context| async move {
        let tasks = (0..8).map(|task| {
            let context = context.clone();
            tokio::spawn(async move {
                for number in 0..200_u64 {
                    context.emit("told", json!([task, number])).await;
                }
            })
        });
        for task in tasks.collect::<Vec<_>>() {
            task.await.unwrap();
        }
    });
    let mut run = agent.stream("?");
    let mut seen = HashMap::<u64, u64>::new();

    // A reader that moves from task to task.
    loop {
        let (event, rest) = tokio::spawn(async move { (run.next().await, run) })
            .await
            .unwrap();
        run = rest;
        let Some(event) = event else { break };
        if let EventKind::Custom { value, .. } = event.kind {
            let next = seen.entry(value[0].as_u64().unwrap()).or_default();
            assert_eq!(value[1].as_u64().unwrap(), *next);
            *next += 1;
        }
    }

    assert_eq!(seen, (0..8).map(|task| (task, 200)).collect());
}

#[tokio::test]
async fn the_last_event_is_the_end_although_tasks_still_emit() {
    let go_on = Arc::new(Semaphore::new(0));
    let agent = doing({
        let go_on = go_on.clone();
        move |context| {
            let go_on = go_on.clone();
            async move {
                tokio::spawn(async move {
                    go_on.acquire().await.unwrap().forget();
                    for number in 0..100 {
                        context.state().set("late", number);
                        context.emit("late", number).await;
                    }
                });
            }
        }
    });
    let mut run = agent.stream("?");
    let mut events = Vec::new();
    // All that happens, up to the end, waits to be read.
    while let Some(event) = run.next().await {
        let is_last_turn = matches!(event.kind, EventKind::TextStart { .. });
        events.push(event);
        if is_last_turn {
            break;
        }
    }
    while let Some(Some(event)) = run.next().now_or_never() {
        events.push(event);
        if matches!(events.last().unwrap().kind, EventKind::RunFinished { .. }) {
            break;
        }
    }
    go_on.add_permits(1);
    tokio::task::yield_now().await;

    assert!(
        run.next().await.is_none(),
        "something is told after the end"
    );
    assert_eq!(words(&events).last().unwrap(), "finished");
}

#[tokio::test]
async fn a_state_that_was_watched_before_begins_with_a_snapshot_again() {
    let state = State::default();
    for (run, visits) in [("a", 1), ("b", 2)] {
        let agent = Agent::builder(ScriptedModel::new([Turn::from_text("hi")]))
            .build()
            .unwrap();
        let request = AgentRequest::new("?")
            .with_state(state.clone())
            .with_run_id(run);
        state.set("visits", visits);

        let (events, _) = read(agent.stream(request)).await;

        let words = words(&events);
        assert_eq!(
            words[..2],
            ["run".to_owned(), format!("state {{\"visits\":{visits}}}")]
        );
        assert!(
            !words.iter().any(|word| word.starts_with("delta")),
            "{words:?}"
        );
        state.set("between", visits);
        state.remove("between");
    }
}

#[tokio::test]
async fn runs_that_share_a_state_each_emit_every_change() {
    let inner = doing(|context| async move { context.state().set("inner", 1) });
    let outer = doing(move |context| {
        let inner = inner.clone();
        async move {
            context.state().set("before", 1);
            let request = AgentRequest::new("?").with_state(context.state().clone());
            let (events, _) = read(inner.stream(request)).await;
            assert_eq!(left(&events), json!({ "before": 1, "inner": 1 }));
            context.state().set("after", 1);
        }
    });

    let (events, response) = read(outer.stream("?")).await;

    let all: Map<_, _> = response.unwrap().state().snapshot();
    assert_eq!(all.len(), 3);
    assert_eq!(left(&events), Value::Object(all));
}

/// A reader that has been in a task before: with the task's waker goes what the task holds.
#[test]
fn a_reader_that_moves_on_may_leave_a_sink_behind_in_the_task_that_it_was_in() {
    struct Task(#[allow(dead_code, reason = "only held")] DeltaSender);
    impl Wake for Task {
        fn wake(self: Arc<Self>) {}
    }
    let (sink, mut events) = channel(1);
    let task = Waker::from(Arc::new(Task(sink)));
    assert!(
        events
            .poll_next_unpin(&mut Context::from_waker(&task))
            .is_pending()
    );
    drop(task);

    assert!(events.next().now_or_never().is_none());
    assert!(
        events.next().now_or_never().unwrap().is_none(),
        "nobody is left to tell anything"
    );
}
