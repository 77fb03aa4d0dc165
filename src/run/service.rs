use super::request::AgentRequest;
use crate::call::{BoxCallService, CallService};

/// An agent: any `tower::Service<AgentRequest>` with an [`AgentResponse`](super::AgentResponse) and
/// an error that converts into a [`BoxError`](crate::BoxError), which is `Clone`, `Send` and
/// `Sync`.
///
/// Implemented for every such service; do not implement it by hand. An agent can be wrapped in any
/// of tower's layers, `Buffer` included.
#[diagnostic::on_unimplemented(
    message = "`{Self}` is not an agent service",
    label = "not a `Service<AgentRequest, Response = AgentResponse>` that is `Clone + Send + Sync + 'static`",
    note = "an agent is `Service<AgentRequest, Response = AgentResponse, Error: Into<BoxError> + Send + Sync>` with a `Send + 'static` future, and `Clone + Send + Sync + 'static` itself",
    note = "a service that lacks `Clone`: derive it, or put the service under `tower::buffer::Buffer`; a layer and its `BufferLayer` must be in one `tower::ServiceBuilder`",
    note = "a future or a service that is not `Send`: share state through `Arc` and a `Mutex` instead of `Rc` and `RefCell`"
)]
pub trait AgentService: CallService<AgentRequest> {}

#[diagnostic::do_not_recommend]
impl<S: CallService<AgentRequest>> AgentService for S {}

/// A type-erased agent.
pub type BoxAgent = BoxCallService<AgentRequest>;
