//! Compatibility with other agent frameworks: their semantics, and hooks in their form.

mod hooks;
mod presets;
mod semantics;

pub use self::hooks::Hooks;
pub use self::semantics::{CallbackSemantics, Semantics};
