//! The guide's table of orders that never do what is intended: what each does, that it is warned
//! of, and that the order which is right is not. Those of journals and of tower's layers are tested
//! in their places.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use futures::future::join_all;
use serde_json::{Value, json};
use test_support::log::Log;
use tower::{ServiceBuilder, service_fn};
use tower_agent::callback::{after_model, after_tool, before_model};
use tower_agent::model::ModelService;
use tower_agent::{
    Action, Agent, AgentResponse, Effect, ErrorKind, Message, ModelRequest, ModelResponse, Tool,
    ToolResponse,
};
use tower_agent_middleware::adaptive_concurrency::AdaptiveConcurrencyLayer;
use tower_agent_middleware::approval::Approval;
use tower_agent_middleware::budget::{Account, Budget, Limits};
use tower_agent_middleware::cache::CacheLayer;
use tower_agent_middleware::circuit_breaker::CircuitBreakerLayer;
use tower_agent_middleware::fallback::Fallback;
use tower_agent_middleware::flow::{Flow, ToolFlow};
use tower_agent_middleware::guardrail::{Guardrail, Verdict};
use tower_agent_middleware::rate_limit::RateLimitLayer;
use tower_agent_middleware::redact::{Detector, Redact};
use tower_agent_middleware::retry::CallRetryLayer;
use tower_agent_middleware::timeout::CallTimeoutLayer;
use tower_agent_test::{RecordLayer, ScriptedModel, Turn};
use tower_layer::Layer;

use super::watch::busy;

const SECOND: Duration = Duration::from_secs(1);
const MAIL: &str = "ann@example.org";

/// Asserts that an order is warned of, by the names of both parts, and nothing else is.
#[track_caller]
fn assert_warns(agent: &Agent, outside: &str, inside: &str) {
    let warnings = agent.explain().warnings();
    let [warning] = &warnings[..] else {
        panic!("{warnings:#?}\n{}", agent.explain());
    };
    assert_eq!((&*warning.outside, &*warning.inside), (outside, inside));
}

/// Asserts that an order is warned of if it is the wrong one.
#[track_caller]
fn assert_warns_if(is_wrong: bool, agent: &Agent, outside: &str, inside: &str) {
    if is_wrong {
        assert_warns(agent, outside, inside);
    } else {
        assert_right(agent);
    }
}

#[track_caller]
fn assert_right(agent: &Agent) {
    assert_eq!(agent.explain().warnings(), [], "{}", agent.explain());
}

fn retry() -> CallRetryLayer {
    CallRetryLayer::new()
        .max_attempts(2)
        .retry_if(|_| true)
        .backoff(Duration::ZERO, Duration::ZERO)
}

fn says(text: &str) -> ScriptedModel {
    ScriptedModel::always(Turn::from_text(text))
}

/// A model that calls a tool once.
fn calls(tool: &str) -> ScriptedModel {
    ScriptedModel::new([Turn::tool(tool, json!({})), Turn::from_text("done")])
}

/// A model that writes down its calls and fails at the first ones.
fn failing(name: &'static str, failures: usize, log: &Log) -> impl ModelService {
    let log = log.clone();
    let made = Arc::new(AtomicUsize::new(0));
    service_fn(move |_: ModelRequest| {
        log.note(name);
        let fails = made.fetch_add(1, Ordering::Relaxed) < failures;
        async move {
            if fails {
                Err(busy())
            } else {
                Ok(ModelResponse::from_text("done"))
            }
        }
    })
}

/// A tool that fails once.
fn flaky(log: &Log) -> Tool {
    let log = log.clone();
    let made = AtomicUsize::new(0);
    Tool::function("pay", "Pays.", move |_: Value| {
        log.note("pay");
        match made.fetch_add(1, Ordering::Relaxed) {
            0 => Err(busy()),
            _ => Ok("paid"),
        }
    })
}

fn result_of(response: &AgentResponse) -> String {
    let mut results = response.messages().iter().flat_map(Message::tool_results);
    results.next().unwrap().text()
}

fn redact() -> Redact {
    Redact::new([Detector::email()]).unwrap()
}

