//! `SessionLayer: AgentRequest -> AgentRequest with its conversation`
//!
//! Conversations whose caller is trusted: whatever the program sends counts.

mod config;
mod format;
mod future;
mod layer;
mod mark;
mod not_stored;
mod open_calls;
mod running;
mod service;
mod session;
mod writer;

pub use self::future::ResponseFuture;
pub use self::layer::SessionLayer;
pub use self::not_stored::NotStored;
pub use self::open_calls::OpenCalls;
pub use self::service::SessionService;
pub use self::session::Session;
