use std::sync::Arc;
use std::time::SystemTime;

use serde::{Deserialize, Serialize};
use serde_json::Value;
use tower_agent::agent::SavedRequest;
use tower_agent::message::Messages;
use tower_agent::{AgentRequest, Request};
use tower_agent_conversations::{ConversationKey, StoreError};

use super::error::JournalError;
use super::fingerprint::Fingerprint;
#[cfg(any(feature = "postgres", feature = "sqlite"))]
use super::kept_in::KeptIn;
use super::known_messages::{KnownMessages, LatestMessages};
use super::open_run::OpenRun;
use super::run_key::RunKey;

/// A request that starts or resumes a run.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[non_exhaustive]
pub struct Input {
    /// The outermost agent.
    pub agent: Arc<str>,
    /// The user whom the run belongs to: that of its [key](RunKey), or of its
    /// conversation.
    pub user: Option<Arc<str>>,
    /// The [version](super::Durable::version) of the program.
    pub version: Option<Arc<str>>,
    /// The request.
    pub request: SavedRequest,
    /// The fingerprint of the request.
    pub fingerprint: Fingerprint,
    /// The request has started the run before in this process, as in a retry around the agent. It
    /// then contains the messages and state of the failed try.
    pub is_retried: bool,
    /// The time at which the run received the request, which decides whether its answers are in
    /// time.
    pub at: SystemTime,
    /// The messages of the request. Only in the process that received it.
    #[serde(skip)]
    pub(super) known: Arc<KnownMessages>,
    /// The stored conversation, and the policy that keeps it if one does. Only in the process that
    /// received the request, where a journal in a database may find the messages in it.
    #[cfg(any(feature = "postgres", feature = "sqlite"))]
    #[serde(skip)]
    pub(super) conversation: Option<KeptIn>,
}

impl Input {
    /// Returns the key of the run.
    #[must_use]
    pub fn key(&self) -> RunKey {
        RunKey::new(self.request.run_id()).with_user(self.user.clone())
    }

    /// Creates the input of a run from its request, for example to submit it to another process.
    ///
    /// # Errors
    ///
    /// Fails if the request cannot be written as JSON.
    pub fn new(request: &AgentRequest) -> Result<Self, JournalError> {
        Self::after(request, &KnownMessages::default())
    }

    /// Creates the input of a run, and remembers the messages of its conversation for the next one.
    pub(super) fn following(
        request: &AgentRequest,
        latest: &LatestMessages,
    ) -> Result<Self, JournalError> {
        let Some(key) = ConversationKey::of(request.context()) else {
            return Self::new(request);
        };
        let input = Self::after(request, &latest.get(key))?;
        latest.keep(key, input.known.clone());
        Ok(input)
    }

    /// Creates the input of a run whose messages may continue those that are known.
    fn after(request: &AgentRequest, known: &KnownMessages) -> Result<Self, JournalError> {
        let saved = SavedRequest::from(request);
        let known = known.followed_by(&saved.checkpoint().messages)?;
        // The messages, the bulk of a request, are hashed one by one.
        let head = saved.clone().with_messages(Messages::new());
        let mut data = serde_json::to_value(&head).map_err(StoreError::data)?;
        if let Some(Value::Object(checkpoint)) = data.pointer_mut("/checkpoint") {
            checkpoint.remove("messages");
        }
        // The same request in a later format is the same request.
        if let Some(Value::Object(head)) = data.pointer_mut("/checkpoint/head") {
            head.remove("version");
        }
        // The same request can come again after its agent has minted ids.
        if let Some(Value::Object(conversation)) = data.pointer_mut("/checkpoint/head/conversation")
        {
            conversation.remove("next_id");
        }
        // Objects keep the order of their keys if another crate of the program turns that feature
        // on, and then what was removed has changed it.
        data.sort_all_objects();
        let mut fingerprint = Fingerprint::default();
        for (part, value) in parts(&data) {
            // Its parts are hashed one by one, so that an error can name the part that differs.
            if part == "checkpoint" {
                for (part, value) in parts(value) {
                    fingerprint.add(part.to_owned(), value)?;
                }
            } else {
                fingerprint.add(part.to_owned(), value)?;
            }
        }
        if let Some(hash) = known.hash() {
            fingerprint.push("messages", hash);
        }
        let context = request.context();
        // The values of a run outlive a call of its agent, so a retry finds the steps of the first
        // try.
        let is_retried = OpenRun::of(context).is_some_and(|run| *run.id == *context.run_id());
        Ok(Self {
            agent: context.agent().into(),
            version: None,
            user: user_of(request),
            request: saved,
            fingerprint,
            is_retried,
            at: SystemTime::now(),
            known: Arc::new(known),
            #[cfg(any(feature = "postgres", feature = "sqlite"))]
            conversation: KeptIn::of(context),
        })
    }
}

/// Returns the user of a request, whose data the run is.
fn user_of(request: &AgentRequest) -> Option<Arc<str>> {
    if let Some(key) = request.extensions().get::<RunKey>() {
        return key.user.clone();
    }
    let key = ConversationKey::of(request.context())?;
    Some(key.user.clone()).filter(|user| !user.is_empty())
}

/// Returns the parts of stored data without its version: the same request in a later format is the
/// same request.
fn parts(stored: &Value) -> impl Iterator<Item = (&String, &Value)> {
    stored
        .as_object()
        .into_iter()
        .flatten()
        .filter(|(part, _)| *part != "version")
}
