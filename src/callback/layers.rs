use std::any::type_name;
use std::fmt;
use std::sync::Arc;

use tower_layer::Layer;

use super::names::names_of;
use super::noted::{NamedTool, Registered, applying, noting};
use crate::call::{BoxCallFuture, BoxCallService, CallService, Request};
use crate::error::{Error, ErrorKind};

/// The tower layers that a bundle has for a call, outermost first. Cloning is O(1).
pub(crate) struct Layers<R: Request>(Option<Arc<Vec<Erased<R>>>>);

struct Erased<R: Request> {
    type_name: &'static str,
    names: Vec<String>,
    /// What the layer states about itself.
    tools: Vec<NamedTool>,
    registered: Vec<Registered>,
    apply: Arc<dyn Fn(BoxCallService<R>) -> BoxCallService<R> + Send + Sync>,
}

impl<R: Request> Layers<R> {
    pub(super) fn push<L>(&mut self, layer: L)
    where
        L: Layer<BoxCallService<R>, Service: CallService<R>> + Send + Sync + 'static,
    {
        let type_name = type_name::<L>();
        let names = names_of::<R>(&layer, type_name);
        let apply = Arc::new(move |inner| BoxCallService::layer(layer.layer(inner)));
        // It is applied anew in each call: whatever it states, it states here.
        let (_, notes) = noting(|| applying(type_name, || apply(unused())));
        let (tools, registered) = (notes.tools, notes.registered);
        self.append(&Self(Some(Arc::new(vec![Erased {
            type_name,
            names,
            tools,
            registered,
            apply,
        }]))));
    }

    pub(super) fn append(&mut self, more: &Self) {
        match (&mut self.0, &more.0) {
            (_, None) => {}
            (empty @ None, more) => empty.clone_from(more),
            (Some(layers), Some(more)) => {
                Arc::make_mut(layers).extend(more.iter().cloned());
            }
        }
    }

    pub(super) fn and(mut self, more: &Self) -> Self {
        self.append(more);
        self
    }

    fn as_slice(&self) -> &[Erased<R>] {
        self.0.as_ref().map_or(&[], |layers| layers)
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.as_slice().is_empty()
    }

    /// Returns the names of each layer, for people.
    pub(crate) fn names(&self) -> impl Iterator<Item = Vec<String>> {
        self.as_slice().iter().map(|layer| layer.names.clone())
    }

    /// Returns the layers with a known purpose: of others nothing is known that depends on a place
    /// that they always have.
    pub(crate) fn registered(&self) -> impl Iterator<Item = Registered> {
        let registered = self
            .as_slice()
            .iter()
            .flat_map(|layer| layer.registered.iter().rev().cloned());
        registered.filter(|it| it.purpose.is_some())
    }

    /// Returns all layers, outermost first.
    pub(crate) fn all(&self) -> impl Iterator<Item = &Registered> {
        self.as_slice()
            .iter()
            .flat_map(|layer| layer.registered.iter().rev())
    }

    pub(super) fn named_tools(&self) -> impl Iterator<Item = NamedTool> {
        self.as_slice()
            .iter()
            .flat_map(|layer| layer.tools.iter().cloned())
    }

    /// Wraps `inner` in the layers.
    pub(super) fn around(&self, inner: BoxCallService<R>) -> BoxCallService<R> {
        self.as_slice()
            .iter()
            .rev()
            .fold(inner, |inner, layer| (layer.apply)(inner))
    }

    /// Returns the layers one by one, each with the name of its type and its names.
    pub(super) fn each(&self) -> impl Iterator<Item = (&'static str, Vec<String>, Self)> {
        let one = |layer: &Erased<R>| {
            (
                layer.type_name,
                layer.names.clone(),
                Self(Some(Arc::new(vec![layer.clone()]))),
            )
        };
        self.as_slice().iter().map(one)
    }
}

/// Returns the service that a layer is around while it is registered. It is never called.
fn unused<R: Request>() -> BoxCallService<R> {
    BoxCallService::internal(|_| {
        BoxCallFuture::failed(Error::new(
            ErrorKind::Other,
            "this service only takes up a place",
        ))
    })
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

impl<R: Request> Clone for Erased<R> {
    fn clone(&self) -> Self {
        Self {
            type_name: self.type_name,
            names: self.names.clone(),
            tools: self.tools.clone(),
            registered: self.registered.clone(),
            apply: self.apply.clone(),
        }
    }
}

impl<R: Request> fmt::Debug for Layers<R> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.names()).finish()
    }
}
