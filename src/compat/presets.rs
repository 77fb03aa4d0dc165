//! What four frameworks do.

use super::{
    AfterAgentRespond, AfterModelRespond, AfterPolicy, AnsweredToolCalls, BeforePolicy,
    BeyondLimit, CallbackSemantics, Globals, HookFailure, LoopSemantics, OnErrorPolicy, PerCall,
    RespondScope, Retries, Semantics, ToolCalls, ToolFailure, UnknownTool,
};

impl Semantics {
    /// As potato_agent: a response in `after_model` ends the run, and nowhere else does one count;
    /// a tool that fails ends the run; tools run one by one.
    #[must_use]
    pub fn potato() -> Self {
        Self {
            band: CallbackSemantics::potato(),
            run: LoopSemantics {
                after_model_respond: AfterModelRespond::EndRun,
                tool_failure: ToolFailure::FailRun,
                invalid_arguments: ToolFailure::FailRun,
                unknown_tool: UnknownTool::FailRun,
                tool_calls: ToolCalls::OneByOne,
                ..LoopSemantics::default()
            },
        }
    }

    /// As Google ADK for Python: the first response wins in every hook; `after` is not asked about
    /// a response that a `before` gave, except for tools; `after_agent` is asked at a pause too; a
    /// tool that fails ends the run, but of arguments that do not fit it the model is told.
    /// Callbacks of the whole tree are its plugins: they come first in every phase.
    #[must_use]
    pub fn adk_python() -> Self {
        Self {
            band: CallbackSemantics::adk_python(),
            run: LoopSemantics {
                after_model_respond: AfterModelRespond::Replace,
                tool_failure: ToolFailure::FailRun,
                beyond_limit: BeyondLimit::AskBefore,
                ..LoopSemantics::default()
            },
        }
    }

    /// As ADK Elixir: `after`s compose; a response in the model's place is final; a retry of the
    /// model asks `before_model` again; tools run one by one. Callbacks of the whole tree are its
    /// plugins: they come first in every phase of model calls, and stand around tools and agents.
    #[must_use]
    pub fn adk_elixir() -> Self {
        Self {
            band: CallbackSemantics::adk_elixir(),
            run: LoopSemantics {
                answered_tool_calls: AnsweredToolCalls::Drop,
                after_model_respond: AfterModelRespond::Replace,
                after_agent_respond: AfterAgentRespond::Transform,
                tool_calls: ToolCalls::OneByOne,
                ..LoopSemantics::default()
            },
        }
    }

    /// As trpc-agent-go without options: the first response wins in every hook; `after` is not
    /// asked about a response given before a tool or an agent; `on_error` is its error half.
    /// Callbacks of the whole tree are its plugins: they come first in every phase of model and
    /// tool calls, and stand around agents.
    #[must_use]
    pub fn trpc() -> Self {
        Self {
            band: CallbackSemantics::trpc(false, false),
            run: LoopSemantics {
                after_model_respond: AfterModelRespond::Replace,
                unknown_tool: UnknownTool::TellModel,
                ..LoopSemantics::default()
            },
        }
    }
}

impl CallbackSemantics {
    /// As potato_agent's callbacks.
    #[must_use]
    pub const fn potato() -> Self {
        Self {
            before: BeforePolicy::FirstNotifyRest,
            after: AfterPolicy::FirstNotifyRest,
            failure: HookFailure::NotifyRest,
            respond: RespondScope::AfterModel,
            ..Self::DEFAULT
        }
    }

    /// As Google ADK's Python callbacks.
    #[must_use]
    pub const fn adk_python() -> Self {
        Self {
            after: AfterPolicy::First,
            after_before: PerCall::of(false, true, false, true),
            globals: PerCall::all(Globals::First),
            after_pause: true,
            ..Self::DEFAULT
        }
    }

    /// As ADK Elixir's `ADK.Callback`.
    #[must_use]
    pub const fn adk_elixir() -> Self {
        Self {
            after_before: PerCall::of(false, true, false, true),
            after_fallback: PerCall::of(false, true, true, true),
            retry_before: PerCall::of(true, false, false, false),
            retries: PerCall::of(
                Retries::MaxIterations,
                Retries::AtMost(1),
                Retries::AtMost(Self::RETRIES),
                Retries::AtMost(Self::RETRIES),
            ),
            globals: PerCall { model: Globals::First, ..Self::DEFAULT.globals },
            ..Self::DEFAULT
        }
    }

    /// As trpc-agent-go's callbacks with its two options.
    #[must_use]
    pub const fn trpc(continue_on_error: bool, continue_on_response: bool) -> Self {
        let (before, after) = match continue_on_response {
            true => (BeforePolicy::Last, AfterPolicy::Last),
            false => (BeforePolicy::First, AfterPolicy::First),
        };
        let failure = if continue_on_error { HookFailure::Continue } else { HookFailure::Stop };
        Self {
            before,
            after,
            failure,
            after_before: PerCall::of(true, false, false, true),
            after_fallback: PerCall::all(false),
            on_error: OnErrorPolicy::LikeAfter,
            globals: PerCall { agent: Globals::Around, ..PerCall::all(Globals::First) },
            ..Self::DEFAULT
        }
    }
}
