use crate::callback::{Bundle, CallbackSemantics};
use crate::context::Carried;

/// How an agent answers the questions that agent frameworks answer differently.
///
/// `band` is about the callbacks of one call, `run` about the loop. The default is what the rest
/// of the documentation describes; the constructors are what four frameworks do, so that callbacks
/// written for one of them keep their meaning. What all of them do alike has no field.
///
/// An agent without semantics of its own takes those of the agent that contains it: a member those
/// of its team, a sub-agent and an agent used as a tool those of its caller. That is settled in
/// each run, so that one agent can be part of two trees. Callbacks of the whole
/// [tree](crate::AgentBuilder::global) follow the semantics of the agent that they are registered
/// with, and those [of a run](crate::AgentRequest::with_callbacks) the semantics of the agent that
/// is called; either may [bring its own](crate::callback::Bundle::with_semantics).
///
/// ```
/// use tower_agent::testing::{ScriptedModel, Turn};
/// use tower_agent::{Action, Agent, ModelResponse};
/// use tower_agent::callback::after_model;
/// use tower_agent::compat::Semantics;
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), tower_agent::BoxError> {
/// // The first response wins, as in Google's ADK; by default each sees what the last one made.
/// let agent = Agent::builder(ScriptedModel::new([Turn::from_text("hello")]))
///     .semantics(Semantics::adk_python())
///     .on_model(after_model(|_, _| Action::Respond(ModelResponse::from_text("first"))))
///     .on_model(after_model(|_, _| Action::Respond(ModelResponse::from_text("second"))))
///     .build()?;
/// assert_eq!(agent.run("hi").await?.text(), "first");
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Semantics {
    /// The callbacks of one call.
    pub band: CallbackSemantics,
    /// The loop.
    pub run: LoopSemantics,
}

impl Semantics {
    /// Those of an agent that has these of its own, inside others that have this for it.
    pub(super) fn inside(own: Option<Self>, around: &Carried) -> Self {
        own.unwrap_or_else(|| {
            let run = around.global.get().copied().unwrap_or_default();
            Self { band: CallbackSemantics::of_agent(around), run }
        })
    }
}

/// What an agent has for itself and for those inside it, added to what others have for it; and its
/// semantics.
pub(super) fn enter(own: Option<Semantics>, global: &Bundle, around: &mut Carried) -> Semantics {
    let semantics = Semantics::inside(own, around);
    if own.is_some() {
        around.global.insert(semantics.band);
        around.global.insert(semantics.run);
    }
    global.clone().or_semantics(semantics.band).carry_globally(around);
    semantics
}

/// How the loop answers what frameworks answer differently, one field a question.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct LoopSemantics {
    /// Tool calls in a model response that a `before` or an `on_error` gave.
    pub answered_tool_calls: AnsweredToolCalls,
    /// A response given by `after_model`.
    pub after_model_respond: AfterModelRespond,
    /// A response given by `after_agent`.
    pub after_agent_respond: AfterAgentRespond,
    /// A tool fails, and nobody recovers it.
    pub tool_failure: ToolFailure,
    /// The model's arguments do not fit the tool, and nobody recovers it.
    pub invalid_arguments: ToolFailure,
    /// The model calls a tool that does not exist.
    pub unknown_tool: UnknownTool,
    /// Several tool calls of one turn.
    pub tool_calls: ToolCalls,
    /// The agent has made as many model calls as it may.
    pub at_limit: AtLimit,
    /// The model call that is one more than the agent may make.
    pub beyond_limit: BeyondLimit,
}

/// What becomes of tool calls in a model response that a callback gave in the model's place.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum AnsweredToolCalls {
    /// They are run, as if the model had asked for them.
    #[default]
    Run,
    /// They are dropped: the response is the agent's answer.
    Drop,
}

/// What a response given by `after_model` means.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum AfterModelRespond {
    /// It stands for what the model said, and the loop goes on as if the model had said it. A
    /// response without tool calls, made from nothing, keeps those of the model, with its reasoning
    /// and what the provider added: to drop them it says
    /// [`without_tool_calls`](crate::ModelResponse::without_tool_calls).
    #[default]
    KeepToolCalls,
    /// It stands for the model's, tool calls included: one without any ends the run.
    Replace,
    /// It ends the run, with its text as the answer.
    EndRun,
}

/// What a response given by `after_agent` means.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum AfterAgentRespond {
    /// It stands in the place of the agent's last words; what was said before them stays.
    #[default]
    Replace,
    /// It is all that the agent has said.
    Transform,
}

/// What becomes of a tool's failure that nobody recovers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum ToolFailure {
    /// The model is told, and may try again.
    #[default]
    TellModel,
    /// The run fails with it; the calls beside it are dropped.
    FailRun,
}

/// What becomes of a call of a tool that does not exist.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum UnknownTool {
    /// It goes through the tool callbacks as an error; if none recovers it, the model is told.
    #[default]
    Callbacks,
    /// The model is told; no callback is.
    TellModel,
    /// It goes through the tool callbacks as an error; if none recovers it, the run fails.
    FailRun,
}

/// How the tool calls of one turn run. Their answers keep the order of the calls either way.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum ToolCalls {
    /// Side by side, as many at a time as
    /// [`tool_concurrency`](super::AgentBuilder::tool_concurrency) allows.
    #[default]
    Concurrent,
    /// One after another.
    OneByOne,
}

/// How an agent ends that has made as many model calls as it may.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum AtLimit {
    /// With an error of kind [`MaxIterations`](crate::ErrorKind::MaxIterations).
    #[default]
    Fail,
    /// With what it has, as [`EndReason::IterationLimit`](crate::EndReason::IterationLimit).
    End,
}

/// What becomes of the model call that is one more than the agent may make.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum BeyondLimit {
    /// No callback is asked about it.
    #[default]
    Refuse,
    /// `before_model` is asked about it. An answer counts, unless it calls tools, which would need
    /// another call. Without one the limit is reached; no `on_model_error` is asked about that.
    AskBefore,
}
