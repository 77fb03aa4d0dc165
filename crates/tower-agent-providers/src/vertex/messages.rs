use super::protocol::{OnVertex, VertexProtocol};
use crate::anthropic::{Messages, ServedBy, Thinking};
use crate::protocol::Call;
use crate::transport::HttpModelBuilder;
use tower_agent::error::Result;

/// The Anthropic Messages protocol as Vertex AI serves it.
pub type VertexMessages = OnVertex<Messages>;

impl VertexProtocol for Messages {
    const PUBLISHER: &'static str = "anthropic";
    const OPERATIONS: [&'static str; 2] = [":rawPredict", ":streamRawPredict"];

    fn encode_on_vertex(&self, call: &Call<'_>, body: &mut Vec<u8>) -> Result<()> {
        self.encode_for(ServedBy::Vertex, call, body)
    }
}

impl HttpModelBuilder<VertexMessages> {
    /// Sets the form in which a reasoning effort is sent. Defaults to
    /// [`Adaptive`](crate::anthropic::Thinking::Adaptive).
    pub fn thinking(mut self, thinking: Thinking) -> Self {
        self.protocol_mut().protocol.thinking = thinking;
        self
    }
}
