//! The service's behaviour for every protocol, shown with one that is made up: a line is an event,
//! the model is part of the path, and the key has a header of its own.

use std::borrow::Cow;
use std::time::Duration;

use http::{HeaderMap, HeaderName, HeaderValue};
use serde_json::{Value, json};
use tower_agent::stream::{Delta, Piece, Streamed};
use tower_agent::{Error, ErrorKind, ModelRequest, ModelResponse, Settings};
use tower_agent_providers::json::{self, Object};
use tower_agent_providers::protocol::{
    Call, Decoder, Event, Fault, Framing, Progress, Protocol, unsupported,
};
use tower_agent_providers::{HttpClient, HttpModel, HttpModelBuilder};

use crate::server::{Reply, Server, chunked_as, unfinished_as, whole};
use test_support::{call, deltas, stream, text};

#[derive(Default)]
struct Lines;

impl Protocol for Lines {
    type Decoder = LinesDecoder;

    const PROVIDER: &'static str = "lines";
    const BASE_URL: &'static str = "http://localhost:1/v1";
    const BASE_URL_VARIABLE: &'static str = "TOWER_AGENT_TEST_NOT_SET";
    /// Set wherever cargo runs a test.
    const KEY_VARIABLE: &'static str = "CARGO_PKG_NAME";
    const FRAMING: Framing = Framing::Lines;

    fn headers(&self) -> HeaderMap {
        let version = HeaderName::from_static("x-version");
        HeaderMap::from_iter([(version, HeaderValue::from_static("1"))])
    }

    fn key_header(&self, key: &str) -> (HeaderName, String) {
        (HeaderName::from_static("x-lines-key"), key.to_owned())
    }

    fn path<'a>(&self, call: &Call<'a>) -> tower_agent::Result<Cow<'a, str>> {
        let model = call.require_model()?;
        Ok(if call.is_streamed() {
            format!("/models/{model}:stream?alt=lines").into()
        } else {
            format!("/models/{model}:plain").into()
        })
    }

    fn encode(&self, call: &Call<'_>, body: &mut Vec<u8>) -> tower_agent::Result<()> {
        let settings = call.request().settings();
        if settings.seed.is_some() {
            return Err(unsupported("seed"));
        }
        let mut json = Object::body(body, &settings.extra, &["messages", "tools"]);
        json.field("host", call.host())?;
        json.end()
    }

    fn decoder(&self, _: &Call<'_>) -> LinesDecoder {
        LinesDecoder::default()
    }

    fn fault(&self, body: &[u8]) -> Option<Fault> {
        Some(Fault::from_json(body)?.with_retry_after(Duration::from_secs(7)))
    }
}

#[derive(Default)]
struct LinesDecoder {
    is_done: bool,
}

impl Decoder for LinesDecoder {
    fn event(&mut self, event: Event<'_>, out: &mut Vec<Piece>) -> Result<Progress, Fault> {
        assert_eq!(event.name, None);
        let said: Value = json::read(event.data.as_bytes(), "a line")?;
        self.is_done = said["done"] == true;
        out.push(Delta::Text(said["text"].as_str().unwrap_or_default().to_owned()).into());
        Ok(Progress::More)
    }

    fn response(&mut self, body: &[u8], out: &mut Vec<Piece>) -> Result<(), Fault> {
        self.event(Event::new(&String::from_utf8_lossy(body)), out)
            .map(drop)
    }

    /// The last event is not the end: an error can follow.
    fn end(&mut self, _: &mut Vec<Piece>) -> Result<(), Fault> {
        if self.is_done {
            Ok(())
        } else {
            Err(Fault::incomplete())
        }
    }

    fn finish(self, streamed: Streamed) -> ModelResponse {
        streamed.into()
    }

    fn id(&self) -> Option<&str> {
        Some("id_of_the_body")
    }
}

fn builder(server: &Server) -> HttpModelBuilder<Lines> {
    HttpModel::<Lines, _>::builder()
        .base_url(&server.base_url)
        .model("m")
}

fn model(server: &Server) -> HttpModel<Lines, HttpClient> {
    builder(server).build().unwrap()
}

async fn streamed(reply: Reply) -> (Result<ModelResponse, Error>, Vec<Delta>) {
    let server = Server::start([reply]).await;
    let (response, events) = stream(model(&server), ModelRequest::default()).await;
    (response, deltas(events))
}

async fn failed(reply: Reply) -> Error {
    let server = Server::start([reply]).await;
    call(model(&server), ModelRequest::default())
        .await
        .unwrap_err()
}

const NDJSON: &str = "application/x-ndjson";

