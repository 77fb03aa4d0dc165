use std::borrow::Cow;
use std::fmt;
use std::sync::Arc;

use opentelemetry::global;
use opentelemetry::metrics::{Meter, MeterProvider};
use tower_agent::RunContext;
use tower_agent::callback::Bundle;

use crate::calls::Innermost;
use crate::layer::OpenTelemetryLayer;
use crate::metrics;
use crate::names::SCOPE;
use crate::open_call::is_unheard;
use crate::telemetry::{IdOf, Telemetry};

/// Spans and metrics of every call of a tree of agents, as a [`Bundle`]. See the [crate](crate) for
/// what is recorded.
///
/// ```
/// use tower_agent::{Agent, BoxError};
/// use tower_agent_middleware::redact::{Detector, Redact};
/// use tower_agent_otel::OpenTelemetry;
/// # use tower_agent_test::{ScriptedModel, Turn};
///
/// # fn main() -> Result<(), BoxError> {
/// # let model = ScriptedModel::new([Turn::from_text("hi")]);
/// let telemetry = OpenTelemetry::new()
///     .record_content();
///
/// let agent = Agent::builder(model)
///     .global_callbacks(telemetry) // first: redaction is inside it
///     .global_callbacks(Redact::new([Detector::email()])?)
///     .build()?;
/// # drop(agent);
/// # Ok(())
/// # }
/// ```
#[derive(Clone)]
#[must_use = "it records nothing until an agent has it"]
pub struct OpenTelemetry {
    has_content: bool,
    provider: Option<Cow<'static, str>>,
    conversation_id: Option<Arc<IdOf>>,
    user_id: Option<Arc<IdOf>>,
    meter: Option<Meter>,
}

impl OpenTelemetry {
    /// Records without content, with the global meter provider.
    pub fn new() -> Self {
        Self {
            has_content: false,
            provider: None,
            conversation_id: None,
            user_id: None,
            meter: None,
        }
    }

    /// Also records content: instructions, messages, tools, arguments, results and the texts of
    /// errors, as far as redaction inside it lets them through.
    pub fn record_content(mut self) -> Self {
        self.has_content = true;
        self
    }

    /// Sets the provider of models that do not [tell](tower_agent::model::ModelTarget) theirs.
    /// Defaults to `unknown`.
    pub fn provider_name(mut self, name: impl Into<Cow<'static, str>>) -> Self {
        self.provider = Some(name.into());
        self
    }

    /// Sets the function that returns the id of a run's conversation, `gen_ai.conversation.id`. It
    /// is called for each span. Defaults to the
    /// [`ConversationId`](tower_agent::context::ConversationId) of the run, which stored
    /// conversations add: sessions and threads.
    ///
    /// The id is stored in the [private state](RunContext::private_state), and with it in the
    /// checkpoint: a run that is resumed is in the same conversation, whether or not it is given
    /// the id again. A conversation without an id has that of its first run.
    pub fn conversation_id(
        mut self,
        id: impl Fn(&RunContext) -> Option<String> + Send + Sync + 'static,
    ) -> Self {
        self.conversation_id = Some(Arc::new(id));
        self
    }

    /// Sets the function that returns the id of a run's user, `enduser.id`. It is called for each
    /// span. By default no span names a user: whom the backend may know is for the program to say.
    ///
    /// The user of a stored conversation is in its
    /// [`ConversationKey`](https://docs.rs/tower-agent-conversations/latest/tower_agent_conversations/struct.ConversationKey.html).
    ///
    /// ```
    /// use tower_agent_conversations::ConversationKey;
    /// use tower_agent_otel::OpenTelemetry;
    ///
    /// let telemetry = OpenTelemetry::new()
    ///     .user_id(|run| ConversationKey::of(run).map(|key| key.user.to_string()));
    /// # drop(telemetry);
    /// ```
    pub fn user_id(
        mut self,
        id: impl Fn(&RunContext) -> Option<String> + Send + Sync + 'static,
    ) -> Self {
        self.user_id = Some(Arc::new(id));
        self
    }

    /// Sets the provider of the meter. Defaults to the global one at the time when an agent gets
    /// this; if the program has set none by then, nothing is measured.
    pub fn meter_provider(mut self, provider: &dyn MeterProvider) -> Self {
        self.meter = Some(provider.meter(SCOPE));
        self
    }
}

impl Default for OpenTelemetry {
    fn default() -> Self {
        Self::new()
    }
}

impl From<OpenTelemetry> for Bundle {
    fn from(telemetry: OpenTelemetry) -> Self {
        let OpenTelemetry {
            has_content,
            provider,
            conversation_id,
            user_id,
            meter,
        } = telemetry;
        // Only of the global one: a meter that was given is to be used.
        let is_global = meter.is_none();
        let meter = meter.unwrap_or_else(|| global::meter(SCOPE));
        let is_unmetered = is_global && metrics::is_noop(&meter);
        let telemetry = Arc::new(Telemetry::new(
            has_content,
            provider.map(Arc::from),
            conversation_id,
            user_id,
            &meter,
            is_unmetered,
        ));
        let layer = OpenTelemetryLayer::new(telemetry.clone());
        Self::new()
            .agent_layer(layer.clone())
            .model_layer(layer.clone())
            .tool_layer(layer)
            .innermost_model(Innermost)
            .idle_when(move || is_unheard(&telemetry))
    }
}

impl fmt::Debug for OpenTelemetry {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("OpenTelemetry")
            .field("has_content", &self.has_content)
            .field("provider", &self.provider)
            .finish_non_exhaustive()
    }
}
