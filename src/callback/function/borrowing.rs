//! Functions whose futures borrow their arguments.

use std::future::Future;

use crate::function::Seal;

/// A function whose future borrows its arguments, the tuple `A`: the request, and after the call
/// its response or error.
#[diagnostic::on_unimplemented(
    message = "`{Self}` is not an async function of borrowed arguments",
    label = "not an `async fn` of `{A}` with a `Send` future",
    note = "an async closure must name its parameters' types, as `async |request: &mut ModelRequest| ..` does, and capture nothing",
    note = "to capture, clone inside a plain closure and return `async move`: `before_model(move |request| {{ let name = name.clone(); async move {{ .. }} }})`; or implement `Callback`"
)]
pub trait Borrowing<A>: Send + Sync {
    /// The output of the future.
    type Output;

    /// Calls the function.
    fn run(
        &self,
        arguments: A,
        _: Seal,
    ) -> impl Future<Output = Self::Output> + Send + use<Self, A>;
}

#[diagnostic::do_not_recommend]
impl<A, F, Fut> Borrowing<(A,)> for F
where
    F: Fn(A) -> Fut + Send + Sync,
    Fut: Future + Send,
{
    type Output = Fut::Output;

    fn run(
        &self,
        (a,): (A,),
        _: Seal,
    ) -> impl Future<Output = Fut::Output> + Send + use<A, F, Fut> {
        self(a)
    }
}

#[diagnostic::do_not_recommend]
impl<A, B, F, Fut> Borrowing<(A, B)> for F
where
    F: Fn(A, B) -> Fut + Send + Sync,
    Fut: Future + Send,
{
    type Output = Fut::Output;

    fn run(
        &self,
        (a, b): (A, B),
        _: Seal,
    ) -> impl Future<Output = Fut::Output> + Send + use<A, B, F, Fut> {
        self(a, b)
    }
}
