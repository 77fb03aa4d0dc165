//! Counts of tokens of Bedrock.

use serde_json::json;

use super::super::model_path::model_path;
use super::protocol::Converse;
use crate::operations::{CountTokens, TokenCount, count_of, prompt_of};
use crate::protocol::{Call, Fault, Operation, OperationCall};
use tower_agent::error::Result;
use tower_agent::message::Metadata;
use tower_agent::model::ModelRequest;

/// The fields of a request that a count accepts.
const COUNTED: [&str; 4] = [
    "messages",
    "system",
    "toolConfig",
    "additionalModelRequestFields",
];

impl Operation<CountTokens> for Converse {
    fn with_prompt(
        &self,
        request: &CountTokens,
        prompt: &dyn Fn(&ModelRequest) -> Option<ModelRequest>,
    ) -> Option<CountTokens> {
        prompt(request.request()).map(CountTokens::new)
    }

    fn operation(&self, request: &CountTokens, model: Option<&str>) -> Result<OperationCall> {
        let call = Call::new(request.request()).with_model(model);
        let path = model_path(&call, "count-tokens")?;
        let prompt = prompt_of(self, &call, &COUNTED)?;
        let body = json!({ "input": { "converse": prompt } });
        Ok(OperationCall::post(path, body.to_string()))
    }

    fn result(
        &self,
        _: &CountTokens,
        body: &[u8],
        metadata: Metadata,
    ) -> Result<TokenCount, Fault> {
        count_of("inputTokens", self, body, metadata)
    }
}
