//! Keys and addresses.

use std::process::Command;

use tower_agent::ModelRequest;
use tower_agent_providers::gemini::Gemini;

use super::says;
use crate::server::{Server, json as reply};
use test_support::call;

#[tokio::test]
async fn the_key_is_in_a_header_and_never_in_the_url_or_an_error() {
    let denied = serde_json::json!({ "error": {
        "code": 403, "status": "PERMISSION_DENIED", "message": "AIza-secret may not do this.",
    }});
    let server = Server::start([reply(403, &denied)]).await;
    let builder = Gemini::builder()
        .base_url(&server.base_url)
        .api_key("AIza-secret")
        .model("g");
    let error = call(builder.build().unwrap(), ModelRequest::default())
        .await
        .unwrap_err();
    assert!(!format!("{error} {error:?}").contains("AIza"), "{error:?}");
    let seen = server.only();
    assert_eq!(seen.line(), "POST /v1/models/g:generateContent");
    assert_eq!(seen.header("x-goog-api-key"), Some("AIza-secret"));
    assert_eq!(seen.header("authorization"), None);
}

#[tokio::test]
async fn a_token_of_another_kind_replaces_the_key() {
    let server = Server::start([says("ok")]).await;
    let builder = Gemini::builder().base_url(&server.base_url).model("g");
    let builder = builder.header("authorization", "Bearer ya29.token");
    call(builder.build().unwrap(), ModelRequest::default())
        .await
        .unwrap();
    let seen = server.only();
    assert_eq!(seen.header("authorization"), Some("Bearer ya29.token"));
    assert_eq!(seen.header("x-goog-api-key"), None);
}

/// Says to a test that it is a child, and not asked for by `--include-ignored`.
const CHILD: &str = "TOWER_AGENT_CHILD_TEST";

fn calls_in_a_process_with(variables: &[(&str, &str)]) {
    let output = Command::new(std::env::current_exe().unwrap())
        .args(["--ignored", "--exact", "own::gemini::building::child_calls"])
        .env(CHILD, "1")
        .env_remove("GEMINI_API_KEY")
        .env_remove("GOOGLE_API_KEY")
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
async fn the_key_comes_from_either_variable() {
    for (variables, key) in [
        (&[("GEMINI_API_KEY", "one")][..], Some("one")),
        (&[("GOOGLE_API_KEY", "two")], Some("two")),
        (
            &[("GEMINI_API_KEY", "one"), ("GOOGLE_API_KEY", "two")],
            Some("one"),
        ),
        (
            &[("GEMINI_API_KEY", " "), ("GOOGLE_API_KEY", "two")],
            Some("two"),
        ),
        (&[], None),
    ] {
        let server = Server::start([says("ok")]).await;
        let address = [("GEMINI_BASE_URL", &*server.base_url)];
        let variables = [&address[..], variables].concat();
        tokio::task::block_in_place(|| calls_in_a_process_with(&variables));
        assert_eq!(server.only().header("x-goog-api-key"), key);
    }
}

#[tokio::test]
#[ignore = "a child of another test"]
async fn child_calls() {
    if std::env::var_os(CHILD).is_none() {
        return;
    }
    let model = Gemini::from_env().unwrap().with_model("g");
    call(model, ModelRequest::default()).await.unwrap();
}
