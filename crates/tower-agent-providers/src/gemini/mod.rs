//! Google's Gemini: the protocols `generateContent` and Interactions.
//!
//! ```text
//! Gemini<S>:             Service<ModelRequest, Response = ModelResponse>
//! GeminiInteractions<S>: Service<ModelRequest, Response = ModelResponse>
//!                    S:  Service<http::Request<RequestBody>, Response = http::Response<_>>
//! ```
//!
//! The key is sent in the header `x-goog-api-key`, never in the URL. It is read from
//! `GEMINI_API_KEY`, or else from `GOOGLE_API_KEY`.
//!
//! ```
//! # #[cfg(feature = "http-client")]
//! # fn main() -> Result<(), tower_agent::BoxError> {
//! use tower_agent::Agent;
//! use tower_agent_providers::gemini::Gemini;
//!
//! let model = Gemini::builder().model("gemini-3-flash-preview").build()?;
//! let agent = Agent::builder(model).instructions("Answer in one line.").build()?;
//! # let _ = agent;
//! # Ok(())
//! # }
//! # #[cfg(not(feature = "http-client"))]
//! # fn main() {}
//! ```
//!
//! # `generateContent`: requests
//!
//! A streamed call is one of `streamGenerateContent`.
//!
//! - Instructions become `systemInstruction`; so do the texts of system messages, after them.
//! - Neighbouring messages of one role become one content. All results of one turn become one
//!   content of `functionResponse`s, in order, directly after the calls, as the protocol requires:
//!   a message between them follows the last result. The text of a result is sent as its `output`,
//!   or as its `error` if the tool failed. Images, audio and documents in a result follow in a user
//!   content after the results of the turn.
//! - Images, audio and documents are sent inline, or by URL or the URI of an uploaded file. Their
//!   media type is sent if it is known. The name of a document is not sent.
//! - A tool call goes back with the model's own arguments, byte for byte, and with its signature.
//!   Gemini 3 rejects a turn whose first call has no signature, which is so if another model made
//!   the call; such a call is sent with the value that Google documents for it,
//!   `skip_thought_signature_validator`.
//! - [`Settings::reasoning_effort`](tower_agent::Settings::reasoning_effort) becomes
//!   `thinkingLevel`. Models before Gemini 3 have none: for them it becomes a `thinkingBudget`,
//!   with the numbers that Google uses for OpenAI's levels: 1024 for `Minimal` and `Low`, 8192 for
//!   `Medium`, 24576 for `High`, 0 for `None`. Later models cannot do without reasoning: `None` is
//!   an error. An [`Other`](tower_agent::model::ReasoningEffort::Other) that is a number is a
//!   budget, also `-1`. Unless it is `None`, summaries of the reasoning are requested.
//! - A schema for the response becomes `responseJsonSchema`. Its name is not sent. Models before
//!   Gemini 3 reject it beside tools: there a [tool](crate#answers-with-a-schema) gives the answer,
//!   or, beside tools of the server, the schema stands in the instructions.
//! - `parallel_tool_calls: false` is an error, since the protocol cannot prevent parallel calls.
//! - The prompt cache needs no field. The name of content that was cached explicitly is sent as
//!   `cachedContent` in [`extra`](tower_agent::Settings::extra).
//! - `extra` is [merged](crate#extra-settings): its `tools`, such as `{"googleSearch": {}}`, are
//!   added to the declared functions.
//! - [`ProviderData`](tower_agent::message::ProviderData) under the key `gemini` is an object whose
//!   fields are added to the part or function declaration that carries it, such as a
//!   `thoughtSignature` or `mediaResolution`. A [`Part::Provider`](tower_agent::Part::Provider) is
//!   sent unchanged as a part. Reasoning is sent back only if it has such data.
//!
//! A model is named as in `gemini-2.5-flash`, or with its resource name, as in `tunedModels/mine`.
//!
//! # `generateContent`: responses
//!
//! - A `thoughtSignature` stays with the part that it came with, also with an empty text. Text
//!   before it in a stream is a part of its own, since a part with a signature must not be merged.
//! - Parts that are neither text, reasoning, a function call nor media, such as executed code,
//!   become a [`Part::Provider`](tower_agent::Part::Provider).
//! - Blocked content, also a blocked prompt, has the finish reason
//!   [`ContentFilter`](tower_agent::model::FinishReason::ContentFilter).
//! - A function call that the model made wrongly, such as `MALFORMED_FUNCTION_CALL`, is an error of
//!   kind [`Provider`](tower_agent::ErrorKind::Provider): a retry may succeed.
//! - What is said about a response (grounding, citations, why it was blocked) is the provider data
//!   of its message. It is not sent back.
//!
//! # Interactions
//!
//! [`GeminiInteractions`] speaks the protocol that Google recommends for new programs. Some models
//! have no other.
//!
//! - Nothing is kept by the server: `store` is `false`, and each request says all. The revision of
//!   the protocol is fixed by the header `api-revision`; `.header("api-revision", "..")` replaces
//!   it.
//! - A message of the user becomes a step `user_input`, and what the model said becomes its steps,
//!   in its order. Images, audio and documents in a tool result are sent with the result. What the
//!   user said between calls and their results follows the last result.
//! - Reasoning is sent back in its place, with its signature. Without one it is left out, since it
//!   is rejected. Models from Gemini 3 on reject a call without reasoning before it, which is so if
//!   another model made the call; such calls are sent after a step `thought` with the value
//!   `skip_thought_signature_validator` in place of a signature.
//! - Steps that this library does not know, such as the calls and results of the provider's own
//!   tools, are kept as [`Part::Provider`](tower_agent::Part::Provider) in their place, and sent
//!   back unchanged.
//! - [`Settings::reasoning_effort`](tower_agent::Settings::reasoning_effort) becomes
//!   `thinking_level`. `None` is an error. Summaries of the reasoning are returned if they are
//!   requested, in [`extra`](tower_agent::Settings::extra): `{"generation_config":
//!   {"thinking_summaries": "auto"}}`.
//! - A schema for the response is sent with its format, without its name. Beside tools, models
//!   before Gemini 3 give the answer as with `generateContent`. `parallel_tool_calls: false` is an
//!   error. The prompt cache needs no field.
//! - `extra` is [merged](crate#extra-settings): its `tools`, such as `{"type": "google_search"}`,
//!   are added to the functions.
//! - [`ProviderData`](tower_agent::message::ProviderData) under the key `gemini_interactions` is an
//!   object whose fields are added to the content, step or function that carries it. In a message
//!   of the user, a `Part::Provider` is sent unchanged as a content.
//! - An answer that was blocked has the finish reason
//!   [`ContentFilter`](tower_agent::model::FinishReason::ContentFilter), and the error is the
//!   provider data of its message. The statuses `incomplete`, `budget_exceeded` and
//!   `requires_continuation` are [`Length`](tower_agent::model::FinishReason::Length).
//!
//! See [`HttpModel`] for streams and errors.

mod fault;
mod generate_content;
mod instructions;
mod interactions;
mod media;
mod model;
mod seed;
mod tokens;

pub use self::generate_content::{GenerateContent, GenerateContentDecoder};
pub use self::interactions::{Interactions, InteractionsDecoder};
use crate::transport::HttpModel;

/// A Gemini model reached by the `generateContent` protocol, over an HTTP service `S`.
pub type Gemini<S> = HttpModel<GenerateContent, S>;

/// A Gemini model reached by the Interactions API, over an HTTP service `S`.
pub type GeminiInteractions<S> = HttpModel<Interactions, S>;
