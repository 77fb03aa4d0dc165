//! Embeddings and models of Ollama.

use serde::Deserialize;
use serde_json::{Map, Value};

use super::chat::Chat;
use crate::json::lenient::{count, or_default};
use crate::json::{self, Object};
use crate::operations::{
    EmbedRequest, EmbedResponse, ListModels, ListedModel, ModelList, check_embed, embeddings_of,
};
use crate::protocol::{Fault, Operation, OperationCall, required};
use tower_agent::error::Result;
use tower_agent::message::Metadata;

impl Operation<EmbedRequest> for Chat {
    fn operation(&self, request: &EmbedRequest, model: Option<&str>) -> Result<OperationCall> {
        check_embed(request)?;
        let mut body = Vec::new();
        let mut json = Object::body(&mut body, &request.extra, &["input"]);
        json.field("input", &*request.input)?;
        json.optional("model", request.model.as_deref().or(model))?;
        json.optional("dimensions", request.dimensions)?;
        json.end()?;
        Ok(OperationCall::post("/api/embed", body))
    }

    fn result(
        &self,
        request: &EmbedRequest,
        body: &[u8],
        mut metadata: Metadata,
    ) -> Result<EmbedResponse, Fault> {
        let answer: OllamaEmbeddings = json::read(body, "the response")?;
        let embeddings = required(answer.embeddings, "embeddings", self, body)?;
        metadata.model = answer.model;
        embeddings_of(request, embeddings, answer.prompt_eval_count, metadata)
    }
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct OllamaEmbeddings {
    embeddings: Option<Vec<Vec<f32>>>,
    #[serde(deserialize_with = "or_default")]
    model: Option<String>,
    #[serde(deserialize_with = "count")]
    prompt_eval_count: u64,
}

impl Operation<ListModels> for Chat {
    fn operation(&self, _: &ListModels, _: Option<&str>) -> Result<OperationCall> {
        Ok(OperationCall::get("/api/tags"))
    }

    fn result(&self, _: &ListModels, body: &[u8], metadata: Metadata) -> Result<ModelList, Fault> {
        let answer: OllamaModels = json::read(body, "the response")?;
        let all = required(answer.models, "models", self, body)?;
        Ok(ModelList::new(
            ListedModel::all(all, "name"),
            None,
            metadata,
        ))
    }
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct OllamaModels {
    models: Option<Vec<Map<String, Value>>>,
}
