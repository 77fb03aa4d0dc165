//! Embeddings, lists of models, counts of tokens.

use std::sync::Arc;
use std::time::Duration;

use serde_json::{Value, json};
use tower::{Layer, ServiceBuilder, ServiceExt};
use tower_agent::callback::{Action, Callback, Callbacks};
use tower_agent::model::ResponseFormat;
use tower_agent::tool::ToolDeclaration;
use tower_agent::{Error, ErrorKind, Message, ModelRequest, Request, Result, Settings, Usage};
use tower_agent_middleware::retry::CallRetryLayer;
use tower_agent_providers::anthropic::Anthropic;
use tower_agent_providers::bedrock::{Bedrock, Credentials};
use tower_agent_providers::gemini::Gemini;
use tower_agent_providers::ollama::Ollama;
use tower_agent_providers::openai::{OpenAi, OpenAiResponses};
use tower_agent_providers::operations::{
    CountTokens, EmbedRequest, EmbedResponse, HttpOperations, ListModels, ModelList,
};
use tower_agent_providers::protocol::{Operation, Protocol};
use tower_agent_providers::vertex::{VertexAnthropic, VertexGemini};
use tower_agent_providers::{HttpClient, HttpModel};

use crate::server::{Server, chunked_as, json as reply, unfinished_as, whole};

type Operations<P> = HttpOperations<P, HttpClient>;

fn operations<P: Protocol + Default>(server: &Server) -> Operations<P> {
    let builder = HttpModel::<P, _>::builder().base_url(&server.base_url);
    let model = builder.api_key("k").model("a-model").build().unwrap();
    model.operations()
}

/// The protocol of a model.
trait Named {
    type Protocol: Protocol + Default;
}

impl<P: Protocol + Default, S> Named for HttpModel<P, S> {
    type Protocol = P;
}

type Of<M> = <M as Named>::Protocol;

async fn embed<P: Operation<EmbedRequest> + Default>(
    body: Value,
    request: EmbedRequest,
) -> (Result<EmbedResponse>, Server) {
    let server = Server::start([reply(200, &body)]).await;
    let result = operations::<P>(&server).oneshot(request).await;
    (result, server)
}

fn two() -> EmbedRequest {
    let mut request = EmbedRequest::new(["a cat", "ein Hünd"]);
    request.dimensions = Some(2);
    request.extra = json!({ "more": 1 }).as_object().unwrap().clone();
    request
}

fn vectors() -> Vec<Vec<f32>> {
    vec![vec![0.5, -0.25], vec![1.0, 0.0]]
}

/// Out of order, as the protocol allows.
fn openai_body() -> Value {
    json!({
        "object": "list",
        "data": [
            { "object": "embedding", "index": 1, "embedding": [1.0, 0] },
            { "object": "embedding", "index": 0, "embedding": [0.5, -0.25] },
        ],
        "model": "a-model-2026",
        "usage": { "prompt_tokens": 7, "total_tokens": 7 },
    })
}

