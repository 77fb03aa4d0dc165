use std::future::Future;

use serde::Serialize;
use serde::de::DeserializeOwned;
use tower_agent::call::Extensions;
use tower_agent::model::Settings;
use tower_agent::{ModelRequest, ModelResponse, Request, Result, RunContext, ToolRequest};

use super::error::JournalError;
use super::fingerprint::{self, Fingerprint, LENGTH};
use super::known_messages::KnownMessages;
use super::step_id::StepKind;

/// The name under which a run keeps the hashes of its messages and tools.
const HASHES: &str = "tower_agent_durable.fingerprint";

/// The maximum number of latest messages that have a part of their own.
const LATEST: usize = 8;

/// A call that is a step.
pub(super) trait StepRequest: Request<Response: Serialize + DeserializeOwned> {
    fn kind(&self) -> StepKind;

    /// Returns the fingerprint. `known` are the messages of the run's request.
    fn fingerprint(&self, known: &KnownMessages) -> Result<Fingerprint>;

    /// Returns whether the step may be repeated if it did not finish.
    fn may_repeat(&self) -> bool;

    /// Returns whether it is a call of an agent, which has steps of its own.
    fn is_agent(&self) -> bool;

    fn in_context(self, context: RunContext) -> Self;

    fn data(&mut self) -> &mut Extensions;

    /// Gives the response the ids that it has in the transcript, before it is stored.
    fn identify(&self, _: &mut Self::Response) {}

    /// Streams a replayed response to the watchers of the call.
    fn show(&self, response: Self::Response)
    -> impl Future<Output = Result<Self::Response>> + Send;

    /// Describes the call, for the question about an unfinished step.
    fn subject(&self) -> serde_json::Value;

    /// Returns the idempotency key for the service that the tool calls.
    fn key(&self) -> String;

    /// Replaces the idempotency key.
    fn with_key(self, key: &str) -> Self;

    /// Keeps the idempotency key, whatever is made of the arguments inside.
    fn keep_key(self) -> Self;
}

impl StepRequest for ModelRequest {
    fn kind(&self) -> StepKind {
        StepKind::Model
    }

    fn fingerprint(&self, known: &KnownMessages) -> Result<Fingerprint> {
        let mut fingerprint = Fingerprint::default();
        // A part that most requests do not have is left out: each part is a hash.
        if let Some(instructions) = self.instructions() {
            fingerprint
                .add("instructions", &instructions)
                .map_err(JournalError::from)?;
        }
        add_messages(self, known, &mut fingerprint)?;
        add_tools(self, &mut fingerprint)?;
        if *self.settings() != Settings::default() {
            fingerprint
                .add("settings", self.settings())
                .map_err(JournalError::from)?;
        }
        Ok(fingerprint)
    }

    fn may_repeat(&self) -> bool {
        true
    }

    fn is_agent(&self) -> bool {
        false
    }

    fn in_context(self, context: RunContext) -> Self {
        self.with_context(context)
    }

    fn data(&mut self) -> &mut Extensions {
        self.extensions_mut()
    }

    async fn show(&self, response: ModelResponse) -> Result<ModelResponse> {
        // The stream names the message as the transcript does, so that a client can match them.
        if let Some(sender) = self.delta_sender()
            && let Some(id) = response.message().id()
        {
            sender.set_message_id(id.clone());
        }
        response.streamed_to(self.delta_sender()).await
    }

    fn identify(&self, response: &mut ModelResponse) {
        ModelRequest::identify(self, response);
    }

    fn subject(&self) -> serde_json::Value {
        serde_json::Value::Null
    }

    fn key(&self) -> String {
        String::new()
    }

    fn with_key(self, _: &str) -> Self {
        self
    }

    fn keep_key(self) -> Self {
        self
    }
}

impl StepRequest for ToolRequest {
    fn kind(&self) -> StepKind {
        StepKind::Tool(self.name().into())
    }

    fn fingerprint(&self, _: &KnownMessages) -> Result<Fingerprint> {
        let mut fingerprint = Fingerprint::default();
        fingerprint
            .add_name("tool", self.name())
            .map_err(JournalError::from)?;
        fingerprint
            .add_name("id", self.id())
            .map_err(JournalError::from)?;
        fingerprint
            .add("arguments", self.arguments())
            .map_err(JournalError::from)?;
        Ok(fingerprint)
    }

    /// Allows an agent as well: its own steps that are done are replayed.
    fn may_repeat(&self) -> bool {
        self.is_repeatable() || self.is_agent()
    }

    fn is_agent(&self) -> bool {
        self.declaration().is_some_and(|tool| tool.is_agent())
    }

    fn in_context(self, context: RunContext) -> Self {
        self.with_context(context)
    }

    fn data(&mut self) -> &mut Extensions {
        self.extensions_mut()
    }

    async fn show(&self, response: Self::Response) -> Result<Self::Response> {
        Ok(response)
    }

    fn subject(&self) -> serde_json::Value {
        serde_json::json!({
            "tool": self.name(),
            "arguments": self.arguments(),
            "idempotency_key": self.idempotency_key(),
        })
    }

    fn key(&self) -> String {
        self.idempotency_key()
    }

    fn with_key(self, key: &str) -> Self {
        self.with_idempotency_key(key)
    }

    fn keep_key(self) -> Self {
        self.keep_idempotency_key()
    }
}

/// Adds the messages. Each is hashed once in a run, together with those before it, so that one hash
/// stands for all that came earlier.
fn add_messages(
    request: &ModelRequest,
    known: &KnownMessages,
    fingerprint: &mut Fingerprint,
) -> Result<()> {
    let mut written = Vec::new();
    let hashes = match known.hashes_of(request.messages()) {
        // The first call of a run, which in a long conversation is often the only one.
        Some(hashes) => hashes,
        None => {
            request.write_messages(HASHES, &mut written, |index, hashes| {
                let message = &request.messages()[index];
                let hash = known.hash_at(index, hashes.last_chunk(), message);
                hashes.extend_from_slice(&hash.map_err(JournalError::from)?);
                Ok(())
            })?;
            written.as_chunks::<LENGTH>().0
        }
    };
    // Each message has a part, so that an error names the one that differs; but a fingerprint of
    // all of them would make the journal grow with the square of the turns. So all but the latest
    // share one hash, in whole blocks, so that another message at the end leaves the names of the
    // others.
    let earlier = hashes.len().saturating_sub(1) / LATEST * LATEST;
    if let Some(hash) = hashes[..earlier].last() {
        fingerprint.push(format!("messages[..{earlier}]"), hash);
    }
    for (index, hash) in hashes.iter().enumerate().skip(earlier) {
        let mut digits = itoa::Buffer::new();
        let name = ["messages[", digits.format(index), "]"].concat();
        fingerprint.push(name, hash);
    }
    Ok(())
}

/// Adds the tools, which are hashed once in a run.
fn add_tools(request: &ModelRequest, fingerprint: &mut Fingerprint) -> Result<()> {
    let mut hashes = Vec::new();
    request.write_tools(HASHES, &mut hashes, |hashes| {
        for tool in request.tools() {
            let hash = fingerprint::hash(tool, &[]).map_err(JournalError::from)?;
            hashes.extend_from_slice(&hash);
        }
        Ok(())
    })?;
    for (tool, hash) in request.tools().iter().zip(hashes.chunks_exact(LENGTH)) {
        fingerprint.push(["tool ", tool.name()].concat(), hash);
    }
    Ok(())
}
