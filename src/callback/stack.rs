use std::sync::Arc;
use std::{fmt, iter};

use tower_layer::Layer;

use super::callback::Callback;
use super::list::Callbacks;
use super::named_tool::NamedTool;
use super::names::{named_in, names_of};
use super::position::Position;
use super::probe::{ProbedLayer, Seen, Sight};
use super::rules::{CallbackRules, Rules};
use crate::call::{BoxCallService, CallService, Request};
use crate::model::ModelRequest;
use crate::run::AgentRequest;
use crate::tool::ToolRequest;

/// Builds a stack of callbacks and layers for one call, outermost first.
///
/// Neighbouring callbacks form one band; a layer ends the band before it. Agent builders have one
/// for each call; use it in a builder for a call of your own.
///
/// ```
/// use std::time::Duration;
/// use tower::{ServiceExt, timeout::TimeoutLayer};
/// use tower_agent::callback::StackBuilder;
/// use tower_agent::ModelRequest;
/// use tower_agent::call::BoxCallService;
/// use tower_agent::callback::before_model;
/// use tower_agent_test::{ScriptedModel, Turn};
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
//
// Sorted by position. In an `Arc`, because every agent that is called shares what is around it.
#[derive(Clone)]
pub struct StackBuilder<R: Request>(Option<Arc<Vec<Placed<R>>>>);

pub(crate) type Placed<R> = (Position, StackPart<R>);

/// A band, or a layer.
#[derive(Clone)]
pub(crate) enum StackPart<R: Request> {
    Band(Callbacks<R>),
    Layer(Arc<StackLayer<R>>),
}

/// A tower layer without its type.
pub(crate) struct StackLayer<R: Request> {
    names: Arc<Vec<String>>,
    tools: Vec<NamedTool>,
    pub(super) apply: Box<dyn Fn(LayerInner<R>) -> BoxCallService<R> + Send + Sync>,
}

impl<R: Request> StackBuilder<R> {
    /// Creates an empty stack.
    #[must_use]
    pub fn new() -> Self {
        Self(None)
    }

