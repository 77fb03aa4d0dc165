//! Calls: the `Request` trait, the data attached to a call, how calls are made and how they end.
//!
//! ```text
//! CallService<R>: Service<R, Response = R::Response>    where R: Request
//! ```

mod attempts;
mod boundary;
mod counted;
mod ending;
mod failure;
mod reached;
mod request;
mod service;
mod witness;

pub use self::attempts::{AttemptEnd, Attempted, Attempts, Description};
pub use self::boundary::{BoxCallFuture, BoxCallService};
pub(crate) use self::counted::Counted;
pub use self::ending::{
    admit, end_after_response, ending_after_response, is_unmade, is_waiting, stays_open,
};
pub use self::failure::tell_failure;
pub use self::reached::Reached;
pub use self::request::Request;
pub use self::service::CallService;
pub use self::witness::Witness;
pub use crate::call_kind::{CallKind, Origin};
pub use crate::context::Extensions;
