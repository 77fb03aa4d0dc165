use std::any::type_name;
use std::collections::BTreeMap;
use std::fmt;
use std::sync::{Arc, Mutex};

use crate::any_value::AnyValue;
use crate::error::{BoxError, Error};
use crate::lock::lock;

/// Values of any type under string keys, shared by everything in one run.
///
/// Use it for data that outlives a call: totals, caches, clocks. Data of one call belongs in its
/// [`Extensions`](crate::call::Extensions), which parallel calls do not share.
///
/// ```
/// use std::time::Instant;
/// use tower_agent::RunContext;
///
/// let context = RunContext::default();
/// context.values().set("started", Instant::now());
/// let started = context.values().get::<Instant>("started").unwrap();
/// assert!(started.is_some());
/// assert!(context.values().get::<String>("started").is_err());
/// assert!(context.values().remove("started"));
/// ```
#[derive(Default)]
// Ordered: a run has few values, and each call looks some of them up; to hash a key takes longer.
pub struct Values(Mutex<BTreeMap<String, AnyValue>>);

/// The value under a key has another type than requested.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the value under `{key}` is a `{found}`, not a `{expected}`")]
#[non_exhaustive]
pub struct ValueTypeError {
    /// The key.
    pub key: String,
    /// The requested type.
    pub expected: &'static str,
    /// The actual type.
    pub found: &'static str,
}

impl ValueTypeError {
    fn new<T>(key: &str, found: &'static str) -> Self {
        Self {
            key: key.to_owned(),
            expected: type_name::<T>(),
            found,
        }
    }
}

impl From<ValueTypeError> for Error {
    fn from(error: ValueTypeError) -> Self {
        Self::from(BoxError::from(error))
    }
}

impl Values {
    /// Stores `value` under `key`, replacing the previous value.
    pub fn set<T: Send + Sync + 'static>(&self, key: impl Into<String>, value: T) {
        let value = AnyValue::new(value);
        lock(&self.0).insert(key.into(), value);
    }

    /// Returns the value under `key`, if there is one.
    ///
    /// # Errors
    ///
    /// Fails if the value is not a `T`.
    pub fn get<T: Send + Sync + 'static>(
        &self,
        key: &str,
    ) -> Result<Option<Arc<T>>, ValueTypeError> {
        let value = lock(&self.0).get(key).cloned();
        let Some(value) = value else { return Ok(None) };
        let found = value.type_name();
        value
            .downcast()
            .map(Some)
            .ok_or_else(|| ValueTypeError::new::<T>(key, found))
    }

    /// Changes the value under `key`, which starts as the default, and returns the result of
    /// `change`. The change is atomic; `change` must not access these values.
    ///
    /// ```
    /// use tower_agent::RunContext;
    ///
    /// # fn main() -> Result<(), tower_agent::context::ValueTypeError> {
    /// let context = RunContext::default();
    /// let calls = context.values().update("calls", |calls: &mut u32| { *calls += 1; *calls })?;
    /// assert_eq!(calls, 1);
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    ///
    /// Fails if the value is not a `T`.
    pub fn update<T, U>(
        &self,
        key: &str,
        change: impl FnOnce(&mut T) -> U,
    ) -> Result<U, ValueTypeError>
    where
        T: Clone + Default + Send + Sync + 'static,
    {
        let mut values = lock(&self.0);
        let entry = values.entry(key.to_owned());
        let entry = entry.or_insert_with(|| AnyValue::new(T::default()));
        let Some(value) = entry.downcast_ref::<T>() else {
            return Err(ValueTypeError::new::<T>(key, entry.type_name()));
        };
        // A copy is changed and then stored: a panic in `change` leaves the earlier value.
        let mut value = value.clone();
        let result = change(&mut value);
        *entry = AnyValue::new(value);
        Ok(result)
    }

    /// Removes the value under `key`; returns whether there was one.
    pub fn remove(&self, key: &str) -> bool {
        lock(&self.0).remove(key).is_some()
    }
}

impl fmt::Debug for Values {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let values = lock(&self.0);
        f.debug_map().entries(&*values).finish()
    }
}
