use std::borrow::Cow;

use super::location::{self, VertexLocation};
use crate::gemini::{GenerateContent, GenerateContentDecoder};
use crate::protocol::{Call, Fault, Protocol, with_version};
use tower_agent::error::Result;

/// The protocol of `generateContent` as Vertex AI serves it.
#[derive(Clone, Debug, Default)]
pub struct VertexGenerateContent {
    generate_content: GenerateContent,
    location: VertexLocation,
}

impl AsMut<VertexLocation> for VertexGenerateContent {
    fn as_mut(&mut self) -> &mut VertexLocation {
        &mut self.location
    }
}

impl Protocol for VertexGenerateContent {
    type Decoder = GenerateContentDecoder;

    // The data of one server's messages can be sent to the other.
    const PROVIDER: &'static str = GenerateContent::PROVIDER;
    const TARGET: &'static str = location::TARGET;
    const BASE_URL: &'static str = location::BASE_URL;
    const BASE_URL_VARIABLE: &'static str = location::BASE_URL_VARIABLE;
    const KEY_VARIABLE: &'static str = location::KEY_VARIABLE;
    const USAGE: &'static [&'static str] = GenerateContent::USAGE;

    fn complete(&mut self, environment: &dyn Fn(&str) -> Option<String>) {
        self.location.complete(environment);
    }

    fn default_base_url(&self) -> Result<Cow<'static, str>, String> {
        self.location.base_url()
    }

    fn base_url<'a>(&self, given: &'a str) -> Cow<'a, str> {
        with_version(given, "/v1")
    }

    fn path<'a>(&self, call: &Call<'a>) -> Result<Cow<'a, str>> {
        let mut path = self.location.path("google", call.require_model()?)?;
        path.push_str(if call.is_streamed() {
            ":streamGenerateContent?alt=sse"
        } else {
            ":generateContent"
        });
        Ok(path.into())
    }

    fn encode(&self, call: &Call<'_>, body: &mut Vec<u8>) -> Result<()> {
        self.generate_content.encode(call, body)
    }

    fn describes_schema(&self, call: &Call<'_>) -> Option<&'static str> {
        self.generate_content.describes_schema(call)
    }

    fn decoder(&self, call: &Call<'_>) -> GenerateContentDecoder {
        self.generate_content.decoder(call)
    }

    fn fault(&self, body: &[u8]) -> Option<Fault> {
        self.generate_content.fault(body)
    }
}
