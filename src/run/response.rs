use std::fmt;
use std::sync::Arc;

use schemars::JsonSchema;
use serde::de::DeserializeOwned;

use super::answer_format;
use super::seen::SeenAgentResponse;
use crate::call::Origin;
use crate::context::{RunContext, State};
use crate::conversation::{Checkpoint, ConversationRecord, Head, OrderedMessages, saved_with};
use crate::error::{Error, Interrupt, Result};
use crate::message::{
    FinishReason, Iter, Message, MessageId, Messages, NoAnswer, Part, Role, ToolCall, Usage,
};
use crate::stream::{EndReason, EventEmitter};

/// The response of an agent call: the new messages, the usage, and why the run ended. Cloning is
/// O(1).
///
/// ```
/// use tower_agent::{AgentResponse, EndReason, Message};
///
/// let response = AgentResponse::new([Message::assistant("21.5 °C")]);
/// assert_eq!(response.text(), "21.5 °C");
/// assert_eq!(response.end_reason(), &EndReason::Completed);
/// ```
#[derive(Clone, Debug)]
pub struct AgentResponse {
    messages: OrderedMessages,
    new_from: usize,
    usage: Usage,
    iterations: u32,
    end_reason: EndReason,
    state: State,
    saved: Option<Arc<SavedParts>>,
    pub(super) origin: Origin,
    /// Created by a callback and not yet placed in a conversation.
    is_bare: bool,
}

struct SavedParts {
    head: Head,
    private_state: State,
    notes_messages: bool,
    turn: u64,
}

impl SavedParts {
    fn of(context: &RunContext) -> Arc<Self> {
        let record = &context.place().record;
        Arc::new(Self {
            head: record.head(),
            private_state: context.scope().private_state_to_save(),
            notes_messages: context.scope().notes_messages(),
            turn: record.turn(),
        })
    }
}

impl fmt::Debug for SavedParts {
    /// Omits the private state.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SavedParts")
            .field("turn", &self.turn)
            .finish_non_exhaustive()
    }
}

impl EndReason {
    /// Returns why an agent has ended that was ended from inside.
    pub(crate) fn in_run(context: &RunContext) -> Self {
        match context.interrupts() {
            interrupts if interrupts.is_empty() => Self::EndedByCallback,
            interrupts => Self::Interrupted(interrupts.into()),
        }
    }
}

impl AgentResponse {
    /// Creates a response with these new messages.
    ///
    /// If a callback or layer returns it, the run places it in the conversation and adds its state
    /// and usage. From `before_agent` it follows the request's messages; from `after_agent` it
    /// replaces the agent's final message. If the run still waits for calls of an earlier run, it
    /// replaces the text of the message with these calls, which is not a new message.
    #[must_use]
    pub fn new(messages: impl Into<Messages>) -> Self {
        Self {
            messages: messages.into().into(),
            new_from: 0,
            usage: Usage::default(),
            iterations: 0,
            end_reason: EndReason::Completed,
            state: State::default(),
            saved: None,
            origin: Origin::default(),
            is_bare: true,
        }
    }

    /// Creates the response of a run, of whose messages those from index `new_from` on are new.
    pub(crate) fn of_run(
        messages: OrderedMessages,
        new_from: usize,
        context: &RunContext,
        iterations: u32,
        end_reason: EndReason,
    ) -> Self {
        Self {
            messages,
            new_from,
            usage: context.scope().tally.usage(),
            iterations,
            end_reason,
            state: context.state().clone(),
            saved: Some(SavedParts::of(context)),
            origin: Origin::default(),
            is_bare: false,
        }
    }

    /// Returns the final assistant message, if any.
    #[must_use]
    pub fn message(&self) -> Option<&Message> {
        self.new_messages()
            .rev()
            .find(|message| message.role() == Role::Assistant)
    }

    /// Returns the text of [`message`](Self::message), or an empty string.
    #[must_use]
    pub fn text(&self) -> String {
        self.message().map(Message::text).unwrap_or_default()
    }

    /// Returns how the model's turn ended that wrote the [final message](Self::message); for one
    /// that a callback or layer has written, [`Stop`](FinishReason::Stop).
    ///
    /// ```
    /// # use tower_agent::{Agent, BoxError};
    /// # async fn dose(agent: Agent) -> Result<(), BoxError> {
    /// let response = agent.run("Which dose?").await?;
    /// if response.finish_reason().is_cut() {
    ///     return Err("half a dose is none".into());
    /// }
    /// # Ok(())
    /// # }
    /// ```
    #[must_use]
    pub fn finish_reason(&self) -> &FinishReason {
        static STOP: FinishReason = FinishReason::Stop;
        self.message().map_or(&STOP, Message::finish_reason)
    }

