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

    /// Returns the position in [`ALL`](Self::ALL) of the only hook of this set.
    #[inline]
    pub(super) const fn number(self) -> usize {
        self.0.trailing_zeros() as usize
    }

    pub(super) const fn and(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }

    /// Returns whether the sets have a hook in common.
    pub(super) const fn has(self, any: Self) -> bool {
        self.0 & any.0 != 0
    }
}

/// The future of a hook `HOOK` of `C`, for calls of `R`, that is not overridden. Its decision `D`
/// changes nothing.
pub(crate) struct NoHook<C: ?Sized, R, D, const HOOK: u8>(PhantomData<fn(&C, &R) -> D>);

impl<C: ?Sized, R, D, const HOOK: u8> NoHook<C, R, D, HOOK> {
    pub(crate) const fn new() -> Self {
        Self(PhantomData)
    }
}

impl<C: ?Sized, R, D: Default, const HOOK: u8> Future for NoHook<C, R, D, HOOK> {
    type Output = Result<D>;

    fn poll(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<Self::Output> {
        Poll::Ready(Ok(D::default()))
    }
}
