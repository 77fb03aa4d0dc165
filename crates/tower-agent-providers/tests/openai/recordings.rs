//! A model over HTTP replays without its server, byte for byte.

use std::fs;
use std::path::PathBuf;
use std::sync::LazyLock;

use bytes::Bytes;
use http_body_util::BodyExt;
use serde_json::{Value, json};
use tower::ServiceExt;
use tower_agent::{Agent, Error, ErrorKind, Message, ModelRequest, ModelResponse, Tool};
use tower_agent_middleware::redact::{Detector, Redact};
use tower_agent_providers::openai::{Chat, OpenAi};
use tower_agent_providers::testing::{HttpRecorded, HttpRecordingLayer};
use tower_agent_providers::{HttpClient, HttpModelBuilder, RequestBody};
use tower_agent_test::{Recording, RecordingError};
use tower_layer::Layer;

use crate::server::{
    Reply, Server, chunked, delta, events, finished, json as reply, says, unfinished, whole,
};
use test_support::{call, deltas, stream};

const KEY: &str = "sk-proj-very/secret+key=4711";

fn file(name: &str) -> PathBuf {
    PathBuf::from(env!("CARGO_TARGET_TMPDIR"))
        .join("http")
        .join(format!("{name}.json"))
}

fn written(name: &str) -> String {
    fs::read_to_string(file(name)).unwrap()
}

fn http(recording: &Recording) -> HttpRecorded<HttpClient> {
    HttpRecordingLayer::new(recording.clone()).layer(HttpClient::new().unwrap())
}

/// A builder for a server that is gone.
fn gone() -> HttpModelBuilder<Chat> {
    OpenAi::builder()
        .base_url("http://127.0.0.1:9/v1")
        .api_key("")
        .model("test-model")
}

fn ask(text: &str) -> ModelRequest {
    ModelRequest::new([Message::user(text)])
}

/// The text of an error without the address of the server, which differs in a replay.
fn without_server(error: &Error) -> String {
    let endpoint = error.metadata().endpoint.as_deref().unwrap();
    error.to_string().replace(endpoint, "POST")
}

type Answered = (
    Result<ModelResponse, Error>,
    Vec<tower_agent::stream::Delta>,
);

async fn answered(
    builder: HttpModelBuilder<Chat>,
    recording: &Recording,
    streamed: bool,
) -> Answered {
    let model = builder.build_with(http(recording)).unwrap();
    if !streamed {
        return (call(model, ask("?")).await, Vec::new());
    }
    let (response, told) = stream(model, ask("?")).await;
    (response, deltas(told))
}

fn hello() -> Reply {
    let bytes: Vec<u8> = [
        delta(json!({ "content": "Hel" })),
        delta(json!({ "content": "lö 🦀" })),
    ]
    .iter()
    .chain([&finished("stop")])
    .map(crate::server::event)
    .chain(["data: [DONE]\n\n".into()])
    .collect::<String>()
    .into_bytes();
    // Also within characters.
    chunked(bytes.chunks(7))
}

#[tokio::test]
async fn a_call_replays_streamed_and_not_with_the_server_gone() {
    let cases = [
        ("plain", false, says("Hello.")),
        ("streamed", true, hello()),
        (
            "limited",
            true,
            whole(
                429,
                &[("retry-after", "2"), ("x-request-id", "req_9")],
                "{}",
            ),
        ),
        ("cut", true, {
            unfinished(["data: {\"choices\":[{\"delta\":{\"content\":\"ha\"}}]}\n\n"])
        }),
        (
            "binary",
            false,
            whole(200, &[("content-type", "application/json")], [0xff, 0xfe]),
        ),
        ("silent", false, Vec::new()),
    ];
    for (name, streamed, reply) in cases {
        let server = Server::start([reply]).await;
        let recording = Recording::record(file(name));
        let (was, told) = answered(server.builder(), &recording, streamed).await;
        recording.finish().unwrap();
        drop(server);
        let recording = Recording::replay(file(name)).unwrap();
        let (response, again) = answered(gone(), &recording, streamed).await;
        match (response, was) {
            (Ok(response), Ok(was)) => assert_eq!(response, was, "{name}"),
            (Err(error), Err(was)) => {
                assert_eq!(without_server(&error), without_server(&was), "{name}");
                assert_eq!(error.retry_after(), was.retry_after(), "{name}");
            }
            (response, was) => panic!("{name}: {response:?}, {was:?}"),
        }
        assert_eq!(again, told, "{name}");
        recording.finish().unwrap();
    }
}

