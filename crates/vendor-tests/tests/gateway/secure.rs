//! Tenants that are curious, and clients that take more than they give.

use std::net::Ipv4Addr;
use std::time::Duration;

use reqwest::Client;
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};

use crate::connections::Limits;
use crate::settings::{MockSettings, tenants};
use crate::{mock, mocks, start, start_within};

const SOON: Duration = Duration::from_secs(1);

fn soon() -> Limits {
    Limits {
        connections: 10,
        head: SOON,
        body: SOON,
        write: SOON,
    }
}

fn hello() -> Value {
    json!({ "model": "m", "messages": [{ "role": "user", "content": "Hello." }] })
}

async fn connect(address: &str) -> TcpStream {
    let host = address.trim_start_matches("http://");
    TcpStream::connect(host.trim_end_matches("/v1"))
        .await
        .unwrap()
}

/// All that the server says until it closes the connection.
async fn rest(mut socket: TcpStream) -> String {
    let mut text = Vec::new();
    // A reset is an end as well.
    let _ = socket.read_to_end(&mut text).await;
    String::from_utf8_lossy(&text).into_owned()
}

#[tokio::test]
async fn the_counts_name_tenants_on_a_port_of_their_own_and_never_have_a_key() {
    let (address, telemetry) = start_within(mocks().await, 1000, Limits::default()).await;
    let chat = |key: &str| {
        let request = Client::new().post(format!("{address}/chat/completions"));
        request.bearer_auth(key).json(&hello()).send()
    };
    assert_eq!(chat("sk-grace").await.unwrap().status(), 200);
    // A name is no key.
    for unknown in ["grace", "", "sk-grac", "sk-gracee", "grace=sk-grace"] {
        let refused = chat(unknown).await.unwrap();
        assert_eq!(refused.status(), 401, "{unknown}");
        assert!(!refused.text().await.unwrap().contains("grace"));
    }
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.unwrap();
    let metrics = format!("http://{}/metrics", listener.local_addr().unwrap());
    tokio::spawn(axum::serve(listener, telemetry.app()).into_future());
    let counts = reqwest::get(metrics).await.unwrap().text().await.unwrap();
    assert!(
        counts.contains(r#"{tenant="grace",outcome="done"} 1"#),
        "{counts}"
    );
    assert!(!counts.contains("sk-"), "{counts}");
    for path in ["/metrics", "/v1/metrics"] {
        let url = address.replace("/v1", path);
        let request = Client::new().get(url).bearer_auth("sk-ada");
        assert_eq!(request.send().await.unwrap().status(), 404);
    }
}

#[test]
fn an_error_of_the_settings_does_not_tell_the_key() {
    for pairs in [
        "sk-secret",
        "=sk-secret",
        "sk-secret=",
        "sk-secret=sk-secret",
    ] {
        let pairs = ["ada=sk-ada".to_owned(), pairs.to_owned()];
        let Err(error) = tenants(&pairs) else {
            panic!("{pairs:?}")
        };
        assert_eq!(
            error.to_string(),
            "number 2 of KEYS is not a name, `=` and a key"
        );
    }
    let two = ["ada=sk-one", "grace=sk-one"].map(str::to_owned);
    let error = tenants(&two).err().unwrap().to_string();
    assert_eq!(error, "number 2 of KEYS has the key of another");
}

#[tokio::test]
async fn an_image_leads_nowhere_that_a_stranger_could_not_read() {
    let address = start(mocks().await, 1000).await;
    let status = async |url: &str| {
        let image = json!({ "type": "image_url", "image_url": { "url": url } });
        let message = json!({ "role": "user", "content": [image] });
        let body = json!({ "model": "m", "messages": [message] });
        let request = Client::new().post(format!("{address}/chat/completions"));
        let response = request
            .bearer_auth("sk-ada")
            .json(&body)
            .send()
            .await
            .unwrap();
        let status = response.status().as_u16();
        if status == 400 {
            let body: Value = response.json().await.unwrap();
            assert_eq!(
                body["error"]["param"],
                "messages[0].content[0].image_url.url"
            );
        }
        status
    };
    for url in [
        "http://169.254.169.254/latest/meta-data/",
        "https://169.254.169.254/",
        "https://[::ffff:169.254.169.254]/",
        "https://metadata.google.internal/",
        "https://localhost/",
        "https://example.com@10.0.0.1/",
        "http://example.com/a.png",
        "https://api.openai.com/v1/files/file-1/content",
        "file:///etc/passwd",
        "data:text/html,<script>",
        "",
    ] {
        assert_eq!(status(url).await, 400, "{url}");
    }
    for url in [
        "https://example.com/a.png",
        "data:image/png;base64,iVBORw0KGgo=",
    ] {
        assert_eq!(status(url).await, 200, "{url}");
    }
}

#[tokio::test]
async fn half_a_head_and_no_head_are_closed() {
    let (address, _) = start_within(mocks().await, 1000, soon()).await;
    for head in ["", "POST /v1/chat", "POST / HTTP/1.1\r\nhost: x\r\na: "] {
        let mut socket = connect(&address).await;
        socket.write_all(head.as_bytes()).await.unwrap();
        assert!(!rest(socket).await.contains("200 OK"), "{head}");
    }
}

#[tokio::test]
async fn a_body_is_read_after_the_key_and_within_a_time() {
    let (address, _) = start_within(mocks().await, 1000, soon()).await;
    let head = |key: &str| {
        format!(
            "POST /v1/chat/completions HTTP/1.1\r\nhost: x\r\nauthorization: Bearer {key}\r\n\
             content-type: application/json\r\ncontent-length: 1000\r\n\r\n{{"
        )
    };
    for (key, status) in [("sk-ada", "408"), ("ada", "401")] {
        let mut socket = connect(&address).await;
        socket.write_all(head(key).as_bytes()).await.unwrap();
        let said = rest(socket).await;
        assert!(said.starts_with(&format!("HTTP/1.1 {status}")), "{said}");
    }
}

#[tokio::test]
async fn there_are_so_many_connections_and_an_idle_one_makes_room() {
    let limits = Limits {
        connections: 1,
        ..soon()
    };
    let (address, _) = start_within(mocks().await, 1000, limits).await;
    let idle = connect(&address).await;
    let request = Client::new().post(format!("{address}/chat/completions"));
    let answer = request.bearer_auth("sk-ada").json(&hello()).send().await;
    assert_eq!(answer.unwrap().status(), 200);
    // It was first, so it was closed before the other was accepted.
    assert_eq!(rest(idle).await, "");
}

#[tokio::test]
async fn a_client_that_does_not_read_ends_its_call() {
    let endless = MockSettings {
        first: Duration::ZERO,
        step: Duration::ZERO,
        words: 20_000_000,
    };
    let provider = mock::start(endless).await.unwrap();
    let (address, telemetry) = start_within(vec![provider], 1000, soon()).await;
    let mut body = hello();
    body["stream"] = true.into();
    let body = body.to_string();
    let mut socket = connect(&address).await;
    let request = format!(
        "POST /v1/chat/completions HTTP/1.1\r\nhost: x\r\nauthorization: Bearer sk-ada\r\n\
         content-type: application/json\r\ncontent-length: {}\r\n\r\n{body}",
        body.len()
    );
    socket.write_all(request.as_bytes()).await.unwrap();
    while !telemetry.text().contains(r#"outcome="dropped""#) {
        tokio::task::yield_now().await;
    }
    drop(socket);
}
