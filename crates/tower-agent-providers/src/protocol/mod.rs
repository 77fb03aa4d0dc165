//! A provider's protocol, without I/O: writing requests and reading responses.
//!
//! ```text
//! HttpModel<P, S>: Service<ModelRequest, Response = ModelResponse>
//!           P:  Protocol            encodes the request, reads errors
//!           P::Decoder:  Decoder    reads one response
//!           S:  Service<http::Request<RequestBody>, Response = http::Response<_>>
//! ```
//!
//! [`HttpModel`](crate::HttpModel) does everything else: address, key, headers, status, framing,
//! streaming to the consumer, cut-off responses, request ids, rate limits, and the secrets that no
//! error may show. A protocol is one type for each of the two traits:
//!
//! ```
//! use std::borrow::Cow;
//!
//! use serde::Deserialize;
//! use tower_agent::model::{ModelRequest, ModelResponse};
//! use tower_agent::stream::{Delta, Piece, Streamed};
//! use tower_agent_providers::json::{self, Object};
//! use tower_agent_providers::protocol::{Call, Decoder, Event, Fault, Progress, Protocol};
//!
//! /// A server that repeats the last message, one word an event.
//! #[derive(Clone, Debug, Default)]
//! struct Echo;
//!
//! impl Protocol for Echo {
//!     type Decoder = EchoDecoder;
//!
//!     const PROVIDER: &'static str = "echo";
//!     const BASE_URL: &'static str = "http://localhost:8080/v1";
//!     const BASE_URL_VARIABLE: &'static str = "ECHO_BASE_URL";
//!     const KEY_VARIABLE: &'static str = "ECHO_API_KEY";
//!
//!     fn path<'a>(&self, _: &Call<'a>) -> tower_agent::Result<Cow<'a, str>> {
//!         Ok("/echo".into())
//!     }
//!
//!     fn encode(&self, call: &Call<'_>, body: &mut Vec<u8>) -> tower_agent::Result<()> {
//!         let request = call.request();
//!         let mut json = Object::body(body, &request.settings().extra, &["messages"]);
//!         json.array("messages", |items| {
//!             items.messages(request, "my_crate.echo", |index, items| {
//!                 items.item(request.messages()[index].text())
//!             })
//!         })?;
//!         json.field("model", call.require_model()?)?;
//!         json.field("stream", call.is_streamed())?;
//!         json.end()
//!     }
//!
//!     fn decoder(&self, _: &Call<'_>) -> EchoDecoder {
//!         EchoDecoder
//!     }
//! }
//!
//! struct EchoDecoder;
//!
//! #[derive(Default, Deserialize)]
//! #[serde(default)]
//! struct Words {
//!     text: String,
//!     is_last: bool,
//! }
//!
//! impl Decoder for EchoDecoder {
//!     fn event(&mut self, event: Event<'_>, out: &mut Vec<Piece>) -> Result<Progress, Fault> {
//!         let words: Words = json::read(event.data.as_bytes(), "an event")?;
//!         out.push(Delta::Text(words.text).into());
//!         Ok(if words.is_last { Progress::Done } else { Progress::More })
//!     }
//!
//!     fn response(&mut self, body: &[u8], out: &mut Vec<Piece>) -> Result<(), Fault> {
//!         let words: Words = json::read(body, "the response")?;
//!         out.push(Delta::Text(words.text).into());
//!         Ok(())
//!     }
//!
//!     fn finish(self, streamed: Streamed) -> ModelResponse {
//!         streamed.into()
//!     }
//! }
//!
//! // Pure, so that it can be tested without a server.
//! let request = ModelRequest::new([tower_agent::Message::user("Hi.")]);
//! let mut body = Vec::new();
//! Echo.encode(&Call::new(&request).with_model("parrot"), &mut body)?;
//! assert_eq!(body, br#"{"messages":["Hi."],"model":"parrot","stream":false}"#);
//!
//! # #[cfg(feature = "http-client")] {
//! use tower_agent_providers::HttpModel;
//! let model = HttpModel::<Echo, _>::builder().model("parrot").build()?;
//! # drop(model);
//! # }
//! # Ok::<_, tower_agent::BoxError>(())
//! ```