#[tokio::test]
async fn a_body_replays_byte_for_byte_in_its_pieces() {
    async fn frames(recording: &Recording, url: &str) -> (http::response::Parts, Vec<Bytes>) {
        let request = http::Request::post(url)
            .body(RequestBody::from("{}"))
            .unwrap();
        let (parts, mut body) = http(recording).oneshot(request).await.unwrap().into_parts();
        let mut frames = Vec::new();
        while let Some(frame) = body.frame().await {
            frames.push(frame.unwrap().into_data().unwrap());
        }
        (parts, frames)
    }
    let server = Server::start([hello()]).await;
    let recording = Recording::record(file("bytes"));
    let (head, was) = frames(&recording, &server.base_url).await;
    recording.finish().unwrap();
    drop(server);
    let recording = Recording::replay(file("bytes")).unwrap();
    let (replayed, again) = frames(&recording, "http://127.0.0.1:9/v1").await;
    assert_eq!(again, was);
    assert_eq!(
        (replayed.status, replayed.headers),
        (head.status, head.headers)
    );
    assert!(
        written("bytes").contains("base64"),
        "a piece within a character"
    );
}

#[tokio::test]
async fn a_run_with_tools_replays() {
    let asks = json!({ "choices": [{ "finish_reason": "tool_calls", "message": {
        "role": "assistant", "content": null,
        "tool_calls": [{ "id": "call_1", "type": "function",
            "function": { "name": "add", "arguments": "{\"a\": 1, \"b\": 2}" } }],
    }}]});
    let agent = |builder: HttpModelBuilder<Chat>, recording: &Recording, sum: u32| {
        Agent::builder(builder.build_with(http(recording)).unwrap())
            .tool(Tool::function("add", "Adds.", move |_: Value| sum))
            .build()
            .unwrap()
    };
    let server = Server::start([reply(200, &asks), says("3")]).await;
    let recording = Recording::record(file("tools"));
    let was = agent(server.builder(), &recording, 3)
        .run("1 + 2?")
        .await
        .unwrap();
    recording.finish().unwrap();
    drop(server);
    let recording = Recording::replay(file("tools")).unwrap();
    let response = agent(gone(), &recording, 3).run("1 + 2?").await.unwrap();
    assert_eq!(response.messages(), was.messages());
    recording.finish().unwrap();

    // A tool that answers something else.
    let recording = Recording::replay(file("tools")).unwrap();
    let error = agent(gone(), &recording, 4)
        .run("1 + 2?")
        .await
        .unwrap_err();
    let expected = format!(
        "http call `POST /v1/chat/completions` differs from call 2 of the recording `{}`\n  \
           body.messages[2].content\n    recorded: 3\n    received: 4",
        file("tools").display()
    );
    assert_eq!(
        (error.kind(), error.message()),
        (ErrorKind::Aborted, &*expected)
    );
    // One that is not made at all.
    let recording = Recording::replay(file("tools")).unwrap();
    let error = recording.finish().unwrap_err();
    assert!(
        matches!(error, RecordingError::Unused { ref calls, .. } if calls.len() == 2),
        "{error}"
    );
}

