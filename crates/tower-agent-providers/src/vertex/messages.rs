use std::borrow::Cow;

use super::location::{self, VertexLocation};
use crate::anthropic::{Messages, MessagesDecoder, ServedBy, Thinking};
use crate::protocol::{Call, Fault, Protocol, with_version};
use tower_agent::error::Result;

/// The Anthropic Messages protocol as Vertex AI serves it.
#[derive(Clone, Debug, Default)]
pub struct VertexMessages {
    messages: Messages,
    location: VertexLocation,
}

impl VertexMessages {
    pub(super) fn set_thinking(&mut self, thinking: Thinking) {
        self.messages.thinking = thinking;
    }
}

impl AsMut<VertexLocation> for VertexMessages {
    fn as_mut(&mut self) -> &mut VertexLocation {
        &mut self.location
    }
}

impl Protocol for VertexMessages {
    type Decoder = MessagesDecoder;

    // The data of one server's messages can be sent to the other.
    const PROVIDER: &'static str = Messages::PROVIDER;
    const TARGET: &'static str = location::TARGET;
    const BASE_URL: &'static str = location::BASE_URL;
    const BASE_URL_VARIABLE: &'static str = location::BASE_URL_VARIABLE;
    const KEY_VARIABLE: &'static str = location::KEY_VARIABLE;
    const USAGE: &'static [&'static str] = Messages::USAGE;

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
        let mut path = self.location.path("anthropic", call.require_model()?)?;
        path.push_str(if call.is_streamed() {
            ":streamRawPredict"
        } else {
            ":rawPredict"
        });
        Ok(path.into())
    }

    fn encode(&self, call: &Call<'_>, body: &mut Vec<u8>) -> Result<()> {
        self.messages.encode_for(ServedBy::Vertex, call, body)
    }

    fn describes_schema(&self, call: &Call<'_>) -> Option<&'static str> {
        self.messages.describes_schema(call)
    }

    fn decoder(&self, call: &Call<'_>) -> MessagesDecoder {
        self.messages.decoder(call)
    }

    fn fault(&self, body: &[u8]) -> Option<Fault> {
        // The gateway in front of the model sends an array of one error.
        self.messages.fault(body)
    }
}
