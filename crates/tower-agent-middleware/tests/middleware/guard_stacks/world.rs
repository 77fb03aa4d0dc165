//! Builds the agent of a case, and keeps what is to be looked at afterwards.

use std::future::{Ready, pending, ready};
use std::hash::{BuildHasherDefault, DefaultHasher};
use std::marker::PhantomData;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, LazyLock, Mutex};
use std::time::Duration;

use serde::Deserialize;
use serde_json::json;
use tower::buffer::BufferLayer;
use tower::filter::FilterLayer;
use tower::hedge::Hedge;
use tower::limit::ConcurrencyLimitLayer;
use tower::load_shed::LoadShedLayer;
use tower::util::rng::HasherRng;
use tower::util::{MapErrLayer, MapRequestLayer, MapResponseLayer};
use tower::{Service, ServiceBuilder};
use tower_agent::callback::LayerInner;
use tower_agent::message::ToolCall;
use tower_agent::model::ModelService;
use tower_agent::{
    Agent, AgentBuilder, AgentRequest, BoxError, CancellationToken, Effect, Error, ErrorKind,
    Message, ModelRequest, ModelResponse, Part, Request, Role, RunContext, Tool, ToolRequest,
    ToolResponse, Usage,
};
use tower_agent_middleware::adaptive_concurrency::AdaptiveConcurrencyLayer;
use tower_agent_middleware::approval::Approval;
use tower_agent_middleware::budget::{Account, Budget, Limit, Limits, OnExceeding};
use tower_agent_middleware::cache::CacheLayer;
use tower_agent_middleware::chaos::ChaosLayer;
use tower_agent_middleware::circuit_breaker::CircuitBreakerLayer;
use tower_agent_middleware::context_window::ContextWindow;
use tower_agent_middleware::fallback::Fallback;
use tower_agent_middleware::guardrail::{Guardrail, OnTrip, Verdict};
use tower_agent_middleware::hedge::HedgeLayer;
use tower_agent_middleware::pool::Pool;
use tower_agent_middleware::rate_limit::RateLimitLayer;
use tower_agent_middleware::redact::{Detector, Redact};
use tower_agent_middleware::retry::CallRetryLayer;
use tower_agent_middleware::router::Router;
use tower_agent_middleware::timeout::CallTimeoutLayer;
use tower_agent_middleware::tool_search::ToolSearch;
use tower_agent_test::{ProbeLayer, ScriptedModel, Turn};
use tower_layer::{Layer, layer_fn};

use crate::guard_stacks::case::{
    self, Around, Case, Check, Do, Ends, Item, OF_MODEL, OF_OTHER, OF_TOOL, Say, Summariser,
};
use crate::guard_stacks::watch::{Counts, Watch};

/// The calls that a limit of concurrency lets through at a time.
pub(crate) const MOST_AT_A_TIME: usize = 2;

/// The cost of a model call, and the amount that a budget reserves for it.
const TOKENS: u64 = 10;

fn secs(seconds: u64) -> Duration {
    Duration::from_secs(seconds)
}

/// The traces of a case.
#[derive(Default)]
pub(crate) struct World {
    /// Around both models.
    pub(crate) probe: ProbeLayer,
    pub(crate) watches: Vec<Arc<Counts>>,
    /// Inside of everything around the agent: how often the loop has run.
    pub(crate) loops: Arc<Counts>,
    pub(crate) budgets: Vec<Charged>,
    /// Budgets of which the agent has a part, with the limit of the whole and that of the part.
    pub(crate) parts: Vec<(Account, u64, u64)>,
    /// Inside of every rate limit.
    pub(crate) limits: Vec<ProbeLayer>,
    /// Inside of every limit of concurrency.
    pub(crate) concurrency: Vec<ProbeLayer>,
    /// Names of the calls that tools were run for.
    pub(crate) ran: Arc<Mutex<Vec<String>>>,
    pub(crate) stop: Arc<Stop>,
}

