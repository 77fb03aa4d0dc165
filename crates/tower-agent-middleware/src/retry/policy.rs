use std::fmt;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use tokio::time::Sleep;
use tower::retry::budget::{Budget, TpsBudget};
use tower::util::rng::Rng;

use crate::bounds;
use crate::lock::lock;
use crate::no_answer;
use crate::predicate::ErrorPredicate;
use tower_agent::call::{Request, admit, tell_failure};
use tower_agent::error::{CallSite, Error, Result};
use tower_agent::stream::NextAttempt;

/// Decides about retries. Each call has its own clone, which counts its attempts.
#[derive(Clone, Debug, Default)]
pub(super) struct Policy {
    config: Arc<PolicyConfig>,
    made: u32,
}

#[derive(Clone)]
pub(super) struct PolicyConfig {
    pub(super) attempts: u32,
    pub(super) base: Duration,
    pub(super) max: Duration,
    pub(super) max_retry_after: Duration,
    pub(super) restart_streams: bool,
    retries: ErrorPredicate,
    budget: Arc<dyn Budget + Send + Sync>,
    /// Defaults to the run's own chance, so that calls that fail together wait for different times,
    /// and a run that is made again for the same ones.
    rng: Option<Arc<Mutex<dyn Rng + Send>>>,
}

impl Default for PolicyConfig {
    fn default() -> Self {
        Self {
            attempts: 3,
            base: Duration::from_millis(500),
            max: Duration::from_secs(30),
            max_retry_after: bounds::LONGEST_RETRY_WAIT,
            restart_streams: false,
            retries: ErrorPredicate::new(Error::is_retryable),
            budget: Arc::new(TpsBudget::new(Duration::from_secs(10), 3, 0.2)),
            rng: None,
        }
    }
}

/// The reason why a call is not retried.
enum Stop {
    /// The policy does not apply to this failure.
    Untouched,
    /// The error is not retryable.
    Final,
    /// The error is retryable, but something prevents a retry.
    Because(String),
}

impl Policy {
    pub(super) fn config(&mut self) -> &mut PolicyConfig {
        Arc::make_mut(&mut self.config)
    }

    pub(super) fn set_budget(&mut self, budget: impl Budget + Send + Sync + 'static) {
        self.config().budget = Arc::new(budget);
    }

    pub(super) fn set_rng(&mut self, rng: impl Rng + Send + 'static) {
        self.config().rng = Some(Arc::new(Mutex::new(rng)));
    }

    pub(super) fn set_retries(
        &mut self,
        predicate: impl Fn(&Error) -> bool + Send + Sync + 'static,
    ) {
        self.config().retries = ErrorPredicate::new(predicate);
    }

    /// Returns the wait before the next attempt, or why there is none.
    fn wait<R: Request>(&self, request: &R, error: &Error) -> Result<Result<Duration, Stop>> {
        let PolicyConfig {
            attempts,
            max_retry_after,
            restart_streams,
            retries,
            budget,
            ..
        } = &*self.config;
        // An ending holds for the whole run, and is not shown to the predicate, which could select
        // it by mistake.
        if error.is_ending() || admit(request).is_err() {
            return Ok(Err(Stop::Untouched));
        }
        if self.made >= *attempts || !retries.holds(error)? {
            return Ok(Err(Stop::Final));
        }
        let against = match error.retry_after() {
            _ if !request.is_repeatable() => {
                tracing::warn!(
                    run_id = request.context().run_id(),
                    call = %CallSite::of(request),
                    "not retrying tool call: the tool's effect is `Mutating` (the default); \
                     declare `.effect(Effect::Idempotent)` if a second call does no harm"
                );
                "the tool's effect is `Mutating`".to_owned()
            }
            _ if request.is_committed() && !restart_streams => {
                "output was already streamed".to_owned()
            }
            // Waiting less than the server asked for would only fail again.
            Some(after) if after > *max_retry_after => {
                format!(
                    "the server asked to wait {after:?}, more than the maximum of {max_retry_after:?}"
                )
            }
            // Last, because it takes from the budget: a call that is not retried anyway must not.
            _ if !budget.withdraw() => "the retry budget is exhausted".to_owned(),
            after => return Ok(Ok(after.unwrap_or_else(|| self.backoff(request)))),
        };
        Ok(Err(Stop::Because(against)))
    }

    /// Returns a random part of a time that doubles with each attempt.
    fn backoff<R: Request>(&self, request: &R) -> Duration {
        let PolicyConfig { base, max, rng, .. } = &*self.config;
        let doubled = 2_u32.saturating_pow(self.made.saturating_sub(1));
        let most = base.saturating_mul(doubled).min(*max);
        let part = match rng {
            // A source of the caller's wins, for tests that need known values.
            Some(rng) => lock(rng).next_f64(),
            None => request
                .context()
                .chance(&format!("backoff of {} {}", R::CALL, self.made)),
        };
        Duration::try_from_secs_f64(most.as_secs_f64() * part).map_or(most, |wait| wait.min(most))
    }

    /// Tells of an attempt that has failed, and returns the wait before the next.
    fn again<R: Request>(&self, request: &R, error: &Error, wait: Duration) -> Sleep {
        let call = CallSite::of(request);
        let made = self.made;
        let kind = error.kind();
        // Not the error itself: an outer layer may redact its text.
        let run_id = request.context().run_id();
        tracing::warn!(run_id, %call, made, ?wait, %kind, "retrying call");
        tell_failure(request, kind, NextAttempt::Retry(wait));
        tokio::time::sleep(wait)
    }

    /// Returns the error for the caller.
    fn last(&self, error: &Error, stop: &Stop) -> Error {
        let attempts = self.made;
        let s = if attempts == 1 { "" } else { "s" };
        let against = match stop {
            Stop::Untouched => return error.clone(),
            // A single attempt needs no explanation.
            Stop::Final if attempts == 1 => return error.clone(),
            Stop::Final => String::new(),
            Stop::Because(against) => format!("; not retried: {against}"),
        };
        let message = format!("{} (after {attempts} attempt{s}{against})", error.message());
        error.clone().with_message(message)
    }
}

impl<R: Request> tower::retry::Policy<R, R::Response, Error> for Policy {
    type Future = Sleep;

    fn retry(&mut self, request: &mut R, result: &mut Result<R::Response>) -> Option<Sleep> {
        // Tower asks after each attempt, successful or not.
        self.made += 1;
        let error = match result {
            Ok(response) => {
                let Some(rejected) = no_answer::rejection(request, response) else {
                    // Successes earn retries, so that they stay a share of all calls when a server
                    // is down.
                    self.config.budget.deposit();
                    return None;
                };
                // Where it is not retried, the agent gets the response, and follows its own rule.
                let wait = self.wait(request, &rejected).ok()?.ok()?;
                return Some(self.again(request, &rejected, wait));
            }
            Err(error) => error,
        };
        match self.wait(request, error) {
            Ok(Ok(wait)) => return Some(self.again(request, error, wait)),
            Ok(Err(stop)) => *error = self.last(error, &stop),
            Err(panic) => *error = panic,
        }
        None
    }

    fn clone_request(&mut self, request: &R) -> Option<R> {
        // Also clones requests that are not repeatable; `retry` then says why the call is not
        // retried.
        (self.config.attempts > 1).then(|| request.clone())
    }
}

impl fmt::Debug for PolicyConfig {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PolicyConfig")
            .field("attempts", &self.attempts)
            .field("base", &self.base)
            .field("max", &self.max)
            .field("max_retry_after", &self.max_retry_after)
            .field("restart_streams", &self.restart_streams)
            .finish_non_exhaustive()
    }
}
