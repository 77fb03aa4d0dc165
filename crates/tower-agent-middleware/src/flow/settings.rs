//! The settings of the guard.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::sync::Arc;

use tower_agent::Agent;
use tower_agent::error::{Answerer, Error, ErrorKind};
use tower_agent::tool::{ToolDeclaration, ToolRequest};

use super::declaration::ToolFlow;
use super::hide::Hide;
use super::label::Label;
use super::meta::own_name;

/// The answer to a call that breaks a rule.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum OnViolation {
    /// It is not made. The model reads which rule it breaks, and with which argument.
    #[default]
    Refuse,
    /// A person decides: the run is interrupted. See [`FlowAnswer`](super::FlowAnswer).
    Ask,
    /// The run is aborted.
    End,
}

#[derive(Clone)]
pub(super) struct FlowSettings {
    pub(super) tools: BTreeMap<Arc<str>, ToolFlow>,
    /// The tools of this crate, which the program has not declared itself.
    pub(super) own_tools: BTreeMap<&'static str, ToolFlow>,
    pub(super) on_violation: OnViolation,
    pub(super) approver: Answerer,
    pub(super) hide: Hide,
    pub(super) callbacks: Label,
    pub(super) reader: Option<Agent>,
    pub(super) max_leaked_bits: u32,
    pub(super) max_stored: usize,
}

impl FlowSettings {
    /// Returns whether the result of some tool may be hidden.
    pub(super) fn may_hide(&self) -> bool {
        self.hide != Hide::Nothing || self.tools.values().any(|tool| tool.hides == Some(true))
    }

    /// Returns whether a tool of this name was declared.
    pub(super) fn knows(&self, name: &str) -> bool {
        self.tools.contains_key(name) || self.own_tools.contains_key(name)
    }

    /// Returns what the called tool is for the flow of data.
    pub(super) fn flow_of_call(&self, request: &ToolRequest) -> Cow<'_, ToolFlow> {
        if let Some(flow) = self.tools.get(request.name()) {
            return Cow::Borrowed(flow);
        }
        let declaration = request.declaration().map(|tool| &**tool);
        let own = declaration.and_then(own_name);
        match own.and_then(|own| self.own_tools.get(own)) {
            Some(flow) => Cow::Borrowed(flow),
            None => Cow::Owned(ToolFlow::by_default(declaration)),
        }
    }

    /// Returns the label of what a tool returns that the provider runs itself.
    pub(super) fn server_tool(&self, name: &str) -> Label {
        let declared = self.tools.get(name);
        declared.map_or_else(Label::untrusted, |flow| flow.result.clone())
    }

    pub(super) fn trusts_description(&self, tool: &ToolDeclaration) -> bool {
        // Most are the program's own, and need no search.
        if !tool.is_described_by_others() {
            return true;
        }
        let declared = self.tools.get(tool.name());
        declared.is_some_and(|flow| flow.trusts_description)
    }
}

pub(super) fn two_guards() -> Error {
    let message = "two different `Flow` guards are around one call: register one, with \
                   `global_callbacks`, that declares all tools";
    Error::new(ErrorKind::InvalidRequest, message)
}

pub(super) fn not_outside() -> Error {
    let message = "`Flow` is not around the whole call: register it with `global_callbacks` or \
                   `callbacks`, as a bundle";
    Error::new(ErrorKind::InvalidRequest, message)
}
