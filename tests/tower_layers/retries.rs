//! `RetryLayer`, with a custom policy, and with tower's budget and backoff.

use std::future::{Ready, ready};
use std::sync::Arc;
use std::time::Duration;

use tokio::time::{Instant, Sleep};
use tower::retry::backoff::{Backoff, ExponentialBackoff, ExponentialBackoffMaker, MakeBackoff};
use tower::retry::budget::{Budget, TpsBudget};
use tower::retry::{Policy, RetryLayer};
use tower::util::rng::HasherRng;
use tower_agent::{Error, ErrorKind, ModelRequest, ModelResponse, Request};
use tower_agent_test::Turn;

use crate::{WAYS, around_each, busy, run, secs};

/// Makes a call again, so often, where its error says that this may help.
#[derive(Clone)]
pub(crate) struct Again(pub(crate) u32);

impl<R: Clone, T> Policy<R, T, Error> for Again {
    type Future = Ready<()>;

    fn retry(&mut self, _: &mut R, result: &mut Result<T, Error>) -> Option<Ready<()>> {
        result.as_ref().err().filter(|error| error.is_retryable())?;
        self.0 = self.0.checked_sub(1)?;
        Some(ready(()))
    }

    fn clone_request(&mut self, request: &R) -> Option<R> {
        Some(request.clone())
    }
}

/// The same with tower's own parts.
#[derive(Clone)]
struct WithinBudget {
    budget: Arc<TpsBudget>,
    backoff: ExponentialBackoff,
}

impl WithinBudget {
    /// So many retries a second at most, of calls that are spaced out from one second on.
    fn new(per_second: u32) -> Self {
        let rng = HasherRng::default();
        let mut maker = ExponentialBackoffMaker::new(secs(1), secs(8), 0.0, rng).unwrap();
        let budget = Arc::new(TpsBudget::new(secs(1), per_second, 0.0));
        Self {
            budget,
            backoff: maker.make_backoff(),
        }
    }
}

impl<R: Clone, T> Policy<R, T, Error> for WithinBudget {
    type Future = Sleep;

    fn retry(&mut self, _: &mut R, result: &mut Result<T, Error>) -> Option<Sleep> {
        match result {
            Err(error) if error.is_retryable() && self.budget.withdraw() => {
                Some(self.backoff.next_backoff())
            }
            Err(_) => None,
            Ok(_) => {
                self.budget.deposit();
                None
            }
        }
    }

    fn clone_request(&mut self, request: &R) -> Option<R> {
        Some(request.clone())
    }
}

#[tokio::test]
async fn a_retry_takes_back_what_was_seen() {
    for streamed in WAYS {
        let turns = || {
            [
                Turn::from_text("half of it").failing_after(3, busy()),
                Turn::error(busy()),
                Turn::from_text("all of it"),
            ]
        };
        for (place, agent) in around_each!(turns(), RetryLayer::new(Again(2))) {
            assert_eq!(
                run(&agent, streamed).await.unwrap().text(),
                "all of it",
                "{place}"
            );
        }
    }
}

#[tokio::test]
async fn a_retry_gives_up_with_the_last_error() {
    for streamed in WAYS {
        let last = || Error::new(ErrorKind::Provider, "broken");
        let turns = || {
            [
                Turn::error(busy()),
                Turn::from_text("half").failing_after(2, last()),
            ]
        };
        for (place, agent) in around_each!(turns(), RetryLayer::new(Again(1))) {
            assert_eq!(
                run(&agent, streamed).await.unwrap_err().kind(),
                last().kind(),
                "{place}"
            );
        }
    }
}

#[tokio::test]
async fn a_policy_leaves_alone_what_a_retry_cannot_help() {
    for streamed in WAYS {
        let turns = || {
            [
                Turn::error(Error::new(ErrorKind::Auth, "no key")),
                Turn::from_text("no"),
            ]
        };
        for (place, agent) in around_each!(turns(), RetryLayer::new(Again(5))) {
            assert_eq!(
                run(&agent, streamed).await.unwrap_err().kind(),
                ErrorKind::Auth,
                "{place}"
            );
        }
    }
}

#[tokio::test]
async fn no_retry_undoes_an_abort() {
    /// Whatever the error says, once.
    #[derive(Clone)]
    struct Stubborn(bool);
    impl<R: Clone, T> Policy<R, T, Error> for Stubborn {
        type Future = Ready<()>;
        fn retry(&mut self, _: &mut R, result: &mut Result<T, Error>) -> Option<Ready<()>> {
            (result.is_err() && !std::mem::replace(&mut self.0, true)).then(|| ready(()))
        }
        fn clone_request(&mut self, request: &R) -> Option<R> {
            Some(request.clone())
        }
    }
    for streamed in WAYS {
        let turns = || [Turn::error(Error::abort("stop")), Turn::from_text("no")];
        for (place, agent) in around_each!(turns(), RetryLayer::new(Stubborn(false))) {
            let error = run(&agent, streamed).await.unwrap_err();
            assert_eq!(
                (error.kind(), error.message()),
                (ErrorKind::Aborted, "stop"),
                "{place}"
            );
        }
    }
}

#[tokio::test(start_paused = true)]
async fn towers_backoff_spaces_attempts_out_and_its_budget_ends_them() {
    for streamed in WAYS {
        let failing = || {
            [
                Turn::error(busy()),
                Turn::error(busy()),
                Turn::from_text("done"),
            ]
        };
        for (place, agent) in around_each!(failing(), RetryLayer::new(WithinBudget::new(2))) {
            let start = Instant::now();
            assert_eq!(
                run(&agent, streamed).await.unwrap().text(),
                "done",
                "{place}"
            );
            assert_eq!(start.elapsed(), Duration::from_secs(1 + 2), "{place}");
        }
        for (place, agent) in around_each!(failing(), RetryLayer::new(WithinBudget::new(0))) {
            let error = run(&agent, streamed).await.unwrap_err();
            assert_eq!(error.kind(), ErrorKind::Overloaded, "{place}");
        }
    }
}

#[tokio::test]
async fn a_retry_continues_the_same_run_with_the_state_as_it_was_left() {
    for streamed in WAYS {
        let count = || {
            Turn::function(|request: &ModelRequest| {
                let state = request.context().state();
                let tries = state
                    .get("tries")
                    .map_or(0, |tries| tries.as_u64().unwrap())
                    + 1;
                state.set("tries", tries);
                if tries == 1 {
                    Err(busy())
                } else {
                    Ok(ModelResponse::from_text("done"))
                }
            })
        };
        for (place, agent) in around_each!([count(), count()], RetryLayer::new(Again(1))) {
            let response = run(&agent, streamed).await.unwrap();
            assert_eq!(response.state().get("tries"), Some(2.into()), "{place}");
        }
    }
}

#[tokio::test]
async fn a_retry_of_an_agent_continues_after_its_completed_turns() {
    let turns = || {
        [
            Turn::from_text("half of it").and_tool("nothing", serde_json::json!({})),
            Turn::error(busy()),
            Turn::from_text("all of it"),
        ]
    };
    for streamed in WAYS {
        for (place, agent) in around_each!(turns(), RetryLayer::new(Again(1))) {
            // The work of an agent behind a tool is seen apart, each call by itself.
            if !place.starts_with("tool") {
                let response = run(&agent, streamed).await.unwrap();
                assert_eq!(response.text(), "all of it", "{place}");
                // The work before the failure stands, and the retry continues after it.
                assert_eq!(response.new_messages().count(), 3, "{place}");
            }
        }
    }
}
