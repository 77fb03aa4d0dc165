//! The semantics of four frameworks.

use super::callback_semantics::{
    AfterPolicy, BeforePolicy, CallbackSemantics, Globals, HookFailure, OnErrorPolicy, PerCall,
    RespondScope, Retries,
};
use super::loop_semantics::{
    AfterAgentRespond, AfterModelRespond, AnsweredToolCalls, BeyondLimit, LoopSemantics, ToolCalls,
    ToolFailure, UnknownTool,
};
use super::semantics::Semantics;

impl Semantics {
    /// Returns the semantics of potato_agent: a response in `after_model` ends the run, and
    /// responses elsewhere are ignored; a failed tool ends the run; tools run one by one.
    #[must_use]
    pub fn potato() -> Self {
        Self {
            band: CallbackSemantics::potato(),
            run: LoopSemantics {
                after_model_respond: AfterModelRespond::EndRun,
                // It tells the model of no tool failure of any kind.
                tool_failure: ToolFailure::FailRun,
                invalid_arguments: ToolFailure::FailRun,
                unknown_tool: UnknownTool::FailRun,
                tool_calls: ToolCalls::OneByOne,
                ..LoopSemantics::default()
            },
        }
    }

    /// Returns the semantics of Google ADK for Python: the first response wins in every hook;
    /// `after` does not run for a response from a `before`, except for tools; `after_agent` runs at
    /// an interrupt too; a failed tool ends the run, but invalid arguments are an error that the
    /// model reads. Callbacks of the whole tree are its plugins: they come first in every phase.
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

    /// Returns the semantics of ADK Elixir: `after`s compose; a response instead of the model is
    /// final; a retry of the model runs `before_model` again; tools run one by one. Callbacks of
    /// the whole tree are its plugins: they come first in every phase of model calls, and wrap
    /// tools and agents.
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

    /// Returns the semantics of trpc-agent-go without options: the first response wins in every
    /// hook; `after` does not run for a response from before a tool or an agent; `on_error` is its
    /// error half. Callbacks of the whole tree are its plugins: they come first in every phase of
    /// model and tool calls, and wrap agents.
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
    /// Returns the semantics of potato_agent's callbacks.
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

    /// Returns the semantics of the callbacks of Google's ADK for Python.
    #[must_use]
    pub const fn adk_python() -> Self {
        Self {
            after: AfterPolicy::First,
            // Its flow runs `after_tool` for any result, but returns at once from a model's or an
            // agent's early response.
            after_before: PerCall::of(false, true, false, true),
            globals: PerCall::all(Globals::First),
            after_pause: true,
            ..Self::DEFAULT
        }
    }

    /// Returns the semantics of ADK Elixir's `ADK.Callback`.
    #[must_use]
    pub const fn adk_elixir() -> Self {
        Self {
            after_before: PerCall::of(false, true, false, true),
            after_fallback: PerCall::of(false, true, true, true),
            // Its retry of a model starts at `before_model`.
            retry_before: PerCall::of(true, false, false, false),
            retries: PerCall::of(
                Retries::MaxIterations,
                Retries::AtMost(1),
                Retries::AtMost(Self::RETRIES),
                Retries::AtMost(Self::RETRIES),
            ),
            globals: PerCall {
                model: Globals::First,
                ..Self::DEFAULT.globals
            },
            ..Self::DEFAULT
        }
    }

    /// Returns the semantics of trpc-agent-go's callbacks with its two options.
    #[must_use]
    pub const fn trpc(continue_on_error: bool, continue_on_response: bool) -> Self {
        let (before, after) = if continue_on_response {
            (BeforePolicy::Last, AfterPolicy::Last)
        } else {
            (BeforePolicy::First, AfterPolicy::First)
        };
        let failure = if continue_on_error {
            HookFailure::Continue
        } else {
            HookFailure::Stop
        };
        Self {
            before,
            after,
            failure,
            after_before: PerCall::of(true, false, false, true),
            after_fallback: PerCall::all(false),
            // It has one `after`, which gets either the response or the error.
            on_error: OnErrorPolicy::LikeAfter,
            globals: PerCall {
                agent: Globals::Around,
                ..PerCall::all(Globals::First)
            },
            ..Self::DEFAULT
        }
    }
}
