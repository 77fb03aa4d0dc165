//! Callbacks and layers in the order they were registered, and the service they become.

use tower_layer::Layer;

use crate::boxed::Boxed;
use crate::callback::{BandSemantics, Callback, CallbackService, Callbacks};
use crate::request::Request;
use crate::type_name::short_type_name;

/// What a layer given to the builder wraps: everything registered after it, erased.
pub type Seam<R> = CallbackService<Boxed<R>, R>;

/// One call's stack while it is built, outermost first.
pub(super) struct Stack<R: Request>(Vec<Part<R>>);

enum Part<R: Request> {
    Band(Callbacks<R>),
    Layer { name: &'static str, apply: Box<dyn FnOnce(Seam<R>) -> Boxed<R> + Send> },
}

impl<R: Request> Stack<R> {
    pub(super) fn new() -> Self {
        Self(Vec::new())
    }

    /// Adds to the band at the end, or begins one.
    pub(super) fn callback(&mut self, callback: impl Callback<R>) {
        self.callbacks(&Callbacks::new().with(callback));
    }

    /// Adds a list's callbacks to the band at the end, or begins one.
    pub(super) fn callbacks(&mut self, callbacks: &Callbacks<R>) {
        match self.0.last_mut() {
            _ if callbacks.is_empty() => {}
            Some(Part::Band(band)) => band.append(callbacks),
            _ => self.0.push(Part::Band(callbacks.clone())),
        }
    }

    /// Adds a layer, which closes the band before it. `erase` is `Boxed::new` of its service.
    pub(super) fn layer<L>(&mut self, layer: L, erase: fn(L::Service) -> Boxed<R>)
    where
        L: Layer<Seam<R>> + Send + 'static,
    {
        let apply = Box::new(move |seam| erase(layer.layer(seam)));
        self.0.push(Part::Layer { name: short_type_name::<L>(), apply });
    }

    /// What was registered, outermost first: the names of a band's callbacks, or a layer's.
    pub(super) fn names(&self) -> Vec<Vec<String>> {
        let names = self.0.iter().map(|part| match part {
            Part::Band(band) => band.names().map(String::from).collect(),
            Part::Layer { name, .. } => vec![format!("[{name}]")],
        });
        names.collect()
    }

    /// Puts `service` inside. The bands have these semantics.
    pub(super) fn around(self, service: Boxed<R>, semantics: BandSemantics) -> Seam<R> {
        let mut service = service;
        let mut band = Callbacks::new();
        for part in self.0.into_iter().rev() {
            match part {
                Part::Band(callbacks) => band = callbacks.with_semantics(semantics),
                Part::Layer { apply, .. } => {
                    service = apply(CallbackService::new(service, std::mem::take(&mut band)));
                }
            }
        }
        CallbackService::new(service, band)
    }
}
