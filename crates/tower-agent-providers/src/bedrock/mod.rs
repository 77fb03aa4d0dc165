//! Amazon Bedrock: its own protocol Converse, and Claude by the Anthropic Messages protocol.
//!
//! ```text
//! Bedrock<S>:          Service<ModelRequest, Response = ModelResponse>
//! BedrockAnthropic<S>: Service<ModelRequest, Response = ModelResponse>
//!                  S:  Service<http::Request<RequestBody>, Response = http::Response<_>>
//! ```
//!
//! [`Bedrock`] speaks to every model that can converse. [`BedrockAnthropic`] has all that the
//! [Messages API](crate::anthropic) has, for Claude alone.
//!
//! ```
//! # #[cfg(feature = "http-client")]
//! # fn main() -> Result<(), tower_agent::BoxError> {
//! use tower_agent::Agent;
//! use tower_agent_providers::bedrock::Bedrock;
//!
//! let model = Bedrock::builder()
//!     .region("eu-central-1")
//!     .model("eu.amazon.nova-pro-v1:0")
//!     .build()?;
//! let agent = Agent::builder(model).instructions("Answer in one line.").build()?;
//! # let _ = agent;
//! # Ok(())
//! # }
//! # #[cfg(not(feature = "http-client"))]
//! # fn main() {}
//! ```
//!
//! A model is named by its id, the id of an inference profile, or an ARN.
//!
//! # Region and credentials
//!
//! The region is that of the builder, or else of `AWS_REGION` or `AWS_DEFAULT_REGION`. The address
//! follows from it, unless [`base_url`](crate::HttpModelBuilder::base_url) or
//! `AWS_ENDPOINT_URL_BEDROCK_RUNTIME` is set. The first of these that is there authorises the
//! calls:
//!
//! 1. A Bedrock API key: `api_key`, or `api_key_with` for one that is fetched for each call.
//! 2. [`Credentials`] of the builder, with which each call is signed by Signature Version 4:
//!    `credentials`, or `credentials_with` for those that are fetched for each call.
//! 3. The API key in `AWS_BEARER_TOKEN_BEDROCK`.
//! 4. The credentials in `AWS_ACCESS_KEY_ID`, `AWS_SECRET_ACCESS_KEY` and `AWS_SESSION_TOKEN`.
//!
//! Credentials of a profile, a role or a container come from the crate `aws-config`, whose
//! `SharedCredentialsProvider` keeps those that are still valid:
//!
//! ```
//! use std::future::ready;
//!
//! use tower_agent_providers::bedrock::{Bedrock, Credentials};
//!
//! // `provider.provide_credentials()` of `aws-config`.
//! let provide = || ready(Ok(Credentials::new("id", "secret", None, None, "example")));
//! let model = Bedrock::builder().region("us-east-1").credentials_with(provide);
//! # let _ = model;
//! ```
//!
//! A layer below the model may not change the address, the body, the content type or a header that
//! begins with `x-amz`: they are signed. A retry below the model sends the same signature, which is
//! valid for five minutes; one around the model signs again.
//!
//! # Converse: requests
//!
//! - Instructions and the texts of all system messages are sent as `system`.
//! - Consecutive messages of one role become one message. The results of a turn stand before
//!   anything else that follows it. The first message must be the user's. Text without any
//!   character other than white space is left out, since it is rejected.
//! - Images, audio and documents are sent inline, or from S3 by a URL that begins with `s3://`. A
//!   document is sent under its name, without the characters that are rejected, or else as
//!   `document`.
//! - Reasoning is sent back unchanged, in its place. Reasoning of another provider is left out.
//! - `reasoning_effort` becomes `outputConfig.effort`. Models that take it elsewhere have it in
//!   `additionalModelRequestFields`, in [`extra`](tower_agent::Settings::extra).
//! - A JSON schema becomes `outputConfig.textFormat`, [as for
//!   Anthropic](crate::anthropic#settings); a schema that refers to itself stands in the
//!   instructions, since few of the models that can converse accept a call that is forced.
//!   [`BedrockAnthropic`] has a [tool](crate#answers-with-a-schema) for it.
//! - `prompt_cache` becomes a cache point after the last message.
//! - There is no `seed`, no tool choice `None`, and no `parallel_tool_calls: false`.
//! - `extra` is [merged](crate#extra-settings): `additionalModelRequestFields`, `guardrailConfig`,
//!   `serviceTier` and others.
//! - [`ProviderData`](tower_agent::message::ProviderData) under the key `bedrock` is an object
//!   whose fields are added to the block or the `toolSpec` that carries it. A
//!   [`Part::Provider`](tower_agent::Part::Provider), such as `{"cachePoint": {"type":
//!   "default"}}`, is sent unchanged as a block.
//!
//! # Converse: responses
//!
//! - Blocks that this library does not know are kept as
//!   [`Part::Provider`](tower_agent::Part::Provider) in their place.
//! - Input tokens include those read from the cache and written to it.
//! - A blocked answer has the finish reason
//!   [`ContentFilter`](tower_agent::model::FinishReason::ContentFilter). A call that the model made
//!   wrongly is an error of kind [`Provider`](tower_agent::ErrorKind::Provider): a retry may
//!   succeed.
//! - A stream is complete with its usage: one that ends before is an error.
//! - An exception in a stream is an error with its name as the
//!   [code](tower_agent::message::Metadata::error_code).
//!
//! # Claude by `InvokeModel`
//!
//! [`BedrockAnthropic`] writes and reads what [`Anthropic`](crate::anthropic::Anthropic) does. Beta
//! features stand in the body, in `extra`: `{"anthropic_beta": [".."]}`.

