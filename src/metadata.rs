use std::borrow::Cow;
use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use serde_json::Value;

/// The provider's metadata about a response. It serialises without the unset fields.
///
/// ```
/// use tower_agent::message::Metadata;
///
/// let mut metadata = Metadata::default();
/// metadata.status = Some(429);
/// metadata.rate_limits.insert("x-ratelimit-remaining".into(), "0".into());
/// ```
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
#[non_exhaustive]
pub struct Metadata {
    /// The HTTP status.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub status: Option<u16>,
    /// The provider's id of the request, for use in support requests.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub request_id: Option<String>,
    /// The provider whose server was called, by the name that LiteLLM's table of prices has for it,
    /// such as `groq`. `None` for a server that is not known, such as one of your own.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub provider: Option<Cow<'static, str>>,
    /// The provider's id of the response, such as `chatcmpl-7`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub response_id: Option<String>,
    /// The model that served the call, which may be a dated version of the requested one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub model: Option<String>,
    /// The method and the URL of a call that failed, without query and keys, such as
    /// `POST https://api.openai.com/v1/responses`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub endpoint: Option<String>,
    /// The provider's own code of an error, such as `model_not_found`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub error_code: Option<String>,
    /// The rate-limit headers as sent, by lower-case name.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub rate_limits: BTreeMap<String, String>,
    /// The cost of the call in US dollars, if the provider states it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cost: Option<f64>,
    /// The usage as the provider states it, such as the searches that it made, if it was to be
    /// kept: see the client of the provider.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub stated_usage: Option<Value>,
    /// The number of [tokens written to the cache](crate::Usage::cache_write_tokens) that it keeps
    /// for an hour or longer, if the provider tells them apart.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub long_cache_write_tokens: Option<u64>,
    /// The reason why the schema of the answer stood in the instructions, if it was not sent
    /// as the [response format](crate::Settings::response_format).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub described_schema: Option<String>,
    /// The reason why the schema of the answer was that of a
    /// [tool](crate::model::ResponseFormat::answer_tool), if it was not sent as the [response
    /// format](crate::Settings::response_format).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub answer_tool: Option<String>,
    /// The response ended before the usage that was requested: a stream was cut off after the
    /// message, or the provider rejected a call of the model. The message is complete, but the
    /// [usage](crate::ModelResponse::usage) is not known, and zero.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub is_cut: bool,
}

impl Metadata {
    pub(crate) fn is_empty(&self) -> bool {
        *self == Self::default()
    }
}
