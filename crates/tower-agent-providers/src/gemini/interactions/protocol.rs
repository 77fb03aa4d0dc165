use std::borrow::Cow;

use http::{HeaderMap, HeaderName, HeaderValue};

use super::super::fault;
use super::super::model::{answer_tool, describes_schema};
use super::decoder::InteractionsReader;
use super::provider::PROVIDER;
use super::request;
use crate::protocol::{AnswerDecoder, Call, Fault, Protocol, with_version};
use tower_agent::error::Result;

/// The protocol of the Interactions API.
#[derive(Clone, Debug, Default)]
#[non_exhaustive]
pub struct Interactions {}

/// The revision that this module speaks.
const REVISION: (HeaderName, HeaderValue) = (
    HeaderName::from_static("api-revision"),
    HeaderValue::from_static("2026-05-20"),
);

/// Reads a response of the Interactions API.
pub type InteractionsDecoder = AnswerDecoder<InteractionsReader>;

impl Protocol for Interactions {
    type Decoder = InteractionsDecoder;

    const PROVIDER: &'static str = PROVIDER;
    const BASE_URL: &'static str = "https://generativelanguage.googleapis.com/v1beta";
    const BASE_URL_VARIABLE: &'static str = "GEMINI_BASE_URL";
    const KEY_VARIABLE: &'static str = "GEMINI_API_KEY";
    const OTHER_KEY_VARIABLES: &'static [&'static str] = &["GOOGLE_API_KEY"];

    fn headers(&self) -> HeaderMap {
        HeaderMap::from_iter([REVISION])
    }

    fn key_header(&self, key: &str) -> (HeaderName, String) {
        (HeaderName::from_static("x-goog-api-key"), key.to_owned())
    }
    const USAGE: &'static [&'static str] = &["/usage", "/interaction/usage"];

    fn base_url<'a>(&self, given: &'a str) -> Cow<'a, str> {
        with_version(given, "/v1beta")
    }

    fn path<'a>(&self, _: &Call<'a>) -> Result<Cow<'a, str>> {
        Ok("/interactions".into())
    }

    fn encode(&self, call: &Call<'_>, body: &mut Vec<u8>) -> Result<()> {
        request::body(call, body)
    }

    fn describes_schema(&self, call: &Call<'_>) -> Option<&'static str> {
        describes_schema(call)
    }

    fn decoder(&self, call: &Call<'_>) -> InteractionsDecoder {
        let reader = InteractionsReader::new(call.request());
        InteractionsDecoder::new(reader, answer_tool(call))
    }

    fn fault(&self, body: &[u8]) -> Option<Fault> {
        fault::read(body)
    }
}
