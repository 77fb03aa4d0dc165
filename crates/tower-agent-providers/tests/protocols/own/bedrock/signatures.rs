//! Signatures and credentials.

use std::future::ready;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use http::{HeaderMap, HeaderValue};
use serde_json::{Value, json};
use tower_agent::{BoxError, Error, ErrorKind, Message, ModelRequest};
use tower_agent_providers::bedrock::{Bedrock, BedrockAnthropic, Converse, Credentials};
use tower_agent_providers::protocol::Protocol;
use tower_agent_providers::{ModelBuildError, RequestHeaders};

use super::verifier::signatures;
use super::{SECRET, TOKEN, credentials};
use crate::answer::{Answer, text};
use crate::column::{Column, streamed};
use crate::columns::converse::ConverseColumn;
use crate::server::{Seen, Server, json as reply, whole};
use test_support::{call, stream};

const ARN: &str = "arn:aws:bedrock:eu-central-1:123456789012:inference-profile/eu.anthropic.claude-sonnet-4-5-20250929-v1:0";

/// The path of the ARN as botocore sends it.
const ARN_PATH: &str = "/model/arn%3Aaws%3Abedrock%3Aeu-central-1%3A123456789012%3Ainference-profile%2Feu.anthropic.claude-sonnet-4-5-20250929-v1%3A0";

fn ok() -> Value {
    ConverseColumn::body(&Answer::new([text(&["ok"])]))
}

fn hi() -> ModelRequest {
    ModelRequest::new([Message::user("Hello, Wörld ✓")])
}

fn recorded(path: &str, host: &str, more: &str, authorization: &str, body: &str) -> Seen {
    let head = format!(
        "POST {path} HTTP/1.1\r\nHost: {host}\r\nContent-Type: application/json\r\n\
         X-Amz-Date: 20261126T123456Z\r\n{more}Authorization: {authorization}"
    );
    Seen {
        head,
        body: Value::Null,
        text: body.to_owned(),
    }
}

/// Requests that botocore 1.44.8 has signed.
#[test]
fn the_verifier_agrees_with_botocore() {
    let body =
        r#"{"messages": [{"role": "user", "content": [{"text": "Hello, W\u00f6rld \u2713"}]}]}"#;
    let host = "bedrock-runtime.eu-central-1.amazonaws.com";
    let credential = "AWS4-HMAC-SHA256 Credential=AKIDEXAMPLE/20261126";
    let requests = [
        recorded(
            "/model/eu.amazon.nova-pro-v1%3A0/converse",
            host,
            "",
            &format!(
                "{credential}/eu-central-1/bedrock/aws4_request, SignedHeaders=content-type;host;x-amz-date, Signature=59e3add398c0454ddef0e0b30e6f094c4e5ebc9c201517f794d1f5f7719ee2c4"
            ),
            body,
        ),
        recorded(
            &format!("{ARN_PATH}/converse-stream"),
            host,
            "",
            &format!(
                "{credential}/eu-central-1/bedrock/aws4_request, SignedHeaders=content-type;host;x-amz-date, Signature=62525a47a6bef2ffd38a2c779d88d04189d2b0f4c4ae6112c86900fa9766ab65"
            ),
            body,
        ),
        recorded(
            "/model/anthropic.claude-sonnet-4-5-20250929-v1%3A0/invoke-with-response-stream",
            host,
            "X-Amzn-Bedrock-Accept: application/json\r\n",
            &format!(
                "{credential}/eu-central-1/bedrock/aws4_request, SignedHeaders=content-type;host;x-amz-date;x-amzn-bedrock-accept, Signature=14ea266b9a3a0256214e1d7761cc18fadda0fb93840790f31bb2245666838e2e"
            ),
            r#"{"a":1}"#,
        ),
        recorded(
            &format!("/v1{ARN_PATH}/converse"),
            "127.0.0.1:8123",
            &format!("X-Amz-Security-Token: {TOKEN}\r\n"),
            &format!(
                "{credential}/us-east-1/bedrock/aws4_request, SignedHeaders=content-type;host;x-amz-date;x-amz-security-token, Signature=9635a046124423fb2ee2e01aabe5172dc1e2bf68f432c214e4eef0ff92c8e549"
            ),
            body,
        ),
    ];
    for request in requests {
        let (right, signature) = signatures(&request, SECRET);
        assert_eq!(signature, right, "{}", request.head);
    }
}

