use crate::call::Extensions;

/// Data that a run carries for its calls, by type.
#[derive(Clone, Debug, Default)]
pub(crate) struct Carried {
    /// For an agent and its sub-agents.
    pub(crate) global: Extensions,
    /// For this run.
    pub(crate) run: Extensions,
    /// For an agent and its sub-agents, directly around the model and the tools.
    pub(crate) inmost: Extensions,
}

/// Where the carried callbacks are placed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Place {
    /// Around everything of the agent's own.
    Outermost,
    /// Inside everything of the agent's own.
    Innermost,
    /// Directly around the model or the tools.
    Inmost,
}

impl Carried {
    pub(super) fn at(&self, place: Place) -> &Extensions {
        match place {
            Place::Outermost => &self.global,
            Place::Innermost => &self.run,
            Place::Inmost => &self.inmost,
        }
    }
}
