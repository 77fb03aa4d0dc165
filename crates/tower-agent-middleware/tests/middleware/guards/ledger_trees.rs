//! A random tree of agents, with what repeats calls, replaces them and answers them: the tokens
//! that its models gave out are what every view adds up to.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use futures::{FutureExt, StreamExt};
use proptest::prelude::*;
use serde_json::json;
use tokio::time::{sleep, timeout};
use tower::service_fn;
use tower::timeout::TimeoutLayer;
use tower_agent::callback::{Bundle, after_model, before_model, on_model_error};
use tower_agent::message::ToolCall;
use tower_agent::model::{BoxModel, ModelService};
use tower_agent::stream::{self, Delta, EventKind, Piece};
use tower_agent::{
    Action, Agent, AgentRequest, Error, ErrorKind, ModelRequest, ModelResponse, Recovery, Request,
    Result, Usage,
};
use tower_agent_middleware::budget::{Account, Budget, Limits};
use tower_agent_middleware::cache::CacheLayer;
use tower_agent_middleware::fallback::Fallback;
use tower_agent_middleware::hedge::HedgeLayer;
use tower_agent_middleware::pool::Pool;
use tower_agent_middleware::retry::CallRetryLayer;
use tower_agent_middleware::timeout::CallTimeoutLayer;
use tower_layer::Layer;

use test_support::property::cases;

const SECOND: Duration = Duration::from_secs(1);

/// What a host does with one call.
#[derive(Clone, Copy, Debug)]
enum Act {
    Answers,
    /// With a text that checks refuse.
    AnswersBadly,
    /// Calls all tools that it has, and answers where it has none.
    Calls,
    AnswersLate,
    /// Without a word of tokens.
    Fails,
    /// With more tokens than there are.
    Lies,
    /// In a stream, after the tokens so far were told.
    Breaks,
    /// The same, but it never ends.
    Hangs,
}

/// What stands around a model: inside of what an agent has for its model, or in the agent's stack.
#[derive(Clone, Copy, Debug)]
enum Around {
    Retry,
    /// Refuses bad answers.
    Check,
    /// Replaces every answer, with a word of tokens of its own.
    Replaces,
    /// Answers in place of an error, the same way.
    AnswersErrors,
    /// Answers in place of every call, the same way.
    AnswersCalls,
    Hedge,
    Cache,
    Timeout,
    TowerTimeout,
}

#[derive(Clone, Debug)]
enum Model {
    Host,
    Layered(Around, Box<Self>),
    Fallback(Vec<Self>),
    Pool(Vec<Self>),
}

#[derive(Clone, Debug)]
struct Tree {
    model: Model,
    stack: Vec<Around>,
    tools: Vec<Self>,
    /// Asked in a callback of each model call.
    helper: Option<Box<Self>>,
}

fn act() -> impl Strategy<Value = Act> {
    prop_oneof![
        4 => Just(Act::Answers),
        2 => Just(Act::AnswersBadly),
        4 => Just(Act::Calls),
        1 => Just(Act::AnswersLate),
        1 => Just(Act::Fails),
        1 => Just(Act::Lies),
        2 => Just(Act::Breaks),
        1 => Just(Act::Hangs),
    ]
}

fn around() -> impl Strategy<Value = Around> {
    prop_oneof![
        Just(Around::Retry),
        Just(Around::Check),
        Just(Around::Replaces),
        Just(Around::AnswersErrors),
        Just(Around::AnswersCalls),
        Just(Around::Hedge),
        Just(Around::Cache),
        Just(Around::Timeout),
        Just(Around::TowerTimeout),
    ]
}

fn model() -> impl Strategy<Value = Model> {
    Just(Model::Host).prop_recursive(4, 8, 3, |inner| {
        prop_oneof![
            3 => (around(), inner.clone())
                .prop_map(|(around, inner)| Model::Layered(around, Box::new(inner))),
            1 => prop::collection::vec(inner.clone(), 1..3).prop_map(Model::Fallback),
            1 => prop::collection::vec(inner, 1..3).prop_map(Model::Pool),
        ]
    })
}