/// Cancels the run in one of its calls.
#[derive(Default)]
pub(crate) struct Stop {
    pub(crate) token: CancellationToken,
    stops_in: Option<usize>,
    calls: AtomicUsize,
    /// The calls that have started afterwards.
    late: AtomicUsize,
}

impl Stop {
    fn see_call(&self) {
        if self.token.is_cancelled() {
            self.late.fetch_add(1, Ordering::SeqCst);
        }
        if Some(self.calls.fetch_add(1, Ordering::SeqCst)) == self.stops_in {
            self.token.cancel();
        }
    }

    pub(crate) fn late(&self) -> usize {
        self.late.load(Ordering::SeqCst)
    }
}

/// A budget with what was let through to its inside.
pub(crate) struct Charged {
    pub(crate) account: Account,
    pub(crate) inside: ProbeLayer,
    pub(crate) calls: u64,
    pub(crate) tokens: Option<u64>,
    pub(crate) finish: bool,
    /// How often what stands outside may make a call.
    pub(crate) attempts: u64,
}

/// Puts what may stand around any call.
macro_rules! anywhere {
    ($builder:expr, $world:expr, $around:expr, $limit:expr, $call:ty, $on:ident, $layer:ident) => {
        match $around {
            Around::Retry { restart } => {
                $builder.$layer(CallRetryLayer::new().restart_streams(restart))
            }
            Around::Timeout => $builder.$layer(CallTimeoutLayer::new(secs(7))),
            Around::RateLimit { waits } => {
                // Calls that wait are let through after a second each.
                let limit = RateLimitLayer::new().requests(60, secs(60));
                let limit = if waits {
                    limit.max_wait(Duration::MAX)
                } else {
                    limit.max_wait(Duration::ZERO)
                };
                let inside = ProbeLayer::new();
                $world.limits.push(inside.clone());
                $builder.$layer(limit).$layer(inside)
            }
            Around::Chaos { seed } => $builder.$layer(chaos::<$call>(seed)),
            Around::CircuitBreaker => {
                $builder.$layer(CircuitBreakerLayer::new().failures(2).pause(secs(5)))
            }
            Around::AdaptiveConcurrency => {
                let limit = AdaptiveConcurrencyLayer::new()
                    .initial(1)
                    .most(MOST_AT_A_TIME);
                let inside = ProbeLayer::new();
                $world.concurrency.push(inside.clone());
                $builder.$layer(limit).$layer(inside)
            }
            Around::Watch => $builder.$on(Watch::new(&mut $world.watches)),
            Around::TowerTimeout => $builder.$layer(tower::timeout::TimeoutLayer::new(secs(8))),
            Around::TowerRetry => $builder.$layer(tower::retry::RetryLayer::new(Again(2))),
            Around::TowerLimit => $builder.$layer(ConcurrencyLimitLayer::new($limit)),
            Around::TowerShed => {
                let layers = ServiceBuilder::new().layer(LoadShedLayer::new());
                $builder.$layer(
                    layers
                        .layer(ConcurrencyLimitLayer::new($limit))
                        .into_inner(),
                )
            }
            Around::TowerBuffer => $builder.$layer(BufferLayer::<$call>::new(1)),
            Around::TowerHedge => {
                let layers = ServiceBuilder::new().layer(BufferLayer::<$call>::new(8));
                $builder.$layer(
                    layers
                        .layer(TowerHedgeLayer::<$call>(PhantomData))
                        .into_inner(),
                )
            }
            Around::TowerFilter => {
                $builder.$layer(FilterLayer::new(|request: $call| {
                    match request.context().iteration() {
                        2 => Err(Error::new(ErrorKind::InvalidRequest, "filtered")),
                        _ => Ok(request),
                    }
                }))
            }
            Around::TowerMapError => $builder.$layer(MapErrLayer::new(|error: Error| {
                let message = format!("mapped: {}", error.message());
                error.with_message(message)
            })),
            around => unreachable!("{around:?} stands elsewhere"),
        }
    };
}

