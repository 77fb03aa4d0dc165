//! The builder: addresses, keys and headers, and what is never printed.

use std::process::Command;

use http::{Request, Response};
use http_body_util::Full;
use tower::service_fn;
use tower_agent::{BoxError, Error, ErrorKind, ModelRequest, Settings};
use tower_agent_providers::openai::{Chat, OpenAi};
use tower_agent_providers::{HttpClient, HttpModelBuilder, ModelBuildError, RequestBody};

use crate::server::{Server, json, says};
use test_support::call;

/// The request that a builder's client makes, without a network.
async fn made(
    builder: HttpModelBuilder<Chat>,
    settings: Settings,
) -> (http::request::Parts, serde_json::Value) {
    let seen = std::sync::Arc::new(std::sync::Mutex::new(None));
    let keep = seen.clone();
    let http = service_fn(move |request: Request<RequestBody>| {
        let keep = keep.clone();
        async move {
            let (parts, body) = request.into_parts();
            let body = http_body_util::BodyExt::collect(body)
                .await
                .unwrap()
                .to_bytes();
            *keep.lock().unwrap() = Some((parts, serde_json::from_slice(&body).unwrap()));
            let answer = r#"{"choices":[{"message":{"content":"ok"}}]}"#;
            Ok::<_, BoxError>(Response::new(Full::<bytes::Bytes>::from(answer)))
        }
    });
    let model = builder.model("m").build_with(http).unwrap();
    call(model, ModelRequest::default().with_settings(settings))
        .await
        .unwrap();
    seen.lock().unwrap().take().unwrap()
}

#[tokio::test]
async fn addresses() {
    for (base, expected) in [
        (
            "https://api.openai.com/v1",
            "https://api.openai.com/v1/chat/completions",
        ),
        (
            "https://api.openai.com/v1/",
            "https://api.openai.com/v1/chat/completions",
        ),
        (
            "http://localhost:11434",
            "http://localhost:11434/v1/chat/completions",
        ),
        (
            "https://api.x.ai/?tenant=a/b",
            "https://api.x.ai/v1/chat/completions?tenant=a/b",
        ),
        (
            "https://api.z.ai/api/paas/v4",
            "https://api.z.ai/api/paas/v4/chat/completions",
        ),
        (
            "https://models.github.ai/inference",
            "https://models.github.ai/inference/chat/completions",
        ),
        (
            " http://[::1]:80/v1\n",
            "http://[::1]:80/v1/chat/completions",
        ),
        (
            "https://me.openai.azure.com/openai/deployments/d?api-version=2024-10-21",
            "https://me.openai.azure.com/openai/deployments/d/chat/completions?api-version=2024-10-21",
        ),
    ] {
        let (parts, _) = made(OpenAi::builder().base_url(base), Settings::default()).await;
        assert_eq!(parts.uri, expected, "{base}");
    }
}

#[tokio::test]
async fn the_limit_of_tokens_has_two_names() {
    let mut settings = Settings::default();
    settings.max_tokens = Some(5);
    for (base, name) in [
        ("https://api.openai.com/v1", "max_completion_tokens"),
        ("https://eu.api.openai.com/v1", "max_completion_tokens"),
        (
            "https://me.openai.azure.com/openai/v1",
            "max_completion_tokens",
        ),
        ("http://localhost:11434/v1", "max_tokens"),
        ("https://notopenai.com/v1", "max_tokens"),
    ] {
        let (_, body) = made(OpenAi::builder().base_url(base), settings.clone()).await;
        assert_eq!(body[name], 5, "{base}: {body}");
        assert_eq!(body.as_object().unwrap().len(), 3, "{base}: {body}");
    }
}

