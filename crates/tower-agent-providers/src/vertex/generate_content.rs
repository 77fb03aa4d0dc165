use super::protocol::{OnVertex, VertexProtocol};
use crate::gemini::GenerateContent;
use crate::operations::{CountTokens, TokenCount, count_of, prompt_of};
use crate::protocol::{Call, Fault, Operation, OperationCall, Protocol};
use tower_agent::error::Result;
use tower_agent::message::Metadata;
use tower_agent::model::ModelRequest;

/// The protocol of `generateContent` as Vertex AI serves it.
pub type VertexGenerateContent = OnVertex<GenerateContent>;

impl VertexProtocol for GenerateContent {
    const PUBLISHER: &'static str = "google";
    const OPERATIONS: [&'static str; 2] = [":generateContent", ":streamGenerateContent?alt=sse"];

    fn encode_on_vertex(&self, call: &Call<'_>, body: &mut Vec<u8>) -> Result<()> {
        self.encode(call, body)
    }
}

/// The fields of a request that a count accepts.
const COUNTED: [&str; 4] = ["contents", "systemInstruction", "tools", "generationConfig"];

impl Operation<CountTokens> for VertexGenerateContent {
    fn with_prompt(
        &self,
        request: &CountTokens,
        prompt: &dyn Fn(&ModelRequest) -> Option<ModelRequest>,
    ) -> Option<CountTokens> {
        prompt(request.request()).map(CountTokens::new)
    }

    fn operation(&self, request: &CountTokens, model: Option<&str>) -> Result<OperationCall> {
        let call = Call::new(request.request()).with_model(model);
        let path = self.model_path(call.require_model()?)?;
        let prompt = prompt_of(self, &call, &COUNTED)?;
        let body = serde_json::to_vec(&prompt)?;
        Ok(OperationCall::post(format!("{path}:countTokens"), body))
    }

    fn result(
        &self,
        _: &CountTokens,
        body: &[u8],
        metadata: Metadata,
    ) -> Result<TokenCount, Fault> {
        count_of("totalTokens", self, body, metadata)
    }
}