fn tree() -> impl Strategy<Value = Tree> {
    let alone = (model(), prop::collection::vec(around(), 0..3)).prop_map(|(model, stack)| Tree {
        model,
        stack,
        tools: Vec::new(),
        helper: None,
    });
    let alone = alone.boxed();
    alone.clone().prop_recursive(3, 6, 3, move |inner| {
        let tools = prop::collection::vec(inner.clone(), 0..3);
        let helper = prop::option::weighted(0.2, inner);
        (alone.clone(), tools, helper).prop_map(|(tree, tools, helper)| Tree {
            tools,
            helper: helper.map(Box::new),
            ..tree
        })
    })
}

/// All hosts of a case: they follow one script, and then answer.
#[derive(Clone)]
struct Hosts(Arc<Mutex<State>>);

struct State {
    script: VecDeque<Act>,
    calls: u64,
    /// What was given out.
    given: Usage,
    /// An answer told nothing that can be true, or a call was cut that may have told nothing.
    is_estimated: bool,
}

impl Hosts {
    fn next(&self, request: &ModelRequest) -> (Act, Usage) {
        let mut state = self.0.lock().unwrap();
        state.calls += 1;
        let act = state.script.pop_front().unwrap_or(Act::Answers);
        let usage = match act {
            Act::Lies => Usage::new(u64::MAX, 10 + state.calls),
            _ => Usage::new(100 * state.calls, 10 + state.calls),
        };
        let is_untold =
            matches!(act, Act::Hangs | Act::AnswersLate) && request.delta_sender().is_none();
        state.is_estimated |= is_untold || matches!(act, Act::Lies);
        (act, usage)
    }

    fn give(&self, usage: Usage) {
        self.0.lock().unwrap().given += usage.known().unwrap_or_default();
    }

    fn host(&self) -> BoxModel {
        let hosts = self.clone();
        BoxModel::new(service_fn(move |request: ModelRequest| {
            let hosts = hosts.clone();
            async move { hosts.answer(request).await }
        }))
    }

    async fn answer(&self, request: ModelRequest) -> Result<ModelResponse> {
        let (act, usage) = self.next(&request);
        if matches!(act, Act::Fails) {
            return Err(Error::new(ErrorKind::Overloaded, "busy"));
        }
        let mut attempt = request.delta_sender().map(|sender| sender.open());
        if let Some(attempt) = &mut attempt {
            self.give(usage);
            attempt.send(Piece::Usage(usage)).await?;
            if !matches!(act, Act::AnswersLate) {
                attempt.send(Delta::Text("so ".into())).await?;
            }
        }
        match act {
            Act::Breaks => return Err(Error::new(ErrorKind::Connection, "reset")),
            Act::Hangs => std::future::pending().await,
            Act::AnswersLate => sleep(5 * SECOND).await,
            _ => {}
        }
        let tools = request.tools().iter().filter(|_| matches!(act, Act::Calls));
        let calls: Vec<_> = tools
            .enumerate()
            .map(|(index, tool)| {
                let id = format!("call_{}_{index}", usage.output_tokens);
                ToolCall::new(id, tool.name(), json!({ "request": "go" }))
            })
            .collect();
        let text = match act {
            Act::AnswersBadly => "bad",
            _ => "good",
        };
        let Some(mut attempt) = attempt else {
            self.give(usage);
            let response = ModelResponse::from_text(text).with_usage(usage);
            return Ok(calls
                .into_iter()
                .fold(response, ModelResponse::with_tool_call));
        };
        attempt.send(Delta::Text(text.into())).await?;
        for call in calls {
            attempt.send(tower_agent::Part::ToolCall(call)).await?;
        }
        Ok(ModelResponse::from(attempt.finish().await?).with_usage(usage))
    }

    fn model(&self, model: &Model) -> BoxModel {
        match model {
            Model::Host => self.host(),
            Model::Layered(around, inner) => around.layer(self.model(inner)),
            Model::Fallback(models) => {
                let mut models = models.iter().map(|model| self.model(model));
                let first = models.next().unwrap();
                BoxModel::new(Fallback::new(first).or_each(models).restart_streams(true))
            }
            Model::Pool(models) => {
                let endpoints = models.iter().enumerate();
                let endpoints =
                    endpoints.map(|(index, model)| (index.to_string(), self.model(model)));
                let pool = Pool::new(endpoints);
                BoxModel::new(pool)
            }
        }
    }