/// Puts what may stand around a model or a tool, or what may stand anywhere.
macro_rules! on_call {
    ($builder:expr, $world:expr, $around:expr, $outside:expr, $call:ty, $on:ident, $layer:ident) => {
        match $around {
            Around::Budget {
                calls,
                tokens,
                finish,
            } => {
                let mut limits = Limits::new().reservation(TOKENS).on_exceeding(if finish {
                    OnExceeding::Finish
                } else {
                    OnExceeding::Fail
                });
                limits = limits.model_calls(calls).tool_calls(calls);
                if let Some(tokens) = tokens {
                    limits = limits.tokens(tokens);
                }
                let (account, inside) = (Account::new(limits), ProbeLayer::new());
                let builder = $builder
                    .$on(Budget::of(account.clone()))
                    .$layer(inside.clone());
                let attempts = attempts($outside);
                $world.budgets.push(Charged {
                    account,
                    inside,
                    calls,
                    tokens,
                    finish,
                    attempts,
                });
                builder
            }
            Around::Redact { numbered } => $builder.callbacks(redact(numbered)),
            Around::Cache => {
                let tenant = |_: &RunContext| Ok("anybody".to_owned());
                $builder.$layer(CacheLayer::<$call>::new(tenant))
            }
            around => anywhere!(
                $builder,
                $world,
                around,
                limit($outside),
                $call,
                $on,
                $layer
            ),
        }
    };
}

impl World {
    pub(crate) fn build(case: &Case) -> (Agent, Self) {
        let stop = Stop {
            stops_in: case.stops_in,
            ..Stop::default()
        };
        let mut world = Self {
            probe: ProbeLayer::new().pending_polls(case.pending_polls),
            stop: Arc::new(stop),
            ..Self::default()
        };
        let model = world.probe.layer(world.stopping(model(case)));
        let mut builder = Agent::builder(model)
            .tool(world.tool("do").effect(Effect::Pure))
            .tool(world.tool("pay"));
        builder = builder.on_model(Watch::new(&mut world.watches));
        builder = builder.on_tool(Watch::new(&mut world.watches));
        builder = builder.on_agent(Watch::new(&mut world.watches));
        for (index, item) in case.stack.iter().enumerate() {
            builder = world.put(builder, *item, &case.stack[..index]);
        }
        builder = builder.on_model(Watch::new(&mut world.watches));
        builder = builder.on_tool(Watch::new(&mut world.watches));
        builder = builder.on_agent(Watch::new(&mut world.watches));
        world.loops = world.watches.last().unwrap().clone();
        (builder.build().unwrap(), world)
    }

    /// Adds to a model that the run may be cancelled in a call of it.
    fn stopping(&self, model: ScriptedModel) -> impl ModelService {
        let stop = self.stop.clone();
        MapRequestLayer::new(move |request: ModelRequest| {
            stop.see_call();
            request
        })
        .layer(model)
    }

    /// A tool that notes for which call it ran.
    fn tool(&self, name: &'static str) -> Tool {
        tool(name, &self.ran, &self.stop)
    }

