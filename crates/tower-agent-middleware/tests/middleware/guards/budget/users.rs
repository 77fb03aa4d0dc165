//! Budgets that belong to one user: given with a request, or found by what the request brings.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use futures::StreamExt;
use futures::future::join_all;
use serde_json::json;
use tower_agent::callback::{Bundle, after_model, before_model};
use tower_agent::{
    Action, Agent, AgentBuilder, AgentRequest, Error, ErrorKind, Message, ModelRequest,
    ModelResponse, Resolution, Result,
};
use tower_agent_middleware::approval::{Approval, Decision};
use tower_agent_middleware::budget::{Account, Budget, Limit, Limits};
use tower_agent_middleware::redact::{Detector, Redact};
use tower_agent_middleware::retry::CallRetryLayer;
use tower_agent_test::{ScriptedModel, Turn};

use super::exceeded;
use crate::guards::{ids, saved};
use test_support::log::Log;

struct User(Account);

fn account(calls: u64) -> Account {
    Account::new(Limits::new().model_calls(calls))
}

/// Charges each run to the account of its user.
fn per_user() -> Budget {
    Budget::by(|run| Ok(run.extension::<User>()?.0.clone()))
}

fn of(user: &Account) -> AgentRequest {
    AgentRequest::new("?").with_extension(User(user.clone()))
}

fn delegate(name: &str) -> Turn {
    Turn::tool(name, json!({ "request": "?" }))
}

fn says(text: &str) -> ScriptedModel {
    ScriptedModel::always(Turn::from_text(text))
}

#[tokio::test(start_paused = true)]
async fn a_budget_given_with_a_request_counts_a_retried_call_once() {
    let busy = || Turn::error(Error::new(ErrorKind::Overloaded, "busy"));
    let agent = || {
        Agent::builder(ScriptedModel::new([busy(), busy(), Turn::from_text("hi")]))
            .model_layer(CallRetryLayer::new())
            .build()
            .unwrap()
    };

    let outside = account(9);
    let request = AgentRequest::new("?").with_global_callbacks(Budget::of(outside.clone()));
    agent().run(request).await.unwrap();
    assert_eq!(outside.used().model_calls, 1);

    let inside = account(9);
    let request = AgentRequest::new("?").with_callbacks(Budget::of(inside.clone()));
    agent().run(request).await.unwrap();
    assert_eq!(inside.used().model_calls, 3);
}

#[tokio::test]
async fn a_budget_of_a_run_covers_the_calls_of_its_sub_agents() {
    let build = |configure: &dyn Fn(AgentBuilder) -> AgentBuilder| {
        let inner = Agent::builder(says("inner")).name("inner").build().unwrap();
        let model = ScriptedModel::new([delegate("inner"), Turn::from_text("done")]);
        let outer = Agent::builder(model).tool(inner.into_tool("Answers."));
        configure(outer).build().unwrap()
    };
    let given = |budget: Budget| AgentRequest::new("?").with_global_callbacks(budget);

    let agent = build(&|outer| outer);
    let user = account(3);
    agent.run(given(Budget::of(user.clone()))).await.unwrap();
    assert_eq!(user.used().model_calls, 3);

    let agent = build(&|outer| outer.global_callbacks(per_user()));
    let user = account(3);
    agent.run(of(&user)).await.unwrap();
    assert_eq!(user.used().model_calls, 3);
    assert_eq!(
        exceeded(&agent.run(of(&user)).await.unwrap_err()),
        Limit::ModelCalls(3)
    );
}

#[tokio::test]
async fn a_run_without_its_user_is_refused_before_it_costs_anything() {
    let model = ScriptedModel::new([]);
    let agent = Agent::builder(model.clone())
        .global_callbacks(per_user())
        .build()
        .unwrap();

    let error = agent.run("?").await.unwrap_err();

    assert!(error.message().contains("User"), "{error}");
    model.assert_done();
}

#[tokio::test]
async fn parallel_runs_of_a_user_share_one_limit_and_those_of_others_do_not() {
    let agent = Agent::builder(says("hi"))
        .global_callbacks(per_user())
        .build()
        .unwrap();
    let [ada, grace] = [account(2), account(2)];
    let requests = [&ada, &ada, &grace, &ada, &grace].map(of);

    let results = join_all(requests.map(|request| agent.run(request))).await;

    let refused = results.iter().filter(|result| result.is_err()).count();
    assert_eq!(refused, 1);
    assert_eq!([ada.used().model_calls, grace.used().model_calls], [2, 2]);
}

#[tokio::test]
async fn a_function_that_finds_the_account_is_asked_once_a_run_and_may_use_its_values() {
    let user = account(9);
    let asked = Arc::new(AtomicUsize::new(0));
    let budget = Budget::by({
        let (user, asked) = (user.clone(), asked.clone());
        move |run| {
            asked.fetch_add(1, Ordering::SeqCst);
            run.values().set("tenant", 1_u32);
            Ok(user.clone())
        }
    });
    let inner = Agent::builder(says("inner")).name("inner").build().unwrap();
    let agent = Agent::builder(ScriptedModel::new([
        delegate("inner"),
        Turn::from_text("done"),
    ]))
    .tool(inner.into_tool("Answers."))
    .global_callbacks(budget)
    .build()
    .unwrap();

    agent.run("?").await.unwrap();

    assert_eq!(asked.load(Ordering::SeqCst), 1);
    assert_eq!(user.used().model_calls, 3);
}

