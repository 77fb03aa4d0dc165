use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use tower_layer::Layer;

use super::agui::{AgUi, PrincipalOf, RolesOf};
use super::limits::Limits;
use crate::client_tool::OwnTools;
use crate::failure::FailureMessage;
use crate::permit::Runs;
use crate::translate::{Translate, TranslateRequest};
use tower_agent::agent::{AgentService, BoxAgent};
use tower_agent::call::{BoxCallService, CallService};
use tower_agent::callback::{Callback, LayerInner, StackBuilder};
use tower_agent::compat::CallbackSemantics;
use tower_agent::context::RunContext;
use tower_agent::error::Error;
use tower_agent_conversations::{ConversationKey, ConversationStore, Roles, SealKeys, Threads};

/// Builds an [`AgUi`]; created by [`AgUi::builder`].
#[must_use = "a builder does nothing until `build` is called"]
pub struct AgUiBuilder {
    agent: BoxAgent,
    own_tools: OwnTools,
    stack: StackBuilder<TranslateRequest>,
    semantics: CallbackSemantics,
    limits: Limits,
    threads: Threads,
    name: Arc<str>,
    principal: Option<PrincipalOf>,
    failure_message: FailureMessage,
    roles: Option<RolesOf>,
}

impl AgUi {
    /// Creates a server for an agent: an [`Agent`](tower_agent::Agent), or one inside layers.
    pub fn new(agent: impl AgentService) -> Self {
        Self::builder(agent).build()
    }

    /// Creates a builder for a server of this agent.
    pub fn builder(agent: impl AgentService) -> AgUiBuilder {
        let own_tools = OwnTools::of(&agent);
        AgUiBuilder::new(BoxAgent::new(agent), own_tools)
    }
}

impl AgUiBuilder {
    fn new(agent: BoxAgent, own_tools: OwnTools) -> Self {
        Self {
            agent,
            own_tools,
            stack: StackBuilder::new(),
            semantics: CallbackSemantics::default(),
            limits: Limits::default(),
            // A server always has threads: without them a client could speak for the model.
            threads: Threads::default(),
            name: "".into(),
            principal: None,
            failure_message: FailureMessage::default(),
            roles: None,
        }
    }

    /// Adds a callback around the translation of each event.
    pub fn on_translate(mut self, callback: impl Callback<TranslateRequest>) -> Self {
        self.stack.callback(callback);
        self
    }

    /// Adds a layer around the translation of each event. What is registered after it is inside it.
    pub fn translate_layer<L>(mut self, layer: L) -> Self
    where
        L: Layer<LayerInner<TranslateRequest>, Service: CallService<TranslateRequest>>
            + Send
            + Sync
            + 'static,
    {
        self.stack.layer(layer);
        self
    }

    /// Sets the compatibility semantics of the callbacks around the translation. Under
    /// [`potato`](CallbackSemantics::potato) their responses are ignored.
    pub fn semantics(mut self, semantics: CallbackSemantics) -> Self {
        self.semantics = semantics;
        self
    }

    /// Sets the maximum size of a request body in bytes. Defaults to 4 MiB.
    pub fn max_body_size(mut self, bytes: usize) -> Self {
        self.limits.body = bytes;
        self
    }

    /// Sets the time in which a request body has to arrive. Defaults to 30 seconds.
    pub fn body_timeout(mut self, time: Duration) -> Self {
        self.limits.body_time = time;
        self
    }

    /// Sets how deeply a body's arrays and objects may be nested. Defaults to 64; the maximum is
    /// 128.
    pub fn max_nesting(mut self, levels: usize) -> Self {
        self.limits.nesting = levels;
        self
    }

    /// Sets how many values of JSON a body may have: arrays, what is in them and in objects, and
    /// objects, each of which counts as five. A value takes up to 100 times the memory of its text,
    /// so their number bounds what a body takes. Defaults to 32,768, some 1,000 turns with a tool
    /// call each; with bodies of 4 MiB, that is at most 6 times the body.
    ///
    /// ```
    /// use tower_agent_agui::AgUi;
    /// # use tower_agent::Agent;
    /// # use tower_agent_test::ScriptedModel;
    ///
    /// # fn main() -> Result<(), tower_agent::BoxError> {
    /// # let agent = Agent::builder(ScriptedModel::new([])).build()?;
    /// let server = AgUi::builder(agent).max_body_size(16 << 20).max_values(1 << 17).build();
    /// # drop(server);
    /// # Ok(())
    /// # }
    /// ```
    pub fn max_values(mut self, values: usize) -> Self {
        self.limits.values = values;
        self
    }