    /// Returns whether nothing was registered.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        let mut parts = self.parts().iter();
        parts.all(|(_, part)| matches!(part, StackPart::Band(band) if band.is_empty()))
    }

    /// Adds a callback to the last band, or starts a new band.
    pub fn callback(&mut self, callback: impl Callback<R>) {
        self.callback_at(Position::Own, callback);
    }

    pub(super) fn callback_at(&mut self, position: Position, callback: impl Callback<R>) {
        self.band_at(position, |band| band.push(callback));
    }

    /// Adds a list's callbacks to the last band, or starts a new band.
    pub fn callbacks(&mut self, callbacks: &Callbacks<R>) {
        // An empty band would be a line without names in `explain`.
        if !callbacks.is_empty() {
            self.band_at(Position::Own, |band| band.append(callbacks));
        }
    }

    /// Adds a layer, which ends the band before it.
    pub fn layer<L>(&mut self, layer: L)
    where
        L: Layer<LayerInner<R>, Service: CallService<R>> + Send + Sync + 'static,
    {
        self.layer_by(Position::Own, layer, |layer, inner| layer.layer(inner));
    }

    /// Adds a layer of a bundle, which knows nothing of the stack that it will be part of.
    pub(super) fn layer_at<L>(&mut self, position: Position, layer: L)
    where
        L: Layer<BoxCallService<R>, Service: CallService<R>> + Send + Sync + 'static,
    {
        self.layer_by(position, layer, |layer, inner| layer.layer(inner.boxed()));
    }

    fn layer_by<L: Send + Sync + 'static, S: CallService<R>>(
        &mut self,
        position: Position,
        layer: L,
        apply: fn(&L, LayerInner<R>) -> S,
    ) {
        // Read now: in the closure below, the layer has lost its type.
        let names = Arc::new(names_of::<R, L>(&layer));
        let layer = StackLayer {
            names: names.clone(),
            tools: named_in::<R, L>(&layer),
            apply: Box::new(move |inner| {
                let sight = inner.sight();
                let service = apply(&layer, inner);
                BoxCallService::layer(ProbedLayer::new(service, sight, names.clone()))
            }),
        };
        self.insert(position, StackPart::Layer(Arc::new(layer)));
    }

    /// Returns what was registered, outermost first: the names of a band's callbacks, or a layer's:
    /// that of its type, or a wrap's own name.
    #[must_use]
    pub fn names(&self) -> Vec<Vec<String>> {
        let names = self.parts().iter().map(|(_, part)| part.names());
        names.collect()
    }

    /// Returns the tools that the callbacks name.
    pub(crate) fn named_tools(&self) -> Vec<NamedTool> {
        let mut named = Vec::new();
        for (_, part) in self.parts() {
            match part {
                StackPart::Band(band) => named.extend(band.named_tools()),
                StackPart::Layer(layer) => named.extend(layer.tools.iter().cloned()),
            }
        }
        named
    }

    /// Wraps `service` in the stack. The bands have these rules; without any, those of the agent
    /// in whose run a call is made, or the default outside an agent.
    pub fn around(self, service: BoxCallService<R>, rules: Option<&dyn Rules>) -> LayerInner<R> {
        self.compose(LayerInner::bare(service), rules)
    }

    /// Wraps `service` in the stack of an agent, which is inside what the agent inherits.
    pub(crate) fn in_agent(
        self,
        service: BoxCallService<R>,
        rules: Option<&dyn Rules>,
    ) -> LayerInner<R>
    where
        R: InAgent,
    {
        let target = LayerInner {
            from: Position::Journal,
            to: Position::LAST,
            in_tree: Some(R::IN_TREE),
            ..LayerInner::bare(service)
        };
        self.compose(target, rules)
    }

    /// `target` has the positions of the whole stack.
    fn compose(self, target: LayerInner<R>, rules: Option<&dyn Rules>) -> LayerInner<R> {
        let from = target.from;
        let mut stack = target;
        // From the inside out: each layer gets the bands behind it and everything inside those.
        for (position, part) in self.parts().iter().rev() {
            match part {
                StackPart::Band(band) if band.is_empty() => {}
                StackPart::Band(band) => {
                    let mut band = band.clone();
                    band.set_rules(rules);
                    stack.own.insert(*position, StackPart::Band(band));
                }
                StackPart::Layer(layer) => {
                    let in_tree = stack.in_tree;
                    // What is outside the agent's own goes around its outermost part alone, and
                    // what is inside around the innermost.
                    stack.from = Position::Own;
                    stack = LayerInner {
                        in_tree,
                        ..LayerInner::bare((layer.apply)(stack))
                    };
                }
            }
        }
        LayerInner { from, ..stack }
    }

    /// Puts the layers behind the callbacks at each position, if the rules say so.
    fn arrange(&mut self, rules: &dyn Rules) {
        if !rules.callbacks(R::CALL).layers_inside {
            return;
        }
        let mut arranged = Self::new();
        // The callbacks first: one that is added behind a layer starts a new band.
        for (position, part) in self.parts() {
            if let StackPart::Band(more) = part {
                let more = more.clone();
                arranged.band_at(*position, |band| *band = std::mem::take(band).and(more));
            }
        }
        for (position, part) in self.parts() {
            if let StackPart::Layer(_) = part {
                arranged.insert(*position, part.clone());
            }
        }
        *self = arranged;
    }

    /// Returns the parts, outermost first.
    pub(crate) fn parts(&self) -> &[Placed<R>] {
        self.0.as_ref().map_or(&[], |parts| parts)
    }

    /// Returns the parts at these positions, outermost first.
    pub(super) fn between(&self, from: Position, to: Position) -> &[Placed<R>] {
        let parts = self.parts();
        let parts = &parts[..parts.partition_point(|(position, _)| *position <= to)];
        &parts[parts.partition_point(|(position, _)| *position < from)..]
    }

    /// Returns the first band at this position; empty if there is none.
    pub(super) fn band(&self, position: Position) -> Callbacks<R> {
        match self.between(position, position).first() {
            Some((_, StackPart::Band(band))) => band.clone(),
            Some((_, StackPart::Layer(_))) | None => Callbacks::new(),
        }
    }

    /// Adds a part behind those at this position.
    fn insert(&mut self, position: Position, part: StackPart<R>) {
        let parts = Arc::make_mut(self.0.get_or_insert_default());
        let end = parts.partition_point(|(at, _)| *at <= position);
        parts.insert(end, (position, part));
    }

    /// Changes the last band at this position; a new one, if a layer is there or nothing.
    pub(super) fn band_at(&mut self, position: Position, change: impl FnOnce(&mut Callbacks<R>)) {
        let parts = Arc::make_mut(self.0.get_or_insert_default());
        let end = parts.partition_point(|(at, _)| *at <= position);
        match parts[..end].last_mut() {
            Some((at, StackPart::Band(band))) if *at == position => change(band),
            _ => {
                let mut band = Callbacks::new();
                change(&mut band);
                self.insert(position, StackPart::Band(band));
            }
        }
    }

    /// Adds the parts of another stack, each where `place` says. Bands without rules get these.
    fn append(&mut self, other: &Self, place: fn(Position) -> Position, rules: Option<&dyn Rules>) {
        for (position, part) in other.parts() {
            let position = place(*position);
            match part {
                StackPart::Band(more) => {
                    let more = more.clone().or_rules(rules);
                    self.band_at(position, |band| *band = std::mem::take(band).and(more));
                }
                StackPart::Layer(_) => self.insert(position, part.clone()),
            }
        }
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

impl<R: Request> StackPart<R> {
    /// Returns the names of a band's callbacks, or a layer's.
    pub(crate) fn names(&self) -> Vec<String> {
        match self {
            Self::Band(band) => band.names().map(String::from).collect(),
            Self::Layer(layer) => layer.names.to_vec(),
        }
    }
}

/// Returns the parts of an agent's own stack inside what the agent inherits, outermost first, each
/// with the band that continues it, if there is one.
pub(crate) fn merged<'a, R: Request>(
    mut inherited: &'a [Placed<R>],
    mut own: &'a [Placed<R>],
    rules: impl Fn() -> CallbackRules,
) -> impl Iterator<Item = (&'a Placed<R>, Option<&'a Callbacks<R>>)> {
    iter::from_fn(move || {
        let is_inherited = match (inherited.first(), own.first()) {
            (Some((outside, _)), Some((inside, _))) => outside <= inside,
            (first, _) => first.is_some(),
        };
        let stack = if is_inherited {
            &mut inherited
        } else {
            &mut own
        };
        let (part, rest) = stack.split_first()?;
        *stack = rest;
        // Callbacks of the tree with the agent's rules may act in one band with its own.
        if let (Position::Global, StackPart::Band(global)) = part
            && let Some(((Position::Own, StackPart::Band(band)), rest)) = own.split_first()
            && rules().global_joins_band
            && global.rules() == rules()
        {
            own = rest;
            return Some((part, Some(band)));
        }
        Some((part, None))
    })
}

