//! Tools made from functions.

use std::fmt;
use std::future::Future;
use std::marker::PhantomData;
use std::sync::Arc;
use std::task::{Context, Poll};

use serde::de::DeserializeOwned;
use tower::Service;

use super::arguments;
use super::output::IntoToolResponse;
use super::request::ToolRequest;
use super::response::ToolResponse;
use super::schema::Parameters;
use crate::error::{Error, Result};
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

/// A service that parses the arguments and calls the function with them and the request.
pub(super) struct Function<F, A> {
    inner: Arc<TypedFunction<F>>,
    // The arguments are made, never held: the service is `Send` and `Sync` whatever they are.
    arguments: PhantomData<fn() -> A>,
}

/// A function and the parameters that its arguments are parsed by; shared by all clones.
struct TypedFunction<F> {
    function: F,
    parameters: Parameters,
}

impl<F, A> Function<F, A> {
    pub(super) fn new(function: F, parameters: Parameters) -> Self {
        Self {
            inner: Arc::new(TypedFunction {
                function,
                parameters,
            }),
            arguments: PhantomData,
        }
    }
}

impl<F, A> Service<ToolRequest> for Function<F, A>
where
    F: Fn(A, ToolRequest) -> MaybeFuture<'static, Result<ToolResponse>>,
    A: DeserializeOwned,
{
    type Response = ToolResponse;
    type Error = Error;
    type Future = MaybeFuture<'static, Result<ToolResponse>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: ToolRequest) -> Self::Future {
        let TypedFunction {
            function,
            parameters,
        } = &*self.inner;
        // Unchanged arguments are parsed from the model's text: a `Value` would lose large numbers and
        // take a second pass.
        let arguments = match request.changed_arguments() {
            Some(changed) => arguments::parse(changed, parameters),
            None => arguments::parse_text(&request.call().arguments, parameters),
        };
        match arguments {
            Ok(arguments) => function(arguments, request),
            Err(invalid) => MaybeFuture::ready(Err(invalid.into())),
        }
    }
}

impl<F, A> Clone for Function<F, A> {
    fn clone(&self) -> Self {
        Self {
            inner: self.inner.clone(),
            arguments: PhantomData,
        }
    }
}

impl<F, A> fmt::Debug for Function<F, A> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Function").finish_non_exhaustive()
    }
}
