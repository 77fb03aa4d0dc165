//! Values that tool functions return.

use std::future::Future;

use super::output::IntoToolResponse;
use super::response::ToolResponse;
use crate::error::Result;
use crate::function::{Later, Now, Seal};
use crate::maybe_future::MaybeFuture;

/// Return types of a tool function: a result, or a future of one. `M` distinguishes the two.
#[diagnostic::on_unimplemented(
    message = "a tool function cannot return `{Self}`",
    label = "neither a tool result nor a `Send + 'static` future of one",
    note = "for a type of your own, derive `Serialize` and wrap it in `tower_agent::Json`",
    note = "a future must own what it uses (`async move`) and be `Send`"
)]
pub trait IntoToolFuture<M> {
    /// Converts the returned value to a future.
    fn into_tool_future(self, _: Seal) -> MaybeFuture<'static, Result<ToolResponse>>;
}

#[diagnostic::do_not_recommend]
impl<O: IntoToolResponse> IntoToolFuture<Now> for O {
    fn into_tool_future(self, _: Seal) -> MaybeFuture<'static, Result<ToolResponse>> {
        MaybeFuture::ready(self.into_tool_response())
    }
}

#[diagnostic::do_not_recommend]
impl<F> IntoToolFuture<Later> for F
where
    F: Future<Output: IntoToolResponse> + Send + 'static,
{
    fn into_tool_future(self, _: Seal) -> MaybeFuture<'static, Result<ToolResponse>> {
        MaybeFuture::pending(async move { self.await.into_tool_response() })
    }
}
