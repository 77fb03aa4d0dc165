//! Checks that tools named by guards, limits and timeouts exist.

use std::collections::BTreeSet;
use std::sync::Arc;

use super::build_error::BuildError;
use crate::callback::NamedTool;
use crate::error::{Error, ErrorKind, Result};
use crate::tool::ToolSet;

/// The tools that a callback or a layer of an agent may name.
#[derive(Clone, Default)]
pub(super) struct KnownTools {
    /// Tools of the agent and its sub-agents, and tools that runs provide.
    pub(super) all: BTreeSet<Arc<str>>,
    /// Names of tools that a run must provide.
    pub(super) brought: Vec<NamedTool>,
}

/// Fails if one of these tools does not exist.
pub(super) fn check(
    named: impl IntoIterator<Item = NamedTool>,
    known: &BTreeSet<Arc<str>>,
) -> Result<(), BuildError> {
    match named.into_iter().find(|named| !known.contains(&named.tool)) {
        Some(NamedTool { by, tool }) => Err(BuildError::UnknownTool {
            by,
            tool,
            known: known.iter().cloned().collect(),
        }),
        None => Ok(()),
    }
}

impl KnownTools {
    /// Fails if a run does not provide a tool that is named, or names one that does not exist.
    pub(super) fn check_run(&self, of_run: &[NamedTool], tools: &ToolSet) -> Result<()> {
        let is_missing = |named: &&NamedTool| tools.declaration(&named.tool).is_none();
        let missing = match self.brought.iter().find(is_missing) {
            Some(missing) => Some(missing),
            // Callbacks of the run may also name tools of the agent and its sub-agents.
            None => of_run
                .iter()
                .filter(is_missing)
                .find(|named| !self.all.contains(&named.tool)),
        };
        let Some(NamedTool { by, tool }) = missing else {
            return Ok(());
        };
        let message = format!(
            "`{by}` is for a tool `{tool}`, which neither the agent nor the run has; add it to \
             the request's tools, or correct the name"
        );
        Err(Error::new(ErrorKind::InvalidRequest, message))
    }
}