#[tokio::test]
async fn a_retry_outside_an_approval_asks_at_each_attempt() {
    for (is_outside, asked) in [(true, 2), (false, 1)] {
        let asks = Log::default();
        let noted = asks.clone();
        let approval = Approval::when(move |_| {
            noted.note("asked");
            false
        });
        let pay = flaky(&Log::default()).effect(Effect::Idempotent);
        let agent = Agent::builder(calls("pay")).tool(pay);
        let agent = if is_outside {
            agent.tool_layer(retry()).on_tool(approval)
        } else {
            agent.on_tool(approval).tool_layer(retry())
        };
        let agent = agent.build().unwrap();
        assert_eq!(result_of(&agent.run("?").await.unwrap()), "paid");
        assert_eq!(asks.take().len(), asked);
        assert_warns_if(is_outside, &agent, "CallRetryLayer", "Approval");
    }
}

#[tokio::test]
async fn a_retry_outside_a_fallback_calls_every_model_again() {
    let log = Log::default();
    let both = || (failing("a", 9, &log), failing("b", 1, &log));

    let (a, b) = both();
    let wrong = Agent::builder(Fallback::new(a).or(b)).model_layer(retry());
    let wrong = wrong.build().unwrap();
    wrong.run("?").await.unwrap();
    assert_eq!(log.take(), ["a", "b", "a", "b"]);
    assert_warns(&wrong, "CallRetryLayer", "Fallback");

    let (a, b) = both();
    let right = Agent::builder(Fallback::new(retry().layer(a)).or(retry().layer(b)));
    let right = right.build().unwrap();
    right.run("?").await.unwrap();
    assert_eq!(log.take(), ["a", "a", "b", "b"]);
    assert_right(&right);
}

#[tokio::test(start_paused = true)]
async fn a_timeout_outside_a_fallback_leaves_the_second_model_no_time() {
    let hangs = || ScriptedModel::always(Turn::pending());
    let limit = || CallTimeoutLayer::new(SECOND);

    let wrong = Agent::builder(Fallback::new(hangs()).or(says("done"))).model_layer(limit());
    let wrong = wrong.build().unwrap();
    let error = wrong.run("?").await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Timeout);
    assert_warns(&wrong, "CallTimeoutLayer", "Fallback");

    let models = Fallback::new(limit().layer(hangs())).or(limit().layer(says("done")));
    let right = Agent::builder(models).build().unwrap();
    assert_eq!(right.run("?").await.unwrap().text(), "done");
    assert_right(&right);
}

#[tokio::test]
async fn a_breaker_outside_a_fallback_never_opens() {
    let log = Log::default();
    let breaker = || CircuitBreakerLayer::new().failures(3);
    let broken = || failing("a", usize::MAX, &log);

    let wrong = Agent::builder(Fallback::new(broken()).or(says("done"))).model_layer(breaker());
    let wrong = wrong.build().unwrap();
    for _ in 0..10 {
        wrong.run("?").await.unwrap();
    }
    assert_eq!(log.take().len(), 10);
    assert_warns(&wrong, "CircuitBreakerLayer", "Fallback");

    let models = Fallback::new(breaker().layer(broken())).or(says("done"));
    let right = Agent::builder(models).build().unwrap();
    for _ in 0..10 {
        right.run("?").await.unwrap();
    }
    assert_eq!(log.take().len(), 3);
    assert_right(&right);
}

/// The model answers after a tenth of a second, whoever waits for the rate.
#[tokio::test(start_paused = true)]
async fn a_limit_that_adapts_outside_a_rate_takes_waiting_for_slowness() {
    let model = || {
        service_fn(async |_: ModelRequest| {
            tokio::time::sleep(SECOND / 10).await;
            Ok::<_, tower_agent::Error>(ModelResponse::from_text("done"))
        })
    };
    let rate = || {
        RateLimitLayer::new()
            .requests(10, SECOND)
            .max_wait(SECOND * 1_000)
    };
    let limits = [true, false].map(|is_outside| async move {
        let adaptive = AdaptiveConcurrencyLayer::new().initial(16);
        let agent = Agent::builder(model());
        let agent = if is_outside {
            agent.model_layer(adaptive.clone()).model_layer(rate())
        } else {
            agent.model_layer(rate()).model_layer(adaptive.clone())
        };
        let agent = agent.build().unwrap();
        for _ in 0..20 {
            let runs = (0..16).map(|_| agent.run("?"));
            assert!(join_all(runs).await.iter().all(Result::is_ok));
        }
        assert_warns_if(
            is_outside,
            &agent,
            "AdaptiveConcurrencyLayer",
            "RateLimitLayer",
        );
        adaptive.limit("")
    });
    let [outside, inside] = limits;
    let outside = outside.await;
    let inside = inside.await;
    assert!(outside < 8 && inside >= 16, "{outside}, {inside}");
}

