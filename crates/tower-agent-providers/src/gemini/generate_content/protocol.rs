use std::borrow::Cow;

use http::HeaderName;

use super::super::fault;
use super::super::model::{answer_tool, describes_schema};
use super::decoder::GenerateContentReader;
use super::provider::PROVIDER;
use super::{model_name, request};
use crate::protocol::{AnswerDecoder, Call, Fault, Protocol, with_version};
use tower_agent::error::Result;

/// The protocol of `generateContent`.
#[derive(Clone, Debug, Default)]
#[non_exhaustive]
pub struct GenerateContent {}

/// Reads a response of `generateContent`.
pub type GenerateContentDecoder = AnswerDecoder<GenerateContentReader>;

impl Protocol for GenerateContent {
    type Decoder = GenerateContentDecoder;

    const PROVIDER: &'static str = PROVIDER;
    const BASE_URL: &'static str = "https://generativelanguage.googleapis.com/v1beta";
    const BASE_URL_VARIABLE: &'static str = "GEMINI_BASE_URL";
    const KEY_VARIABLE: &'static str = "GEMINI_API_KEY";
    const OTHER_KEY_VARIABLES: &'static [&'static str] = &["GOOGLE_API_KEY"];

    fn key_header(&self, key: &str) -> (HeaderName, String) {
        (HeaderName::from_static("x-goog-api-key"), key.to_owned())
    }
    const USAGE: &'static [&'static str] = &["/usageMetadata"];

    fn base_url<'a>(&self, given: &'a str) -> Cow<'a, str> {
        with_version(given, "/v1beta")
    }

    fn path<'a>(&self, call: &Call<'a>) -> Result<Cow<'a, str>> {
        let model = model_name::path(call.require_model()?)?;
        Ok(if call.is_streamed() {
            format!("{model}:streamGenerateContent?alt=sse").into()
        } else {
            format!("{model}:generateContent").into()
        })
    }

    fn encode(&self, call: &Call<'_>, body: &mut Vec<u8>) -> Result<()> {
        request::body(call, body)
    }

    fn describes_schema(&self, call: &Call<'_>) -> Option<&'static str> {
        describes_schema(call)
    }

    fn decoder(&self, call: &Call<'_>) -> GenerateContentDecoder {
        let reader = GenerateContentReader::new(call.request());
        GenerateContentDecoder::new(reader, answer_tool(call))
    }

    fn fault(&self, body: &[u8]) -> Option<Fault> {
        fault::read(body)
    }
}
