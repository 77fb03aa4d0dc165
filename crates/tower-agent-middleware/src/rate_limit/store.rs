use std::fmt;
use std::future::ready;
use std::sync::Mutex;
use std::time::Duration;

use futures_util::future::BoxFuture;
use tokio::time::Instant;

use super::exhausted::Exhausted;
use super::state::{RateChange, RateState};
use crate::keyed::{Keyed, Need};
use crate::lock::lock;
use tower_agent::error::Result;

/// Keeps the states of limits, for one process or for several.
///
/// [`Postgres`](https://docs.rs/tower-agent-durable/latest/tower_agent_durable/struct.Postgres.html)
/// of `tower-agent-durable` is one, with the feature `rate-limit` there. Another is no more than a
/// table of small values that are changed atomically, and a clock that those who share it have in
/// common, such as a transaction of Redis that is tried again if its value has changed meanwhile.
/// All arithmetic is in [`RateChange::apply`], and [`RateState::unused_at`] says when a value can
/// be deleted.
///
/// ```
/// use std::sync::{Mutex, PoisonError};
/// use std::time::{Duration, SystemTime};
///
/// use futures_util::future::BoxFuture;
/// use tower_agent::Result;
/// use tower_agent_middleware::rate_limit::{Exhausted, RateChange, RateState, RateStore};
///
/// /// Keeps one limit, as text.
/// #[derive(Debug, Default)]
/// struct Row(Mutex<String>);
///
/// fn now() -> Duration {
///     SystemTime::UNIX_EPOCH.elapsed().unwrap_or_default()
/// }
///
/// impl Row {
///     fn change(&self, change: &RateChange) -> Result<Option<Exhausted>> {
///         let mut row = self.0.lock().unwrap_or_else(PoisonError::into_inner);
///         let mut state: RateState = serde_json::from_str(&row).unwrap_or_default();
///         let exhausted = change.apply(&mut state, now());
///         *row = serde_json::to_string(&state)?;
///         Ok(exhausted)
///     }
/// }
///
/// impl RateStore for Row {
///     fn update<'a>(
///         &'a self,
///         _: &'a str,
///         change: RateChange,
///     ) -> BoxFuture<'a, Result<Option<Exhausted>>> {
///         Box::pin(async move { self.change(&change) })
///     }
///
///     fn read<'a>(&'a self, _: &'a str) -> BoxFuture<'a, Result<(RateState, Duration)>> {
///         let row = self.0.lock().unwrap_or_else(PoisonError::into_inner);
///         let state = serde_json::from_str(&row).unwrap_or_default();
///         Box::pin(async move { Ok((state, now())) })
///     }
///
///     fn update_later(&self, _: &str, change: RateChange) {
///         if let Err(error) = self.change(&change) {
///             tracing::warn!(%error, "limit not settled");
///         }
///     }
/// }
/// ```
pub trait RateStore: fmt::Debug + Send + Sync + 'static {
    /// Applies a change to the state of the limit with this key, atomically. A limit that is not
    /// known has the default state.
    ///
    /// A call that was dropped while it waited has used nothing: apply the
    /// [inverse](RateChange::inverse) of a change whose future was dropped before it returned.
    ///
    /// # Errors
    ///
    /// Fails if the state cannot be read or written. The call is then not made.
    fn update<'a>(
        &'a self,
        key: &'a str,
        change: RateChange,
    ) -> BoxFuture<'a, Result<Option<Exhausted>>>;

    /// Returns the state of the limit with this key and the time to [apply](RateChange::apply)
    /// changes to it with, for somebody who looks. Changes nothing.
    ///
    /// # Errors
    ///
    /// Fails if the state cannot be read.
    fn read<'a>(&'a self, key: &'a str) -> BoxFuture<'a, Result<(RateState, Duration)>>;

    /// Applies a change that nobody waits for: the end of a call, which may have been dropped. Must
    /// not block; a store behind a network sends it from a task of its own.
    ///
    /// If it is lost, the call counts as it was reserved.
    fn update_later(&self, key: &str, change: RateChange);
}

/// Keeps limits in memory.
#[derive(Debug)]
pub(super) struct Memory {
    started: Instant,
    states: Mutex<Keyed<String, RateState>>,
}

impl Memory {
    pub(super) fn new() -> Self {
        Self {
            started: Instant::now(),
            states: Mutex::default(),
        }
    }

    fn change(&self, key: &str, change: &RateChange) -> Option<Exhausted> {
        let now = self.started.elapsed();
        let mut states = lock(&self.states);
        if let Some(state) = states.get_mut(key) {
            return change.apply(state, now);
        }
        let mut state = RateState::default();
        let exhausted = change.apply(&mut state, now);
        states.insert(key.to_owned(), state, |state| {
            if state.unused_at() > now {
                Need::Memory
            } else {
                Need::Nothing
            }
        });
        exhausted
    }
}

impl RateStore for Memory {
    fn update<'a>(
        &'a self,
        key: &'a str,
        change: RateChange,
    ) -> BoxFuture<'a, Result<Option<Exhausted>>> {
        Box::pin(ready(Ok(self.change(key, &change))))
    }

    fn read<'a>(&'a self, key: &'a str) -> BoxFuture<'a, Result<(RateState, Duration)>> {
        let states = lock(&self.states);
        // No use of it: one who looks keeps nothing alive.
        let state = states.get(key).cloned().unwrap_or_default();
        Box::pin(ready(Ok((state, self.started.elapsed()))))
    }

    fn update_later(&self, key: &str, change: RateChange) {
        self.change(key, &change);
    }
}
