//! The semantics of five frameworks.

use super::semantics::{CallbackSemantics, Semantics};
use crate::callback::{
    AfterAgentRespond, AfterModelRespond, AnsweredToolCalls, BeyondLimit, CallbackRules, LoopRules,
    NextTurn, OthersTurns, Placeholders, Remaining, ToolCalls, ToolFailure, UnknownTool,
};

impl Semantics {
    /// Returns the semantics of potato_agent: a response in `after_model` ends the run, and
    /// responses elsewhere are ignored; a failed tool ends the run; tools run one by one.
    #[must_use]
    pub fn potato() -> Self {
        Self {
            band: CallbackSemantics::potato(),
            run: LoopRules {
                after_model_respond: AfterModelRespond::EndRun,
                // It tells the model of no tool failure of any kind.
                tool_failure: ToolFailure::FailRun,
                invalid_arguments: ToolFailure::FailRun,
                unknown_tool: UnknownTool::FailRun,
                tool_calls: ToolCalls::OneByOne,
                ..LoopRules::default()
            },
        }
    }

    /// Returns the semantics of Google ADK for Python, version 2.13: the first response wins in
    /// every hook; `after` does not run for a response from a `before`, except for tools;
    /// `after_agent` runs at an interrupt too; a failed tool ends the run, but invalid arguments
    /// are an error that the model reads. Callbacks of the whole tree are its plugins: they come
    /// first in every phase.
    ///
    /// A transfer may go to sub-agents, back to the parent, and to its other sub-agents. The next
    /// turn belongs to the agent that spoke last, other agents' turns are quoted, and instructions
    /// are filled from the state.
    #[must_use]
    pub fn adk_python() -> Self {
        Self {
            band: CallbackSemantics::adk_python(),
            run: LoopRules {
                after_model_respond: AfterModelRespond::Replace,
                tool_failure: ToolFailure::FailRun,
                beyond_limit: BeyondLimit::AskBefore,
                next_turn: NextTurn::LastSpeaker,
                transfer_to_parent: true,
                transfer_to_peers: true,
                others_turns: OthersTurns::Quoted,
                placeholders: Placeholders::Filled,
                ..LoopRules::default()
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
            run: LoopRules {
                answered_tool_calls: AnsweredToolCalls::Drop,
                after_model_respond: AfterModelRespond::Replace,
                after_agent_respond: AfterAgentRespond::Transform,
                tool_calls: ToolCalls::OneByOne,
                ..LoopRules::default()
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
            run: LoopRules {
                after_model_respond: AfterModelRespond::Replace,
                unknown_tool: UnknownTool::TellModel,
                ..LoopRules::default()
            },
        }
    }

    /// Returns the semantics of the middleware of LangChain 1.x, as of 1.5: `after` runs in reverse
    /// order, layers are inside all callbacks, whatever the order of registration, and a failed
    /// tool ends the run. A response from `before_model` is its `jump_to` "end", or "tools" if it
    /// has calls, [`then_ask`](crate::ModelResponse::then_ask) in `after_model` is "model", and
    /// [`Error::end_invocation`](crate::Error::end_invocation) is "end" anywhere.
    #[must_use]
    pub fn langchain() -> Self {
        Self {
            band: CallbackSemantics::langchain(),
            run: LoopRules {
                after_model_respond: AfterModelRespond::Replace,
                tool_failure: ToolFailure::FailRun,
                ..LoopRules::default()
            },
        }
    }
}

impl CallbackSemantics {
    /// Returns the semantics of potato_agent's callbacks.
    #[must_use]
    pub const fn potato() -> Self {
        let rules = CallbackRules {
            before_response: Remaining::Notify,
            after_response: Remaining::Notify,
            after_composes: false,
            failure: Remaining::Notify,
            before_responds: false,
            after_responds: false,
            ..CallbackRules::DEFAULT
        };
        Self {
            model: CallbackRules {
                after_responds: true,
                ..rules
            },
            ..Self::all(rules)
        }
    }

    /// Returns the semantics of the callbacks of Google's ADK for Python.
    #[must_use]
    pub const fn adk_python() -> Self {
        let rules = CallbackRules {
            after_response: Remaining::Skip,
            after_composes: false,
            after_interrupt: true,
            global_joins_band: true,
            ..CallbackRules::DEFAULT
        };
        // Its flow runs `after_tool` for any result, but returns at once from a model's or an
        // agent's early response.
        let returns_at_once = CallbackRules {
            after_before: false,
            ..rules
        };
        Self {
            model: returns_at_once,
            agent: returns_at_once,
            ..Self::all(rules)
        }
    }

    /// Returns the semantics of ADK Elixir's `ADK.Callback`.
    #[must_use]
    pub const fn adk_elixir() -> Self {
        Self {
            model: CallbackRules {
                after_before: false,
                after_fallback: false,
                // Its retry of a model starts at `before_model`.
                before_runs_again: true,
                retries: None,
                global_joins_band: true,
                ..CallbackRules::DEFAULT
            },
            tool: CallbackRules {
                retries: Some(1),
                ..CallbackRules::DEFAULT
            },
            agent: CallbackRules {
                after_before: false,
                ..CallbackRules::DEFAULT
            },
            other: CallbackRules::DEFAULT,
        }
    }

    /// Returns the semantics of the middleware of LangChain 1.x.
    #[must_use]
    pub const fn langchain() -> Self {
        let rules = CallbackRules {
            unwinds: true,
            layers_inside: true,
            ..CallbackRules::DEFAULT
        };
        Self {
            // What `before_model` adds before a jump passes no `after_model`.
            model: CallbackRules {
                after_before: false,
                ..rules
            },
            agent: CallbackRules {
                after_end: true,
                ..rules
            },
            ..Self::all(rules)
        }
    }

    /// Returns the semantics of trpc-agent-go's callbacks with its two options.
    #[must_use]
    pub const fn trpc(continue_on_error: bool, continue_on_response: bool) -> Self {
        const fn remaining(continues: bool) -> Remaining {
            if continues {
                Remaining::Run
            } else {
                Remaining::Skip
            }
        }
        let rules = CallbackRules {
            before_response: remaining(continue_on_response),
            after_response: remaining(continue_on_response),
            after_composes: false,
            failure: remaining(continue_on_error),
            after_fallback: false,
            // It has one `after`, which gets either the response or the error.
            fallback: remaining(continue_on_response),
            fail_is_failure: true,
            global_joins_band: true,
            ..CallbackRules::DEFAULT
        };
        let tool = CallbackRules {
            after_before: false,
            ..rules
        };
        Self {
            tool,
            agent: CallbackRules {
                global_joins_band: false,
                ..tool
            },
            ..Self::all(rules)
        }
    }
}
