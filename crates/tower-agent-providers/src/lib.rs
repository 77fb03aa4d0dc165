//! Models reached over a network. Each module implements one protocol over any HTTP service.
//!
//! ```text
//! Service<ModelRequest>  =  protocol  over  Service<http::Request>
//! ```

#![cfg_attr(docsrs, feature(doc_cfg))]
// Tests, examples and benches may; the library may not.
#![cfg_attr(not(test), warn(clippy::expect_used, clippy::panic, clippy::unwrap_used))]

#[cfg(feature = "openai")]
pub mod openai;
mod transport;

pub use self::transport::RequestBody;
#[cfg(feature = "http-client")]
pub use self::transport::{HttpClient, ResponseBody, TlsError};

/// Futures of the services in this crate's root.
#[cfg(feature = "http-client")]
pub mod future {
    pub use crate::transport::client::HttpFuture;
}

/// The README's example, so that it compiles.
#[cfg(all(doctest, feature = "http-client", feature = "openai"))]
#[doc = include_str!("../README.md")]
struct Readme;