    fn put(&mut self, builder: AgentBuilder, item: Item, outside: &[Item]) -> AgentBuilder {
        match item {
            Item::Agent(Around::BudgetPart { calls }) => {
                let whole = 2 * calls + 1;
                let limits = Limits::new().model_calls(whole).tool_calls(whole);
                let account = Account::new(limits.reservation(TOKENS));
                let budget = Budget::of(account.clone()).named(format!("{}", self.parts.len()));
                self.parts.push((account, whole, calls));
                builder
                    .callbacks(budget.carve([Limit::ModelCalls(calls)]))
                    .global_callbacks(budget)
            }
            Item::Agent(around) => {
                anywhere!(
                    builder,
                    self,
                    around,
                    1,
                    AgentRequest,
                    on_agent,
                    agent_layer
                )
            }
            Item::Tool(around) => match around {
                Around::Approval => builder.on_tool(Approval::of_tools(["pay"]).allow_edits()),
                Around::TowerMapResponse => {
                    builder.tool_layer(MapResponseLayer::new(|response: ToolResponse| {
                        if response.is_error() {
                            ToolResponse::new("replaced")
                        } else {
                            response
                        }
                    }))
                }
                around => {
                    on_call!(
                        builder,
                        self,
                        around,
                        outside,
                        ToolRequest,
                        on_tool,
                        tool_layer
                    )
                }
            },
            Item::Model(around) => match around {
                Around::Fallback { restart } => {
                    let other = ScriptedModel::always(
                        Turn::from_text(format!("other words {OF_OTHER} and so on"))
                            .usage(Usage::new(TOKENS / 2, TOKENS / 2)),
                    );
                    let other = self.probe.layer(self.stopping(other));
                    builder.model_layer(layer_fn(move |inner| {
                        Fallback::new(inner)
                            .or(other.clone())
                            .restart_streams(restart)
                    }))
                }
                Around::Chaos { seed } => {
                    builder.model_layer(chaos::<ModelRequest>(seed).cut(0.2, 8))
                }
                Around::TimeoutBetweenDeltas => builder.model_layer(
                    CallTimeoutLayer::new(secs(60))
                        .first_delta(secs(4))
                        .idle(secs(4)),
                ),
                Around::GuardrailBefore(check) => {
                    builder.model_layer(on_trip(Guardrail::before(move |_| checking(check)), check))
                }
                Around::GuardrailBeside(check) => {
                    builder.model_layer(on_trip(Guardrail::beside(move |_| checking(check)), check))
                }
                Around::GuardrailAfter(check) => builder.model_layer(on_trip(
                    Guardrail::after(move |_, _| checking(check)),
                    check,
                )),
                Around::ContextWindow { tokens, summariser } => {
                    let window = ContextWindow::new(tokens).keep_results(1);
                    builder.on_model(match summariser {
                        Some(behaviour) => window.summariser(summarising(behaviour)),
                        None => window,
                    })
                }
                Around::ToolSearch => {
                    // The agent has them already: what is called without being declared runs.
                    let ran = Arc::default();
                    let tools = ["do", "pay"].map(|name| tool(name, &ran, &self.stop));
                    builder.on_model(ToolSearch::new(tools))
                }
                Around::Hedge => builder.model_layer(HedgeLayer::new(secs(1))),
                Around::Pool => builder.model_layer(layer_fn(|inner: LayerInner<ModelRequest>| {
                    let rng = HasherRng::with_hasher(BuildHasherDefault::<DefaultHasher>::new());
                    Pool::from_rng([("one", inner.clone()), ("two", inner)], rng)
                })),
                Around::Router => {
                    builder.model_layer(layer_fn(|inner: LayerInner<ModelRequest>| {
                        Router::new(|request: &ModelRequest| {
                            let is_first = request.context().iteration() == 0;
                            Ok(if is_first { "first" } else { "later" })
                        })
                        .route("first", inner.clone())
                        .route("later", inner)
                    }))
                }
                Around::TowerMapResponse => {
                    builder.model_layer(MapResponseLayer::new(|response: ModelResponse| {
                        match response.message().text().len() % 2 {
                            0 => response,
                            _ => ModelResponse::from_text("replaced"),
                        }
                    }))
                }
                around => {
                    on_call!(
                        builder,
                        self,
                        around,
                        outside,
                        ModelRequest,
                        on_model,
                        model_layer
                    )
                }
            },
        }
    }
}

/// Faults of every kind but one: a call that hangs needs a time limit around it.
fn chaos<R>(seed: u64) -> ChaosLayer<R> {
    ChaosLayer::new(seed)
        .delay(0.2, secs(2))
        .refuse(0.1, secs(1))
        .fail(0.1, Error::new(ErrorKind::Overloaded, "busy"))
        .lose(0.1)
        .hold_back(0.2, secs(2))
}

