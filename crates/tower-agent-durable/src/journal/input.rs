use std::sync::Arc;
use std::time::SystemTime;

use serde::{Deserialize, Serialize};
use serde_json::Value;
use tower_agent::agent::SavedRequest;
use tower_agent::{AgentRequest, Request};
use tower_agent_conversations::{ConversationKey, StoreError};

use super::error::JournalError;
use super::fingerprint::Fingerprint;
#[cfg(any(feature = "postgres", feature = "sqlite"))]
use super::kept_in::KeptIn;
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
        let saved = SavedRequest::from(request);
        let mut data = serde_json::to_value(&saved).map_err(StoreError::data)?;
        // The same request in a later format is the same request.
        if let Some(Value::Object(head)) = data.pointer_mut("/checkpoint/head") {
            head.remove("version");
        }
        // The same request can come through another stream, whose messages have other ids, and
        // again after its agent has minted some.
        if let Some(Value::Object(conversation)) = data.pointer_mut("/checkpoint/head/conversation")
        {
            conversation.remove("next_id");
        }
        if let Some(Value::Array(messages)) = data.pointer_mut("/checkpoint/messages") {
            for message in messages.iter_mut().filter_map(Value::as_object_mut) {
                message.remove("id");
            }
        }
        // Objects keep the order of their keys if another crate of the program turns that feature
        // on, and then what was removed has changed it.
        data.sort_all_objects();
        let mut fingerprint = Fingerprint::default();
        for (part, value) in parts(&data) {
            // The checkpoint is the bulk of a request: its parts are hashed one by one, so that an
            // error can name the part that differs.
            if part == "checkpoint" {
                for (part, value) in parts(value) {
                    fingerprint.add(part.to_owned(), value)?;
                }
            } else {
                fingerprint.add(part.to_owned(), value)?;
            }
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