#[tokio::test]
async fn texts_are_embedded_in_the_terms_of_each_provider() {
    let (response, server) = embed::<Of<OpenAi<()>>>(openai_body(), two()).await;
    let response = response.unwrap();
    assert_eq!(response.embeddings, vectors());
    assert_eq!(response.usage, Usage::new(7, 0));
    assert_eq!(response.metadata.model.as_deref(), Some("a-model-2026"));
    let seen = server.only();
    assert_eq!(seen.line(), "POST /v1/embeddings");
    assert_eq!(seen.header("authorization"), Some("Bearer k"));
    let expected = json!({
        "input": ["a cat", "ein Hünd"], "model": "a-model", "dimensions": 2,
        "encoding_format": "float", "more": 1,
    });
    assert_eq!(seen.body, expected);

    let body = json!({
        "model": "a-model", "embeddings": [[0.5, -0.25], [1, 0]], "prompt_eval_count": 7,
        "total_duration": 14143917,
    });
    let (response, server) = embed::<Of<Ollama<()>>>(body, two()).await;
    let response = response.unwrap();
    assert_eq!(response.embeddings, vectors());
    assert_eq!(response.usage, Usage::new(7, 0));
    let seen = server.only();
    assert_eq!(seen.line(), "POST /api/embed");
    let expected = json!({
        "input": ["a cat", "ein Hünd"], "model": "a-model", "dimensions": 2, "more": 1,
    });
    assert_eq!(seen.body, expected);

    let body = json!({
        "embeddings": [{ "values": [0.5, -0.25] }, { "values": [1, 0] }],
        "usageMetadata": { "promptTokenCount": 7 },
    });
    let (response, server) = embed::<Of<Gemini<()>>>(body, two()).await;
    let response = response.unwrap();
    assert_eq!(response.embeddings, vectors());
    assert_eq!(response.usage, Usage::new(7, 0));
    let seen = server.only();
    assert_eq!(seen.line(), "POST /v1/models/a-model:batchEmbedContents");
    assert_eq!(seen.header("x-goog-api-key"), Some("k"));
    let one = |text: &str| {
        json!({
            "model": "models/a-model", "content": { "parts": [{ "text": text }] },
            "outputDimensionality": 2, "more": 1,
        })
    };
    assert_eq!(
        seen.body,
        json!({ "requests": [one("a cat"), one("ein Hünd")] })
    );
}

/// The vectors would be those of other texts.
#[tokio::test]
async fn no_extra_field_replaces_the_texts() {
    let with = |field: &str, value: Value| {
        let mut request = two();
        request.extra.insert(field.into(), value);
        request
    };
    for value in [json!("a dog"), Value::Null] {
        let of_openai = embed::<Of<OpenAi<()>>>(openai_body(), with("input", value.clone())).await;
        let of_ollama = embed::<Of<Ollama<()>>>(json!({}), with("input", value.clone())).await;
        let of_gemini = embed::<Of<Gemini<()>>>(json!({}), with("content", value)).await;
        for (response, server) in [of_openai, of_ollama, of_gemini] {
            let error = response.unwrap_err();
            assert_eq!(error.kind(), ErrorKind::InvalidRequest, "{error}");
            assert!(server.seen().is_empty());
        }
    }
}

/// The vector of one text would stand for another.
#[tokio::test]
async fn a_vector_less_is_an_error() {
    for data in [
        json!([]),
        json!([{ "index": 0, "embedding": [0.5] }]),
        json!([{ "index": 0, "embedding": [0.5] }, { "index": 1, "embedding": [] }]),
        json!([{ "index": 0, "embedding": [0.5] }, { "index": 1, "embedding": "AAA=" }]),
        json!([{ "index": 0 }, { "index": 1 }]),
        json!(null),
    ] {
        let (response, _) = embed::<Of<OpenAi<()>>>(json!({ "data": data }), two()).await;
        let error = response.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Protocol, "{data}: {error}");
    }
    let none = EmbedRequest::new([] as [&str; 0]);
    let (response, server) = embed::<Of<OpenAi<()>>>(openai_body(), none).await;
    assert_eq!(response.unwrap_err().kind(), ErrorKind::InvalidRequest);
    assert!(server.seen().is_empty());
}

async fn error_of<P: Operation<EmbedRequest> + Default>(status: u16, body: &Value) -> Error {
    let server = Server::start([reply(status, body)]).await;
    let result = operations::<P>(&server).oneshot(two()).await;
    result.unwrap_err()
}