/// The other process has the account as it was saved, and is given the run's callbacks again.
#[tokio::test]
async fn an_account_goes_on_where_a_run_is_resumed_in_another_process() {
    let log = Log::default();
    let script = || ScriptedModel::new([Turn::tool("wipe", json!(1)), Turn::from_text("done")]);
    let build = |model: ScriptedModel| {
        Agent::builder(model)
            .tool(log.tool("wipe"))
            .callbacks(Approval::of_tools(["wipe"]))
    };
    let limits = || Limits::new().model_calls(2).tool_calls(1);
    let model = script();
    let first = Account::new(limits());
    let request = AgentRequest::new("?").with_global_callbacks(Budget::of(first.clone()));
    let paused = build(model.clone()).build().unwrap().run(request).await;
    let paused = paused.unwrap();
    assert_eq!(first.used().tool_calls, 0);

    let second = Account::restored(limits(), first.used());
    let yes = Resolution::resolved(&*ids(&paused)[0], Decision::Approve);
    let request = AgentRequest::resume(saved(&paused))
        .with_resolutions([yes])
        .with_global_callbacks(Budget::of(second.clone()));
    let agent = build(model).build().unwrap();
    agent.run(request).await.unwrap();

    let used = second.used();
    assert_eq!((used.model_calls, used.tool_calls), (2, 1));
    assert_eq!(second.left(), [Limit::ModelCalls(0), Limit::ToolCalls(0)]);

    // What is registered with the agent needs nothing but the user.
    let user = Account::restored(limits(), first.used());
    let yes = Resolution::resolved(&*ids(&paused)[0], Decision::Approve);
    let request = AgentRequest::resume(saved(&paused))
        .with_resolutions([yes])
        .with_extension(User(user.clone()));
    let model = says("done");
    let agent = build(model).global_callbacks(per_user()).build().unwrap();
    agent.run(request).await.unwrap();
    assert_eq!(user.used().model_calls, 2);
}

#[tokio::test]
async fn two_budgets_of_one_run_each_hold_inside_the_agents_own() {
    let [all, user, run] = [account(9), account(9), account(1)];
    let agent = Agent::builder(ScriptedModel::new([Turn::tool("look", json!(1))]))
        .tool(Log::default().tool("look"))
        .global_callbacks(Budget::of(all.clone()).named("all"))
        .build()
        .unwrap();
    let request = AgentRequest::new("?")
        .with_global_callbacks(Budget::of(user.clone()).named("user"))
        .with_global_callbacks(Budget::of(run.clone()).named("run"));
    assert!(
        agent
            .explain_for(&request)
            .to_string()
            .contains("Budget, Budget, Budget")
    );

    let error = agent.run(request).await.unwrap_err();

    assert_eq!(exceeded(&error), Limit::ModelCalls(1));
    // The refused call reached no model: it is charged to nobody.
    for account in [&all, &user, &run] {
        assert_eq!(account.used().model_calls, 1);
        assert_eq!(account.reserved().model_calls, 0);
    }
}

#[tokio::test]
async fn a_guard_that_hides_sees_what_the_callbacks_of_a_run_write() {
    let redact = || Redact::new([Detector::email()]).unwrap().redact_input();
    let writes = || {
        Bundle::new()
            .on_model(after_model(|_, _| {
                Action::Respond(ModelResponse::from_text("It is jo@example.com."))
            }))
            .on_model(before_model(|request: &mut ModelRequest| {
                let message = Message::user("Ask jo@example.com.");
                request.messages_mut().push(message);
            }))
    };
    let places: [fn(AgentBuilder, Redact) -> AgentBuilder; 2] = [
        |agent, redact| agent.global_callbacks(redact),
        |agent, redact| agent.callbacks(redact),
    ];
    for place in places {
        for is_global in [true, false] {
            let model = ScriptedModel::new([Turn::from_text("hi")]);
            let agent = place(Agent::builder(model.clone()), redact());
            let agent = agent.build().unwrap();
            let request = AgentRequest::new("?");
            let request = if is_global {
                request.with_global_callbacks(writes())
            } else {
                request.with_callbacks(writes())
            };

            let mut run = agent.stream(request);
            let mut shown = String::new();
            while let Some(event) = run.next().await {
                shown.push_str(&format!("{:?}", event.kind));
            }

            assert!(!shown.contains("jo@example.com"), "{shown}");
            let sent = model.requests();
            assert_eq!(sent.len(), 1, "{shown}");
            let last = sent[0].messages().last().unwrap().text();
            assert_eq!(last, "Ask [email].");
        }
    }
}

#[tokio::test]
async fn a_refusal_of_a_runs_budget_can_be_answered_by_the_trees_callbacks() -> Result<()> {
    let answer = tower_agent::callback::on_model_error(|_, error: &Error| match error.kind() {
        ErrorKind::BudgetExceeded => {
            tower_agent::Recovery::Fallback(ModelResponse::from_text("Please come back tomorrow."))
        }
        _ => tower_agent::Recovery::Propagate,
    });
    let agent = Agent::builder(ScriptedModel::new([]))
        .global_callbacks(Bundle::new().outermost_model(answer))
        .build()
        .unwrap();
    let request = AgentRequest::new("?").with_global_callbacks(Budget::of(account(0)));

    let response = agent.run(request).await?;

    assert_eq!(response.text(), "Please come back tomorrow.");
    Ok(())
}
