//! Embeddings, models and counts of tokens, as OpenAI and the servers that speak its protocol have
//! them.

use serde::Deserialize;
use serde_json::{Map, Value};

use super::chat::Chat;
use super::responses::Responses;
use crate::json::lenient::{count, object_or_default, or_default};
use crate::json::{self, Object};
use crate::operations::{
    CountTokens, EmbedRequest, EmbedResponse, ListModels, ListedModel, ModelList, TokenCount,
    check_embed, count_of, embeddings_of, prompt_of,
};
use crate::protocol::{Call, Fault, Operation, OperationCall, required};
use tower_agent::error::Result;
use tower_agent::message::Metadata;
use tower_agent::model::ModelRequest;

impl Operation<EmbedRequest> for Chat {
    fn operation(&self, request: &EmbedRequest, model: Option<&str>) -> Result<OperationCall> {
        check_embed(request)?;
        let mut body = Vec::new();
        let mut json = Object::body(&mut body, &request.extra, &["input"]);
        json.field("input", &*request.input)?;
        json.optional("model", request.model.as_deref().or(model))?;
        json.optional("dimensions", request.dimensions)?;
        json.field("encoding_format", "float")?;
        json.end()?;
        Ok(OperationCall::post("/embeddings", body))
    }

    fn result(
        &self,
        request: &EmbedRequest,
        body: &[u8],
        mut metadata: Metadata,
    ) -> Result<EmbedResponse, Fault> {
        let mut answer: OpenAiEmbeddings = json::read(body, "the response")?;
        let mut data = required(answer.data.take(), "embeddings", self, body)?;
        // They may come in any order; without an index, in that of the texts.
        data.sort_by_key(|embedding| embedding.index);
        let embeddings = data.into_iter().map(|embedding| embedding.embedding);
        metadata.model = answer.model;
        let tokens = answer.usage.prompt_tokens;
        embeddings_of(request, embeddings.collect(), tokens, metadata)
    }
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct OpenAiEmbeddings {
    data: Option<Vec<OpenAiEmbedding>>,
    #[serde(deserialize_with = "or_default")]
    model: Option<String>,
    #[serde(deserialize_with = "object_or_default")]
    usage: OpenAiEmbeddingUsage,
}

#[derive(Deserialize)]
struct OpenAiEmbedding {
    #[serde(default, deserialize_with = "or_default")]
    index: Option<u64>,
    embedding: Vec<f32>,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct OpenAiEmbeddingUsage {
    #[serde(deserialize_with = "count")]
    prompt_tokens: u64,
}

impl Operation<ListModels> for Chat {
    fn operation(&self, _: &ListModels, _: Option<&str>) -> Result<OperationCall> {
        Ok(OperationCall::get("/models"))
    }

    fn result(&self, _: &ListModels, body: &[u8], metadata: Metadata) -> Result<ModelList, Fault> {
        // Some servers send the list without an object around it.
        let all: Option<Vec<Map<String, Value>>> = match serde_json::from_slice(body) {
            Ok(list) => Some(list),
            Err(_) => json::read::<OpenAiModels>(body, "the response")?.data,
        };
        let all = required(all, "models", self, body)?;
        Ok(ModelList::new(ListedModel::all(all, "id"), None, metadata))
    }
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct OpenAiModels {
    data: Option<Vec<Map<String, Value>>>,
}

impl Operation<ListModels> for Responses {
    fn operation(&self, request: &ListModels, model: Option<&str>) -> Result<OperationCall> {
        Chat::default().operation(request, model)
    }

    fn result(
        &self,
        request: &ListModels,
        body: &[u8],
        metadata: Metadata,
    ) -> Result<ModelList, Fault> {
        Chat::default().result(request, body, metadata)
    }
}

/// The fields of a request that a count accepts.
const COUNTED: [&str; 11] = [
    "input",
    "model",
    "instructions",
    "tools",
    "tool_choice",
    "parallel_tool_calls",
    "reasoning",
    "text",
    "conversation",
    "previous_response_id",
    "truncation",
];

impl Operation<CountTokens> for Responses {
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
        Ok(OperationCall::post("/responses/input_tokens", body))
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
