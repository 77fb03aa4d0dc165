use std::borrow::Cow;

use super::decoder::ChatReader;
use super::dialect::Dialect;
use super::dialects::Dialects;
use super::provider::PROVIDER;
use super::rejected_call::rejected_calls;
use super::request;
use crate::protocol::{AnswerDecoder, Call, Protocol, with_version};
use crate::transport::HttpModelBuilder;
use tower_agent::error::Result;

/// The protocol of chat completions.
#[derive(Clone, Debug, Default)]
#[non_exhaustive]
pub struct Chat {
    dialects: Dialects,
}

impl Chat {
    fn dialect(&self, call: &Call<'_>) -> Dialect {
        self.dialects.find(call.host(), call.model())
    }
}

impl HttpModelBuilder<Chat> {
    /// Sets the table of dialects, or one [dialect](super::Dialect) for every call. Defaults to the
    /// [table of known hosts](Dialects).
    pub fn dialects(mut self, dialects: impl Into<Dialects>) -> Self {
        self.protocol_mut().dialects = dialects.into();
        self
    }
}

/// Reads a response of chat completions.
pub type ChatDecoder = AnswerDecoder<ChatReader>;

impl Protocol for Chat {
    type Decoder = ChatDecoder;

    const PROVIDER: &'static str = PROVIDER;
    const BASE_URL: &'static str = "https://api.openai.com/v1";
    const BASE_URL_VARIABLE: &'static str = "OPENAI_BASE_URL";
    const KEY_VARIABLE: &'static str = "OPENAI_API_KEY";
    const USAGE: &'static [&'static str] = &["/usage", "/x_groq/usage"];

    fn base_url<'a>(&self, given: &'a str) -> Cow<'a, str> {
        with_version(given, "/v1")
    }

    fn path<'a>(&self, _: &Call<'a>) -> Result<Cow<'a, str>> {
        Ok("/chat/completions".into())
    }

    fn encode(&self, call: &Call<'_>, body: &mut Vec<u8>) -> Result<()> {
        let dialect = self.dialect(call).with(call.request().settings());
        request::body(call, dialect, body)
    }

    fn describes_schema(&self, call: &Call<'_>) -> Option<&'static str> {
        self.dialect(call).describes_schema(call)
    }

    fn decoder(&self, call: &Call<'_>) -> ChatDecoder {
        let by_tool = self.dialect(call).answer_tool(call);
        ChatDecoder::new(ChatReader::new(call.request()), by_tool)
    }

    fn is_answer(&self, body: &[u8]) -> bool {
        let body = serde_json::from_slice(body).unwrap_or_default();
        !rejected_calls(&body).is_empty()
    }
}
