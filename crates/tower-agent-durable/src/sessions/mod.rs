//! `SessionLayer: AgentRequest -> AgentRequest with its conversation`
//!
//! Conversations, the stores for them, and the layer that keeps them.

mod busy;
mod config;
mod format;
mod future;
mod key;
mod kind;
mod layer;
#[cfg(any(feature = "postgres", feature = "sqlite"))]
mod list;
mod mark;
mod not_stored;
mod open_calls;
#[cfg(feature = "postgres")]
mod postgres;
mod query;
#[cfg(any(feature = "postgres", feature = "sqlite"))]
mod rows;
mod running;
mod service;
mod session;
#[cfg(feature = "sqlite")]
mod sqlite;
mod store;
mod writer;

#[cfg(feature = "threads")]
pub(crate) use self::format::read_head;
pub use self::future::ResponseFuture;
pub use self::key::SessionKey;
#[cfg(feature = "threads")]
pub(crate) use self::kind::{SESSION, THREAD};
pub use self::layer::SessionLayer;
pub use self::not_stored::NotStored;
pub(crate) use self::open_calls::OpenCalls;
pub use self::query::{SessionInfo, SessionQuery};
pub use self::service::SessionService;
pub use self::session::Session;
pub use self::store::{Append, SessionStore, StoredSession};
