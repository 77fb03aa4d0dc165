//! Compatibility with other agent frameworks: their semantics, and hooks in their form.

mod callback_semantics;
mod hooks;
mod loop_semantics;
mod presets;
mod semantics;

pub use self::callback_semantics::{
    AfterPolicy, BeforePolicy, CallbackSemantics, Globals, HookFailure, OnErrorPolicy, PerCall,
    RespondScope, Retries,
};
pub use self::hooks::Hooks;
pub use self::loop_semantics::{
    AfterAgentRespond, AfterModelRespond, AnsweredToolCalls, AtLimit, BeyondLimit, LoopSemantics,
    ToolCalls, ToolFailure, UnknownTool,
};
pub use self::semantics::Semantics;