#[tokio::test]
async fn a_cache_outside_a_guardrail_replays_what_is_not_checked() {
    for (is_outside, checked) in [(true, 1), (false, 2)] {
        let checks = Log::default();
        let noted = checks.clone();
        let guardrail = Guardrail::before(move |_| {
            noted.note("checked");
            async { Ok::<_, tower_agent::Error>(Verdict::Pass) }
        });
        let cache = CacheLayer::new(|_| Ok("anybody".to_owned()));
        let agent = Agent::builder(says("done"));
        let agent = if is_outside {
            agent.model_layer(cache).model_layer(guardrail)
        } else {
            agent.model_layer(guardrail).model_layer(cache)
        };
        let agent = agent.build().unwrap();
        for _ in 0..2 {
            agent.run("?").await.unwrap();
        }
        assert_eq!(checks.take().len(), checked);
        assert_warns_if(is_outside, &agent, "CacheLayer", "Guardrail");
    }
}

#[tokio::test]
async fn a_budget_outside_a_cache_refuses_what_could_be_replayed() {
    for is_outside in [true, false] {
        let account = Account::new(Limits::new().model_calls(1));
        let cache = CacheLayer::new(|_| Ok("anybody".to_owned()));
        let agent = Agent::builder(says("done"));
        let agent = if is_outside {
            agent.callbacks(Budget::of(account)).model_layer(cache)
        } else {
            agent.model_layer(cache).callbacks(Budget::of(account))
        };
        let agent = agent.build().unwrap();
        agent.run("?").await.unwrap();
        // The same question again.
        assert_eq!(agent.run("?").await.is_err(), is_outside);
        assert_warns_if(is_outside, &agent, "Budget", "CacheLayer");
    }
}

#[tokio::test]
async fn what_is_outside_a_redaction_sees_the_original() {
    for is_outside in [true, false] {
        let record = RecordLayer::<ModelRequest>::new();
        let agent = Agent::builder(says("done"));
        let agent = if is_outside {
            agent
                .model_layer(record.clone())
                .callbacks(redact().redact_input())
        } else {
            agent
                .callbacks(redact().redact_input())
                .model_layer(record.clone())
        };
        let agent = agent.build().unwrap();
        agent.run(MAIL).await.unwrap();
        let seen = record.requests()[0].messages().last().unwrap().text();
        assert_eq!(seen.contains(MAIL), is_outside, "{seen}");
        assert_warns_if(is_outside, &agent, "RecordLayer", "Redact(prompt)");
    }
}

#[tokio::test]
async fn what_is_outside_the_layers_of_a_redaction_writes_what_they_do_not_see() {
    let writes = || after_model(|_, _| Action::Respond(ModelResponse::from_text(MAIL)));
    let wrong = Agent::builder(says("done"))
        .on_model(writes().named("writes"))
        .model_layer(redact().around_model());
    let wrong = wrong.build().unwrap();
    assert_eq!(wrong.run("?").await.unwrap().text(), MAIL);
    assert_warns(&wrong, "writes", "Redact(at model)");
    let right = Agent::builder(says("done"))
        .callbacks(redact())
        .on_model(writes().named("writes"));
    let right = right.build().unwrap();
    assert!(!right.run("?").await.unwrap().text().contains(MAIL));
    assert_right(&right);

    let writes = || after_tool(|_, _| Action::Respond(ToolResponse::new(MAIL)));
    let pay = || Tool::function("pay", "Pays.", |_: Value| "paid");
    let wrong = Agent::builder(calls("pay"))
        .tool(pay())
        .on_tool(writes().named("writes"))
        .tool_layer(redact().around_tool());
    let wrong = wrong.build().unwrap();
    assert_eq!(result_of(&wrong.run("?").await.unwrap()), MAIL);
    assert_warns(&wrong, "writes", "Redact(at tool)");
    let right = Agent::builder(calls("pay"))
        .tool(pay())
        .callbacks(redact())
        .on_tool(writes().named("writes"));
    let right = right.build().unwrap();
    let read = result_of(&right.run("?").await.unwrap());
    assert!(!read.contains(MAIL), "{read}");
    assert_right(&right);
}

