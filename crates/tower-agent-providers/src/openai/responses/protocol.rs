use std::borrow::Cow;

use super::decoder::ResponsesDecoder;
use super::provider::PROVIDER;
use super::request;
use crate::protocol::{Call, Protocol, with_version};
use tower_agent::error::Result;

/// The protocol of Responses and Open Responses.
#[derive(Clone, Debug, Default)]
#[non_exhaustive]
pub struct Responses {}

impl Protocol for Responses {
    type Decoder = ResponsesDecoder;

    const PROVIDER: &'static str = PROVIDER;
    const BASE_URL: &'static str = "https://api.openai.com/v1";
    const BASE_URL_VARIABLE: &'static str = "OPENAI_BASE_URL";
    const KEY_VARIABLE: &'static str = "OPENAI_API_KEY";
    const USAGE: &'static [&'static str] = &["/usage", "/response/usage"];

    fn base_url<'a>(&self, given: &'a str) -> Cow<'a, str> {
        with_version(given, "/v1")
    }

    fn path<'a>(&self, _: &Call<'a>) -> Result<Cow<'a, str>> {
        Ok("/responses".into())
    }

    fn encode(&self, call: &Call<'_>, body: &mut Vec<u8>) -> Result<()> {
        request::body(call, body)
    }

    fn decoder(&self, call: &Call<'_>) -> ResponsesDecoder {
        ResponsesDecoder::new(call)
    }
}