mod address;
mod converse;
mod messages;
mod model_path;

use std::future::Future;

pub use aws_credential_types::Credentials;

pub use self::converse::{Converse, ConverseDecoder};
pub use self::messages::BedrockMessages;
use crate::anthropic::Thinking;
use crate::protocol::{AwsAccess, Protocol};
use crate::transport::{HttpModel, HttpModelBuilder};
use tower_agent::error::BoxError;

/// A model on Bedrock reached by Converse, over an HTTP service `S`.
pub type Bedrock<S> = HttpModel<Converse, S>;

/// Claude on Bedrock reached by the Anthropic Messages protocol, over an HTTP service `S`.
pub type BedrockAnthropic<S> = HttpModel<BedrockMessages, S>;

/// For the protocols of AWS.
impl<P: Protocol + AsMut<AwsAccess>> HttpModelBuilder<P> {
    /// Sets the region. Defaults to the environment variable `AWS_REGION`, or else to
    /// `AWS_DEFAULT_REGION`.
    pub fn region(mut self, region: impl Into<String>) -> Self {
        self.protocol_mut().as_mut().set_region(region);
        self
    }

    /// Sets the credentials that sign the calls. Defaults to those of the environment, unless there
    /// is an API key.
    pub fn credentials(mut self, credentials: Credentials) -> Self {
        self.protocol_mut().as_mut().set_credentials(credentials);
        self
    }

    /// Fetches the credentials of each call, for those that change.
    ///
    /// Keep credentials that are still valid in `fetch`: nothing is kept here. If it fails, the
    /// call fails with its error, or with [`ErrorKind::Auth`](tower_agent::ErrorKind::Auth) if that
    /// is none of this library. Dropping the call drops the fetch.
    pub fn credentials_with<F, Fut>(mut self, fetch: F) -> Self
    where
        F: Fn() -> Fut + Send + Sync + 'static,
        Fut: Future<Output = Result<Credentials, BoxError>> + Send + 'static,
    {
        self.protocol_mut().as_mut().set_credentials_with(fetch);
        self
    }
}

impl HttpModelBuilder<BedrockMessages> {
    /// Sets the form in which a reasoning effort is sent. Defaults to
    /// [`Adaptive`](Thinking::Adaptive).
    pub fn thinking(mut self, thinking: Thinking) -> Self {
        self.protocol_mut().set_thinking(thinking);
        self
    }
}