#[tokio::test]
async fn no_secret_of_a_request_reaches_the_file() {
    let encoded = "sk-proj-very%2Fsecret%2Bkey%3D4711";
    let quoted = |key: &str| format!("<p>{key} is wrong, {encoded} too</p>");
    let across = quoted(KEY);
    let cookie = [("set-cookie", "sid=0123456789"), ("x-request-id", KEY)];
    let replies = [
        whole(401, &cookie, quoted(KEY)),
        chunked([&across[..12], &across[12..]]),
        reply(
            401,
            &json!({ "error": { "message": format!("Incorrect API key: {KEY}.") } }),
        ),
    ];
    for (index, reply) in replies.into_iter().enumerate() {
        let name = format!("secrets_{index}");
        let server = Server::start([reply]).await;
        let recording = Recording::record(file(&name));
        let with_keys = |builder: HttpModelBuilder<Chat>, url: &str| {
            let url = format!("{url}?api-version=2024-10-21&key={encoded}");
            builder
                .base_url(url)
                .api_key(KEY)
                .header("x-api-key", KEY)
                .header("x-goog-api-key", KEY)
                .header("cookie", "theme=dark; sid=0123456789abcdef")
        };
        let builder = with_keys(server.builder(), &server.base_url);
        let (was, _) = answered(builder, &recording, false).await;
        recording.finish().unwrap();
        let text = written(&name);
        for secret in ["sk-proj", "secret", "4711", "0123456789"] {
            assert!(!text.contains(secret), "`{secret}` in {text}");
        }
        assert!(
            text.contains("api-version=2024-10-21&key=[hidden]"),
            "{text}"
        );
        // Neither the key nor its place matters for the replay.
        let recording = Recording::replay(file(&name)).unwrap();
        let builder = with_keys(gone(), "http://127.0.0.1:9/v1").api_key("sk-other-key");
        let (response, _) = answered(builder, &recording, false).await;
        assert_eq!(
            without_server(&response.unwrap_err()),
            without_server(&was.unwrap_err())
        );
        recording.finish().unwrap();
    }
}

/// Servers that call tools themselves receive the keys of these in the body.
#[tokio::test]
async fn a_secret_in_a_body_is_hidden_and_the_rest_of_it_is_compared() {
    let asks = |key: &str, place: &str| {
        let mut request = ask("?");
        let tool = json!({ "url": place, "headers": { "authorization": format!("Bearer {key}") } });
        request
            .settings_mut()
            .extra
            .insert("mcp".into(), json!([tool, { "api_key": key }]));
        request
            .settings_mut()
            .extra
            .insert("max_tokens".into(), json!(64));
        request
    };
    let key = "ghp_0123456789";
    let server = Server::start([says(&format!("{key} is not accepted."))]).await;
    let recording = Recording::record(file("body"));
    let model = server.builder().build_with(http(&recording)).unwrap();
    call(model, asks(key, "/tools")).await.unwrap();
    recording.finish().unwrap();
    let text = written("body");
    assert!(!text.contains("ghp_"), "{text}");
    assert!(
        text.contains("[hidden] is not accepted.") && text.contains("64"),
        "{text}"
    );

    for (place, is_same) in [("/tools", true), ("/others", false)] {
        let recording = Recording::replay(file("body")).unwrap();
        let model = gone().build_with(http(&recording)).unwrap();
        let response = call(model, asks("ghp_another_one", place)).await;
        assert_eq!(response.is_ok(), is_same, "{response:?}");
        assert_eq!(recording.finish().is_ok(), is_same);
    }
}

#[tokio::test]
async fn a_server_that_is_not_reached_replays_as_not_reached() {
    let recording = Recording::record(file("refused"));
    let (was, _) = answered(gone(), &recording, false).await;
    recording.finish().unwrap();
    let recording = Recording::replay(file("refused")).unwrap();
    let builder = gone().base_url("http://127.0.0.1:10/v1");
    let (error, _) = answered(builder, &recording, false).await;
    let (error, was) = (error.unwrap_err(), was.unwrap_err());
    assert_eq!(
        (error.kind(), without_server(&error)),
        (ErrorKind::Connection, without_server(&was))
    );
}

