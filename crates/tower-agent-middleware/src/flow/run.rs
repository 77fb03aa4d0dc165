//! Data that the guard has while a run lasts: no other run needs it.

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use tower_agent::context::{Names, RunContext};
use tower_agent::error::Result;
use tower_agent::message::{Message, MessageId, Messages};
use tower_agent::model::ModelRequest;

use super::label::Label;
use super::place::TurnId;
use super::sum::Sum;
use super::widen::Widened;
use crate::lock::lock;

/// The key of this among the run's values.
const RUN: &str = "tower_agent.guard.flow run";

/// Data that the guard has while a run lasts. It is found once for a call, by one key: a key for
/// each call would cost more than all that is stored under it.
#[derive(Default)]
pub(super) struct FlowRun {
    calls: Mutex<Vec<CallAround>>,
    read: Mutex<Vec<Known>>,
    /// The conversations of the agents that are at work, by their step paths.
    agents: Mutex<Vec<(String, Messages)>>,
    /// The labels of what agents have answered that work in a model call, or for a callback, by the
    /// step path of the agent around them.
    inside: Mutex<HashMap<String, Sum>>,
    /// The tools as the model reads them.
    pub(super) tools: Widened,
    has_declared: AtomicBool,
    /// The labels that the program has given to messages of the request.
    declared: Mutex<Vec<(TurnId<'static>, Label)>>,
    answered: Mutex<Messages>,
    /// The number of times that the outermost agent is at work.
    outermost: AtomicUsize,
}

/// A tool call that is being made.
struct CallAround {
    message: MessageId,
    index: usize,
    /// The label of what decided it and of all its arguments.
    label: Label,
    /// The label of what it returns and writes, as far as it is known.
    writes: Label,
}

/// The messages that an agent's model was sent in its last call, and their label: those of the next
/// call are usually the same and more.
struct Known {
    conversation: String,
    agent: String,
    base: Label,
    messages: Messages,
    sum: Sum,
}

/// Names the conversation and the agent of a model call.
#[derive(Clone, Copy)]
pub(super) struct Reader<'a> {
    conversation: &'a str,
    agent: &'a str,
    /// The label of the call that the agent works in.
    base: &'a Label,
}

impl<'a> Reader<'a> {
    /// Returns the reader of this request. `None` outside a run.
    pub(super) fn of(
        request: &'a ModelRequest,
        context: &'a RunContext,
        base: &'a Label,
    ) -> Option<Self> {
        let place = request.response_id()?.place()?;
        Some(Self {
            conversation: place.conversation,
            agent: context.path(),
            base,
        })
    }

    fn is_of(&self, known: &Known) -> bool {
        known.conversation == self.conversation
            && known.agent == self.agent
            && known.base == *self.base
    }
}

impl FlowRun {
    /// Returns what is known in this run.
    pub(super) fn of(context: &RunContext) -> Result<Arc<Self>> {
        let values = context.values();
        if let Some(known) = values.get::<Arc<Self>>(RUN)? {
            return Ok(Arc::clone(&known));
        }
        Ok(values.update(RUN, |new: &mut Arc<Self>| new.clone())?)
    }

    /// Declares references as names of the conversation. The function finds them in a text.
    pub(super) fn declare_references(
        &self,
        context: &RunContext,
        references: fn(&RunContext, &str) -> Names,
    ) {
        if !self.has_declared.swap(true, Ordering::AcqRel) {
            context.names().declare(RUN, references);
        }
    }

    /// Records that the outermost agent begins. Returns whether it is not at work already: a layer
    /// around it may ask it twice at the same time.
    pub(super) fn begin_outermost(&self) -> bool {
        self.outermost.fetch_add(1, Ordering::AcqRel) == 0
    }

    /// Records that the outermost agent ends. Returns whether it is not at work any more.
    pub(super) fn end_outermost(&self) -> bool {
        let one_less = |count: usize| count.checked_sub(1);
        let update = (Ordering::AcqRel, Ordering::Acquire);
        let before = self.outermost.fetch_update(update.0, update.1, one_less);
        // It may end without having begun, if a callback has answered before.
        before.unwrap_or(1) == 1
    }

    /// Records the conversation of an agent, for those that work for it.
    pub(super) fn begin_agent(&self, step: String, messages: &Messages) {
        lock(&self.agents).push((step, messages.clone()));
    }

    /// Removes the conversation of an agent that has ended.
    pub(super) fn end_agent(&self, step: &str) {
        lock(&self.agents).retain(|(known, _)| known != step);
    }

