//! Guardrails fail closed; what a trip comes to.

use std::future::pending;
use std::time::Duration;

use tower_agent::call::Origin;
use tower_agent::callback::{after_model, on_model_error};
use tower_agent::message::Metadata;
use tower_agent::{
    Agent, AgentResponse, Error, ErrorKind, Interrupt, ModelResponse, Recovery, Result, Usage,
};
use tower_agent_middleware::budget::{Account, Budget, Limits};
use tower_agent_middleware::guardrail::{Guardrail, OnTrip, Verdict};
use tower_agent_test::{ScriptedModel, Turn};

use test_support::log::Log;

use super::{everywhere, read, text_of, tripped};

/// Returns the outcome of a guardrail around a model that answers.
async fn outcome(guardrail: Guardrail) -> Result<AgentResponse> {
    let model = ScriptedModel::new([Turn::from_text("answer")]);
    let agent = Agent::builder(model)
        .model_layer(guardrail)
        .build()
        .unwrap();
    let (events, response) = read(agent.stream("?")).await;
    assert!(!text_of(&events).contains("answer"), "{events:?}");
    response
}

#[tokio::test]
async fn a_check_that_fails_or_panics_trips() {
    for guardrail in everywhere(|| async { Err(Error::new(ErrorKind::Connection, "nobody there")) })
    {
        let error = outcome(guardrail).await.unwrap_err();
        assert_eq!(
            tripped(&error),
            "the check failed: connection failed: nobody there; check the base URL and the network"
        );
        assert!(!error.is_retryable());
    }
    for guardrail in everywhere(|| async { panic!("oh") }) {
        assert_eq!(
            tripped(&outcome(guardrail).await.unwrap_err()),
            "the check panicked"
        );
    }
    for guardrail in everywhere(|| -> futures::future::Ready<_> { panic!("at once") }) {
        assert_eq!(
            tripped(&outcome(guardrail).await.unwrap_err()),
            "the check panicked"
        );
    }
}

#[tokio::test(start_paused = true)]
async fn a_check_that_takes_too_long_trips() {
    for guardrail in everywhere(pending) {
        let started = tokio::time::Instant::now();
        let error = outcome(guardrail.with_timeout(Duration::from_secs(3)))
            .await
            .unwrap_err();
        assert_eq!(tripped(&error), "the check timed out after 3s");
        assert_eq!(started.elapsed().as_secs(), 3);
    }
}

#[tokio::test]
async fn a_trip_may_abort_the_run_or_be_answered() {
    let trips = || everywhere(|| async { Ok(Verdict::trip("no")) });
    for guardrail in trips() {
        let agent = Agent::builder(ScriptedModel::new([Turn::from_text("answer")]))
            .on_model(on_model_error(|_, _| {
                Recovery::Fallback(ModelResponse::from_text("saved"))
            }))
            .model_layer(guardrail.with_on_trip(OnTrip::Abort))
            .build()
            .unwrap();
        let error = agent.run("?").await.unwrap_err();
        assert_eq!((error.kind(), tripped(&error)), (ErrorKind::Aborted, "no"));
    }
    for guardrail in trips() {
        let response = outcome(guardrail.with_on_trip(OnTrip::answer("Sorry."))).await;
        assert_eq!(response.unwrap().text(), "Sorry.");
    }
}

#[tokio::test]
async fn an_answer_of_a_trip_is_charged_what_the_model_has_used_and_no_more() {
    let mut metadata = Metadata::default();
    metadata.model = Some("large".into());
    let answered = ModelResponse::from_text("answer")
        .with_usage(Usage::new(20, 10))
        .with_metadata(metadata);
    let price = |model: &str, usage: Usage| match model {
        "large" => usage.total() as f64,
        _ => 1000.0 * usage.total() as f64,
    };
    let origins = [Origin::Before, Origin::Before, Origin::After];
    let spent = [(0, 0.0), (0, 0.0), (30, 30.0)];
    let guardrails = everywhere(|| async { Ok(Verdict::trip("no")) });
    for ((guardrail, origin), spent) in guardrails.into_iter().zip(origins).zip(spent) {
        let account = Account::new(Limits::new().tokens(10_000).cost(1e9, price));
        let log = Log::default();
        let seen = log.clone();
        let agent = Agent::builder(ScriptedModel::always(Turn::response(answered.clone())))
            .global_callbacks(Budget::of(account.clone()))
            .on_model(after_model(move |_, response| {
                seen.note(format!("{:?}", response.origin()))
            }))
            .model_layer(guardrail.with_on_trip(OnTrip::answer("Sorry.")))
            .build()
            .unwrap();
        assert_eq!(agent.run("?").await.unwrap().text(), "Sorry.");
        let used = account.used();
        assert_eq!((used.model_calls, (used.tokens, used.cost)), (1, spent));
        assert_eq!(log.take(), [format!("{origin:?}")]);
    }
}

#[tokio::test]
async fn an_answer_in_the_models_place_uses_nothing_whatever_it_states() {
    let guardrails = everywhere(|| async { Ok(Verdict::trip("no")) });
    for (guardrail, spent) in guardrails.into_iter().zip([0, 0, 30]) {
        let account = Account::new(Limits::new().tokens(10_000));
        let sorry = ModelResponse::from_text("Sorry.").with_usage(Usage::new(3, 4));
        let turn = Turn::from_text("answer").usage(Usage::new(20, 10));
        let agent = Agent::builder(ScriptedModel::always(turn))
            .global_callbacks(Budget::of(account.clone()))
            .model_layer(guardrail.with_on_trip(OnTrip::Answer(Box::new(sorry))))
            .build()
            .unwrap();
        agent.run("?").await.unwrap();
        assert_eq!(account.used().tokens, spent);
    }
}

#[tokio::test]
async fn a_check_that_asks_a_person_interrupts_the_run() {
    for guardrail in everywhere(|| async { Err(Error::interrupt(Interrupt::new("1", "a look"))) }) {
        let response = outcome(guardrail).await.unwrap();
        assert_eq!(response.interrupts().len(), 1);
        assert_eq!(response.new_messages().count(), 0);
    }
}
