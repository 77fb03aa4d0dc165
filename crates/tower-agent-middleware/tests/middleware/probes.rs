//! What an observer is told of each middleware: that it passes a call on, or what it does.

use std::time::Duration;

use serde_json::{Value, json};
use test_support::wrappers::wrappers;
use tower_agent::callback::{LayerInner, after_agent, before_model};
use tower_agent::{
    Agent, AgentBuilder, Error, ErrorKind, Message, ModelRequest, Result, RunContext, Tool, Usage,
};
use tower_agent_middleware::adaptive_concurrency::AdaptiveConcurrencyLayer;
use tower_agent_middleware::approval::Approval;
use tower_agent_middleware::budget::{Budget, Limits, OnExceeding};
use tower_agent_middleware::cache::CacheLayer;
use tower_agent_middleware::chaos::ChaosLayer;
use tower_agent_middleware::circuit_breaker::CircuitBreakerLayer;
use tower_agent_middleware::context_window::ContextWindow;
use tower_agent_middleware::emulate::Emulate;
use tower_agent_middleware::fallback::Fallback;
use tower_agent_middleware::flow::{Flow, ToolFlow};
use tower_agent_middleware::guardrail::{Guardrail, Verdict};
use tower_agent_middleware::hedge::HedgeLayer;
use tower_agent_middleware::loop_guard::LoopGuard;
use tower_agent_middleware::pool::Pool;
use tower_agent_middleware::rate_limit::RateLimitLayer;
use tower_agent_middleware::redact::{Detector, Redact};
use tower_agent_middleware::retry::CallRetryLayer;
use tower_agent_middleware::router::Router;
use tower_agent_middleware::timeout::CallTimeoutLayer;
use tower_agent_middleware::tool_search::ToolSearch;
use tower_agent_test::{ScriptedModel, Turn};
use tower_layer::layer_fn;

const SECOND: Duration = Duration::from_secs(1);

type Inner = LayerInner<ModelRequest>;
type Change = fn(AgentBuilder) -> AgentBuilder;

fn busy() -> Turn {
    Turn::error(Error::new(ErrorKind::Overloaded, "busy"))
}

fn says(text: &str) -> Turn {
    Turn::from_text(text).usage(Usage::new(10, 10))
}

/// A model that calls `look`, and then answers.
fn looks() -> Vec<Turn> {
    vec![
        Turn::tool("look", json!({ "at": "sky" })),
        says("It rains."),
    ]
}

/// The middleware stands between two bands, so that its place is 1.
async fn seen(turns: fn() -> Vec<Turn>, add: Change) -> Vec<String> {
    let agent = || {
        let look = Tool::function("look", "Looks.", |_: Value| "mail ada@example.org");
        let agent = Agent::builder(ScriptedModel::new(turns()))
            .tool(look)
            .on_model(before_model(|_| ()))
            .model_layer(tower::layer::util::Identity::new());
        add(agent).on_model(before_model(|_| ()))
    };
    wrappers(agent).await
}

fn tenant(_: &RunContext) -> Result<String> {
    Ok("tenant".to_owned())
}

#[tokio::test(start_paused = true)]
async fn each_layer_that_has_nothing_to_do_is_idle() {
    let layers: &[Change] = &[
        |agent| agent.model_layer(CallRetryLayer::new()),
        |agent| agent.model_layer(CallTimeoutLayer::new(SECOND)),
        |agent| agent.model_layer(CircuitBreakerLayer::new()),
        |agent| agent.model_layer(HedgeLayer::new(SECOND)),
        |agent| agent.model_layer(AdaptiveConcurrencyLayer::new()),
        |agent| agent.model_layer(RateLimitLayer::new().requests(10, SECOND)),
        |agent| agent.model_layer(CacheLayer::<ModelRequest>::new(tenant)),
        |agent| agent.model_layer(ChaosLayer::new(1)),
        |agent| agent.model_layer(Guardrail::before(|_| async { Verdict::Pass })),
        |agent| agent.model_layer(Guardrail::beside(|_| async { Verdict::Pass })),
        |agent| agent.model_layer(Guardrail::after(|_, _| async { Verdict::Pass })),
        |agent| {
            agent.model_layer(layer_fn(|model: Inner| {
                Fallback::new(model.clone()).or(model)
            }))
        },
        |agent| {
            agent.model_layer(layer_fn(|model: Inner| {
                Router::new(|_: &ModelRequest| Ok("first")).route("first", model)
            }))
        },
        |agent| agent.model_layer(layer_fn(|model: Inner| Pool::new([("a", model)]))),
        |agent| agent.on_model(LoopGuard::new()),
        |agent| agent.on_model(ContextWindow::new(100_000)),
        |agent| {
            let pay = Tool::function("pay", "Pays.", |_: ()| "");
            agent.tool(pay).on_tool(Approval::of_tools(["pay"]))
        },
        |agent| agent.callbacks(Budget::new(Limits::new().model_calls(9))),
        |agent| agent.callbacks(Flow::new().tool("look", ToolFlow::trusted())),
        |agent| agent.callbacks(Redact::new([Detector::secret()]).unwrap()),
    ];
    for (place, layer) in layers.iter().enumerate() {
        assert_eq!(seen(looks, *layer).await, [""; 0], "the layer at {place}");
    }
}