/// A hedge gets two services ready before it needs the second; a limit of one would never let it.
fn limit(outside: &[Item]) -> usize {
    let is_hedge = |item: &Item| {
        matches!(
            item,
            Item::Model(Around::TowerHedge) | Item::Tool(Around::TowerHedge)
        )
    };
    if outside.iter().any(is_hedge) { 256 } else { 1 }
}

/// How often those outside make a call at most, for one call of the loop.
fn attempts(outside: &[Item]) -> u64 {
    let times = |item: &Item| match item {
        Item::Model(Around::Retry { .. } | Around::TowerRetry) => 3,
        Item::Model(Around::TowerHedge | Around::Hedge) => 2,
        _ => 1,
    };
    outside.iter().map(times).product()
}

fn redact(numbered: bool) -> Redact {
    static REDACT: LazyLock<Redact> =
        LazyLock::new(|| Redact::new([Detector::email()]).expect("it is built in"));
    if numbered {
        REDACT.clone().numbered()
    } else {
        REDACT.clone()
    }
}

fn summarising(behaviour: Summariser) -> ScriptedModel {
    let turn = match behaviour {
        Summariser::Answers => Turn::from_text("in short"),
        Summariser::AnswersLate => Turn::from_text("in short").latency(secs(1)),
        Summariser::Fails => Turn::error(Error::new(ErrorKind::Overloaded, "no summary")),
        Summariser::Aborts => Turn::error(Error::abort("no summary")),
    };
    ScriptedModel::always(turn)
}

async fn checking(check: Check) -> Result<Verdict, Error> {
    match check {
        Check::Passes => {}
        Check::PassesLate => tokio::time::sleep(secs(1)).await,
        Check::Trips | Check::TripsWithAnswer | Check::Aborts => return Ok(Verdict::trip("no")),
        Check::TripsLate => {
            tokio::time::sleep(secs(1)).await;
            return Ok(Verdict::trip("no"));
        }
        Check::Fails => return Err(Error::new(ErrorKind::Overloaded, "the check is busy")),
        Check::Panics => panic!("boom"),
        Check::Hangs => pending().await,
    }
    Ok(Verdict::Pass)
}

fn on_trip(guardrail: Guardrail, check: Check) -> Guardrail {
    guardrail.with_timeout(secs(2)).with_on_trip(match check {
        Check::TripsWithAnswer => OnTrip::answer("refused"),
        Check::Aborts => OnTrip::Abort,
        _ => OnTrip::Fail,
    })
}

/// Makes a call again, so often, where its error says that this may help.
#[derive(Clone)]
struct Again(u32);

impl<R: Clone, T> tower::retry::Policy<R, T, Error> for Again {
    type Future = Ready<()>;

    fn retry(&mut self, _: &mut R, result: &mut Result<T, Error>) -> Option<Ready<()>> {
        result.as_ref().err().filter(|error| error.is_retryable())?;
        self.0 = self.0.checked_sub(1)?;
        Some(ready(()))
    }

    fn clone_request(&mut self, request: &R) -> Option<R> {
        Some(request.clone())
    }
}

struct TowerHedgeLayer<R>(PhantomData<fn(R)>);

/// A second attempt after 100 ms.
#[derive(Clone)]
struct Impatient;

impl<R: Clone> tower::hedge::Policy<R> for Impatient {
    fn clone_request(&self, request: &R) -> Option<R> {
        Some(request.clone())
    }

    fn can_retry(&self, _: &R) -> bool {
        true
    }
}

impl<R, S> Layer<S> for TowerHedgeLayer<R>
where
    R: Clone,
    S: Service<R, Error: Into<BoxError>> + Clone,
{
    type Service = Hedge<S, Impatient>;

    fn layer(&self, service: S) -> Self::Service {
        Hedge::new_with_mock_latencies(service, Impatient, 1, 0.9, secs(10), &[100])
    }
}

