use std::fmt;
use std::time::Duration;

use tower_layer::Layer;

use super::config::SessionConfig;
use super::format::{FORMAT, Sessions};
use super::service::SessionService;
use super::session::Session;
use crate::error::StoreError;
use crate::key::ConversationKey;
use crate::lease::{LEASE, Terms};
use crate::policy::Policy;
use crate::query::{ConversationInfo, ConversationQuery};
use crate::store::{BoxStore, ConversationStore};

/// Keeps the conversations of an agent: loads one before a run and stores it afterwards.
///
/// A request carries only what is new, such as the user's next message, and the
/// [key](crate::ConversationKey) of its session. The layer puts the conversation before it, with
/// the open interrupts and the session's state, and stores what the run has left, however it ended.
///
/// ```
/// use tower::{Layer, ServiceExt};
/// use tower_agent::Agent;
/// use tower_agent_conversations::{ConversationKey, MemoryConversations, SessionLayer};
/// # use tower_agent_test::{ScriptedModel, Turn};
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), tower_agent::BoxError> {
/// # let model = ScriptedModel::new([Turn::from_text("Hello, Ada."), Turn::from_text("Ada.")]);
/// let store = MemoryConversations::new();
/// let agent = SessionLayer::new(store).layer(Agent::builder(model).build()?);
///
/// let session = ConversationKey::new("shop", "ada", "1");
/// agent.clone().oneshot(session.request("I am Ada.")).await?;
/// let response = agent.oneshot(session.request("Who am I?")).await?;
/// assert_eq!((response.text(), response.messages().len()), ("Ada.".into(), 4));
/// # Ok(())
/// # }
/// ```
///
/// The key is an [extension of the run](tower_agent::RunContext::extension), whoever resumes it:
/// tools, callbacks and budgets read from it whose run it is.
///
/// To stream a run, give the service to [`RunStream::new`](tower_agent::RunStream::new).
///
/// # Where it stands
///
/// Around the outermost agent, with whatever changes the agent's response inside: the session is
/// what the layer hands on. Calls of agents inside the run, in tools, teams or transfers, do not
/// touch the session, also if they are wrapped in a layer themselves. A request without a key, a
/// layer inside the agent's builder, and two layers around one another are
/// [`InvalidRequest`](tower_agent::ErrorKind::InvalidRequest) errors.
///
/// A retry may stand on either side. Outside, it repeats the call with a clone of the request,
/// which continues where the failed attempt stopped and adds nothing twice.
///
/// # One run at a time
///
/// A run has its session from before the model is called until it is stored. A second run meanwhile
/// fails with [`Conflict`](tower_agent::ErrorKind::Conflict), in any process, before its model is
/// called; so does one that answers an interrupt that is not open any more. One interrupt is
/// therefore answered once.
///
/// A [run id](tower_agent::AgentRequest::with_run_id) counts once in its session, as an idempotency
/// key: a request that is delivered again has the response of the first, or goes on with it if
/// there is none, and another request under its id is a conflict.
///
/// If the process dies, the session is free when its [lease](Self::lease) has ended, and it has the
/// run's request. Calls that the lost run may have started are not repeated: the model reads that
/// their outcome is unknown. What else the run did is lost, unless a
/// [journal](https://docs.rs/tower-agent-durable/latest/tower_agent_durable/journal) has it: then
/// the same request continues the run.
///
/// # What is stored
///
/// The [checkpoint](tower_agent::AgentResponse::checkpoint) of the run, so that a failed or
/// interrupted run resumes, and the session's state. Messages are stored as the caller sees them,
/// in clear text: a
/// [redaction](https://docs.rs/tower-agent-middleware/latest/tower_agent_middleware/redact) of
/// model calls hides the user's text from the model, and not from the store. What it hides from the
/// conversation itself is in the checkpoint, so that numbered placeholders can be restored. Keep
/// the database where neither users nor clients can read or change it.
///
/// Each message is stored once, when its calls have their results. Until then it is part of the
/// session's head, which is written with every run; the head has the state as well.
///
/// # A caller that goes away
///
/// If the future or the stream of a run is dropped, a task of the Tokio runtime stores the
/// progress; the next run of the session in this process waits for it. [`finish`](Self::finish)
/// waits for all of them, before a program ends.
///
/// # A store that fails
///
/// Before the run: the call fails with [`Store`](tower_agent::ErrorKind::Store), and the model is
/// not called. After the run: the error's source is [`NotStored`](super::NotStored), with the
/// response, and a method to store it later.
#[derive(Clone)]
pub struct SessionLayer(SessionConfig);

impl SessionLayer {
    /// Creates a layer with a store.
    #[must_use]
    pub fn new(store: impl ConversationStore) -> Self {
        Self(SessionConfig {
            store: BoxStore::new(store),
            terms: Terms {
                format: FORMAT,
                lease: LEASE,
                ttl: None,
            },
            sessions: Sessions::default(),
        })
    }

    /// Sets after which time without a run a session expires. Defaults to never.
    #[must_use]
    pub fn ttl(mut self, ttl: Duration) -> Self {
        self.0.terms.ttl = Some(ttl);
        self
    }

    /// Sets how long the session of a process that has died is not available. Defaults to 30
    /// seconds.
    ///
    /// A run renews its lease in half this time. If it cannot, because the process was paused or
    /// the store fails, it starts no more calls once the lease is over. The clocks of all machines
    /// have to agree much better than that.
    #[must_use]
    pub fn lease(mut self, lease: Duration) -> Self {
        self.0.terms.lease = lease;
        self
    }

    /// Loads a session of this layer's store; returns `None` if there is none.
    ///
    /// # Errors
    ///
    /// Fails as [`Session::load`] does.
    pub async fn load(&self, key: &ConversationKey) -> Result<Option<Session>, StoreError> {
        let stored = self.0.store.load(key, 0).await?;
        stored.map(|stored| Session::read(&stored)).transpose()
    }

    /// Returns a page of the sessions in this layer's store, as a
    /// [store](ConversationStore::list) does.
    ///
    /// # Errors
    ///
    /// Fails if the store cannot be read.
    pub async fn list(
        &self,
        query: &ConversationQuery,
    ) -> Result<Vec<ConversationInfo>, StoreError> {
        self.0
            .store
            .list(&query.clone().kind(Policy::Session.kind()))
            .await
    }

    /// Waits until the progress of dropped runs is stored.
    pub async fn finish(&self) {
        self.0.store.busy().wait().await;
    }
}

impl<A> Layer<A> for SessionLayer {
    type Service = SessionService<A>;

    fn layer(&self, agent: A) -> Self::Service {
        SessionService::new(agent, self.0.clone())
    }
}

impl fmt::Debug for SessionLayer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SessionLayer")
            .field("terms", &self.0.terms)
            .finish_non_exhaustive()
    }
}
