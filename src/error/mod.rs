//! The error type of every call.

mod call_site;
mod checkpoint;
mod convert;
#[expect(clippy::module_inception, reason = "a type is in the file of its name")]
mod error;
mod kind;
mod model_message;
mod raised_by;

pub use self::call_site::CallSite;
pub use self::error::{BoxError, Error, Result};
pub use self::kind::ErrorKind;
pub use self::raised_by::RaisedBy;
pub use crate::conversation::{
    AnswerError, Answerer, Expiry, Interrupt, Resolution, ResolutionOutcome,
};
pub use crate::panic::panic_message;
