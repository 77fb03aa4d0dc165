use std::borrow::Cow;

use http::{HeaderMap, HeaderName, HeaderValue};

use super::decoder::MessagesReader;
use super::provider::PROVIDER;
use super::served_by::ServedBy;
use super::thinking::Thinking;
use super::{request, response, schema};
use crate::protocol::{AnswerDecoder, Call, Fault, Protocol, schema_of, with_version_always};
use tower_agent::error::Result;

/// The protocol of Anthropic's Messages API.
#[derive(Clone, Debug, Default)]
#[non_exhaustive]
pub struct Messages {
    /// The form in which a reasoning effort is sent.
    pub thinking: Thinking,
}

/// Reads a response of the Messages API.
pub type MessagesDecoder = AnswerDecoder<MessagesReader>;
impl Messages {
    /// Writes the body of a call for a server that is not Anthropic's own.
    pub(crate) fn encode_for(
        &self,
        served_by: ServedBy,
        call: &Call<'_>,
        body: &mut Vec<u8>,
    ) -> Result<()> {
        request::body(call, self.thinking, served_by, body)
    }
}

impl Protocol for Messages {
    type Decoder = MessagesDecoder;

    const PROVIDER: &'static str = PROVIDER;
    const BASE_URL: &'static str = "https://api.anthropic.com/v1";
    const BASE_URL_VARIABLE: &'static str = "ANTHROPIC_BASE_URL";
    const KEY_VARIABLE: &'static str = "ANTHROPIC_API_KEY";

    fn headers(&self) -> HeaderMap {
        let version = HeaderValue::from_static("2023-06-01");
        HeaderMap::from_iter([(HeaderName::from_static("anthropic-version"), version)])
    }

    fn key_header(&self, key: &str) -> (HeaderName, String) {
        (HeaderName::from_static("x-api-key"), key.to_owned())
    }
    const USAGE: &'static [&'static str] = &["/usage", "/message/usage"];

    fn base_url<'a>(&self, given: &'a str) -> Cow<'a, str> {
        with_version_always(given, "/v1")
    }

    fn path<'a>(&self, _: &Call<'a>) -> Result<Cow<'a, str>> {
        Ok("/messages".into())
    }

    fn encode(&self, call: &Call<'_>, body: &mut Vec<u8>) -> Result<()> {
        self.encode_for(ServedBy::Anthropic, call, body)
    }

    fn describes_schema(&self, call: &Call<'_>) -> Option<&'static str> {
        let is_by_tool = schema::answer_tool(call).is_some();
        let reason = schema_of(call).and_then(schema::describes);
        reason.filter(|_| !is_by_tool)
    }

    fn decoder(&self, call: &Call<'_>) -> MessagesDecoder {
        let reader = MessagesReader::new(call.request());
        MessagesDecoder::new(reader, schema::answer_tool(call))
    }

    fn fault(&self, body: &[u8]) -> Option<Fault> {
        response::fault(body)
    }
}