#[tokio::test]
async fn keys_and_headers() {
    let server = Server::start([says("a"), says("b"), says("c")]).await;
    let builder = server
        .builder()
        .api_key(" sk-secret\n")
        .header("X-Title", "tests");
    call(builder.build().unwrap(), ModelRequest::default())
        .await
        .unwrap();
    let azure = server
        .builder()
        .header("api-key", "azure-secret")
        .header("User-Agent", "mine");
    call(azure.build().unwrap(), ModelRequest::default())
        .await
        .unwrap();
    let own = server
        .builder()
        .api_key("sk-secret")
        .header("authorization", "Basic abc");
    call(own.build().unwrap(), ModelRequest::default())
        .await
        .unwrap();
    let seen = server.seen();
    assert_eq!(seen[0].header("authorization"), Some("Bearer sk-secret"));
    assert_eq!(seen[0].header("x-title"), Some("tests"));
    assert_eq!(seen[1].header("authorization"), None);
    assert_eq!(seen[1].header("api-key"), Some("azure-secret"));
    assert_eq!(seen[1].header("user-agent"), Some("mine"));
    assert_eq!(seen[2].header("authorization"), Some("Basic abc"));
}

#[test]
fn invalid_builds() {
    let url = |url: &str| {
        OpenAi::builder()
            .api_key("")
            .base_url(url)
            .build()
            .unwrap_err()
    };
    for bad in [
        "",
        "localhost",
        "ftp://example.com",
        "/v1",
        "http://",
        "http://a b/",
    ] {
        assert!(
            matches!(url(bad), ModelBuildError::BaseUrl { .. }),
            "{bad}: {:?}",
            url(bad)
        );
    }
    assert_eq!(
        url("ftp://example.com/v1").to_string(),
        "invalid base URL `ftp://example.com/v1`: it must start with `http://` or `https://`",
    );
    let credentials = url("https://ann:sk-secret@example.com/v1?key=sk-secret");
    assert!(
        !format!("{credentials} {credentials:?}").contains("sk-secret"),
        "{credentials}"
    );
    let start = || OpenAi::builder().base_url("http://localhost");
    let key = start().api_key("sk-sec\nret").build().unwrap_err();
    assert_eq!(key, ModelBuildError::ApiKey);
    let value = start().header("x-a", "sk-sec\nret").build().unwrap_err();
    assert_eq!(value, ModelBuildError::HeaderValue { name: "x-a".into() });
    let name = start()
        .header("x-a", "b")
        .header("Bearer sk-secret", "a")
        .build()
        .unwrap_err();
    assert_eq!(name, ModelBuildError::HeaderName { number: 2 });
    for error in [key, value, name] {
        assert!(!format!("{error} {error:?}").contains("sk-sec"), "{error}");
    }
    assert_eq!(
        Error::from(ModelBuildError::ApiKey).kind(),
        ErrorKind::InvalidRequest
    );
}

#[tokio::test]
async fn keys_are_never_printed() {
    const KEY: &str = "sk-very-secret";
    const AZURE: &str = "azure-very-secret";
    const QUERY: &str = "query-very-secret";
    let echo = format!("Incorrect API key provided: {KEY}, {AZURE}, {QUERY}. {KEY} is wrong.");
    let echoes = |message: &str| serde_json::json!({ "error": { "message": message } });
    let server = Server::start([
        json(401, &echoes(&echo)),
        json(200, &echoes(&echo)),
        json(200, &serde_json::json!({ "choices": echo })),
        json(500, &serde_json::json!(echo)),
    ])
    .await;
    let builder = server
        .builder()
        .api_key(KEY)
        .header("api-key", AZURE)
        .base_url(format!("{}?key={QUERY}", server.base_url));
    let mut printed = format!("{builder:?}");
    let model = builder.build().unwrap();
    printed += &format!("{model:?}{:?}", HttpClient::new());
    for _ in 0..4 {
        let error = call(model.clone(), ModelRequest::default())
            .await
            .unwrap_err();
        assert!(error.message().contains("[hidden]"), "{error}");
        printed += &format!("{error} {error:?}");
    }
    for secret in [KEY, AZURE, QUERY] {
        assert!(!printed.contains(secret), "{printed}");
    }
    let seen = &server.seen()[0];
    assert_eq!(
        seen.header("authorization"),
        Some(&*format!("Bearer {KEY}"))
    );
    assert!(seen.line().ends_with(QUERY), "the key is sent all the same");
}