#[cfg(any(feature = "anthropic", feature = "gemini", feature = "openai"))]
mod answer_tool;
#[cfg(feature = "bedrock")]
mod aws;
#[cfg(any(
    feature = "anthropic",
    feature = "gemini",
    feature = "ollama",
    feature = "openai"
))]
mod begun_calls;
mod call;
#[cfg(any(feature = "anthropic", feature = "openai"))]
mod call_id_format;
mod decoder;
mod described;
#[cfg(any(
    feature = "anthropic",
    feature = "gemini",
    feature = "ollama",
    feature = "openai"
))]
pub(crate) mod ending;
mod event;
mod fault;
mod framing;
mod hash;
#[cfg(any(feature = "gemini", feature = "ollama"))]
mod joined;
#[cfg(any(feature = "anthropic", feature = "gemini"))]
mod model_path;
mod operation;
mod provider_fields;
mod provider_name;
#[cfg(any(
    feature = "anthropic",
    feature = "gemini",
    feature = "ollama",
    feature = "openai"
))]
mod server_tools;
mod tool_name;
mod unsupported;
#[cfg(any(feature = "anthropic", feature = "gemini", feature = "openai"))]
mod version;

use std::borrow::Cow;

use http::header::AUTHORIZATION;
use http::{HeaderMap, HeaderName};

#[cfg(any(feature = "anthropic", feature = "gemini", feature = "openai"))]
pub(crate) use self::answer_tool::{AnswerDecoder, takes_answer_tool, with_answer_tool};
#[cfg(feature = "bedrock")]
pub use self::aws::AwsAccess;
#[cfg(any(
    feature = "anthropic",
    feature = "gemini",
    feature = "ollama",
    feature = "openai"
))]
pub(crate) use self::begun_calls::BegunCalls;
pub use self::call::Call;
#[cfg(any(feature = "anthropic", feature = "openai"))]
pub(crate) use self::call_id_format::CallIdFormat;
#[cfg(any(feature = "gemini", feature = "ollama", feature = "openai"))]
pub(crate) use self::decoder::keep;
pub use self::decoder::{Decoder, Progress};
#[cfg(any(feature = "anthropic", feature = "openai"))]
pub(crate) use self::described::GUARANTEED_FORMATS;
#[cfg(any(feature = "anthropic", feature = "gemini", feature = "openai"))]
pub(crate) use self::described::described;
pub(crate) use self::described::schema_of;
pub use self::event::Event;
pub use self::fault::Fault;
pub use self::framing::Framing;
pub(crate) use self::hash::fnv1a;
#[cfg(any(feature = "gemini", feature = "ollama"))]
pub(crate) use self::joined::joined;
#[cfg(feature = "bedrock")]
pub(crate) use self::model_path::push_segment;
#[cfg(any(feature = "anthropic", feature = "gemini"))]
pub(crate) use self::model_path::{escaped, push_segments};
#[cfg(any(
    feature = "anthropic",
    feature = "gemini",
    feature = "ollama",
    feature = "openai"
))]
pub(crate) use self::operation::required;
pub use self::operation::{Operation, OperationCall};
pub use self::provider_fields::provider_fields;
#[cfg(feature = "openai")]
pub(crate) use self::provider_name::is_under;
pub(crate) use self::provider_name::{issuer_of_host, provider_name};
#[cfg(any(
    feature = "anthropic",
    feature = "gemini",
    feature = "ollama",
    feature = "openai"
))]
pub(crate) use self::server_tools::with_server_tools;
pub use self::tool_name::tool_name;
pub use self::unsupported::unsupported;
#[cfg(any(feature = "anthropic", feature = "gemini", feature = "openai"))]
pub(crate) use self::version::with_version;
#[cfg(feature = "anthropic")]
pub(crate) use self::version::with_version_always;
use tower_agent::error::Result;

