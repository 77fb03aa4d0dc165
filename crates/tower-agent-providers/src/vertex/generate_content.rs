use super::protocol::{OnVertex, VertexProtocol};
use crate::gemini::GenerateContent;
use crate::protocol::{Call, Protocol};
use tower_agent::error::Result;

/// The protocol of `generateContent` as Vertex AI serves it.
pub type VertexGenerateContent = OnVertex<GenerateContent>;

impl VertexProtocol for GenerateContent {
    const PUBLISHER: &'static str = "google";
    const OPERATIONS: [&'static str; 2] = [":generateContent", ":streamGenerateContent?alt=sse"];

    fn encode_on_vertex(&self, call: &Call<'_>, body: &mut Vec<u8>) -> Result<()> {
        self.encode(call, body)
    }
}
