//! Guards: ready-made callbacks and layers that keep a run within bounds.
//!
//! ```text
//! Redact:    Callback<ModelRequest> + Callback<ToolRequest>
//! Guardrail: Layer<S>    where S: Service<ModelRequest, Response = ModelResponse>
//! ```
//!
//! A guard is registered like any other callback or layer, and where it stands decides what it
//! sees. It is made of nothing but the crate's public API, so a guard of your own can do all that
//! these do. When in doubt a guard fails closed.

pub mod guardrail;
#[cfg(feature = "redact")]
pub mod redact;
