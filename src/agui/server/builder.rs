use std::fmt;
use std::time::Duration;

use tower::Service;
use tower_layer::Layer;

use super::{AgUi, Limits};
use crate::agent::BoxAgent;
use crate::agui::translate::{Translate, TranslateRequest, TranslateResponse};
use crate::boxed::Boxed;
use crate::callback::{BandSemantics, Callback, Seam, Stack};
use crate::error::BoxError;

/// Composes an [`AgUi`]; [`AgUi::builder`] makes it.
#[must_use = "a builder does nothing until `build` is called"]
pub struct AgUiBuilder {
    agent: BoxAgent,
    stack: Stack<TranslateRequest>,
    semantics: BandSemantics,
    limits: Limits,
}

impl AgUiBuilder {
    pub(super) fn new(agent: BoxAgent) -> Self {
        Self {
            agent,
            stack: Stack::new(),
            semantics: BandSemantics::default(),
            limits: Limits { body: 4 << 20, nesting: 64, keep_alive: Duration::from_secs(15) },
        }
    }

    /// Registers a callback for the translation of each event.
    pub fn on_translate(mut self, callback: impl Callback<TranslateRequest>) -> Self {
        self.stack.callback(callback);
        self
    }

    /// Registers a layer for the translation of each event. What is registered after it is inside
    /// it.
    pub fn translate_layer<L>(mut self, layer: L) -> Self
    where
        L: Layer<Seam<TranslateRequest>> + Send + 'static,
        L::Service: Service<
                TranslateRequest,
                Response = TranslateResponse,
                Error: Into<BoxError>,
                Future: Send + 'static,
            > + Clone
            + Send
            + Sync
            + 'static,
    {
        self.stack.layer(layer);
        self
    }

    /// How callbacks around the translation answer what frameworks answer differently. Under
    /// [`potato`](BandSemantics::potato) their responses do not count.
    pub fn semantics(mut self, semantics: BandSemantics) -> Self {
        self.semantics = semantics;
        self
    }

    /// How many bytes a request's body may have; 4 MiB unless told.
    pub fn max_body_size(mut self, bytes: usize) -> Self {
        self.limits.body = bytes;
        self
    }

    /// How deeply the arrays and objects of a body may be nested; 64 unless told, and never more
    /// than the 128 that the JSON reader takes.
    pub fn max_nesting(mut self, levels: usize) -> Self {
        self.limits.nesting = levels;
        self
    }

    /// How long nothing is sent before a comment is, so that nobody on the way takes the
    /// connection for dead; 15 seconds unless told.
    pub fn keep_alive(mut self, interval: Duration) -> Self {
        self.limits.keep_alive = interval;
        self
    }

    /// Composes the service.
    #[must_use]
    pub fn build(self) -> AgUi {
        let Self { agent, stack, semantics, limits } = self;
        let stack = (!stack.is_empty()).then(|| stack.around(Boxed::new(Translate), semantics));
        AgUi { agent, stack, limits }
    }
}

impl fmt::Debug for AgUiBuilder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("AgUiBuilder")
            .field("stack", &self.stack)
            .field("limits", &self.limits)
            .finish_non_exhaustive()
    }
}