#[tokio::test]
async fn headers_are_sensitive_where_a_layer_would_print_them() {
    let builder = OpenAi::builder()
        .base_url("http://localhost")
        .api_key("sk-secret");
    let (parts, _) = made(builder.header("x-a", "b"), Settings::default()).await;
    assert!(parts.headers["authorization"].is_sensitive());
    assert!(parts.headers["x-a"].is_sensitive());
    assert!(!format!("{parts:?}").contains("sk-secret"));
}

/// Says to a test that it is a child, and not asked for by `--include-ignored`.
const CHILD: &str = "TOWER_AGENT_CHILD_TEST";

pub fn is_child() -> bool {
    std::env::var_os(CHILD).is_some()
}

/// Runs a test in a process with these variables.
pub fn with_environment(test: &str, variables: &[(&str, &str)]) {
    let output = Command::new(std::env::current_exe().unwrap())
        .args(["--ignored", "--exact", test])
        .env(CHILD, "1")
        .env_remove("OPENAI_BASE_URL")
        .env_remove("OPENAI_API_KEY")
        .envs(variables.iter().copied())
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&output.stdout);
    assert!(
        output.status.success() && said.contains("1 passed"),
        "{said}"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn the_environment_fills_in() {
    let server = Server::start([says("ok")]).await;
    let variables = [
        ("OPENAI_BASE_URL", &*server.base_url),
        ("OPENAI_API_KEY", "sk-environment"),
    ];
    tokio::task::block_in_place(|| with_environment("building::child_calls", &variables));
    let seen = server.only();
    assert_eq!(seen.line(), "POST /v1/chat/completions");
    assert_eq!(seen.header("authorization"), Some("Bearer sk-environment"));
}

#[test]
fn the_builder_wins_over_the_environment() {
    let bad = [
        ("OPENAI_BASE_URL", "ftp://nowhere"),
        ("OPENAI_API_KEY", "sk-environment"),
    ];
    with_environment("building::child_has_its_own", &bad);
    with_environment(
        "building::child_has_none",
        &[("OPENAI_BASE_URL", " "), ("OPENAI_API_KEY", "")],
    );
}

#[tokio::test]
#[ignore = "a child of another test"]
async fn child_calls() {
    if !is_child() {
        return;
    }
    let model = OpenAi::from_env().unwrap().with_model("m");
    call(model, ModelRequest::default()).await.unwrap();
}

#[tokio::test]
#[ignore = "a child of another test"]
async fn child_has_its_own() {
    if !is_child() {
        return;
    }
    assert!(matches!(
        OpenAi::from_env(),
        Err(ModelBuildError::BaseUrl { .. })
    ));
    let start = || OpenAi::builder().base_url("http://localhost");
    let (parts, _) = made(start().api_key("sk-own"), Settings::default()).await;
    assert_eq!(parts.headers["authorization"], "Bearer sk-own");
    let (parts, _) = made(start().api_key(""), Settings::default()).await;
    assert!(!parts.headers.contains_key("authorization"));
    let (parts, _) = made(start().header("api-key", "azure"), Settings::default()).await;
    assert!(!parts.headers.contains_key("authorization"));
}

#[tokio::test]
#[ignore = "a child of another test"]
async fn child_has_none() {
    if !is_child() {
        return;
    }
    let (parts, _) = made(OpenAi::builder(), Settings::default()).await;
    assert_eq!(parts.uri, "https://api.openai.com/v1/chat/completions");
    assert!(!parts.headers.contains_key("authorization"));
}