/// Nothing of the prompt is hidden, and what the model answers is hidden directly around it.
#[tokio::test]
async fn a_redaction_of_answers_alone_may_stand_inside() {
    let record = RecordLayer::<ModelRequest>::new();
    let cache = CacheLayer::new(|_| Ok("anybody".to_owned()));
    let agent = Agent::builder(says(MAIL))
        .model_layer(record.clone())
        .model_layer(cache)
        .callbacks(redact())
        .build()
        .unwrap();
    for _ in 0..2 {
        assert_eq!(agent.run("?").await.unwrap().text(), "[email]");
    }
    assert_right(&agent);
}

/// Other guards may stand before it, with what they have outermost.
#[tokio::test]
async fn guards_that_look_at_no_content_may_stand_outside_a_redaction() {
    let flow = Flow::new().tool("pay", ToolFlow::trusted());
    let agent = Agent::builder(calls("pay"))
        .tool(Tool::function("pay", "Pays.", |_: Value| "paid"))
        .global_callbacks(flow)
        .global_callbacks(redact().redact_input())
        .build()
        .unwrap();
    assert_eq!(agent.run("?").await.unwrap().text(), "done");
    assert_right(&agent);
}

#[tokio::test]
async fn a_tool_that_may_change_something_is_not_retried() {
    for (effect, made) in [(Effect::Mutating, 1), (Effect::Idempotent, 2)] {
        let log = Log::default();
        let pay = flaky(&log).effect(effect).layer(retry());
        let agent = Agent::builder(calls("pay")).tool(pay).build().unwrap();
        agent.run("?").await.unwrap();
        assert_eq!(log.take().len(), made);
        match effect {
            Effect::Mutating => {
                assert_warns(&agent, "CallRetryLayer", "pay");
                let told = agent.explain().warnings()[0].to_string();
                let expected = "agent `agent`, around a tool: `CallRetryLayer` is outside `pay`: \
                                the tool is never retried; declare `.effect(Effect::Idempotent)` \
                                if a second call does no harm";
                assert_eq!(told, expected);
            }
            _ => assert_right(&agent),
        }
    }
}

#[tokio::test]
async fn a_guard_of_one_agent_does_not_see_the_agents_inside() {
    for is_of_one in [true, false] {
        let worker = Agent::builder(says("worked")).name("worker");
        let worker = worker.build().unwrap().into_tool("Works.");
        let model = ScriptedModel::new([
            Turn::tool("read_mail", json!({})),
            Turn::tool("worker", json!({ "request": "Work." })),
            Turn::from_text("done"),
        ]);
        let flow = Flow::new().tool("read_mail", ToolFlow::source());
        let agent = Agent::builder(model)
            .name("boss")
            .tool(Tool::function("read_mail", "Reads.", |_: Value| "a mail"))
            .tool(worker);
        let agent = if is_of_one {
            agent.callbacks(flow)
        } else {
            agent.global_callbacks(flow.tool("worker", ToolFlow::agent()))
        };
        let agent = agent.build().unwrap();
        let response = agent.run("?").await.unwrap();
        let results = response.messages().iter().flat_map(Message::tool_results);
        let last = results.last().unwrap().text();
        assert_eq!(last.starts_with("refused: "), is_of_one, "{last}");
        assert_warns_if(is_of_one, &agent, "Flow(labels)", "worker");
    }
}

/// Wherever they stand: in a builder's stack, in a bundle, in an agent inside, around a tool.
#[test]
fn orders_are_found_in_stacks_and_in_agents_inside() {
    let stack = ServiceBuilder::new()
        .layer(AdaptiveConcurrencyLayer::new())
        .layer(RateLimitLayer::new())
        .into_inner();
    let worker = Agent::builder(says("done"))
        .name("worker")
        .model_layer(stack)
        .build()
        .unwrap();
    let boss = Agent::builder(says("done")).name("boss");
    let boss = boss.tool(worker.into_tool("Works.")).build().unwrap();
    assert_warns(&boss, "AdaptiveConcurrencyLayer", "RateLimitLayer");
    let warning = boss.explain().warnings().remove(0);
    assert_eq!(warning.agent, "boss/worker");
    assert_eq!((warning.outside_at, warning.inside_at), (0, Some(0)));

    let right = ServiceBuilder::new()
        .layer(RateLimitLayer::new())
        .layer(AdaptiveConcurrencyLayer::new())
        .into_inner();
    let brief = before_model(|_| ());
    let agent = Agent::builder(says("done"))
        .on_model(brief)
        .model_layer(right);
    assert_right(&agent.build().unwrap());
}
