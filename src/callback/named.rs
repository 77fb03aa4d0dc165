//! Tools that callbacks and layers know by name.

use std::borrow::Cow;
use std::cell::RefCell;
use std::sync::Arc;

/// A callback or a layer that is for a tool by its name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct NamedTool {
    /// The callback or the layer.
    pub(crate) by: Cow<'static, str>,
    pub(crate) tool: Arc<str>,
}

thread_local! {
    /// What the layers say that are applied on this thread, while an agent is built on it.
    static SAID: RefCell<Option<Vec<NamedTool>>> = const { RefCell::new(None) };
}

/// Says that the layer `name` acts on these tools by name, so that building the agent fails where
/// one of them does not exist.
///
/// Call it from [`Layer::layer`](tower_layer::Layer::layer). Outside of
/// [`AgentBuilder::build`](crate::AgentBuilder::build) it does nothing. A callback overrides
/// [`Callback::named_tools`](super::Callback::named_tools) instead.
pub fn layer_names_tools(name: &'static str, tools: impl IntoIterator<Item = Arc<str>>) {
    SAID.with_borrow_mut(|said| {
        if let Some(said) = said {
            said.extend(tools.into_iter().map(|tool| NamedTool { by: name.into(), tool }));
        }
    });
}

/// Applies layers, and notes which tools they name.
pub(crate) fn noting_names<T>(apply: impl FnOnce() -> T) -> (T, Vec<NamedTool>) {
    // One agent may be built inside another's layer.
    let outer = SAID.replace(Some(Vec::new()));
    let applied = apply();
    (applied, SAID.replace(outer).unwrap_or_default())
}
