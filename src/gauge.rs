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
//! use std::collections::HashMap;
//! use std::sync::{Arc, Mutex, PoisonError};
//!
//! use tower_agent::gauge::{Gauge, Reading};
//! use tower_agent_middleware::budget::{Account, Limits};
//!
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> Result<(), tower_agent::BoxError> {
//! let accounts = Arc::new(Mutex::new(HashMap::<String, Account>::new()));
//! let users = {
//!     let accounts = accounts.clone();
//!     move |most| {
//!         let accounts = accounts.lock().unwrap_or_else(PoisonError::into_inner);
//!         let readings = accounts.iter().map(|(user, account)| account.reading().of(user.as_str()));
//!         let readings: Vec<Reading> = readings.take(most).collect();
//!         async move { Ok(readings) }
//!     }
//! };
//! # let account = Account::new(Limits::new().tokens(100));
//! # accounts.lock().unwrap_or_else(PoisonError::into_inner).insert("ada".into(), account);
//! let readings = users.read(50).await?;
//! assert_eq!(readings[0].of.as_deref(), Some("ada"));
//! assert_eq!(readings[0].amounts[0].to_string(), "tokens used: 0 of 100");
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
pub struct Reading {
    /// The kind of guard, such as `rate limit`.
    pub kind: Cow<'static, str>,
    /// The state in words, such as `open`.
    pub state: Cow<'static, str>,
    /// Whether calls go through. `false` if some would be refused now, or would wait.
    pub admits: bool,
    /// Whose part it is, such as a user's or a tenant's: somebody's name, which not everybody may
    /// see. `None` for everybody's.
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
pub struct Amount {
    /// What is counted, such as `tokens used`.
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
    #[must_use]
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
    #[must_use]
    pub fn of(mut self, key: impl Into<Arc<str>>) -> Self {
        self.of = Some(key.into());
        self
    }

    /// Sets the [name](Self::name) of what is called.
    #[must_use]
    pub fn named(mut self, name: impl Into<Arc<str>>) -> Self {
        self.name = Some(name.into());
        self
    }

    /// Adds a number.
    #[must_use]
    pub fn with(mut self, amount: Amount) -> Self {
        self.amounts.push(amount);
        self
    }
}

impl Amount {
    /// Creates a number without a limit, of what the name says. One that is none, or infinite, is
    /// `null` as JSON.
    #[must_use]
    pub fn new(name: impl Into<Cow<'static, str>>, value: f64) -> Self {
        Self {
            name: name.into(),
            value,
            limit: None,
            unit: Cow::Borrowed(""),
        }
    }

    /// Sets the most that it can be.
    #[must_use]
    pub fn limit(mut self, limit: f64) -> Self {
        self.limit = Some(limit);
        self
    }

    /// Sets the unit.
    #[must_use]
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
