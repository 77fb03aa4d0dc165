//! Limits on what runs may spend.

mod books;
mod cut;
mod endings;
mod parts;
mod prices;
mod runs;
mod tools;
mod users;

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use futures::future::join_all;
use serde_json::json;
use tower::ServiceExt;
use tower_agent::callback::{after_agent, wrap_model};
use tower_agent::model::BoxModel;
use tower_agent::{
    Agent, BoxError, Callbacks, Error, ErrorKind, ModelRequest, ModelResponse, Request, Usage,
};
use tower_agent_middleware::budget::{Account, Budget, Exceeded, Limit, Limits, Spent};
use tower_agent_middleware::fallback::Fallback;
use tower_agent_middleware::retry::CallRetryLayer;
use tower_agent_test::{ScriptedModel, Turn};
use tower_layer::Layer;

use test_support::log::Log;

pub(crate) fn exceeded(error: &Error) -> Limit {
    assert_eq!(error.kind(), ErrorKind::BudgetExceeded, "{error}");
    assert!(!error.is_retryable());
    error.downcast_ref::<Exceeded>().expect("typed").limit
}

/// A model inside a budget of this account.
pub(crate) fn charged(account: &Account, model: BoxModel) -> BoxModel {
    BoxModel::new(
        Callbacks::new()
            .with(Budget::of(account.clone()))
            .layer(model),
    )
}

fn tokens(max: u32) -> ModelRequest {
    let mut request = ModelRequest::default();
    request.settings_mut().max_tokens = Some(max);
    request
}

/// So many model calls that each call a tool.
fn busy(calls: usize) -> Vec<Turn> {
    (0..calls).map(|n| Turn::tool("look", json!(n))).collect()
}

#[tokio::test]
async fn a_call_beyond_the_limit_is_not_made() {
    let log = Log::default();
    let model = ScriptedModel::new(busy(3));
    let agent = Agent::builder(model.clone())
        .name("looker")
        .tool(log.tool("look"))
        .global_callbacks(Budget::new(Limits::new().model_calls(3)))
        .build()
        .unwrap();

    let error = agent.run("?").await.unwrap_err();

    model.assert_done();
    assert_eq!(exceeded(&error), Limit::ModelCalls(3));
    assert_eq!(
        error.message(),
        "this call would exceed the limit: 3 model calls"
    );
    assert_eq!(&*error.call().unwrap().agent, "looker");
    assert_eq!(log.take().len(), 3);
}

#[tokio::test]
async fn a_limit_below_what_a_call_reserves_lets_none_through_and_says_so() {
    let price = |_: &str, usage: Usage| usage.total() as f64 / 100.0;
    let cases = [
        (Limits::new().tokens(1000), "1000 tokens", "4096 tokens"),
        (
            Limits::new().cost(0.5, price),
            "a cost of 0.5",
            "a cost of 40.96",
        ),
    ];
    for (limits, limit, wanted) in cases {
        let model = ScriptedModel::always(Turn::from_text("hi"));
        let agent = Agent::builder(model.clone())
            .global_callbacks(Budget::new(limits))
            .build()
            .unwrap();
        let error = agent.run("?").await.unwrap_err();
        let message =
            format!("this call would exceed the limit: {limit}; it would reserve {wanted}");
        assert!(error.message().starts_with(&message), "{error}");
        assert!(error.message().contains("`max_tokens`"), "{error}");
        assert!(error.message().contains("`Limits::reservation`"), "{error}");
        assert_eq!(
            error.downcast_ref::<Exceeded>().unwrap().wanted.to_string(),
            wanted
        );
        assert_eq!(model.requests().len(), 0);
    }

    // A tool call reserves none of it.
    let turn = Turn::tool("look", json!(1)).usage(Usage::new(20, 10));
    let agent = Agent::builder(ScriptedModel::always(turn))
        .tool(Log::default().tool("look"))
        .global_callbacks(Budget::new(Limits::new().tokens(10).reservation(10)))
        .build()
        .unwrap();
    let error = agent.run("?").await.unwrap_err();
    assert_eq!(
        error.message(),
        "this call would exceed the limit: 10 tokens"
    );
}

