//! Any stack of guards and tower's layers, around any script, read by anybody: what is promised
//! holds.

mod case;
mod watch;
mod world;

use std::collections::BTreeMap;
use std::future::{Future, poll_fn};
use std::panic::AssertUnwindSafe;
use std::pin::pin;
use std::time::Duration;

use futures::{FutureExt, StreamExt};
use proptest::prelude::*;
use serde_json::json;
use tokio::time::Instant;
use tower_agent::stream::{Event, EventKind};
use tower_agent::{Agent, AgentRequest, AgentResponse, EndReason, Resolution, Result, Role};
use tower_agent_middleware::approval::Decision;

use self::case::{Around, Case, Decides, Ends, OF_MODEL, OF_OTHER, OF_TOOL, Reader, case};
use self::world::{MOST_AT_A_TIME, Stop, World};
use test_support::property::cases;
use test_support::transcript::{left, said};

/// Longer than anything that ends.
const FOREVER: Duration = Duration::from_secs(1_000_000);

/// How a run has gone.
struct Run {
    events: Vec<Event>,
    /// `None` if it was dropped.
    result: Option<Result<AgentResponse>>,
    is_streamed: bool,
}

/// The outcome of a case.
enum Gone {
    Run(Run),
    Hung,
    Panicked,
}

async fn go(agent: &Agent, request: AgentRequest, case: &Case, stop: &Stop) -> Gone {
    let run = async {
        match case.reader {
            Reader::Plain { drops_after } => {
                let run = agent.run(request);
                let result = match drops_after {
                    None => Some(run.await),
                    Some(after) => tokio::time::timeout(Duration::from_secs(after), run)
                        .await
                        .ok(),
                };
                Run {
                    events: Vec::new(),
                    result,
                    is_streamed: false,
                }
            }
            Reader::Stream {
                pauses_at,
                drops_at,
            } => read(agent, request, pauses_at, drops_at).await,
        }
    };
    let mut run = pin!(run);
    let mut polls = 0;
    let run = poll_fn(|context| {
        if case.stops_at_poll == Some(polls) {
            stop.token.cancel();
        }
        polls += 1;
        run.as_mut().poll(context)
    });
    match tokio::time::timeout(FOREVER, AssertUnwindSafe(run).catch_unwind()).await {
        Ok(Ok(run)) => Gone::Run(run),
        Ok(Err(panic)) if panic.downcast_ref() == Some(&"boom") => Gone::Panicked,
        Ok(Err(panic)) => std::panic::resume_unwind(panic),
        Err(_) => Gone::Hung,
    }
}

async fn read(
    agent: &Agent,
    request: AgentRequest,
    pauses_at: Option<usize>,
    drops_at: Option<usize>,
) -> Run {
    let mut stream = agent.stream(request);
    let mut events = Vec::new();
    while let Some(event) = stream.next().await {
        events.push(event);
        if pauses_at == Some(events.len()) {
            tokio::time::sleep(Duration::from_secs(60)).await;
        }
        if drops_at == Some(events.len()) {
            return Run {
                events,
                result: None,
                is_streamed: true,
            };
        }
    }
    Run {
        events,
        result: Some(stream.response().await),
        is_streamed: true,
    }
}

/// Everything that the consumer has seen, or reads in the response.
fn seen(run: &Run) -> String {
    // Deltas are joined again.
    let (mut whole, mut other) = (BTreeMap::<_, String>::new(), String::new());
    for event in &run.events {
        match &event.kind {
            EventKind::TextDelta {
                message: id,
                text: more,
            }
            | EventKind::ReasoningDelta { id, text: more }
            | EventKind::ToolCallDelta { id, json: more } => {
                whole.entry(id.clone()).or_default().push_str(more);
            }
            // The text of an error is shown; its causes stay as they are.
            EventKind::RunFailed { error }
            | EventKind::AgentFinished {
                error: Some(error), ..
            } => {
                other += &format!("{error} ");
            }
            kind => other += &format!("{kind:?} "),
        }
    }
    match &run.result {
        Some(Ok(response)) => {
            for message in response.new_messages() {
                other += &format!("{} ", json!(message));
            }
        }
        Some(Err(error)) => other += &error.to_string(),
        None => {}
    }
    whole
        .into_values()
        .chain([other])
        .collect::<Vec<_>>()
        .join(" ")
}

