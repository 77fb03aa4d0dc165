/// The place of callbacks and layers around a call. The order of the variants is the order of the
/// stack, from the outside in.
///
/// Each agent has a stack of its own, inside what it inherits from the agents around it and from
/// the run. At the same position, what it inherits is outside its own.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Position {
    /// The layers of [journals](super::Bundle::journal). Something outside could repeat a stored
    /// call, leave it out or move it to another task.
    Journal,
    /// The callbacks that see what leaves a call, whoever wrote it, such as
    /// [`outermost_model`](super::Bundle::outermost_model).
    Outermost,
    /// The layers of bundles for the agent and all agents inside it. They are outside the callbacks
    /// of all bundles, since a layer would part these from those of the agent, which they may share
    /// a band with.
    GlobalLayers,
    /// The layers of bundles that a caller gives with a request. Inside those of the agents, which
    /// are registered before.
    RunLayers,
    /// The callbacks of bundles for the agent and all agents inside it, around everything of each
    /// agent's own.
    Global,
    /// The agent's own: callbacks and layers in the order of their registration.
    Own,
    /// The callbacks that a caller gives with a request, to stand inside those of the agents.
    Run,
    /// The callbacks that see the call as its target does, such as
    /// [`innermost_model`](super::Bundle::innermost_model).
    Innermost,
    /// The guards that see what those have made of it, such as [`at_tool`](super::Bundle::at_tool).
    /// The last position of all.
    AtTarget,
}

impl Position {
    /// The position inside all others.
    pub(super) const LAST: Self = Self::AtTarget;

    /// Returns whether callbacks there are part of the target for everything outside.
    pub(super) fn is_of_target(self) -> bool {
        matches!(self, Self::Innermost | Self::AtTarget)
    }

    /// Returns the position in an agent of which a bundle is part, instead of its tree.
    pub(crate) fn own(self) -> Self {
        match self {
            Self::GlobalLayers | Self::Global => Self::Own,
            edge => edge,
        }
    }

    /// Returns the position in a run that a bundle is given with, instead of a tree.
    pub(super) fn run(self) -> Self {
        match self {
            Self::GlobalLayers => Self::RunLayers,
            Self::Global => Self::Run,
            edge => edge,
        }
    }
}
