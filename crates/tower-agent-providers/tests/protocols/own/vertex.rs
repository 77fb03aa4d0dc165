//! Gemini and Claude on Vertex AI.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use serde_json::json;
use tower_agent::model::ModelTarget;
use tower_agent::{ErrorKind, Message, ModelRequest};
use tower_agent_providers::protocol::Protocol;
use tower_agent_providers::vertex::{
    VertexAnthropic, VertexGemini, VertexGenerateContent, VertexMessages,
};
use tower_agent_providers::{HttpClient, HttpModelBuilder, ModelBuildError};

use crate::answer::{Answer, said, text};
use crate::column::{Column, streamed};
use crate::columns::anthropic::AnthropicColumn;
use crate::columns::gemini::GeminiColumn;
use crate::server::{Server, json as reply};
use test_support::{call, stream};

fn hi() -> ModelRequest {
    ModelRequest::new([Message::user("Hi.")])
}

fn claude(server: &Server) -> HttpModelBuilder<VertexMessages> {
    VertexAnthropic::builder()
        .base_url(&server.base_url)
        .project("my-project")
        .location("europe-west1")
        .model("claude-sonnet-4-5@20250929")
}

#[tokio::test]
async fn claude_is_asked_by_raw_predict() {
    let answer = Answer::new([text(&["a", "b"])]);
    let server = Server::start([
        reply(200, &AnthropicColumn::body(&answer)),
        streamed::<AnthropicColumn>(&answer),
    ])
    .await;
    let model: VertexAnthropic<HttpClient> = claude(&server).api_key("k").build().unwrap();
    let mut request = hi();
    let target = ModelTarget::default();
    request.extensions_mut().insert(target.clone());
    let plain = call(model.clone(), request).await.unwrap();
    let (streamed, _) = stream(model, hi()).await;
    for response in [plain, streamed.unwrap()] {
        assert_eq!(said(response.message()), answer.said());
        assert_eq!(response.usage(), AnthropicColumn::usage());
        // Whatever the host is: a gateway may stand in front.
        assert_eq!(response.metadata().provider.as_deref(), Some("vertex_ai"));
    }
    assert_eq!(target.provider(), Some("vertex_ai"));
    let path = "/v1/projects/my-project/locations/europe-west1/publishers/anthropic/models/claude-sonnet-4-5@20250929";
    let seen = server.seen();
    assert_eq!(seen[0].line(), format!("POST {path}:rawPredict"));
    assert_eq!(seen[1].line(), format!("POST {path}:streamRawPredict"));
    let mut expected = json!({
        "messages": [{ "role": "user", "content": [{ "type": "text", "text": "Hi." }] }],
        "anthropic_version": "vertex-2023-10-16",
        "max_tokens": 16384,
    });
    assert_eq!(seen[0].body, expected);
    expected["stream"] = true.into();
    assert_eq!(seen[1].body, expected);
    // It is said in the body.
    assert_eq!(seen[0].header("anthropic-version"), None);
    assert_eq!(seen[0].header("authorization"), Some("Bearer k"));
}

