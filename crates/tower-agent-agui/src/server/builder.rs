use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use tower::Service;
use tower_layer::Layer;

use super::{AgUi, Limits, PrincipalOf};
use crate::threads::{BoxStore, Keeping, MemoryThreads, SealKeys, ThreadStore};
use crate::translate::{Translate, TranslateRequest, TranslateResponse};
use tower_agent::agent::BoxAgent;
use tower_agent::call::BoxCallService;
use tower_agent::callback::{Callback, CallbackSemantics, LayerInner, StackBuilder};
use tower_agent::error::BoxError;

/// Composes an [`AgUi`]; [`AgUi::builder`] makes it.
#[must_use = "a builder does nothing until `build` is called"]
pub struct AgUiBuilder {
    agent: BoxAgent,
    stack: StackBuilder<TranslateRequest>,
    semantics: CallbackSemantics,
    limits: Limits,
    keeping: Option<Keeping>,
    name: Arc<str>,
    principal: Option<PrincipalOf>,
}

impl AgUiBuilder {
    pub(super) fn new(agent: BoxAgent) -> Self {
        Self {
            agent,
            stack: StackBuilder::new(),
            semantics: CallbackSemantics::default(),
            limits: Limits {
                body: 4 << 20,
                nesting: 64,
                keep_alive: Duration::from_secs(15),
                abandoned_after: Duration::from_secs(15 * 60),
            },
            keeping: None,
            name: "".into(),
            principal: None,
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
        L: Layer<LayerInner<TranslateRequest>> + Send + 'static,
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
    /// [`potato`](CallbackSemantics::potato) their responses do not count.
    pub fn semantics(mut self, semantics: CallbackSemantics) -> Self {
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

    /// Sets where threads are kept. Defaults to [`MemoryThreads::new`].
    ///
    /// Servers that share a store need a [name](Self::name) each, unless they serve one agent.
    pub fn threads(mut self, store: impl ThreadStore) -> Self {
        self.keeping = Some(Keeping::Store(BoxStore::new(store)));
        self
    }

    /// Keeps no threads: an answer to a question can be used once more in every other process that
    /// has the key, and in this one after a restart or 100,000 later answers.
    ///
    /// The front end keeps each thread, sealed with the key, in the `encryptedValue` of its first
    /// message, and sends it with every request. It can neither read nor change it, nor use it in
    /// another thread, for another principal or with a server of another [name](Self::name). It
    /// can go back to an earlier one, as it can with an edit, and ask two servers to go on from the
    /// same. What it has of a run that broke off before its end is what it tells: a tool
    /// whose answer is lost with the connection may be called again.
    ///
    /// A sealed thread is somewhat larger than the conversation, and counts towards
    /// [`max_body_size`](Self::max_body_size).
    ///
    /// ```
    /// use tower_agent_agui::{AgUi, threads::SealKey};
    /// # use tower_agent::Agent;
    /// # use tower_agent::testing::ScriptedModel;
    ///
    /// # fn main() -> Result<(), tower_agent::BoxError> {
    /// # let agent = Agent::builder(ScriptedModel::new([])).build()?;
    /// # let secret = [7; 32];
    /// let server = AgUi::builder(agent).stateless(SealKey::new(secret)).build();
    /// # drop(server);
    /// # Ok(())
    /// # }
    /// ```
    pub fn stateless(mut self, keys: impl Into<SealKeys>) -> Self {
        self.keeping = Some(Keeping::sealed(keys.into()));
        self
    }

    /// Sets the name under which threads are kept and sealed. Defaults to `""`.
    ///
    /// Servers of several agents that share a store or a key need different names: an approval
    /// that one has asked for is then of no use with another.
    pub fn name(mut self, name: impl Into<Arc<str>>) -> Self {
        self.name = name.into();
        self
    }

    /// Sets how to tell who sends a request, such as by what a layer for authentication has put
    /// into its extensions. Without it, any sender who knows the name of a thread speaks in it.
    ///
    /// A thread belongs to the principal that has begun it: to any other it is as unknown as one
    /// that never was. Where the function returns `None`, the request is refused with 401.
    ///
    /// ```
    /// use tower_agent_agui::AgUi;
    /// # use tower_agent::Agent;
    /// # use tower_agent::testing::ScriptedModel;
    ///
    /// /// Put there by a layer that has checked a token.
    /// #[derive(Clone)]
    /// struct User(String);
    ///
    /// # fn main() -> Result<(), tower_agent::BoxError> {
    /// # let agent = Agent::builder(ScriptedModel::new([])).build()?;
    /// let server = AgUi::builder(agent)
    ///     .principal(|parts| Some(parts.extensions.get::<User>()?.0.clone()))
    ///     .build();
    /// # drop(server);
    /// # Ok(())
    /// # }
    /// ```
    pub fn principal<P: Into<Arc<str>>>(
        mut self,
        of: impl Fn(&http::request::Parts) -> Option<P> + Send + Sync + 'static,
    ) -> Self {
        self.principal = Some(Arc::new(move |parts| of(parts).map(Into::into)));
        self
    }

    /// Sets how long after it last saved something a run counts as dead: its process was killed, or
    /// its store failed twice in a row. Defaults to 15 minutes.
    ///
    /// Until then other runs of its thread are refused. After that a run may take over: calls that
    /// have no answer are not made, and a late answer of the first run is not kept.
    pub fn abandoned_after(mut self, time: Duration) -> Self {
        self.limits.abandoned_after = time;
        self
    }

    /// Composes the service.
    #[must_use]
    pub fn build(self) -> AgUi {
        let Self { agent, stack, semantics, limits, keeping, name, principal } = self;
        let in_memory = || Keeping::Store(BoxStore::new(MemoryThreads::new()));
        let keeping = keeping.unwrap_or_else(in_memory);
        let stack =
            (!stack.is_empty()).then(|| stack.around(BoxCallService::new(Translate), semantics));
        AgUi { agent, stack, limits, keeping, name, principal }
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
