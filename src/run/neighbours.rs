use std::sync::Arc;

/// An agent that a model may transfer the conversation to.
#[derive(Clone, Debug)]
pub(crate) struct TransferTarget {
    pub(crate) name: Arc<str>,
    /// For the model.
    pub(crate) description: Arc<str>,
}

/// The agents around a sub-agent.
#[derive(Debug)]
pub(crate) struct Neighbours {
    /// The agent that it is a sub-agent of.
    pub(crate) parent: TransferTarget,
    /// The other sub-agents of that one.
    pub(crate) peers: Vec<TransferTarget>,
}
