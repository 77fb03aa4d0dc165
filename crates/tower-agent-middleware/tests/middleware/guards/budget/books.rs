//! The charge of a call, however it ends.

use std::future::Future;
use std::pin::Pin;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll};
use std::time::Duration;

use futures::StreamExt;
use futures::task::noop_waker;
use proptest::prelude::*;
use tower::ServiceExt;
use tower_agent::callback::{after_model, before_model, before_tool, on_model_error};
use tower_agent::message::Metadata;
use tower_agent::model::BoxModel;
use tower_agent::stream::EventKind;
use tower_agent::{
    Action, Agent, BoxError, Callbacks, Error, ErrorKind, Interrupt, Message, ModelRequest,
    ModelResponse, Recovery, Usage,
};
use tower_agent_middleware::budget::{Account, Budget, Limit, Limits, Spent};
use tower_agent_test::{ScriptedModel, Turn};
use tower_layer::Layer;

use super::{charged, exceeded, tokens};
use test_support::log::Log;
use test_support::property::cases;

fn answering(response: ModelResponse) -> BoxModel {
    BoxModel::new(ScriptedModel::always(Turn::response(response)))
}

fn per_token() -> Limits {
    Limits::new()
        .tokens(10_000)
        .cost(100.0, |_, usage| usage.total() as f64 / 10.0)
}

fn taken(spent: Spent) -> (u64, u64, f64) {
    (spent.model_calls, spent.tokens, spent.cost)
}

#[tokio::test]
async fn an_answer_is_charged_its_usage_or_the_reservation_without_one() {
    let answer = ModelResponse::from_text("hi");
    let used = answer.clone().with_usage(Usage::new(20, 10));
    let cases = [
        (used, tokens(100), (1, 30, 3.0)),
        (answer.clone(), tokens(100), (1, 100, 10.0)),
        (answer, ModelRequest::default(), (1, 500, 50.0)),
    ];
    for (answer, request, spent) in cases {
        let account = Account::new(per_token().reservation(500));
        charged(&account, answering(answer))
            .oneshot(request)
            .await
            .unwrap();
        assert_eq!(taken(account.used()), spent);
        assert_eq!(taken(account.reserved()), (0, 0, 0.0));
    }
}

#[tokio::test]
async fn an_answer_in_the_models_place_is_charged_no_tokens() {
    let failing = Turn::error(Error::new(ErrorKind::Overloaded, "busy"));
    let model = BoxModel::new(ScriptedModel::always(failing));
    let answer = || ModelResponse::from_text("from the cache");
    let account = Account::new(per_token());
    let cached = Callbacks::new()
        .with(before_model(move |_| Action::Respond(answer())))
        .layer(model.clone());
    let fallen = Callbacks::new()
        .with(on_model_error(move |_, _| Recovery::Fallback(answer())))
        .layer(model);
    for model in [BoxModel::new(cached), BoxModel::new(fallen)] {
        charged(&account, model).oneshot(tokens(100)).await.unwrap();
    }
    assert_eq!(taken(account.used()), (2, 0, 0.0));

    // One that replaces the model's own, and says nothing of tokens, does not hide what that took.
    let model = answering(answer().with_usage(Usage::new(1, 1)));
    let replaced = Callbacks::new()
        .with(after_model(move |_, _| Action::Respond(answer())))
        .layer(model);
    charged(&account, BoxModel::new(replaced))
        .oneshot(tokens(100))
        .await
        .unwrap();
    assert_eq!(taken(account.used()), (3, 2, 0.2));
}

#[tokio::test]
async fn a_failure_gives_back_the_tokens_and_counts_the_call() {
    let account = Account::new(per_token());
    let busy = Error::new(ErrorKind::Overloaded, "busy");
    let model = BoxModel::new(ScriptedModel::always(Turn::error(busy)));
    charged(&account, model)
        .oneshot(tokens(100))
        .await
        .unwrap_err();
    assert_eq!(taken(account.used()), (1, 0, 0.0));
    assert_eq!(taken(account.reserved()), (0, 0, 0.0));
}

