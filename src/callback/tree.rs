use std::convert::identity;
use std::sync::Arc;

use super::bundle::{Bundle, RunBundles};
use super::list::Callbacks;
use super::loop_rules::{AtNoAnswer, LoopRules};
use super::position::Position;
use super::probe::{PromptTrail, WrapperCall};
use super::rules::{CallbackRules, Rules};
use super::stack::Stacks;
use crate::call::{CallKind, Request};
use crate::context::{CallbackTypes, Inherited, OfCallbacks, RunContext};
use crate::stream::Observer;

impl CallbackTypes for OfCallbacks {
    type Tree = Tree;
    type RunBundles = RunBundles;
    type WrapperCall = WrapperCall;
    type PromptTrail = PromptTrail;
}

/// The callbacks, layers and rules that an agent passes down to its calls and sub-agents.
#[derive(Clone, Debug, Default)]
pub(crate) struct Tree {
    /// The rules of the agent; `None` for the default.
    rules: Option<Arc<dyn Rules>>,
    /// The action of agents without their own at no answer, in place of what the rules say.
    at_no_answer: Option<AtNoAnswer>,
    /// The callbacks and layers around each call, outside and inside the agent's own.
    pub(crate) around: Stacks,
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
        at_no_answer: Option<AtNoAnswer>,
        global: impl Iterator<Item = &'b Bundle>,
        of_run: Option<&RunBundles>,
    ) -> Inherited {
        let mut global = global.peekable();
        // Most agents add nothing: they share what is around them.
        let has_rules = rules.is_some() || at_no_answer.is_some();
        if !has_rules && global.peek().is_none() && of_run.is_none() {
            return around.clone();
        }
        let mut tree = around.as_deref().cloned().unwrap_or_default();
        // The rules come first, since the bundles below take them.
        if let Some(rules) = rules {
            tree.rules = Some(rules.clone());
        }
        tree.at_no_answer = at_no_answer.or(tree.at_no_answer);
        // The run's are registered after the agent's, and a journal of the run is inside one of the
        // tree as well.
        for bundle in global {
            tree.add(bundle, identity);
        }
        if let Some(of_run) = of_run {
            tree.add(&of_run.global, identity);
            tree.add(&of_run.inside, Position::run);
        }
        Some(Arc::new(tree))
    }

    fn add(&mut self, bundle: &Bundle, place: fn(Position) -> Position) {
        self.observers.extend_from_slice(&bundle.observers);
        // Fixed here: in a sub-agent with other rules, the callbacks keep those of the agent that
        // they were registered with.
        let rules = self.rules.as_deref().unwrap_or(&CallbackRules::DEFAULT);
        self.around.append(&bundle.around, place, Some(rules));
    }

    /// Returns the rules of the agent's bands around calls of this kind.
    pub(crate) fn callback_rules(&self, call: CallKind) -> CallbackRules {
        match &self.rules {
            Some(rules) => rules.callbacks(call),
            None => CallbackRules::DEFAULT,
        }
    }

    /// Returns the rules that a band follows in this run, at its position in an agent's stack, if
    /// it is in one.
    pub(super) fn rules_of<R: Request>(
        position: Option<Position>,
        band: &Callbacks<R>,
        context: &RunContext,
    ) -> CallbackRules {
        match position {
            // For everything between them, these are part of the caller or of the service.
            Some(Position::Outermost | Position::Innermost | Position::AtTarget) => {
                CallbackRules::DEFAULT
            }
            Some(Position::Own) if band.own_rules.is_none() => Self::rules_in(context, R::CALL),
            _ => band.rules(),
        }
    }

    /// Returns the rules of the current agent's bands around calls of this kind.
    pub(super) fn rules_in(context: &RunContext, call: CallKind) -> CallbackRules {
        Self::of(context).map_or(CallbackRules::DEFAULT, |tree| tree.callback_rules(call))
    }

    /// Returns the rules of the loop of the current agent.
    pub(crate) fn loop_rules(context: &RunContext) -> LoopRules {
        let Some(tree) = Self::of(context) else {
            return LoopRules::default();
        };
        let rules = tree.rules.as_ref();
        let mut rules = rules.map_or_else(LoopRules::default, |rules| rules.agent_loop());
        rules.at_no_answer = tree.at_no_answer.unwrap_or(rules.at_no_answer);
        rules
    }
}

/// Returns what the agent of a call does at no answer: for a layer that may have another answer
/// instead, which an agent that accepts any has no use for.
///
/// ```
/// use tower_agent::callback::{AtNoAnswer, at_no_answer};
/// use tower_agent::{ModelRequest, ModelResponse, Request};
///
/// fn accepts(request: &ModelRequest, response: &ModelResponse) -> bool {
///     let rule = at_no_answer(request.context());
///     response.no_answer().is_none() || rule == AtNoAnswer::Tell
/// }
/// # drop(accepts);
/// ```
#[must_use]
pub fn at_no_answer(context: &RunContext) -> AtNoAnswer {
    Tree::loop_rules(context).at_no_answer
}
