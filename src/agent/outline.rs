//! The structure of an agent, for [`explain`](super::Agent::explain).

use std::borrow::Cow;
use std::sync::Arc;

use super::explain::{Explained, Explanation, Wrapper};
use super::shell::Shell;
use crate::callback::{Callbacks, InAgent, RunBundles, Tree, merged};
use crate::context::Inherited;
use crate::model::ModelRequest;
use crate::run::AgentRequest;
use crate::tool::{Tool, ToolRequest};

pub(super) struct Outline {
    pub(super) shell: Shell,
    /// The inside without its agents, and with nothing around its calls.
    pub(super) body: Explained,
    /// The sub-agents, or the members of a team.
    pub(super) inside: Vec<Arc<Outline>>,
    /// The agent that implements each tool.
    pub(super) in_tools: Vec<Option<Arc<Outline>>>,
}

impl Outline {
    /// Returns the agent that implements a tool.
    pub(super) fn of_tool(tool: &Tool) -> Option<Arc<Self>> {
        tool.outline()?.clone().downcast().ok()
    }

    pub(super) fn is_team(&self) -> bool {
        matches!(self.body, Explained::Team { .. })
    }

    /// The agent inside others that have this for it, with the callbacks that a run brings.
    pub(super) fn explain(&self, around: &Inherited, of_run: Option<&RunBundles>) -> Explanation {
        let Shell { rules, global, .. } = &self.shell;
        let at_no_answer = self.shell.at_no_answer;
        let inherited = Tree::enter(around, rules.as_ref(), at_no_answer, global.iter(), of_run);
        let nothing = Tree::default();
        let tree = inherited.as_deref().unwrap_or(&nothing);
        let explain = |agent: &Arc<Self>| agent.explain(&inherited, None);
        let inside = self.inside.iter().map(explain).collect();
        let mut body = self.body.clone();
        match &mut body {
            Explained::Loop {
                model,
                around_tools,
                tools,
                sub_agents,
                ..
            } => {
                model.around = self.around::<ModelRequest>(tree);
                *around_tools = self.around::<ToolRequest>(tree);
                for (tool, agent) in tools.iter_mut().zip(&self.in_tools) {
                    tool.agent = agent.as_ref().map(|agent| Box::new(explain(agent)));
                }
                *sub_agents = inside;
            }
            Explained::Team { members, .. } => *members = inside,
        }
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
            let joined = joined.into_iter().flat_map(Callbacks::names);
            let mut names = part.names();
            names.extend(joined.map(Cow::into_owned));
            names
        });
        // A band without callbacks is no line.
        Wrapper::of_parts(names.filter(|names| !names.is_empty()).collect())
    }
}
