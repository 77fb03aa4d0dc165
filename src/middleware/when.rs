use std::fmt;
use std::sync::Arc;

use crate::error::{Error, ErrorKind, Result};
use crate::panic::catch;

/// The predicate that selects the errors a middleware acts on.
#[derive(Clone)]
pub(super) struct When(Arc<dyn Fn(&Error) -> bool + Send + Sync>);

impl When {
    pub(super) fn new(when: impl Fn(&Error) -> bool + Send + Sync + 'static) -> Self {
        Self(Arc::new(when))
    }

    /// Returns whether the predicate holds. Fails if it panics.
    pub(super) fn holds(&self, error: &Error) -> Result<bool> {
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
