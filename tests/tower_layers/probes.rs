//! What an observer is told of each of tower's layers.

use std::future::ready;
use std::time::Duration;

use futures::FutureExt;
use test_support::runs::secs;
use test_support::wrappers::{told, wrappers};
use tower::ServiceBuilder;
use tower::buffer::BufferLayer;
use tower::filter::{AsyncFilterLayer, FilterLayer};
use tower::limit::{ConcurrencyLimitLayer, RateLimitLayer};
use tower::load_shed::LoadShedLayer;
use tower::retry::RetryLayer;
use tower::spawn_ready::SpawnReadyLayer;
use tower::timeout::TimeoutLayer;
use tower::util::{
    AndThenLayer, MapErrLayer, MapFutureLayer, MapRequestLayer, MapResponseLayer, MapResultLayer,
    ThenLayer,
};
use tower_agent::callback::{Bundle, before_model};
use tower_agent::stream::observer;
use tower_agent::{Agent, AgentBuilder, BoxError, Error, ErrorKind, ModelRequest, ModelResponse};
use tower_agent_test::{ScriptedModel, Turn};

use crate::busy;
use crate::retries::Again;

/// Each layer stands between two bands, and its place is 1.
fn around(
    turns: impl IntoIterator<Item = Turn>,
    layer: fn(AgentBuilder) -> AgentBuilder,
) -> AgentBuilder {
    let agent = Agent::builder(ScriptedModel::new(turns)).on_model(before_model(|_| ()));
    layer(agent).on_model(before_model(|_| ()))
}

async fn seen(turns: fn() -> Vec<Turn>, layer: fn(AgentBuilder) -> AgentBuilder) -> Vec<String> {
    wrappers(|| around(turns(), layer)).await
}

fn one() -> Vec<Turn> {
    vec![Turn::from_text("It rains.")]
}

#[tokio::test]
async fn layers_that_pass_a_call_on_are_idle() {
    let layers: [fn(AgentBuilder) -> AgentBuilder; 7] = [
        |agent| agent.model_layer(TimeoutLayer::new(secs(1))),
        |agent| agent.model_layer(RetryLayer::new(Again(3))),
        |agent| agent.model_layer(ConcurrencyLimitLayer::new(1)),
        |agent| {
            let limit = ServiceBuilder::new().layer(BufferLayer::new(1));
            agent.model_layer(limit.layer(RateLimitLayer::new(1, secs(1))))
        },
        |agent| agent.model_layer(LoadShedLayer::new()),
        |agent| {
            let ready = ServiceBuilder::new().layer(BufferLayer::new(1));
            agent.model_layer(ready.layer(SpawnReadyLayer::new()))
        },
        |agent| agent.model_layer(FilterLayer::new(Ok::<ModelRequest, BoxError>)),
    ];
    for layer in layers {
        assert_eq!(seen(one, layer).await, [""; 0]);
    }
}

#[tokio::test]
async fn layers_that_change_a_call() {
    let seen_of = seen(one, |agent| {
        agent.model_layer(MapRequestLayer::new(|mut request: ModelRequest| {
            request.settings_mut().seed = Some(1);
            request
        }))
    });
    assert_eq!(
        seen_of.await,
        ["model 1: changed the request's settings.seed"]
    );

    fn louder(response: ModelResponse) -> ModelResponse {
        let text = response.text() + "!";
        response.with_text(text)
    }
    let text = ["model 1: changed the response's text"];
    let seen_of = seen(one, |agent| {
        agent.model_layer(MapResponseLayer::new(louder))
    });
    assert_eq!(seen_of.await, text);
    let seen_of = seen(one, |agent| {
        agent.model_layer(MapResultLayer::new(
            |result: Result<ModelResponse, Error>| result.map(louder),
        ))
    });
    assert_eq!(seen_of.await, text);
    let seen_of = seen(one, |agent| {
        agent.model_layer(ThenLayer::new(|result: Result<ModelResponse, Error>| {
            ready(result.map(louder))
        }))
    });
    assert_eq!(seen_of.await, text);
    let seen_of = seen(one, |agent| {
        agent.model_layer(AndThenLayer::new(|response| {
            ready(Ok::<_, Error>(louder(response)))
        }))
    });
    assert_eq!(seen_of.await, text);
    let seen_of = seen(one, |agent| {
        agent.model_layer(MapFutureLayer::new(|future| async move {
            FutureExt::map(future, |result: Result<ModelResponse, Error>| {
                result.map(louder)
            })
            .await
        }))
    });
    assert_eq!(seen_of.await, text);
}

