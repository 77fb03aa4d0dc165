//! Keys: a server may repeat them, and they are never printed.

use proptest::prelude::*;
use serde_json::json;
use tower_agent::model::FinishReason;
use tower_agent::{Error, ErrorKind, ModelRequest};
use tower_agent_providers::openai::{Chat, OpenAi};
use tower_agent_providers::{HttpModelBuilder, ModelBuildError, RequestBody};

use crate::server::{Reply, Server, json as reply, whole};
use test_support::call;
use test_support::property::cases;

const KEY: &str = "sk-proj-very/secret+key=4711";

async fn error_of(
    reply: Reply,
    build: impl FnOnce(HttpModelBuilder<Chat>) -> HttpModelBuilder<Chat>,
) -> Error {
    let server = Server::start([reply]).await;
    let model = build(server.builder()).build().unwrap();
    call(model, ModelRequest::default()).await.unwrap_err()
}

fn with_key(builder: HttpModelBuilder<Chat>) -> HttpModelBuilder<Chat> {
    builder.api_key(KEY)
}

/// No run of so many characters of the secret.
#[track_caller]
fn assert_hidden(error: &Error, secret: &str) {
    let printed = format!("{error} {error:?} {:?}", error.metadata());
    for start in 0..secret.len() - 6 {
        let part = &secret[start..start + 6];
        assert!(!printed.contains(part), "`{part}` of the secret: {printed}");
    }
}

#[tokio::test]
async fn a_key_across_the_cut_of_a_quoted_body_is_hidden_whole() {
    for before in 150..215 {
        let body = format!(
            "<p>{} {KEY} is wrong</p>{}",
            "x".repeat(before),
            "y".repeat(3000)
        );
        let error = error_of(whole(401, &[], body), with_key).await;
        assert_hidden(&error, KEY);
    }
    // Also across whatever else could be cut, where spaces take up most of the body.
    for before in (1400..1700).step_by(7) {
        let body = format!("<p>{}{KEY} is wrong</p>", " ".repeat(before));
        let error = error_of(whole(401, &[], body), with_key).await;
        assert_hidden(&error, KEY);
        assert!(error.message().contains("[hidden] is wrong"), "{error}");
    }
}

#[tokio::test]
async fn a_key_is_hidden_however_its_characters_are_escaped() {
    let encoded = "sk-proj-very%2Fsecret%2Bkey%3D4711";
    let lower = encoded.to_ascii_lowercase();
    let slashed = KEY.replace('/', "\\/");
    let twice = encoded.replace('%', "%25");
    let each = |spell: fn(u8) -> String| KEY.bytes().map(spell).collect::<String>();
    let percent = each(|byte| format!("%{byte:02x}"));
    let unicode = each(|byte| format!("\\u{byte:04X}"));
    let html = each(|byte| format!("&#{byte};"));
    let html_hex = each(|byte| format!("&#x{byte:X};"));
    let upper = KEY.to_ascii_uppercase();
    let spellings = [
        KEY, encoded, &lower, &slashed, &twice, &percent, &unicode, &html, &html_hex, &upper,
    ];
    for said in spellings {
        let error = error_of(whole(401, &[], format!("<p>{said}</p>")), with_key).await;
        assert_eq!(
            error.message(),
            "the server responded with 401 Unauthorized: <p>[hidden]</p>"
        );
        let body = json!({ "error": { "message": format!("key {said}.") } });
        let error = error_of(reply(401, &body), with_key).await;
        assert_eq!(error.message(), "key [hidden].");
    }
}

#[tokio::test]
async fn a_key_is_hidden_where_a_server_says_why_its_answer_ended() {
    let body = json!({ "choices": [{
        "message": { "role": "assistant", "content": "Hi." },
        "finish_reason": format!("because of {KEY}"),
    }] });
    let server = Server::start([reply(200, &body)]).await;
    let model = with_key(server.builder()).build().unwrap();
    let response = call(model, ModelRequest::default()).await.unwrap();
    let hidden = FinishReason::Other("because of [hidden]".into());
    assert_eq!(response.finish_reason(), &hidden);
}

