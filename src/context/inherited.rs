use std::sync::Arc;

/// The types of what runs and requests carry of the callbacks, which stand above and are about
/// requests: the implementation there says which they are, so that nothing is cast.
pub(crate) trait CallbackTypes {
    /// The callbacks that an agent passes down to its calls and sub-agents.
    type Tree;
    /// The callbacks that a caller adds to a run.
    type RunBundles;
    /// A call inside a band or a layer that a probe watches.
    type WrapperCall;
    /// The latest request of a model, as probes have seen it.
    type PromptTrail;
}

/// The implementation of [`CallbackTypes`].
pub(crate) enum OfCallbacks {}

/// The callbacks that an agent passes down. `None` if there are none, as in most runs.
pub(crate) type Inherited = Option<Arc<<OfCallbacks as CallbackTypes>::Tree>>;

/// The callbacks that a caller adds to a run.
pub(crate) type RunCallbacks = Option<Arc<<OfCallbacks as CallbackTypes>::RunBundles>>;

/// A call inside a band or a layer that a probe watches.
pub(crate) type WrapperCall = <OfCallbacks as CallbackTypes>::WrapperCall;

/// The latest request of an agent's model, as probes have seen it. `None` where none looks.
pub(crate) type LatestPrompt = Option<<OfCallbacks as CallbackTypes>::PromptTrail>;