    fn agent(&self, tree: &Tree, name: &str, global: Option<Bundle>) -> Agent {
        let mut builder = Agent::builder(self.model(&tree.model)).name(name);
        for around in &tree.stack {
            let around = *around;
            builder = builder.model_layer(tower_layer::layer_fn(move |inner| around.layer(inner)));
        }
        for (index, tool) in tree.tools.iter().enumerate() {
            let name = format!("tool{index}");
            builder = builder.tool(self.agent(tool, &name, None).into_tool("Works."));
        }
        if let Some(helper) = &tree.helper {
            let helper = self.agent(helper, "helper", None);
            builder = builder.on_model(before_model(move |request: &mut ModelRequest| {
                let inner = AgentRequest::new("help").with_context(request.context().clone());
                let helper = helper.clone();
                // Its failure is no reason to fail.
                async move {
                    drop(helper.run(inner).await);
                    Ok(())
                }
            }));
        }
        if let Some(global) = global {
            builder = builder.global_callbacks(global);
        }
        builder.build().unwrap()
    }
}

/// What a callback says, of a model that has answered it some other time.
fn says(text: &str) -> ModelResponse {
    ModelResponse::from_text(text).with_usage(Usage::new(1_000_000, 1_000))
}

impl Around {
    fn layer(self, inner: impl ModelService) -> BoxModel {
        match self {
            Self::Retry => {
                let retry = CallRetryLayer::new().max_attempts(3).restart_streams(true);
                BoxModel::new(retry.layer(inner))
            }
            Self::Check => {
                let check = after_model(|_, response| {
                    if response.text().contains("bad") {
                        let bad = Error::new(ErrorKind::Provider, "bad");
                        return Err(bad.with_retryable(true));
                    }
                    Ok(())
                });
                BoxModel::new(check.layer(inner))
            }
            Self::Replaces => {
                let other = || Action::Respond(says("other"));
                BoxModel::new(after_model(move |_, _| other()).layer(inner))
            }
            Self::AnswersErrors => {
                let sorry = || Recovery::Fallback(says("sorry"));
                BoxModel::new(on_model_error(move |_, _| sorry()).layer(inner))
            }
            Self::AnswersCalls => {
                let stored = || Action::Respond(says("stored"));
                BoxModel::new(before_model(move |_| stored()).layer(inner))
            }
            Self::Hedge => BoxModel::new(HedgeLayer::new(SECOND).layer(inner)),
            Self::Cache => {
                let cache = CacheLayer::new(|_| Ok("anybody".to_owned()));
                BoxModel::new(cache.layer(inner))
            }
            Self::Timeout => BoxModel::new(CallTimeoutLayer::new(3 * SECOND).layer(inner)),
            Self::TowerTimeout => BoxModel::new(TimeoutLayer::new(4 * SECOND).layer(inner)),
        }
    }
}

