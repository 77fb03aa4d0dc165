//! Checks that tools named by guards, limits and timeouts exist, and are what these take them for.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::build_error::BuildError;
use crate::callback::NamedTool;
use crate::error::{Error, ErrorKind, Result};
use crate::tool::{ToolDeclaration, ToolSet};

/// Names of tools. The value says whether each tool of the name is an agent, or the transfer to
/// one.
pub(crate) type ToolNames = BTreeMap<Arc<str>, bool>;

/// The tools that a callback or a layer of an agent may name.
#[derive(Clone, Default)]
pub(super) struct KnownTools {
    /// Tools of the agent and its sub-agents, and tools that runs provide.
    pub(super) all: ToolNames,
    /// Names of tools that a run must provide, or take to be agents if it has them.
    pub(super) brought: Vec<NamedTool>,
}

/// Adds tools to names.
pub(super) fn add<'n>(names: &mut ToolNames, tools: impl IntoIterator<Item = (&'n str, bool)>) {
    for (name, is_agent) in tools {
        match names.get_mut(name) {
            Some(are_agents) => *are_agents &= is_agent,
            None => drop(names.insert(name.into(), is_agent)),
        }
    }
}

/// Returns whether a tool is an agent, or the transfer to one.
pub(super) fn is_agent(tool: &ToolDeclaration) -> bool {
    tool.is_agent() || tool.is_transfer()
}

/// Fails if one of these tools does not exist, or is not what it is taken for.
pub(super) fn check(
    named: impl IntoIterator<Item = NamedTool>,
    known: &ToolNames,
) -> Result<(), BuildError> {
    for NamedTool { by, tool, as_agent } in named {
        match (known.get(&tool), as_agent) {
            (Some(false), true) => return Err(BuildError::NotAnAgent { by, tool }),
            (None, false) => {
                return Err(BuildError::UnknownTool {
                    by,
                    tool,
                    known: known.keys().cloned().collect(),
                });
            }
            _ => {}
        }
    }
    Ok(())
}

impl KnownTools {
    /// Fails if a run does not provide a tool that is named, names one that does not exist, or
    /// provides another one than an agent.
    pub(super) fn check_run(&self, of_run: &[NamedTool], tools: &ToolSet) -> Result<()> {
        for (index, named) in self.brought.iter().chain(of_run).enumerate() {
            let brought = tools.declaration(&named.tool);
            // Callbacks of the run may also name tools of the agent and its sub-agents.
            let known = self.all.get(&named.tool);
            let known = known.filter(|_| index >= self.brought.len());
            let are_agents = brought.map(|tool| is_agent(tool)).or(known.copied());
            let problem = match (are_agents, named.as_agent) {
                (Some(false), true) => BuildError::NotAnAgent {
                    by: named.by.clone(),
                    tool: named.tool.clone(),
                }
                .to_string(),
                (None, false) => format!(
                    "`{}` is for a tool `{}`, which neither the agent nor the run has; add it to \
                     the request's tools, or correct the name",
                    named.by, named.tool
                ),
                _ => continue,
            };
            return Err(Error::new(ErrorKind::InvalidRequest, problem));
        }
        Ok(())
    }
}
