//! Servers that are reached through a proxy. Tunnels are with the tests of TLS.

use tower_agent::{Error, ErrorKind, ModelRequest};
use tower_agent_providers::openai::OpenAi;
use tower_agent_providers::{HttpClient, HttpClientBuilder, HttpClientError};

use crate::building::{is_child, with_environment};
use crate::server::{Server, says, whole};
use test_support::call;

/// No name server knows it: only a proxy gets there.
const ELSEWHERE: &str = "http://models.invalid/v1";

async fn ask(client: HttpClientBuilder, base_url: &str) -> tower_agent::Result<String> {
    let model = OpenAi::builder()
        .base_url(base_url)
        .api_key("sk-1")
        .model("m")
        .build_with(client.build().unwrap())
        .unwrap();
    let response = call(model, ModelRequest::default()).await?;
    Ok(response.text())
}

/// The address of a server, without the path.
fn address(server: &Server) -> &str {
    server
        .base_url
        .strip_prefix("http://")
        .and_then(|rest| rest.strip_suffix("/v1"))
        .unwrap()
}

#[tokio::test]
async fn a_proxy_forwards_a_call_and_is_shown_its_password() {
    let proxy = Server::start([says("Hi.")]).await;
    let url = format!("http://ann:secret@{}", address(&proxy));
    let client = HttpClient::builder().proxy(url);
    assert_eq!(ask(client, ELSEWHERE).await.unwrap(), "Hi.");
    let seen = proxy.only();
    assert_eq!(
        seen.line(),
        "POST http://models.invalid/v1/chat/completions"
    );
    assert_eq!(seen.header("host"), Some("models.invalid"));
    // `ann:secret`.
    assert_eq!(
        seen.header("proxy-authorization"),
        Some("Basic YW5uOnNlY3JldA==")
    );
}

#[tokio::test]
async fn a_server_without_a_proxy_is_not_shown_the_password() {
    let server = Server::start([says("Hi.")]).await;
    let client = HttpClient::builder().no_proxy();
    assert_eq!(ask(client, &server.base_url).await.unwrap(), "Hi.");
    assert_eq!(server.only().header("proxy-authorization"), None);
    assert_eq!(server.only().line(), "POST /v1/chat/completions");
}

#[tokio::test]
async fn a_proxy_that_refuses_a_tunnel_is_an_error_without_its_password() {
    let proxy = Server::start([whole(407, &[], "no")]).await;
    let url = format!("http://ann:secret@{}", address(&proxy));
    let client = HttpClient::builder().proxy(url);
    let error: Error = ask(client, "https://models.invalid/v1").await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Connection, "{error:?}");
    let message = error.message();
    assert!(message.contains("proxy authorization required"), "{error}");
    assert!(!format!("{error:?}").contains("secret"), "{error:?}");
    let seen = proxy.only();
    assert_eq!(seen.line(), "CONNECT models.invalid:443");
    // The key of the provider is not the proxy's to know.
    assert_eq!(seen.header("authorization"), None);
}

#[test]
fn an_address_that_is_none_is_an_error_that_does_not_show_it() {
    for url in [
        "",
        "proxy:8080",
        "http://",
        "socks5://ann:secret@proxy",
        "http://ann:secret@a b",
    ] {
        let error = HttpClient::builder().proxy(url).build().unwrap_err();
        assert!(
            matches!(error, HttpClientError::Proxy { .. }),
            "{url}: {error:?}"
        );
        assert!(error.to_string().contains("http://host:port"), "{error}");
        assert!(!format!("{error:?}").contains("secret"), "{error:?}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn the_environment_names_the_proxy() {
    let proxy = Server::start([says("Hi.")]).await;
    let url = format!("http://{}", address(&proxy));
    let server = Server::start([says("Hi.")]).await;
    let variables = [
        ("HTTP_PROXY", &*url),
        ("NO_PROXY", "other.invalid"),
        ("LOCAL_SERVER", &server.base_url),
    ];
    tokio::task::block_in_place(|| with_environment("proxies::child_calls", &variables));
    assert_eq!(
        proxy.only().line(),
        "POST http://models.invalid/v1/chat/completions"
    );
    assert_eq!(server.only().line(), "POST /v1/chat/completions");
}

#[tokio::test]
#[ignore = "run by `the_environment_names_the_proxy`"]
async fn child_calls() {
    if !is_child() {
        return;
    }
    assert_eq!(ask(HttpClient::builder(), ELSEWHERE).await.unwrap(), "Hi.");
    // A server of this machine is reached without the proxy,
    let local = std::env::var("LOCAL_SERVER").unwrap();
    assert_eq!(ask(HttpClient::builder(), &local).await.unwrap(), "Hi.");
    // and so is one that the environment takes out.
    let error = ask(HttpClient::builder(), "http://other.invalid/v1")
        .await
        .unwrap_err();
    assert!(error.message().contains("host name"), "{error}");
}