    /// Sets how many runs there may be at once, from the time that a request is accepted until its
    /// response has ended or is dropped. Others are rejected, with 503. Defaults to 1,000.
    ///
    /// A limit of concurrency around the server is none of runs: such a layer counts a request
    /// until the head of its response.
    ///
    /// ```
    /// use tower_agent_agui::AgUi;
    /// # use tower_agent::Agent;
    /// # use tower_agent_test::ScriptedModel;
    ///
    /// # fn main() -> Result<(), tower_agent::BoxError> {
    /// # let agent = Agent::builder(ScriptedModel::new([])).build()?;
    /// let server = AgUi::builder(agent).max_runs(200).max_runs_per_principal(4).build();
    /// # drop(server);
    /// # Ok(())
    /// # }
    /// ```
    pub fn max_runs(mut self, runs: usize) -> Self {
        self.limits.runs = runs;
        self
    }

    /// Sets how many runs one [principal](Self::principal) may have at once, among those of
    /// [all](Self::max_runs). Others are rejected, with 429. Defaults to 100; has no effect on runs
    /// without a principal.
    pub fn max_runs_per_principal(mut self, runs: usize) -> Self {
        self.limits.runs_per_principal = runs;
        self
    }

    /// Sets how long a run may take, from its start to the end of its stream. Then it is stopped:
    /// its progress is saved, and the stream ends with a `RUN_ERROR` of the code `timeout`.
    /// Defaults to an hour; `Duration::MAX` stands for no limit. A run that waits for an answer has
    /// ended.
    ///
    /// A `TimeoutLayer` around the server bounds the time until the response's head alone, which is
    /// there before the run has done anything; one around the agent's model or tools bounds each
    /// call.
    ///
    /// ```
    /// use std::time::Duration;
    ///
    /// use tower_agent_agui::AgUi;
    /// # use tower_agent::Agent;
    /// # use tower_agent_test::ScriptedModel;
    ///
    /// # fn main() -> Result<(), tower_agent::BoxError> {
    /// # let agent = Agent::builder(ScriptedModel::new([])).build()?;
    /// let server = AgUi::builder(agent).max_run_time(Duration::from_secs(600)).build();
    /// # drop(server);
    /// # Ok(())
    /// # }
    /// ```
    pub fn max_run_time(mut self, time: Duration) -> Self {
        self.limits.run_time = time;
        self
    }

    /// Sets how long a client may take nothing of a response, although there is something for it.
    /// Then, or after up to twice that time, it is let go as if it were gone: its run stops, the
    /// progress is saved, and the place and the thread are free. If it reads after all, its stream
    /// ends with a `RUN_ERROR` of the code `timeout`. Defaults to a minute.
    ///
    /// The time in which a run waits for its agent does not count. The connection itself is the
    /// HTTP server's to close.
    pub fn read_timeout(mut self, time: Duration) -> Self {
        self.limits.read_time = time;
        self
    }

    /// Sets the idle interval between keep-alive comments. Defaults to 15 seconds.
    pub fn keep_alive(mut self, interval: Duration) -> Self {
        self.limits.keep_alive = interval;
        self
    }

    /// Sets the store of the threads. Defaults to
    /// [`MemoryConversations::new`](crate::conversations::MemoryConversations::new).
    ///
    /// Servers that share a store need different [names](Self::name), unless they serve the same
    /// agent.
    pub fn threads(mut self, store: impl ConversationStore) -> Self {
        self.threads = self.threads.with_store(store);
        self
    }

