//! The error type of every call.

mod convert;
mod data;
#[expect(clippy::module_inception, reason = "a type is in the file of its name")]
mod error;
mod interrupt;
mod kind;
mod model_message;
mod when;

pub use self::error::{BoxError, CallSite, Error, RaisedBy, Result};
pub use self::interrupt::{Interrupt, Resolution, ResolutionOutcome};
pub use self::kind::ErrorKind;
pub(crate) use self::when::When;
pub use crate::panic::panic_message;
