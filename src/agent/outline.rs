//! The structure of an agent, for [`explain`](super::Agent::explain).

use std::borrow::Cow;
use std::sync::Arc;

use super::explain::{Explained, Explanation, Target, Wrapper};
use crate::call::Request;
use crate::callback::{
    Callbacks, Edges, GlobalBundles, InBundle, Rules, RunBundles, StackBuilder, Tree,
};
use crate::context::Inherited;
use crate::model::ModelRequest;
use crate::run::AgentRequest;
use crate::tool::ToolRequest;

pub(super) struct Outline {
    pub(super) name: Arc<str>,
    pub(super) rules: Option<Arc<dyn Rules>>,
    pub(super) global: GlobalBundles,
    pub(super) agent: Parts,
    pub(super) body: Body,
}

/// The content of an agent's own stack.
pub(super) enum Body {
    Loop {
        max_iterations: u32,
        model: (Parts, String),
        tool_concurrency: usize,
        tools: (Parts, Vec<Target>),
        sub_agents: Vec<Arc<Outline>>,
    },
    Team {
        plan: String,
        members: Vec<Arc<Outline>>,
    },
}

/// The names in a stack.
pub(super) struct Parts {
    names: Vec<Vec<String>>,
    begins_with_band: bool,
    /// The agent's own callbacks outside everything else.
    outermost: Vec<String>,
    /// The agent's own callbacks directly around the target.
    innermost: Vec<String>,
}

impl Parts {
    pub(super) fn new<R: InBundle>(stack: &StackBuilder<R>, edges: &Edges) -> Self {
        Self {
            names: stack.names(),
            begins_with_band: stack.begins_with_band(),
            outermost: band_names(Some(R::outermost(edges))),
            innermost: band_names(R::inmost(edges)),
        }
    }

    /// The names, with those of the layers and callbacks that the tree has for this call.
    fn in_tree<R: InBundle>(&self, tree: &Tree) -> Vec<Vec<String>> {
        let mut names = self.names.clone();
        let rules = tree.callback_rules(R::CALL);
        let journal = tree.journal.of::<R>().names();
        let layers = tree.global.layers().of::<R>().names();
        let layers_of_run = tree.of_run.layers().of::<R>().names();
        let global = R::around(&tree.global);
        let of_tree = global.names().map(String::from);
        match names.first_mut() {
            _ if global.is_empty() => {}
            Some(own) if self.begins_with_band && global.shares_band_of(rules) => {
                *own = of_tree.chain(std::mem::take(own)).collect();
            }
            _ => names.insert(0, of_tree.collect()),
        }
        let of_run = R::around(&tree.of_run);
        if !of_run.is_empty() {
            names.push(of_run.names().map(String::from).collect());
        }
        let outermost = [
            band_names(Some(R::outermost(&tree.edges))),
            self.outermost.clone(),
        ];
        let innermost = [band_names(R::inmost(&tree.edges)), self.innermost.clone()];
        let layers = layers.chain(layers_of_run);
        let all = journal.chain(outermost).chain(layers).chain(names);
        // A band without callbacks is no line.
        all.chain(innermost)
            .filter(|names| !names.is_empty())
            .collect()
    }
}

fn band_names<R: Request>(band: Option<&Callbacks<R>>) -> Vec<String> {
    let names = band.into_iter().flat_map(Callbacks::names);
    names.map(Cow::into_owned).collect()
}

impl Outline {
    /// The agent inside others that have this for it, with the callbacks that a run brings.
    pub(super) fn explain(&self, around: &Inherited, of_run: Option<&RunBundles>) -> Explanation {
        let inherited = Tree::enter(around, self.rules.as_ref(), self.global.iter(), of_run);
        let nothing = Tree::default();
        let tree = inherited.as_deref().unwrap_or(&nothing);
        let explain = |agent: &Arc<Self>| agent.explain(&inherited, None);
        let body = match &self.body {
            Body::Loop {
                max_iterations,
                model: (stack, model),
                tool_concurrency,
                tools: (stack_of_tools, tools),
                sub_agents,
            } => Explained::Loop {
                max_iterations: *max_iterations,
                model: Target {
                    around: Wrapper::of_parts(stack.in_tree::<ModelRequest>(tree)),
                    name: model.clone(),
                },
                tool_concurrency: *tool_concurrency,
                around_tools: Wrapper::of_parts(stack_of_tools.in_tree::<ToolRequest>(tree)),
                tools: tools.clone(),
                sub_agents: sub_agents.iter().map(explain).collect(),
            },
            Body::Team { plan, members } => Explained::Team {
                plan: plan.clone(),
                members: members.iter().map(explain).collect(),
            },
        };
        Explanation {
            agent: self.name.to_string(),
            around: Wrapper::of_parts(self.agent.in_tree::<AgentRequest>(tree)),
            body,
        }
    }
}