#[tokio::test]
async fn a_key_in_a_query_is_hidden_encoded_and_not() {
    for query in [
        "key=sk%2Dproj%2Dvery%2Fsecret",
        "sig=sk-proj-very%2Fsecret",
        "sk-proj-very%2Fsecret",
    ] {
        for said in [
            "sk-proj-very/secret",
            "sk-proj-very%2Fsecret",
            "sk%2Dproj%2Dvery%2Fsecret",
        ] {
            let server = Server::start([whole(400, &[], format!("GET /v1?{said}"))]).await;
            let url = format!("{}?api-version=2024-10-21&{query}", server.base_url);
            let model = server.builder().base_url(url).build().unwrap();
            let error = call(model, ModelRequest::default()).await.unwrap_err();
            let expected = "the server responded with 400 Bad Request: GET /v1?[hidden]";
            assert_eq!(error.message(), expected, "{query} {said}");
        }
    }
}

#[tokio::test]
async fn headers_of_any_name_are_hidden_where_a_server_repeats_them() {
    let secret = "0123456789abcdef";
    let cookie = format!("theme=dark; sid={secret}");
    let digest = format!("Digest username=\"ann\", response=\"{secret}\"");
    let cases = [
        ("x-session", secret),
        ("x-jwt", secret),
        ("x-corp-gateway", secret),
        ("x-auth", secret),
        ("proxy-authorization", secret),
        ("cookie", &*cookie),
        ("authorization", &*digest),
        ("x-forwarded-identity", secret),
    ];
    for (name, value) in cases {
        let body = json!({ "error": { "message": format!("{value}; {secret}") } });
        let error = error_of(reply(400, &body), |builder| builder.header(name, value)).await;
        assert_hidden(&error, secret);
    }
}

#[tokio::test]
async fn headers_without_secrets_are_shown() {
    let headers = [
        ("openai-organization", "org-0123456789"),
        ("openai-beta", "assistants=v2"),
        ("http-referer", "https://example.com"),
        ("x-title", "My application"),
        ("x-region", "eu-central-1"),
        ("x-flag", "on"),
    ];
    for (name, value) in headers {
        let body = json!({ "error": { "message": format!("{value}!") } });
        let error = error_of(reply(400, &body), |builder| builder.header(name, value)).await;
        assert_eq!(error.message(), format!("{value}!"));
    }
}

#[tokio::test]
async fn a_key_is_hidden_in_what_the_head_of_an_answer_says() {
    let headers = [("x-request-id", KEY), ("x-ratelimit-reset-requests", KEY)];
    let error = error_of(whole(429, &headers, "{}"), with_key).await;
    assert_eq!(error.metadata().request_id.as_deref(), Some("[hidden]"));
    assert_hidden(&error, KEY);
}

#[test]
fn a_key_where_a_port_or_credentials_would_be_is_refused_and_not_shown() {
    let secret = "sk-proj-verysecretkey";
    let urls = [
        format!("http://localhost:{secret}/v1"),
        format!("http://localhost:{secret}"),
        format!("http://localhost:{secret}?a=b"),
        format!("http://localhost:80{secret}/v1"),
        format!("http://[::1]:{secret}/v1"),
        format!("http://{secret}@localhost/v1"),
        format!("http://ann:{secret}@localhost/v1"),
        format!("http://ann:{secret}/more@localhost/v1"),
        format!("http://ann:{secret}?more@localhost/v1"),
        format!("http://ann:{secret}#more@localhost/v1"),
        format!("http://localhost:{secret}:80/v1"),
        format!("http://local host/v1?key={secret}"),
        secret.to_owned(),
        format!("{secret}://localhost/v1"),
        format!("Bearer {secret}"),
    ];
    for url in urls {
        let builder = OpenAi::builder().api_key("").base_url(&*url);
        assert!(!format!("{builder:?}").contains("secret"), "{builder:?}");
        match builder.build() {
            Err(error @ ModelBuildError::BaseUrl { .. }) => {
                assert!(!format!("{error} {error:?}").contains("secret"), "{error}");
            }
            other => panic!("{url}: {other:?}"),
        }
    }
    for url in [
        "http://localhost:/v1",
        "http://localhost:65535",
        "http://[::1]:80/v1",
    ] {
        OpenAi::builder().api_key("").base_url(url).build().unwrap();
    }
    assert!(
        OpenAi::builder()
            .api_key("")
            .base_url("http://localhost:65536/v1")
            .build()
            .is_err()
    );
}

