//! Calls: the `Request` trait, the data attached to a call, and how calls end.

mod ending;
mod extensions;
mod request;

pub use self::extensions::Extensions;
pub use self::request::Request;
pub use crate::boxed::{BoxCallFuture, BoxCallService};
pub use crate::call_kind::{CallKind, Origin};
