//! Models and counts of tokens of Anthropic.

use serde::Deserialize;
use serde_json::{Map, Value};

use super::protocol::Messages;
use crate::json;
use crate::json::lenient::or_default;
use crate::operations::{
    CountTokens, ListModels, ListedModel, ModelList, TokenCount, count_of, prompt_of,
};
use crate::protocol::{Call, Fault, Operation, OperationCall, escaped, required};
use tower_agent::error::Result;
use tower_agent::message::Metadata;
use tower_agent::model::ModelRequest;

/// The fields of a request that a count accepts.
pub(crate) const COUNTED: [&str; 9] = [
    // Sent to clouds alone.
    "anthropic_version",
    "messages",
    "model",
    "system",
    "tools",
    "tool_choice",
    "thinking",
    "output_config",
    "mcp_servers",
];

impl Operation<CountTokens> for Messages {
    fn with_prompt(
        &self,
        request: &CountTokens,
        prompt: &dyn Fn(&ModelRequest) -> Option<ModelRequest>,
    ) -> Option<CountTokens> {
        prompt(request.request()).map(CountTokens::new)
    }

    fn operation(&self, request: &CountTokens, model: Option<&str>) -> Result<OperationCall> {
        let call = Call::new(request.request()).with_model(model);
        let prompt = prompt_of(self, &call, &COUNTED)?;
        let body = serde_json::to_vec(&prompt)?;
        Ok(OperationCall::post("/messages/count_tokens", body))
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

impl Operation<ListModels> for Messages {
    fn operation(&self, request: &ListModels, _: Option<&str>) -> Result<OperationCall> {
        let mut path = String::from("/models?limit=1000");
        if let Some(page) = &request.page {
            path.push_str("&after_id=");
            path.push_str(&escaped(page));
        }
        Ok(OperationCall::get(path))
    }

    fn result(&self, _: &ListModels, body: &[u8], metadata: Metadata) -> Result<ModelList, Fault> {
        let answer: AnthropicModels = json::read(body, "the response")?;
        let all = required(answer.data, "models", self, body)?;
        let next = answer.last_id.filter(|_| answer.has_more);
        Ok(ModelList::new(ListedModel::all(all, "id"), next, metadata))
    }
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct AnthropicModels {
    data: Option<Vec<Map<String, Value>>>,
    #[serde(deserialize_with = "or_default")]
    has_more: bool,
    #[serde(deserialize_with = "or_default")]
    last_id: Option<String>,
}
