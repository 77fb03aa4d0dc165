use std::borrow::Cow;

use super::decoder::ChatDecoder;
use super::provider::PROVIDER;
use super::{fault, host, request};
use crate::protocol::{Call, Fault, Framing, Protocol};
use crate::transport::HttpModelBuilder;
use tower_agent::error::Result;

/// The protocol of Ollama's `/api/chat`.
#[derive(Clone, Debug, Default)]
#[non_exhaustive]
pub struct Chat {
    num_ctx: Option<u32>,
}

impl HttpModelBuilder<Chat> {
    /// Sets the size of the context in tokens, of input and output together. A `num_ctx` in the
    /// `options` of a request's extra fields takes precedence.
    ///
    /// Defaults to the server's setting, which is often only 4096.
    pub fn num_ctx(mut self, tokens: u32) -> Self {
        self.protocol_mut().num_ctx = Some(tokens);
        self
    }
}

impl Protocol for Chat {
    type Decoder = ChatDecoder;

    const PROVIDER: &'static str = PROVIDER;
    const BASE_URL: &'static str = "http://127.0.0.1:11434";
    const BASE_URL_VARIABLE: &'static str = "OLLAMA_HOST";
    const KEY_VARIABLE: &'static str = "OLLAMA_API_KEY";
    const FRAMING: Framing = Framing::Lines;
    // Its counts stand among the other fields of a response, and each of them is read.
    const USAGE: &'static [&'static str] = &[];

    fn base_url<'a>(&self, given: &'a str) -> Cow<'a, str> {
        host::url(given).into()
    }

    fn path<'a>(&self, _: &Call<'a>) -> Result<Cow<'a, str>> {
        Ok("/api/chat".into())
    }

    fn encode(&self, call: &Call<'_>, body: &mut Vec<u8>) -> Result<()> {
        request::body(call, self.num_ctx, body)
    }

    fn decoder(&self, call: &Call<'_>) -> ChatDecoder {
        ChatDecoder::new(call.request())
    }

    fn fault(&self, body: &[u8]) -> Option<Fault> {
        Fault::from_json(body).map(fault::explained)
    }
}