#[tokio::test]
async fn an_error_is_that_of_a_call_of_the_model() {
    const KEY: &str = "sk-secret-of-somebody";
    let told = json!({ "error": { "message": format!("Slow down, {KEY}."), "code": "busy" } });
    let head = [
        ("content-type", "application/json"),
        ("x-request-id", "req_9"),
    ];
    let server = Server::start([
        whole(429, &head, told.to_string()),
        whole(200, &head, told.to_string()),
        unfinished_as("application/json", [&openai_body().to_string()[..40]]),
    ])
    .await;
    let model = OpenAi::builder().base_url(&server.base_url).api_key(KEY);
    let embed = model.model("m").build().unwrap().operations();
    for status in [429, 200] {
        let error = embed.clone().oneshot(two()).await.unwrap_err();
        assert_eq!(error.message(), "Slow down, [hidden].");
        assert_eq!(error.metadata().status, Some(status));
        assert_eq!(error.metadata().request_id.as_deref(), Some("req_9"));
        assert_eq!(error.metadata().error_code.as_deref(), Some("busy"));
        let endpoint = error.metadata().endpoint.as_deref().unwrap();
        assert!(endpoint.starts_with("POST http://127.0.0.1"), "{endpoint}");
        assert!(endpoint.ends_with("/v1/embeddings"), "{endpoint}");
        assert!(!format!("{error:?}{embed:?}").contains("secret-of"));
    }
    let broken = embed.oneshot(two()).await.unwrap_err();
    assert!(broken.is_retryable(), "{broken}");
    let google = json!({ "error": {
        "code": 400, "message": "API key not valid.", "status": "INVALID_ARGUMENT",
        "details": [{ "reason": "API_KEY_INVALID" }],
    } });
    let error = error_of::<Of<Gemini<()>>>(400, &google).await;
    assert_eq!(error.kind(), ErrorKind::Auth);
    let error = error_of::<Of<Ollama<()>>>(404, &json!({ "error": "model not found" })).await;
    assert_eq!(error.kind(), ErrorKind::NotFound);
}

/// Lets every call pass, whatever call it is.
struct Passes;

impl<R: Request> Callback<R> for Passes {
    async fn before(&self, _: &mut R) -> Result<Action<R::Response>> {
        Ok(Action::Continue)
    }
}

/// Refuses every call.
struct Refuses;

impl<R: Request> Callback<R> for Refuses {
    async fn before(&self, request: &mut R) -> Result<Action<R::Response>> {
        Ok(Action::Respond(request.refusal("not today")?))
    }
}

#[tokio::test]
async fn layers_and_callbacks_fit_around_an_embedding() {
    let busy = json!({ "error": { "message": "Busy." } });
    let server = Server::start([reply(503, &busy), reply(200, &openai_body())]).await;
    let embed = operations::<Of<OpenAi<()>>>(&server);
    let retry = CallRetryLayer::new().backoff(Duration::ZERO, Duration::ZERO);
    let service = ServiceBuilder::new()
        .timeout(Duration::from_secs(60))
        .layer(Callbacks::new().with(Passes))
        .layer(retry)
        .service(embed.clone());
    let response = service.oneshot(two()).await.unwrap();
    assert_eq!(response.embeddings, vectors());
    assert_eq!(EmbedRequest::usage(&response), Usage::new(7, 0));
    assert_eq!(server.seen().len(), 2);
    let refused = Callbacks::new().with(Refuses).layer(embed);
    let error = refused.oneshot(two()).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Denied);
    assert_eq!(server.seen().len(), 2);
}

async fn list<P: Operation<ListModels> + Default>(
    body: Value,
    request: ListModels,
) -> (ModelList, String) {
    let server = Server::start([reply(200, &body)]).await;
    let list = operations::<P>(&server).oneshot(request).await.unwrap();
    let seen = server.only();
    assert_eq!(seen.text, "");
    assert_eq!(seen.header("content-type"), None);
    (list, seen.line().to_owned())
}

fn ids(list: &ModelList) -> Vec<&str> {
    list.models.iter().map(|model| &*model.id).collect()
}

