use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use serde_json::Value;

use super::edit::{empty, merge, streamed_text, takes_text};
use crate::wire::{EncryptedEntity, Event, EventKind, Message, MessageKind, Patch, ToolCall};

/// The messages as the client has them, updated with each event sent.
///
/// If a response was streamed and then discarded, a snapshot without it leaves the client with the
/// rest:
///
/// ```
/// use tower_agent_agui::{Conversation, Event, Message};
///
/// let mut conversation = Conversation::new([Message::user("m1", "Hello")]);
/// conversation.apply(&Event::text_start("m2"));
/// conversation.apply(&Event::text_content("m2", "Good by"));
/// assert_eq!(conversation.messages()[1], Message::assistant("m2", "Good by"));
///
/// let event = conversation.snapshot_without(&["m2".into()]);
/// conversation.apply(&event);
/// assert_eq!(conversation.messages(), [Message::user("m1", "Hello")]);
/// ```
///
/// It applies events in order and accepts no chunks: pass it the events that an
/// [`OrderKeeper`](crate::OrderKeeper) has emitted. A piece of text costs one look-up and no
/// allocation except the growth of the text.
#[derive(Clone, Debug, Default)]
pub struct Conversation {
    messages: Vec<Message>,
    /// The index of the first message with each id.
    positions: HashMap<Arc<str>, usize>,
    /// The index of the first message with each call.
    calls: HashMap<Arc<str>, usize>,
    /// The message that the last piece was added to.
    last: Option<(Arc<str>, usize)>,
}

impl Conversation {
    /// Creates a conversation with the messages that the client sent.
    #[must_use]
    pub fn new(messages: impl IntoIterator<Item = Message>) -> Self {
        let mut conversation = Self::default();
        messages
            .into_iter()
            .for_each(|message| conversation.push(message));
        conversation
    }

    /// Returns the messages, oldest first.
    #[must_use]
    pub fn messages(&self) -> &[Message] {
        &self.messages
    }

