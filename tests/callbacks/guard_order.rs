//! Which orders of middleware `build` warns about, and which not.

use std::fmt::Debug;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use tower::layer::layer_fn;
use tower::{Layer, ServiceBuilder};
use tower_agent::callback::{before_model, before_tool};
use tower_agent::model::BoxModel;
use tower_agent::testing::{ScriptedModel, Turn};
use tower_agent::{
    Agent, AgentBuilder, Callback, Callbacks, Effect, Error, ModelRequest, Result, Tool,
    ToolRequest,
};
use tower_agent_middleware::approval::Approval;
use tower_agent_middleware::budget::{Budget, Limits};
use tower_agent_middleware::fallback::Fallback;
use tower_agent_middleware::guardrail::{Guardrail, Verdict};
use tower_agent_middleware::redact::{Detector, Redact};
use tower_agent_middleware::retry::CallRetryLayer;
use tower_agent_middleware::timeout::CallTimeoutLayer;
use tracing::field::{Field, Visit};
use tracing::span::{Attributes, Id, Record};
use tracing::{Event, Level, Metadata, Subscriber};

const MINUTE: Duration = Duration::from_secs(60);

/// The warnings of the crate, field by field.
#[derive(Clone, Default)]
struct Warnings(Arc<Mutex<Vec<Fields>>>);