#[tokio::test]
async fn lines_are_events_wherever_they_are_split() {
    let lines = "{\"text\":\"aé\"}\n\n  \n{\"text\":\"漢🦀\"}\r\n{\"text\":\"\",\"done\":true}";
    for lines in [lines.to_owned(), format!("{lines}\n")] {
        let bytes = lines.as_bytes();
        for at in 1..bytes.len() {
            let (response, deltas) =
                streamed(chunked_as(NDJSON, [&bytes[..at], &bytes[at..]])).await;
            assert_eq!(response.unwrap().text(), "aé漢🦀", "split at {at}");
            assert_eq!(deltas, [text("aé"), text("漢🦀")], "split at {at}");
        }
        let (response, _) = streamed(chunked_as(NDJSON, bytes.chunks(1))).await;
        assert_eq!(response.unwrap().text(), "aé漢🦀");
    }
}

#[tokio::test]
async fn a_line_of_five_megabytes() {
    let long = "漢🦀".repeat(5_000_000 / 7);
    let line = format!("{{\"text\":\"{long}\",\"done\":true}}\n");
    let (response, _) = streamed(chunked_as(NDJSON, line.as_bytes().chunks(16_381))).await;
    assert_eq!(response.unwrap().text(), long);
}

#[tokio::test]
async fn lines_that_end_early_are_an_error() {
    let whole = "{\"text\":\"a\"}\n{\"text\":\"b\",\"done\":true}";
    for cut in 0..whole.len() {
        let (response, _) = streamed(chunked_as(NDJSON, [&whole[..cut]])).await;
        let error = response.unwrap_err();
        assert!(
            error.message().contains("ended early"),
            "cut at {cut}: {error}"
        );
        assert!(error.is_retryable());
    }
    let (response, _) = streamed(chunked_as(NDJSON, [&b"{\"text\":\"\xff\"}\n"[..]])).await;
    let error = response.unwrap_err();
    assert!(
        error.message().starts_with("cannot read the stream: "),
        "{error}"
    );
    let (response, deltas) = streamed(unfinished_as(NDJSON, [&format!("{whole}\n")])).await;
    assert_eq!(response.unwrap_err().kind(), ErrorKind::Connection);
    assert_eq!(deltas, [text("a"), text("b")]);
}

#[tokio::test]
async fn the_media_type_says_whether_it_is_a_stream() {
    let lines = "{\"text\":\"a\"}\n{\"text\":\"b\",\"done\":true}\n";
    for media_type in [
        NDJSON,
        "application/ndjson; charset=utf-8",
        "application/jsonl",
    ] {
        let (response, _) = streamed(chunked_as(media_type, [lines])).await;
        assert_eq!(response.unwrap().text(), "ab", "{media_type}");
        let server = Server::start([chunked_as(media_type, [lines])]).await;
        let response = call(model(&server), ModelRequest::default()).await.unwrap();
        assert_eq!(response.text(), "ab", "{media_type}");
    }
    let (response, _) = streamed(whole(200, &[], lines)).await;
    assert_eq!(response.unwrap().text(), "ab", "none, but it was asked for");
    let json = [("content-type", "application/json")];
    let (response, deltas) = streamed(whole(200, &json, "{\n\"text\":\n\"a\"\n}")).await;
    assert_eq!(
        (response.unwrap().text(), deltas),
        ("a".into(), vec![text("a")])
    );
}

#[tokio::test]
async fn the_path_may_have_a_query_beside_that_of_the_base_url() {
    let reply = || whole(200, &[("content-type", "application/json")], "{}");
    let server = Server::start([reply(), reply(), reply()]).await;
    call(model(&server), ModelRequest::default()).await.unwrap();
    let with_query = || {
        builder(&server)
            .base_url(format!("{}/?a=b", server.base_url))
            .build()
    };
    call(with_query().unwrap(), ModelRequest::default())
        .await
        .unwrap();
    let _ = stream(
        with_query().unwrap().with_model("n"),
        ModelRequest::default(),
    )
    .await;
    let lines: Vec<_> = server
        .seen()
        .iter()
        .map(|seen| seen.line().to_owned())
        .collect();
    let expected = [
        "POST /v1/models/m:plain",
        "POST /v1/models/m:plain?a=b",
        "POST /v1/models/n:stream?alt=lines&a=b",
    ];
    assert_eq!(lines, expected);
    assert_eq!(server.seen()[0].body["host"], "127.0.0.1");
}

#[tokio::test]
async fn an_unsendable_request_fails_before_anything_is_sent() {
    let server = Server::start([]).await;
    let error = async |change: fn(&mut Settings)| {
        let mut request = ModelRequest::default();
        change(request.settings_mut());
        call(model(&server), request).await.unwrap_err()
    };
    let path = error(|settings| settings.model = Some("a b".into())).await;
    assert!(path.message().contains("`/models/a b:plain`"), "{path}");
    let body = error(|settings| settings.seed = Some(1)).await;
    assert_eq!(body.message(), "the protocol has no such seed");
    let name = error(|settings| drop(settings.extra.insert("model".into(), Value::Null))).await;
    assert!(name.message().starts_with("no model name"), "{name}");
    for error in [path, body, name] {
        assert_eq!(error.kind(), ErrorKind::InvalidRequest);
    }
    assert!(server.seen().is_empty());
}

