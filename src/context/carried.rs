use crate::call::Extensions;

/// What a run carries for the calls made in it, by type.
#[derive(Clone, Debug, Default)]
pub(crate) struct Carried {
    /// For an agent and all that work for it.
    pub(crate) global: Extensions,
    /// For this run.
    pub(crate) run: Extensions,
    /// For an agent and all that work for it, around the model and the tools themselves.
    pub(crate) inmost: Extensions,
}

/// Where carried callbacks stand.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Place {
    /// Around everything that an agent has of its own.
    Outermost,
    /// Inside it.
    Innermost,
    /// Around the model or the tools themselves.
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