#[tokio::test]
async fn a_call_that_is_dropped_or_panics_is_charged_its_prompt() {
    let account = Account::new(per_token());
    let model = charged(
        &account,
        BoxModel::new(ScriptedModel::always(Turn::pending())),
    );
    let mut request = tokens(100);
    request.set_instructions(Some("0123456789012345678901234567890123456789".into()));
    let mut call = Box::pin(model.oneshot(request.clone()));
    assert!(futures::poll!(&mut call).is_pending());
    assert_eq!(taken(account.reserved()), (1, 100, 10.0));
    drop(call);
    assert_eq!(taken(account.reserved()), (0, 0, 0.0));
    assert_eq!(taken(account.used()), (1, 10, 1.0));

    let panics = tower::service_fn(|_: ModelRequest| async {
        std::panic::resume_unwind(Box::new("a bug")) as Result<ModelResponse, BoxError>
    });
    let model = charged(&account, BoxModel::new(panics));
    tokio::spawn(model.oneshot(request)).await.unwrap_err();
    assert_eq!(taken(account.reserved()), (0, 0, 0.0));
    assert_eq!(taken(account.used()), (2, 20, 2.0));
}

/// A client that reads nearly all and hangs up, again and again.
#[tokio::test]
async fn streams_that_are_dropped_use_up_an_account() {
    let account = Account::new(Limits::new().tokens(1_000).reservation(300));
    let turn = Turn::from_text("0123456789".repeat(80)).hanging_after(720);
    let model = ScriptedModel::always(turn).chunk_size(1);
    let agent = Agent::builder(model)
        .global_callbacks(Budget::of(account.clone()))
        .build()
        .unwrap();
    for _ in 0..5 {
        let mut run = agent.stream("0123");
        let mut read = 0;
        while read < 720 {
            let Some(event) = run.next().await else { break };
            read += usize::from(matches!(event.kind, EventKind::TextDelta { .. }));
        }
    }
    // One token of the prompt and 180 of the answer; the fifth would exceed the account.
    assert_eq!(
        (account.used().model_calls, account.used().tokens),
        (4, 4 * 181)
    );
    assert_eq!(account.reserved().tokens, 0);
}

#[tokio::test]
async fn a_call_that_waits_for_an_approval_is_not_counted() {
    let log = Log::default();
    let account = Account::new(Limits::new().tool_calls(1));
    let model = ScriptedModel::new([Turn::tool("wipe", serde_json::json!(1))]);
    let agent = Agent::builder(model)
        .tool(log.tool("wipe"))
        .callbacks(Budget::of(account.clone()))
        .on_tool(before_tool(|_| {
            Err::<(), _>(Error::interrupt(Interrupt::new("1", "tool_call")))
        }))
        .build()
        .unwrap();
    assert_eq!(agent.run("?").await.unwrap().interrupts().len(), 1);
    assert_eq!(account.used().tool_calls, 0);
    assert_eq!(account.left(), [Limit::ToolCalls(1)]);
}

#[tokio::test]
async fn the_price_is_that_of_the_model_that_served_the_call() {
    let asked = Log::default();
    let limits = || {
        let asked = asked.clone();
        Limits::new().cost(1.0, move |model, usage| {
            asked.note(format!(
                "{model} {} {}",
                usage.input_tokens, usage.output_tokens
            ));
            0.25
        })
    };
    let account = Account::new(limits());
    let mut request = tokens(100);
    request.settings_mut().model = Some("large".into());
    let answer = ModelResponse::new(Message::assistant("hi")).with_usage(Usage::new(7, 3));
    let mut metadata = Metadata::default();
    metadata.model = Some("large-0425".into());
    let dated = answer.clone().with_metadata(metadata);
    for answer in [answer, dated] {
        charged(&account, answering(answer))
            .oneshot(request.clone())
            .await
            .unwrap();
    }
    assert_eq!(
        asked.take(),
        ["large 0 100", "large 7 3", "large 0 100", "large-0425 7 3"]
    );
    assert_eq!(account.left(), [Limit::Cost(0.5)]);

    // Two more fit exactly; tenths and thirds of money add up.
    let model = charged(&account, answering(ModelResponse::from_text("hi")));
    model.clone().oneshot(request.clone()).await.unwrap();
    model.clone().oneshot(request.clone()).await.unwrap();
    assert_eq!(
        exceeded(&model.oneshot(request).await.unwrap_err()),
        Limit::Cost(1.0)
    );
}

