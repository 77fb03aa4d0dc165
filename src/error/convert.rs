//! Other errors, as ours.

use std::error::Error as StdError;

use tower::buffer::error::{Closed, ServiceError};
use tower::load_shed::error::Overloaded;
use tower::timeout::error::Elapsed;

use super::{BoxError, Error, ErrorKind};

/// Finds our own error anywhere in the source chain, then tower's.
impl From<BoxError> for Error {
    fn from(error: BoxError) -> Self {
        let error = match error.downcast::<Self>() {
            Ok(error) => return *error,
            Err(error) => error,
        };
        let mut kind = None;
        let mut link: Option<&(dyn StdError + 'static)> = Some(&*error);
        while let Some(current) = link {
            if let Some(ours) = current.downcast_ref::<Self>() {
                return ours.clone();
            }
            kind = kind.or_else(|| tower_kind(current));
            link = current.source();
        }
        Self::standing_for(kind.unwrap_or(ErrorKind::Other), error)
    }
}

fn tower_kind(error: &(dyn StdError + 'static)) -> Option<ErrorKind> {
    if error.is::<Elapsed>() {
        Some(ErrorKind::Timeout)
    } else if error.is::<Overloaded>() {
        Some(ErrorKind::Overloaded)
    } else if error.is::<Closed>() || error.is::<ServiceError>() {
        // The worker of a `Buffer` is gone: no later call can succeed.
        Some(ErrorKind::Other)
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

/// Errors of the standard library that `?` meets in hooks and tools.
macro_rules! from_std {
    ($($error:ty),* $(,)?) => {$(
        impl From<$error> for Error {
            fn from(error: $error) -> Self {
                Self::standing_for(ErrorKind::Other, error)
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
