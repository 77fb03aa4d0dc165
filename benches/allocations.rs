//! Asserts the number of allocations, so that a regression shows as a number on any machine.

#[path = "support/allocations.rs"]
#[allow(unreachable_pub, reason = "shared with the benches")]
mod allocations;
#[path = "support/counted.rs"]
#[allow(dead_code, unreachable_pub, reason = "shared with the benches")]
mod counted;

use std::future::poll_fn;
use std::hint::black_box;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};

use futures::StreamExt;
use serde_json::json;
use tokio::task::coop::unconstrained;
use tower::{ServiceExt, service_fn};
use tower_agent::callback::{after_model, after_tool, before_model, before_tool};
use tower_agent::message::{Messages, ToolCall};
use tower_agent::model::ModelService;
use tower_agent::{
    Action, Agent, AgentRequest, BoxError, Callback, Callbacks, Message, ModelRequest,
    ModelResponse, Result, Tool, ToolRequest,
};
use tower_agent_agui::{self as agui, AgUi, RunAgentInput};
use tower_agent_middleware::budget::{Budget, Limits};
use tower_agent_middleware::redact::{Detector, Redact};
use tower_agent_test::{ScriptedModel, Turn};
use tower_layer::Layer;

use self::allocations::Allocations;
use self::counted::work::{self, finish};

#[test]
fn cloning_a_request_allocates_nothing() {
    let mut model = ModelRequest::new(history(1000));
    model.add_instructions("Be brief.");
    model.settings_mut().stop.push("END".to_owned());
    model.extensions_mut().insert(7);
    let mut tool = ToolRequest::new(ToolCall::new("call_1", "add", json!({ "a": 1, "b": 2 })));
    tool.arguments_mut()["b"] = json!(3);
    let agent = AgentRequest::conversation(history(1000));

    assert_eq!(allocations::of(|| model.clone()), Allocations::default());
    assert_eq!(allocations::of(|| tool.clone()), Allocations::default());
    assert_eq!(allocations::of(|| agent.clone()), Allocations::default());
}

#[test]
fn appending_to_a_shared_history_does_not_copy_it() {
    let message = Message::assistant("done");
    let append = |length| {
        let shared = history(length);
        allocations::of(|| {
            let mut longer = shared.clone();
            longer.push(message.clone());
            longer
        })
    };
    for length in [10, 1000, 10_000] {
        let appended = append(length);
        assert!(appended.bytes < 4096, "{appended:?} for {length} messages");
    }
}

#[test]
fn a_sync_callback_allocates_nothing() {
    let band = |pairs| {
        let mut band = Callbacks::new();
        for _ in 0..pairs {
            band.push(before_model(|_| {}));
            band.push(after_model(|_, _| {}));
        }
        a_call(band)
    };
    assert_eq!(band(0).count, 0, "an empty band is not there");
    assert_eq!(band(1).count, 1, "a band is one box");
    assert_eq!(band(1), band(50));
}

#[test]
fn a_hook_left_at_its_default_allocates_nothing() {
    struct Nothing;
    impl Callback<ModelRequest> for Nothing {}

    assert_eq!(a_call(Callbacks::from_iter([Nothing])).count, 1, "the band");
    assert_eq!(
        a_call(Callbacks::from_iter([Arc::new(Nothing)])).count,
        1,
        "the band"
    );
}

#[test]
fn an_async_hook_allocates_only_where_its_future_is_large() {
    struct Hooks<const SIZE: usize>;

    impl<const SIZE: usize> Callback<ModelRequest> for Hooks<SIZE> {
        async fn before(&self, request: &mut ModelRequest) -> Result<Action<ModelResponse>> {
            let kept = [0_u8; SIZE];
            std::future::ready(()).await;
            drop((request.messages().clone(), black_box(&kept)));
            Ok(Action::Continue)
        }

        async fn after(
            &self,
            _: &ModelRequest,
            _: &ModelResponse,
        ) -> Result<Action<ModelResponse>> {
            Ok(Action::Continue)
        }
    }

    for count in [1, 10] {
        let small: Callbacks<_> = (0..count).map(|_| Hooks::<0>).collect();
        assert_eq!(a_call(small).count, 1, "the band");
        let large: Callbacks<_> = (0..count).map(|_| Hooks::<512>).collect();
        assert_eq!(
            a_call(large).count,
            1 + count,
            "the band and {count} large hooks"
        );
    }
}

/// The largest future of a hook that is kept in place, and the next size of one that holds
/// pointers.
const IN_PLACE: usize = 64;
const BOXED: usize = IN_PLACE + size_of::<usize>();

/// Waits once with this many bytes, and tells how many they are.
struct Holds<const SIZE: usize>(Arc<()>);

