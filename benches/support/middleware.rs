//! Middleware that has nothing to do, where a user meets it: in an agent whose conversation grows.

use std::time::Duration;

use tower::layer::layer_fn;
use tower::layer::util::Identity;
use tower_agent::callback::{LayerInner, before_model, before_tool};
use tower_agent::stream::map_fn;
use tower_agent::{AgentBuilder, ModelRequest, Result, RunContext, Tool};
use tower_agent_durable::journal::Durable;
use tower_agent_middleware::adaptive_concurrency::AdaptiveConcurrencyLayer;
use tower_agent_middleware::approval::Approval;
use tower_agent_middleware::budget::{Budget, Limit, Limits};
use tower_agent_middleware::cache::CacheLayer;
use tower_agent_middleware::circuit_breaker::CircuitBreakerLayer;
use tower_agent_middleware::context_window::ContextWindow;
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

use super::journal::InMemory;
use super::work::SUMS;

/// A middleware in an agent.
pub struct Middleware {
    pub name: &'static str,
    /// How many calls of a run it is around.
    pub calls: usize,
    pub add: fn(AgentBuilder) -> AgentBuilder,
}

/// All of them, in the order of the output.
pub const MIDDLEWARE: &[Middleware] = &[
    of_model("agent, a layer that does nothing", |agent| {
        agent.model_layer(Identity::new())
    }),
    of_all("agent, a callback that does nothing", |agent| {
        agent
            .on_model(before_model(|_| {}))
            .on_tool(before_tool(|_| {}))
    }),
    of_model("agent, a mapper that does nothing", |agent| {
        agent.on_model(before_model(|request| request.map_deltas(|| map_fn(Some))))
    }),
    of_model("agent, `CallTimeout`, the whole call", |agent| {
        agent.model_layer(CallTimeoutLayer::new(MINUTE))
    }),
    of_model("agent, `CallTimeout`, all limits", |agent| {
        let limits = CallTimeoutLayer::new(MINUTE)
            .first_delta(MINUTE)
            .idle(MINUTE);
        agent.model_layer(limits)
    }),
    of_model("agent, `CallRetry`", |agent| {
        agent.model_layer(CallRetryLayer::new())
    }),
    of_model("agent, `CircuitBreaker`", |agent| {
        agent.model_layer(CircuitBreakerLayer::new())
    }),
    of_model("agent, `Fallback` of two", |agent| {
        agent.model_layer(layer_fn(|model: Inner| {
            Fallback::new(model.clone()).or(model)
        }))
    }),
    of_model("agent, `Router` of two", |agent| {
        agent.model_layer(layer_fn(|model: Inner| {
            Router::new(|_: &ModelRequest| Ok("first"))
                .route("first", model.clone())
                .route("second", model)
        }))
    }),
    of_model("agent, `Pool` of four", |agent| {
        agent.model_layer(layer_fn(|model: Inner| {
            Pool::new(["a", "b", "c", "d"].map(|name| (name, model.clone())))
        }))
    }),
    of_model("agent, `Hedge`", |agent| {
        agent.model_layer(HedgeLayer::new(MINUTE).percentile(0.95))
    }),
    of_model("agent, `AdaptiveConcurrency`", |agent| {
        agent.model_layer(AdaptiveConcurrencyLayer::new())
    }),
    of_model("agent, `RateLimit`, in memory", |agent| {
        // So many that a run never waits.
        let limit = RateLimitLayer::new()
            .requests(u64::MAX, MINUTE)
            .tokens(u64::MAX, MINUTE);
        agent.model_layer(limit)
    }),
    of_model("agent, `Cache`, replays", |agent| {
        let tenant = |_: &RunContext| Ok("tenant".to_owned());
        agent.model_layer(CacheLayer::<ModelRequest>::new(tenant))
    }),
    of_model(GUARDRAIL, |agent| {
        agent.model_layer(Guardrail::before(passes))
    }),
    of_model("agent, `Guardrail`, beside", |agent| {
        agent.model_layer(Guardrail::beside(passes))
    }),
    of_model("agent, `Guardrail`, after", |agent| {
        agent.model_layer(Guardrail::after(|request, _| passes(request)))
    }),
    of_model("agent, `ToolSearch` in ten tools", |agent| {
        let many = (0..10).map(|number| Tool::function(format!("tool_{number}"), "", |_: ()| ""));
        let search = ToolSearch::new(many);
        agent.tools(search.tools()).on_model(search)
    }),
    of_model("agent, `LoopGuard`", |agent| {
        agent.on_model(LoopGuard::new())
    }),
    of_model("agent, `ContextWindow`", |agent| {
        agent.on_model(ContextWindow::new(100_000))
    }),
    Middleware {
        name: "agent, `Approval` of another tool",
        calls: SUMS,
        add: |agent| {
            let pay = Tool::function("pay", "Pays.", |_: ()| "");
            agent.tool(pay).on_tool(Approval::of_tools(["pay"]))
        },
    },
    of_all(BUDGET, |agent| {
        agent.global_callbacks(Budget::new(limits()))
    }),
    of_all("agent, `Budget` and a part of it", |agent| {
        let budget = Budget::new(limits());
        let part = budget.carve([Limit::ModelCalls(100)]);
        agent.global_callbacks(budget).callbacks(part)
    }),
    of_all(FLOW, flow),
    of_all(REDACT, redact),
    of_all(JOURNAL, |agent| {
        agent.global_callbacks(Durable::new(InMemory::default()))
    }),
];

/// Those that aims are about.
pub const GUARDRAIL: &str = "agent, `Guardrail`, before";
pub const BUDGET: &str = "agent, `Budget`";
pub const FLOW: &str = "agent, `Flow` with ten tools";
pub const REDACT: &str = "agent, `Redact` of emails, cards, secrets";
pub const JOURNAL: &str = "agent, each call journaled in memory";

const MINUTE: Duration = Duration::from_secs(60);

/// The model inside a layer.
type Inner = LayerInner<ModelRequest>;

const fn of_model(name: &'static str, add: fn(AgentBuilder) -> AgentBuilder) -> Middleware {
    let calls = SUMS + 1;
    Middleware { name, calls, add }
}

const fn of_all(name: &'static str, add: fn(AgentBuilder) -> AgentBuilder) -> Middleware {
    let calls = 2 * SUMS + 1;
    Middleware { name, calls, add }
}

async fn passes(_: ModelRequest) -> Result<Verdict> {
    Ok(Verdict::Pass)
}

fn limits() -> Limits {
    Limits::new().model_calls(1000).tool_calls(1000)
}

/// The guard, with ten tools declared and nothing that breaks a rule.
pub fn flow(agent: AgentBuilder) -> AgentBuilder {
    let mut flow = Flow::new().tool("add", ToolFlow::trusted());
    for number in 1..10 {
        let send = ToolFlow::action().data(["/body"]).recipients("/to");
        flow = flow.tool(format!("send_{number}"), send);
    }
    agent.global_callbacks(flow)
}

/// The guard that redacts, with detectors of which none finds anything.
pub fn redact(agent: AgentBuilder) -> AgentBuilder {
    let detectors = [Detector::email(), Detector::card(), Detector::secret()];
    agent.global_callbacks(Redact::new(detectors).unwrap())
}
