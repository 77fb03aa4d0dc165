use std::any::Any;

use super::list::Callbacks;
use super::named_tool::NamedTool;
use super::wrap::Wrap;
use crate::call::Request;
use crate::type_name::without_paths;

/// Returns the names in a layer, for people.
pub(crate) fn names_of<R: Request>(layer: &dyn Any, type_name: &str) -> Vec<String> {
    if let Some(band) = layer.downcast_ref::<Callbacks<R>>() {
        return band.names().map(String::from).collect();
    }
    vec![match layer.downcast_ref::<Wrap<R>>() {
        Some(wrap) => format!("[{}]", wrap.name()),
        None => format!("[{}]", without_paths(type_name)),
    }]
}

/// Returns the tools that a layer names. Of all layers, only a list of callbacks can name some.
pub(super) fn named_in<R: Request>(layer: &dyn Any) -> Vec<NamedTool> {
    layer
        .downcast_ref::<Callbacks<R>>()
        .map(|callbacks| callbacks.named_tools().collect())
        .unwrap_or_default()
}