fn model(case: &Case) -> ScriptedModel {
    let turns = case
        .turns
        .iter()
        .enumerate()
        .map(|(index, turn)| scripted(index, turn));
    let usage = Usage::new(TOKENS / 2, TOKENS / 2);
    let end = Turn::from_text("main: the end").usage(usage);
    ScriptedModel::new(turns.chain([end])).chunk_size(case.chunk)
}

fn scripted(index: usize, turn: &case::Turn) -> Turn {
    let parts = turn.says.iter().enumerate().map(|(number, say)| match say {
        Say::Words => Part::from_text("main words "),
        Say::Secret => Part::from_text(format!("main {OF_MODEL} says ")),
        Say::Thought => Part::reasoning("main thought"),
        Say::SecretThought => Part::reasoning(format!("main thought of {OF_MODEL} again")),
        Say::Call(what) => Part::from(tool_call(format!("main-{index}-{number}"), *what)),
    });
    let message = Message::new(Role::Assistant, parts.collect::<Vec<_>>());
    let turn_ =
        Turn::response(ModelResponse::new(message)).usage(Usage::new(TOKENS / 2, TOKENS / 2));
    let broken = |kind| Error::new(kind, format!("the model of {OF_MODEL} broke off"));
    match turn.ends {
        Ends::Well => turn_,
        Ends::Late => turn_.latency(secs(3)),
        Ends::Fails { after } => turn_.failing_after(after, broken(ErrorKind::Overloaded)),
        Ends::FailsForGood { after } => turn_.failing_after(after, broken(ErrorKind::Auth)),
        Ends::Hangs { after } => turn_.hanging_after(after),
        Ends::Panics => Turn::function(|_| panic!("boom")),
    }
}

fn tool_call(id: String, what: Do) -> ToolCall {
    let text = if what == Do::EchoSecret {
        OF_MODEL
    } else {
        "hello"
    };
    let (name, what) = match what {
        Do::Echo | Do::EchoSecret => ("do", json!("Echo")),
        Do::Leak => ("do", json!("Leak")),
        Do::LeakAndFail => ("do", json!("LeakAndFail")),
        Do::Slow => ("do", json!("Slow")),
        Do::Hang => ("do", json!("Hang")),
        Do::Fail => ("do", json!("Fail")),
        Do::Panic => ("do", json!("Panic")),
        Do::Wrong => ("do", json!(12)),
        Do::Unknown => ("undo", json!("Echo")),
        Do::Pay => ("pay", json!("Echo")),
    };
    ToolCall::new(id, name, json!({ "what": what, "text": text }))
}

#[derive(Deserialize, schemars::JsonSchema)]
struct Work {
    what: What,
    text: String,
}

#[derive(Deserialize, schemars::JsonSchema)]
enum What {
    Echo,
    Leak,
    LeakAndFail,
    Slow,
    Hang,
    Fail,
    Panic,
}

/// A tool that follows its script, and notes for which call it ran.
fn tool(name: &'static str, ran: &Arc<Mutex<Vec<String>>>, stop: &Arc<Stop>) -> Tool {
    let ran = ran.clone();
    let stop = stop.clone();
    Tool::function_with(name, "", move |work: Work, request: ToolRequest| {
        ran.lock()
            .unwrap()
            .push(format!("{name} {} {}", request.id(), work.text));
        stop.see_call();
        async move {
            let failed = |message| Err(Error::new(ErrorKind::Overloaded, message));
            match work.what {
                What::Echo => Ok(work.text),
                What::Leak => Ok(format!("ask {OF_TOOL} about it")),
                What::LeakAndFail => failed(format!("{OF_TOOL} is busy")),
                What::Slow => {
                    tokio::time::sleep(secs(3)).await;
                    Ok("slow".to_owned())
                }
                What::Hang => pending().await,
                What::Fail => failed("busy".to_owned()),
                What::Panic => panic!("boom"),
            }
        }
    })
}
