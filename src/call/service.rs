use tower::Service;

use super::request::Request;
use crate::error::BoxError;

/// A service of one kind of call: any `tower::Service<R>` with `R`'s response and an error that
/// converts into a [`BoxError`], which is `Clone`, `Send` and `Sync`.
///
/// Implemented for every such service; do not implement it by hand.
/// [`ModelService`](crate::model::ModelService), [`ToolService`](crate::tool::ToolService) and
/// [`AgentService`](crate::agent::AgentService) are its names for the calls of an agent.
pub trait CallService<R: Request>:
    Service<R, Response = R::Response, Error: Into<BoxError> + Send + Sync, Future: Send + 'static>
    + Clone
    + Send
    + Sync
    + 'static
{
}

#[diagnostic::do_not_recommend]
impl<R: Request, S> CallService<R> for S where
    S: Service<
            R,
            Response = R::Response,
            Error: Into<BoxError> + Send + Sync,
            Future: Send + 'static,
        > + Clone
        + Send
        + Sync
        + 'static
{
}
