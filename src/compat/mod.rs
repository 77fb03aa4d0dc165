//! Compatibility with other agent frameworks: their semantics, and hooks in their form.

mod hooks;
mod presets;

pub use self::hooks::Hooks;
#[doc(inline)]
pub use crate::agent::options::Semantics;
#[doc(inline)]
pub use crate::callback::options::{
    AfterPolicy, BeforePolicy, CallbackSemantics, Globals, HookFailure, OnErrorPolicy, PerCall,
    RespondScope, Retries,
};
#[doc(inline)]
pub use crate::run::options::{
    AfterAgentRespond, AfterModelRespond, AnsweredToolCalls, AtLimit, BeyondLimit, LoopSemantics,
    ToolCalls, ToolFailure, UnknownTool,
};
