//! Predicates of users that select errors.

use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

use tower_agent::error::panic_message;
use tower_agent::{Error, ErrorKind, Result};

/// A predicate that selects the errors to act on.
#[derive(Clone)]
pub(crate) struct ErrorPredicate(Arc<dyn Fn(&Error) -> bool + Send + Sync>);

impl ErrorPredicate {
    pub(crate) fn new(predicate: impl Fn(&Error) -> bool + Send + Sync + 'static) -> Self {
        Self(Arc::new(predicate))
    }

    /// Returns whether the predicate holds. Fails if it panics.
    pub(crate) fn holds(&self, error: &Error) -> Result<bool> {
        // A panic here must not replace the error of the call, which the caller still needs: it
        // becomes the cause. The predicate only borrows the error, so nothing is left half changed.
        catch_unwind(AssertUnwindSafe(|| (self.0)(error))).map_err(|payload| {
            let message = format!("the predicate panicked: {}", panic_message(&*payload));
            Error::new(ErrorKind::Callback, message).with_source(error.clone())
        })
    }
}

impl fmt::Debug for ErrorPredicate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("ErrorPredicate(..)")
    }
}
