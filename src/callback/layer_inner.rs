//! The life of a call.

use std::fmt;
use std::task::{Context, Poll};
use std::vec;

use tower::Service;

use super::band;
use super::bundle::{Bundle, BundleLayers, InBundle};
use super::layers::Layers;
use super::list::Callbacks;
use super::tree::Tree;
use crate::call::{BoxCallFuture, BoxCallService, Request};
use crate::context::RunContext;
use crate::error::{Error, ErrorKind, Result};

/// The inner service of a layer of a [`StackBuilder`](super::StackBuilder): everything registered
/// after it.
///
/// It is ready when the service inside it is. A call passes through, from the outside in:
///
/// ```text
/// before all   layers of bundles    journals, global, then given with the request
/// the first    global callbacks     of the agents around, and of this one
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
    own: Callbacks<R>,
    place: Place<R>,
    /// The next layer, or the target of the call.
    inner: BoxCallService<R>,
}

/// The position in an agent's stack. The stack of another call has none.
pub(super) struct Place<R: Request> {
    /// Whether it is the outermost.
    pub(super) is_first: bool,
    /// Set if it is directly around the target, with these callbacks inside.
    pub(super) inmost: Option<Callbacks<R>>,
    pub(super) bundles: Option<Bundles<R>>,
}

impl<R: Request> Clone for Place<R> {
    fn clone(&self) -> Self {
        let Self {
            is_first,
            inmost,
            bundles,
        } = self;
        Self {
            is_first: *is_first,
            inmost: inmost.clone(),
            bundles: *bundles,
        }
    }
}

/// The callbacks of bundles for a call, those directly around its target, and its layers.
pub(super) struct Bundles<R: Request> {
    around: fn(&Bundle) -> &Callbacks<R>,
    inmost: fn(&Bundle) -> Option<&Callbacks<R>>,
    layers: fn(&BundleLayers) -> &Layers<R>,
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
        inmost: R::inmost,
        layers: R::layers,
    };
}

impl<R: Request> LayerInner<R> {
    pub(super) fn new(own: Callbacks<R>, place: Place<R>, inner: BoxCallService<R>) -> Self {
        Self { own, place, inner }
    }

    /// Makes a call, driving readiness first.
    pub(crate) fn make(&self, request: R) -> BoxCallFuture<R> {
        match self.layered(request.context()) {
            Some(layered) => layered.make(request),
            None => self.make_inside(request),
        }
    }

    /// Returns this in the layers of the run's bundles, if there are any.
    fn layered(&self, context: &RunContext) -> Option<BoxCallService<R>> {
        let bundles = self.place.bundles.filter(|_| self.place.is_first)?;
        let tree = Tree::of(context)?;
        let journal = (bundles.layers)(&tree.journal);
        let global = (bundles.layers)(tree.global.layers());
        let of_run = (bundles.layers)(tree.of_run.layers());
        if journal.is_empty() && global.is_empty() && of_run.is_empty() {
            return None;
        }
        let inside = self.clone();
        let inside = BoxCallService::internal(move |request| inside.make_inside(request));
        // A journal is outermost, so that nothing repeats or leaves out a call that it has stored.
        Some(journal.around(global.around(of_run.around(inside))))
    }

    fn make_inside(&self, request: R) -> BoxCallFuture<R> {
        if self.is_outside_run(request.context()) {
            return BoxCallFuture::failed(no_part_of_the_run::<R>());
        }
        let Bands { first, rest } = self.bands(request.context());
        match first {
            None => self.inner.make(request),
            Some(band) => {
                let inside = Inside {
                    bands: rest.into_iter(),
                    inner: self.inner.clone(),
                };
                BoxCallFuture::new(band::run(band, request, inside, false))
            }
        }
    }

    /// Returns whether the call does not belong to the run of an agent, although the stack does.
    fn is_outside_run(&self, context: &RunContext) -> bool {
        self.place.inmost.is_some() && context.path().is_empty()
    }

    /// Returns the bands around a call of this run.
    fn bands(&self, context: &RunContext) -> Bands<R> {
        let Self {
            own,
            place:
                Place {
                    is_first,
                    inmost,
                    bundles,
                },
            ..
        } = self;
        let mut bands = Bands {
            first: None,
            rest: Vec::new(),
        };
        let tree = bundles.and_then(|of| Some((of, Tree::of(context)?)));
        let global = tree
            .filter(|_| *is_first)
            .map(|(of, tree)| (of.around)(&tree.global));
        match global.filter(|global| !global.is_empty()) {
            Some(global) if global.shares_band_of(own.semantics_in(context)) => {
                bands.push(&global.clone().and(own.clone()));
            }
            Some(global) => {
                bands.push(global);
                bands.push(own);
            }
            None => bands.push(own),
        }
        if let Some(inmost) = inmost {
            if let Some((of, tree)) = tree {
                bands.push((of.around)(&tree.of_run));
                (of.inmost)(&tree.inmost)
                    .into_iter()
                    .for_each(|callbacks| bands.push(callbacks));
            }
            bands.push(inmost);
        }
        bands
    }
}

impl<R: Request> Service<R> for LayerInner<R> {
    type Response = R::Response;
    type Error = Error;
    type Future = BoxCallFuture<R>;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<()>> {
        self.inner.poll_ready(cx)
    }

    fn call(&mut self, request: R) -> BoxCallFuture<R> {
        if self.is_outside_run(request.context()) {
            return BoxCallFuture::failed(no_part_of_the_run::<R>());
        }
        let Bands { first, rest } = self.bands(request.context());
        let inside = Inside {
            bands: rest.into_iter(),
            inner: self.inner.take(),
        };
        inside.enter(first, request)
    }
}

/// The bands around a call, outermost first; usually at most one.
struct Bands<R: Request> {
    first: Option<Callbacks<R>>,
    rest: Vec<Callbacks<R>>,
}

impl<R: Request> Bands<R> {
    #[inline]
    fn push(&mut self, callbacks: &Callbacks<R>) {
        if callbacks.is_empty() {
            return;
        }
        match self.first {
            None => self.first = Some(callbacks.clone()),
            Some(_) => self.rest.push(callbacks.clone()),
        }
    }
}

/// The inner service of a band.
struct Inside<R: Request> {
    bands: vec::IntoIter<Callbacks<R>>,
    inner: BoxCallService<R>,
}

impl<R: Request> Inside<R> {
    fn enter(mut self, band: Option<Callbacks<R>>, request: R) -> BoxCallFuture<R> {
        match band {
            None => self.inner.call(request),
            Some(band) => BoxCallFuture::new(band::run(band, request, self, true)),
        }
    }
}

impl<R: Request> Service<R> for Inside<R> {
    type Response = R::Response;
    type Error = Error;
    type Future = BoxCallFuture<R>;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<()>> {
        self.inner.poll_ready(cx)
    }

    fn call(&mut self, request: R) -> BoxCallFuture<R> {
        let mut inside = Self {
            bands: self.bands.clone(),
            inner: self.inner.take(),
        };
        let band = inside.bands.next();
        inside.enter(band, request)
    }
}

fn no_part_of_the_run<R: Request>() -> Error {
    let message = format!(
        "a layer has replaced the agent's {} request by a new one, which does not belong to the \
         run; change the request that the layer received, or a clone of it",
        R::CALL
    );
    Error::new(ErrorKind::InvalidRequest, message)
}

impl<R: Request> Clone for LayerInner<R> {
    /// The clone is not ready, even if the original is.
    fn clone(&self) -> Self {
        Self {
            own: self.own.clone(),
            place: self.place.clone(),
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
