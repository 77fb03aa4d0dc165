//! Counts of tokens of Bedrock.

use serde::Deserialize;
use serde_json::{Map, Value, json};

use super::super::model_path::model_path;
use super::protocol::Converse;
use crate::json;
use crate::json::lenient::count;
use crate::operations::{CountTokens, TokenCount};
use crate::protocol::{Call, Fault, Operation, OperationCall, Protocol, required};
use tower_agent::error::Result;
use tower_agent::message::Metadata;

/// The fields of a request that a count accepts.
const COUNTED: [&str; 4] = [
    "messages",
    "system",
    "toolConfig",
    "additionalModelRequestFields",
];

impl Operation<CountTokens> for Converse {
    fn operation(&self, request: &CountTokens, model: Option<&str>) -> Result<OperationCall> {
        let call = Call::new(request.request()).with_model(model);
        let path = model_path(&call, "count-tokens")?;
        let mut prompt = Vec::new();
        self.encode(&call, &mut prompt)?;
        let mut prompt: Map<String, Value> = serde_json::from_slice(&prompt)?;
        prompt.retain(|name, _| COUNTED.contains(&&**name));
        let body = json!({ "input": { "converse": prompt } });
        Ok(OperationCall::post(path, body.to_string()))
    }

    fn result(
        &self,
        _: &CountTokens,
        body: &[u8],
        metadata: Metadata,
    ) -> Result<TokenCount, Fault> {
        let answer: ConverseCount = json::read(body, "the response")?;
        let tokens = required(answer.input_tokens, "count", self, body)?;
        Ok(TokenCount::new(tokens, metadata))
    }
}

#[derive(Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct ConverseCount {
    #[serde(deserialize_with = "count")]
    input_tokens: Option<u64>,
}
