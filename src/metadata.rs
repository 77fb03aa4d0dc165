use std::borrow::Cow;
use std::collections::BTreeMap;
use std::sync::Arc;

use serde::{Deserialize, Deserializer, Serialize, Serializer};
use serde_json::Value;

/// The provider's metadata about a response. Cloning is O(1).
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Metadata(Option<Arc<MetadataFields>>);

#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
struct MetadataFields {
    #[serde(skip_serializing_if = "Option::is_none")]
    status: Option<u16>,
    #[serde(skip_serializing_if = "Option::is_none")]
    request_id: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    provider: Option<Cow<'static, str>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    response_id: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    model: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    endpoint: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    error_code: Option<String>,
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    rate_limits: BTreeMap<String, String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    cost: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    stated_usage: Option<Value>,
    #[serde(skip_serializing_if = "Option::is_none")]
    long_cache_write_tokens: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    described_schema: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    answer_tool: Option<String>,
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    is_cut: bool,
}

impl Metadata {
    /// Returns the HTTP status.
    #[must_use]
    pub fn status(&self) -> Option<u16> {
        self.0.as_ref()?.status
    }

    /// Returns the provider's id of the request, for use in support requests.
    #[must_use]
    pub fn request_id(&self) -> Option<&str> {
        self.0.as_ref()?.request_id.as_deref()
    }

    /// Returns the provider whose server was called, by the name that LiteLLM's table of prices has for
    /// it, such as `groq`. `None` for a server that is not known, such as one of your own.
    #[must_use]
    pub fn provider(&self) -> Option<&str> {
        self.0.as_ref()?.provider.as_deref()
    }

    /// Returns the provider's id of the response, such as `chatcmpl-7`.
    #[must_use]
    pub fn response_id(&self) -> Option<&str> {
        self.0.as_ref()?.response_id.as_deref()
    }

    /// Returns the model that served the call, which may be a dated version of the requested one.
    #[must_use]
    pub fn model(&self) -> Option<&str> {
        self.0.as_ref()?.model.as_deref()
    }

    /// Returns the method and the URL of a call that failed, without query and keys, such as
    /// `POST https://api.openai.com/v1/responses`.
    #[must_use]
    pub fn endpoint(&self) -> Option<&str> {
        self.0.as_ref()?.endpoint.as_deref()
    }

    /// Returns the provider's own code of an error, such as `model_not_found`.
    #[must_use]
    pub fn error_code(&self) -> Option<&str> {
        self.0.as_ref()?.error_code.as_deref()
    }

    /// Returns the rate-limit headers as sent, by lower-case name.
    pub fn rate_limits(&self) -> impl Iterator<Item = (&str, &str)> {
        self.0
            .iter()
            .flat_map(|fields| &fields.rate_limits)
            .map(|(name, value)| (name.as_str(), value.as_str()))
    }

    /// Returns the cost of the call in US dollars, if the provider states it.
    #[must_use]
    pub fn cost(&self) -> Option<f64> {
        self.0.as_ref()?.cost
    }

    /// Returns the usage as the provider states it, such as the searches that it made, if it was to be
    /// kept: see the client of the provider.
    #[must_use]
    pub fn stated_usage(&self) -> Option<&Value> {
        self.0.as_ref()?.stated_usage.as_ref()
    }

    /// Returns how many of the [tokens written to the cache](crate::Usage::cache_write_tokens) it keeps for
    /// an hour or longer, if the provider tells them apart.
    #[must_use]
    pub fn long_cache_write_tokens(&self) -> Option<u64> {
        self.0.as_ref()?.long_cache_write_tokens
    }

    /// Returns why the schema of the answer stood in the instructions, if it was not sent as the
    /// [response format](crate::Settings::response_format).
    #[must_use]
    pub fn described_schema(&self) -> Option<&str> {
        self.0.as_ref()?.described_schema.as_deref()
    }

    /// Returns why the schema of the answer was that of a
    /// [tool](crate::model::ResponseFormat::answer_tool), if it was not sent as the
    /// [response format](crate::Settings::response_format).
    #[must_use]
    pub fn answer_tool(&self) -> Option<&str> {
        self.0.as_ref()?.answer_tool.as_deref()
    }