/// The stacks around the calls of an agent.
#[derive(Clone, Debug, Default)]
pub(crate) struct Stacks {
    pub(crate) agent: StackBuilder<AgentRequest>,
    pub(crate) model: StackBuilder<ModelRequest>,
    pub(crate) tool: StackBuilder<ToolRequest>,
}

impl Stacks {
    /// Adds other stacks, each part where `place` says. Bands without rules get these.
    pub(crate) fn append(
        &mut self,
        other: &Self,
        place: fn(Position) -> Position,
        rules: Option<&dyn Rules>,
    ) {
        self.agent.append(&other.agent, place, rules);
        self.model.append(&other.model, place, rules);
        self.tool.append(&other.tool, place, rules);
    }

    /// Puts the layers inside the callbacks, around the calls for which the rules say so.
    pub(crate) fn arrange(&mut self, rules: &dyn Rules) {
        self.agent.arrange(rules);
        self.model.arrange(rules);
        self.tool.arrange(rules);
    }

    pub(super) fn is_empty(&self) -> bool {
        self.agent.is_empty() && self.model.is_empty() && self.tool.is_empty()
    }

    /// Returns whether there are layers of a journal.
    pub(crate) fn has_journal(&self) -> bool {
        fn has<R: Request>(stack: &StackBuilder<R>) -> bool {
            matches!(stack.parts(), [(Position::Journal, _), ..])
        }
        has(&self.agent) || has(&self.model) || has(&self.tool)
    }
}

