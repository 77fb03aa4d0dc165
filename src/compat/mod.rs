//! What agent frameworks answer differently, and hooks of the shape that other systems have.

mod hooks;
mod presets;

pub use self::hooks::Hooks;
#[doc(inline)]
pub use crate::agent::options::{
    AfterAgentRespond, AfterModelRespond, AnsweredToolCalls, AtLimit, BeyondLimit, LoopSemantics,
    Semantics, ToolCalls, ToolFailure, UnknownTool,
};
#[doc(inline)]
pub use crate::callback::options::{
    AfterPolicy, BeforePolicy, CallbackSemantics, Globals, HookFailure, OnErrorPolicy, PerCall,
    RespondScope, Retries,
};