    /// Applies an event that was sent to the client.
    pub fn apply(&mut self, event: &Event) {
        match &event.kind {
            EventKind::RunStarted(started) => {
                // The client keeps the messages that it has, even if the input has other contents.
                for message in started.input.iter().flat_map(|input| &input.messages) {
                    if !self.positions.contains_key(&message.id) {
                        self.push(message.clone());
                    }
                }
            }
            EventKind::TextMessageStart {
                message_id,
                role,
                name,
            } => {
                let kind = empty(role.unwrap_or_default());
                self.start(message_id, kind, name.as_deref(), event);
            }
            EventKind::ReasoningMessageStart { message_id, .. } => {
                let kind = MessageKind::Reasoning {
                    content: String::new(),
                };
                self.start(message_id, kind, None, event);
            }
            EventKind::TextMessageContent { message_id, delta }
            | EventKind::ReasoningMessageContent { message_id, delta } => {
                if let Some(message) = self.message_of_piece(message_id) {
                    if let Some(text) = streamed_text(message) {
                        text.push_str(delta);
                    }
                    merge(&mut message.metadata, event);
                }
            }
            EventKind::TextMessageEnd { message_id }
            | EventKind::ReasoningMessageEnd { message_id } => {
                if let Some(message) = self.text(message_id) {
                    merge(&mut message.metadata, event);
                }
            }
            EventKind::ToolCallStart {
                tool_call_id,
                tool_call_name,
                parent_message_id,
            } => {
                // A repeated start renames the call that the client has, wherever it stands.
                let call = if self.calls.contains_key(tool_call_id) {
                    self.call(tool_call_id)
                } else {
                    self.add_call(tool_call_id, parent_message_id.as_ref(), event)
                };
                if let Some(call) = call {
                    call.function.name = tool_call_name.clone();
                    merge(&mut call.metadata, event);
                }
            }
            EventKind::ToolCallArgs {
                tool_call_id,
                delta,
            } => {
                if let Some(call) = self.call(tool_call_id) {
                    call.function.arguments.push_str(delta);
                    merge(&mut call.metadata, event);
                }
            }
            EventKind::ToolCallEnd { tool_call_id } => {
                if let Some(call) = self.call(tool_call_id) {
                    merge(&mut call.metadata, event);
                }
            }
            EventKind::ToolCallResult {
                message_id,
                tool_call_id,
                content,
            } => {
                let mut message =
                    Message::tool(message_id.clone(), tool_call_id.clone(), content.clone());
                message.subagent_run_id = event.subagent_run_id().cloned();
                merge(&mut message.metadata, event);
                let at = self.index_of_result(tool_call_id);
                if at == self.messages.len() {
                    self.push(message);
                } else {
                    self.messages.insert(at, message);
                    self.index();
                }
            }
            EventKind::MessagesSnapshot { messages } => self.replace(messages),
            EventKind::ActivitySnapshot {
                message_id,
                activity_type,
                content,
                replace,
            } => {
                let kind = MessageKind::Activity {
                    activity_type: activity_type.to_string(),
                    content: content.clone(),
                };
                self.show(message_id, kind, *replace != Some(false), event);
            }
            EventKind::ActivityDelta {
                message_id,
                activity_type,
                patch,
            } => {
                self.change(message_id, activity_type, patch, event);
            }
            EventKind::ReasoningEncryptedValue {
                subtype,
                entity_id,
                encrypted_value,
            } => {
                let encrypted = match subtype {
                    EncryptedEntity::ToolCall => {
                        self.call(entity_id).map(|call| &mut call.encrypted_value)
                    }
                    EncryptedEntity::Message => self
                        .text(entity_id)
                        .map(|message| &mut message.encrypted_value),
                };
                if let Some(encrypted) = encrypted {
                    *encrypted = Some(encrypted_value.clone());
                }
            }
            // They change no message. Chunks would, but an `OrderKeeper` has spelt them out.
            EventKind::RunFinished(_)
            | EventKind::RunError(_)
            | EventKind::StepStarted { .. }
            | EventKind::StepFinished { .. }
            | EventKind::TextMessageChunk { .. }
            | EventKind::ToolCallChunk { .. }
            | EventKind::StateSnapshot { .. }
            | EventKind::StateDelta { .. }
            | EventKind::ReasoningStart { .. }
            | EventKind::ReasoningMessageChunk { .. }
            | EventKind::ReasoningEnd { .. }
            | EventKind::SubagentStarted(_)
            | EventKind::SubagentFinished { .. }
            | EventKind::SubagentError { .. }
            | EventKind::Raw { .. }
            | EventKind::Custom { .. } => {}
        }
    }

    /// Returns the event that resets the client's messages to these.
    #[must_use]
    pub fn snapshot(&self) -> Event {
        self.snapshot_without(&[])
    }

    /// Returns the event that removes these messages from the client, with the results of their
    /// tool calls.
    ///
    /// The snapshot omits activities, so the client keeps them: it does not report those of earlier
    /// runs and would lose them. The client keeps its reasoning if a snapshot contains none; if all
    /// reasoning is removed, it is therefore sent once more, empty.
    #[must_use]
    pub fn snapshot_without(&self, discarded: &[Arc<str>]) -> Event {
        let mut calls = HashSet::new();
        let mut thoughts_stay = false;
        for message in &self.messages {
            if discarded.contains(&message.id) {
                calls.extend(message.tool_calls().iter().map(|call| &call.id));
            } else {
                thoughts_stay |= is_thought(&message.kind);
            }
        }
        let remaining = self.messages.iter().filter_map(|message| {
            let is_discarded = discarded.contains(&message.id);
            match &message.kind {
                MessageKind::Activity { .. } => None,
                // A result without its call is an error to the model that reads it next.
                MessageKind::Tool { tool_call_id, .. } if calls.contains(tool_call_id) => None,
                MessageKind::Reasoning { .. } if is_discarded && !thoughts_stay => {
                    let kind = MessageKind::Reasoning {
                        content: String::new(),
                    };
                    Some(Message::new(message.id.clone(), kind))
                }
                MessageKind::Developer { .. }
                | MessageKind::System { .. }
                | MessageKind::Assistant { .. }
                | MessageKind::User { .. }
                | MessageKind::Tool { .. }
                | MessageKind::Reasoning { .. } => (!is_discarded).then(|| message.clone()),
            }
        });
        Event::messages_snapshot(remaining.collect())
    }

