/// The rules of an agent's loop, one field for each question.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct LoopRules {
    /// Tool calls in a model response from a `before` or an `on_error`.
    pub answered_tool_calls: AnsweredToolCalls,
    /// A response from `after_model`.
    pub after_model_respond: AfterModelRespond,
    /// A response from `after_agent`.
    pub after_agent_respond: AfterAgentRespond,
    /// A tool failure that no callback recovers.
    pub tool_failure: ToolFailure,
    /// Arguments that do not match the tool, if no callback recovers the error.
    pub invalid_arguments: ToolFailure,
    /// A call of a tool that does not exist.
    pub unknown_tool: UnknownTool,
    /// Several tool calls in one turn.
    pub tool_calls: ToolCalls,
    /// The limit of model calls is reached.
    pub at_limit: AtLimit,
    /// The model call beyond the limit.
    pub beyond_limit: BeyondLimit,
    /// The last response of the model is no answer.
    pub at_no_answer: AtNoAnswer,
    /// The agent that answers the user's next message after a transfer.
    pub next_turn: NextTurn,
    /// A sub-agent may transfer the conversation back to the agent that has it, unless
    /// [its own setting](crate::AgentBuilder::transfer_to_parent) says otherwise.
    pub transfer_to_parent: bool,
    /// A sub-agent may transfer the conversation to the other sub-agents of the agent that has it,
    /// unless [its own setting](crate::AgentBuilder::transfer_to_peers) says otherwise.
    pub transfer_to_peers: bool,
    /// The form in which a model reads the other agents in its conversation.
    pub others_turns: OthersTurns,
    /// Placeholders in an agent's [instructions](crate::AgentBuilder::instructions).
    pub placeholders: Placeholders,
}

/// The treatment of tool calls in a response that a callback returned instead of the model.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum AnsweredToolCalls {
    /// They run, as if the model had made them.
    #[default]
    Run,
    /// They are dropped: the response ends the run.
    Drop,
}

/// The effect of a response from `after_model`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum AfterModelRespond {
    /// It replaces the model's response, and the loop continues as if the model had sent it. A
    /// response created from nothing, without tool calls, keeps those of the model with its
    /// reasoning and provider data; use
    /// [`without_tool_calls`](crate::ModelResponse::without_tool_calls) to drop them.
    #[default]
    KeepToolCalls,
    /// It replaces the model's response, including tool calls: without tool calls it ends the run.
    Replace,
    /// It ends the run, and its text is the final message.
    EndRun,
}

/// The effect of a response from `after_agent`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum AfterAgentRespond {
    /// It replaces the agent's final message; earlier messages are kept.
    #[default]
    Replace,
    /// It replaces all messages of the agent.
    Transform,
}

/// The treatment of a tool failure that no callback recovers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum ToolFailure {
    /// The model reads the error, and may try again.
    #[default]
    TellModel,
    /// The run fails with it; parallel calls that still run are dropped. One that asks or ends the
    /// run at the same moment decides how the run ends.
    FailRun,
}

/// The treatment of a call of a tool that does not exist.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum UnknownTool {
    /// It passes through the tool callbacks as an error; if none recovers it, the model reads the
    /// error.
    #[default]
    Callbacks,
    /// The model reads the error; no callback runs.
    TellModel,
    /// It passes through the tool callbacks as an error; if none recovers it, the run fails.
    FailRun,
}

/// The order in which the tool calls of one turn run. Their results keep the order of the calls.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum ToolCalls {
    /// In parallel, as many at a time as
    /// [`tool_concurrency`](crate::AgentBuilder::tool_concurrency) allows.
    #[default]
    Concurrent,
    /// One after another.
    OneByOne,
}

/// The end of an agent that has reached its limit of model calls.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum AtLimit {
    /// With an error of kind [`MaxIterations`](crate::ErrorKind::MaxIterations).
    #[default]
    Fail,
    /// With its messages so far, as
    /// [`EndReason::IterationLimit`](crate::EndReason::IterationLimit).
    End,
}

/// The treatment of the model call beyond the limit.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum BeyondLimit {
    /// No callback runs for it.
    #[default]
    Refuse,
    /// `before_model` runs for it. A response is used, unless it has tool calls, which would need
    /// another model call. Without a response the limit is reached; no `on_model_error` runs for
    /// that.
    AskBefore,
}

/// The action of an agent if the last response of its model is [no
/// answer](crate::ModelResponse::no_answer): cut off, filtered, refused or empty.
///
/// An answer in a [format](crate::AgentRequest::with_answer_format) is repaired instead.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum AtNoAnswer {
    /// It is returned, even if it is empty, with the end reason
    /// [`EndReason::NoAnswer`](crate::EndReason::NoAnswer), and logged as a warning.
    #[default]
    Tell,
    /// The model is asked again, up to this many times in a run. Each is a model call that counts
    /// as an iteration. After that as with [`Tell`](Self::Tell).
    AskAgain(u32),
    /// The run fails with an error of kind [`InvalidAnswer`](crate::ErrorKind::InvalidAnswer),
    /// which has the answer as [`InvalidAnswer`](crate::agent::InvalidAnswer), and the
    /// [checkpoint](crate::Error::checkpoint).
    Fail,
}

/// The agent that answers the user's next message after a transfer.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum NextTurn {
    /// The agent that is called, as in the first turn.
    #[default]
    Called,
    /// The sub-agent that has the conversation: the last one in it that spoke, or that it was
    /// transferred to. It has it only if it, and each agent between it and the called one, may
    /// [transfer back](LoopRules::transfer_to_parent), and none of them is a team. A member of a
    /// team always begins itself.
    ///
    /// Callbacks and layers of the called agent are around it, as around the turn of the transfer.
    LastSpeaker,
}

/// The form in which a model reads the other agents in its conversation.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum OthersTurns {
    /// Their messages, as if it had said them itself.
    #[default]
    AsOwn,
    /// A user's message for each of theirs, which names the agent and quotes what it has said,
    /// called and read. Their reasoning is left out. The transcript itself has their messages.
    Quoted,
}

/// The treatment of placeholders such as `{city}` in an agent's instructions.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum Placeholders {
    /// They are text like any other.
    #[default]
    Kept,
    /// Before each model call, [`State::fill`](crate::State::fill) puts the state's values in their
    /// place. A value that is missing fails the run.
    Filled,
}
