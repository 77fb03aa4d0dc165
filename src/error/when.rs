use std::fmt;
use std::sync::Arc;

use super::error::{Error, Result};
use super::kind::ErrorKind;
use crate::panic::catch;

/// A predicate that selects the errors to act on.
#[derive(Clone)]
pub(crate) struct When(Arc<dyn Fn(&Error) -> bool + Send + Sync>);

impl When {
    pub(crate) fn new(when: impl Fn(&Error) -> bool + Send + Sync + 'static) -> Self {
        Self(Arc::new(when))
    }

    /// Returns whether the predicate holds. Fails if it panics.
    pub(crate) fn holds(&self, error: &Error) -> Result<bool> {
        // A panic is no answer: neither a retry nor a fallback may follow from it.
        catch(|| (self.0)(error)).map_err(|panic| {
            let message = format!("the predicate panicked: {panic}");
            Error::new(ErrorKind::Callback, message).with_source(error.clone())
        })
    }
}

impl fmt::Debug for When {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("When(..)")
    }
}
