//! The Anthropic Messages API.
//!
//! ```text
//! Anthropic<S>: Service<ModelRequest, Response = ModelResponse>
//!           S:  Service<http::Request<RequestBody>, Response = http::Response<_>>
//! ```
//!
//! Used by Anthropic, and by the gateways and servers that speak its protocol. The address and the
//! key are read from `ANTHROPIC_BASE_URL` (with or without `/v1`) and `ANTHROPIC_API_KEY`:
//!
//! ```
//! # #[cfg(feature = "http-client")]
//! # fn main() -> Result<(), tower_agent::BoxError> {
//! use tower_agent::Agent;
//! use tower_agent_providers::anthropic::Anthropic;
//!
//! let model = Anthropic::builder().api_key("..").model("claude-opus-4-6").build()?;
//! let agent = Agent::builder(model).instructions("Answer in one line.").build()?;
//! # let _ = agent;
//! # Ok(())
//! # }
//! # #[cfg(not(feature = "http-client"))]
//! # fn main() {}
//! ```
//!
//! Beta features are switched on by a header: `.header("anthropic-beta", "..")`. A gateway that
//! expects a bearer token gets `.header("authorization", "Bearer ..")` instead of a key.
//!
//! # Messages
//!
//! - Instructions, and system messages before all others, are sent as `system`. A later system
//!   message keeps the role `system`, which models before Claude Opus 4.8 reject. It is sent after
//!   the user's messages, directly before the answer: elsewhere it is not accepted.
//! - Consecutive messages of one role become one message. The results of a turn stand before
//!   anything else that follows it. The first message must be the user's.
//! - Text without any character other than white space is left out, since it is rejected.
//! - Arguments that are not a JSON object are sent as `{"INVALID_JSON": ".."}`, as Anthropic
//!   recommends.
//! - A call's id goes back as it came. An id of another provider is shortened and changed, in the
//!   call and in its result alike, if it is longer than 64 characters or contains others than
//!   letters, digits, `_` and `-`, which are rejected.
//! - Images are sent by URL, inline or as the id of an uploaded file, and so are documents: a PDF,
//!   or text, which is sent as plain text. Audio and other documents are `InvalidRequest` errors
//!   that name the part.
//! - Reasoning is sent back unchanged, in its place. Reasoning of another server is left out, also
//!   if it speaks this protocol: Anthropic accepts the signatures of Claude alone, wherever Claude
//!   is [served](crate::HttpModelBuilder::issuer).
//!
//! # Settings
//!
//! - The protocol requires `max_tokens`. If it is unset, 16384 tokens are allowed, beside those of
//!   a reasoning budget.
//! - Reasoning is described at [`Thinking`].
//! - A schema that refers to itself is rejected, so a [tool](crate#answers-with-a-schema) gives the
//!   answer; where the model reasons, no call can be forced, and the schema stands in the
//!   instructions.
//! - A JSON schema becomes `output_config.format`. Its name is not sent, and the answer always
//!   matches: the server rejects a schema that it cannot guarantee. Limits that it rejects, such as
//!   `minimum`, are moved into the description. There is no JSON without a schema, and no `seed`;
//!   both are `InvalidRequest` errors.
//! - `prompt_cache` becomes `cache_control` for the whole request: the prompt is cached up to its
//!   last block, and the next call of the conversation reads it.
//! - [`extra`](tower_agent::Settings::extra) is [merged](crate#extra-settings): `top_k`,
//!   `metadata`, `service_tier`, `thinking` and others.
//!
//! # Provider data
//!
//! [`ProviderData`](tower_agent::message::ProviderData) under the key `anthropic` is an object
//! whose fields are added to the block or tool that carries it:
//!
//! - `{"cache_control": {"type": "ephemeral"}}` on a part, a tool or a leading system message is an
//!   explicit breakpoint of the prompt cache. On a message it applies to its last block, such as a
//!   tool result. More than four, that of `prompt_cache` included, are an `InvalidRequest` error.
//! - `{"citations": {"enabled": true}}` on a document.
//! - `{"strict": true}` on a tool guarantees that its arguments match, with limits moved as above.
//!   `{"type": ".."}` makes it a tool that Anthropic defines, such as `web_search_20250305`: only
//!   its name and this data are sent.
//!
//! A [`Part::Provider`](tower_agent::Part::Provider) is sent unchanged as a block.
//!
//! # Responses
//!
//! - Blocks that this library does not know, such as the calls and results of server tools, are
//!   kept as [`Part::Provider`](tower_agent::Part::Provider) in their place.
//! - Input tokens include those read from the cache and written to it.
//! - `refusal` is the finish reason [`ContentFilter`], and `model_context_window_exceeded` is
//!   [`Length`].
//! - `pause_turn` is [`PauseTurn`]: the server interrupted a long turn of its own tools. An agent
//!   calls the model again, with the message so far, as one of its iterations. `container` and
//!   `stop_details` are kept as data of the message; the container is named again when the turn
//!   continues.
//!
//! [`ContentFilter`]: tower_agent::model::FinishReason::ContentFilter
//! [`Length`]: tower_agent::model::FinishReason::Length
//! [`PauseTurn`]: tower_agent::model::FinishReason::PauseTurn

mod messages;

pub(crate) use self::messages::{COUNTED, ServedBy};
pub use self::messages::{Messages, MessagesDecoder, Thinking};
#[cfg(feature = "bedrock")]
pub(crate) use self::messages::{describes, guaranteed};
use crate::transport::{HttpModel, HttpModelBuilder};

/// A model reached by the Anthropic Messages API, over an HTTP service `S`.
pub type Anthropic<S> = HttpModel<Messages, S>;

impl HttpModelBuilder<Messages> {
    /// Sets the form in which a reasoning effort is sent. Defaults to
    /// [`Adaptive`](Thinking::Adaptive).
    pub fn thinking(mut self, thinking: Thinking) -> Self {
        self.protocol_mut().thinking = thinking;
        self
    }
}
