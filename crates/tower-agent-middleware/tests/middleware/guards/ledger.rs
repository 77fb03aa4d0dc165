//! What runs have used: each attempt that reached a model counts once, and every view adds up to
//! it.

use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex};

use futures::StreamExt;
use serde_json::json;
use tower::service_fn;
use tower_agent::call::{AttemptEnd, Attempted, Attempts};
use tower_agent::callback::{Action, Callback, Outcome, after_model, before_model};
use tower_agent::model::ModelService;
use tower_agent::stream::{Delta, EventKind, NextAttempt, Piece};
use tower_agent::{
    Agent, AgentRequest, Error, ErrorKind, Message, ModelRequest, ModelResponse, Request, Result,
    Usage,
};
use tower_agent_middleware::budget::{Account, Budget, Limits, ModelPrice, PriceTable};
use tower_agent_middleware::context_window::ContextWindow;
use tower_agent_middleware::fallback::Fallback;
use tower_agent_middleware::retry::CallRetryLayer;
use tower_agent_test::{ScriptedModel, Turn};
use tower_layer::Layer;

fn account() -> Account {
    Account::new(Limits::new().tokens(1_000_000))
}

/// The tokens of a streamed run, as its events tell them, and as its response does.
async fn told(agent: &Agent, request: impl Into<AgentRequest>) -> (u64, u64) {
    let mut stream = agent.stream(request);
    let mut told = 0;
    while let Some(event) = stream.next().await {
        if let EventKind::Usage { usage } = event.kind {
            told += usage.total();
        }
    }
    let response = stream.response().await.unwrap();
    (told, response.usage().total())
}

/// Two attempts break after the provider has told 103 tokens each; the third answers with 110.
fn breaks_twice() -> impl ModelService {
    let calls = Arc::new(AtomicU32::new(0));
    service_fn(move |request: ModelRequest| {
        let call = calls.fetch_add(1, Ordering::SeqCst);
        async move {
            let sender = request.delta_sender();
            if let (Some(sender), true) = (sender, call < 2) {
                let mut attempt = sender.open();
                attempt.send(Piece::Usage(Usage::new(100, 3))).await?;
                attempt.send(Delta::Text("half".into())).await?;
                return Err(Error::new(ErrorKind::Connection, "reset"));
            }
            let response = ModelResponse::from_text("fine").with_usage(Usage::new(100, 10));
            response.streamed_to(sender).await
        }
    })
}

#[tokio::test(start_paused = true)]
async fn a_stream_that_breaks_is_counted_as_far_as_it_was_told() {
    let account = account();
    let agent = Agent::builder(breaks_twice())
        .model_layer(CallRetryLayer::new().restart_streams(true))
        .global_callbacks(Budget::of(account.clone()))
        .build()
        .unwrap();

    assert_eq!(told(&agent, "go").await, (316, 316));
    assert_eq!(account.used().tokens, 316);
    assert_eq!(account.used().model_calls, 1);
}

/// A first model whose answer of 15 tokens is refused inside a fallback, and another of 27.
fn refuses_the_first() -> Fallback {
    let says = |text: &str, usage| ScriptedModel::new([Turn::from_text(text).usage(usage)]);
    let check = after_model(|_, response| {
        if response.text().starts_with("as an AI") {
            return Err(Error::new(ErrorKind::Provider, "no answer"));
        }
        Ok(())
    });
    let first = check.layer(says("as an AI model", Usage::new(10, 5)));
    Fallback::new(first)
        .or(says("Paris", Usage::new(20, 7)))
        .restart_streams(true)
}

#[tokio::test]
async fn an_answer_that_a_check_in_a_fallback_refuses_is_not_free() {
    let account = account();
    let agent = |model| {
        let budget = Budget::of(account.clone());
        Agent::builder(model)
            .global_callbacks(budget)
            .build()
            .unwrap()
    };

    assert_eq!(told(&agent(refuses_the_first()), "go").await, (42, 42));
    assert_eq!(account.used().tokens, 42);

    let response = agent(refuses_the_first()).run("go").await.unwrap();
    assert_eq!(response.usage(), Usage::new(30, 12));
    assert_eq!(account.used().tokens, 84);
}