#[tokio::test]
async fn models_are_listed() {
    let body = json!({ "object": "list", "data": [
        { "id": "gpt-5", "object": "model", "owned_by": "openai" },
        { "object": "model" },
    ] });
    let (models, line) = list::<Of<OpenAi<()>>>(body.clone(), ListModels::new()).await;
    assert_eq!((ids(&models), &*line), (vec!["gpt-5"], "GET /v1/models"));
    assert_eq!(models.models[0].fields["owned_by"], "openai");
    assert_eq!(models.next, None);
    let (models, line) = list::<Of<OpenAiResponses<()>>>(body.clone(), ListModels::new()).await;
    assert_eq!((ids(&models), &*line), (vec!["gpt-5"], "GET /v1/models"));
    // Together sends the list alone.
    let (models, _) = list::<Of<OpenAi<()>>>(body["data"].clone(), ListModels::new()).await;
    assert_eq!(ids(&models), ["gpt-5"]);

    let body = json!({
        "data": [{ "type": "model", "id": "claude-opus-4-6", "display_name": "Claude Opus 4.6" }],
        "has_more": true, "first_id": "claude-opus-4-6", "last_id": "claude-opus-4-6",
    });
    let (models, line) = list::<Of<Anthropic<()>>>(body, ListModels::new()).await;
    assert_eq!(ids(&models), ["claude-opus-4-6"]);
    assert_eq!(line, "GET /v1/models?limit=1000");
    let next = ListModels::new().with_page(models.next.unwrap());
    let body = json!({ "data": [], "has_more": false, "last_id": "claude-opus-4-6" });
    let (models, line) = list::<Of<Anthropic<()>>>(body, next).await;
    assert_eq!(line, "GET /v1/models?limit=1000&after_id=claude-opus-4-6");
    assert_eq!((ids(&models), models.next.clone()), (vec![], None));

    let body = json!({
        "models": [{ "name": "models/gemini-2.5-flash", "inputTokenLimit": 1048576 }],
        "nextPageToken": "a/b&c",
    });
    let (models, line) = list::<Of<Gemini<()>>>(body, ListModels::new()).await;
    assert_eq!(ids(&models), ["gemini-2.5-flash"]);
    assert_eq!(line, "GET /v1/models?pageSize=1000");
    let next = ListModels::new().with_page(models.next.unwrap());
    let (_, line) = list::<Of<Gemini<()>>>(json!({ "models": [] }), next).await;
    assert_eq!(line, "GET /v1/models?pageSize=1000&pageToken=a%2Fb%26c");

    let body = json!({ "models": [{ "name": "qwen3:8b", "size": 5 }] });
    let (models, line) = list::<Of<Ollama<()>>>(body, ListModels::new()).await;
    assert_eq!((ids(&models), &*line), (vec!["qwen3:8b"], "GET /api/tags"));
}

fn prompt() -> CountTokens {
    let mut settings = Settings::default();
    settings.max_tokens = Some(7);
    settings.temperature = Some(0.5);
    settings.response_format = Some(ResponseFormat::JsonSchema {
        name: "a".into(),
        schema: json!({ "type": "object" }),
        strict: false,
    });
    let look = ToolDeclaration::new("look", "Looks.").with_parameters(json!({ "type": "object" }));
    let mut request = ModelRequest::new([Message::user("Hi.")])
        .with_tools(Arc::new(vec![Arc::new(look)]))
        .with_settings(settings);
    request.add_instructions("Be short.");
    CountTokens::new(request)
}