impl<const SIZE: usize> Callback<ModelRequest> for Holds<SIZE> {
    async fn before(&self, request: &mut ModelRequest) -> Result<Action<ModelResponse>> {
        let (held, bytes) = (self.0.clone(), black_box([1_u8; SIZE]));
        futures::pending!();
        request.add_instructions("seen");
        drop((held, black_box(&bytes)));
        Ok(Action::Continue)
    }
}

#[test]
fn a_hook_is_boxed_if_it_does_not_fit_and_behaves_like_one_that_does() {
    let hooks = [
        hook::<0>(),
        hook::<8>(),
        hook::<16>(),
        hook::<24>(),
        hook::<32>(),
        hook::<40>(),
    ];
    let sizes = hooks.map(|hook| hook.size);
    assert!(
        sizes.contains(&IN_PLACE) && sizes.contains(&BOXED),
        "{sizes:?}"
    );
    for Hook { size, allocations } in hooks {
        let boxed = allocations - hooks[0].allocations;
        assert_eq!(
            boxed,
            usize::from(size > IN_PLACE),
            "a hook of {size} bytes"
        );
    }
}

#[derive(Clone, Copy)]
struct Hook {
    /// Of its future.
    size: usize,
    /// Of a call with it.
    allocations: usize,
}

/// Calls a service with a hook of this size, to the end and until the hook waits.
fn hook<const SIZE: usize>() -> Hook {
    let held = Arc::new(());
    let hook = Holds::<SIZE>(held.clone());
    let size = size_of_val(&hook.before(&mut ModelRequest::default()));
    let service = Callbacks::from_iter([hook]).layer(service_fn(async |request: ModelRequest| {
        Ok::<_, BoxError>(ModelResponse::from_text(
            request.instructions().unwrap_or_default(),
        ))
    }));
    let cx = &mut Context::from_waker(Waker::noop());
    let start = || Box::pin(service.clone().oneshot(ModelRequest::default()));

    let mut whole = || {
        let mut call = start();
        assert!(call.as_mut().poll(cx).is_pending(), "the hook waits");
        let Poll::Ready(response) = call.as_mut().poll(cx) else {
            panic!("it waits again")
        };
        response.unwrap().text()
    };
    assert_eq!(whole(), "seen");
    let allocations = allocations::of(&mut whole).count;

    let idle = Arc::strong_count(&held);
    let mut call = start();
    assert!(call.as_mut().poll(cx).is_pending(), "the hook waits");
    assert_eq!(Arc::strong_count(&held), idle + 1, "the hook runs");
    drop(call);
    assert_eq!(
        Arc::strong_count(&held),
        idle,
        "a dropped hook drops what it holds"
    );
    Hook { size, allocations }
}

#[test]
fn a_band_is_one_box_for_each_call_of_an_agent_too() {
    const SUMS: usize = 19;
    const CALLS: usize = 2 * SUMS + 1;

    let run = |pairs| {
        let agent = (0..pairs).fold(work::agent(SUMS), |agent, _| {
            agent
                .on_model(before_model(|_| {}))
                .on_model(after_model(|_, _| {}))
                .on_tool(before_tool(|_| {}))
                .on_tool(after_tool(|_, _| {}))
        });
        a_run(&agent.build().unwrap()).count
    };
    assert_eq!(run(1), run(0) + CALLS);
    assert_eq!(run(1), run(5));
}

#[test]
fn a_step_costs_the_same_early_and_late() {
    let run = |steps| a_run(&work::agent(steps).build().unwrap());
    let step = |at| {
        let (shorter, longer) = (run(at), run(at + 100));
        (
            (longer.count - shorter.count) as f64 / 100.0,
            (longer.bytes - shorter.bytes) / 100,
        )
    };
    let (early, late) = (step(10), step(1000));
    assert!(
        (late.0 - early.0).abs() < 4.0,
        "allocations a step: {early:?}, then {late:?}"
    );
    assert!(
        late.1 < early.1 * 5 / 4,
        "bytes a step: {early:?}, then {late:?}"
    );
}

/// Streamed to a client, read to the end or dropped after this many events, inside guards.
#[test]
fn a_run_leaves_nothing_behind_wherever_it_is_dropped() {
    let turns = [
        Turn::tool("look", json!("jo@example.com")),
        Turn::from_text("It is jo@example.com."),
    ];
    let redact = Redact::new([Detector::email()])
        .unwrap()
        .restore_when(|_| true);
    let serve = |after: usize| {
        let agent = Agent::builder(ScriptedModel::new(turns.clone()))
            .tool(Tool::function("look", "Looks.", |input: String| input))
            .global_callbacks(redact.clone())
            .global_callbacks(Budget::new(Limits::new().model_calls(9)))
            .build()
            .unwrap();
        let input = RunAgentInput::new("t", "r", [agui::Message::user("u", "Who?")]);
        let run = finish(AgUi::new(agent).run(input)).unwrap();
        finish(run.take(after).count())
    };
    let all = serve(usize::MAX);
    assert!(all > 15, "{all} events");
    for after in 0..=all + 1 {
        assert_eq!(
            allocations::left(|| serve(after)),
            0,
            "dropped after {after} of {all} events"
        );
    }
}