#[tokio::test(start_paused = true)]
async fn layers_that_make_a_call_again() {
    let failing = || vec![busy(), busy(), says("Yes.")];
    let seen_of = seen(failing, |agent| agent.model_layer(CallRetryLayer::new()));
    assert_eq!(seen_of.await, ["model 2: made 3 calls"]);

    let slow = || vec![Turn::pending(), says("Yes.")];
    let seen_of = seen(slow, |agent| agent.model_layer(HedgeLayer::new(SECOND)));
    let dropped = seen_of.await;
    assert_eq!(dropped.last().unwrap(), "model 2: made 2 calls, dropped 1");

    let failing = || vec![busy(), says("Yes.")];
    let seen_of = seen(failing, |agent| {
        agent.model_layer(layer_fn(|model: Inner| {
            Fallback::new(model.clone()).or(model)
        }))
    });
    assert_eq!(seen_of.await, ["model 2: made 2 calls"]);
}

#[tokio::test(start_paused = true)]
async fn layers_that_drop_or_do_not_make_a_call() {
    let hangs = || vec![Turn::pending()];
    let seen_of = seen(hangs, |agent| {
        agent.model_layer(CallTimeoutLayer::new(SECOND))
    });
    assert_eq!(
        seen_of.await,
        ["model 2: dropped the call inside, failed: timed out"]
    );

    let one = || vec![says("Yes.")];
    let error = |agent: AgentBuilder| {
        agent.model_layer(ChaosLayer::new(1).fail(1.0, Error::new(ErrorKind::Overloaded, "no")))
    };
    assert_eq!(seen(one, error).await, ["model 2: failed: overloaded"]);
    let lost = |agent: AgentBuilder| agent.model_layer(ChaosLayer::new(1).lose(1.0));
    let seen_of = seen(one, lost).await;
    assert!(
        seen_of[0].starts_with("model 2: turned a response into an error"),
        "{seen_of:?}"
    );

    // The circuit opens at the first failure, so that the second attempt is not made.
    let seen_of = seen(
        || vec![busy(), says("Yes.")],
        |agent| {
            agent
                .model_layer(layer_fn(|model: Inner| {
                    Fallback::new(model.clone()).or(model)
                }))
                .model_layer(CircuitBreakerLayer::new().failures(1))
        },
    );
    assert_eq!(
        seen_of.await,
        ["model 3: failed: overloaded", "model 2: made 2 calls"]
    );

    let trips = |agent: AgentBuilder| {
        agent.model_layer(Guardrail::before(|_| async { Verdict::trip("no") }))
    };
    assert_eq!(seen(one, trips).await, ["model 2: failed: denied"]);
    let trips = |agent: AgentBuilder| {
        agent.model_layer(Guardrail::after(|_, _| async { Verdict::trip("no") }))
    };
    let seen_of = seen(one, trips).await;
    assert_eq!(
        seen_of,
        ["model 2: turned a response into an error: denied"]
    );

    let limited = |agent: AgentBuilder| {
        let limit = RateLimitLayer::new()
            .requests(1, 3600 * SECOND)
            .max_wait(SECOND);
        agent.model_layer(limit)
    };
    let seen_of = seen(looks, limited).await;
    assert_eq!(seen_of, ["model 2: failed: overloaded"]);

    // Equal calls: the second is answered by the first.
    let seen_of = seen(
        || vec![Turn::from_text("").usage(Usage::new(1, 0)), says("Yes.")],
        |agent| {
            agent
                .model_layer(tower_agent::callback::wrap_model(
                    async |request: ModelRequest, mut next| {
                        next.run(request.clone()).await?;
                        next.run(request).await
                    },
                ))
                .model_layer(CacheLayer::<ModelRequest>::new(tenant))
        },
    );
    let seen_of = seen_of.await;
    assert!(
        seen_of.contains(&"model 3: answered without the call".to_owned()),
        "{seen_of:?}"
    );
}

