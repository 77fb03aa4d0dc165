//! The ground of a layer that journals calls: names, effects, saved requests, its position.

use std::sync::{Arc, Mutex};

use serde_json::{Value, json};
use tower_agent::agent::{BuildError, SavedRequest};
use tower_agent::callback::{Bundle, Next, Wrap, before_model, before_tool, wrap};
use tower_agent::context::{EffectLog, Effects};
use tower_agent::message::ToolCall;
use tower_agent::{
    Agent, AgentRequest, Error, Request, Resolution, RunContext, State, Tool, ToolRequest,
};
use tower_agent_middleware::approval::{Approval, Decision};
use tower_agent_middleware::budget::{Budget, Limits};
use tower_agent_test::{ScriptedModel, Turn};

/// A journal whose layers note what they see.
fn journal(trace: &Trace) -> Bundle {
    Bundle::new().journal(
        wrapping("agent journal", trace),
        wrapping("model journal", trace),
        wrapping("tool journal", trace),
    )
}

fn wrapping<R: Request>(name: &'static str, trace: &Trace) -> Wrap<R> {
    let trace = trace.clone();
    wrap(move |request, mut next: Next<R>| {
        trace.lock().unwrap().push(name);
        async move { next.run(request).await }
    })
}

type Trace = Arc<Mutex<Vec<&'static str>>>;

fn model() -> ScriptedModel {
    ScriptedModel::always(Turn::from_text("Yes."))
}

#[tokio::test]
async fn a_journal_is_outside_everything_else_wherever_it_is_registered() {
    let trace = Trace::default();
    let others = Bundle::new()
        .agent_layer(wrapping("agent layer", &trace))
        .model_layer(wrapping("model layer", &trace));
    let agent = Agent::builder(model())
        .model_layer(wrapping("own layer", &trace))
        .global_callbacks(others.clone())
        .global_callbacks(journal(&trace))
        .build()
        .unwrap();
    assert!(agent.is_durable());
    agent.run("Hi.").await.unwrap();
    let order = [
        "agent journal",
        "agent layer",
        "model journal",
        "model layer",
        "own layer",
    ];
    assert_eq!(*trace.lock().unwrap(), order);
    let lines = agent.explain().to_string();
    // The journal is around the tools as well.
    assert_eq!(lines.matches("[wrap").count(), order.len() + 1, "{lines}");

    // The journal of a run, too.
    trace.lock().unwrap().clear();
    let agent = Agent::builder(model())
        .model_layer(wrapping("own layer", &trace))
        .global_callbacks(others)
        .build()
        .unwrap();
    assert!(!agent.is_durable());
    let request = AgentRequest::new("Hi.").with_callbacks(journal(&trace));
    agent.run(request).await.unwrap();
    assert_eq!(*trace.lock().unwrap(), order);
}

#[test]
fn a_journal_of_one_agent_alone_does_not_build() {
    let own = Agent::builder(model())
        .callbacks(journal(&Trace::default()))
        .build();
    let error = own.unwrap_err();
    assert!(matches!(error, BuildError::NotDurable { .. }), "{error}");
}

/// Notes the step path of each call.
fn noting(paths: &Arc<Mutex<Vec<String>>>) -> Bundle {
    let note = |paths: &Arc<Mutex<Vec<String>>>, context: &RunContext| {
        paths
            .lock()
            .unwrap()
            .push(format!("{} {}", context.step_path(), context.iteration()));
    };
    let (of_models, of_tools) = (paths.clone(), paths.clone());
    Bundle::new()
        .on_model(before_model(move |request| {
            note(&of_models, request.context())
        }))
        .on_tool(before_tool(move |request| {
            note(&of_tools, request.context())
        }))
}

#[tokio::test]
async fn agents_of_one_name_in_one_call_have_names_of_their_own_for_their_steps() {
    let worker = ScriptedModel::always(Turn::from_text("Done."));
    let worker = Agent::builder(worker).name("worker").build().unwrap();
    let both = Tool::function_with("both", "Asks two.", move |_: Value, call: ToolRequest| {
        let run =
            |text: &str| worker.run(AgentRequest::new(text).with_context(call.context().clone()));
        let (one, other) = (run("One."), run("Two."));
        async move {
            let (one, other) = futures::join!(one, other);
            Ok::<_, Error>(one?.text() + &other?.text())
        }
    });
    let script = [Turn::tool("both", json!({})), Turn::from_text("Both.")];
    let paths = Arc::<Mutex<Vec<_>>>::default();
    let boss = Agent::builder(ScriptedModel::new(script))
        .name("boss")
        .tool(both);
    let boss = boss.global_callbacks(noting(&paths)).build().unwrap();
    boss.run("Both.").await.unwrap();
    let call = paths.lock().unwrap()[1]
        .strip_suffix(" 0")
        .unwrap()
        .to_owned();
    let expected = [
        "boss 0".to_owned(),
        format!("{call} 0"),
        format!("{call}/worker 0"),
        format!("{call}/worker//2 0"),
        "boss 1".to_owned(),
    ];
    assert_eq!(*paths.lock().unwrap(), expected);
}

