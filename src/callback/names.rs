use std::any::{Any, type_name};

use super::list::Callbacks;
use super::named_tool::NamedTool;
use super::wrap::Wrap;
use crate::call::Request;
use crate::context::OfCallbacks;
use crate::tool::{NameLayers, ToolRequest};
use crate::type_name::without_paths;

/// Returns the names in a layer, for people.
pub(super) fn names_of<R: Request, L: 'static>(layer: &L) -> Vec<String> {
    let any: &dyn Any = layer;
    if let Some(band) = any.downcast_ref::<Callbacks<R>>() {
        return band.names().map(String::from).collect();
    }
    vec![match any.downcast_ref::<Wrap<R>>() {
        Some(wrap) => format!("[{}]", wrap.name()),
        None => format!("[{}]", without_paths(type_name::<L>())),
    }]
}

/// Returns the tools that a layer names. Of all layers, only a list of callbacks can name some.
pub(super) fn named_in<R: Request, L: 'static>(layer: &L) -> Vec<NamedTool> {
    let any: &dyn Any = layer;
    any.downcast_ref::<Callbacks<R>>()
        .map(|callbacks| callbacks.named_tools().collect())
        .unwrap_or_default()
}

impl NameLayers for OfCallbacks {
    fn names_of<L: 'static>(layer: &L) -> Vec<String> {
        names_of::<ToolRequest, L>(layer)
    }
}