#[tokio::test]
async fn layers_that_block_a_call() {
    fn refuse(_: ModelRequest) -> Result<ModelRequest, BoxError> {
        Err(Error::new(ErrorKind::Denied, "no").into())
    }
    let denied = ["model 1: failed: denied"];
    let seen_of = seen(one, |agent| agent.model_layer(FilterLayer::new(refuse)));
    assert_eq!(seen_of.await, denied);
    let seen_of = seen(one, |agent| {
        agent.model_layer(AsyncFilterLayer::new(|request| ready(refuse(request))))
    });
    assert_eq!(seen_of.await, denied);
    // No call is admitted inside.
    let seen_of = seen(one, |agent| {
        agent
            .model_layer(LoadShedLayer::new())
            .model_layer(ConcurrencyLimitLayer::new(0))
    });
    assert_eq!(seen_of.await, ["model 1: failed: overloaded"]);
}

#[tokio::test(start_paused = true)]
async fn layers_that_repeat_drop_or_replace_a_call() {
    let turns = || {
        vec![
            Turn::error(busy()),
            Turn::error(busy()),
            Turn::from_text("Yes."),
        ]
    };
    let seen_of = seen(turns, |agent| agent.model_layer(RetryLayer::new(Again(3))));
    assert_eq!(seen_of.await, ["model 1: made 3 calls"]);

    let seen_of = seen(
        || vec![Turn::pending()],
        |agent| agent.model_layer(TimeoutLayer::new(secs(1))),
    );
    assert_eq!(
        seen_of.await,
        ["model 1: dropped the call inside, failed: timed out"]
    );

    let seen_of = seen(
        || vec![Turn::error(busy())],
        |agent| {
            agent.model_layer(ThenLayer::new(|result: Result<ModelResponse, Error>| {
                ready(result.or_else(|_| Ok::<_, Error>(ModelResponse::from_text("Later."))))
            }))
        },
    );
    assert_eq!(
        seen_of.await,
        ["model 1: turned an error into a response: overloaded"]
    );

    let seen_of = seen(
        || vec![Turn::error(busy())],
        |agent| {
            agent.model_layer(MapErrLayer::new(|_: Error| {
                Error::new(ErrorKind::Denied, "no")
            }))
        },
    );
    let other = "model 1: turned an error into another: overloaded into denied";
    assert_eq!(seen_of.await, [other]);
}

/// The time for which a call waits at a limit is that of the limit, whatever waits outside.
#[tokio::test(start_paused = true)]
async fn the_time_that_a_limit_takes_is_its_own() {
    let (observer, mut observations) = observer(64);
    let turns = ["one", "two"].map(|text| Turn::from_text(text).latency(secs(10)));
    let agent = around(turns, |agent| {
        agent
            .model_layer(TimeoutLayer::new(secs(60)))
            .model_layer(ConcurrencyLimitLayer::new(1))
    });
    let agent = agent
        .global_callbacks(Bundle::new().observer(observer.with_all_wrappers()))
        .build()
        .unwrap();
    let (first, second) = futures::join!(agent.run("?"), agent.run("?"));
    assert!(first.is_ok() && second.is_ok());
    let times: Vec<_> = told(&mut observations)
        .iter()
        .map(|(_, note)| (note.index, note.own_time))
        .collect();
    let none = Duration::ZERO;
    let first = [(3, none), (2, none), (1, none), (0, none)];
    let second = [(3, none), (2, secs(10)), (1, none), (0, none)];
    assert_eq!(times, [first, second].concat());
}
