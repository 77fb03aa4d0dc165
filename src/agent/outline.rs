//! The structure of an agent, for [`explain`](super::Agent::explain).

use std::borrow::Cow;
use std::sync::Arc;

use super::explain::{Explained, Explanation, Target, Wrapper};
use super::shell::Shell;
use crate::callback::{Callbacks, InAgent, RunBundles, Tree, merged};
use crate::context::Inherited;
use crate::model::ModelRequest;
use crate::run::AgentRequest;
use crate::tool::{Tool, ToolRequest};

pub(super) struct Outline {
    pub(super) shell: Shell,
    pub(super) body: Body,
}

/// The content of an agent's own stack.
pub(super) enum Body {
    Loop {
        max_iterations: u32,
        model: String,
        tool_concurrency: usize,
        /// Each tool, and the agent that implements it.
        tools: Vec<(Target, Option<Arc<Outline>>)>,
        sub_agents: Vec<Arc<Outline>>,
    },
    Team {
        plan: String,
        members: Vec<Arc<Outline>>,
    },
}

impl Outline {
    /// Describes a tool, and the agent that implements it.
    pub(super) fn tool(tool: &Tool) -> (Target, Option<Arc<Self>>) {
        let agent = tool.outline().cloned();
        let agent = agent.and_then(|outline| outline.downcast().ok());
        (Target::tool(tool), agent)
    }

    /// The agent inside others that have this for it, with the callbacks that a run brings.
    pub(super) fn explain(&self, around: &Inherited, of_run: Option<&RunBundles>) -> Explanation {
        let Shell { rules, global, .. } = &self.shell;
        let at_no_answer = self.shell.at_no_answer;
        let inherited = Tree::enter(around, rules.as_ref(), at_no_answer, global.iter(), of_run);
        let nothing = Tree::default();
        let tree = inherited.as_deref().unwrap_or(&nothing);
        let explain = |agent: &Arc<Self>| agent.explain(&inherited, None);
        let body = match &self.body {
            Body::Loop {
                max_iterations,
                model,
                tool_concurrency,
                tools,
                sub_agents,
            } => Explained::Loop {
                max_iterations: *max_iterations,
                model: Target {
                    around: self.around::<ModelRequest>(tree),
                    ..Target::new(model.clone())
                },
                tool_concurrency: *tool_concurrency,
                around_tools: self.around::<ToolRequest>(tree),
                tools: tools
                    .iter()
                    .map(|(tool, agent)| Target {
                        agent: agent.as_ref().map(|agent| Box::new(explain(agent))),
                        ..tool.clone()
                    })
                    .collect(),
                sub_agents: sub_agents.iter().map(explain).collect(),
            },
            Body::Team { plan, members } => Explained::Team {
                plan: plan.clone(),
                members: members.iter().map(explain).collect(),
            },
        };
        Explanation {
            agent: self.shell.name.to_string(),
            around: self.around::<AgentRequest>(tree),
            body,
        }
    }

    /// Describes what is around a call.
    fn around<R: InAgent>(&self, tree: &Tree) -> Vec<Wrapper> {
        let stack = R::IN_TREE.stack;
        let inherited = stack(&tree.around).parts();
        let own = stack(&self.shell.own).parts();
        let parts = merged(inherited, own, || tree.callback_rules(R::CALL));
        let names = parts.map(|((_, part), joined)| {
            let mut names = part.names();
            names.extend(
                joined
                    .into_iter()
                    .flat_map(Callbacks::names)
                    .map(Cow::into_owned),
            );
            names
        });
        // A band without callbacks is no line.
        Wrapper::of_parts(names.filter(|names| !names.is_empty()).collect())
    }
}
