use super::protocol::{OnVertex, VertexProtocol};
use crate::anthropic::{COUNTED, Messages, ServedBy, Thinking};
use crate::operations::{CountTokens, TokenCount, count_of, prompt_of};
use crate::protocol::{Call, Fault, Operation, OperationCall};
use crate::transport::HttpModelBuilder;
use tower_agent::error::Result;
use tower_agent::message::Metadata;
use tower_agent::model::ModelRequest;

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

impl Operation<CountTokens> for VertexMessages {
    fn with_prompt(
        &self,
        request: &CountTokens,
        prompt: &dyn Fn(&ModelRequest) -> Option<ModelRequest>,
    ) -> Option<CountTokens> {
        prompt(request.request()).map(CountTokens::new)
    }

    fn operation(&self, request: &CountTokens, model: Option<&str>) -> Result<OperationCall> {
        let call = Call::new(request.request()).with_model(model);
        let mut prompt = prompt_of(self, &call, &COUNTED)?;
        // The path is the same for all models.
        prompt.insert("model".into(), call.require_model()?.into());
        let path = self.model_path("count-tokens")?;
        let body = serde_json::to_vec(&prompt)?;
        Ok(OperationCall::post(format!("{path}:rawPredict"), body))
    }

    fn result(
        &self,
        _: &CountTokens,
        body: &[u8],
        metadata: Metadata,
    ) -> Result<TokenCount, Fault> {
        count_of("input_tokens", self, body, metadata)
    }
}