/// Runs a case, and compares all views with what was given out.
async fn check(tree: &Tree, script: &[Act], is_streamed: bool) -> Result<(), TestCaseError> {
    let hosts = Hosts(Arc::new(Mutex::new(State {
        script: script.iter().copied().collect(),
        calls: 0,
        given: Usage::default(),
        is_estimated: false,
    })));
    let account = Account::new(Limits::new().tokens(u64::MAX / 2));
    let (observer, mut observations) = stream::observer(100_000);
    let global = Bundle::from(Budget::of(account.clone())).observer(observer);
    let agent = hosts.agent(tree, "root", Some(global));
    let request = AgentRequest::new("go");
    let context = request.context().clone();

    let mut told = Usage::default();
    let run = async {
        if !is_streamed {
            return agent.run(request).await;
        }
        let mut stream = agent.stream(request);
        while let Some(event) = stream.next().await {
            if let EventKind::Usage { usage } = event.kind {
                told += *usage;
            }
        }
        stream.response().await
    };
    // Who waits no longer drops the run.
    let result = timeout(100 * SECOND, run).await;

    let State {
        given,
        is_estimated,
        ..
    } = *hosts.0.lock().unwrap();
    prop_assert_eq!(context.usage(), given, "the context");
    if let Ok(Ok(response)) = &result {
        prop_assert_eq!(response.usage(), given, "the response");
    }
    if is_streamed && result.is_ok() {
        prop_assert_eq!(told, given, "the stream");
    }
    let mut observed = Usage::default();
    while let Some(Some(observation)) = observations.next().now_or_never() {
        if let EventKind::Usage { usage } = observation.event.kind {
            observed += *usage;
        }
    }
    prop_assert_eq!(observed, given, "the observer");
    prop_assert_eq!(account.reserved().tokens, 0);
    let used = account.used();
    let told = used.tokens - used.estimated_tokens;
    prop_assert_eq!(told, given.total(), "the budget");
    prop_assert!(is_estimated || used.estimated_tokens == 0, "{:?}", used);
    Ok(())
}

proptest! {
    #![proptest_config(cases(4_000))]

    #[test]
    fn every_view_adds_up_to_what_the_models_gave_out(
        tree in tree(),
        script in prop::collection::vec(act(), 0..12),
        is_streamed in any::<bool>(),
    ) {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_time()
            .start_paused(true)
            .build()
            .unwrap();
        runtime.block_on(check(&tree, &script, is_streamed))?;
    }
}

fn alone(model: Model, stack: impl IntoIterator<Item = Around>) -> Tree {
    Tree {
        model,
        stack: stack.into_iter().collect(),
        tools: Vec::new(),
        helper: None,
    }
}

fn helped(tree: Tree, helper: Tree) -> Tree {
    Tree {
        helper: Some(Box::new(helper)),
        ..tree
    }
}

fn cached() -> Model {
    Model::Layered(Around::Cache, Box::new(Model::Host))
}

#[tokio::test(start_paused = true)]
async fn the_copy_that_a_cache_shows_of_a_stream_that_breaks_is_no_attempt() {
    let tree = alone(Model::Host, [Around::Cache]);
    check(&tree, &[Act::Breaks], true).await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_replay_that_a_callback_replaces_costs_nothing() {
    let helper = alone(Model::Host, [Around::Replaces, Around::Cache]);
    let tree = Tree {
        tools: vec![alone(Model::Host, [])],
        ..helped(alone(Model::Host, []), helper)
    };
    for is_streamed in [false, true] {
        let script = [Act::Answers, Act::Calls];
        check(&tree, &script, is_streamed).await.unwrap();
    }
}

#[tokio::test(start_paused = true)]
async fn a_call_dropped_in_a_callback_inside_a_layer_has_not_reached_its_model() {
    let helper = helped(alone(Model::Host, [Around::Retry]), alone(Model::Host, []));
    let tree = helped(alone(Model::Host, []), helper);
    check(&tree, &[Act::Hangs], true).await.unwrap();
}

/// Both attempts of the outer call have a helper, and the helpers share one call.
#[tokio::test(start_paused = true)]
async fn a_call_that_two_attempts_of_one_run_share_is_counted_once() {
    let hedged = || alone(Model::Host, [Around::Hedge]);
    let in_stack = alone(Model::Host, [Around::TowerTimeout, Around::Cache]);
    let at_target = alone(cached(), []);
    for helper in [in_stack, at_target] {
        let tree = helped(hedged(), helper);
        for act in [Act::AnswersLate, Act::Hangs] {
            for is_streamed in [false, true] {
                check(&tree, &[act, act], is_streamed).await.unwrap();
            }
        }
    }
}

#[tokio::test(start_paused = true)]
async fn who_waits_for_a_shared_call_has_no_attempt_of_its_own() {
    let tree = alone(cached(), [Around::Hedge]);
    for act in [Act::AnswersLate, Act::Hangs] {
        check(&tree, &[act], true).await.unwrap();
    }
}