/// A parallel team with an agent as a tool, polled this many times and dropped.
///
/// Counted when the runtime has turned: until then tokio keeps the wakers of a task that lets
/// others go first. That is one that has done much, where tokio's limit is on, and one whose tool
/// has kept the thread for long, which is by chance: another process may have had it.
#[test]
fn a_large_run_leaves_nothing_behind_wherever_it_is_dropped() {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .build()
        .unwrap();
    let poll = |context: &mut Context<'_>, times: usize| {
        let mut stream = a_team().stream("Count.");
        let mut polls = 0;
        while polls < times {
            polls += 1;
            if let Poll::Ready(None) = stream.poll_next_unpin(context) {
                break;
            }
        }
        polls
    };
    let to_the_end = poll_fn(|context| Poll::Ready(poll(context, usize::MAX)));
    let all = runtime.block_on(unconstrained(to_the_end));
    assert!(all > 200, "{all} polls");
    for polls in 0..=all {
        let dropped = poll_fn(|context| Poll::Ready(poll(context, polls)));
        let left = allocations::left(|| runtime.block_on(unconstrained(dropped)));
        assert_eq!(left, 0, "dropped after {polls} of {all} polls");

        let dropped = poll_fn(|context| Poll::Ready(poll(context, polls)));
        let left = allocations::left(|| runtime.block_on(dropped));
        assert_eq!(left, 0, "dropped after {polls} of {all} polls, limited");
    }
}

fn a_team() -> Agent {
    let agent = |name: &str, turns: Vec<Turn>| {
        let model = ScriptedModel::new(turns).chunk_size(1);
        // Takes from what tokio lets a task do in one turn.
        let count = Tool::function("count", "Counts.", async |input: u32| {
            for _ in 0..50 {
                tokio::task::consume_budget().await;
            }
            input + 1
        });
        Agent::builder(model).name(name).tool(count)
    };
    let member = |name: &str| {
        let helper = agent("helper", vec![Turn::from_text("It is three.")]);
        let turns = vec![
            Turn::tool("count", json!(1)).and_tool("count", json!(2)),
            Turn::tool("helper", json!({ "request": "How many?" })).and_tool("count", json!(3)),
            Turn::from_text("There are three of them."),
        ];
        let member = agent(name, turns).tool(helper.build().unwrap().into_tool("Helps."));
        member.build().unwrap()
    };
    Agent::parallel("team")
        .agent(member("first"))
        .agent(member("second"))
        .agent(member("third"))
        .build()
        .unwrap()
}

/// The other counts are asserted in `benches/counts.rs`, which needs valgrind.
#[test]
fn nothing_allocates_more_than_was_written_down() {
    let expected = counted::recorded::expected();
    let mut grown = Vec::new();
    // Without them the counts are those of `benches/counts.rs`.
    let margin = if objects_keep_their_order() {
        0.1
    } else {
        counted::recorded::MARGIN
    };
    for row in counted::rows() {
        let mut run = row.make();
        run();
        let per_run = row.per_run as f64;
        let counted = allocations::of(run).count as f64 / per_run;
        let expected = expected[row.name].allocations;
        // The beginning of a run is counted with its deltas or messages, and allocates more in a
        // build without optimisations, most with telemetry.
        let slack = if row.per_run > 1 { 40.0 / per_run } else { 0.0 };
        if counted > expected * (1.0 + margin) + slack {
            grown.push(format!(
                "{}: {counted} allocations, and {expected} in benches/counts.json",
                row.name
            ));
        }
    }
    assert!(grown.is_empty(), "{grown:#?}");
}

/// Returns whether JSON objects keep the order of their keys, as another crate of the build may
/// want: they allocate more then.
fn objects_keep_their_order() -> bool {
    json!({ "b": 0, "a": 0 }).to_string().starts_with("{\"b\"")
}

fn history(length: usize) -> Messages {
    (0..length)
        .map(|index| Message::user(index.to_string()))
        .collect()
}

/// The allocations of a warm call of a service inside a band.
fn a_call(band: Callbacks<ModelRequest>) -> Allocations {
    let response = ModelResponse::from_text("done");
    let service = band.layer(service_fn(move |_| {
        let response = response.clone();
        async { Ok::<_, BoxError>(response) }
    }));
    let request = ModelRequest::new([Message::user("hello")]);
    call(&service, &request);
    allocations::of(|| call(&service, &request))
}

fn call<S: ModelService>(service: &S, request: &ModelRequest) -> ModelResponse {
    finish(service.clone().oneshot(request.clone()))
        .map_err(Into::into)
        .unwrap()
}

fn a_run(agent: &tower_agent::Agent) -> Allocations {
    let run = || finish(agent.run("Count.")).unwrap();
    run();
    allocations::of(run)
}