    /// Returns the conversation that the agent with this step path was asked about.
    pub(super) fn messages_of_agent(&self, step: &str) -> Option<Messages> {
        let agents = lock(&self.agents);
        let found = agents.iter().rfind(|(known, _)| known == step);
        found.map(|(_, messages)| messages.clone())
    }

    /// Records the label of the answer of an agent that works inside this one, and not in one of
    /// its tool calls.
    pub(super) fn note_inside(&self, step: &str, answer: &Sum) {
        let mut inside = lock(&self.inside);
        inside.entry(step.to_owned()).or_default().add(answer);
    }

    /// Returns the label of what agents inside this one have answered since the last time.
    pub(super) fn take_inside(&self, context: &RunContext) -> Option<Sum> {
        let mut inside = lock(&self.inside);
        // In most runs there is none, and the path is not needed.
        if inside.is_empty() {
            return None;
        }
        inside.remove(&context.step_path())
    }

    /// Records the label that the program has given to a message of the request.
    pub(super) fn declare(&self, id: TurnId<'_>, label: Label) {
        lock(&self.declared).push((id.into_owned(), label));
    }

    /// Records the messages of an answer of the outermost agent.
    pub(super) fn note_answered(&self, messages: &Messages) {
        *lock(&self.answered) = messages.clone();
    }

    /// Returns how many of these messages, from the first on, are those of the outermost agent's
    /// last answer: a layer around it may ask it again.
    pub(super) fn count_answered(&self, messages: &Messages) -> usize {
        let answered = lock(&self.answered);
        let is_same = messages.continues(&answered);
        if is_same { answered.len() } else { 0 }
    }

    /// Returns the labels that the program has given to messages of the request.
    pub(super) fn declared(&self) -> Vec<(TurnId<'static>, Label)> {
        lock(&self.declared).clone()
    }

    /// Forgets the labels of what models have read: one of them has changed.
    pub(super) fn forget_read(&self) {
        lock(&self.read).clear();
    }

    /// Records a tool call, for agents that work in it.
    pub(super) fn begin_call(
        &self,
        message: &MessageId,
        index: usize,
        label: Label,
        writes: Label,
    ) {
        let mut calls = lock(&self.calls);
        let mut running = calls.iter_mut();
        match running.find(|call| call.is(message, index)) {
            // A callback makes it again, with other arguments.
            Some(call) => (call.label, call.writes) = (label, writes),
            None => calls.push(CallAround {
                message: message.clone(),
                index,
                label,
                writes,
            }),
        }
    }

    /// Returns the label of what the tool calls that are being made return and write. `None` if
    /// there are none.
    pub(super) fn running(&self) -> Option<Label> {
        let calls = lock(&self.calls);
        let labels = calls.iter().map(|call| &call.writes);
        let joined = labels.fold(Label::trusted(), |all, label| all.join(label));
        (!calls.is_empty()).then_some(joined)
    }

    /// Removes a tool call that has ended.
    pub(super) fn end_call(&self, message: &MessageId, index: usize) {
        lock(&self.calls).retain(|call| !call.is(message, index));
    }

    /// Returns the label of the tool call that this call is made in, if the guard is around that.
    pub(super) fn call_around(&self, context: &RunContext) -> Option<Label> {
        let (message, index) = context.tool_call_message()?;
        let calls = lock(&self.calls);
        let call = calls.iter().find(|call| call.is(message, index))?;
        Some(call.label.clone())
    }

    /// Returns the label of the messages of a reader's request. `add` adds that of a message that
    /// the reader's model was not sent before.
    pub(super) fn read<'m>(
        &self,
        reader: Reader<'_>,
        messages: &'m Messages,
        mut add: impl FnMut(&'m Message, &mut Sum),
    ) -> Sum {
        let mut all = lock(&self.read);
        let at = match all.iter().position(|known| reader.is_of(known)) {
            Some(at) => at,
            None => {
                all.push(Known::new(reader));
                all.len() - 1
            }
        };
        let known = &mut all[at];
        if !messages.continues(&known.messages) {
            known.messages = Messages::new();
            known.sum = Sum::of(known.base.clone());
        }
        for message in messages.range(known.messages.len()) {
            add(message, &mut known.sum);
            // The messages and not their list: the run would have to copy one that it shares to
            // add to it.
            known.messages.push(message.clone());
        }
        known.sum.clone()
    }
}

impl Known {
    fn new(reader: Reader<'_>) -> Self {
        Self {
            conversation: reader.conversation.to_owned(),
            agent: reader.agent.to_owned(),
            base: reader.base.clone(),
            messages: Messages::new(),
            sum: Sum::of(reader.base.clone()),
        }
    }
}

impl CallAround {
    fn is(&self, message: &MessageId, index: usize) -> bool {
        self.index == index && self.message == *message
    }
}
