use super::bundle::{Bundle, BundleLayers};
use super::list::Callbacks;
use super::options::CallbackSemantics;
use crate::call::Request;
use crate::context::{Inherited, RunContext};
use crate::run::LoopSemantics;

/// What an agent passes down to its calls and sub-agents.
#[derive(Clone, Debug, Default)]
pub(crate) struct Tree {
    /// The semantics of its callbacks.
    pub(crate) band: CallbackSemantics,
    /// The semantics of its loop.
    pub(crate) run: LoopSemantics,
    /// The layers of journals, which are outside everything else.
    pub(crate) journal: BundleLayers,
    /// The callbacks for itself and all its sub-agents.
    pub(crate) global: Bundle,
    /// The callbacks of the run.
    pub(crate) of_run: Bundle,
    /// The callbacks of both directly around the model or the tools.
    pub(crate) inmost: Bundle,
}

impl Tree {
    /// Returns that of the current agent; `None` outside an agent, or if it is empty.
    pub(crate) fn of(context: &RunContext) -> Option<&Self> {
        context.inherited().get()
    }

    /// Adds callbacks of an agent further in.
    pub(crate) fn add_global(&mut self, bundle: Bundle) {
        self.journal.append(bundle.journal_layers());
        self.global.extend(bundle, &mut self.inmost);
    }

    /// Adds callbacks that were given with a run of an agent further in.
    pub(crate) fn add_of_run(&mut self, bundle: Bundle) {
        self.journal.append(bundle.journal_layers());
        self.of_run.extend(bundle, &mut self.inmost);
    }

    pub(crate) fn into_inherited(self) -> Inherited {
        Inherited::new(self)
    }
}

impl<R: Request> Callbacks<R> {
    /// The semantics that these callbacks follow in this run.
    pub(super) fn semantics_in(&self, context: &RunContext) -> CallbackSemantics {
        if self.follows_agent() {
            Tree::of(context).map(|tree| tree.band).unwrap_or_default()
        } else {
            self.semantics()
        }
    }
}
