use std::fmt;

use tower_layer::Layer;

use super::bundle::{Edges, InBundle};
use super::callback::Callback;
use super::layer_inner::{Bundles, LayerInner, Position};
use super::layers::Layers;
use super::list::Callbacks;
use super::named_tool::NamedTool;
use super::names::{named_in, names_of};
use super::rules::Rules;
use crate::call::{BoxCallService, CallService, Request};

/// Builds a stack of callbacks and layers for one call, outermost first.
///
/// Neighbouring callbacks form one band; a layer ends the band before it. Agent builders have one
/// for each call; use it in a builder for a call of your own.
///
/// ```
/// use std::time::Duration;
/// use tower::{ServiceExt, timeout::TimeoutLayer};
/// use tower_agent::callback::StackBuilder;
/// use tower_agent::testing::{ScriptedModel, Turn};
/// use tower_agent::ModelRequest;
/// use tower_agent::call::BoxCallService;
/// use tower_agent::callback::before_model;
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> tower_agent::Result<()> {
/// let mut stack = StackBuilder::<ModelRequest>::new();
/// stack.callback(before_model(|request| request.add_instructions("Be brief.")));
/// stack.layer(TimeoutLayer::new(Duration::from_secs(30)));
///
/// let model = BoxCallService::new(ScriptedModel::new([Turn::from_text("Yes.")]));
/// let model = stack.around(model, None);
/// assert_eq!(model.oneshot(ModelRequest::default()).await?.message().text(), "Yes.");
/// # Ok(())
/// # }
/// ```
pub struct StackBuilder<R: Request>(Vec<StackPart<R>>);

enum StackPart<R: Request> {
    Band(Callbacks<R>),
    Layer {
        names: Vec<String>,
        tools: Vec<NamedTool>,
        apply: Box<dyn FnOnce(LayerInner<R>) -> BoxCallService<R> + Send>,
    },
}

impl<R: Request> StackBuilder<R> {
    /// Creates an empty stack.
    #[must_use]
    pub fn new() -> Self {
        Self(Vec::new())
    }

    /// Returns whether nothing was registered.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Adds a callback to the last band, or starts a new band.
    pub fn callback(&mut self, callback: impl Callback<R>) {
        self.callbacks(&Callbacks::new().with(callback));
    }

    /// Adds a list's callbacks to the last band, or starts a new band.
    pub fn callbacks(&mut self, callbacks: &Callbacks<R>) {
        match self.0.last_mut() {
            // An empty band would be a line without names in `explain`.
            _ if callbacks.is_empty() => {}
            Some(StackPart::Band(band)) => band.append(callbacks),
            _ => self.0.push(StackPart::Band(callbacks.clone())),
        }
    }

    /// Adds a layer, which ends the band before it.
    pub fn layer<L>(&mut self, layer: L)
    where
        L: Layer<LayerInner<R>, Service: CallService<R>> + Send + 'static,
    {
        self.0.push(StackPart::Layer {
            // Read now: in the closure below, the layer has lost its type.
            names: names_of::<R, L>(&layer),
            tools: named_in::<R, L>(&layer),
            apply: Box::new(move |inner| BoxCallService::layer(layer.layer(inner))),
        });
    }

    /// Adds the layers of a bundle.
    pub(crate) fn layers(&mut self, layers: &Layers<R>) {
        for layer in layers.each() {
            self.0.push(StackPart::Layer {
                names: layer.names().flatten().collect(),
                tools: layer.named_tools().collect(),
                apply: Box::new(move |inner| layer.around(BoxCallService::new(inner))),
            });
        }
    }

    /// Returns what was registered, outermost first: the names of a band's callbacks, or a layer's:
    /// that of its type, or a wrap's own name.
    #[must_use]
    pub fn names(&self) -> Vec<Vec<String>> {
        let names = self.0.iter().map(|part| match part {
            StackPart::Band(band) => band.names().map(String::from).collect(),
            StackPart::Layer { names, .. } => names.clone(),
        });
        names.collect()
    }

    /// Returns the tools that the callbacks name.
    pub(crate) fn named_tools(&self) -> Vec<NamedTool> {
        let mut named = Vec::new();
        for part in &self.0 {
            match part {
                StackPart::Band(band) => named.extend(band.named_tools()),
                StackPart::Layer { tools, .. } => named.extend(tools.iter().cloned()),
            }
        }
        named
    }

    /// Returns whether callbacks were registered before any layer.
    pub(crate) fn begins_with_band(&self) -> bool {
        matches!(self.0.first(), Some(StackPart::Band(_)))
    }

    /// Wraps `service` in the stack. The bands have these rules; without any, those of the agent
    /// in whose run a call is made, or the default outside an agent.
    pub fn around(self, service: BoxCallService<R>, rules: Option<&dyn Rules>) -> LayerInner<R> {
        self.compose(
            service,
            rules,
            Position {
                is_first: false,
                outermost: Callbacks::new(),
                inmost: None,
                bundles: None,
            },
        )
    }

    /// Wraps `service` in the stack of an agent, where a run may add callbacks, with these callbacks
    /// at its edges.
    pub(crate) fn in_agent(
        self,
        service: BoxCallService<R>,
        edges: &Edges,
        rules: Option<&dyn Rules>,
    ) -> LayerInner<R>
    where
        R: InBundle,
    {
        let position = Position {
            is_first: true,
            outermost: R::outermost(edges).clone(),
            inmost: Some(R::inmost(edges).cloned().unwrap_or_default()),
            bundles: Some(Bundles::NEW),
        };
        self.compose(service, rules, position)
    }

    /// `position` is the position of a stack without layers.
    fn compose(
        self,
        mut service: BoxCallService<R>,
        rules: Option<&dyn Rules>,
        mut position: Position<R>,
    ) -> LayerInner<R> {
        // From the inside out: each layer gets the band behind it and everything inside that.
        let mut band = Callbacks::new();
        for part in self.0.into_iter().rev() {
            match part {
                StackPart::Band(callbacks) => {
                    band = callbacks.with_rules(rules);
                }
                StackPart::Layer { apply, .. } => {
                    let inside = Position {
                        // Only the outermost part of a stack goes into the layers of bundles, which
                        // would otherwise act once for each layer of the agent.
                        is_first: false,
                        outermost: Callbacks::new(),
                        ..position.clone()
                    };
                    // Callbacks of the run and the inmost ones are around the target alone.
                    position.inmost = None;
                    let inner = LayerInner::new(std::mem::take(&mut band), inside, service);
                    service = apply(inner);
                }
            }
        }
        LayerInner::new(band, position, service)
    }
}

impl<R: Request> Default for StackBuilder<R> {
    fn default() -> Self {
        Self::new()
    }
}

impl<R: Request> fmt::Debug for StackBuilder<R> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("StackBuilder").field(&self.names()).finish()
    }
}
