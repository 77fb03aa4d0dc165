//! A call: which it is, what is asked, what comes along, and how it ends.

mod ending;
mod extensions;
mod request;

pub use self::extensions::Extensions;
pub use self::request::Request;
pub use crate::boxed::{BoxCallFuture, BoxCallService};
pub use crate::call_kind::{CallKind, Origin};
