//! A call: which it is, what is asked, what comes along, and how it ends.

mod ending;
mod extensions;
mod kind;
mod request;

pub use self::extensions::Extensions;
pub use self::kind::{CallKind, Origin};
pub use self::request::Request;
pub use crate::boxed::{BoxCallFuture, BoxCallService};
