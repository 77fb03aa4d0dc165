//! What callbacks and layers state while an agent is built.

use std::borrow::Cow;
use std::cell::RefCell;
use std::sync::Arc;

use super::purpose::Purpose;
use crate::on_drop::OnDrop;
use crate::type_name::without_paths;

/// A tool that a callback or a layer names.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct NamedTool {
    /// The name of the callback or layer.
    pub(crate) by: Cow<'static, str>,
    pub(crate) tool: Arc<str>,
}

/// A callback or a layer of a stack.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Registered {
    pub(crate) name: Cow<'static, str>,
    /// `None` for what this crate does not know.
    pub(crate) purpose: Option<Purpose>,
}

/// The notes from layers and bands that were applied.
#[derive(Debug, Default)]
pub(crate) struct Notes {
    pub(crate) tools: Vec<NamedTool>,
    /// In the order of application: innermost first.
    pub(crate) registered: Vec<Registered>,
}

impl Notes {
    fn of(registered: Registered) -> Self {
        Self {
            registered: vec![registered],
            ..Self::default()
        }
    }
}

thread_local! {
    /// The notes from layers that are applied on this thread while an agent is built.
    static NOTES: RefCell<Option<Notes>> = const { RefCell::new(None) };
}

/// Declares that the layer `name` applies to these tools by name, so that building the agent fails
/// if one of them does not exist.
///
/// Call it from [`Layer::layer`](tower_layer::Layer::layer). It has no effect outside
/// [`AgentBuilder::build`](crate::AgentBuilder::build). A callback overrides
/// [`Callback::named_tools`](super::Callback::named_tools) instead.
pub fn layer_names_tools(name: &'static str, tools: impl IntoIterator<Item = Arc<str>>) {
    note(|| {
        let tools = tools.into_iter().map(|tool| NamedTool {
            by: name.into(),
            tool,
        });
        Notes {
            tools: tools.collect(),
            ..Notes::default()
        }
    });
}

/// States the purpose of the layer `name`. Call it from [`Layer::layer`](tower_layer::Layer::layer):
/// inner layers are applied first, so the order of the calls is the order of the layers, whatever
/// they are composed with. It has no effect outside [`AgentBuilder::build`](crate::AgentBuilder::build).
/// A callback overrides [`Callback::purpose`](super::Callback::purpose) instead.
pub fn layer_has_purpose(name: &'static str, purpose: Purpose) {
    note(|| {
        Notes::of(Registered {
            name: name.into(),
            purpose: Some(purpose),
        })
    });
}

/// Adds notes, if an agent is being built.
pub(super) fn note(more: impl FnOnce() -> Notes) {
    if count().is_none() {
        return;
    }
    // May run any code, so the notes are not borrowed meanwhile.
    let more = more();
    NOTES.with_borrow_mut(|notes| {
        if let Some(notes) = notes {
            notes.tools.extend(more.tools);
            notes.registered.extend(more.registered);
        }
    });
}

/// Applies a layer. If it notes nothing, it is registered by the name of its type.
pub(super) fn applying<T>(type_name: &str, apply: impl FnOnce() -> T) -> T {
    let before = count();
    let applied = apply();
    if count() == before {
        note(|| {
            Notes::of(Registered {
                name: without_paths(type_name).into(),
                purpose: None,
            })
        });
    }
    applied
}

/// Returns how much is registered, if an agent is being built.
fn count() -> Option<usize> {
    NOTES.with_borrow(|notes| notes.as_ref().map(|notes| notes.registered.len()))
}

/// Applies layers and bands, and collects their notes.
pub(crate) fn noting<T>(apply: impl FnOnce() -> T) -> (T, Notes) {
    // An agent may be built inside another agent's layer, which may panic.
    let outer = NOTES.replace(Some(Notes::default()));
    let restore = OnDrop::new(outer, |outer| NOTES.set(outer.take()));
    let applied = apply();
    let notes = NOTES.take().unwrap_or_default();
    drop(restore);
    (applied, notes)
}
