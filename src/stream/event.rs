use std::borrow::Cow;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, SystemTime};

use serde::{Serialize, Serializer};
use serde_json::{Map, Value};

use super::end_reason::EndReason;
use super::prefix_note::PrefixNote;
use super::wrapper_note::WrapperNote;
use crate::call_kind::CallKind;
use crate::error::{Error, ErrorKind, Interrupt};
use crate::message::{FinishReason, Part, ProviderData, Usage};
use crate::state::StateDelta;

/// An event of a run, and the agent in which it happened.
///
/// It serialises as one object: the fields of its kind beside its own, and `type` with the name of
/// its kind. That is everything, for a log or a developer's page: the arguments and results of
/// tools, the state and the texts of errors are in it, which are not for everybody.
///
/// ```
/// use tower_agent::stream::{Event, EventKind, Invocation};
///
/// let kind = EventKind::TextDelta { message: "m1".into(), text: "It ".to_owned() };
/// let json = serde_json::to_value(Event::new(Invocation::default().into(), kind))?;
/// assert_eq!(json["type"], "text_delta");
/// assert_eq!(json["text"], "It ");
/// # Ok::<_, serde_json::Error>(())
/// ```
#[derive(Clone, Debug, Serialize)]
#[non_exhaustive]
pub struct Event {
    /// Its place among the events of the stream, from 0.
    pub number: u64,
    /// The time at which it happened. In a stream, the time at which the consumer's poll had the
    /// run make it: the same for all events of a poll. It serialises as milliseconds since 1970.
    #[serde(serialize_with = "milliseconds")]
    pub time: SystemTime,
    /// The agent in which it happened; the called agent, for events about the whole run.
    pub invocation: Arc<Invocation>,
    /// The kind of event, with its data.
    #[serde(flatten)]
    pub kind: EventKind,
}

fn milliseconds<S: Serializer>(time: &SystemTime, serializer: S) -> Result<S::Ok, S::Error> {
    let since = time.duration_since(SystemTime::UNIX_EPOCH);
    let since = since.unwrap_or_default().as_millis();
    serializer.serialize_u64(u64::try_from(since).unwrap_or(u64::MAX))
}

impl Event {
    /// Creates an event that happens now, with the number 0.
    #[must_use]
    pub fn new(invocation: Arc<Invocation>, kind: EventKind) -> Self {
        Self {
            number: 0,
            time: SystemTime::now(),
            invocation,
            kind,
        }
    }
}

/// One call of one agent within a run. An agent that is called twice has two.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct Invocation {
    /// The id, unique across runs.
    pub id: Arc<str>,
    /// Its number in the run, from 1 for the called agent; 0 is the run itself.
    pub number: u32,
    /// The names of the agents from the root to this one, joined by `/`. Empty for the run itself.
    pub path: Arc<str>,
    /// The invocation that called it; `None` for the agent that the caller called. It serialises
    /// as its id.
    #[serde(serialize_with = "id_of")]
    pub caller: Option<Arc<Invocation>>,
    /// The id of the tool call that it is made in: that of an agent used as a tool.
    pub tool_call: Option<Arc<str>>,
    /// It continues its caller's conversation, as members of a team and sub-agents after a
    /// transfer do.
    pub goes_on: bool,
}

fn id_of<S: Serializer>(
    invocation: &Option<Arc<Invocation>>,
    serializer: S,
) -> Result<S::Ok, S::Error> {
    invocation
        .as_ref()
        .map(|invocation| &invocation.id)
        .serialize(serializer)
}

impl Invocation {
    /// Creates the next invocation of a run that counts them. The tool call is known to be that in
    /// which `caller`, if there is one, calls an agent that does not go on with its conversation.
    pub(super) fn next(
        run: &str,
        count: &AtomicU32,
        path: Arc<str>,
        caller: Option<Arc<Self>>,
        tool_call: Option<Arc<str>>,
        goes_on: bool,
    ) -> Arc<Self> {
        let number = count.fetch_add(1, Ordering::Relaxed) + 1;
        let goes_on = goes_on && caller.is_some();
        Arc::new(Self {
            id: format!("{run}-a{number}").into(),
            number,
            path,
            tool_call: tool_call.filter(|_| caller.is_some() && !goes_on),
            caller,
            goes_on,
        })
    }