fn check_run(case: &Case, run: &Run) -> Result<(), TestCaseError> {
    if run.is_streamed && run.result.is_some() {
        let is_end = |event: &&Event| {
            matches!(
                event.kind,
                EventKind::RunFinished { .. }
                    | EventKind::RunFailed { .. }
                    | EventKind::RunInterrupted { .. }
            )
        };
        prop_assert_eq!(run.events.iter().filter(is_end).count(), 1);
        prop_assert!(run.events.last().as_ref().is_some_and(is_end));
        let count = |is: fn(&EventKind) -> bool| run.events.iter().filter(|e| is(&e.kind)).count();
        prop_assert_eq!(
            count(|kind| matches!(kind, EventKind::AgentStarted)),
            count(|kind| matches!(kind, EventKind::AgentFinished { .. })),
            "agents that came have left"
        );
        // A summary is told as the work of another agent.
        let of_run = |event: &&Event| !event.invocation.agent().starts_with("summary_");
        let left = left(run.events.iter().filter(of_run));
        if let Some(Ok(response)) = &run.result {
            prop_assert_eq!(left, said(response.new_messages()));
        }
    }
    if let Some(Ok(response)) = &run.result {
        check_transcript(response)?;
    }

    let seen = seen(run);
    let (model, tool) = (case.model(), case.tool());
    let redact = |around: &Around| matches!(around, Around::Redact { .. });
    if model.iter().any(redact) {
        prop_assert!(!seen.contains(OF_MODEL), "the model's secret: {}", seen);
    }
    if tool.iter().any(redact) {
        prop_assert!(!seen.contains(OF_TOOL), "a tool's secret: {}", seen);
    }
    let fallback = |around: &Around| matches!(around, Around::Fallback { .. });
    let outermost = model.iter().position(fallback).unwrap_or(model.len());
    if model[..outermost].iter().any(redact) {
        prop_assert!(
            !seen.contains(OF_OTHER),
            "the other model's secret: {}",
            seen
        );
    }
    if model.iter().any(shuts) {
        for words in ["main words", "main thought", "main: the end", "main-"] {
            prop_assert!(!seen.contains(words), "no check has passed this: {}", seen);
        }
    }
    if model[..outermost].iter().any(shuts) {
        prop_assert!(
            !seen.contains("other words"),
            "no check has passed this: {}",
            seen
        );
    }
    Ok(())
}

/// Returns whether it lets nothing pass.
fn shuts(around: &Around) -> bool {
    match around {
        Around::GuardrailBefore(check)
        | Around::GuardrailBeside(check)
        | Around::GuardrailAfter(check) => !check.passes(),
        _ => false,
    }
}

/// Checks the rules of providers for a transcript: answers follow the calls, and none is missing.
fn check_transcript(response: &AgentResponse) -> Result<(), TestCaseError> {
    if matches!(response.end_reason(), EndReason::Interrupted { .. }) {
        return Ok(());
    }
    let all: Vec<_> = response.messages().iter().collect();
    for (index, message) in all.iter().enumerate() {
        if message.role() == Role::Assistant {
            let after = all[index + 1..]
                .iter()
                .take_while(|message| message.role() == Role::Tool);
            let answered = after.flat_map(|message| message.tool_results());
            let mut answered: Vec<_> = answered.map(|result| &*result.call_id).collect();
            let mut asked: Vec<_> = message.tool_calls().map(|call| &*call.id).collect();
            answered.sort_unstable();
            asked.sort_unstable();
            prop_assert_eq!(asked, answered, "after message {}", index);
        }
    }
    Ok(())
}

