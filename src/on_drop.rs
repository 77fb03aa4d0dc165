//! Cleanup on drop.

use std::fmt;
use std::ops::{Deref, DerefMut};

/// A value with a cleanup that runs on drop, unless it was [disarmed](Self::disarm).
pub(crate) struct OnDrop<T> {
    value: T,
    on_drop: Option<fn(&mut T)>,
}

impl<T> OnDrop<T> {
    pub(crate) fn new(value: T, on_drop: fn(&mut T)) -> Self {
        Self {
            value,
            on_drop: Some(on_drop),
        }
    }

    pub(crate) fn disarm(&mut self) {
        self.on_drop = None;
    }
}

impl<T> Drop for OnDrop<T> {
    fn drop(&mut self) {
        if let Some(on_drop) = self.on_drop {
            on_drop(&mut self.value);
        }
    }
}

impl<T> Deref for OnDrop<T> {
    type Target = T;

    fn deref(&self) -> &T {
        &self.value
    }
}

impl<T> DerefMut for OnDrop<T> {
    fn deref_mut(&mut self) -> &mut T {
        &mut self.value
    }
}

impl<T: fmt::Debug> fmt::Debug for OnDrop<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.value.fmt(f)
    }
}