/// A provider's protocol. See the [module](self) for an example.
///
/// It has options of its own as fields, if any, and is shared by all calls.
pub trait Protocol: Send + Sync + 'static {
    /// Reads one response.
    type Decoder: Decoder;

    /// The provider's name, in lower case: the key of its
    /// [`ProviderData`](tower_agent::message::ProviderData).
    ///
    /// Two protocols of one provider need two names unless they can send each other's data. Data
    /// that came from another server of this protocol is not seen by [`encode`](Self::encode): the
    /// client leaves out what has another [issuer](tower_agent::message::ProviderData::issuer).
    const PROVIDER: &'static str;

    /// The provider's name as layers around the model see it, in
    /// [`ModelTarget`](tower_agent::model::ModelTarget): that of a cloud which serves the protocol
    /// of another. Defaults to [`PROVIDER`](Self::PROVIDER).
    const TARGET: &'static str = Self::PROVIDER;

    /// The provider's base URL.
    const BASE_URL: &'static str;

    /// The environment variable that replaces [`BASE_URL`](Self::BASE_URL).
    const BASE_URL_VARIABLE: &'static str;

    /// The environment variable that contains the API key.
    const KEY_VARIABLE: &'static str;

    /// Other environment variables that may contain the API key, for a provider whose tools read
    /// several. [`KEY_VARIABLE`](Self::KEY_VARIABLE) takes precedence. Defaults to none.
    const OTHER_KEY_VARIABLES: &'static [&'static str] = &[];

    /// The division of the body of a streamed response into events. Defaults to server-sent events.
    const FRAMING: Framing = Framing::ServerSentEvents;

    /// The places where a response or an event states the usage, as JSON pointers: the first that
    /// is an object counts. Defaults to `/usage`.
    const USAGE: &'static [&'static str] = &["/usage"];

    /// Sets the options that are not set from the environment, such as a region. Called once, when
    /// a model is built. Defaults to nothing.
    fn complete(&mut self, environment: &dyn Fn(&str) -> Option<String>) {
        let _ = environment;
    }

    /// Returns the base URL if none is given, after [`complete`](Self::complete). Defaults to
    /// [`BASE_URL`](Self::BASE_URL).
    ///
    /// # Errors
    ///
    /// Fails with what is missing or wrong in the options that the URL is made of, and how to set
    /// it.
    fn default_base_url(&self) -> Result<Cow<'static, str>, String> {
        Ok(Self::BASE_URL.into())
    }

    /// Returns the base URL that a given one stands for, such as one without the API's version. It
    /// is that of the builder or the value of [`BASE_URL_VARIABLE`](Self::BASE_URL_VARIABLE).
    /// Defaults to the given one itself.
    fn base_url<'a>(&self, given: &'a str) -> Cow<'a, str> {
        given.into()
    }

    /// Returns the headers that every call sends, such as the version of an API. The caller's
    /// headers replace those of the same name. Defaults to none.
    fn headers(&self) -> HeaderMap {
        HeaderMap::new()
    }

    /// Returns the header that contains the key. Defaults to a bearer token.
    fn key_header(&self, key: &str) -> (HeaderName, String) {
        (AUTHORIZATION, format!("Bearer {key}"))
    }

    /// Returns the access to AWS that signs each call which has no key, for a service of AWS.
    /// Defaults to `None`: no call is signed.
    #[cfg(feature = "bedrock")]
    fn aws(&self) -> Option<&AwsAccess> {
        None
    }

    /// Returns the path of a call under the base URL, beginning with `/`. It may have a query.
    ///
    /// # Errors
    ///
    /// Fails with [`InvalidRequest`](tower_agent::ErrorKind::InvalidRequest), for example for a
    /// model name that must not be part of a path.
    fn path<'a>(&self, call: &Call<'a>) -> Result<Cow<'a, str>>;

    /// Appends the body of a call to `body`, which is empty.
    ///
    /// Write messages with [`Items::messages`](crate::json::Items::messages) and tools with
    /// [`write_tools`](tower_agent::ModelRequest::write_tools), so that each is serialised once in
    /// a run, and first, so that a body begins with the bytes of the previous one. Leave out the
    /// data of other providers.
    ///
    /// # Errors
    ///
    /// Fails with [`InvalidRequest`](tower_agent::ErrorKind::InvalidRequest) for anything that the
    /// protocol cannot represent: nothing is dropped silently.
    fn encode(&self, call: &Call<'_>, body: &mut Vec<u8>) -> Result<()>;

    /// Returns why the schema of the answer cannot be the response format of a call, as the end of
    /// a sentence that begins with "since". The schema then stands in the instructions, and the
    /// reason in the error of an answer that does not match. Asked only for a call with a schema.
    /// Defaults to `None`.
    fn describes_schema(&self, call: &Call<'_>) -> Option<&'static str> {
        let _ = call;
        None
    }

    /// Creates the decoder of the response to a call.
    fn decoder(&self, call: &Call<'_>) -> Self::Decoder;

    /// Returns whether the body of a response with an error status contains an answer, which the
    /// decoder then reads: some servers check the calls of a model and reject those that are wrong,
    /// about which the model can be told. Defaults to `false`.
    fn is_answer(&self, body: &[u8]) -> bool {
        let _ = body;
        false
    }

    /// Reads the body of a response with an error status. Returns `None` if it is not an error of
    /// this protocol; the error then quotes the body.
    ///
    /// Defaults to [`Fault::from_json`], which reads what most servers send.
    fn fault(&self, body: &[u8]) -> Option<Fault> {
        Fault::from_json(body)
    }
}
