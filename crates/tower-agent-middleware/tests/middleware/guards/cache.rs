//! `cache`

use std::future::{Future, pending};
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use futures::future::{join, join_all};
use futures::{FutureExt, StreamExt};
use serde_json::{Value, json};
use tokio::time::{Instant, advance, sleep, timeout};
use tower::{ServiceBuilder, ServiceExt, service_fn};
use tower_agent::call::Origin;
use tower_agent::message::Metadata;
use tower_agent::model::{FinishReason, ModelService};
use tower_agent::stream::{Delta, Event, EventKind, channel};
use tower_agent::{
    Agent, AgentRequest, CancellationToken, Effect, Error, ErrorKind, Message, ModelRequest,
    ModelResponse, Part, Result, RunContext, Tool, Usage,
};
use tower_agent_middleware::budget::{Account, Budget, Limits};
use tower_agent_middleware::cache::CacheLayer;
use tower_agent_middleware::retry::CallRetryLayer;
use tower_agent_test::{ProbeLayer, ScriptedModel, Turn};
use tower_layer::Layer;

use super::watch::{busy, left, read};
use super::{assert_answered, results};
use test_support::{call, deltas, stream};

const ANSWER: &str = "a long answer";
const SECOND: Duration = Duration::from_secs(1);

struct Tenant(&'static str);

fn cache<R: tower_agent_middleware::cache::Cacheable>() -> CacheLayer<R> {
    CacheLayer::new(|_| Ok("anybody".to_owned()))
}

fn question(text: &str) -> ModelRequest {
    ModelRequest::new([Message::user(text)])
}

fn answer() -> Turn {
    Turn::from_text(ANSWER).usage(Usage::new(10, 5))
}

/// A model with one delta a second, which counts its calls.
fn slow(calls: &Arc<AtomicUsize>) -> impl ModelService {
    let calls = calls.clone();
    service_fn(move |request: ModelRequest| {
        calls.fetch_add(1, Ordering::Relaxed);
        async move {
            let Some(sink) = request.delta_sender() else {
                sleep(SECOND * 13).await;
                return Ok(ModelResponse::from_text(ANSWER).with_usage(Usage::new(10, 5)));
            };
            let mut attempt = sink.open();
            for letter in ANSWER.chars() {
                attempt.send(Delta::Text(letter.into())).await?;
                sleep(SECOND).await;
            }
            let response = ModelResponse::from(attempt.finish().await?);
            Ok::<_, Error>(response.with_usage(Usage::new(10, 5)))
        }
    })
}

/// A streamed call that has begun, and its events.
struct Caller {
    call: Pin<Box<dyn Future<Output = Result<ModelResponse>>>>,
    events: Pin<Box<dyn futures::Stream<Item = Event>>>,
}

fn caller<M: ModelService>(model: &M) -> Caller {
    let (sink, events) = channel(4);
    let request = question("?").with_delta_sender(sink);
    Caller {
        call: Box::pin(call(model.clone(), request)),
        events: Box::pin(events),
    }
}

impl Caller {
    async fn end(self) -> (Result<ModelResponse>, Vec<Event>) {
        join(self.call, self.events.collect()).await
    }
}

#[tokio::test]
async fn equal_calls_are_answered_once_and_others_are_made() {
    let inner = ScriptedModel::new(["one", "two", "three"].map(Turn::from_text));
    let model = cache().layer(inner.clone());
    for (text, expected) in [("?", "one"), ("?", "one"), ("!", "two"), ("?", "one")] {
        let response = call(model.clone(), question(text)).await.unwrap();
        assert_eq!(response.text(), expected);
    }
    let mut request = question("?");
    request.settings_mut().temperature = Some(0.5);
    let response = call(model.clone(), request).await.unwrap();
    assert_eq!(response.text(), "three");
    // The id of a message is another in each conversation.
    let message = Message::user("?").with_id("m-17");
    let response = call(model, ModelRequest::new([message])).await.unwrap();
    assert_eq!(response.text(), "one");
    inner.assert_done();
}

#[tokio::test]
async fn what_stands_in_another_place_is_another_request() {
    let inner = ScriptedModel::new((0..5).map(|number| Turn::from_text(number.to_string())));
    let model = cache().layer(inner.clone());
    let mut instructed = ModelRequest::new([]);
    instructed.add_instructions("ab");
    let requests = [
        question("ab"),
        instructed,
        ModelRequest::new([Message::user("a"), Message::user("b")]),
        ModelRequest::new([Message::assistant("ab")]),
        ModelRequest::new([]),
    ];
    for (number, request) in requests.into_iter().enumerate() {
        let response = call(model.clone(), request).await.unwrap();
        assert_eq!(response.text(), number.to_string());
    }
    inner.assert_done();
}

#[tokio::test]
async fn a_hit_is_streamed_as_one_attempt_like_the_call_before() {
    let thought = Message::assistant("It rains.").with_part(Part::reasoning("Hm."));
    let response = ModelResponse::new(thought).with_tool_call(tower_agent::message::ToolCall::new(
        "call_1",
        "look",
        json!({ "at": 1 }),
    ));
    let inner = ScriptedModel::new([Turn::response(response)]);
    let model = cache().layer(inner.clone());
    let (first, first_events) = stream(model.clone(), question("?")).await;
    let (second, second_events) = stream(model.clone(), question("?")).await;
    let second = second.unwrap();
    assert_eq!(second.message(), first.unwrap().message());
    assert_eq!(second.attempt(), Some(0));
    let joined = |events: Vec<Event>| -> String {
        let texts = deltas(events).into_iter().map(|delta| match delta {
            Delta::Text(text) | Delta::Reasoning(text) => text,
            Delta::Arguments { json, .. } => json,
            other => format!("{other:?}"),
        });
        texts.collect()
    };
    assert_eq!(joined(first_events), joined(second_events));
    // A call that is not streamed has it as well.
    let third = call(model, question("?")).await.unwrap();
    assert_eq!(third.message(), second.message());
    inner.assert_done();
}

#[tokio::test]
async fn a_run_whose_every_call_is_a_hit_is_as_the_run_before() {
    let turns = [Turn::tool("look", json!("x")), Turn::from_text("Nothing.")];
    let inner = ScriptedModel::new(turns);
    let look = Tool::function("look", "Looks.", |_: String| "nothing");
    let agent = Agent::builder(inner.clone())
        .tool(look)
        .model_layer(cache())
        .build()
        .unwrap();
    let (first_texts, first) = read(&agent).await;
    let (second_texts, second) = read(&agent).await;
    let (first, second) = (first.unwrap(), second.unwrap());
    assert_eq!(first_texts, second_texts);
    assert_eq!(first.messages(), second.messages());
    assert_eq!(results(&second), ["nothing"]);
    assert_answered(second.messages());
    assert_eq!(second.usage(), Usage::default());
    // Each conversation has ids of its own.
    let ids = |response: &tower_agent::AgentResponse| -> Vec<_> {
        response
            .messages()
            .iter()
            .map(|message| message.id().unwrap().clone())
            .collect()
    };
    assert!(ids(&first).iter().all(|id| !ids(&second).contains(id)));
    inner.assert_done();
}

#[tokio::test(start_paused = true)]
async fn a_hundred_callers_make_one_call_whoever_is_dropped_at_every_delta() {
    for dropped_after in 0..=13 {
        let calls = Arc::new(AtomicUsize::new(0));
        let model = cache().layer(slow(&calls));
        let leader = caller(&model);
        let mut begun = Box::pin(leader.end());
        assert!(begun.as_mut().now_or_never().is_none());
        let followers = join_all((0..99).map(|_| caller(&model).end()));
        let drop_leader = async {
            let time = SECOND * dropped_after + SECOND / 2;
            timeout(time, begun).await.is_err()
        };
        let (was_dropped, ends) = join(drop_leader, followers).await;
        assert_eq!(was_dropped, dropped_after < 13);
        assert_eq!(calls.load(Ordering::Relaxed), 1);
        for (result, events) in ends {
            assert_eq!(result.unwrap().text(), ANSWER);
            assert_eq!(left(&events), [ANSWER]);
            let taken_back =
                |event: &Event| matches!(event.kind, EventKind::AttemptDiscarded { .. });
            assert!(!events.iter().any(taken_back));
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_late_joiner_gets_the_deltas_so_far_and_then_live() {
    let calls = Arc::new(AtomicUsize::new(0));
    let model = cache().layer(slow(&calls));
    let early = caller(&model).end();
    let late = async {
        sleep(SECOND * 5 + SECOND / 2).await;
        let Caller { call, mut events } = caller(&model);
        let start = Instant::now();
        let read = async {
            let mut seen = Vec::new();
            while let Some(event) = events.next().await {
                if let EventKind::TextDelta { text, .. } = event.kind {
                    seen.push((text, start.elapsed().as_secs_f64().ceil()));
                }
            }
            seen
        };
        join(call, read).await
    };
    let ((first, _), (second, seen)) = join(early, late).await;
    first.unwrap();
    assert_eq!(second.unwrap().text(), ANSWER);
    let times: Vec<_> = seen.iter().map(|(_, time)| *time as u32).collect();
    assert_eq!(times, [0, 0, 0, 0, 0, 0, 1, 2, 3, 4, 5, 6, 7]);
    assert_eq!(calls.load(Ordering::Relaxed), 1);
}

#[tokio::test(start_paused = true)]
async fn a_slow_consumer_holds_nobody_up() {
    let calls = Arc::new(AtomicUsize::new(0));
    let model = cache().layer(slow(&calls));
    // It reads nothing at all.
    let mut stuck = caller(&model);
    assert!(stuck.call.as_mut().now_or_never().is_none());
    let start = Instant::now();
    let both = join(timeout(SECOND * 100, stuck.call.as_mut()), async {
        (caller(&model).end().await, start.elapsed())
    });
    let (stuck, ((result, events), time)) = both.await;
    assert!(stuck.is_err(), "it waits for its own consumer");
    result.unwrap();
    assert_eq!(left(&events), [ANSWER]);
    assert!(time < SECOND * 14, "{time:?}");
}

#[tokio::test(start_paused = true)]
async fn plain_and_streamed_callers_share_a_call() {
    for leader_streams in [false, true] {
        let calls = Arc::new(AtomicUsize::new(0));
        let model = cache().layer(slow(&calls));
        let plain = call(model.clone(), question("?"));
        let streamed = stream(model.clone(), question("?"));
        let (plain, (streamed, events)) = if leader_streams {
            let (streamed, plain) = join(streamed, plain).await;
            (plain, streamed)
        } else {
            join(plain, streamed).await
        };
        assert_eq!(plain.unwrap().text(), ANSWER);
        assert_eq!(streamed.unwrap().text(), ANSWER);
        assert_eq!(left(&events), [ANSWER]);
        assert_eq!(calls.load(Ordering::Relaxed), 1);
    }
}

#[tokio::test(start_paused = true)]
async fn a_call_that_nobody_follows_any_more_is_dropped_and_made_anew() {
    let probe = ProbeLayer::new();
    let calls = Arc::new(AtomicUsize::new(0));
    let model = cache().layer(probe.layer(slow(&calls)));
    let callers = join_all((0..3).map(|_| call(model.clone(), question("?"))));
    assert!(timeout(SECOND * 5, callers).await.is_err());
    assert_eq!((probe.in_flight(), probe.cancelled()), (0, 1));
    let response = call(model, question("?")).await.unwrap();
    assert_eq!(response.text(), ANSWER);
    assert_eq!(calls.load(Ordering::Relaxed), 2);
}

fn of_tenant<R: tower_agent_middleware::cache::Cacheable>() -> CacheLayer<R> {
    CacheLayer::new(|run: &RunContext| Ok(run.extension::<Tenant>()?.0.to_owned()))
}

// Elsewhere a cache served the answer of another account.
#[tokio::test(start_paused = true)]
async fn no_tenant_gets_the_answer_of_another_not_even_while_it_comes() {
    let inner = ScriptedModel::new(
        ["for ada", "for grace"].map(|text| Turn::from_text(text).latency(SECOND)),
    );
    let agent = Agent::builder(inner.clone())
        .model_layer(of_tenant())
        .build()
        .unwrap();
    let ask = |name| agent.run(AgentRequest::new("?").with_extension(Tenant(name)));
    let (ada, grace) = join(ask("ada"), ask("grace")).await;
    assert_eq!(ada.unwrap().text(), "for ada");
    assert_eq!(grace.unwrap().text(), "for grace");
    assert_eq!(ask("ada").await.unwrap().text(), "for ada");
    assert_eq!(ask("grace").await.unwrap().text(), "for grace");
    inner.assert_done();
}

#[tokio::test]
async fn a_call_without_a_tenant_fails_and_is_not_made() {
    let inner = ScriptedModel::new([]);
    let agent = Agent::builder(inner.clone())
        .model_layer(of_tenant())
        .build()
        .unwrap();
    for request in [
        AgentRequest::new("?"),
        AgentRequest::new("?").with_extension(Tenant("")),
    ] {
        let error = agent.run(request).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::InvalidRequest, "{error}");
    }
    inner.assert_done();
}

#[tokio::test]
async fn errors_and_answers_that_were_cut_off_are_not_stored() {
    let cut = ModelResponse::from_text("a long").with_finish_reason(FinishReason::Length);
    let inner = ScriptedModel::new([Turn::error(busy()), Turn::response(cut), answer()]);
    let model = cache().layer(inner.clone());
    call(model.clone(), question("?")).await.unwrap_err();
    call(model.clone(), question("?")).await.unwrap();
    let response = call(model, question("?")).await.unwrap();
    assert_eq!(response.text(), ANSWER);
    inner.assert_done();
}

#[tokio::test(start_paused = true)]
async fn an_error_is_that_of_everybody_who_follows() {
    let inner = ScriptedModel::new([answer().latency(SECOND).failing_after(2, busy())]);
    let model = cache().layer(inner.clone());
    let callers = (0..5).map(|_| stream(model.clone(), question("?")));
    for (result, _) in join_all(callers).await {
        assert_eq!(result.unwrap_err().kind(), ErrorKind::Overloaded);
    }
    inner.assert_done();
}

#[tokio::test(start_paused = true)]
async fn a_panic_is_an_error_of_everybody_who_follows() {
    let model = cache().layer(service_fn(|_: ModelRequest| async {
        sleep(SECOND).await;
        panic!("boom");
        #[expect(unreachable_code)]
        Ok::<_, Error>(ModelResponse::from_text(""))
    }));
    let callers = (0..3).map(|_| call(model.clone(), question("?")));
    for result in join_all(callers).await {
        assert!(result.unwrap_err().message().contains("boom"));
    }
}

#[tokio::test(start_paused = true)]
async fn a_run_that_ends_does_not_end_those_who_follow_its_call() {
    let ends = [
        Error::abort("stop"),
        Error::new(ErrorKind::Cancelled, "gone"),
    ];
    for end in ends {
        let inner = ScriptedModel::new([Turn::error(end).latency(SECOND), answer()]);
        let model = cache().layer(inner.clone());
        let callers = (0..5).map(|_| call(model.clone(), question("?")));
        let mut results = join_all(callers).await.into_iter();
        results.next().unwrap().unwrap_err();
        for result in results {
            assert_eq!(result.unwrap().text(), ANSWER);
        }
        inner.assert_done();
    }
}

#[tokio::test(start_paused = true)]
async fn a_run_that_is_cancelled_leaves_its_call_to_the_others() {
    let calls = Arc::new(AtomicUsize::new(0));
    let agent = Agent::builder(slow(&calls))
        .model_layer(cache())
        .build()
        .unwrap();
    let token = CancellationToken::new();
    let request = AgentRequest::new("?").with_cancellation(token.clone());
    let cancel = async {
        sleep(SECOND * 3).await;
        token.cancel();
    };
    let runs = join(agent.run(request), agent.run("?"));
    let ((cancelled, other), ()) = join(runs, cancel).await;
    assert_eq!(cancelled.unwrap_err().kind(), ErrorKind::Cancelled);
    assert_eq!(other.unwrap().text(), ANSWER);
    assert_eq!(calls.load(Ordering::Relaxed), 1);
}

#[tokio::test(start_paused = true)]
async fn an_attempt_that_a_retry_inside_takes_back_is_taken_back_everywhere() {
    let broken = Turn::from_text("a wrong answer").failing_after(3, busy());
    let inner = ScriptedModel::new([broken, answer().latency(SECOND)]);
    let retry = CallRetryLayer::new()
        .backoff(SECOND, SECOND)
        .restart_streams(true);
    let model = cache().layer(retry.layer(inner.clone()));
    let agent = Agent::builder(model).build().unwrap();
    let late = async {
        sleep(SECOND / 100).await;
        read(&agent).await
    };
    let ends = join(read(&agent), late).await;
    for (texts, response) in [ends.0, ends.1] {
        assert_eq!(texts, [ANSWER]);
        assert_eq!(response.unwrap().text(), ANSWER);
    }
    inner.assert_done();
}

#[tokio::test(start_paused = true)]
async fn a_consumer_that_hangs_up_ends_its_own_call_and_begins_none() {
    for hangs_up_first in [false, true] {
        let calls = Arc::new(AtomicUsize::new(0));
        let model = cache().layer(slow(&calls));
        let callers = [caller(&model), caller(&model)];
        let [leader, follower] = callers;
        let (stays, leaves) = if hangs_up_first {
            (follower, leader)
        } else {
            (leader, follower)
        };
        let Caller { call, mut events } = leaves;
        let hang_up = async {
            events.next().await;
            drop(events);
        };
        let left = join(call, hang_up);
        let ends = if hangs_up_first {
            let (left, stayed) = join(left, stays.end()).await;
            (stayed, left)
        } else {
            join(stays.end(), left).await
        };
        let ((result, events), (error, ())) = ends;
        assert_eq!(error.unwrap_err().kind(), ErrorKind::Cancelled);
        assert_eq!(result.unwrap().text(), ANSWER);
        assert_eq!(super::watch::left(&events), [ANSWER]);
        assert_eq!(calls.load(Ordering::Relaxed), 1);
    }
}

#[tokio::test]
async fn what_is_done_to_a_hit_does_not_change_the_next() {
    let model = cache().layer(ScriptedModel::new([answer()]));
    for _ in 0..3 {
        let mut response = call(model.clone(), question("?")).await.unwrap();
        assert_eq!(response.text(), ANSWER);
        response.message_mut().parts_mut().clear();
    }
}

#[tokio::test(start_paused = true)]
async fn a_response_is_replayed_for_its_time() {
    let inner = ScriptedModel::new([Turn::from_text("old"), Turn::from_text("new")]);
    let model = cache().time_to_live(SECOND * 10).layer(inner.clone());
    for (pause, expected) in [(0, "old"), (9, "old"), (2, "new"), (9, "new")] {
        advance(SECOND * pause).await;
        let response = call(model.clone(), question("?")).await.unwrap();
        assert_eq!(response.text(), expected);
    }
    inner.assert_done();
}

#[tokio::test(start_paused = true)]
async fn without_a_store_equal_calls_are_still_made_once_at_a_time() {
    let calls = Arc::new(AtomicUsize::new(0));
    let model = cache().entries(0).layer(slow(&calls));
    for expected in [1, 2] {
        let callers = (0..10).map(|_| call(model.clone(), question("?")));
        for result in join_all(callers).await {
            result.unwrap();
        }
        assert_eq!(calls.load(Ordering::Relaxed), expected);
    }
}

#[tokio::test(start_paused = true)]
async fn one_of_those_who_follow_a_call_pays_for_it_and_nobody_for_a_hit() {
    let calls = Arc::new(AtomicUsize::new(0));
    let accounts: Vec<_> = (0..4)
        .map(|_| Account::new(Limits::new().tokens(1_000_000)))
        .collect();
    let cached = cache().layer(slow(&calls));
    let agents = accounts.iter().map(|account| {
        Agent::builder(cached.clone())
            .global_callbacks(Budget::of(account.clone()))
            .build()
            .unwrap()
    });
    let agents: Vec<_> = agents.collect();
    let runs = agents[..3].iter().map(|agent| agent.run("?"));
    for result in join_all(runs).await {
        result.unwrap();
    }
    let response = agents[3].run("?").await.unwrap();
    assert_eq!(response.text(), ANSWER);
    let used = accounts.iter().map(|account| account.used().tokens);
    assert_eq!(used.collect::<Vec<_>>(), [15, 0, 0, 0]);
}

#[tokio::test(start_paused = true)]
async fn the_run_that_pays_has_the_usage() {
    let calls = Arc::new(AtomicUsize::new(0));
    let agent = Agent::builder(slow(&calls)).model_layer(cache());
    let agent = agent.build().unwrap();
    let first = timeout(SECOND * 3, agent.run("?"));
    let others = join_all((0..2).map(|_| agent.run("?")));
    let (first, others) = join(first, others).await;
    assert!(first.is_err());
    let responses = others.into_iter().map(Result::unwrap);
    let mut usages: Vec<_> = responses.map(|response| response.usage().total()).collect();
    usages.sort();
    assert_eq!(usages, [0, 15]);
}

#[tokio::test(start_paused = true)]
async fn a_replay_uses_up_no_call_of_a_budget_wherever_that_stands() {
    let turns = || [Turn::tool("count", json!({ "value": 1 })), answer()];
    for budget_is_outside in [false, true] {
        let account = Account::new(Limits::new().model_calls(3).tool_calls(2));
        let calls = Arc::new(AtomicUsize::new(0));
        let mut builder =
            Agent::builder(ScriptedModel::new(turns())).tool(tool(&calls, Effect::Pure));
        if budget_is_outside {
            builder = builder.global_callbacks(Budget::of(account.clone()));
        }
        builder = builder.model_layer(cache()).tool_layer(cache());
        if !budget_is_outside {
            builder = builder.callbacks(Budget::of(account.clone()));
        }
        let agent = builder.build().unwrap();
        for _ in 0..4 {
            agent.run("?").await.unwrap();
        }
        let used = account.used();
        assert_eq!((used.model_calls, used.tool_calls), (2, 1));
        assert_eq!(account.reserved().model_calls, 0);
    }
}

#[tokio::test(start_paused = true)]
async fn if_the_first_is_dropped_another_pays() {
    let calls = Arc::new(AtomicUsize::new(0));
    let model = cache().layer(slow(&calls));
    let first = timeout(SECOND * 3, call(model.clone(), question("?")));
    let others = join_all((0..3).map(|_| call(model.clone(), question("?"))));
    let (first, others) = join(first, others).await;
    assert!(first.is_err());
    let responses = others.into_iter().map(Result::unwrap);
    let mut usages: Vec<_> = responses
        .map(|response| (response.usage().total(), response.origin()))
        .collect();
    usages.sort_by_key(|(usage, _)| *usage);
    let expected = [
        (0, Origin::Replay),
        (0, Origin::Replay),
        (15, Origin::Service),
    ];
    assert_eq!(usages, expected);
}

fn tool(calls: &Arc<AtomicUsize>, effect: Effect) -> Tool {
    let calls = calls.clone();
    let count = move |_: Value| {
        let call = calls.fetch_add(1, Ordering::Relaxed) + 1;
        async move {
            sleep(SECOND).await;
            call
        }
    };
    Tool::function("count", "Counts.", count).effect(effect)
}

#[tokio::test(start_paused = true)]
async fn a_pure_tool_is_called_once_and_any_other_always() {
    for (effect, expected) in [
        (Effect::Pure, ["1", "1", "2", "1"]),
        (Effect::Idempotent, ["1", "2", "3", "4"]),
        (Effect::Mutating, ["1", "2", "3", "4"]),
    ] {
        let calls = Arc::new(AtomicUsize::new(0));
        // Two at the same time, another one, and one later.
        let turns = [
            Turn::tool("count", json!({ "value": 1 }))
                .and_tool("count", json!({ "value": 1 }))
                .and_tool("count", json!({ "value": 2 })),
            Turn::tool("count", json!({ "value": 1 })),
            Turn::from_text("Counted."),
        ];
        let agent = Agent::builder(ScriptedModel::new(turns))
            .tool(tool(&calls, effect))
            .tool_layer(cache())
            .build()
            .unwrap();
        let response = agent.run("Count.").await.unwrap();
        assert_eq!(results(&response), expected, "{effect:?}");
    }
}

#[tokio::test]
async fn a_tool_that_fails_is_called_again() {
    let calls = Arc::new(AtomicUsize::new(0));
    let counted = calls.clone();
    let look = Tool::function("look", "Looks.", move |_: String| {
        match counted.fetch_add(1, Ordering::Relaxed) {
            0 => Err(busy()),
            _ => Ok("found"),
        }
    });
    let look_up = || Turn::tool("look", json!("x"));
    let model = ScriptedModel::new([look_up(), look_up(), look_up(), Turn::from_text("Found.")]);
    let agent = Agent::builder(model)
        .tool(look.effect(Effect::Pure))
        .tool_layer(cache())
        .build()
        .unwrap();
    let response = agent.run("Look.").await.unwrap();
    assert_eq!(results(&response)[1..], ["found", "found"]);
    assert_eq!(calls.load(Ordering::Relaxed), 2);
}

#[tokio::test]
async fn it_is_as_ready_as_the_service_inside_and_calls_the_one_that_was_polled() {
    let probe = ProbeLayer::new().pending_polls(2);
    let model = cache().layer(probe.layer(ScriptedModel::always(answer())));
    for number in 0..3 {
        call(model.clone(), question(&number.to_string()))
            .await
            .unwrap();
    }
    assert_eq!(probe.violations(), 0);

    let hanging = service_fn(|_: ModelRequest| pending::<Result<ModelResponse, Error>>());
    let inner = ServiceBuilder::new().concurrency_limit(1).service(hanging);
    let mut model = cache().layer(inner);
    let running = tower::Service::call(model.ready().await.unwrap(), question("?"));
    assert!(
        ServiceExt::<ModelRequest>::ready(&mut model)
            .now_or_never()
            .is_none()
    );
    drop(running);
    assert!(
        ServiceExt::<ModelRequest>::ready(&mut model)
            .now_or_never()
            .is_some()
    );
}

#[tokio::test]
async fn a_replay_has_no_cost_and_no_limits_of_then() {
    let mut expected = Metadata::default();
    expected.status = Some(200);
    expected.request_id = Some("req-1".into());
    expected.model = Some("large-2".into());
    let mut metadata = expected.clone();
    metadata.cost = Some(0.25);
    metadata.rate_limits = [("x-ratelimit-remaining-requests".into(), "0".into())].into();
    let response = ModelResponse::from_text(ANSWER).with_metadata(metadata.clone());
    let model = cache().layer(ScriptedModel::new([Turn::response(response)]));
    let first = call(model.clone(), question("?")).await.unwrap();
    assert_eq!(first.metadata(), &metadata);
    let replayed = call(model, question("?")).await.unwrap();
    assert_eq!(replayed.metadata(), &expected);
}

#[tokio::test]
async fn a_layer_outside_sees_whose_call_it_was() {
    let model = cache().layer(ScriptedModel::new([answer()]));
    for origin in [Origin::Service, Origin::Replay] {
        let response = call(model.clone(), question("?")).await.unwrap();
        assert_eq!(response.origin(), origin);
    }
}