    /// Lets a client send only what is new: an input without any message that the server knows
    /// continues the thread. By default it replaces the conversation, as any message that the
    /// client omits is dropped.
    ///
    /// The ids of new messages have to be new in their thread. Has no effect on a server without
    /// threads of its own.
    ///
    /// ```
    /// use tower_agent_agui::AgUi;
    /// # use tower_agent::Agent;
    /// # use tower_agent_test::ScriptedModel;
    ///
    /// # fn main() -> Result<(), tower_agent::BoxError> {
    /// # let agent = Agent::builder(ScriptedModel::new([])).build()?;
    /// let server = AgUi::builder(agent).allow_partial_history().build();
    /// # drop(server);
    /// # Ok(())
    /// # }
    /// ```
    pub fn allow_partial_history(mut self) -> Self {
        self.threads = self.threads.allow_partial_history();
        self
    }

    /// Sets which URLs a client may put into a message, for images, audio and documents. Defaults
    /// to public ones: `https`, and a host that is neither an address, nor a local name, nor one at
    /// which a provider keeps files. The function decides alone; see
    /// [`Threads::allow_urls`](crate::conversations::Threads::allow_urls).
    ///
    /// ```
    /// use tower_agent_agui::AgUi;
    /// # use tower_agent::Agent;
    /// # use tower_agent_test::ScriptedModel;
    ///
    /// # fn main() -> Result<(), tower_agent::BoxError> {
    /// # let agent = Agent::builder(ScriptedModel::new([])).build()?;
    /// let server = AgUi::builder(agent)
    ///     .allow_urls(|_, url| url.starts_with("https://images.example.com/"))
    ///     .build();
    /// # drop(server);
    /// # Ok(())
    /// # }
    /// ```
    pub fn allow_urls(
        mut self,
        accept: impl Fn(&ConversationKey, &str) -> bool + Send + Sync + 'static,
    ) -> Self {
        self.threads = self.threads.allow_urls(accept);
        self
    }

