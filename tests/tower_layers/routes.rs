//! Services in the place of several: `Steer`, and `Balance` over a list. They stand where a model,
//! a tool or an agent does.

use std::sync::atomic::{AtomicUsize, Ordering};

use futures::future::join_all;
use tokio::time::Instant;
use tower::balance::p2c::Balance;
use tower::buffer::Buffer;
use tower::discover::ServiceList;
use tower::limit::ConcurrencyLimitLayer;
use tower::load::{CompleteOnResponse, Constant, PendingRequests};
use tower::retry::RetryLayer;
use tower::steer::Steer;
use tower::util::BoxCloneSyncService;
use tower::{BoxError, Service};
use tower_agent::agent::BoxAgent;
use tower_agent::call::BoxCallService;
use tower_agent::model::BoxModel;
use tower_agent::{Agent, Error, ErrorKind, ModelRequest, Request};
use tower_agent_test::{ScriptedModel, Turn};
use tower_layer::Layer;

use crate::retries::Again;
use crate::{WAYS, busy, of_model, of_two, run, secs};

fn says(text: &str) -> ScriptedModel {
    ScriptedModel::always(Turn::from_text(text).latency(secs(1)))
}

/// Takes turns.
fn steered<R: Request>(services: [BoxCallService<R>; 2]) -> BoxCallService<R> {
    let calls = std::sync::Arc::new(AtomicUsize::new(0));
    let pick = move |_: &R, _: &[BoxCallService<R>]| calls.fetch_add(1, Ordering::Relaxed) % 2;
    BoxCallService::new(Steer::new(services, pick))
}

#[tokio::test(start_paused = true)]
async fn steer_fits_as_it_is_and_picks_one() {
    for streamed in WAYS {
        for (place, agent) in of_two!([says("one"), says("two")], steered) {
            let said = [run(&agent, streamed).await, run(&agent, streamed).await];
            assert_eq!(
                said.map(|response| response.unwrap().text()),
                ["one", "two"],
                "{place}"
            );
        }
    }
}

#[tokio::test(start_paused = true)]
async fn steer_over_limits_is_ready_for_each_call_and_each_retry() {
    for streamed in WAYS {
        let failing = ScriptedModel::always(Turn::from_text("half").failing_after(2, busy()));
        let limited = [failing, says("two")]
            .map(|model| BoxModel::new(ConcurrencyLimitLayer::new(1).layer(model)));
        let agent = Agent::builder(steered(limited)).model_layer(RetryLayer::new(Again(1)));
        let agent = BoxAgent::new(agent.build().unwrap());
        assert_eq!(run(&agent, streamed).await.unwrap().text(), "two");
    }
}

/// The less busy of the two.
fn balanced<R: Request>(services: [BoxCallService<R>; 2]) -> BoxCallService<R> {
    let counted =
        services.map(|service| PendingRequests::new(service, CompleteOnResponse::default()));
    BoxCallService::new(Buffer::new(Balance::new(ServiceList::new::<R>(counted)), 8))
}

#[tokio::test(start_paused = true)]
async fn balance_in_a_buffer_gives_each_call_to_the_less_busy() {
    for streamed in WAYS {
        let limited = |text: &str| ScriptedModel::always(Turn::from_text(text).latency(secs(1)));
        for (place, agent) in of_two!([limited("one"), limited("two")], balanced) {
            for _ in 0..5 {
                let start = Instant::now();
                let both = [run(&agent, streamed), run(&agent, streamed)];
                let mut said: Vec<_> = join_all(both)
                    .await
                    .into_iter()
                    .map(|said| said.unwrap().text())
                    .collect();
                said.sort();
                assert_eq!(
                    (said.join(" "), start.elapsed()),
                    ("one two".into(), secs(1)),
                    "{place}"
                );
            }
        }
    }
}

/// The one that costs less.
fn cheaper<R: Request>([dear, cheap]: [BoxCallService<R>; 2]) -> BoxCallService<R> {
    let priced = [Constant::new(dear, 5), Constant::new(cheap, 1)];
    BoxCallService::new(Buffer::new(Balance::new(ServiceList::new::<R>(priced)), 8))
}

#[tokio::test(start_paused = true)]
async fn balance_by_a_constant_load_takes_the_lighter() {
    for streamed in WAYS {
        for (place, agent) in of_two!([says("one"), says("two")], cheaper) {
            for _ in 0..3 {
                assert_eq!(
                    run(&agent, streamed).await.unwrap().text(),
                    "two",
                    "{place}"
                );
            }
        }
    }
}

#[tokio::test]
async fn a_failure_behind_a_balance_keeps_its_kind() {
    for streamed in WAYS {
        let fails = || {
            let error = Error::new(ErrorKind::RateLimited, "later").with_retry_after(secs(3));
            ScriptedModel::always(Turn::from_text("half").failing_after(2, error))
        };
        for (place, agent) in of_two!([fails(), fails()], balanced) {
            let error = run(&agent, streamed).await.unwrap_err();
            assert_eq!(error.kind(), ErrorKind::RateLimited, "{place}");
            assert_eq!(error.retry_after(), Some(secs(3)), "{place}");
        }
    }
}

#[tokio::test]
async fn a_failing_discovery_says_so_and_a_retry_cannot_help() {
    for streamed in WAYS {
        let broken = Error::new(ErrorKind::Connection, "no registry");
        let list = futures::stream::iter([Err::<
            tower::discover::Change<u8, Constant<BoxModel, u8>>,
            _,
        >(broken)]);
        let agent = of_model(BoxModel::new(Buffer::new(Balance::new(list), 8)));
        let error = run(&agent, streamed).await.unwrap_err();
        assert_eq!(
            (error.kind(), error.message()),
            (ErrorKind::Connection, "no registry")
        );
        assert!(!error.is_retryable());
    }
}

#[tokio::test]
async fn a_service_that_tower_has_boxed_fits() {
    fn boxed<S>(service: S) -> BoxCloneSyncService<ModelRequest, S::Response, BoxError>
    where
        S: Service<ModelRequest, Error: Into<BoxError>, Future: Send>
            + Clone
            + Send
            + Sync
            + 'static,
    {
        BoxCloneSyncService::new(tower::ServiceExt::map_err(service, Into::into))
    }
    for streamed in WAYS {
        let agent = of_model(BoxModel::new(boxed(ScriptedModel::always(
            Turn::from_text("done"),
        ))));
        assert_eq!(run(&agent, streamed).await.unwrap().text(), "done");
    }
}