#[tokio::test]
async fn calls_are_signed() {
    for token in [None, Some(TOKEN)] {
        let streamed = streamed::<ConverseColumn>(&Answer::new([text(&["ok"])]));
        let server = Server::start([reply(200, &ok()), streamed]).await;
        let model = Bedrock::builder()
            .base_url(&server.base_url)
            .region("eu-central-1")
            .credentials(credentials(token))
            .header("x-amzn-bedrock-guardrailidentifier", "a  b")
            .model(ARN)
            .build()
            .unwrap();
        call(model.clone(), hi()).await.unwrap();
        stream(model, hi()).await.0.unwrap();

        for (seen, operation) in server.seen().iter().zip(["converse", "converse-stream"]) {
            assert_eq!(seen.line(), format!("POST /v1{ARN_PATH}/{operation}"));
            assert_eq!(seen.header("x-amz-security-token"), token);
            let authorization = seen.header("authorization").unwrap();
            assert!(authorization.contains("/eu-central-1/bedrock/aws4_request"));
            assert!(authorization.contains("x-amzn-bedrock-guardrailidentifier"));
            let trimmed = Seen {
                head: seen.head.replace("a  b", "a b"),
                ..seen.clone()
            };
            let (right, signature) = signatures(&trimmed, SECRET);
            assert_eq!(signature, right, "{authorization}");
            assert_ne!(signatures(&trimmed, "another").0, signature);
        }
    }
}

#[tokio::test]
async fn credentials_are_fetched_for_each_call() {
    let server = Server::start([reply(200, &ok()), reply(200, &ok())]).await;
    let fetched = Arc::new(AtomicUsize::new(0));
    let count = fetched.clone();
    let model = BedrockAnthropic::builder()
        .base_url(&server.base_url)
        .region("us-east-1")
        .credentials_with(move || {
            let number = count.fetch_add(1, Ordering::SeqCst);
            let secret = format!("secret-{number}");
            let token = format!("token-number-{number}");
            ready(Ok(Credentials::new(
                "id",
                secret,
                Some(token),
                None,
                "test",
            )))
        })
        .model("test-model")
        .build()
        .unwrap();
    assert_eq!(fetched.load(Ordering::SeqCst), 0);
    for _ in 0..2 {
        // The answer is one of another protocol.
        let _ = call(model.clone(), hi()).await;
    }
    for (number, seen) in server.seen().iter().enumerate() {
        let token = format!("token-number-{number}");
        assert_eq!(seen.header("x-amz-security-token"), Some(&*token));
        let (right, signature) = signatures(seen, &format!("secret-{number}"));
        assert_eq!(signature, right);
    }
    assert_eq!(fetched.load(Ordering::SeqCst), 2);
}

#[tokio::test]
async fn credentials_that_cannot_be_fetched_are_an_error() {
    let denied = Error::new(ErrorKind::Denied, "not for you");
    let cases: [(fn() -> BoxError, _, _); 2] = [
        (
            || "no role".into(),
            ErrorKind::Auth,
            "the credentials could not be fetched: no role".to_owned(),
        ),
        (
            || Error::new(ErrorKind::Denied, "not for you").into(),
            ErrorKind::Denied,
            denied.message().to_owned(),
        ),
    ];
    for (failure, kind, message) in cases {
        let server = Server::start([]).await;
        let model = Bedrock::builder()
            .base_url(&server.base_url)
            .region("us-east-1")
            .credentials_with(move || ready(Err(failure())))
            .model("test-model")
            .build()
            .unwrap();
        let error = call(model, hi()).await.unwrap_err();
        assert_eq!((error.kind(), error.message()), (kind, &*message));
        assert!(server.seen().is_empty());
    }
}

