use std::sync::Arc;

/// An agent that a model may transfer the conversation to.
#[derive(Clone, Debug)]
pub(crate) struct TransferTarget {
    pub(crate) name: Arc<str>,
    /// For the model.
    pub(crate) description: Arc<str>,
}

#[derive(Debug)]
pub(crate) struct Neighbours {
    /// The agent that it is a sub-agent of.
    pub(crate) parent: TransferTarget,
    pub(crate) peers: Vec<TransferTarget>,
}