/// Knowledge about the calls of an agent, for the stacks around them.
pub(crate) struct InTree<R: Request> {
    /// The stack for the call among those of an agent, or of what it inherits.
    pub(crate) stack: fn(&Stacks) -> &StackBuilder<R>,
    sight: Sight<R>,
}

/// A kind of call that an agent has a stack for.
pub(crate) trait InAgent: Request {
    const IN_TREE: &'static InTree<Self>;
}

macro_rules! in_agent {
    ($($stack:ident: $Request:ident => $Response:ident,)*) => {$(
        impl InAgent for $Request {
            const IN_TREE: &'static InTree<Self> = &InTree {
                stack: |stacks| &stacks.$stack,
                sight: Sight {
                    context: Self::context_mut,
                    request: |request| Seen::$Request(request.seen()),
                    response: |response| Seen::$Response(response.seen()),
                    hides_output: |request| request.extensions().is_hidden(),
                },
            };
        }
    )*};
}

in_agent! {
    agent: AgentRequest => AgentResponse,
    model: ModelRequest => ModelResponse,
    tool: ToolRequest => ToolResponse,
}

/// The inner service of a layer of a [`StackBuilder`]: everything registered after it.
///
/// It is ready when the service inside it is. A call passes through, from the outside in:
///
/// ```text
/// before all   journals             of bundles for a tree or a run
///              outermost callbacks  of the agents around, then of this one
///              layers of bundles    global, then given with the request to stand inside
/// the first    global callbacks     of the agents around and of this one, each followed by those
///  |                                given with its request
///  |           own callbacks        up to the first layer
///  |     [layer]                    and again: callbacks, layer
///  v           own callbacks        behind the last layer
/// the last     the run's callbacks  given with the request
///              inmost callbacks     of the agents around, then of this one
///              the call itself      a model, a tool, the loop of an agent
/// ```
///
/// A band without callbacks is omitted and costs nothing. A clone is not ready, even if the
/// original is.
#[derive(Clone)]
pub struct LayerInner<R: Request> {
    /// The agent's own bands.
    pub(super) own: StackBuilder<R>,
    /// The positions from here on,
    pub(super) from: Position,
    /// to here: those of the stack, or of the part of it that is inside a layer.
    pub(super) to: Position,
    /// Knowledge about the calls of an agent. A reference instead of a bound: the request of a
    /// user's own call does not implement [`InAgent`], nothing is inherited for it, and no probe
    /// looks at it.
    pub(super) in_tree: Option<&'static InTree<R>>,
    /// The next layer, or the target of the call.
    pub(super) inner: BoxCallService<R>,
}

impl<R: Request> LayerInner<R> {
    /// Returns this service with nothing around it.
    pub(super) fn bare(inner: BoxCallService<R>) -> Self {
        Self {
            own: StackBuilder::new(),
            from: Position::Own,
            to: Position::Own,
            in_tree: None,
            inner,
        }
    }

    /// Returns how probes look at the calls.
    pub(super) fn sight(&self) -> Option<&'static Sight<R>> {
        Some(&self.in_tree?.sight)
    }

    fn boxed(self) -> BoxCallService<R> {
        if self.own.is_empty() && self.to == Position::Own {
            return self.inner;
        }
        BoxCallService::new(self)
    }
}

impl<R: Request> fmt::Debug for LayerInner<R> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("LayerInner")
            .field("callbacks", &self.own)
            .finish_non_exhaustive()
    }
}