#[tokio::test]
async fn an_invalid_price_fails_the_call_and_later_counts_as_reserved() {
    for odd in [f64::NAN, f64::INFINITY, -1.0] {
        let account = Account::new(Limits::new().cost(9.0, move |_, _| odd));
        let model = charged(&account, answering(ModelResponse::from_text("hi")));
        let error = model.oneshot(tokens(100)).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Callback);
        assert_eq!(account.used().model_calls, 0);

        let after = move |_: &str, usage: Usage| match usage.input_tokens {
            0 => 2.0,
            1 => odd,
            _ => std::panic::resume_unwind(Box::new("a bug")),
        };
        for input in [1, 2] {
            let account = Account::new(Limits::new().cost(9.0, after));
            let answer = ModelResponse::from_text("hi").with_usage(Usage::new(input, 1));
            charged(&account, answering(answer))
                .oneshot(tokens(100))
                .await
                .unwrap();
            assert_eq!(account.used().cost, 2.0);
            assert_eq!(account.reserved().cost, 0.0);
        }
    }
}

#[derive(Clone, Debug)]
enum Step {
    Start {
        max_tokens: Option<u32>,
        polls: u32,
        used: Option<u64>,
    },
    Poll(prop::sample::Index),
    Drop(prop::sample::Index),
}

const RESERVATION: u64 = 70;

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let start = (
        prop::option::of(1..120u32),
        0..4u32,
        prop::option::of(0.0..1.0f64),
    )
        .prop_map(|(max_tokens, polls, share)| {
            let most = max_tokens.map_or(RESERVATION, u64::from);
            let used = share.map(|share| 1 + (share * most as f64) as u64);
            Step::Start {
                max_tokens,
                polls,
                used: used.map(|used| used.min(most)),
            }
        });
    let step = prop_oneof![
        3 => start,
        4 => any::<prop::sample::Index>().prop_map(Step::Poll),
        1 => any::<prop::sample::Index>().prop_map(Step::Drop),
    ];
    prop::collection::vec(step, 0..80)
}

/// The real calls of the model.
#[derive(Default)]
struct Truth {
    begun: AtomicU64,
    answered: Mutex<Vec<u64>>,
}

type Call = Pin<Box<dyn Future<Output = Result<ModelResponse, Error>>>>;