#[tokio::test]
async fn agents_inside_a_call_are_told_once() {
    let one = || Turn::from_text("done").usage(Usage::new(1, 1));
    let helper = |text: &str| {
        let turn = Turn::from_text(text).usage(Usage::new(100, 10));
        ScriptedModel::always(turn)
    };

    // A summary.
    let history: Vec<_> = (0..20)
        .flat_map(|turn| {
            let text = "x".repeat(400);
            [
                Message::user(format!("{turn} {text}")),
                Message::assistant(text),
            ]
        })
        .collect();
    let window = ContextWindow::new(1_000)
        .cut_to(500)
        .summariser(helper("SUMMARY"));
    let agent = Agent::builder(ScriptedModel::new([one()]))
        .on_model(window)
        .build()
        .unwrap();
    let (told_of_summary, counted) =
        told(&agent, AgentRequest::new("go").with_history(history)).await;
    assert!(counted > 110, "{counted}");
    assert_eq!(told_of_summary, counted);

    // A tool.
    let child = Agent::builder(helper("child"))
        .name("child")
        .build()
        .unwrap();
    let call = Turn::tool("child", json!({ "request": "go" })).usage(Usage::new(1, 1));
    let agent = Agent::builder(ScriptedModel::new([call, one()]))
        .tool(child.into_tool("Works."))
        .build()
        .unwrap();
    assert_eq!(told(&agent, "go").await, (114, 114));

    // One that a callback calls.
    let child = Agent::builder(helper("helped"))
        .name("helper")
        .build()
        .unwrap();
    let ask = before_model(move |request: &mut ModelRequest| {
        let inner = AgentRequest::new("help").with_context(request.context().clone());
        let child = child.clone();
        async move { child.run(inner).await.map(drop) }
    });
    let agent = Agent::builder(ScriptedModel::new([one()]))
        .on_model(ask)
        .build()
        .unwrap();
    assert_eq!(told(&agent, "go").await, (112, 112));
}

/// The entries of a call: how each ended, what followed it, its tokens and its price.
#[derive(Clone, Default)]
struct Entries(Arc<Mutex<Vec<Attempted>>>);

impl Callback<ModelRequest> for Entries {
    async fn before(&self, request: &mut ModelRequest) -> Result<Action<ModelResponse>> {
        let attempts = request.attempts().map(Attempts::follow);
        request.extensions_mut().insert(attempts);
        Ok(Action::Continue)
    }

    fn on_end(&self, request: &ModelRequest, _: Outcome<'_, ModelResponse>) {
        let attempts = request.extensions().get::<Option<Attempts>>();
        let attempts = attempts.unwrap().as_ref().unwrap();
        self.0.lock().unwrap().extend(attempts.list());
    }
}

#[tokio::test(start_paused = true)]
async fn an_entry_says_what_followed_it_and_what_it_cost() {
    let asked = |model: &str| {
        let model = model.to_owned();
        before_model(move |request: &mut ModelRequest| {
            request.settings_mut().model = Some(model.clone());
        })
    };
    let refuses = after_model(|_, _| {
        let bad = Error::new(ErrorKind::Provider, "a check refuses it");
        Err::<(), _>(bad.with_retryable(true))
    });
    let busy = Turn::error(Error::new(ErrorKind::Overloaded, "busy"));
    let answer = |usage| Turn::from_text("Oslo").usage(usage);
    let first = ScriptedModel::new([busy, answer(Usage::new(100, 10))]);
    let first = refuses.layer(asked("dear").layer(first));
    let second = asked("unheard-of").layer(ScriptedModel::new([answer(Usage::new(5, 1))]));
    let retry = CallRetryLayer::new().max_attempts(2);
    let entries = Entries::default();
    let agent = Agent::builder(Fallback::new(retry.layer(first)).or(second))
        .on_model(entries.clone())
        .build()
        .unwrap();
    let response = agent.run("go").await.unwrap();

    let prices = PriceTable::new().model("dear", ModelPrice::new(1.0, 10.0));
    let entries = std::mem::take(&mut *entries.0.lock().unwrap());
    let seen: Vec<_> = entries
        .iter()
        .map(|entry| {
            let next = match entry.next {
                Some(NextAttempt::Retry(_)) => "retry",
                Some(NextAttempt::Fallback) => "fallback",
                _ => "",
            };
            (entry.end, next, entry.usage.total(), prices.cost_of(entry))
        })
        .collect();
    let overloaded = AttemptEnd::Failed(ErrorKind::Overloaded);
    assert_eq!(
        seen,
        [
            (overloaded, "retry", 0, None),
            (AttemptEnd::Answered, "fallback", 110, Some(200.0)),
            (AttemptEnd::Answered, "", 6, None),
        ]
    );
    let sum: u64 = entries.iter().map(|entry| entry.usage.total()).sum();
    assert_eq!(sum, response.usage().total());
}

#[tokio::test]
async fn what_a_provider_cannot_have_used_is_unknown_to_every_view() {
    let account = account();
    let lies = ModelResponse::from_text("fine").with_usage(Usage::new(u64::MAX, 1));
    let agent = Agent::builder(ScriptedModel::always(Turn::response(lies)))
        .global_callbacks(Budget::of(account.clone()))
        .build()
        .unwrap();
    assert_eq!(told(&agent, "go").await, (0, 0));
    let used = account.used();
    assert_eq!((used.tokens, used.estimated_tokens), (4096, 4096));
}

#[tokio::test]
async fn what_a_callback_says_of_its_own_answer_counts_in_no_view() {
    let account = account();
    let stored = ModelResponse::from_text("stored").with_usage(Usage::new(100, 10));
    let agent = Agent::builder(ScriptedModel::new([]))
        .on_model(before_model(move |_| Action::Respond(stored.clone())))
        .global_callbacks(Budget::of(account.clone()))
        .build()
        .unwrap();
    assert_eq!(told(&agent, "go").await, (0, 0));
    assert_eq!(account.used().tokens, 0);
}