    /// Returns why the final message is no answer, if it is none. One with tool calls is not final,
    /// and so neither.
    #[must_use]
    pub fn no_answer(&self) -> Option<NoAnswer> {
        self.message()
            .map_or(Some(NoAnswer::Empty), Message::no_answer)
    }

    /// Returns the final answer as a `T`: the JSON of the [message](Self::message)'s text, or of
    /// its last text part. Use it for a request with an [answer
    /// format](super::AgentRequest::with_answer_format) for `T`.
    ///
    /// # Errors
    ///
    /// Fails with [`InvalidAnswer`](crate::ErrorKind::InvalidAnswer) if the text is not a `T`, and
    /// with [`Interrupted`](crate::ErrorKind::Interrupted) if the run was interrupted. Either error
    /// has the [checkpoint](Error::checkpoint) of the run.
    pub fn parse<T: DeserializeOwned + JsonSchema>(&self) -> Result<T> {
        let parsed = match self.interrupts() {
            [] => answer_format::parse_as(self.message().unwrap_or(&Message::assistant(""))),
            interrupts => Err(Error::interrupt_all(interrupts.iter().cloned())),
        };
        parsed.map_err(|error| error.with_checkpoint(self.checkpoint()))
    }

    /// Returns the messages added in this run, oldest first, including tool results. A run that
    /// resumes a turn adds only the results that the turn did not have.
    #[must_use]
    pub fn new_messages(&self) -> Iter<'_> {
        self.messages.arrived().range(self.new_from)
    }

    /// Returns the request's messages, then the new ones, in both orders.
    pub(crate) fn ordered(&self) -> &OrderedMessages {
        &self.messages
    }

    /// Returns the whole conversation: the request's messages, then the new ones. Use it as the
    /// [history](super::AgentRequest::with_history) of the next request.
    ///
    /// The results of a turn stand in the order of its calls, whichever came first and whichever
    /// run added them.
    #[must_use]
    pub fn messages(&self) -> &Messages {
        self.messages.in_call_order()
    }

    /// Returns the tool calls without a result, as [`Messages::open_calls`] does. Supply results
    /// with [`AgentRequest::with_answer`](super::AgentRequest::with_answer).
    pub fn open_calls(&self) -> impl Iterator<Item = &ToolCall> {
        self.messages().open_calls()
    }

    /// Returns the token usage: of each attempt that reached a model, in this agent and everything
    /// inside, as far as providers have told it. Those count as well that failed in a stream, whose
    /// answer was refused, or that lost to another.
    pub fn usage(&self) -> Usage {
        self.usage
    }

    /// Returns the number of model calls; a call that is retried counts once.
    #[must_use]
    pub fn iterations(&self) -> u32 {
        self.iterations
    }

    /// Returns why the agent ended.
    #[must_use]
    pub fn end_reason(&self) -> &EndReason {
        &self.end_reason
    }

    /// Returns the interrupts that the agent waits on, if it was interrupted.
    pub fn interrupts(&self) -> &[Interrupt] {
        match &self.end_reason {
            EndReason::Interrupted(interrupts) => interrupts,
            _ => &[],
        }
    }

    /// Returns the checkpoint from which the conversation can
    /// [resume](super::AgentRequest::resume), however this run ended. It replaces the checkpoint
    /// that the run started from.
    ///
    /// ```
    /// # use tower_agent::{AgentRequest, AgentResponse, Message};
    /// let first = AgentResponse::new([Message::user("Hi."), Message::assistant("Hello.")]);
    /// let request = AgentRequest::resume(first.checkpoint()).with_message("And again.");
    /// assert_eq!(request.messages().len(), 3);
    /// ```
    pub fn checkpoint(&self) -> Checkpoint {
        let mut checkpoint = Checkpoint::new(self.messages().clone());
        let head = &mut checkpoint.head;
        head.interrupts = self.interrupts().to_vec();
        if let Some(saved) = &self.saved {
            head.turn = saved.turn;
            head.conversation = saved.head.clone();
            if head.interrupts.is_empty() {
                head.conversation = saved.head.clone().ended();
            }
            head.private_state = saved.private_state.snapshot();
            if saved.notes_messages {
                saved_with::note(&mut head.private_state, &checkpoint.messages);
            }
        }
        checkpoint
    }

    /// Returns the run's [private state](RunContext::private_state), for middleware that says
    /// something about a response. `None` for a response that is of no run.
    #[must_use]
    pub fn private_state(&self) -> Option<&State> {
        self.saved.as_ref().map(|saved| &saved.private_state)
    }

    /// Returns the [checkpoint](Self::checkpoint) that the response will have once it leaves the
    /// agent with this context, for a layer of that agent, where the response has none yet.
    pub fn checkpoint_in(&self, context: &RunContext) -> Checkpoint {
        let mut checkpoint = self.clone().kept_by(context).checkpoint();
        let conversation = checkpoint.head.conversation;
        checkpoint.head.conversation = if self.interrupts().is_empty() {
            conversation.for_branch()
        } else {
            conversation.for_length(self.messages.len())
        };
        checkpoint
    }

    /// Returns the session's state.
    #[must_use]
    pub fn state(&self) -> &State {
        &self.state
    }

    /// Returns where the response came from.
    #[must_use]
    pub fn origin(&self) -> Origin {
        self.origin
    }

    /// Replaces the final message. If the run has ended without one, such as after the calls of a
    /// turn, it follows the others; while calls wait for answers, it stands before them.
    #[must_use]
    pub fn with_message(self, message: Message) -> Self {
        let mut response = Self::new([message]);
        response.origin = self.origin;
        response.stand_for(&self, false);
        response
    }

    /// Returns the response with another message in place of each for which `change` returns one,
    /// or `None` if there is none. It sees the messages of this run, and the turn of an earlier run
    /// whose calls the run waits for.
    ///
    /// ```
    /// use tower_agent::agent::AgentResponse;
    /// use tower_agent::Message;
    ///
    /// let response = AgentResponse::new([Message::assistant("a secret")]);
    /// let hidden = response.map_messages(|message| {
    ///     message.text().contains("secret").then(|| Message::assistant("hidden"))
    /// });
    /// assert_eq!(hidden.map(|hidden| hidden.text()), Some("hidden".to_owned()));
    /// assert!(response.map_messages(|_| None).is_none());
    /// ```
    #[must_use]
    pub fn map_messages(&self, change: impl Fn(&Message) -> Option<Message>) -> Option<Self> {
        let from = self.waiting_turn().unwrap_or(self.new_from);
        let from = from.min(self.new_from);
        let messages = self.messages.arrived();
        let mut mapped = None;
        for (index, message) in (from..).zip(messages.range(from)) {
            if let Some(changed) = change(message) {
                let mapped: &mut Messages = mapped.get_or_insert_with(|| messages.clone());
                if let Some(message) = mapped.get_mut(index) {
                    *message = changed;
                }
            }
        }
        Some(Self {
            messages: OrderedMessages::new(mapped?, from),
            ..self.clone()
        })
    }

    pub(crate) fn seen(&self) -> SeenAgentResponse {
        SeenAgentResponse {
            messages: self.messages.arrived().clone(),
            new_from: self.new_from,
            end_reason: self.end_reason.clone(),
        }
    }

    pub(crate) fn is_bare(&self) -> bool {
        self.is_bare
    }

    /// Appends a callback's response to the conversation of its run.
    pub(super) fn continue_from(&mut self, request: &Messages, context: &RunContext) {
        if std::mem::take(&mut self.is_bare) {
            let own = std::mem::take(&mut self.messages).into_arrived();
            self.new_from = request.len();
            let mut messages = request.clone();
            messages.extend(own.iter().cloned());
            self.messages = OrderedMessages::new(messages, self.new_from);
            self.carry(context);
        }
    }

    /// Puts a callback's response in place of the agent's final message, or of all its messages. A
    /// turn with open calls stays, without its text.
    pub(super) fn stand_for(&mut self, replaced: &Self, is_all: bool) {
        let waits = replaced.waiting_turn();
        if let Some(at) = waits.filter(|at| *at < replaced.new_from) {
            return self.speak_in(replaced, at);
        }
        let mut messages = std::mem::take(&mut self.messages).into_arrived();
        if std::mem::take(&mut self.is_bare) {
            let given = messages;
            // Everything is taken from the response that it replaces, except where it came from.
            let origin = self.origin;
            *self = replaced.clone();
            self.origin = origin;
            let results = self
                .new_messages()
                .take_while(|message| message.role() == Role::Tool)
                .count();
            let ends_in_words = self
                .new_messages()
                .next_back()
                .is_some_and(|last| last.role() == Role::Assistant);
            messages = std::mem::take(&mut self.messages).into_arrived();
            messages.truncate(match waits {
                // The results of a turn of an earlier run stay.
                _ if is_all => self.new_from + results,
                Some(at) => at.max(self.new_from),
                None => messages.len() - usize::from(ends_in_words),
            });
            messages.extend(given.iter().cloned());
        }
        if let Some(at) = waits
            && (self.interrupts().is_empty() || open_turn(&messages).is_none())
        {
            let turn = replaced.messages().range(at);
            keep_waiting(&mut messages, self.new_from, turn);
        }
        self.messages = OrderedMessages::new(messages, self.new_from);
    }

    /// Puts words in place of the text of an earlier turn, whose calls a message would close.
    fn speak_in(&mut self, replaced: &Self, at: usize) {
        // A response from nothing consists of new messages only.
        let from = if self.is_bare { 0 } else { self.new_from };
        let spoken = self
            .messages
            .arrived()
            .range(from)
            .filter(|message| message.role() == Role::Assistant);
        let parts = spoken
            .flat_map(Message::parts)
            .filter(|part| !is_call(part));
        let words: Vec<_> = parts.cloned().collect();
        *self = Self {
            origin: self.origin,
            ..replaced.clone()
        };
        // A response without words has nothing to say in place of the turn's text.
        if words.is_empty() {
            return;
        }
        let mut messages = std::mem::take(&mut self.messages).into_arrived();
        if let Some(asks) = messages.get_mut(at) {
            asks.parts_mut().retain(is_call);
            // Words first: some protocols have no text after a call.
            asks.parts_mut().splice(0..0, words);
        }
        self.messages = OrderedMessages::new(messages, self.new_from);
    }

    /// Returns the index of the turn with open calls, if the run waits on it.
    fn waiting_turn(&self) -> Option<usize> {
        if self.interrupts().is_empty() {
            return None;
        }
        open_turn(self.messages())
    }

    pub(crate) fn carry(&mut self, context: &RunContext) {
        self.usage = context.scope().tally.usage();
        self.state = context.state().clone();
        self.saved = Some(SavedParts::of(context));
    }

    pub(crate) fn kept_by(mut self, context: &RunContext) -> Self {
        self.saved = Some(SavedParts::of(context));
        self
    }

    /// Gives an id to each new message without one, and to each that was shown otherwise.
    pub(crate) fn identify(&mut self, record: &ConversationRecord, emitter: Option<&EventEmitter>) {
        let is_reordered = self.messages.is_reordered();
        let mut messages = std::mem::take(&mut self.messages).into_arrived();
        if let Some(emitter) = emitter {
            let new = (self.new_from..).zip(messages.range(self.new_from));
            for index in emitter.shown_otherwise(new) {
                if let Some(message) = messages.get_mut(index)
                    && let Some(id) = message.id().map(MessageId::revised)
                {
                    message.set_id(id);
                }
            }
        }
        record.identify(&mut messages);
        self.messages = if is_reordered {
            OrderedMessages::new(messages, self.new_from)
        } else {
            messages.into()
        };
    }

    /// Signs the agent's own words among the new messages.
    pub(crate) fn sign(&mut self, author: &Arc<str>) {
        let is_unsigned = |message: &Message| {
            // What a tool adds to its result is not the agent's.
            let is_own = message.role() == Role::Assistant && !message.is_brought();
            is_own && message.author().is_none()
        };
        let signed = self.map_messages(|message| {
            is_unsigned(message).then(|| message.clone().with_author(author.clone()))
        });
        if let Some(signed) = signed {
            *self = signed;
        }
    }

    pub(crate) fn with_end_reason(mut self, end_reason: EndReason) -> Self {
        self.end_reason = end_reason;
        self
    }
}

fn open_turn(messages: &Messages) -> Option<usize> {
    messages.open_calls().next()?;
    (0..messages.len())
        .rev()
        .find(|&index| messages[index].role() != Role::Tool)
}

/// Moves the turn with open calls to the end, with the final message in place of its text.
fn keep_waiting(messages: &mut Messages, new_from: usize, mut turn: Iter<'_>) {
    let Some(asks) = turn.next() else {
        return;
    };
    let is_of_turn = |message: &Message| {
        let mut answers = message.tool_results();
        answers.any(|answer| asks.tool_calls().any(|call| call.id == answer.call_id))
    };
    // Results of the turn follow it to the end, where they are added again.
    while messages.range(new_from).next_back().is_some_and(is_of_turn) {
        messages.pop();
    }
    let mut asks = asks.clone();
    asks.parts_mut().retain(is_call);
    if let Some(words) = messages.range(new_from).next_back()
        && words.role() == Role::Assistant
        && words.tool_calls().next().is_none()
    {
        asks.parts_mut().splice(0..0, words.parts().iter().cloned());
        messages.pop();
    }
    messages.push(asks);
    messages.extend(turn.cloned());
}

fn is_call(part: &Part) -> bool {
    matches!(part, Part::ToolCall(_))
}
