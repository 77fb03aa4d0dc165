//! The structure of an agent, for [`explain`](super::Agent::explain).

use std::sync::Arc;

use super::options::{self, Semantics};
use super::{Agent, Explanation};
use crate::call::Request;
use crate::callback::{Bundle, Callbacks, StackBuilder};
use crate::context::Carried;
use crate::model::ModelRequest;
use crate::run::AgentRequest;
use crate::tool::ToolRequest;

pub(super) struct Outline {
    pub(super) name: Arc<str>,
    pub(super) semantics: Option<Semantics>,
    pub(super) global: Bundle,
    pub(super) agent: Parts,
    pub(super) body: Body,
}

/// The content of an agent's own stack.
pub(super) enum Body {
    Loop {
        max_iterations: u32,
        model: (Parts, Explanation),
        tool_concurrency: usize,
        tools: (Parts, Explanation),
        sub_agents: Vec<Agent>,
    },
    Team {
        plan: String,
        members: Vec<Agent>,
    },
}

/// The names in a stack.
pub(super) struct Parts {
    names: Vec<Vec<String>>,
    begins_with_band: bool,
}

impl<R: Request> From<&StackBuilder<R>> for Parts {
    fn from(stack: &StackBuilder<R>) -> Self {
        Self { names: stack.names(), begins_with_band: stack.begins_with_band() }
    }
}

impl Parts {
    /// Returns the names, with those of the callbacks that the tree has for this call.
    fn in_tree<R: Request>(&self, tree: &Carried, semantics: Semantics) -> Vec<Vec<String>> {
        let mut names = self.names.clone();
        let Some(tree) = tree.global.get::<Callbacks<R>>() else { return names };
        let of_tree = tree.names().map(String::from);
        match names.first_mut() {
            Some(own) if self.begins_with_band && tree.shares_band_of(semantics.band) => {
                *own = of_tree.chain(std::mem::take(own)).collect();
            }
            _ => names.insert(0, of_tree.collect()),
        }
        names
    }
}

impl Outline {
    /// Returns the explanation of the agent inside others with `around`.
    pub(super) fn explain(&self, around: &Carried) -> Explanation {
        let mut tree = around.clone();
        let semantics = options::enter(self.semantics, &self.global, &mut tree);
        let mut onion = Explanation::new();
        onion.line(0, format!("agent `{}`", self.name));
        let inside = onion.stack(1, self.agent.in_tree::<AgentRequest>(&tree, semantics));
        match &self.body {
            Body::Loop { max_iterations, model, tool_concurrency, tools, sub_agents } => {
                onion.line(inside, format!("loop of at most {max_iterations} model calls"));
                onion.line(inside + 1, "model call");
                let (stack, service) = model;
                let stack = stack.in_tree::<ModelRequest>(&tree, semantics);
                let depth = onion.stack(inside + 2, stack);
                onion.nest(depth, service);
                onion.line(inside + 1, format!("tool calls, {tool_concurrency} at a time"));
                let (stack, services) = tools;
                let stack = stack.in_tree::<ToolRequest>(&tree, semantics);
                let depth = onion.stack(inside + 2, stack);
                onion.nest(depth, services);
                if !sub_agents.is_empty() {
                    onion.line(inside + 1, "may transfer to");
                    sub_agents.iter().for_each(|it| onion.nest(inside + 2, &it.explain_in(&tree)));
                }
            }
            Body::Team { plan, members } => {
                onion.line(inside, plan);
                members.iter().for_each(|it| onion.nest(inside + 1, &it.explain_in(&tree)));
            }
        }
        onion
    }
}
