use super::{Bundle, CallbackSemantics};
use crate::context::{Inherited, RunContext};
use crate::run::LoopSemantics;

/// What an agent hands down to the calls and the agents in it.
#[derive(Clone, Debug, Default)]
pub(crate) struct Tree {
    /// How its callbacks answer what frameworks answer differently.
    pub(crate) band: CallbackSemantics,
    /// How its loop does.
    pub(crate) run: LoopSemantics,
    /// Its callbacks for itself and for all that work for it.
    pub(crate) global: Bundle,
    /// The callbacks that were given with the run.
    pub(crate) of_run: Bundle,
    /// Those of both that stand around what is called.
    pub(crate) inmost: Bundle,
}

impl Tree {
    /// That of the agent at work; none outside of an agent, or where there is nothing to say.
    pub(crate) fn of(context: &RunContext) -> Option<&Self> {
        context.inherited().get()
    }

    /// Adds callbacks of an agent further in.
    pub(crate) fn add_global(&mut self, bundle: Bundle) {
        self.global.extend(bundle, &mut self.inmost);
    }

    /// Adds callbacks that were given with a run of an agent further in.
    pub(crate) fn add_of_run(&mut self, bundle: Bundle) {
        self.of_run.extend(bundle, &mut self.inmost);
    }

    pub(crate) fn into_inherited(self) -> Inherited {
        Inherited::new(self)
    }
}
