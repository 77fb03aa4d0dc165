//! Layers that may be there or not, and whole stacks.

use tokio::time::Instant;
use tower::ServiceBuilder;
use tower::buffer::{Buffer, BufferLayer};
use tower::timeout::TimeoutLayer;
use tower::util::{MapErrLayer, option_layer};
use tower_agent::model::ModelService;
use tower_agent::{Agent, AgentRequest, CancellationToken, Error, ErrorKind};
use tower_agent_middleware::fallback::Fallback;
use tower_agent_middleware::retry::CallRetryLayer;
use tower_agent_test::{ProbeLayer, ScriptedModel, Turn};

use crate::retries::Again;
use crate::{WAYS, around_each, busy, run, secs};

/// `option_layer` wants one type of error on both sides, and a timeout's is not the service's: it
/// is made ours.
#[tokio::test(start_paused = true)]
async fn an_optional_layer_fits_once_its_error_is_ours() {
    for streamed in WAYS {
        for limit in [None, Some(secs(1))] {
            let ours = MapErrLayer::new(Error::from);
            for (place, agent) in around_each!(
                [Turn::from_text("half of it").latency(secs(5))],
                option_layer(limit.map(|limit| {
                    ServiceBuilder::new()
                        .layer(ours.clone())
                        .layer(TimeoutLayer::new(limit))
                        .into_inner()
                }))
            ) {
                let start = Instant::now();
                let kind = run(&agent, streamed).await.err().map(|error| error.kind());
                assert_eq!(kind, limit.map(|_| ErrorKind::Timeout), "{place}");
                assert_eq!(start.elapsed(), limit.unwrap_or(secs(5)), "{place}");
            }
        }
    }
}

/// Shedding over a limit over a buffer over a retry over a timeout over a limit of rate.
#[tokio::test(start_paused = true)]
async fn a_whole_stack_works_in_each_place() {
    for streamed in WAYS {
        let probe = ProbeLayer::new();
        for (place, agent) in around_each!(
            [
                Turn::from_text("half of it").failing_after(3, busy()),
                Turn::from_text("half of it").hanging_after(3),
                Turn::from_text("all of it"),
                Turn::from_text("all of it again"),
            ],
            ServiceBuilder::new()
                .load_shed()
                .concurrency_limit(1)
                .retry(Again(2))
                .map_err(Error::from)
                .timeout(secs(2))
                .layer(BufferLayer::<Call>::new(2))
                .rate_limit(3, secs(60))
                .layer(probe.clone())
                .into_inner()
        ) {
            let (one, other) = tokio::join!(run(&agent, streamed), run(&agent, streamed));
            assert_eq!(one.unwrap().text(), "all of it", "{place}");
            assert_eq!(other.unwrap_err().kind(), ErrorKind::Overloaded, "{place}");
            // The fourth call of this minute waits longer than the timeout lets it.
            let error = run(&agent, streamed).await.unwrap_err();
            assert_eq!(error.kind(), ErrorKind::Timeout, "{place}");
            tokio::time::sleep(secs(60)).await;
            let response = run(&agent, streamed).await.unwrap();
            assert_eq!(response.text(), "all of it again", "{place}");
        }
        assert_eq!(probe.violations(), 0);
    }
}

fn says(text: &str) -> ScriptedModel {
    ScriptedModel::always(Turn::from_text(text))
}

/// A service: limits of tower's under and around, a second model, a token to stop it all.
#[tokio::test]
async fn a_service_with_limits_a_second_model_and_a_token() {
    fn guarded(model: impl ModelService) -> impl ModelService {
        let retried = ServiceBuilder::new()
            .layer(CallRetryLayer::new())
            .concurrency_limit(2);
        Buffer::new(retried.service(model), 8)
    }
    let down = ScriptedModel::always(Turn::error(Error::new(ErrorKind::Auth, "no")));
    let model = Fallback::new(guarded(down)).or_each([says("a"), says("b")]);
    let model = model.fall_back_if(|error| error.kind() == ErrorKind::Auth);
    let agent = Agent::builder(model)
        .model_layer(
            ServiceBuilder::new()
                .load_shed()
                .concurrency_limit(8)
                .into_inner(),
        )
        .build()
        .unwrap();
    assert_eq!(agent.run("?").await.unwrap().text(), "a");

    let token = CancellationToken::new();
    token.cancel();
    let stopped = agent
        .run(AgentRequest::new("?").with_cancellation(token))
        .await
        .unwrap_err();
    assert_eq!(stopped.kind(), ErrorKind::Cancelled);
}
