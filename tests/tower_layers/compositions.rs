//! Layers that may be there or not, and whole stacks.

use tokio::time::Instant;
use tower::ServiceBuilder;
use tower::buffer::BufferLayer;
use tower::timeout::TimeoutLayer;
use tower::util::{MapErrLayer, option_layer};
use tower_agent::testing::{ProbeLayer, Turn};
use tower_agent::{Error, ErrorKind};

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