#[tokio::test]
async fn the_tokens_of_a_prompt_are_counted() {
    let server = Server::start([reply(200, &json!({ "input_tokens": 14 }))]).await;
    let count = operations::<Of<Anthropic<()>>>(&server);
    assert_eq!(count.oneshot(prompt()).await.unwrap().input_tokens, 14);
    let seen = server.only();
    assert_eq!(seen.line(), "POST /v1/messages/count_tokens");
    assert_eq!(seen.header("anthropic-version"), Some("2023-06-01"));
    let names: Vec<_> = seen.body.as_object().unwrap().keys().collect();
    assert_eq!(
        names,
        ["messages", "model", "output_config", "system", "tools"]
    );

    let body = json!({ "totalTokens": 14, "promptTokensDetails": [] });
    let server = Server::start([reply(200, &body)]).await;
    let count = operations::<Of<Gemini<()>>>(&server);
    assert_eq!(count.oneshot(prompt()).await.unwrap().input_tokens, 14);
    let seen = server.only();
    assert_eq!(seen.line(), "POST /v1/models/a-model:countTokens");
    let sent = &seen.body["generateContentRequest"];
    assert_eq!(sent["model"], "models/a-model");
    assert_eq!(sent["contents"][0]["parts"][0]["text"], "Hi.");
    assert_eq!(sent["systemInstruction"]["parts"][0]["text"], "Be short.");
    assert!(sent["tools"].is_array());

    let server = Server::start([reply(200, &json!({ "input_tokens": 14 }))]).await;
    let count = operations::<Of<OpenAiResponses<()>>>(&server);
    assert_eq!(count.oneshot(prompt()).await.unwrap().input_tokens, 14);
    let seen = server.only();
    assert_eq!(seen.line(), "POST /v1/responses/input_tokens");
    let names: Vec<_> = seen.body.as_object().unwrap().keys().collect();
    assert_eq!(names, ["input", "instructions", "model", "text", "tools"]);

    let server = Server::start([reply(200, &json!({ "inputTokens": 14 }))]).await;
    let model = Bedrock::builder()
        .base_url(&server.base_url)
        .region("us-east-1")
        .credentials(Credentials::new("id", "secret", None, None, "test"))
        .model("amazon.nova-pro-v1:0")
        .build()
        .unwrap();
    let counted = model.operations().oneshot(prompt()).await.unwrap();
    assert_eq!(counted.input_tokens, 14);
    let seen = server.only();
    assert_eq!(
        seen.line(),
        "POST /v1/model/amazon.nova-pro-v1%3A0/count-tokens"
    );
    let (right, signature) = super::bedrock::signatures_of(&seen, "secret");
    assert_eq!(signature, right);
    let sent = &seen.body["input"]["converse"];
    let names: Vec<_> = sent.as_object().unwrap().keys().collect();
    assert_eq!(names, ["messages", "system", "toolConfig"]);
}

#[tokio::test]
async fn the_tokens_of_a_prompt_are_counted_on_vertex() {
    let project = "/v1/projects/p/locations/us-east5/publishers";
    let server = Server::start([reply(200, &json!({ "totalTokens": 14 }))]).await;
    let builder = VertexGemini::builder().base_url(&server.base_url);
    let builder = builder.project("p").location("us-east5").api_key("k");
    let model = builder.model("gemini-3").build().unwrap();
    let counted = model.operations().oneshot(prompt()).await.unwrap();
    assert_eq!(counted.input_tokens, 14);
    assert_eq!(counted.metadata.provider.as_deref(), Some("vertex_ai"));
    let seen = server.only();
    let line = format!("POST {project}/google/models/gemini-3:countTokens");
    assert_eq!(seen.line(), line);
    assert_eq!(seen.body["contents"][0]["parts"][0]["text"], "Hi.");
    assert!(seen.body["tools"].is_array());

    let server = Server::start([reply(200, &json!({ "input_tokens": 14 }))]).await;
    let builder = VertexAnthropic::builder().base_url(&server.base_url);
    let builder = builder.project("p").location("us-east5").api_key("k");
    let model = builder.model("claude-opus-4-5@20251101").build().unwrap();
    let counted = model.operations().oneshot(prompt()).await.unwrap();
    assert_eq!(counted.input_tokens, 14);
    let seen = server.only();
    let line = format!("POST {project}/anthropic/models/count-tokens:rawPredict");
    assert_eq!(seen.line(), line);
    assert_eq!(seen.body["model"], "claude-opus-4-5@20251101");
    assert_eq!(seen.body["anthropic_version"], "vertex-2023-10-16");
    assert_eq!(seen.body.get("max_tokens"), None);
}

#[tokio::test]
async fn a_count_that_cannot_be_is_an_error() {
    for body in [
        json!({}),
        json!({ "input_tokens": -1 }),
        json!({ "input_tokens": 0.5 }),
    ] {
        let server = Server::start([reply(200, &body)]).await;
        let count = operations::<Of<Anthropic<()>>>(&server);
        let error = count.oneshot(prompt()).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Protocol, "{body}");
    }
    let stream = chunked_as("application/json", [r#"{"input_tokens": 14}"#]);
    let server = Server::start([stream]).await;
    let count = operations::<Of<Anthropic<()>>>(&server);
    assert_eq!(count.oneshot(prompt()).await.unwrap().input_tokens, 14);
}