async fn check(case: &Case) -> Result<(), TestCaseError> {
    let started = Instant::now();
    let (agent, world) = World::build(case);
    let request = AgentRequest::new("?").with_cancellation(world.stop.token.clone());
    let mut gone = go(&agent, request, case, &world.stop).await;
    prop_assert_eq!(world.stop.late(), 0, "calls after the run was cancelled");
    let ran = |name: &str| {
        world
            .ran
            .lock()
            .unwrap()
            .iter()
            .any(|ran| ran.starts_with(name))
    };
    let needs_approval = case.tool().contains(&Around::Approval);
    if needs_approval {
        prop_assert!(!ran("pay"), "nobody has approved");
    }
    let paused = match &gone {
        Gone::Run(run) => {
            check_run(case, run)?;
            let response = run.result.as_ref().and_then(|result| result.as_ref().ok());
            response
                .filter(|response| !response.interrupts().is_empty())
                .map(AgentResponse::checkpoint)
        }
        _ => None,
    };
    if let (Some(paused), Gone::Run(run)) = (paused, &gone) {
        let Some(Ok(response)) = &run.result else {
            unreachable!("it has a checkpoint")
        };
        let answers = response.interrupts().iter().map(|pending| {
            let answer = match case.decides {
                Decides::Approves => Decision::Approve,
                Decides::Edits => Decision::Edit(json!({ "what": "Echo", "text": "edited" })),
                Decides::Rejects => Decision::reject("no"),
            };
            Resolution::resolved(&pending.id, answer)
        });
        let request = AgentRequest::resume(paused).with_resolutions(answers.collect::<Vec<_>>());
        gone = go(&agent, request, case, &world.stop).await;
        if let Gone::Run(run) = &gone {
            check_run(case, run)?;
        }
        match case.decides {
            Decides::Approves => {}
            Decides::Edits => {
                let ran = world.ran.lock().unwrap();
                let mut paid = ran.iter().filter(|ran| ran.starts_with("pay"));
                prop_assert!(paid.all(|ran| ran.ends_with("edited")), "{:?}", ran);
            }
            Decides::Rejects => prop_assert!(!ran("pay"), "it was rejected"),
        }
    }
    match gone {
        Gone::Hung => prop_assert!(case.may_hang(), "it hangs"),
        Gone::Panicked => prop_assert!(case.model_panics(), "a panic gets out"),
        Gone::Run(_) => {}
    }
    drop(agent);
    // The workers of buffers let go of what was dropped.
    for _ in 0..32 {
        tokio::task::yield_now().await;
    }
    check_world(case, &world, started)
}

