//! Claude by the Messages protocol.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use serde_json::json;
use tower_agent::model::ModelTarget;
use tower_agent::{ErrorKind, Message, ModelRequest, Settings};
use tower_agent_providers::HttpClient;
use tower_agent_providers::bedrock::BedrockAnthropic;

use crate::answer::{Answer, call as calls, reasoning, said, text};
use crate::column::Column;
use crate::columns::anthropic::AnthropicColumn;
use crate::frames;
use crate::server::{Reply, Server, chunked_as, json as reply};
use test_support::property::positions;
use test_support::{call, stream};

const MEDIA_TYPE: &str = "application/vnd.amazon.eventstream";

fn model(server: &Server) -> BedrockAnthropic<HttpClient> {
    BedrockAnthropic::builder()
        .base_url(&server.base_url)
        .api_key("k")
        .keep_stated_usage(true)
        .model("eu.anthropic.claude-sonnet-4-5-20250929-v1:0")
        .build()
        .unwrap()
}

fn answer() -> Answer {
    Answer::new([
        reasoning(&["Hm."], "EqQ"),
        text(&["aé漢", "🦀\n"]),
        calls("call_1", "look", &["{\"at\":\"Trom", "sø 🦀\"}"]),
    ])
}

/// The events of an answer as Bedrock wraps them.
fn chunks() -> Vec<u8> {
    let events = AnthropicColumn::events(&answer());
    let frames = events.iter().flat_map(|event| {
        let (_, data) = event.split_once("data: ").unwrap();
        let bytes = STANDARD.encode(data.trim());
        let chunk = json!({ "bytes": bytes, "p": "abcdefghijkl" });
        frames::event("chunk", &chunk.to_string())
    });
    frames.collect()
}

fn streamed(bytes: &[u8]) -> Reply {
    chunked_as(MEDIA_TYPE, [bytes])
}

#[tokio::test]
async fn both_forms_of_an_answer_are_read() {
    let body = AnthropicColumn::body(&answer());
    let server = Server::start([reply(200, &body), streamed(&chunks())]).await;
    let mut settings = Settings::default();
    let beta = json!(["a-beta"]);
    settings.extra.insert("anthropic_beta".into(), beta);
    let mut request = ModelRequest::new([Message::user("Hi.")]).with_settings(settings);
    let target = ModelTarget::default();
    request.extensions_mut().insert(target.clone());
    let plain = call(model(&server), request.clone()).await.unwrap();
    let (streamed, _) = stream(model(&server), request).await;
    for response in [plain, streamed.unwrap()] {
        assert_eq!(response.metadata().provider.as_deref(), Some("bedrock"));
        assert_eq!(said(response.message()), answer().said());
        assert_eq!(response.usage(), AnthropicColumn::usage());
        // It is read out of the frames.
        let stated = response.metadata().stated_usage.as_ref().unwrap();
        assert_eq!(stated["service_tier"], "standard");
    }
    assert_eq!(target.provider(), Some("bedrock"));
    let seen = server.seen();
    let path = "/v1/model/eu.anthropic.claude-sonnet-4-5-20250929-v1%3A0";
    assert_eq!(seen[0].line(), format!("POST {path}/invoke"));
    assert_eq!(
        seen[1].line(),
        format!("POST {path}/invoke-with-response-stream")
    );
    for seen in seen {
        let expected = json!({
            "messages": [{ "role": "user", "content": [{ "type": "text", "text": "Hi." }] }],
            "anthropic_version": "bedrock-2023-05-31",
            "max_tokens": 16384,
            "anthropic_beta": ["a-beta"],
        });
        assert_eq!(seen.body, expected);
    }
}

#[tokio::test]
async fn a_stream_that_is_cut_off_anywhere_is_an_error_or_the_whole() {
    let bytes = chunks();
    let cuts: Vec<_> = positions(0..bytes.len()).collect();
    let server = Server::start(cuts.iter().map(|&cut| streamed(&bytes[..cut]))).await;
    let model = model(&server);
    let mut failed = 0;
    for cut in cuts {
        match stream(model.clone(), ModelRequest::new([Message::user("Hi.")]))
            .await
            .0
        {
            // The stop reason and the usage have been read; `message_stop` says nothing.
            Ok(response) => {
                assert_eq!(said(response.message()), answer().said(), "{cut}");
                assert_eq!(response.usage(), AnthropicColumn::usage(), "{cut}");
            }
            Err(error) => {
                assert!(error.message().contains("ended early"), "{cut}: {error}");
                failed += 1;
            }
        }
    }
    assert!(failed > 0);
}

#[tokio::test]
async fn a_chunk_that_is_no_part_of_an_answer_is_an_error() {
    for payload in [
        "{}",
        r#"{"bytes":"%%%"}"#,
        r#"{"bytes":"/w=="}"#,
        r#"{"bytes":"e30"}"#,
    ] {
        let server = Server::start([streamed(&frames::event("chunk", payload))]).await;
        let (response, _) = stream(model(&server), ModelRequest::new([Message::user("Hi.")])).await;
        assert_eq!(
            response.unwrap_err().kind(),
            ErrorKind::Protocol,
            "{payload}"
        );
    }
}