#[derive(Clone, Debug, Default, PartialEq)]
struct Fields(Vec<(&'static str, String)>);

impl Fields {
    fn get(&self, name: &str) -> &str {
        &self
            .0
            .iter()
            .find(|(field, _)| *field == name)
            .expect("the field is recorded")
            .1
    }
}

impl Visit for Fields {
    fn record_debug(&mut self, field: &Field, value: &dyn Debug) {
        self.0.push((field.name(), format!("{value:?}")));
    }

    fn record_str(&mut self, field: &Field, value: &str) {
        self.0.push((field.name(), value.to_owned()));
    }
}

impl Subscriber for Warnings {
    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        metadata.target().starts_with("tower_agent") && *metadata.level() == Level::WARN
    }

    fn new_span(&self, _: &Attributes<'_>) -> Id {
        Id::from_u64(1)
    }

    fn record(&self, _: &Id, _: &Record<'_>) {}

    fn record_follows_from(&self, _: &Id, _: &Id) {}

    fn event(&self, event: &Event<'_>) {
        let mut fields = Fields::default();
        event.record(&mut fields);
        self.0.lock().unwrap().push(fields);
    }

    fn enter(&self, _: &Id) {}

    fn exit(&self, _: &Id) {}
}

/// Returns the warnings of building it.
fn warnings(builder: AgentBuilder) -> Vec<Fields> {
    let warnings = Warnings::default();
    tracing::subscriber::with_default(warnings.clone(), || {
        builder.tools_of_runs(["pay"]).build().unwrap()
    });
    std::mem::take(&mut warnings.0.lock().unwrap())
}

/// Asserts that there is one warning: about these two, around this call, with this advice.
#[track_caller]
fn assert_warns(builder: AgentBuilder, call: &str, outer: &str, inner: &str, advice: &str) {
    let warnings = warnings(builder.name("clerk"));
    let [warning] = &warnings[..] else {
        panic!("one warning, not {warnings:?}")
    };
    assert_eq!(warning.get("agent"), "clerk");
    assert_eq!(warning.get("call"), call);
    assert_eq!((warning.get("outer"), warning.get("inner")), (outer, inner));
    let message = warning.get("message");
    assert!(
        message.starts_with("wrong middleware order: ") && message.contains(advice),
        "{message}"
    );
}

#[track_caller]
fn assert_silent(builder: AgentBuilder) {
    assert_eq!(warnings(builder), []);
}

fn model() -> ScriptedModel {
    ScriptedModel::always(Turn::from_text("hi"))
}

fn agent() -> AgentBuilder {
    Agent::builder(model())
}

fn two_models() -> AgentBuilder {
    Agent::builder(Fallback::new(model()).or(model()))
}

fn budget() -> Budget {
    Budget::new(Limits::new().model_calls(9))
}

fn redact() -> Redact {
    Redact::new([Detector::email()]).unwrap()
}

fn approval() -> Approval {
    Approval::of_tools(["pay"])
}

async fn passes(_: ModelRequest) -> Result<Verdict> {
    Ok(Verdict::Pass)
}

/// Outside it counts calls, inside it counts attempts: both are meant.
#[test]
fn a_budget_may_be_on_either_side_of_a_retry() {
    assert_silent(
        agent()
            .on_model(budget())
            .model_layer(CallRetryLayer::new()),
    );
    assert_silent(
        agent()
            .global_callbacks(budget())
            .model_layer(CallRetryLayer::new()),
    );
    assert_silent(
        agent()
            .model_layer(CallRetryLayer::new())
            .on_model(budget()),
    );
    assert_silent(
        agent()
            .global_callbacks(budget())
            .agent_layer(CallRetryLayer::new()),
    );
    assert_silent(
        agent()
            .global_callbacks(budget())
            .tool_layer(CallRetryLayer::new()),
    );
}

#[test]
fn a_retry_outside_an_approval() {
    let advice = "register the approval before the retry";
    let outer = agent()
        .tool_layer(CallRetryLayer::new())
        .on_tool(approval());
    assert_warns(outer, "tool", "CallRetryLayer", "Approval", advice);
    let apart = agent()
        .tool_layer(CallRetryLayer::new())
        .tool_layer(CallTimeoutLayer::new(MINUTE));
    assert_warns(
        apart.on_tool(approval()),
        "tool",
        "CallRetryLayer",
        "Approval",
        advice,
    );
    assert_silent(
        agent()
            .on_tool(approval())
            .tool_layer(CallRetryLayer::new()),
    );
    assert_silent(
        agent()
            .model_layer(CallRetryLayer::new())
            .on_tool(approval()),
    );
}

#[test]
fn a_retry_outside_a_fallback() {
    let advice = "put the retry around each of the models";
    let outer = two_models().model_layer(CallRetryLayer::new());
    assert_warns(outer, "model", "CallRetryLayer", "Fallback", advice);
    let retried = CallRetryLayer::new().layer(model());
    assert_silent(Agent::builder(Fallback::new(retried.clone()).or(retried)));
}

#[test]
fn a_timeout_outside_a_fallback() {
    let advice = "put a timeout around each of the models";
    let outer = two_models().model_layer(CallTimeoutLayer::new(MINUTE));
    assert_warns(outer, "model", "CallTimeoutLayer", "Fallback", advice);
    assert_silent(two_models().tool_layer(CallTimeoutLayer::new(MINUTE)));
    let timed = CallTimeoutLayer::new(MINUTE).layer(model());
    assert_silent(Agent::builder(Fallback::new(timed.clone()).or(timed)));
}

#[test]
fn there_is_one_warning_for_each_wrong_pair() {
    let builder = two_models()
        .on_model(budget())
        .model_layer(CallRetryLayer::new())
        .model_layer(CallTimeoutLayer::new(MINUTE))
        .tool_layer(CallRetryLayer::new())
        .on_tool(approval());

    let pairs: Vec<_> = warnings(builder)
        .iter()
        .map(|warning| {
            (
                warning.get("outer").to_owned(),
                warning.get("inner").to_owned(),
            )
        })
        .collect();

    let expected = [
        ("CallRetryLayer", "Fallback"),
        ("CallTimeoutLayer", "Fallback"),
        ("CallRetryLayer", "Approval"),
    ];
    assert_eq!(
        pairs,
        expected.map(|(outer, inner)| (outer.to_owned(), inner.to_owned()))
    );
}

/// The order that the guide recommends.
#[test]
fn the_recommended_order_has_no_warning() {
    let attempt = || {
        ServiceBuilder::new()
            .layer(CallRetryLayer::new())
            .concurrency_limit(4)
            .layer(
                CallTimeoutLayer::new(MINUTE)
                    .first_delta(MINUTE)
                    .idle(MINUTE),
            )
            .service(model())
    };
    let builder = Agent::builder(Fallback::new(attempt()).or(attempt()))
        .global_callbacks(redact())
        .global_callbacks(budget())
        .model_layer(Guardrail::before(passes))
        .on_tool(approval())
        .on_tool(before_tool(|_| ()))
        .tool_layer(CallRetryLayer::new())
        .tool_layer(CallTimeoutLayer::new(MINUTE));
    assert_silent(builder);

    // The other place of the budget.
    let builder = agent()
        .global_callbacks(redact())
        .model_layer(Guardrail::before(passes))
        .model_layer(CallRetryLayer::new())
        .on_model(budget())
        .model_layer(CallTimeoutLayer::new(MINUTE));
    assert_silent(builder);
}

#[derive(Clone)]
struct Never;

impl<R, T> tower::retry::Policy<R, T, Error> for Never {
    type Future = std::future::Ready<()>;

    fn retry(&mut self, _: &mut R, _: &mut Result<T>) -> Option<Self::Future> {
        None
    }

    fn clone_request(&mut self, _: &R) -> Option<R> {
        None
    }
}

#[test]
fn towers_own_layers_are_not_seen() {
    let builder = two_models()
        .on_model(budget())
        .model_layer(tower::retry::RetryLayer::new(Never))
        .model_layer(tower::timeout::TimeoutLayer::new(MINUTE))
        .tool_layer(tower::retry::RetryLayer::new(Never))
        .on_tool(approval());
    assert_silent(builder);
}

#[test]
fn layers_in_a_stack_of_towers_are_seen() {
    let advice = "put the retry around each of the models";
    let retry = || {
        ServiceBuilder::new()
            .concurrency_limit(4)
            .layer(CallRetryLayer::new())
    };
    let stack = two_models().model_layer(retry().into_inner());
    assert_warns(stack, "model", "CallRetryLayer", "Fallback", advice);
    let builder = two_models().model_layer(retry());
    assert_warns(builder, "model", "CallRetryLayer", "Fallback", advice);
    let tuple = two_models().model_layer((layer_fn(|it| it), CallRetryLayer::new()));
    assert_warns(tuple, "model", "CallRetryLayer", "Fallback", advice);
    let band = || Callbacks::new().with(approval());
    assert_warns(
        agent().tool_layer(retry()).tool_layer(band()),
        "tool",
        "CallRetryLayer",
        "Approval",
        "register the approval before the retry",
    );
    // The first layer of a stack is the outermost.
    let stack = ServiceBuilder::new()
        .layer(band())
        .layer(CallRetryLayer::new())
        .into_inner();
    assert_silent(agent().tool_layer(stack));
}

#[test]
fn layers_that_another_layer_applies_are_seen() {
    let advice = "put the retry around each of the models";
    let retried = layer_fn(|inner| CallRetryLayer::new().layer(BoxModel::new(inner)));
    let builder = two_models().model_layer(retried);
    assert_warns(builder, "model", "CallRetryLayer", "Fallback", advice);
}

#[test]
fn what_is_around_a_model_before_the_agent_has_it_is_not_seen() {
    let retried = || CallRetryLayer::new().layer(CallTimeoutLayer::new(MINUTE).layer(model()));
    assert_silent(Agent::builder(retried()).on_model(budget()));
    assert_silent(Agent::builder(BoxModel::new(retried())).on_model(budget()));
    assert_silent(Agent::builder(Fallback::new(retried()).or(retried())).on_model(budget()));
    let fallback = || Fallback::new(model()).or(model());
    assert_silent(Agent::builder(CallRetryLayer::new().layer(fallback())));
    assert_silent(Agent::builder(Fallback::new(
        CallRetryLayer::new().layer(fallback()),
    )));
}

#[test]
fn an_agent_that_is_built_inside_a_layer_has_its_own_order() {
    let layer = layer_fn(|inner| {
        assert_warns(
            two_models().model_layer(CallRetryLayer::new()),
            "model",
            "CallRetryLayer",
            "Fallback",
            "put the retry around each of the models",
        );
        inner
    });
    assert_silent(two_models().model_layer(layer));
}

#[test]
fn a_callback_with_the_name_of_a_guard_is_no_guard() {
    let named = before_tool(|_| ()).named("Approval");
    assert_silent(agent().tool_layer(CallRetryLayer::new()).on_tool(named));
    struct Approval;
    impl Callback<ToolRequest> for Approval {}
    assert_silent(agent().tool_layer(CallRetryLayer::new()).on_tool(Approval));
}

#[test]
fn a_redaction_with_something_on_its_open_side() {
    let advice = "before everything else";
    let note = || before_model(|_| ()).named("note");
    let late = agent().on_model(note()).callbacks(redact());
    assert_warns(late, "model", "note", "Redact", advice);
    let late = agent()
        .model_layer(tower::timeout::TimeoutLayer::new(MINUTE))
        .callbacks(redact());
    assert_warns(late, "model", "TimeoutLayer", "Redact", advice);
    let bare = agent().on_model(redact()).on_model(note());
    assert_warns(bare, "model", "Redact", "note", advice);
    let bare = agent().on_tool(redact()).on_tool(approval());
    assert_warns(bare, "tool", "Redact", "Approval", advice);
    assert_silent(
        agent()
            .callbacks(redact())
            .on_model(note())
            .on_tool(approval()),
    );
    assert_silent(agent().on_tool(approval()).callbacks(redact()));
}

fn tool(name: &str, effect: Effect) -> Tool {
    Tool::function(name, "Does it.", |_: ()| ()).effect(effect)
}

/// Returns the tools whose retry has no effect.
fn idle(builder: AgentBuilder) -> Vec<String> {
    let warnings = warnings(builder);
    let told = warnings.iter().map(|warning| {
        let message = warning.get("message");
        assert!(message.contains(".effect(Effect::Idempotent)"), "{message}");
        assert!(message.contains("`Mutating`"), "{message}");
        warning.get("tool").to_owned()
    });
    told.collect()
}

#[test]
fn there_is_a_warning_about_a_retry_that_never_repeats_a_tool() {
    let retry = CallRetryLayer::new;
    let own = agent().tool(tool("a", Effect::Mutating).layer(retry()));
    assert_eq!(idle(own), ["a"]);
    let stack = ServiceBuilder::new()
        .concurrency_limit(4)
        .layer(retry())
        .into_inner();
    let stacked = agent().tool(tool("a", Effect::Mutating).layer(stack));
    assert_eq!(idle(stacked), ["a"]);
    let all = agent().tools(["a", "b"].map(|name| tool(name, Effect::Mutating)));
    assert_eq!(idle(all.tool_layer(retry())), ["a", "b"]);
    // One that helps some of them is there for those.
    let some = agent().tools([tool("a", Effect::Mutating), tool("b", Effect::Pure)]);
    assert_silent(some.tool_layer(retry()));
    assert_silent(agent().tool(tool("a", Effect::Idempotent).layer(retry())));
    assert_silent(agent().tool(tool("a", Effect::Mutating).layer(CallTimeoutLayer::new(MINUTE))));
}
