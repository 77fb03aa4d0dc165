use std::sync::Arc;

use super::bundle::{Bundle, BundleLayers, Edges, RunBundles};
use super::list::Callbacks;
use super::rules::{CallbackRules, DefaultRules, LoopRules, Rules};
use crate::call::{CallKind, Request};
use crate::context::{CallbackTypes, Inherited, OfCallbacks, RunContext};
use crate::stream::Observer;

impl CallbackTypes for OfCallbacks {
    type Tree = Tree;
    type RunBundles = RunBundles;
}

/// The callbacks, layers and rules that an agent passes down to its calls and sub-agents.
#[derive(Clone, Debug, Default)]
pub(crate) struct Tree {
    /// The rules of the agent; `None` for the default.
    rules: Option<Arc<dyn Rules>>,
    /// The layers of journals, which are outside everything else.
    pub(crate) journal: BundleLayers,
    /// The callbacks for the agent and all its sub-agents.
    pub(crate) global: Bundle,
    /// The callbacks of the run.
    pub(crate) of_run: Bundle,
    /// The callbacks of both outside everything else, and directly around the model or the tools.
    pub(crate) edges: Edges,
    /// The observers of the agents around and of the run.
    observers: Vec<Observer>,
}

impl Tree {
    /// Returns what the current agent passes down; `None` outside an agent, or if it is empty.
    pub(crate) fn of(context: &RunContext) -> Option<&Self> {
        context.scope().settings.inherited.as_deref()
    }

    /// Returns the observers of an agent that passes this down.
    pub(crate) fn observers(inherited: &Inherited) -> &[Observer] {
        inherited.as_deref().map_or(&[], |tree| &tree.observers)
    }

    /// Returns what an agent with these rules and callbacks passes down, inside another that passes
    /// down `around`.
    pub(crate) fn enter<'b>(
        around: &Inherited,
        rules: Option<&Arc<dyn Rules>>,
        global: impl Iterator<Item = &'b Bundle>,
        of_run: Option<&RunBundles>,
    ) -> Inherited {
        let mut global = global.peekable();
        // Most agents add nothing: they share what is around them.
        if rules.is_none() && global.peek().is_none() && of_run.is_none() {
            return around.clone();
        }
        let mut tree = around.as_deref().cloned().unwrap_or_default();
        // The rules come first, since the bundles below take them.
        if let Some(rules) = rules {
            tree.rules = Some(rules.clone());
        }
        // The run's are registered after the agent's, and a journal of the run is inside one of the
        // tree as well.
        for bundle in global {
            tree.add_global(bundle);
        }
        if let Some(of_run) = of_run {
            tree.add_global(of_run.global());
            let inside = tree.add_edges(of_run.inside());
            tree.of_run.extend(inside);
        }
        Some(Arc::new(tree))
    }

    fn add_global(&mut self, bundle: &Bundle) {
        let callbacks = self.add_edges(bundle);
        self.global.extend(callbacks);
    }

    /// Adds what is outside and inside everything else; returns the bundle with its rules.
    fn add_edges(&mut self, bundle: &Bundle) -> Bundle {
        self.journal.append(bundle.journal_layers());
        self.observers.extend_from_slice(bundle.observers());
        // Fixed here: in a sub-agent with other rules, the callbacks keep those of the agent that
        // they were registered with.
        let callbacks = bundle.clone().or_rules(self.rules());
        self.edges.append(callbacks.edges());
        callbacks
    }

    fn rules(&self) -> &dyn Rules {
        self.rules.as_deref().unwrap_or(&DefaultRules)
    }

    /// Returns the rules of the agent's bands around calls of this kind.
    pub(crate) fn callback_rules(&self, call: CallKind) -> CallbackRules {
        match &self.rules {
            Some(rules) => rules.callbacks(call),
            None => CallbackRules::DEFAULT,
        }
    }

    /// Returns the rules that these callbacks follow in this run.
    pub(super) fn rules_of<R: Request>(
        callbacks: &Callbacks<R>,
        context: &RunContext,
    ) -> CallbackRules {
        if !callbacks.follows_agent() {
            return callbacks.rules();
        }
        match Self::of(context) {
            Some(tree) => tree.callback_rules(R::CALL),
            None => CallbackRules::DEFAULT,
        }
    }

    /// Returns the rules of the loop of the current agent.
    pub(crate) fn loop_rules(context: &RunContext) -> LoopRules {
        match Self::of(context) {
            Some(tree) => tree.rules().agent_loop(),
            None => LoopRules::DEFAULT,
        }
    }
}
