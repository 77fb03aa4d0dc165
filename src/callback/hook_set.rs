//! Determines which hooks a callback implements.
//!
//! A hook of [`Callback`](super::Callback) that is not overridden returns a [`NoHook`], whose type
//! names the callback and the hook. Only the trait's own defaults can create it, so the type of a
//! hook's future shows whether the hook is overridden. A callback cannot be wrong about this, and a
//! hook that does something before it calls the default of another callback still runs and is
//! shown.

use std::future::Future;
use std::marker::PhantomData;
use std::pin::Pin;
use std::task::{Context, Poll};

use super::action::{Action, Recovery};
use crate::call::Request;
use crate::error::Result;

/// A set of hooks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct HookSet(u8);

pub(crate) const BEFORE: u8 = 1;
pub(crate) const AFTER: u8 = 1 << 1;
pub(crate) const ON_ERROR: u8 = 1 << 2;
const ON_END: u8 = 1 << 3;

impl HookSet {
    pub(super) const BEFORE: Self = Self(BEFORE);
    pub(super) const AFTER: Self = Self(AFTER);
    pub(super) const ON_ERROR: Self = Self(ON_ERROR);
    pub(super) const ON_END: Self = Self(ON_END);

    /// Each hook.
    ///
    /// The traits have defaults for every hook, so the compiler does not miss one that an
    /// implementation forgets to forward. Each such implementation therefore names the hooks of
    /// this array, and no longer compiles when there is another.
    pub(crate) const ALL: [Self; 4] = [Self::BEFORE, Self::AFTER, Self::ON_ERROR, Self::ON_END];

    pub(super) const fn and(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }

    /// Returns whether the sets have a hook in common.
    pub(super) const fn has(self, any: Self) -> bool {
        self.0 & any.0 != 0
    }
}

/// The future of a hook `HOOK` of `C`, for calls of `R`, that is not overridden.
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
