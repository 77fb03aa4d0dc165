//! HTTP, as all protocols use it.

mod body;
#[cfg(feature = "http-client")]
pub(crate) mod client;

pub use self::body::RequestBody;
#[cfg(feature = "http-client")]
pub use self::client::{HttpClient, ResponseBody, TlsError};