#[tokio::test]
async fn a_key_or_a_header_takes_the_place_of_a_signature() {
    let server = Server::start([reply(200, &ok()), reply(200, &ok())]).await;
    let builder = Bedrock::builder()
        .base_url(&server.base_url)
        .region("us-east-1")
        .credentials(credentials(None))
        .model("test-model");
    let with_key = builder.clone().api_key("a-bedrock-key").build().unwrap();
    call(with_key, hi()).await.unwrap();
    let mut headers = HeaderMap::new();
    headers.insert(
        "authorization",
        HeaderValue::from_static("Bearer of-a-call"),
    );
    let mut request = hi();
    request
        .extensions_mut()
        .insert(RequestHeaders::from(headers));
    call(builder.build().unwrap(), request).await.unwrap();
    let seen = server.seen();
    assert_eq!(
        seen[0].header("authorization"),
        Some("Bearer a-bedrock-key")
    );
    assert_eq!(seen[1].header("authorization"), Some("Bearer of-a-call"));
    assert_eq!(seen[1].header("x-amz-date"), None);
}

/// A server that finds a wrong signature repeats what should have been signed.
#[tokio::test]
async fn nothing_of_the_credentials_is_shown() {
    let body =
        json!({ "message": format!("should have been 'x-amz-security-token:{TOKEN}' {SECRET}") });
    let headers = [
        (
            "x-amzn-errortype",
            "InvalidSignatureException:http://a.example/",
        ),
        ("x-amzn-requestid", "req_2"),
    ];
    let server = Server::start([whole(403, &headers, body.to_string())]).await;
    let builder = Bedrock::builder()
        .base_url(&server.base_url)
        .region("us-east-1")
        .credentials(credentials(Some(TOKEN)))
        .model("test-model");
    let printed = format!("{builder:?}");
    let model = builder.build().unwrap();
    let printed = format!("{printed} {model:?} {:?}", model.protocol());
    let error = call(model, hi()).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Auth);
    assert_eq!(error.metadata().request_id.as_deref(), Some("req_2"));
    assert_eq!(
        error.metadata().error_code.as_deref(),
        Some("InvalidSignatureException")
    );
    assert_eq!(
        error.message(),
        "should have been 'x-amz-security-token:[hidden]' [hidden]"
    );
    let printed = format!("{printed} {error:?}");
    assert!(
        !printed.contains(TOKEN) && !printed.contains(SECRET),
        "{printed}"
    );
}

#[test]
fn a_region_is_required_where_it_is_used() {
    let invalid = |region: &str| {
        let built = Bedrock::builder()
            .api_key("k")
            .region(region)
            .build_with(());
        built.unwrap_err()
    };
    for region in ["", "eu central", "a.example/", "user@host"] {
        assert!(
            matches!(invalid(region), ModelBuildError::Option(_)),
            "{region}"
        );
    }
    let signed = Bedrock::builder()
        .base_url("http://127.0.0.1:1")
        .region("a/b")
        .credentials(credentials(None));
    assert!(matches!(
        signed.build_with(()).unwrap_err(),
        ModelBuildError::Option(_)
    ));
    // Neither the address nor a signature needs it.
    let keyed = Bedrock::builder()
        .base_url("http://127.0.0.1:1")
        .api_key("k");
    assert!(keyed.build_with(()).is_ok());
}

#[test]
fn the_address_is_that_of_the_region() {
    let environment = |name: &str| {
        let variables = [
            ("AWS_REGION", "eu-west-1"),
            ("AWS_DEFAULT_REGION", "us-west-2"),
        ];
        let found = variables.iter().find(|(known, _)| *known == name);
        found.map(|(_, value)| (*value).to_owned())
    };
    let mut converse = Converse::default();
    converse.complete(&environment);
    assert_eq!(
        converse.default_base_url().unwrap(),
        "https://bedrock-runtime.eu-west-1.amazonaws.com"
    );
    let model = Bedrock::builder().region("cn-north-1").api_key("k");
    let model = model.build_with(()).unwrap();
    assert_eq!(
        model.protocol().default_base_url().unwrap(),
        "https://bedrock-runtime.cn-north-1.amazonaws.com.cn"
    );
    let none = Converse::default().default_base_url().unwrap_err();
    assert!(none.contains("AWS_REGION"), "{none}");
}
