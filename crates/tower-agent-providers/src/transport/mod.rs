//! HTTP, as all protocols use it.

mod base_url;
mod body;
mod broken;
mod build_error;
mod builder;
mod call_ids;
#[cfg(feature = "http-client")]
pub(crate) mod client;
#[cfg(feature = "http-client")]
mod client_error;
mod config;
mod connection;
#[cfg(feature = "bedrock")]
mod event_stream;
mod frames;
mod head;
mod issuer;
pub(crate) mod model;
pub(crate) mod operations;
#[cfg(feature = "proxy")]
mod proxy;
mod read;
mod request_headers;
mod secrets;
#[cfg(feature = "bedrock")]
mod signature;
mod stated_usage;
#[cfg(feature = "http-client")]
mod time_limits;
#[cfg(feature = "http-client")]
mod tls;

pub use self::body::RequestBody;
pub use self::build_error::ModelBuildError;
pub use self::builder::HttpModelBuilder;
#[cfg(feature = "http-client")]
pub use self::client::{HttpClient, HttpClientBuilder, ResponseBody};
#[cfg(feature = "http-client")]
pub use self::client_error::HttpClientError;
pub use self::model::HttpModel;
pub use self::operations::HttpOperations;
pub use self::request_headers::RequestHeaders;
#[cfg(feature = "http-client")]
pub use self::time_limits::TimeLimits;
#[cfg(feature = "testing")]
pub(crate) use self::{
    connection::{broke, failed},
    secrets::Secrets,
};
