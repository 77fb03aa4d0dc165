use super::request::ToolRequest;
use crate::call::{BoxCallService, CallService};

/// A service that executes tool calls: any `tower::Service<ToolRequest>` with a
/// [`ToolResponse`](super::ToolResponse) and an error that converts into a
/// [`BoxError`](crate::BoxError), which is `Clone`, `Send` and `Sync`.
///
/// Implemented for every such service; do not implement it by hand. A tool service can be wrapped
/// in any of tower's layers, `Buffer` included.
#[diagnostic::on_unimplemented(
    message = "`{Self}` is not a tool service",
    label = "not a `Service<ToolRequest, Response = ToolResponse>` that is `Clone + Send + Sync + 'static`",
    note = "a tool is `Service<ToolRequest, Response = ToolResponse, Error: Into<BoxError> + Send + Sync>` with a `Send + 'static` future, and `Clone + Send + Sync + 'static` itself",
    note = "a service that lacks `Clone`: derive it, or put the service under `tower::buffer::Buffer`; a layer and its `BufferLayer` must be in one `tower::ServiceBuilder`",
    note = "a future or a service that is not `Send`: share state through `Arc` and a `Mutex` instead of `Rc` and `RefCell`"
)]
pub trait ToolService: CallService<ToolRequest> {}

#[diagnostic::do_not_recommend]
impl<S: CallService<ToolRequest>> ToolService for S {}

/// A type-erased tool service.
pub type BoxTool = BoxCallService<ToolRequest>;