    /// Returns the agent's name. Empty for the run itself.
    #[must_use]
    pub fn agent(&self) -> &str {
        self.path.rsplit('/').next().unwrap_or_default()
    }

    /// Returns the invocation that owns the conversation: itself, unless it continues that of its
    /// caller.
    #[must_use]
    pub fn conversation(&self) -> &Self {
        match &self.caller {
            Some(caller) if self.goes_on => caller.conversation(),
            _ => self,
        }
    }
}

/// The kind of an event, with its data.
///
/// A scope (run, agent, step) has `Started` and `Finished`; content (text, reasoning, tool call)
/// has `Start`, `Delta`s and `End`, as in AG-UI.
///
/// The messages that were streamed and not discarded equal the run's transcript: join the text,
/// reasoning and tool calls of every message, and omit the messages named by an
/// [`AttemptDiscarded`](Self::AttemptDiscarded) or a [`ResponseReplaced`](Self::ResponseReplaced).
/// An interrupted [parallel team](crate::agent::TeamBuilder) has shown messages that join the
/// transcript when it is resumed.
#[derive(Clone, Debug, Serialize)]
#[serde(tag = "type", rename_all = "snake_case")]
#[non_exhaustive]
pub enum EventKind {
    /// The run starts. The first event.
    RunStarted {
        /// The run's id.
        run: Arc<str>,
    },
    /// The run has ended with a response. The last event.
    RunFinished {
        /// The reason for its end.
        reason: EndReason,
    },
    /// The run was interrupted. The last event.
    RunInterrupted {
        /// The interrupts that it waits on.
        interrupts: Arc<[Interrupt]>,
    },
    /// The run has failed. The last event.
    RunFailed {
        /// The error.
        error: Error,
    },
    /// An agent starts.
    AgentStarted,
    /// An agent has ended.
    AgentFinished {
        /// The interrupts that it waits on, if it was interrupted.
        interrupts: Arc<[Interrupt]>,
        /// The error, if it failed. The error of an agent that was dropped is
        /// [`Cancelled`](crate::ErrorKind::Cancelled).
        error: Option<Error>,
    },
    /// A turn starts: a model call and the tool calls of its response.
    StepStarted {
        /// The number of the turn in its agent, from 0.
        iteration: u32,
    },
    /// A turn has ended.
    StepFinished {
        /// The number of the turn in its agent, from 0.
        iteration: u32,
        /// The end of the model's turn. `None` if the model call has not succeeded.
        finish_reason: Option<FinishReason>,
    },
    /// A text message starts.
    TextStart {
        /// The message's id.
        message: Arc<str>,
    },
    /// A delta of a text message.
    TextDelta {
        /// The message's id.
        message: Arc<str>,
        /// The added text.
        text: String,
    },
    /// A text message has ended.
    TextEnd {
        /// The message's id.
        message: Arc<str>,
    },
    /// Reasoning starts.
    ReasoningStart {
        /// The id of the reasoning block: the message's id, `-r` and a number.
        id: Arc<str>,
        /// The id of the message that it belongs to.
        message: Arc<str>,
    },
    /// A delta of reasoning.
    ReasoningDelta {
        /// The id of the reasoning block.
        id: Arc<str>,
        /// The added text.
        text: String,
    },
    /// Reasoning ends.
    ReasoningEnd {
        /// The id of the reasoning block.
        id: Arc<str>,
    },
    /// A tool call starts.
    //
    // Boxed, as is a result: every delta is as large as the largest event.
    ToolCallStart(Box<ToolCallStart>),
    /// A delta of a tool call's arguments.
    ToolCallDelta {
        /// The call's id.
        id: Arc<str>,
        /// The added JSON text.
        json: String,
    },
    /// A tool call's arguments are complete.
    ToolCallEnd {
        /// The call's id.
        id: Arc<str>,
    },
    /// Provider data of a final tool call, which must be sent back.
    ToolCallProviderData {
        /// The call's id.
        id: Arc<str>,
        /// The provider data.
        data: ProviderData,
    },
    /// The result of a tool call, or a failure that the model reads.
    ToolResult(Box<ToolCallResult>),
    /// The session's state at the start of the run.
    StateSnapshot {
        /// The whole state.
        #[serde(serialize_with = "crate::depth::serialize")]
        state: Map<String, Value>,
    },
    /// The session's state has changed.
    StateDelta {
        /// The changes since the last event about it.
        delta: StateDelta,
    },
    /// Calls of the agent have used tokens: its model call, or models that its tools and callbacks
    /// have called in its run. These events add up to the
    /// [usage](crate::AgentResponse::usage) of the run; an agent inside a call tells of its own.
    Usage {
        /// The usage since the last such event of the agent, including attempts that have failed
        /// and answers that were refused.
        usage: Box<Usage>,
    },
    /// An attempt has failed after output was streamed: discard the message with its tool calls and
    /// reasoning. Another attempt follows as another message, unless the call has failed.
    AttemptDiscarded {
        /// The message's id.
        message: Arc<str>,
        /// The kind of the error with which the attempt failed. `None` if it did not fail: it was
        /// dropped, or its agent starts over.
        error: Option<ErrorKind>,
        /// The tokens that the provider had told by then, which are part of those in
        /// [`Usage`](Self::Usage). Zero for an attempt that had finished, whose tokens are those of
        /// its response.
        usage: Box<Usage>,
    },
    /// A callback or a layer has replaced a response that was streamed: discard the message. The
    /// replacement, if any, follows as another message.
    ResponseReplaced {
        /// The message's id.
        message: Arc<str>,
    },
    /// The final answer does not match the run's
    /// [answer format](crate::AgentRequest::with_answer_format), or is
    /// [none](crate::agent::AtNoAnswer), or a callback [asks
    /// again](crate::ModelResponse::then_ask). The model is told the problem in a
    /// user message of the transcript, and answers again as another message.
    AnswerRejected {
        /// The error, of kind [`InvalidAnswer`](crate::ErrorKind::InvalidAnswer).
        error: Error,
    },
    /// An attempt at a call has failed, and another one follows.
    AttemptFailed(Arc<FailedAttempt>),
    /// A hook of a callback has run.
    Callback(Arc<CallbackNote>),
    /// A call has left a band of callbacks or a layer. Observers are told that have
    /// [asked for it](super::Observer::with_wrappers), and no consumer of a stream.
    Wrapper(Arc<WrapperNote>),
    /// A model call does not begin with what the one before has sent, so that what the provider has
    /// cached is of less use. Told when it reaches the model, to those who are told about wrappers.
    PrefixChanged(Arc<PrefixNote>),
    /// A custom event of a callback or a tool; see [`RunContext::emit`](crate::RunContext::emit).
    Custom {
        /// The name of the event.
        name: Arc<str>,
        /// The data.
        #[serde(serialize_with = "crate::depth::serialize")]
        value: Value,
    },
    /// A note of middleware, such as which rule refused a call; see
    /// [`RunContext::note`](crate::RunContext::note). It is for the program: servers send it to no
    /// client.
    Note {
        /// The name of the note.
        name: Arc<str>,
        /// The data.
        #[serde(serialize_with = "crate::depth::serialize")]
        value: Value,
    },
}

