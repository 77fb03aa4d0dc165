use std::borrow::Cow;

use super::decoder::ResponsesDecoder;
use super::provider::PROVIDER;
use super::request;
use crate::protocol::{Call, Protocol, with_version};
use crate::transport::HttpModelBuilder;
use tower_agent::error::Result;

/// The protocol of Responses and Open Responses.
#[derive(Clone, Debug, Default)]
#[non_exhaustive]
pub struct Responses {
    encrypted_reasoning: Option<bool>,
}

impl HttpModelBuilder<Responses> {
    /// Sets whether the model's reasoning is requested in encrypted form, to be sent back with the
    /// next call. Models that do not reason reject a request for it: set `false` for one that has a
    /// name of its own, such as a deployment on Azure. Defaults to what the model's name says.
    pub fn encrypted_reasoning(mut self, is_requested: bool) -> Self {
        self.protocol_mut().encrypted_reasoning = Some(is_requested);
        self
    }
}

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
        request::body(call, self.encrypted_reasoning, body)
    }

    fn decoder(&self, call: &Call<'_>) -> ResponsesDecoder {
        ResponsesDecoder::new(call.request())
    }
}
