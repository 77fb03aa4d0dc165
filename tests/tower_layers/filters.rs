//! `FilterLayer` and `AsyncFilterLayer`.

use tower::BoxError;
use tower::filter::{AsyncFilterLayer, FilterLayer};
use tower_agent::{Error, ErrorKind};
use tower_agent_test::Turn;

use crate::{WAYS, around_each, run};

#[tokio::test]
async fn a_filter_refuses_with_an_error_that_keeps_its_kind() {
    for streamed in WAYS {
        let refuse = || Error::new(ErrorKind::InvalidRequest, "not today");
        for (place, agent) in around_each!(
            [Turn::from_text("never")],
            FilterLayer::new(move |_: Call| Err::<Call, _>(refuse()))
        ) {
            let error = run(&agent, streamed).await.unwrap_err();
            assert_eq!(
                (error.kind(), error.message()),
                (refuse().kind(), "not today"),
                "{place}"
            );
        }
    }
}

#[tokio::test]
async fn an_async_filter_refuses_with_an_error_that_keeps_its_kind() {
    for streamed in WAYS {
        let refuse = || Error::new(ErrorKind::Auth, "not you");
        for (place, agent) in around_each!(
            [Turn::from_text("never")],
            AsyncFilterLayer::new(move |_: Call| async move {
                tokio::task::yield_now().await;
                Err::<Call, _>(refuse())
            })
        ) {
            let error = run(&agent, streamed).await.unwrap_err();
            assert_eq!(
                (error.kind(), error.message()),
                (refuse().kind(), "not you"),
                "{place}"
            );
        }
    }
}

/// An error of no particular kind is the layer's own, and is found again.
#[tokio::test]
async fn an_error_of_another_type_is_found_again_in_ours() {
    for streamed in WAYS {
        let refuse = || std::num::NonZeroU8::try_from(0).unwrap_err();
        for (place, agent) in around_each!(
            [Turn::from_text("never")],
            FilterLayer::new(move |_: Call| Err::<Call, _>(refuse()))
        ) {
            let error = run(&agent, streamed).await.unwrap_err();
            assert_eq!(
                (error.kind(), error.is_retryable()),
                (ErrorKind::Other, false),
                "{place}"
            );
            assert!(
                error.downcast_ref::<std::num::TryFromIntError>().is_some(),
                "{place}"
            );
        }
    }
}

#[tokio::test]
async fn a_request_that_a_filter_changes_is_called_as_changed() {
    for streamed in WAYS {
        let turns = || [Turn::from_text("done")];
        for (place, agent) in around_each!(
            turns(),
            FilterLayer::new(|mut call: Call| {
                call.extensions_mut().insert("seen");
                Ok::<_, BoxError>(call)
            })
        ) {
            assert_eq!(
                run(&agent, streamed).await.unwrap().text(),
                "done",
                "{place}"
            );
        }
        for (place, agent) in around_each!(
            turns(),
            AsyncFilterLayer::new(async |call: Call| Ok::<_, BoxError>(call))
        ) {
            assert_eq!(
                run(&agent, streamed).await.unwrap().text(),
                "done",
                "{place}"
            );
        }
    }
}