#[tokio::test]
async fn gemini_is_asked_for_the_same_as_elsewhere() {
    let answer = Answer::new([text(&["a", "b"])]);
    let server = Server::start([
        reply(200, &GeminiColumn::body(&answer)),
        streamed::<GeminiColumn>(&answer),
        reply(200, &GeminiColumn::body(&answer)),
    ])
    .await;
    let model = VertexGemini::builder()
        .base_url(&server.base_url)
        .project("example.com:my-project")
        .api_key("k")
        .model("gemini-2.5-flash")
        .build()
        .unwrap();
    let plain = call(model.clone(), hi()).await.unwrap();
    let (streamed, _) = stream(model.clone(), hi()).await;
    for response in [plain, streamed.unwrap()] {
        assert_eq!(said(response.message()), answer.said());
        assert_eq!(response.usage(), GeminiColumn::usage());
        assert_eq!(response.metadata().provider.as_deref(), Some("vertex_ai"));
    }
    let other = model.with_model("publishers/meta/models/llama-4");
    call(other, hi()).await.unwrap();
    let seen = server.seen();
    let project = "/v1/projects/example.com:my-project/locations/global";
    let path = format!("{project}/publishers/google/models/gemini-2.5-flash");
    assert_eq!(seen[0].line(), format!("POST {path}:generateContent"));
    assert_eq!(
        seen[1].line(),
        format!("POST {path}:streamGenerateContent?alt=sse")
    );
    assert_eq!(
        seen[2].line(),
        format!("POST {project}/publishers/meta/models/llama-4:generateContent")
    );
    let expected = json!({ "contents": [{ "role": "user", "parts": [{ "text": "Hi." }] }] });
    assert_eq!(seen[0].body, expected);
    assert_eq!(seen[0].header("authorization"), Some("Bearer k"));
    assert_eq!(seen[0].header("x-goog-api-key"), None);
}

#[tokio::test]
async fn each_call_has_the_token_of_its_time() {
    let answer = AnthropicColumn::body(&Answer::new([text(&["ok"])]));
    let server = Server::start([reply(200, &answer), reply(200, &answer)]).await;
    let fetched = Arc::new(AtomicUsize::new(0));
    let model = claude(&server)
        .api_key_with(move || {
            let number = fetched.fetch_add(1, Ordering::SeqCst);
            async move { Ok(format!("ya29.token-{number}")) }
        })
        .build()
        .unwrap();
    for number in 0..2 {
        call(model.clone(), hi()).await.unwrap();
        let token = format!("Bearer ya29.token-{number}");
        let seen = server.seen();
        assert_eq!(seen[number].header("authorization"), Some(&*token));
    }
}

#[tokio::test]
async fn an_error_of_google_in_front_of_claude_is_read() {
    let error =
        json!({ "code": 429, "message": "Quota exceeded.", "status": "RESOURCE_EXHAUSTED" });
    let server = Server::start([
        reply(429, &json!([{ "error": error }])),
        reply(429, &json!({ "error": error })),
    ])
    .await;
    let model = claude(&server).api_key("k").build().unwrap();
    let plain = call(model.clone(), hi()).await.unwrap_err();
    let streamed = stream(model, hi()).await.0.unwrap_err();
    for error in [plain, streamed] {
        assert_eq!(
            (error.kind(), error.message()),
            (ErrorKind::RateLimited, "Quota exceeded.")
        );
    }
}

fn address(location: Option<&str>) -> String {
    let mut protocol = VertexGenerateContent::default();
    let location = location.map(str::to_owned);
    protocol.complete(&move |name| match name {
        "GOOGLE_CLOUD_PROJECT" => Some("my-project".into()),
        "GOOGLE_CLOUD_LOCATION" => location.clone(),
        _ => None,
    });
    protocol.default_base_url().unwrap().into_owned()
}

#[test]
fn the_address_is_that_of_the_location() {
    for (location, host) in [
        (None, "aiplatform.googleapis.com"),
        (Some("global"), "aiplatform.googleapis.com"),
        (Some("us"), "aiplatform.us.rep.googleapis.com"),
        (Some("eu"), "aiplatform.eu.rep.googleapis.com"),
        (
            Some("europe-west4"),
            "europe-west4-aiplatform.googleapis.com",
        ),
    ] {
        assert_eq!(address(location), format!("https://{host}/v1"));
    }
    for location in ["", "a/b", "a@b", ".."] {
        let builder = VertexGemini::builder().api_key("k").project("p");
        let error = builder.location(location).build_with(()).unwrap_err();
        assert!(matches!(error, ModelBuildError::Option(_)), "{location}");
    }
    let none = VertexMessages::default().default_base_url().unwrap_err();
    assert!(none.contains("GOOGLE_CLOUD_PROJECT"), "{none}");
}
