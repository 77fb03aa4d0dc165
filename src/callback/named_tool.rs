use std::any::Any;
use std::borrow::Cow;
use std::sync::Arc;

use super::list::Callbacks;
use crate::call::Request;

/// A tool that a callback names.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct NamedTool {
    /// The name of the callback.
    pub(crate) by: Cow<'static, str>,
    pub(crate) tool: Arc<str>,
}

/// Returns the tools that a layer names. Of all layers, only a list of callbacks can name some.
pub(super) fn named_in<R: Request>(layer: &dyn Any) -> Vec<NamedTool> {
    layer
        .downcast_ref::<Callbacks<R>>()
        .map(|callbacks| callbacks.named_tools().collect())
        .unwrap_or_default()
}