    /// Keeps no threads on the server. An answer to an interrupt can then be used again in every
    /// other process with the key, and in this process after a restart or after 100,000 later
    /// answers.
    ///
    /// The client keeps each thread, sealed with the key, in the `encryptedValue` of its first
    /// message, and sends it with every request. The client can neither read nor change it, nor use
    /// it in another thread, for another principal, or with a server of another [name](Self::name).
    /// The client can return to an earlier version, as it can with an edit, and continue the same
    /// version on two servers. After a run that broke off, the server knows only what the client
    /// received: if the connection breaks before a tool result arrives, the tool may be called
    /// again.
    ///
    /// A sealed thread is somewhat larger than the conversation, and counts towards
    /// [`max_body_size`](Self::max_body_size).
    ///
    /// ```
    /// use tower_agent_agui::{AgUi, conversations::SealKey};
    /// # use tower_agent::Agent;
    /// # use tower_agent_test::ScriptedModel;
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
        self.threads = self.threads.with_seal(keys);
        self
    }

    /// Sets the name under which threads are stored and sealed. Defaults to `""`.
    ///
    /// Servers of different agents that share a store or a key need different names; an approval
    /// requested by one is then invalid for the others.
    pub fn name(mut self, name: impl Into<Arc<str>>) -> Self {
        self.name = name.into();
        self
    }

    /// Sets the function that identifies the sender of a request, for example from what an
    /// authentication layer has put into the extensions. Without it, any client that knows the id
    /// of a thread can continue it.
    ///
    /// A thread belongs to the principal that started it and is unknown to all others. If the
    /// function returns `None`, the request is rejected with 401.
    ///
    /// ```
    /// use tower_agent_agui::AgUi;
    /// # use tower_agent::Agent;
    /// # use tower_agent_test::ScriptedModel;
    ///
    /// /// Inserted by a layer that has verified a token.
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

    /// Sets the function that chooses what the client reads of an error: of a run or a subagent
    /// that failed, and of a tool whose result is the text of an error. `None` stands for the
    /// default, a general text with the [id of the run](RunContext::run_id).
    ///
    /// An error may quote a provider, a database or a rule, so its own text is not sent unless this
    /// function returns it. The whole error goes to the log, as a `tracing` warning with the same
    /// id. The code of a failed run, which is that of its [kind](Error::kind), is always sent.
    ///
    /// A failed tool has the kind [`Tool`](tower_agent::ErrorKind::Tool) here, and the text that
    /// the model reads. The words of the application itself are sent as they are: a
    /// [`ToolResponse::error`](tower_agent::ToolResponse::error), and the text of
    /// [`tool_failure_message`](tower_agent::AgentBuilder::tool_failure_message).
    ///
    /// ```
    /// use tower_agent::ErrorKind;
    /// use tower_agent_agui::AgUi;
    /// # use tower_agent::Agent;
    /// # use tower_agent_test::ScriptedModel;
    ///
    /// # fn main() -> Result<(), tower_agent::BoxError> {
    /// # let agent = Agent::builder(ScriptedModel::new([])).build()?;
    /// let server = AgUi::builder(agent)
    ///     .failure_message(|error, run| match error.kind() {
    ///         ErrorKind::BudgetExceeded => Some("You have used up this month's answers.".into()),
    ///         ErrorKind::Overloaded => Some(format!("Please try again. ({})", run.run_id())),
    ///         _ => None,
    ///     })
    ///     .build();
    /// # drop(server);
    /// # Ok(())
    /// # }
    /// ```
    pub fn failure_message(
        mut self,
        of: impl Fn(&Error, &RunContext) -> Option<String> + Send + Sync + 'static,
    ) -> Self {
        self.failure_message = FailureMessage::new(of);
        self
    }

    /// Lets clients send system and developer messages. By default they are rejected: whoever can
    /// send a request could change what the agent was told. Tell it with
    /// [`instructions`](tower_agent::agent::AgentBuilder::instructions).
    pub fn allow_system_messages(mut self) -> Self {
        self.threads = self.threads.allow_system_messages();
        self
    }

    /// Sets the function that returns the roles of the sender of a request, such as `support`, for
    /// example from what an authentication layer has put into the extensions. Without it nobody has
    /// a role.
    ///
    /// A client needs the role to answer a question [for it](tower_agent::Interrupt::for_role).
    /// Others are told that somebody is waited for, and see nothing of the question. A role gives
    /// no access to the threads of others: those answer questions there with the
    /// [principal](Self::principal) of the thread.
    ///
    /// ```
    /// use tower_agent_agui::AgUi;
    /// use tower_agent_agui::conversations::Roles;
    /// # use tower_agent::Agent;
    /// # use tower_agent_test::ScriptedModel;
    ///
    /// /// Inserted by a layer that has verified a token.
    /// #[derive(Clone)]
    /// struct User {
    ///     roles: Vec<String>,
    /// }
    ///
    /// # fn main() -> Result<(), tower_agent::BoxError> {
    /// # let agent = Agent::builder(ScriptedModel::new([])).build()?;
    /// let server = AgUi::builder(agent)
    ///     .roles(|parts| {
    ///         let user = parts.extensions.get::<User>();
    ///         Roles::new(user.into_iter().flat_map(|user| user.roles.clone()))
    ///     })
    ///     .build();
    /// # drop(server);
    /// # Ok(())
    /// # }
    /// ```
    pub fn roles(
        mut self,
        of: impl Fn(&http::request::Parts) -> Roles + Send + Sync + 'static,
    ) -> Self {
        self.roles = Some(Arc::new(of));
        self
    }

    /// Sets how long the thread of a process that has died is not available. Defaults to 30
    /// seconds.
    ///
    /// A run has its thread until it ends, however long that takes, and other runs of the thread
    /// are rejected meanwhile, with `409` and `Retry-After`. After the lease of a process that has
    /// died, another run may take over: open calls do not run, and late results of the first run
    /// are not saved.
    pub fn lease(mut self, lease: Duration) -> Self {
        self.threads = self.threads.lease(lease);
        self
    }

    /// Builds the service.
    #[must_use]
    pub fn build(self) -> AgUi {
        let Self {
            agent,
            own_tools,
            stack,
            semantics,
            limits,
            threads,
            name,
            principal,
            failure_message,
            roles,
        } = self;
        // Without callbacks there is no stack, so that streamed text takes the short way.
        let stack = (!stack.is_empty())
            .then(|| stack.around(BoxCallService::new(Translate), Some(&semantics)));
        AgUi {
            agent,
            own_tools,
            stack,
            limits,
            runs: Runs::new(limits.runs, limits.runs_per_principal),
            threads,
            name,
            principal,
            failure_message,
            roles,
        }
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
