use tower::Service;

use super::{ToolRequest, ToolResponse};
use crate::boxed::BoxCallService;
use crate::error::BoxError;

/// What answers tool calls: any `tower::Service<ToolRequest>` that answers with a
/// [`ToolResponse`], whose error becomes a [`BoxError`], and that can be cloned, sent and shared.
///
/// It is implemented for every such service; nothing implements it by hand. A function that takes
/// one may put it under any layer of tower's, `Buffer` included.
#[diagnostic::on_unimplemented(
    message = "`{Self}` is not a tool service",
    label = "not a `Service<ToolRequest, Response = ToolResponse>` that is `Clone + Send + Sync + 'static`",
    note = "a tool is `Service<ToolRequest, Response = ToolResponse, Error: Into<BoxError> + Send + Sync>` with a `Send + 'static` future, and `Clone + Send + Sync + 'static` itself",
    note = "a service that lacks `Clone`: derive it, or put the service under `tower::buffer::Buffer`",
    note = "a future or a service that is not `Send`: share state through `Arc` and a `Mutex` instead of `Rc` and `RefCell`"
)]
pub trait ToolService:
    Service<
        ToolRequest,
        Response = ToolResponse,
        Error: Into<BoxError> + Send + Sync,
        Future: Send + 'static,
    > + Clone
    + Send
    + Sync
    + 'static
{
}

#[diagnostic::do_not_recommend]
impl<S> ToolService for S where
    S: Service<
            ToolRequest,
            Response = ToolResponse,
            Error: Into<BoxError> + Send + Sync,
            Future: Send + 'static,
        > + Clone
        + Send
        + Sync
        + 'static
{
}

/// Any tool's service, with its type erased.
pub type BoxTool = BoxCallService<ToolRequest>;