    /// Returns whether the response ended before the usage that was requested: a stream was cut off after
    /// the message, or the provider rejected a call of the model. The message is complete, but the
    /// [usage](crate::ModelResponse::usage) is not known, and zero.
    #[must_use]
    pub fn is_cut(&self) -> bool {
        self.0.as_ref().is_some_and(|fields| fields.is_cut)
    }

    /// Sets the HTTP status.
    #[must_use]
    pub fn with_status(self, status: u16) -> Self {
        self.update(|fields| fields.status = Some(status))
    }

    /// Sets the provider's id of the request.
    #[must_use]
    pub fn with_request_id(self, id: impl Into<String>) -> Self {
        self.update(|fields| fields.request_id = Some(id.into()))
    }

    /// Sets the provider whose server was called.
    #[must_use]
    pub fn with_provider(self, name: impl Into<Cow<'static, str>>) -> Self {
        self.update(|fields| fields.provider = Some(name.into()))
    }

    /// Sets the provider's id of the response.
    #[must_use]
    pub fn with_response_id(self, id: impl Into<String>) -> Self {
        self.update(|fields| fields.response_id = Some(id.into()))
    }

    /// Sets the model that served the call.
    #[must_use]
    pub fn with_model(self, model: impl Into<String>) -> Self {
        self.update(|fields| fields.model = Some(model.into()))
    }

    /// Sets the method and the URL of a call that failed, without query and keys.
    #[must_use]
    pub fn with_endpoint(self, endpoint: impl Into<String>) -> Self {
        self.update(|fields| fields.endpoint = Some(endpoint.into()))
    }

    /// Sets the provider's own code of an error.
    #[must_use]
    pub fn with_error_code(self, code: impl Into<String>) -> Self {
        self.update(|fields| fields.error_code = Some(code.into()))
    }

    /// Adds a rate-limit header.
    #[must_use]
    pub fn with_rate_limit(self, name: impl Into<String>, value: impl Into<String>) -> Self {
        self.update(|fields| {
            fields.rate_limits.insert(name.into(), value.into());
        })
    }

    /// Sets the cost of the call in US dollars, as the provider states it.
    #[must_use]
    pub fn with_cost(self, cost: f64) -> Self {
        self.update(|fields| fields.cost = Some(cost))
    }

    /// Sets the usage as the provider states it.
    #[must_use]
    pub fn with_stated_usage(self, usage: Value) -> Self {
        self.update(|fields| fields.stated_usage = Some(usage))
    }

    /// Sets how many of the tokens written to the cache it keeps for an hour or longer.
    #[must_use]
    pub fn with_long_cache_write_tokens(self, tokens: u64) -> Self {
        self.update(|fields| fields.long_cache_write_tokens = Some(tokens))
    }

    /// Sets why the schema of the answer stood in the instructions.
    #[must_use]
    pub fn with_described_schema(self, reason: impl Into<String>) -> Self {
        self.update(|fields| fields.described_schema = Some(reason.into()))
    }

    /// Sets why the schema of the answer was that of a tool.
    #[must_use]
    pub fn with_answer_tool(self, reason: impl Into<String>) -> Self {
        self.update(|fields| fields.answer_tool = Some(reason.into()))
    }

    /// Sets whether the response ended before the usage that was requested.
    #[must_use]
    pub fn with_cut(self, is_cut: bool) -> Self {
        // Without data for what is the rule.
        if is_cut == self.is_cut() {
            return self;
        }
        self.update(|fields| fields.is_cut = is_cut)
    }

    /// Returns whether there is no data.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.0
            .as_ref()
            .is_none_or(|fields| **fields == MetadataFields::default())
    }

    fn update(mut self, change: impl FnOnce(&mut MetadataFields)) -> Self {
        // Copied only if shared: a builder chain on a fresh value changes it in place.
        change(Arc::make_mut(self.0.get_or_insert_default()));
        self
    }
}

impl Serialize for Metadata {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match &self.0 {
            Some(fields) => fields.serialize(serializer),
            None => MetadataFields::default().serialize(serializer),
        }
    }
}

impl<'de> Deserialize<'de> for Metadata {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let fields = MetadataFields::deserialize(deserializer)?;
        // Empty data stays `None`, so that values which were stored and read compare equal.
        Ok(Self(
            (fields != MetadataFields::default()).then(|| Arc::new(fields)),
        ))
    }
}