#[test]
fn chance_and_keys_depend_on_the_run_and_the_call_alone() {
    let context = |run: &str| AgentRequest::new("").with_run_id(run).context().clone();
    let one = context("run 1").chance("backoff");
    assert_eq!(one, context("run 1").chance("backoff"));
    assert_ne!(one, context("run 1").chance("other"));
    assert_ne!(one, context("run 2").chance("backoff"));
    assert!((0.0..1.0).contains(&one));

    let key = |run: &str, amount: u32| {
        let call = ToolCall::new("call_1", "pay", json!({ "amount": amount }));
        ToolRequest::new(call)
            .with_context(context(run))
            .idempotency_key()
    };
    assert_eq!(key("run 1", 5), key("run 1", 5));
    assert_ne!(key("run 1", 5), key("run 1", 6));
    assert_ne!(key("run 1", 5), key("run 2", 5));
}

#[test]
fn a_call_has_the_effects_that_were_made_through_its_context() {
    let state = State::from_iter([("old".to_owned(), json!(1)), ("kept".to_owned(), json!(1))]);
    let context = AgentRequest::new("")
        .with_state(state.clone())
        .context()
        .clone();
    let (outer, outer_log) = EffectLog::collect(&context, "outer");
    let (inner, inner_log) = EffectLog::collect(&outer, "inner");
    inner.state().set("new", 1);
    inner.state().update("new", |value| *value = json!(2));
    inner.state().remove("old");
    inner.private_state().set("secret", "s3cret");
    outer.state().set("outer", true);
    context.state().set("elsewhere", true);
    assert_eq!(state.get("new"), Some(json!(2)));
    assert!(!format!("{inner_log:?}").contains("s3cret"));

    let stored = serde_json::to_string(&inner_log.effects()).unwrap();
    let effects: Effects = serde_json::from_str(&stored).unwrap();
    assert_eq!(effects, inner_log.effects());
    let state = State::from_iter([("old".to_owned(), json!(1)), ("kept".to_owned(), json!(1))]);
    let context = AgentRequest::new("").with_state(state).context().clone();
    effects.apply(&context, "inner");
    let now = serde_json::to_value(context.state().snapshot()).unwrap();
    assert_eq!(now, json!({ "kept": 1, "new": 2 }));
    assert_eq!(context.private_state().get("secret"), Some(json!("s3cret")));
    assert_eq!(
        serde_json::to_value(outer_log.effects()).unwrap()["state"]["set"]["outer"],
        true
    );
}

#[tokio::test]
async fn a_budget_is_charged_once_for_a_call_whose_effects_are_applied() {
    let budget = Budget::new(Limits::new().model_calls(10));
    let agent = Agent::builder(model())
        .global_callbacks(budget.clone())
        .build()
        .unwrap();
    let context = AgentRequest::new("").context().clone();
    let (inside, log) = EffectLog::collect(&context, "run/1");
    agent
        .run(AgentRequest::new("Hi.").with_context(inside))
        .await
        .unwrap();
    let effects = log.effects();

    // In the process that made the call, and in another one, before and after the budget is used.
    for used in [false, true] {
        let other = AgentRequest::new("").context().clone();
        if used {
            budget.account(&other).unwrap();
        }
        effects.apply(&other, "run/1");
        effects.apply(&other, "run/1");
        assert_eq!(budget.account(&other).unwrap().used().model_calls, 1);
    }
    effects.apply(&context, "run/1");
    assert_eq!(budget.account(&context).unwrap().used().model_calls, 1);
}

#[tokio::test]
async fn two_budgets_of_one_name_cannot_be_told_apart_in_a_journal() {
    let budgets = |one: Budget, other: Budget| Bundle::from(one).and(Bundle::from(other));
    let run = async |budgets: Bundle| {
        let agent = Agent::builder(model())
            .global_callbacks(budgets)
            .build()
            .unwrap();
        let (context, _log) = EffectLog::collect(&RunContext::default(), "run/1");
        agent
            .run(AgentRequest::new("Hi.").with_context(context))
            .await
    };
    let new = || Budget::new(Limits::new().model_calls(10));
    let error = run(budgets(new(), new())).await.unwrap_err();
    assert!(
        error.message().contains("several budgets named `budget`"),
        "{error}"
    );
    assert!(run(budgets(new(), new().named("other"))).await.is_ok());
}

#[tokio::test]
async fn a_saved_request_makes_the_same_request_again() {
    let script = || [Turn::tool("pay", json!({})), Turn::from_text("Paid.")];
    let model = ScriptedModel::new(script());
    let agent = Agent::builder(model)
        .tool(Tool::function("pay", "Pays.", |_: Value| "paid"))
        .on_tool(Approval::of_tools(["pay"]))
        .build()
        .unwrap();
    let first = AgentRequest::new("Pay.").with_run_id("run 1");
    let saved = serde_json::to_string(&SavedRequest::from(&first)).unwrap();
    let first: SavedRequest = serde_json::from_str(&saved).unwrap();
    assert_eq!(serde_json::to_string(&first).unwrap(), saved);
    let paused = agent.run(AgentRequest::from(first)).await.unwrap();
    let yes = Resolution::resolved(&paused.interrupts()[0].id, Decision::Approve);

    let second = AgentRequest::resume(paused.checkpoint()).with_resolutions([yes]);
    let second = SavedRequest::from(&second);
    assert_eq!(
        (second.checkpoint().head.turn, second.resolutions().len()),
        (1, 1)
    );
    let stored = serde_json::to_string(&second).unwrap();
    let second: SavedRequest = serde_json::from_str(&stored).unwrap();
    let answer = agent.run(AgentRequest::from(second)).await.unwrap();
    assert_eq!(
        (answer.text(), answer.checkpoint().head.turn),
        ("Paid.".into(), 2)
    );
}