#[tokio::test(start_paused = true)]
async fn calls_side_by_side_never_spend_more_than_there_is() {
    let account = Account::new(Limits::new().tokens(1000).model_calls(15));
    let inside = Arc::new(AtomicU64::new(0));
    let model = {
        let (inside, account) = (inside.clone(), account.clone());
        BoxModel::new(tower::service_fn(move |_: ModelRequest| {
            let (inside, account) = (inside.clone(), account.clone());
            async move {
                inside.fetch_add(1, Ordering::SeqCst);
                tokio::time::sleep(Duration::from_secs(1)).await;
                let (used, reserved) = (account.used(), account.reserved());
                assert!(
                    used.tokens + reserved.tokens <= 1000,
                    "{used:?} {reserved:?}"
                );
                Ok::<_, BoxError>(ModelResponse::from_text("hi").with_usage(Usage::new(20, 30)))
            }
        }))
    };
    let model = charged(&account, model);
    let mut passed = Vec::new();
    for _ in 0..3 {
        let calls = (0..64).map(|_| model.clone().oneshot(tokens(100)));
        passed.push(
            join_all(calls)
                .await
                .into_iter()
                .filter(Result::is_ok)
                .count(),
        );
        assert_eq!(account.reserved(), Spent::default());
    }
    // A hundred tokens each, of which half are given back; then there are no calls left.
    assert_eq!(passed, [10, 5, 0]);
    assert_eq!(inside.load(Ordering::SeqCst), 15);
    assert_eq!(
        (account.used().model_calls, account.used().tokens),
        (15, 750)
    );
    assert_eq!(account.left(), [Limit::ModelCalls(0), Limit::Tokens(250)]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn threads_do_not_race_past_the_limit() {
    let account = Account::new(Limits::new().model_calls(40));
    let model = BoxModel::new(tower::service_fn(|_: ModelRequest| async {
        tokio::task::yield_now().await;
        Ok::<_, BoxError>(ModelResponse::from_text("hi").with_usage(Usage::new(1, 1)))
    }));
    let model = charged(&account, model);
    let tasks = (0..64).map(|number| {
        let model = model.clone();
        tokio::spawn(async move {
            if number % 3 == 0 {
                tokio::task::yield_now().await;
            }
            model.oneshot(ModelRequest::default()).await.is_ok()
        })
    });
    let passed = join_all(tasks)
        .await
        .into_iter()
        .filter(|passed| *passed.as_ref().unwrap());
    assert_eq!(passed.count(), 40);
    assert_eq!(account.used().model_calls, 40);
    assert_eq!(account.reserved(), Spent::default());
}

#[tokio::test]
async fn each_run_has_all_of_a_new_budget_and_an_account_is_used_up_once() {
    let log = Log::default();
    let run = async |budget: Budget| {
        let turns = [busy(1), vec![Turn::from_text("done")]].concat();
        let model = ScriptedModel::new([turns.clone(), turns].concat());
        let agent = Agent::builder(model)
            .tool(log.tool("look"))
            .callbacks(budget)
            .build()
            .unwrap();
        [agent.run("?").await, agent.run("?").await]
    };
    let limits = || Limits::new().model_calls(2);

    let [first, second] = run(Budget::new(limits())).await;
    assert!(first.is_ok() && second.is_ok());

    let account = Account::new(limits());
    let [first, second] = run(Budget::of(account.clone())).await;
    assert!(first.is_ok());
    assert_eq!(exceeded(&second.unwrap_err()), Limit::ModelCalls(2));
    assert_eq!(
        (account.used().model_calls, account.used().tool_calls),
        (2, 1)
    );
}

#[tokio::test]
async fn a_tree_of_agents_shares_what_its_root_was_given() {
    let log = Log::default();
    let worker = |name: &str, calls| {
        let turns = [busy(calls), vec![Turn::from_text("found")]].concat();
        let agent = Agent::builder(ScriptedModel::new(turns))
            .name(name)
            .tool(log.tool("look"));
        agent.build().unwrap()
    };
    let boss = |limit| {
        let model = ScriptedModel::new([
            Turn::tool("pair", json!({ "request": "?" })),
            Turn::from_text("done"),
        ]);
        let pair = Agent::parallel("pair").agents([worker("a", 2), worker("b", 1)]);
        let budget = Budget::new(Limits::new().model_calls(limit).tool_calls(limit));
        let account = Arc::new(Mutex::new(None));
        let found = account.clone();
        let agent = Agent::builder(model)
            .tool(pair.build().unwrap().into_tool(""))
            .global_callbacks(budget.clone())
            .on_agent(after_agent(move |request, _| {
                *found.lock().unwrap() = Some(budget.account(request.context())?);
                Ok(())
            }));
        (agent.build().unwrap(), account)
    };

    let (agent, account) = boss(7);
    agent.run("?").await.unwrap();
    let used = account.lock().unwrap().as_ref().unwrap().used();
    assert_eq!((used.model_calls, used.tool_calls), (7, 4));

    let (agent, _) = boss(6);
    assert_eq!(
        exceeded(&agent.run("?").await.unwrap_err()),
        Limit::ModelCalls(6)
    );
}

#[tokio::test]
async fn outside_a_retry_it_counts_the_call_and_inside_every_attempt() {
    let retry = || {
        wrap_model(|request: ModelRequest, mut next| async move {
            match next.run(request.clone()).await {
                Err(error) if error.is_retryable() => next.run(request).await,
                result => result,
            }
        })
    };
    let busy = || Turn::error(Error::new(ErrorKind::Overloaded, "busy"));
    let turns = || ScriptedModel::new([busy(), Turn::from_text("hi")]);

    let account = Account::new(Limits::new());
    let budget = || Budget::of(account.clone());
    let outside = Agent::builder(turns())
        .on_model(budget())
        .model_layer(retry())
        .build()
        .unwrap();
    outside.run("?").await.unwrap();
    assert_eq!(account.used().model_calls, 1);

    let inside = Agent::builder(turns())
        .model_layer(retry())
        .on_model(budget())
        .build()
        .unwrap();
    inside.run("?").await.unwrap();
    assert_eq!(account.used().model_calls, 3);

    let one = Budget::new(Limits::new().model_calls(1));
    let inside = Agent::builder(turns())
        .model_layer(retry())
        .on_model(one)
        .build()
        .unwrap();
    assert_eq!(
        exceeded(&inside.run("?").await.unwrap_err()),
        Limit::ModelCalls(1)
    );
}

#[tokio::test]
async fn two_budgets_around_one_call_keep_books_of_their_own() {
    let [mine, ours] = [(); 2].map(|()| Account::new(Limits::new().tokens(10_000)));
    let model = ScriptedModel::new([
        Turn::from_text("hi").usage(Usage::new(3, 4)),
        Turn::from_text(""),
    ]);
    let agent = Agent::builder(model)
        .on_model(Budget::of(mine.clone()))
        .on_model(Budget::of(ours.clone()))
        .global_callbacks(Budget::of(ours.clone()))
        .build()
        .unwrap();

    agent.run("?").await.unwrap();

    assert_eq!((mine.used().model_calls, mine.used().tokens), (1, 7));
    assert_eq!(
        (ours.used().model_calls, ours.used().tokens),
        (2, 14),
        "it stands there twice"
    );
    assert_eq!([mine.reserved(), ours.reserved()], [Spent::default(); 2]);
}

#[tokio::test(start_paused = true)]
async fn no_call_begins_when_the_time_is_up() {
    let log = Log::default();
    let slow = |turn: Turn| turn.latency(Duration::from_secs(4));
    let model = ScriptedModel::new(busy(3).into_iter().map(slow));
    let limits = Limits::new().time(Duration::from_secs(10));
    let account = Account::new(limits);
    let agent = Agent::builder(model.clone())
        .tool(log.tool("look"))
        .callbacks(Budget::of(account.clone()))
        .build()
        .unwrap();

    tokio::time::advance(Duration::from_secs(60)).await;
    assert_eq!(
        account.left(),
        [Limit::Time(Duration::from_secs(10))],
        "it has not begun"
    );
    let error = agent.run("?").await.unwrap_err();

    model.assert_done();
    assert_eq!(exceeded(&error), Limit::Time(Duration::from_secs(10)));
    assert_eq!(
        log.take().len(),
        2,
        "the third call came to its end after 12 s"
    );
    assert_eq!(account.used().time, Duration::from_secs(12));
    assert_eq!(account.left(), [Limit::Time(Duration::ZERO)]);
}

#[tokio::test]
async fn a_share_that_is_used_is_warned_of_once() {
    let log = Log::default();
    let warned = Log::default();
    let limits = Limits::new()
        .model_calls(10)
        .tool_calls(4)
        .tokens(1000)
        .reservation(500)
        .warn_at(0.5, {
            let warned = warned.clone();
            move |limit, share| warned.note(format!("{share} of {limit}"))
        });
    let turns = busy(4).into_iter().chain([Turn::from_text("done")]);
    let model = ScriptedModel::new(turns.map(|turn| turn.usage(Usage::new(50, 50))));
    let agent = Agent::builder(model)
        .tool(log.tool("look"))
        .callbacks(Budget::new(limits))
        .build()
        .unwrap();

    agent.run("?").await.unwrap();

    let expected = [
        "0.5 of 4 tool calls",
        "0.5 of 10 model calls",
        "0.5 of 1000 tokens",
    ];
    assert_eq!(warned.take(), expected);
}

/// The account receives the request's data about its run.
#[tokio::test]
async fn a_budget_outside_an_agent_is_for_the_context_of_its_calls() {
    let model = BoxModel::new(ScriptedModel::always(Turn::from_text("hi")));
    let budget = Budget::new(Limits::new().model_calls(1));
    let model = BoxModel::new(Callbacks::new().with(budget.clone()).layer(model));
    let request = ModelRequest::default();

    model.clone().oneshot(request.clone()).await.unwrap();
    let error = model.clone().oneshot(request.clone()).await.unwrap_err();
    assert_eq!(exceeded(&error), Limit::ModelCalls(1));
    assert_eq!(
        budget
            .account(request.context())
            .unwrap()
            .used()
            .model_calls,
        1
    );
    model.oneshot(ModelRequest::default()).await.unwrap();
}

/// The budget's clones around each of the models count what a retry and a fallback make of a call.
#[tokio::test(start_paused = true)]
async fn clones_of_a_budget_around_each_model_count_every_attempt() {
    for (limit, answers) in [(3, true), (2, false)] {
        let budget = Budget::new(Limits::new().model_calls(limit));
        let down = || Turn::error(Error::new(ErrorKind::Overloaded, "down"));
        let large = ScriptedModel::new([down(), down()]);
        let small = ScriptedModel::new([Turn::from_text("hi")]);
        let counted = |model: &ScriptedModel| {
            let counted = Callbacks::new().with(budget.clone()).layer(model.clone());
            BoxModel::new(CallRetryLayer::new().max_attempts(2).layer(counted))
        };
        let models = Fallback::new(counted(&large)).or(counted(&small));

        let result = Agent::builder(models).build().unwrap().run("?").await;

        assert_eq!(large.requests().len(), 2);
        assert_eq!(small.requests().len(), usize::from(answers));
        match result {
            Ok(response) => assert!(answers && response.text() == "hi"),
            Err(error) => assert!(!answers && error.to_string().contains("budget"), "{error}"),
        }
    }
}
