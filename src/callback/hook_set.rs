//! Which hooks a callback has.
//!
//! A hook of [`Callback`](super::Callback) that is not overridden returns a [`NoHook`], whose type
//! says whose and which hook it is. It can be made in the trait's own defaults alone, so the type
//! of a hook's future tells whether the hook was overridden: a callback cannot be wrong about it,
//! and a hook that does something before it hands on to the default of another callback is still
//! run and shown.

use std::future::Future;
use std::marker::PhantomData;
use std::pin::Pin;
use std::task::{Context, Poll};

use super::{Action, Recovery};
use crate::call::Request;
use crate::error::Result;

/// Some of the hooks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct HookSet(u8);

pub(crate) const BEFORE: u8 = 1;
pub(crate) const AFTER: u8 = 1 << 1;
pub(crate) const ON_ERROR: u8 = 1 << 2;
const ON_END: u8 = 1 << 3;

impl HookSet {
    pub(super) const BEFORE: Self = Self(BEFORE);
    pub(super) const AFTER: Self = Self(AFTER);
    pub(super) const ON_ERROR: Self = Self(ON_ERROR);
    pub(super) const ON_END: Self = Self(ON_END);

    pub(super) const fn and(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }

    /// Whether any of these is one of them.
    pub(super) const fn has(self, any: Self) -> bool {
        self.0 & any.0 != 0
    }
}

/// The future of hook `HOOK` of a `C` around calls of `R` that does not override it.
pub(crate) struct NoHook<C: ?Sized, R, const HOOK: u8>(PhantomData<fn(&C, &R)>);

impl<C: ?Sized, R, const HOOK: u8> NoHook<C, R, HOOK> {
    pub(crate) const fn new() -> Self {
        Self(PhantomData)
    }
}

impl<C: ?Sized, R: Request> Future for NoHook<C, R, BEFORE> {
    type Output = Result<Action<R::Response>>;

    fn poll(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<Self::Output> {
        Poll::Ready(Ok(Action::Continue))
    }
}

impl<C: ?Sized, R: Request> Future for NoHook<C, R, AFTER> {
    type Output = Result<Action<R::Response>>;

    fn poll(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<Self::Output> {
        Poll::Ready(Ok(Action::Continue))
    }
}

impl<C: ?Sized, R: Request> Future for NoHook<C, R, ON_ERROR> {
    type Output = Result<Recovery<R::Response>>;

    fn poll(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<Self::Output> {
        Poll::Ready(Ok(Recovery::Propagate))
    }
}
