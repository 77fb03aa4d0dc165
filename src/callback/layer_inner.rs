use std::fmt;

use super::bundle::{Bundle, BundleLayers, Edges, InBundle};
use super::layers::Layers;
use super::list::Callbacks;
use crate::call::{BoxCallService, Request};

/// The inner service of a layer of a [`StackBuilder`](super::StackBuilder): everything registered
/// after it.
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
/// A band without callbacks is omitted and costs nothing.
pub struct LayerInner<R: Request> {
    pub(super) own: Callbacks<R>,
    pub(super) position: Position<R>,
    /// The next layer, or the target of the call.
    pub(super) inner: BoxCallService<R>,
}

/// The position in an agent's stack. The stack of another call has none.
pub(super) struct Position<R: Request> {
    /// It is the outermost.
    pub(super) is_first: bool,
    /// The agent's own callbacks outside everything else.
    pub(super) outermost: Callbacks<R>,
    /// Set if it is directly around the target, with these callbacks inside.
    pub(super) inmost: Option<Callbacks<R>>,
    pub(super) bundles: Option<Bundles<R>>,
}

impl<R: Request> Clone for Position<R> {
    fn clone(&self) -> Self {
        Self {
            is_first: self.is_first,
            outermost: self.outermost.clone(),
            inmost: self.inmost.clone(),
            bundles: self.bundles,
        }
    }
}

/// The callbacks of bundles for a call, those at its edges, and its layers.
pub(super) struct Bundles<R: Request> {
    // Functions instead of a bound: a stack for a call of the user's own has no bundles, and its
    // request does not implement `InBundle`.
    pub(super) around: fn(&Bundle) -> &Callbacks<R>,
    pub(super) outermost: fn(&Edges) -> &Callbacks<R>,
    pub(super) inmost: fn(&Edges) -> Option<&Callbacks<R>>,
    pub(super) layers: fn(&BundleLayers) -> &Layers<R>,
}

impl<R: Request> Clone for Bundles<R> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<R: Request> Copy for Bundles<R> {}

impl<R: InBundle> Bundles<R> {
    pub(super) const NEW: Self = Self {
        around: R::around,
        outermost: R::outermost,
        inmost: R::inmost,
        layers: R::layers,
    };
}

impl<R: Request> LayerInner<R> {
    pub(super) fn new(own: Callbacks<R>, position: Position<R>, inner: BoxCallService<R>) -> Self {
        Self {
            own,
            position,
            inner,
        }
    }
}

impl<R: Request> Clone for LayerInner<R> {
    /// The clone is not ready, even if the original is.
    fn clone(&self) -> Self {
        Self {
            own: self.own.clone(),
            position: self.position.clone(),
            inner: self.inner.clone(),
        }
    }
}

impl<R: Request> fmt::Debug for LayerInner<R> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("LayerInner")
            .field("callbacks", &self.own)
            .finish_non_exhaustive()
    }
}