#[tokio::test]
async fn the_protocol_has_headers_and_the_caller_replaces_them() {
    let reply = || whole(200, &[], "{}");
    let server = Server::start([reply(), reply(), reply(), reply()]).await;
    let own = |name: &str| builder(&server).header(name, "own");
    for builder in [
        builder(&server),
        own("x-lines-key"),
        own("authorization"),
        own("x-version"),
    ] {
        call(builder.build().unwrap(), ModelRequest::default())
            .await
            .unwrap();
    }
    let seen = server.seen();
    let header = |at: usize, name: &str| seen[at].header(name).map(str::to_owned);
    let environment = std::env::var("CARGO_PKG_NAME").unwrap();
    assert_eq!(header(0, "x-lines-key"), Some(environment.clone()));
    assert_eq!(header(0, "x-version").as_deref(), Some("1"));
    assert_eq!(
        header(0, "accept").as_deref(),
        Some("application/json, application/x-ndjson")
    );
    assert_eq!(header(1, "x-lines-key").as_deref(), Some("own"));
    assert_eq!(header(2, "x-lines-key"), None, "the caller has another way");
    assert_eq!(header(2, "authorization").as_deref(), Some("own"));
    assert_eq!(header(3, "x-version").as_deref(), Some("own"));
    assert_eq!(header(3, "x-lines-key"), Some(environment));
}

#[tokio::test]
async fn the_key_is_hidden_in_whatever_header_it_is_sent() {
    const KEY: &str = "lk-very-secret";
    let server = Server::start([whole(400, &[], json!({ "error": KEY }).to_string())]).await;
    let builder = builder(&server).api_key(KEY);
    assert!(!format!("{builder:?}").contains(KEY));
    let model = builder.build().unwrap();
    assert!(
        format!("{model:?}").contains("provider: \"lines\""),
        "{model:?}"
    );
    let error = call(model, ModelRequest::default()).await.unwrap_err();
    assert_eq!(error.message(), "[hidden]");
    assert_eq!(server.only().header("x-lines-key"), Some(KEY));
}

#[tokio::test]
async fn a_refused_key_names_the_protocols_variable() {
    let error = failed(whole(401, &[], "{\"error\":\"No.\"}")).await;
    assert_eq!(
        error.message(),
        "No.; the key is the one in `CARGO_PKG_NAME`"
    );
    let server = Server::start([whole(401, &[], "{\"error\":\"No.\"}")]).await;
    let model = builder(&server)
        .header("x-lines-key", "own")
        .build()
        .unwrap();
    let error = call(model, ModelRequest::default()).await.unwrap_err();
    assert_eq!(error.message(), "No.", "that key is not sent");
}

#[tokio::test]
async fn the_body_says_how_long_to_wait_if_the_head_does_not() {
    let error = failed(whole(429, &[], "{\"error\":\"No.\"}")).await;
    assert_eq!(error.retry_after(), Some(Duration::from_secs(7)));
    let error = failed(whole(429, &[("retry-after", "2")], "{\"error\":\"No.\"}")).await;
    assert_eq!(error.retry_after(), Some(Duration::from_secs(2)));
}

#[tokio::test]
async fn request_ids_and_rate_limits_have_several_names() {
    let headers = [
        ("request-id", "req_2"),
        ("anthropic-ratelimit-tokens-remaining", "5"),
    ];
    let error = failed(whole(500, &headers, "")).await;
    assert_eq!(error.metadata().request_id.as_deref(), Some("req_2"));
    let limits = &error.metadata().rate_limits;
    assert_eq!(
        *limits,
        [("anthropic-ratelimit-tokens-remaining".into(), "5".into())].into()
    );
    let server = Server::start([whole(200, &[], "{}"), whole(200, &headers, "{}")]).await;
    for id in ["id_of_the_body", "req_2"] {
        let response = call(model(&server), ModelRequest::default()).await.unwrap();
        assert_eq!(response.metadata().request_id.as_deref(), Some(id));
    }
}

/// The head was sent before anybody knew.
#[tokio::test]
async fn a_cut_off_stream_may_be_tried_again_whatever_the_head_says() {
    let headers = [("x-should-retry", "false"), ("content-type", NDJSON)];
    let (response, _) = streamed(whole(200, &headers, "{\"text\":\"a\"}\n")).await;
    assert!(response.unwrap_err().is_retryable());
}

#[test]
fn any_text_is_the_name_of_a_field() {
    let extra = json!({ "\"quoted\"\n": 2, "größe": 3, "": 4 });
    let mut body = Vec::new();
    let mut object = Object::with_extra(&mut body, extra.as_object());
    object.field("back\\slash", 1).unwrap();
    object.end().unwrap();
    let read: Value = serde_json::from_slice(&body).unwrap();
    assert_eq!(
        read,
        json!({ "back\\slash": 1, "\"quoted\"\n": 2, "größe": 3, "": 4 })
    );
}