proptest! {
    #![proptest_config(cases(4000))]

    #[test]
    fn the_accounts_balance_whenever_a_call_is_dropped(
        steps in steps(),
        calls in 0..30u64,
        tokens in 0..900u64,
    ) {
        let account = Account::new(
            Limits::new()
                .model_calls(calls)
                .tokens(tokens)
                .cost(tokens as f64 / 10.0, |_, usage| usage.total() as f64 / 10.0)
                .reservation(RESERVATION),
        );
        let truth = Arc::new(Truth::default());
        let budget = Budget::of(account.clone());
        let start = |max_tokens: Option<u32>, polls: u32, used: Option<u64>| -> Call {
            let truth = truth.clone();
            let model = tower::service_fn(move |_: ModelRequest| {
                let truth = truth.clone();
                truth.begun.fetch_add(1, Ordering::SeqCst);
                async move {
                    for _ in 0..polls {
                        futures::pending!();
                    }
                    let used = used.ok_or("busy")?;
                    truth.answered.lock().unwrap().push(used);
                    Ok::<_, BoxError>(ModelResponse::from_text("").with_usage(Usage::new(0, used)))
                }
            });
            let mut request = ModelRequest::default();
            request.settings_mut().max_tokens = max_tokens;
            Box::pin(Callbacks::new().with(budget.clone()).layer(model).oneshot(request))
        };

        let waker = noop_waker();
        let mut calls_in_flight: Vec<Call> = Vec::new();
        for step in steps {
            match step {
                Step::Start { max_tokens, polls, used } => {
                    calls_in_flight.push(start(max_tokens, polls, used));
                }
                Step::Poll(_) | Step::Drop(_) if calls_in_flight.is_empty() => {}
                Step::Poll(which) => {
                    let which = which.index(calls_in_flight.len());
                    let poll = calls_in_flight[which].as_mut().poll(&mut Context::from_waker(&waker));
                    if let Poll::Ready(result) = poll {
                        drop(calls_in_flight.swap_remove(which));
                        if let Err(error) = result {
                            let refused = error.kind() == ErrorKind::BudgetExceeded;
                            prop_assert!(refused || error.message() == "busy", "{}", error);
                        }
                    }
                }
                Step::Drop(which) => {
                    // Its prompt is empty, and nothing of its answer is known.
                    let which = which.index(calls_in_flight.len());
                    drop(calls_in_flight.swap_remove(which));
                }
            }
            let (used, reserved) = (account.used(), account.reserved());
            prop_assert!(used.model_calls + reserved.model_calls <= calls);
            prop_assert!(used.tokens + reserved.tokens <= tokens);
            prop_assert!(used.cost + reserved.cost <= tokens as f64 / 10.0 + 1e-9);
            let begun = truth.begun.load(Ordering::SeqCst);
            prop_assert_eq!(used.model_calls + reserved.model_calls, begun);
        }
        drop(calls_in_flight);

        let answered = truth.answered.lock().unwrap().iter().sum::<u64>();
        prop_assert_eq!(account.reserved(), Spent::default());
        prop_assert_eq!(account.used().model_calls, truth.begun.load(Ordering::SeqCst));
        prop_assert_eq!(account.used().tokens, answered);
        prop_assert!((account.used().cost - answered as f64 / 10.0).abs() < 1e-6);
    }
}

#[tokio::test(start_paused = true)]
async fn a_restored_account_goes_on_where_the_saved_one_stopped() {
    let warned = Arc::new(Mutex::new(Vec::new()));
    let limits = || {
        let warned = warned.clone();
        let limits = Limits::new()
            .model_calls(4)
            .cost(1.0, |_, _| 0.3)
            .time(Duration::from_secs(9));
        limits.warn_at(0.5, move |limit, _| warned.lock().unwrap().push(limit))
    };
    let run = async |account: &Account| {
        let model = ScriptedModel::always(Turn::from_text("Hi."));
        let budget = Budget::of(account.clone());
        let agent = Agent::builder(model).on_model(budget).build().unwrap();
        agent.run("Hi.").await.map(|_| ())
    };
    let account = Account::new(limits());
    run(&account).await.unwrap();
    tokio::time::advance(Duration::from_secs(2)).await;
    run(&account).await.unwrap();
    let warnings = warned.lock().unwrap().len();

    let saved = serde_json::to_string(&account.used()).unwrap();
    // Time until it is restored does not count.
    tokio::time::advance(Duration::from_secs(60)).await;
    let restored = Account::restored(limits(), serde_json::from_str(&saved).unwrap());
    assert_eq!(restored.used(), serde_json::from_str(&saved).unwrap());
    assert_eq!(restored.used().time, Duration::from_secs(2));
    run(&restored).await.unwrap();
    assert_eq!(restored.used().model_calls, 3);
    assert_eq!(warned.lock().unwrap().len(), warnings);
    let error = run(&restored).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::BudgetExceeded);
}