impl EventKind {
    /// Returns whether it shows something of the agent's: text, reasoning, a tool call or its
    /// result, or an event of the program's own.
    pub(crate) const fn is_output(&self) -> bool {
        matches!(
            self,
            Self::TextStart { .. }
                | Self::ReasoningStart { .. }
                | Self::ToolCallStart(_)
                | Self::ToolResult(_)
                | Self::Custom { .. }
        )
    }
}

/// A tool call that starts, in [`EventKind::ToolCallStart`].
#[derive(Clone, Debug, Serialize)]
#[non_exhaustive]
pub struct ToolCallStart {
    /// The call's id: the message's id, `-t` and its place among the calls there. The other events
    /// about the call have it, too.
    pub id: Arc<str>,
    /// The tool's name.
    pub name: Arc<str>,
    /// The id of the message with the call.
    pub message: Arc<str>,
    /// The provider's id of the call, which the transcript has; others can have the same.
    pub call_id: Arc<str>,
}

/// The result of a tool call, in [`EventKind::ToolResult`].
#[derive(Clone, Debug, Serialize)]
#[non_exhaustive]
pub struct ToolCallResult {
    /// The call's id.
    pub id: Arc<str>,
    /// The provider's id of the call.
    pub call_id: Arc<str>,
    /// The id of the message with the result.
    pub message: Arc<str>,
    /// The tool's name.
    pub name: Arc<str>,
    /// The parts that the model receives.
    pub parts: Vec<Part>,
    /// The tool refused or failed.
    pub is_error: bool,
    /// The parts are the text of an [`Error`]: see
    /// [`ToolResult::is_error_text`](crate::message::ToolResult::is_error_text).
    pub is_error_text: bool,
    /// The names of those who have answered the questions about the call: see
    /// [`ToolResult::answered_by`](crate::message::ToolResult::answered_by).
    pub answered_by: Vec<String>,
}

