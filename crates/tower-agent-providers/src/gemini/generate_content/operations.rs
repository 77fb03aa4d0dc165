//! Embeddings, models and counts of tokens of Gemini.

use serde::Deserialize;
use serde_json::{Map, Value, json};

use super::model_name;
use super::protocol::GenerateContent;
use crate::json::lenient::{count, object_or_default, or_default};
use crate::json::{self, Object};
use crate::operations::{
    CountTokens, EmbedRequest, EmbedResponse, ListModels, ListedModel, ModelList, TokenCount,
    body_of, check_embed, count_of, embeddings_of,
};
use crate::protocol::{Call, Fault, Operation, OperationCall, escaped, required};
use tower_agent::error::{Error, ErrorKind, Result};
use tower_agent::message::Metadata;
use tower_agent::model::ModelRequest;

impl Operation<EmbedRequest> for GenerateContent {
    fn operation(&self, request: &EmbedRequest, model: Option<&str>) -> Result<OperationCall> {
        check_embed(request)?;
        let Some(model) = request.model.as_deref().or(model) else {
            let message = "no model name: set it on the client or in the request";
            return Err(Error::new(ErrorKind::InvalidRequest, message));
        };
        let path = model_name::path(model)?;
        // The resource name, which each of the requests repeats.
        let name = path.trim_start_matches('/');
        let mut body = Vec::new();
        let mut json = Object::new(&mut body);
        json.array("requests", |items| {
            for text in &*request.input {
                items.item_with(|out| {
                    let mut json = Object::body(out, &request.extra, &["content"]);
                    json.field("model", name)?;
                    json.field("content", EmbeddedContent::new(text))?;
                    json.optional("outputDimensionality", request.dimensions)?;
                    json.end()
                })?;
            }
            Ok(())
        })?;
        json.end()?;
        Ok(OperationCall::post(
            format!("{path}:batchEmbedContents"),
            body,
        ))
    }

    fn result(
        &self,
        request: &EmbedRequest,
        body: &[u8],
        metadata: Metadata,
    ) -> Result<EmbedResponse, Fault> {
        let answer: GeminiEmbeddings = json::read(body, "the response")?;
        let embeddings = required(answer.embeddings, "embeddings", self, body)?;
        let embeddings = embeddings.into_iter().map(|embedding| embedding.values);
        let tokens = answer.usage_metadata.prompt_token_count;
        embeddings_of(request, embeddings.collect(), tokens, metadata)
    }
}

#[derive(serde::Serialize)]
struct EmbeddedContent<'a> {
    parts: [TextPart<'a>; 1],
}

#[derive(serde::Serialize)]
struct TextPart<'a> {
    text: &'a str,
}

impl<'a> EmbeddedContent<'a> {
    fn new(text: &'a str) -> Self {
        Self {
            parts: [TextPart { text }],
        }
    }
}

#[derive(Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct GeminiEmbeddings {
    embeddings: Option<Vec<GeminiEmbedding>>,
    #[serde(deserialize_with = "object_or_default")]
    usage_metadata: GeminiEmbeddingUsage,
}

#[derive(Deserialize)]
struct GeminiEmbedding {
    values: Vec<f32>,
}

#[derive(Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct GeminiEmbeddingUsage {
    #[serde(deserialize_with = "count")]
    prompt_token_count: u64,
}

impl Operation<ListModels> for GenerateContent {
    fn operation(&self, request: &ListModels, _: Option<&str>) -> Result<OperationCall> {
        let mut path = String::from("/models?pageSize=1000");
        if let Some(page) = &request.page {
            path.push_str("&pageToken=");
            path.push_str(&escaped(page));
        }
        Ok(OperationCall::get(path))
    }

    fn result(&self, _: &ListModels, body: &[u8], metadata: Metadata) -> Result<ModelList, Fault> {
        let answer: GeminiModels = json::read(body, "the response")?;
        let all = required(answer.models, "models", self, body)?;
        let mut models = ListedModel::all(all, "name");
        for model in &mut models {
            // The name by which a model is called has no folder.
            if let Some(name) = model.id.strip_prefix("models/") {
                model.id = name.to_owned();
            }
        }
        let next = answer.next_page_token.filter(|page| !page.is_empty());
        Ok(ModelList::new(models, next, metadata))
    }
}

#[derive(Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct GeminiModels {
    models: Option<Vec<Map<String, Value>>>,
    #[serde(deserialize_with = "or_default")]
    next_page_token: Option<String>,
}

impl Operation<CountTokens> for GenerateContent {
    fn with_prompt(
        &self,
        request: &CountTokens,
        prompt: &dyn Fn(&ModelRequest) -> Option<ModelRequest>,
    ) -> Option<CountTokens> {
        prompt(request.request()).map(CountTokens::new)
    }

    fn operation(&self, request: &CountTokens, model: Option<&str>) -> Result<OperationCall> {
        let call = Call::new(request.request()).with_model(model);
        let path = model_name::path(call.require_model()?)?;
        let name = path.trim_start_matches('/').to_owned();
        let mut prompt = body_of(self, &call)?;
        prompt.insert("model".into(), name.into());
        let body = json!({ "generateContentRequest": prompt });
        Ok(OperationCall::post(
            format!("{path}:countTokens"),
            body.to_string(),
        ))
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