    /// Returns whether the client has a message with this id.
    pub(crate) fn has(&self, id: &str) -> bool {
        self.positions.contains_key(id)
    }

    /// Returns the index of the first message with this id.
    pub(crate) fn position(&self, id: &str) -> Option<usize> {
        self.positions.get(id).copied()
    }

    fn push(&mut self, message: Message) {
        let at = self.messages.len();
        self.positions.entry(message.id.clone()).or_insert(at);
        for call in message.tool_calls() {
            self.calls.entry(call.id.clone()).or_insert(at);
        }
        self.messages.push(message);
    }

    /// Rebuilds the index, after messages have moved.
    fn index(&mut self) {
        // Its index may be that of another message now.
        self.last = None;
        self.positions.clear();
        self.calls.clear();
        let messages = std::mem::take(&mut self.messages);
        messages.into_iter().for_each(|message| self.push(message));
    }

    fn find(&mut self, id: &str) -> Option<&mut Message> {
        self.messages.get_mut(*self.positions.get(id)?)
    }

    /// Returns the message, unless it is an activity, which has no text.
    fn text(&mut self, id: &str) -> Option<&mut Message> {
        self.find(id).filter(|message| takes_text(message))
    }

    /// Returns the text that pieces with this id are added to.
    pub(crate) fn text_of(&mut self, id: &Arc<str>) -> Option<&mut String> {
        streamed_text(self.message_of_piece(id)?)
    }

    /// Returns the message, which is most likely the same as last time.
    fn message_of_piece(&mut self, id: &Arc<str>) -> Option<&mut Message> {
        let at = match &self.last {
            // By address: comparing the bytes would cost as much as the look-up.
            Some((last, at)) if Arc::ptr_eq(last, id) => *at,
            _ => {
                let at = *self.positions.get(id)?;
                self.last = Some((id.clone(), at));
                at
            }
        };
        self.messages
            .get_mut(at)
            .filter(|message| takes_text(message))
    }

    fn start(&mut self, id: &Arc<str>, kind: MessageKind, name: Option<&str>, event: &Event) {
        if !self.positions.contains_key(id) {
            let mut message = Message::new(id.clone(), kind);
            message.name = name.map(str::to_owned);
            message.subagent_run_id = event.subagent_run_id().cloned();
            self.push(message);
        }
        if let Some(message) = self.text(id) {
            merge(&mut message.metadata, event);
        }
    }

    fn call(&mut self, id: &str) -> Option<&mut ToolCall> {
        match &mut self.messages.get_mut(*self.calls.get(id)?)?.kind {
            MessageKind::Assistant { tool_calls, .. } => {
                tool_calls.iter_mut().find(|call| *call.id == *id)
            }
            _ => None,
        }
    }

    /// Adds a call to the message that contains it, or to a new message.
    fn add_call(
        &mut self,
        id: &Arc<str>,
        parent: Option<&Arc<str>>,
        event: &Event,
    ) -> Option<&mut ToolCall> {
        // The client takes an empty id for none.
        let parent = parent.filter(|parent| !parent.is_empty());
        let found = parent.and_then(|parent| self.positions.get(parent).copied());
        let asks = found.filter(|at| {
            let message = self.messages.get(*at);
            message.is_some_and(|message| matches!(message.kind, MessageKind::Assistant { .. }))
        });
        let at = asks.unwrap_or_else(|| {
            let name = parent.filter(|_| found.is_none()).unwrap_or(id);
            let kind = MessageKind::Assistant {
                content: None,
                tool_calls: Vec::new(),
            };
            let mut message = Message::new(name.clone(), kind);
            // The client identifies an id that exists with the existing message.
            if !self.positions.contains_key(name) {
                message.subagent_run_id = event.subagent_run_id().cloned();
            }
            self.push(message);
            self.messages.len() - 1
        });
        self.calls.insert(id.clone(), at);
        match &mut self.messages.get_mut(at)?.kind {
            MessageKind::Assistant { tool_calls, .. } => {
                if tool_calls.is_empty() {
                    // Most messages have one call, and a vector makes room for four.
                    tool_calls.reserve_exact(1);
                }
                tool_calls.push(ToolCall::new(id.clone(), "", ""));
                tool_calls.last_mut()
            }
            _ => None,
        }
    }