fn check_world(case: &Case, world: &World, started: Instant) -> Result<(), TestCaseError> {
    prop_assert_eq!(world.probe.violations(), 0, "the model was called unready");
    prop_assert_eq!(world.probe.in_flight(), 0, "a call of the model goes on");
    for watch in &world.watches {
        prop_assert!(watch.is_balanced(), "{:?}", watch);
    }
    for inside in &world.limits {
        prop_assert_eq!(inside.violations(), 0, "a limit called what was not ready");
        prop_assert_eq!(inside.in_flight(), 0, "a call goes on inside a limit");
        // The first of a minute comes at once, and one more each second.
        // A call that waits for an approval is given back.
        let asks = case.tool().contains(&Around::Approval);
        let most = 3 + started.elapsed().as_secs() as usize;
        prop_assert!(
            inside.calls() <= most || asks,
            "{} calls of {}",
            inside.calls(),
            most
        );
    }
    for inside in &world.concurrency {
        prop_assert_eq!(inside.violations(), 0, "a limit called what was not ready");
        prop_assert_eq!(inside.in_flight(), 0, "a call goes on inside a limit");
        prop_assert!(inside.max_in_flight() <= MOST_AT_A_TIME);
    }
    for charged in &world.budgets {
        let (used, reserved) = (charged.account.used(), charged.account.reserved());
        let held = (reserved.model_calls, reserved.tool_calls, reserved.tokens);
        prop_assert_eq!(held, (0, 0, 0), "something stays reserved");
        prop_assert_eq!(charged.inside.violations(), 0);
        prop_assert_eq!(charged.inside.in_flight(), 0);
        // What passed it and has reached no model and no tool costs no call: it was refused,
        // answered or dropped inside.
        let passed = charged.inside.calls() as u64;
        let charges = used.model_calls + used.tool_calls;
        let has_reached = world.probe.calls() > 0 || !world.ran.lock().unwrap().is_empty();
        prop_assert!(charges == 0 || passed > 0 || has_reached, "{:?}", used);
        // Each run of the loop may conclude, and each attempt at that counts.
        let beyond = if charged.finish {
            world.loops.begun() as u64 * charged.attempts
        } else {
            0
        };
        prop_assert!(used.model_calls <= charged.calls + beyond, "{:?}", used);
        prop_assert!(used.tool_calls <= charged.calls, "{:?}", used);
        // What a call that was cut is charged is an estimate, of a prompt that reserves nothing.
        let all_end_well = case
            .turns
            .iter()
            .all(|turn| matches!(turn.ends, Ends::Well));
        let cuts = |around: &Around| matches!(around, Around::Hedge | Around::Chaos { .. });
        let is_cut = case.model().iter().any(cuts) || charged.inside.cancelled() > 0;
        let is_whole = all_end_well && !is_cut;
        let is_exact = !charged.finish && is_whole;
        if let (Some(tokens), true) = (charged.tokens, is_exact) {
            prop_assert!(used.tokens <= tokens, "{:?}", used);
        }
    }
    for (account, whole, part) in &world.parts {
        let (used, reserved) = (account.used(), account.reserved());
        let held = (reserved.model_calls, reserved.tool_calls, reserved.tokens);
        prop_assert_eq!(held, (0, 0, 0), "something stays set aside");
        prop_assert!(used.model_calls <= *whole, "{:?}", used);
        prop_assert!(used.tool_calls <= *whole, "{:?}", used);
        let most = part * world.loops.begun().max(1) as u64;
        prop_assert!(used.model_calls <= most, "{:?} of {}", used, most);
    }
    if case.model().iter().any(shuts) {
        let ran = world.ran.lock().unwrap();
        prop_assert!(ran.is_empty(), "no check has passed these calls: {:?}", ran);
    }
    Ok(())
}

fn checked(case: &Case) -> Result<(), TestCaseError> {
    quiet();
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_time()
        .start_paused(true)
        .build()
        .unwrap();
    runtime.block_on(check(case))
}

/// Panics on purpose need no report.
fn quiet() {
    static ONCE: std::sync::Once = std::sync::Once::new();
    ONCE.call_once(|| {
        let report = std::panic::take_hook();
        std::panic::set_hook(Box::new(move |info| {
            if info.payload().downcast_ref() != Some(&"boom") {
                report(info);
            }
        }));
    });
}

proptest! {
    #![proptest_config(ProptestConfig { max_shrink_iters: 4000, ..cases(7000) })]

    #[test]
    fn every_stack_around_the_model_keeps_the_contract(case in case(case::on_model())) {
        checked(&case)?;
    }

    #[test]
    fn every_stack_around_the_tools_keeps_the_contract(case in case(case::on_tool())) {
        checked(&case)?;
    }

    #[test]
    fn every_stack_around_all_calls_keeps_the_contract(case in case(case::on_any())) {
        checked(&case)?;
    }
}

proptest! {
    #![proptest_config(ProptestConfig { max_shrink_iters: 4000, ..cases(20_000) })]

    /// Cancelled from outside before any poll: nothing starts, and one ending is told.
    #[test]
    fn every_stack_is_stopped_at_any_poll(case in case::stopped(case::on_any())) {
        checked(&case)?;
    }
}
