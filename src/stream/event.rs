use std::borrow::Cow;
use std::sync::Arc;

use serde_json::{Map, Value};

use crate::call_kind::CallKind;
use crate::error::{Error, Interrupt};
use crate::message::{Part, ProviderData, Usage};
use crate::state::StateDelta;

/// Something that happened in a run, and in which agent.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Event {
    /// The agent in which it happened; the one that was asked, for what concerns the whole run.
    pub invocation: Arc<Invocation>,
    /// What happened.
    pub kind: EventKind,
}

/// One call of one agent within a run. An agent that is called twice has two.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Invocation {
    /// Names it, unlike any other of any run.
    pub id: Arc<str>,
    /// Which of the run, from 1 for the agent that was asked; 0 stands for the run itself.
    pub number: u32,
    /// The agents from the root of the tree to this one, joined by `/`. Empty for the run itself.
    pub path: Arc<str>,
    /// The invocation that called it; `None` for the agent that was asked.
    pub caller: Option<Arc<Invocation>>,
    /// The tool call that it is made in, if any: that of an agent used as a tool.
    pub tool_call: Option<Arc<str>>,
    /// Whether it goes on with its caller's conversation, as a team's member and a sub-agent that
    /// takes over do.
    pub goes_on: bool,
}

impl Invocation {
    /// The agent's name. Empty for the run itself.
    #[must_use]
    pub fn agent(&self) -> &str {
        self.path.rsplit('/').next().unwrap_or_default()
    }

    /// The invocation whose conversation this one speaks in: itself, unless it goes on with that
    /// of its caller.
    #[must_use]
    pub fn conversation(&self) -> &Self {
        match &self.caller {
            Some(caller) if self.goes_on => caller.conversation(),
            _ => self,
        }
    }
}

/// What happened.
///
/// What was said and not taken back is what the run's transcript holds: put together the text,
/// the reasoning and the tool calls of every message, leave out those that an
/// [`AttemptDiscarded`](Self::AttemptDiscarded) or a
/// [`ResponseReplaced`](Self::ResponseReplaced) names, and it is what the agents have answered.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub enum EventKind {
    /// The run begins; the first event.
    RunStarted {
        /// Names the run.
        run: Arc<str>,
    },
    /// The run is over; the last event, unless it was interrupted or failed.
    RunFinished,
    /// The run waits for somebody; the last event.
    RunInterrupted {
        /// What it waits for.
        interrupts: Arc<[Interrupt]>,
    },
    /// The run has failed; the last event.
    RunFailed {
        /// Why.
        error: Error,
    },
    /// An agent begins.
    AgentStarted,
    /// An agent is done.
    AgentFinished {
        /// What it waits for, if it was interrupted.
        interrupts: Arc<[Interrupt]>,
        /// Why it failed, if it did. One that was dropped was
        /// [cancelled](crate::ErrorKind::Cancelled).
        error: Option<Error>,
    },
    /// A turn begins: a model call, and the tools that it asks for.
    StepStarted {
        /// Which turn of its agent, from 0.
        iteration: u32,
    },
    /// A turn is over.
    StepFinished {
        /// Which turn of its agent, from 0.
        iteration: u32,
    },
    /// A message gets its first words.
    TextStart {
        /// The message.
        message: Arc<str>,
    },
    /// A message gets more words.
    TextDelta {
        /// The message.
        message: Arc<str>,
        /// The words.
        text: String,
    },
    /// A message gets no more words.
    TextEnd {
        /// The message.
        message: Arc<str>,
    },
    /// The model begins to think.
    ReasoningStart {
        /// Names this train of thought: the message's name, `-r` and a number.
        id: Arc<str>,
        /// The message that it leads to.
        message: Arc<str>,
    },
    /// The model thinks more.
    ReasoningDelta {
        /// The train of thought.
        id: Arc<str>,
        /// The thought.
        text: String,
    },
    /// The model has thought.
    ReasoningEnd {
        /// The train of thought.
        id: Arc<str>,
    },
    /// The model asks for a tool.
    ToolCallStart {
        /// Names the call.
        id: Arc<str>,
        /// The tool.
        name: Arc<str>,
        /// The message that asks.
        message: Arc<str>,
    },
    /// More of a tool call's arguments.
    ToolCallDelta {
        /// The call.
        id: Arc<str>,
        /// The next piece of the arguments, as JSON text.
        json: String,
    },
    /// A tool call's arguments are complete.
    ToolCallEnd {
        /// The call.
        id: Arc<str>,
    },
    /// A tool call that stands has something that only the provider can read, and must get back.
    ToolCallProviderData {
        /// The call.
        id: Arc<str>,
        /// What the provider added.
        data: ProviderData,
    },
    /// A tool has answered, or has failed in a way that the model is told.
    ToolResult {
        /// The call.
        id: Arc<str>,
        /// The tool.
        name: Arc<str>,
        /// What the model is shown.
        parts: Vec<Part>,
        /// Whether the tool refused or failed.
        is_error: bool,
    },
    /// The session's state as the run begins.
    StateSnapshot {
        /// All of it.
        state: Map<String, Value>,
    },
    /// The session's state has changed.
    StateDelta {
        /// How, from what was last told of it.
        delta: StateDelta,
    },
    /// A model call has used tokens.
    Usage {
        /// Those of the call, failed attempts included.
        usage: Box<Usage>,
    },
    /// An attempt has failed after it was seen: what was shown of the message is void, its tool
    /// calls and its reasoning included. Another attempt follows, as another message, unless the
    /// call has failed for good.
    AttemptDiscarded {
        /// The message.
        message: Arc<str>,
    },
    /// A callback or a layer has put another answer in the place of one that was seen: the message
    /// is void. What stands in its place, if anything does, follows as another message.
    ResponseReplaced {
        /// The message.
        message: Arc<str>,
    },
    /// A hook of a callback has run.
    Callback(Arc<CallbackNote>),
    /// Whatever a callback or a tool wants to tell; see
    /// [`RunContext::emit`](crate::RunContext::emit).
    Custom {
        /// What it is about.
        name: Arc<str>,
        /// What there is to tell.
        value: Value,
    },
}

/// A hook of a callback has run, and what came of it. Hooks that a callback leaves at their
/// defaults are not noted.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct CallbackNote {
    /// The callback's name.
    pub callback: Cow<'static, str>,
    /// The hook: `before`, `after` or `on_error`.
    pub hook: &'static str,
    /// The call around which it stands.
    pub call: CallKind,
    /// The tool, for a tool call.
    pub name: Option<Arc<str>>,
    /// The provider's id of the tool call that this is, or is made in. Tells apart the calls of one
    /// turn.
    pub tool_call_id: Option<Arc<str>>,
    /// What it decided.
    pub decision: Decision,
}

/// What a hook decided.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub enum Decision {
    /// To go on.
    Continue,
    /// To ask no further callback of its band.
    SkipRest,
    /// To answer, or to put another response in the place of one.
    Respond,
    /// To leave an error as it is.
    Propagate,
    /// To put another error in the place of one.
    Fail,
    /// To make the call again.
    Retry,
    /// To answer in the place of an error.
    Fallback,
    /// Nothing: the hook itself failed, or it ended the run.
    Failed(Error),
}