    /// Returns the position after the message with the call and after existing results.
    fn index_of_result(&self, call: &str) -> usize {
        let Some(&asking) = self.calls.get(call) else {
            return self.messages.len();
        };
        let after = asking + 1;
        let answers = self
            .messages
            .iter()
            .skip(after)
            .take_while(|message| matches!(message.kind, MessageKind::Tool { .. }));
        after + answers.count()
    }

    /// Applies a snapshot. Activities and reasoning stay if it contains none.
    fn replace(&mut self, snapshot: &[Message]) {
        let activities_stay = !snapshot.iter().any(|message| is_activity(&message.kind));
        let thoughts_stay = !snapshot.iter().any(|message| is_thought(&message.kind));
        let new: HashMap<&Arc<str>, &Message> = snapshot
            .iter()
            .map(|message| (&message.id, message))
            .collect();
        let mut messages = Vec::with_capacity(snapshot.len());
        for message in self.messages.drain(..) {
            let kind = &message.kind;
            match new.get(&message.id) {
                Some(new) => messages.push(Message::clone(new)),
                None if is_activity(kind) && activities_stay => messages.push(message),
                None if is_thought(kind) && thoughts_stay => messages.push(message),
                None => {}
            }
        }
        // The client does not reorder: its own messages stay where they are, new ones follow.
        let known: HashSet<Arc<str>> = messages.iter().map(|message| message.id.clone()).collect();
        messages.extend(
            snapshot
                .iter()
                .filter(|message| !known.contains(&message.id))
                .cloned(),
        );
        self.messages = messages;
        self.index();
    }

    fn show(&mut self, id: &Arc<str>, kind: MessageKind, replace: bool, event: &Event) {
        match self.find(id) {
            None => {
                let mut message = Message::new(id.clone(), kind);
                message.subagent_run_id = event.subagent_run_id().cloned();
                merge(&mut message.metadata, event);
                self.push(message);
            }
            Some(message) => {
                let was_activity = is_activity(&message.kind);
                if replace {
                    // An activity stays the same one; another kind of message ends with its
                    // metadata.
                    let metadata = message.metadata.take().filter(|_| was_activity);
                    *message = Message::new(id.clone(), kind);
                    message.metadata = metadata;
                    message.subagent_run_id = event.subagent_run_id().cloned();
                }
                if replace || was_activity {
                    merge(&mut message.metadata, event);
                }
                if replace && !was_activity {
                    self.index();
                }
            }
        }
    }

    fn change(&mut self, id: &str, new_type: &str, patch: &Patch, event: &Event) {
        let Some(message) = self.find(id) else {
            return;
        };
        let MessageKind::Activity {
            activity_type,
            content,
        } = &mut message.kind
        else {
            return;
        };
        // A patch that does not apply is ignored, as the client does.
        let mut changed = Value::Object(content.clone());
        if json_patch::patch(&mut changed, patch).is_ok()
            && let Value::Object(changed) = changed
        {
            *content = changed;
            new_type.clone_into(activity_type);
        }
        merge(&mut message.metadata, event);
    }
}

fn is_activity(kind: &MessageKind) -> bool {
    matches!(kind, MessageKind::Activity { .. })
}

fn is_thought(kind: &MessageKind) -> bool {
    matches!(kind, MessageKind::Reasoning { .. })
}