#[tokio::test]
async fn a_stream_that_was_dropped_replays_up_to_there() {
    let server = Server::start([events(&[delta(json!({ "content": "a" }))])]).await;
    let recording = Recording::record(file("dropped"));
    let first = async |recording: &Recording, url: &str| {
        let request = http::Request::post(url)
            .body(RequestBody::from("{}"))
            .unwrap();
        let mut body = http(recording).oneshot(request).await.unwrap().into_body();
        let first = body.frame().await.unwrap().unwrap().into_data().unwrap();
        (first, body)
    };
    let (was, body) = first(&recording, &server.base_url).await;
    assert!(matches!(
        recording.finish().unwrap_err(),
        RecordingError::Running { .. }
    ));
    drop(body);
    recording.finish().unwrap();
    drop(server);
    let recording = Recording::replay(file("dropped")).unwrap();
    let (again, mut body) = first(&recording, "http://127.0.0.1:9/v1").await;
    assert_eq!(again, was);
    assert!(futures::FutureExt::now_or_never(body.frame()).is_none());
    recording.finish().unwrap();
    // It was answered, so that it has to be made.
    assert!(
        Recording::replay(file("dropped"))
            .unwrap()
            .finish()
            .is_err()
    );
}

const ADDRESS: &str = "jo@example.com";
const CARD: &str = "4111111111111111";

static REDACT: LazyLock<Redact> =
    LazyLock::new(|| Redact::new([Detector::email(), Detector::card()]).unwrap());

fn redacted(recording: &Recording) -> HttpRecorded<HttpClient> {
    let layer =
        HttpRecordingLayer::new(recording.clone()).redact(|json| REDACT.json(json).into_owned());
    layer.layer(HttpClient::new().unwrap())
}

fn arguments(index: u32, text: &str) -> Value {
    delta(json!({ "tool_calls": [{ "index": index, "function": { "arguments": text } }] }))
}

fn begins(index: u32) -> Value {
    let call = json!({ "index": index, "id": format!("call_{index}"), "type": "function",
        "function": { "name": "write", "arguments": "" } });
    delta(json!({ "tool_calls": [call] }))
}

fn said_in(response: &ModelResponse) -> Value {
    let calls: Vec<_> = response
        .message()
        .tool_calls()
        .map(|call| call.arguments.value())
        .collect();
    json!([response.text(), calls])
}

