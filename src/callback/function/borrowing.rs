//! Functions whose futures borrow their arguments.

use std::future::Future;

use crate::error::Error;
use crate::function::Seal;

/// A function whose future borrows the request.
#[diagnostic::on_unimplemented(
    message = "`{Self}` is not an async function of a borrowed request",
    label = "not `async fn(&mut {R}) -> _` with a `Send` future",
    note = "an async closure must name its parameter's type, `async |request: &mut ModelRequest| ..`, and capture nothing",
    note = "to capture, clone inside a plain closure and return `async move`: `before_model(move |request| {{ let name = name.clone(); async move {{ .. }} }})`; or implement `Callback`"
)]
pub trait BorrowingBefore<'a, R>: Send + Sync {
    /// The output of the future.
    type Output;

    /// Calls the function.
    fn run(&self, request: &'a mut R, _: Seal) -> impl Future<Output = Self::Output> + Send + 'a;
}

#[diagnostic::do_not_recommend]
impl<'a, R, F, Fut> BorrowingBefore<'a, R> for F
where
    R: 'a,
    F: Fn(&'a mut R) -> Fut + Send + Sync,
    Fut: Future + Send + 'a,
{
    type Output = Fut::Output;

    fn run(&self, request: &'a mut R, _: Seal) -> impl Future<Output = Self::Output> + Send + 'a {
        self(request)
    }
}

/// A function whose future borrows the request and the response.
#[diagnostic::on_unimplemented(
    message = "`{Self}` is not an async function of a borrowed request and response",
    label = "not `async fn(&{R}, &{T}) -> _` with a `Send` future",
    note = "an async closure must name its parameters' types and capture nothing",
    note = "to capture, clone inside a plain closure and return `async move`, or implement `Callback`"
)]
pub trait BorrowingAfter<'a, R, T>: Send + Sync {
    /// The output of the future.
    type Output;

    /// Calls the function.
    fn run(
        &self,
        request: &'a R,
        response: &'a T,
        _: Seal,
    ) -> impl Future<Output = Self::Output> + Send + 'a;
}

#[diagnostic::do_not_recommend]
impl<'a, R, T, F, Fut> BorrowingAfter<'a, R, T> for F
where
    R: 'a,
    T: 'a,
    F: Fn(&'a R, &'a T) -> Fut + Send + Sync,
    Fut: Future + Send + 'a,
{
    type Output = Fut::Output;

    fn run(
        &self,
        request: &'a R,
        response: &'a T,
        _: Seal,
    ) -> impl Future<Output = Self::Output> + Send + 'a {
        self(request, response)
    }
}

/// A function whose future borrows the request and the error.
#[diagnostic::on_unimplemented(
    message = "`{Self}` is not an async function of a borrowed request and error",
    label = "not `async fn(&mut {R}, &Error) -> _` with a `Send` future",
    note = "an async closure must name its parameters' types and capture nothing",
    note = "to capture, clone inside a plain closure and return `async move`, or implement `Callback`"
)]
pub trait BorrowingOnError<'a, R>: Send + Sync {
    /// The output of the future.
    type Output;

    /// Calls the function.
    fn run(
        &self,
        request: &'a mut R,
        error: &'a Error,
        _: Seal,
    ) -> impl Future<Output = Self::Output> + Send + 'a;
}

#[diagnostic::do_not_recommend]
impl<'a, R, F, Fut> BorrowingOnError<'a, R> for F
where
    R: 'a,
    F: Fn(&'a mut R, &'a Error) -> Fut + Send + Sync,
    Fut: Future + Send + 'a,
{
    type Output = Fut::Output;

    fn run(
        &self,
        request: &'a mut R,
        error: &'a Error,
        _: Seal,
    ) -> impl Future<Output = Self::Output> + Send + 'a {
        self(request, error)
    }
}
