use std::borrow::Cow;

use super::location::{self, VertexLocation};
use crate::protocol::{Call, Fault, Protocol, with_version};
use tower_agent::error::Result;

/// A protocol as Vertex AI serves it, such as
/// [`generateContent`](crate::vertex::VertexGenerateContent).
#[derive(Clone, Debug, Default)]
pub struct OnVertex<P> {
    pub(super) protocol: P,
    location: VertexLocation,
}

/// The differences of a protocol on Vertex AI.
pub trait VertexProtocol: Protocol {
    /// The publisher of the models that are named without one.
    const PUBLISHER: &'static str;

    /// The end of the path, after the model, of a call and of a streamed one.
    const OPERATIONS: [&'static str; 2];

    /// Appends the body of a call.
    fn encode_on_vertex(&self, call: &Call<'_>, body: &mut Vec<u8>) -> Result<()>;
}

impl<P: VertexProtocol> OnVertex<P> {
    /// Returns the path of a model, or of what stands in its place, before the operation.
    pub(super) fn model_path(&self, model: &str) -> Result<String> {
        self.location.path(P::PUBLISHER, model)
    }
}

impl<P> AsMut<VertexLocation> for OnVertex<P> {
    fn as_mut(&mut self) -> &mut VertexLocation {
        &mut self.location
    }
}

impl<P: VertexProtocol> Protocol for OnVertex<P> {
    type Decoder = P::Decoder;

    // The data of one server's messages can be sent to the other.
    const PROVIDER: &'static str = P::PROVIDER;
    const TARGET: &'static str = location::TARGET;
    const BASE_URL: &'static str = location::BASE_URL;
    const BASE_URL_VARIABLE: &'static str = location::BASE_URL_VARIABLE;
    const KEY_VARIABLE: &'static str = location::KEY_VARIABLE;
    const USAGE: &'static [&'static str] = P::USAGE;

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
        let mut path = self.model_path(call.require_model()?)?;
        let [plain, streamed] = P::OPERATIONS;
        path.push_str(if call.is_streamed() { streamed } else { plain });
        Ok(path.into())
    }

    fn encode(&self, call: &Call<'_>, body: &mut Vec<u8>) -> Result<()> {
        self.protocol.encode_on_vertex(call, body)
    }

    fn describes_schema(&self, call: &Call<'_>) -> Option<&'static str> {
        self.protocol.describes_schema(call)
    }

    fn decoder(&self, call: &Call<'_>) -> P::Decoder {
        self.protocol.decoder(call)
    }

    fn fault(&self, body: &[u8]) -> Option<Fault> {
        self.protocol.fault(body)
    }
}