/// Texts cut at every place, calls beside each other, keys and numbers, faults.
#[tokio::test]
async fn recordings_contain_nothing_that_a_redaction_finds() {
    let told = |text: &str, at: usize| {
        let (one, two) = text.split_at(at);
        let deltas = [one, two].map(|text| delta(json!({ "content": text })));
        events(&[&deltas[..], &[finished("stop")]].concat())
    };
    let said = format!("Ask {ADDRESS}, pay {CARD}.");
    let mut cases: Vec<_> = (0..=said.len()).map(|at| (true, told(&said, at))).collect();
    let first = r#"{"to":"jo@exam\u0070le.com","card":4111111111111111}"#;
    let second = json!({ (ADDRESS): [CARD] }).to_string();
    cases.extend((0..first.len().min(second.len())).map(|at| {
        let ((a, b), (c, d)) = (first.split_at(at), second.split_at(at));
        let pieces = [
            arguments(0, a),
            arguments(1, c),
            arguments(0, b),
            arguments(1, d),
        ];
        let begun = [begins(0), begins(1)];
        (
            true,
            events(&[&begun[..], &pieces, &[finished("tool_calls")]].concat()),
        )
    }));
    let twice = json!({ "choices": [{ "message": { "content": "x" }, "finish_reason": "stop" }] });
    let twice = twice
        .to_string()
        .replacen('{', &format!(r#"{{"a":"{ADDRESS}","a":1,"#), 1);
    cases.extend([
        (false, says(&said)),
        (false, reply(400, &json!({ "error": { "message": said } }))),
        (false, whole(500, &[("x-request-id", ADDRESS)], &said)),
        (
            false,
            whole(200, &[("content-type", "application/json")], twice),
        ),
        (
            true,
            unfinished([format!(
                "data: {{\"choices\":[{{\"delta\":{{\"content\":\"{said}"
            )]),
        ),
    ]);
    for (streamed, reply) in cases {
        let server = Server::start([reply.clone()]).await;
        let recording = Recording::record(file("redacted"));
        let ask = |url: &str, recording: &Recording| {
            let builder = gone().base_url(url).build_with(redacted(recording));
            let model = builder.unwrap();
            async move {
                if streamed {
                    stream(model, ask(&format!("{ADDRESS}?"))).await.0
                } else {
                    call(model, ask(&format!("{ADDRESS}?"))).await
                }
            }
        };
        let was = ask(&server.base_url, &recording).await;
        recording.finish().unwrap();
        let text = written("redacted");
        for secret in ["jo@", "example", CARD] {
            assert!(!text.contains(secret), "{secret} in {text}");
        }
        drop(server);
        let recording = Recording::replay(file("redacted")).unwrap();
        match (ask("http://127.0.0.1:9/v1", &recording).await, was) {
            (Ok(response), Ok(was)) => {
                assert_eq!(said_in(&response), *REDACT.json(&said_in(&was)));
            }
            (Err(error), Err(was)) => {
                assert_eq!(without_server(&error), REDACT.text(&without_server(&was)));
            }
            (response, was) => panic!("{response:?}, {was:?}"),
        }
        recording.finish().unwrap();
    }
}

#[tokio::test]
async fn a_run_with_redacted_tool_calls_replays() {
    let asks = json!({ "choices": [{ "finish_reason": "tool_calls", "message": {
        "role": "assistant", "content": null,
        "tool_calls": [{ "id": "call_1", "type": "function",
            "function": { "name": "find", "arguments": json!({ "who": ADDRESS }).to_string() } }],
    }}]});
    let agent = |builder: HttpModelBuilder<Chat>, recording: &Recording| {
        let find = |arguments: Value| format!("{} has {CARD}", arguments["who"]);
        Agent::builder(builder.build_with(redacted(recording)).unwrap())
            .tool(Tool::function("find", "Finds.", find))
            .build()
            .unwrap()
    };
    let server = Server::start([reply(200, &asks), says(&format!("{ADDRESS}: {CARD}"))]).await;
    let recording = Recording::record(file("redacted_tools"));
    let was = agent(server.builder(), &recording)
        .run(ADDRESS)
        .await
        .unwrap();
    assert_eq!(
        was.text(),
        format!("{ADDRESS}: {CARD}"),
        "the run itself is not redacted"
    );
    recording.finish().unwrap();
    drop(server);
    let recording = Recording::replay(file("redacted_tools")).unwrap();
    let response = agent(gone(), &recording).run(ADDRESS).await.unwrap();
    assert_eq!(response.text(), "[email]: [card]");
    recording.finish().unwrap();
}

#[tokio::test]
async fn with_a_redaction_a_body_that_is_no_text_is_not_recorded() {
    let zipped = [&[0x1f, 0x8b][..], ADDRESS.as_bytes()].concat();
    let server = Server::start([whole(200, &[("content-encoding", "gzip")], zipped)]).await;
    let recording = Recording::record(file("zipped"));
    let model = server.builder().build_with(redacted(&recording)).unwrap();
    call(model, ask("?")).await.unwrap_err();
    recording.finish().unwrap();
    assert!(!written("zipped").contains("example"));
    let recording = Recording::replay(file("zipped")).unwrap();
    let error = call(gone().build_with(redacted(&recording)).unwrap(), ask("?"))
        .await
        .unwrap_err();
    assert!(
        error
            .to_string()
            .contains("decompress it inside the recording"),
        "{error}"
    );
}
