//! Guards as they stand now: what is left of a limit, and what is let through.
//!
//! ```text
//! Gauge: async fn read(&self, most: usize) -> Result<Vec<Reading>>
//! ```
//!
//! The guards of
//! [`tower-agent-middleware`](https://docs.rs/tower-agent-middleware/latest/tower_agent_middleware/)
//! that share a state between calls are gauges, and
//! [`tower-agent-console`](https://docs.rs/tower-agent-console) shows what it is given. A closure
//! is one as well, such as one that reads the accounts that a program keeps of its users:
//!
//! ```
//! use std::sync::{Arc, Mutex, PoisonError};
//!
//! use tower_agent::gauge::{Amount, Gauge, Reading};
//!
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> Result<(), tower_agent::BoxError> {
//! let used = Arc::new(Mutex::new(vec![("ada", 7.0)]));
//! let users = move |most| {
//!     let used = used.lock().unwrap_or_else(PoisonError::into_inner);
//!     let readings = used.iter().map(|(user, tokens)| {
//!         let tokens = Amount::new("tokens used", *tokens).limit(100.0);
//!         Reading::new("budget", "open", true).of(*user).with(tokens)
//!     });
//!     let readings: Vec<Reading> = readings.take(most).collect();
//!     async move { Ok(readings) }
//! };
//! let readings = users.read(50).await?;
//! assert_eq!(readings[0].amounts[0].to_string(), "tokens used: 7 of 100");
//! # Ok(())
//! # }
//! ```

use std::borrow::Cow;
use std::fmt;
use std::future::Future;
use std::sync::Arc;

use serde::Serialize;

use crate::error::Result;

/// Something whose state can be read while calls use it, such as a limit.
///
/// To read it changes nothing, and lets no call wait for longer than a lock is held.
pub trait Gauge: Send + Sync + 'static {
    /// Returns the state now, in at most so many readings: of those of many keys, the ones that
    /// matter most come first, such as those that let no call through.
    ///
    /// # Errors
    ///
    /// Fails if the state is elsewhere, such as in a database, and cannot be read.
    fn read(&self, most: usize) -> impl Future<Output = Result<Vec<Reading>>> + Send;
}

impl<F, T> Gauge for F
where
    F: Fn(usize) -> T + Send + Sync + 'static,
    T: Future<Output = Result<Vec<Reading>>> + Send,
{
    fn read(&self, most: usize) -> impl Future<Output = Result<Vec<Reading>>> + Send {
        self(most)
    }
}

/// The state of a guard, or of the part of it that is for one key.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[non_exhaustive]
#[must_use]
pub struct Reading {
    /// The kind of guard, such as `rate limit`.
    pub kind: Cow<'static, str>,
    /// The state in words, such as `open`.
    pub state: Cow<'static, str>,
    /// Calls go through. `false` if some would be refused now, or would wait.
    pub admits: bool,
    /// The name of the user or tenant whose part it is, which not everybody may see. `None` for
    /// everybody's.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub of: Option<Arc<str>>,
    /// The name of what is called, such as a tool's or an endpoint's, if each has a part.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub name: Option<Arc<str>>,
    /// The numbers.
    pub amounts: Vec<Amount>,
}

/// A number in a [`Reading`]. Its `Display` has all of it.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[non_exhaustive]
#[must_use]
pub struct Amount {
    /// The thing that is counted, such as `tokens used`.
    pub name: Cow<'static, str>,
    /// The number.
    pub value: f64,
    /// The most that it can be, if there is a limit.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub limit: Option<f64>,
    /// The unit, such as `s` for seconds. Empty for a number of what the name says.
    #[serde(skip_serializing_if = "str::is_empty")]
    pub unit: Cow<'static, str>,
}

impl Reading {
    /// Creates a reading of everybody's state, without numbers.
    pub fn new(
        kind: impl Into<Cow<'static, str>>,
        state: impl Into<Cow<'static, str>>,
        admits: bool,
    ) -> Self {
        Self {
            kind: kind.into(),
            state: state.into(),
            admits,
            of: None,
            name: None,
            amounts: Vec::new(),
        }
    }

    /// Sets [whose](Self::of) part it is.
    pub fn of(mut self, key: impl Into<Arc<str>>) -> Self {
        self.of = Some(key.into());
        self
    }

    /// Sets the [name](Self::name) of what is called.
    pub fn named(mut self, name: impl Into<Arc<str>>) -> Self {
        self.name = Some(name.into());
        self
    }

    /// Adds a number.
    pub fn with(mut self, amount: Amount) -> Self {
        self.amounts.push(amount);
        self
    }
}

impl Amount {
    /// Creates a number without a limit, of what the name says. One that is none, or infinite, is
    /// `null` as JSON.
    pub fn new(name: impl Into<Cow<'static, str>>, value: f64) -> Self {
        Self {
            name: name.into(),
            value,
            limit: None,
            unit: Cow::Borrowed(""),
        }
    }

    /// Sets the most that it can be.
    pub fn limit(mut self, limit: f64) -> Self {
        self.limit = Some(limit);
        self
    }

    /// Sets the unit.
    pub fn unit(mut self, unit: impl Into<Cow<'static, str>>) -> Self {
        self.unit = unit.into();
        self
    }
}

impl fmt::Display for Amount {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.name, self.value)?;
        if let Some(limit) = self.limit {
            write!(f, " of {limit}")?;
        }
        if !self.unit.is_empty() {
            write!(f, " {}", self.unit)?;
        }
        Ok(())
    }
}