#[tokio::test]
async fn callbacks_that_block_a_call() {
    let seen_of = seen(looks, |agent| agent.on_tool(Approval::of_tools(["look"])));
    assert_eq!(seen_of.await, ["tool 0: failed: interrupted"]);

    let actor = |agent: AgentBuilder| {
        agent.on_tool(Emulate::new(ScriptedModel::new([Turn::from_text("snow")])))
    };
    assert_eq!(
        seen(looks, actor).await,
        ["tool 0: answered without the call"]
    );

    let seen_of = seen(looks, |agent| {
        agent.callbacks(Budget::new(Limits::new().model_calls(1)))
    });
    let seen_of = seen_of.await;
    assert_eq!(seen_of, ["model 2: failed: budget exceeded"]);

    let seen_of = seen(looks, |agent| {
        agent.callbacks(Budget::new(
            Limits::new()
                .tool_calls(0)
                .on_exceeding(OnExceeding::Refuse),
        ))
    });
    assert_eq!(
        seen_of.await,
        ["tool 0: answered without the call (a limit of the budget is reached)"]
    );

    let twice = || {
        vec![
            Turn::tool("look", json!({})),
            Turn::tool("send", json!({ "to": "ada", "body": "hi" })),
            says("Sent."),
        ]
    };
    let seen_of = seen(twice, |agent| {
        let flow = Flow::new()
            .tool("look", ToolFlow::source())
            .tool("send", ToolFlow::action());
        let send = Tool::function("send", "Sends.", |_: Value| "sent");
        agent.tool(send).callbacks(flow)
    });
    let seen_of = seen_of.await;
    assert_eq!(seen_of, ["tool 0: answered without the call"]);
}

#[tokio::test]
async fn callbacks_that_change_a_call() {
    let seen_of = seen(looks, |agent| {
        agent.callbacks(Redact::new([Detector::email()]).unwrap())
    });
    assert_eq!(seen_of.await, ["tool 2: changed the response's value"]);

    let seen_of = seen(
        || vec![says("Mail ada@example.org")],
        |agent| agent.callbacks(Redact::new([Detector::email()]).unwrap()),
    );
    assert_eq!(seen_of.await, ["model 4: changed the response's text"]);

    let seen_of = seen(
        || vec![says("Yes.")],
        |agent| {
            let search = ToolSearch::new(
                (0..3).map(|number| Tool::function(format!("tool_{number}"), "", |_: ()| "")),
            );
            agent.tools(search.tools()).on_model(search)
        },
    );
    assert_eq!(seen_of.await, ["model 2: changed the request's tools"]);

    let long = |agent: AgentBuilder| {
        agent
            .on_agent(tower_agent::callback::before_agent(|request| {
                let words = "word ".repeat(200);
                for _ in 0..20 {
                    request.messages_mut().push(Message::user(words.clone()));
                    request.messages_mut().push(Message::assistant("Yes."));
                }
                request.messages_mut().push(Message::user("?"));
            }))
            .on_model(ContextWindow::new(1000))
            .on_agent(after_agent(|_, _| ()))
    };
    let seen_of = seen(|| vec![says("Yes.")], long).await;
    assert_eq!(
        seen_of,
        [
            "model 2: changed the request's messages",
            "agent 0: changed the request's messages"
        ]
    );

    let again = || {
        let mut turns = vec![Turn::tool("look", json!({})); 4];
        turns.push(says("Enough."));
        turns
    };
    let seen_of = seen(again, |agent| {
        agent.on_model(LoopGuard::new().nudge_after(2).end_after(10))
    });
    let seen_of = seen_of.await;
    assert!(!seen_of.is_empty());
    assert!(
        seen_of
            .iter()
            .all(|word| word.starts_with("model 2: changed the request's")
                && word.ends_with("(the same call has had the same result again)")),
        "{seen_of:?}"
    );
}
