//! A value of any type, as the typed maps store it.

use std::any::{Any, type_name};
use std::fmt;
use std::sync::Arc;

/// A value of any type, shared by its clones, that can name its type.
#[derive(Clone)]
pub(crate) struct AnyValue {
    type_name: &'static str,
    value: Arc<dyn Any + Send + Sync>,
}

impl AnyValue {
    pub(crate) fn new<T: Send + Sync + 'static>(value: T) -> Self {
        Self {
            type_name: type_name::<T>(),
            value: Arc::new(value),
        }
    }

    pub(crate) fn type_name(&self) -> &'static str {
        self.type_name
    }

    pub(crate) fn downcast_ref<T: Send + Sync + 'static>(&self) -> Option<&T> {
        self.value.downcast_ref()
    }

    pub(crate) fn downcast<T: Send + Sync + 'static>(self) -> Option<Arc<T>> {
        self.value.downcast().ok()
    }
}

impl fmt::Debug for AnyValue {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.type_name.fmt(f)
    }
}
