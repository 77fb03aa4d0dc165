//! HTTP, as all protocols use it.

mod base_url;
mod body;
mod build_error;
mod builder;
#[cfg(feature = "http-client")]
pub(crate) mod client;
mod config;
mod connection;
mod frames;
mod head;
pub(crate) mod model;
mod read;
mod request_headers;
mod secrets;
mod stated_usage;

pub use self::body::RequestBody;
pub use self::build_error::BuildError;
pub use self::builder::HttpModelBuilder;
#[cfg(feature = "http-client")]
pub use self::client::{HttpClient, ResponseBody, TimeLimits, TlsError};
pub use self::model::HttpModel;
pub use self::request_headers::RequestHeaders;
#[cfg(feature = "testing")]
pub(crate) use self::{
    connection::{broke, failed},
    secrets::Secrets,
};
