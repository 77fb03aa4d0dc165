use std::fmt;
use std::sync::Arc;

use tower_layer::Layer;

use super::named_tool::NamedTool;
use super::names::{named_in, names_of};
use crate::call::{BoxCallService, CallService, Request};

/// The tower layers that a bundle has for a call, outermost first. Cloning is O(1).
pub(crate) struct Layers<R: Request>(Option<Arc<Vec<ErasedLayer<R>>>>);

struct ErasedLayer<R: Request> {
    names: Vec<String>,
    tools: Vec<NamedTool>,
    apply: Arc<dyn Fn(BoxCallService<R>) -> BoxCallService<R> + Send + Sync>,
}

impl<R: Request> Layers<R> {
    pub(super) fn push<L>(&mut self, layer: L)
    where
        L: Layer<BoxCallService<R>, Service: CallService<R>> + Send + Sync + 'static,
    {
        // Names and tools are read before the layer moves into a closure, which hides its type.
        let layer = ErasedLayer {
            names: names_of::<R, L>(&layer),
            tools: named_in::<R, L>(&layer),
            apply: Arc::new(move |inner| BoxCallService::layer(layer.layer(inner))),
        };
        Arc::make_mut(self.0.get_or_insert_default()).push(layer);
    }

    pub(super) fn append(&mut self, more: &Self) {
        match (&mut self.0, &more.0) {
            (_, None) => {}
            // The usual case: one list, which both then share.
            (empty @ None, more) => empty.clone_from(more),
            (Some(layers), Some(more)) => {
                Arc::make_mut(layers).extend(more.iter().cloned());
            }
        }
    }

    fn as_slice(&self) -> &[ErasedLayer<R>] {
        self.0.as_ref().map_or(&[], |layers| layers)
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.as_slice().is_empty()
    }

    /// Returns the names of each layer, for people.
    pub(crate) fn names(&self) -> impl Iterator<Item = Vec<String>> {
        self.as_slice().iter().map(|layer| layer.names.clone())
    }

    pub(super) fn named_tools(&self) -> impl Iterator<Item = NamedTool> {
        self.as_slice()
            .iter()
            .flat_map(|layer| layer.tools.iter().cloned())
    }

    /// Wraps `inner` in the layers.
    pub(super) fn around(&self, inner: BoxCallService<R>) -> BoxCallService<R> {
        // The last registered is innermost, so it is applied first.
        self.as_slice()
            .iter()
            .rev()
            .fold(inner, |inner, layer| (layer.apply)(inner))
    }

    /// Returns the layers one by one, outermost first.
    pub(super) fn each(&self) -> impl Iterator<Item = Self> {
        self.as_slice()
            .iter()
            .map(|layer| Self(Some(Arc::new(vec![layer.clone()]))))
    }
}

impl<R: Request> Default for Layers<R> {
    fn default() -> Self {
        Self(None)
    }
}

impl<R: Request> Clone for Layers<R> {
    fn clone(&self) -> Self {
        Self(self.0.clone())
    }
}

impl<R: Request> Clone for ErasedLayer<R> {
    fn clone(&self) -> Self {
        Self {
            names: self.names.clone(),
            tools: self.tools.clone(),
            apply: self.apply.clone(),
        }
    }
}

impl<R: Request> fmt::Debug for Layers<R> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.names()).finish()
    }
}
