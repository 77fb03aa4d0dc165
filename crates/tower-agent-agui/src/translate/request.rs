use std::collections::HashSet;
use std::sync::{Arc, Mutex};

use crate::conversation::Conversation;
use crate::failure::FailureMessage;
use crate::lock::lock;
use crate::shown;
use crate::wire::{Event, Message, RunAgentInput};
use tower_agent::Request;
use tower_agent::call::{CallKind, Extensions};
use tower_agent::context::RunContext;
use tower_agent::error::Error;
use tower_agent::stream;
use tower_agent_conversations::{InterruptIds, MissedMessage, Roles};

use super::response::TranslateResponse;
use super::state::SentState;

/// One event of an agent, to be translated for a client. Cloning is O(1).
#[derive(Clone, Debug)]
pub struct TranslateRequest {
    event: Arc<stream::Event>,
    run: Arc<TranslateRun>,
    extensions: Extensions,
}

/// The shared state of one run's translations.
#[derive(Debug)]
pub(crate) struct TranslateRun {
    pub(crate) input: Arc<RunAgentInput>,
    pub(crate) context: RunContext,
    /// The messages that the client has.
    pub(crate) shown: Mutex<Conversation>,
    pub(crate) interrupt_ids: InterruptIds,
    /// The roles of the client.
    pub(super) roles: Roles,
    pub(super) state: SentState,
    /// The client's latest messages, if it has missed some that precede them.
    pub(super) latest: Option<Vec<Arc<str>>>,
    failure_message: FailureMessage,
}

impl TranslateRun {
    /// Creates the state of a run.
    pub(crate) fn new(
        input: Arc<RunAgentInput>,
        context: RunContext,
        interrupt_ids: InterruptIds,
        roles: Roles,
        failure_message: FailureMessage,
    ) -> Self {
        let shown = Mutex::new(Conversation::new(input.messages.iter().cloned()));
        Self {
            input,
            context,
            shown,
            interrupt_ids,
            roles,
            state: SentState::default(),
            latest: None,
            failure_message,
        }
    }

    /// Adds the messages that the client has missed.
    pub(crate) fn with_missed(mut self, missed: Vec<MissedMessage>) -> Self {
        let Some(first) = missed.first() else {
            return self;
        };
        let own = &self.input.messages;
        let latest = own[first.after.min(own.len())..].iter();
        self.latest = Some(latest.map(|message| message.id.clone()).collect());
        let mut ids: HashSet<_> = own.iter().map(|message| message.id.clone()).collect();
        let mut messages = Vec::with_capacity(own.len() + missed.len());
        let mut own = own.iter().cloned();
        let mut number = 0;
        for missed in missed {
            messages.extend(own.by_ref().take(missed.after - number));
            number = missed.after;
            let shown = shown::messages([missed.message]);
            messages.extend(
                shown
                    .into_iter()
                    .filter(|message| ids.insert(message.id.clone())),
            );
        }
        messages.extend(own);
        self.shown = Mutex::new(Conversation::new(messages));
        self
    }

    /// Returns the text that the client reads of an error.
    pub(crate) fn message_of(&self, error: &Error) -> String {
        self.failure_message.of(error, &self.context)
    }

    /// Returns whether the client declares version 1.0 or later.
    pub(super) fn speaks_1_0(&self) -> bool {
        let version = self.input.protocol_version.as_deref();
        // Minor versions only add to the protocol.
        let major = version.and_then(|version| version.split('.').next()?.parse::<u32>().ok());
        major.is_some_and(|major| major >= 1)
    }
}

impl TranslateRequest {
    pub(crate) fn new(event: stream::Event, run: Arc<TranslateRun>) -> Self {
        Self {
            event: Arc::new(event),
            run,
            extensions: Extensions::new(),
        }
    }

    /// Returns the agent's event.
    #[must_use]
    pub fn event(&self) -> &stream::Event {
        &self.event
    }

    /// Returns the agent's event, to change it.
    pub fn event_mut(&mut self) -> &mut stream::Event {
        Arc::make_mut(&mut self.event)
    }

    /// Returns the client's input.
    #[must_use]
    pub fn input(&self) -> &RunAgentInput {
        &self.run.input
    }

    /// Returns a copy of the messages that the client has.
    #[must_use]
    pub fn messages(&self) -> Vec<Message> {
        lock(&self.run.shown).messages().to_vec()
    }

    /// Returns the event that removes messages from the client, with the results of their tool
    /// calls.
    #[must_use]
    pub fn snapshot_without(&self, discarded: &[Arc<str>]) -> Event {
        lock(&self.run.shown).snapshot_without(discarded)
    }

    /// Returns the data attached to this call.
    #[must_use]
    pub fn extensions(&self) -> &Extensions {
        &self.extensions
    }

    /// Returns the data attached to this call, to change it.
    pub fn extensions_mut(&mut self) -> &mut Extensions {
        &mut self.extensions
    }

    pub(super) fn into_parts(self) -> (stream::Event, Arc<TranslateRun>) {
        (Arc::unwrap_or_clone(self.event), self.run)
    }
}

impl Request for TranslateRequest {
    type Response = TranslateResponse;
    const CALL: CallKind = CallKind::Other("translate");
    // The client is to receive the event of the abort itself.
    const OUTLIVES_ABORT: bool = true;

    fn context(&self) -> &RunContext {
        &self.run.context
    }
}
