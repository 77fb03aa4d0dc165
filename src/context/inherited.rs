use std::any::Any;
use std::sync::Arc;

/// What an agent passes down to its calls and sub-agents. The run does not look into it.
#[derive(Clone, Default)]
pub(crate) struct Inherited(Option<Arc<dyn Any + Send + Sync>>);

impl Inherited {
    pub(crate) fn new<T: Send + Sync + 'static>(inherited: T) -> Self {
        Self(Some(Arc::new(inherited)))
    }

    /// Empty, if nothing is passed down.
    pub(crate) fn get<T: 'static>(&self) -> Option<&T> {
        self.0.as_ref()?.downcast_ref()
    }
}