fn body_with_a_key_hides_it(before: &str, after: &str, escape: bool) {
    let said = if escape {
        KEY.replace('/', "%2f").replace('+', "%2B")
    } else {
        KEY.to_owned()
    };
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .unwrap();
    let body = format!("{before}{said}{after}");
    let error = runtime.block_on(error_of(whole(500, &[], body), with_key));
    assert_hidden(&error, KEY);
}

#[test]
fn a_body_that_is_a_key_and_nothing_else_does_not_show_it() {
    body_with_a_key_hides_it("", "", false);
}

proptest! {
    #![proptest_config(cases(64))]

    /// Whatever stands around a key, and wherever the cut falls.
    #[test]
    fn no_body_shows_a_key(
        before in "[ a-z<>\"%\\\\é]{0,260}",
        after in "\\PC{0,40}",
        escape in any::<bool>(),
    ) {
        body_with_a_key_hides_it(&before, &after, escape);
    }
}

/// Says to a test that it is a child, and not asked for by `--include-ignored`.
const CHILD: &str = "TOWER_AGENT_CHILD_TEST";

async fn refused(key: Option<&str>) -> Error {
    let server = Server::start([reply(401, &json!({ "error": "No." }))]).await;
    let builder = OpenAi::builder().base_url(&server.base_url).model("m");
    let builder = key.into_iter().fold(builder, HttpModelBuilder::api_key);
    call(builder.build().unwrap(), ModelRequest::default())
        .await
        .unwrap_err()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_refused_key_says_where_it_came_from() {
    let error = refused(Some("sk-own-key")).await;
    assert_eq!((error.kind(), error.message()), (ErrorKind::Auth, "No."));
    let child = |test: &str, key: Option<&str>| {
        let mut command = std::process::Command::new(std::env::current_exe().unwrap());
        command
            .args(["--ignored", "--exact", &format!("secrets::{test}")])
            .env(CHILD, "1");
        command
            .env_remove("OPENAI_BASE_URL")
            .env_remove("OPENAI_API_KEY");
        command.envs(key.map(|key| ("OPENAI_API_KEY", key)));
        let output = command.output().unwrap();
        let said = String::from_utf8_lossy(&output.stdout);
        assert!(
            output.status.success() && said.contains("1 passed"),
            "{said}"
        );
    };
    tokio::task::block_in_place(|| {
        child("child_without_a_key", None);
        child(
            "child_with_a_key_of_the_environment",
            Some("sk-environment"),
        );
    });
}

#[tokio::test]
#[ignore = "a child of another test"]
async fn child_without_a_key() {
    if std::env::var_os(CHILD).is_none() {
        return;
    }
    let error = refused(None).await;
    assert_eq!(
        error.message(),
        "No.; no API key is set: set `OPENAI_API_KEY`, or call `api_key` on the builder",
    );
    // Not reached at all, and not even a server chosen.
    let down = tower::service_fn(|_: http::Request<RequestBody>| async {
        let error = std::io::Error::from(std::io::ErrorKind::ConnectionRefused);
        Err::<http::Response<http_body_util::Full<bytes::Bytes>>, _>(error)
    });
    let model = OpenAi::builder().model("m").build_with(down).unwrap();
    let error = call(model, ModelRequest::default()).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Connection);
    assert!(error.message().contains("set `OPENAI_API_KEY`"), "{error}");
    // A server of one's own may need no key.
    let own = OpenAi::builder()
        .base_url("http://localhost/v1")
        .model("m")
        .build_with(down);
    let error = call(own.unwrap(), ModelRequest::default())
        .await
        .unwrap_err();
    assert!(!error.message().contains("OPENAI_API_KEY"), "{error}");
}

#[tokio::test]
#[ignore = "a child of another test"]
async fn child_with_a_key_of_the_environment() {
    if std::env::var_os(CHILD).is_none() {
        return;
    }
    let error = refused(None).await;
    assert_eq!(
        error.message(),
        "No.; the key is the one in `OPENAI_API_KEY`"
    );
}