/// An attempt that has failed and is followed by another, in [`EventKind::AttemptFailed`].
#[derive(Clone, Debug, Serialize)]
#[non_exhaustive]
pub struct FailedAttempt {
    /// The kind of call.
    pub call: CallKind,
    /// The tool's name, for a tool call.
    pub name: Option<Arc<str>>,
    /// The id in the stream of the tool call, or of the tool call that this call is made in.
    pub tool_call: Option<Arc<str>>,
    /// The number of the attempt at its call, from 0.
    pub attempt: u32,
    /// The kind of its error. Not the error itself: a callback outside may hide its text.
    pub error: ErrorKind,
    /// The tokens of a model call that it has used, as far as they are known: those of responses
    /// that were refused, and those that a stream had told before it failed. They are part of those
    /// in [`Usage`](EventKind::Usage).
    pub usage: Usage,
    /// The attempt that follows.
    pub next: NextAttempt,
}

/// The attempt after one that has failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum NextAttempt {
    /// The same call again, after this wait.
    Retry(Duration),
    /// Another model is called.
    Fallback,
}

/// A hook that has run, and its decision. Hooks left at their defaults are not reported.
#[derive(Clone, Debug, Serialize)]
#[non_exhaustive]
pub struct CallbackNote {
    /// The callback's name.
    pub callback: Cow<'static, str>,
    /// The place of its band in the stack around the call: that of the
    /// [`WrapperNote`](WrapperNote::index) about it. `None` outside the stacks of agents, and where
    /// no observer has [asked](super::Observer::with_wrappers) about wrappers.
    pub wrapper: Option<u32>,
    /// The hook: `before`, `after` or `on_error`.
    pub hook: &'static str,
    /// The kind of call.
    pub call: CallKind,
    /// The tool's name, for a tool call.
    pub name: Option<Arc<str>>,
    /// The id in the stream of the tool call, or of the tool call that this call is made in.
    pub tool_call: Option<Arc<str>>,
    /// The number of the attempt at the call, from 0: the attempts that have
    /// [failed](EventKind::AttemptFailed) before.
    pub attempt: u32,
    /// The decision.
    pub decision: CallbackDecision,
    /// The reasons that the callback has [given](crate::RunContext::because).
    pub reasons: Vec<Arc<str>>,
}

/// The decision of a hook.
#[derive(Clone, Debug, Serialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum CallbackDecision {
    /// Continue.
    Continue,
    /// Skip the remaining callbacks of the band.
    SkipRest,
    /// Respond, or replace the response.
    Respond,
    /// Propagate the error.
    Propagate,
    /// Replace the error.
    Fail,
    /// Retry the call.
    Retry,
    /// Respond instead of the error.
    Fallback,
    /// The hook itself failed, or ended the run. The error goes on to what is outside the hook,
    /// which may hide its text.
    Failed(ErrorKind),
}
