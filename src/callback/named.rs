//! Tools that callbacks and layers name.

use std::borrow::Cow;
use std::cell::RefCell;
use std::sync::Arc;

/// A tool that a callback or a layer names.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct NamedTool {
    /// The name of the callback or layer.
    pub(crate) by: Cow<'static, str>,
    pub(crate) tool: Arc<str>,
}

thread_local! {
    /// The names from layers that are applied on this thread while an agent is built.
    static SAID: RefCell<Option<Vec<NamedTool>>> = const { RefCell::new(None) };
}

/// Declares that the layer `name` applies to these tools by name, so that building the agent fails
/// if one of them does not exist.
///
/// Call it from [`Layer::layer`](tower_layer::Layer::layer). It has no effect outside
/// [`AgentBuilder::build`](crate::AgentBuilder::build). A callback overrides
/// [`Callback::named_tools`](super::Callback::named_tools) instead.
pub fn layer_names_tools(name: &'static str, tools: impl IntoIterator<Item = Arc<str>>) {
    SAID.with_borrow_mut(|said| {
        if let Some(said) = said {
            said.extend(tools.into_iter().map(|tool| NamedTool { by: name.into(), tool }));
        }
    });
}

/// Applies layers, and collects the tools that they name.
pub(crate) fn noting_names<T>(apply: impl FnOnce() -> T) -> (T, Vec<NamedTool>) {
    // An agent may be built inside another agent's layer.
    let outer = SAID.replace(Some(Vec::new()));
    let applied = apply();
    (applied, SAID.replace(outer).unwrap_or_default())
}
