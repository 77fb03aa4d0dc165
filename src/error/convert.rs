//! Conversions of other errors.

use std::error::Error as StdError;

use tower::buffer::error::{Closed, ServiceError};
use tower::load_shed::error::Overloaded;
use tower::timeout::error::Elapsed;

use super::error::{BoxError, Error, below};
use super::kind::ErrorKind;

/// Finds an [`Error`] anywhere in the source chain, otherwise an error of tower's.
impl From<BoxError> for Error {
    fn from(error: BoxError) -> Self {
        let error = match error.downcast::<Self>() {
            Ok(error) => return *error,
            Err(error) => error,
        };
        let mut kind = None;
        let mut is_over = false;
        let mut link: Option<&(dyn StdError + 'static)> = Some(&*error);
        while let Some(current) = link {
            // Found under any wrapper, so that an abort or an interrupt survives tower's layers.
            if let Some(known) = current.downcast_ref::<Self>() {
                return known.clone().or_over(is_over);
            }
            if current.is::<Closed>() {
                return Self::new(ErrorKind::Other, WORKER_GONE).with_source(error);
            }
            is_over |= current.is::<ServiceError>();
            // The outermost layer knows best: a timeout around a load shed is a timeout.
            kind = kind.or_else(|| tower_kind(current));
            link = below(current);
        }
        Self::from_source(kind.unwrap_or(ErrorKind::Other), error).or_over(is_over)
    }
}

const WORKER_GONE: &str = "the worker of a `Buffer` has ended: the runtime that it was built in was \
     shut down, or the service in it panicked";

impl Error {
    /// Marks an error as not retryable if it is that of a `Buffer` whose worker has ended: every
    /// later call fails too.
    fn or_over(self, is_over: bool) -> Self {
        if is_over {
            self.with_retryable(false)
        } else {
            self
        }
    }
}

fn tower_kind(error: &(dyn StdError + 'static)) -> Option<ErrorKind> {
    if error.is::<Elapsed>() {
        Some(ErrorKind::Timeout)
    } else if error.is::<Overloaded>() {
        Some(ErrorKind::Overloaded)
    } else {
        None
    }
}

impl From<String> for Error {
    fn from(message: String) -> Self {
        Self::new(ErrorKind::Other, message)
    }
}

impl From<&'static str> for Error {
    fn from(message: &'static str) -> Self {
        Self::new(ErrorKind::Other, message)
    }
}

/// Errors of the standard library that hooks and tools convert with `?`.
macro_rules! from_std {
    ($($error:ty),* $(,)?) => {$(
        impl From<$error> for Error {
            fn from(error: $error) -> Self {
                Self::from_source(ErrorKind::Other, error)
            }
        }
    )*};
}

from_std! {
    serde_json::Error,
    std::fmt::Error,
    std::io::Error,
    std::num::ParseFloatError,
    std::num::ParseIntError,
    std::num::TryFromIntError,
    std::str::ParseBoolError,
    std::str::Utf8Error,
    std::string::FromUtf8Error,
}
