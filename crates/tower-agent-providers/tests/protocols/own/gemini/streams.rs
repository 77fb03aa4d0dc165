//! Streams, cut and split.

use serde_json::{Value, json};
use tower_agent::message::Text;
use tower_agent::model::FinishReason;
use tower_agent::stream::{Delta, channel};
use tower_agent::{Error, ErrorKind, ModelRequest, ModelResponse, Part, Usage};

use super::{event, events, finished, model, parts, signed};
use crate::server::{Reply, Server, chunked, unfinished};
use test_support::property::positions;
use test_support::{arguments, begins, deltas, stream, text};

/// Every chunk tells it.
#[tokio::test]
async fn the_usage_so_far_is_known_of_a_stream_that_breaks() {
    let chunks = recorded();
    let server = Server::start([unfinished(chunks[..3].iter().map(event))]).await;
    let (sink, _events) = channel(100);
    let request = ModelRequest::default().with_delta_sender(sink.clone());

    test_support::call(model(&server), request)
        .await
        .unwrap_err();

    let received = sink.unfinished();
    assert_eq!(received.len(), 1);
    assert_eq!(received[0].usage.total(), 11 + 2 + 31);
}

async fn streamed(reply: Reply) -> (Result<ModelResponse, Error>, Vec<Delta>) {
    let server = Server::start([reply]).await;
    let (response, chunks) = stream(model(&server), ModelRequest::default()).await;
    (response, deltas(chunks))
}

/// A stream in the form that the provider sends: thoughts, text in pieces with characters of two,
/// three and four bytes, calls of which the first is signed, usage in every chunk, and a last chunk
/// with an empty text that is signed.
fn recorded() -> Vec<Value> {
    let call = |name: &str, city: &str| json!({ "functionCall": { "name": name, "args": { "city": city } } });
    let mut first = call("weather", "Tromsø 🦀");
    first["thoughtSignature"] = "c".into();
    let with_usage = |mut chunk: Value, output: u64, thoughts: u64| {
        chunk["usageMetadata"] = json!({
            "promptTokenCount": 11,
            "candidatesTokenCount": output,
            "thoughtsTokenCount": thoughts,
            "totalTokenCount": 11 + output + thoughts,
        });
        chunk["modelVersion"] = "gemini-3-flash-preview".into();
        chunk["responseId"] = "r1".into();
        chunk
    };
    vec![
        with_usage(
            parts(json!([{ "text": "**Hm**\n", "thought": true }])),
            0,
            30,
        ),
        with_usage(parts(json!([{ "text": "aé" }])), 1, 30),
        with_usage(parts(json!([{ "text": "漢🦀" }])), 2, 31),
        with_usage(parts(json!([first, call("weather", "Oslo")])), 20, 31),
        with_usage(parts(json!([call("now", "")])), 25, 31),
        with_usage(
            finished(json!([{ "text": "", "thoughtSignature": "e" }]), "STOP"),
            26,
            31,
        ),
    ]
}

fn bytes() -> Vec<u8> {
    recorded()
        .iter()
        .map(event)
        .collect::<String>()
        .into_bytes()
}

fn assert_recorded(response: ModelResponse, deltas: &[Delta], at: impl std::fmt::Display) {
    let message = response.message();
    assert_eq!(message.text(), "aé漢🦀", "{at}");
    let calls: Vec<_> = message.tool_calls().collect();
    let ids: Vec<_> = calls.iter().map(|call| &*call.id).collect();
    assert_eq!(ids, ["call_0_0", "call_0_1", "call_0_2"], "{at}");
    assert_eq!(calls[0].arguments, json!({ "city": "Tromsø 🦀" }), "{at}");
    assert_eq!(calls[0].provider, signed("c"), "{at}");
    assert!(
        calls[1].provider.is_empty() && calls[2].provider.is_empty(),
        "{at}"
    );
    let mut end = Text::default();
    end.provider = signed("e");
    assert_eq!(message.parts().last(), Some(&Part::Text(end)), "{at}");
    assert_eq!(message.parts().len(), 6, "{at}");
    let mut usage = Usage::new(11, 57);
    usage.reasoning_tokens = 31;
    assert_eq!(response.usage(), usage, "{at}");
    assert_eq!(response.finish_reason(), &FinishReason::ToolCalls, "{at}");
    assert_eq!(response.attempt(), Some(0), "{at}");
    let expected = [
        Delta::Reasoning("**Hm**\n".into()),
        text("aé"),
        text("漢🦀"),
        begins(0, "call_0_0", "weather"),
        arguments(0, "{\"city\":\"Tromsø 🦀\"}"),
        begins(1, "call_0_1", "weather"),
        arguments(1, "{\"city\":\"Oslo\"}"),
        begins(2, "call_0_2", "now"),
        arguments(2, "{\"city\":\"\"}"),
    ];
    assert_eq!(deltas, expected, "{at}");
}

#[tokio::test]
async fn a_full_stream() {
    let (response, deltas) = streamed(events(&recorded())).await;
    let response = response.unwrap();
    assert_eq!(
        response.metadata().model.as_deref(),
        Some("gemini-3-flash-preview")
    );
    assert_recorded(response, &deltas, "whole");
}

#[tokio::test]
async fn split_at_every_byte() {
    let bytes = bytes();
    let splits = positions(1..bytes.len());
    let replies = splits
        .clone()
        .map(|at| chunked([&bytes[..at], &bytes[at..]]));
    let server = Server::start(replies).await;
    for at in splits {
        let (response, chunks) = stream(model(&server), ModelRequest::default()).await;
        let response = response.unwrap_or_else(|error| panic!("split at {at}: {error}"));
        assert_recorded(response, &deltas(chunks), format_args!("split at {at}"));
    }
}

#[tokio::test]
async fn split_everywhere() {
    for size in [1, 2, 3, 7] {
        let (response, deltas) = streamed(chunked(bytes().chunks(size))).await;
        assert_recorded(response.unwrap(), &deltas, format_args!("pieces of {size}"));
    }
}

#[tokio::test]
async fn cut_off_at_every_byte_is_an_error() {
    let bytes = bytes();
    // The last event is complete with the first of its two line ends.
    let cuts = positions(0..bytes.len() - 3);
    let ends = cuts.clone().map(|at| chunked([&bytes[..at]]));
    let breaks = cuts.clone().map(|at| unfinished([&bytes[..at]]));
    let server = Server::start(ends.zip(breaks).flat_map(|(end, broken)| [end, broken])).await;
    for at in cuts {
        let (response, _) = stream(model(&server), ModelRequest::default()).await;
        let error = response.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Protocol, "cut at {at}: {error}");
        assert!(
            error.message().contains("ended early"),
            "cut at {at}: {error}"
        );
        let (response, _) = stream(model(&server), ModelRequest::default()).await;
        let error = response.unwrap_err();
        assert_eq!(
            error.kind(),
            ErrorKind::Connection,
            "broken at {at}: {error}"
        );
        assert!(error.is_retryable());
    }
}

/// Merging a text that is signed with one that is not makes the signature invalid.
#[tokio::test]
async fn signed_text_is_a_part_of_its_own() {
    let (response, deltas) = streamed(events(&[
        parts(json!([{ "text": "One" }])),
        parts(json!([{ "text": ", two", "thoughtSignature": "s" }])),
        parts(json!([{ "text": ", three" }])),
        finished(json!([{ "text": "." }]), "STOP"),
    ]))
    .await;
    assert_eq!(
        deltas,
        [text("One"), text(", two"), text(", three"), text(".")]
    );
    let mut two = Text::default();
    (two.text, two.provider) = (", two".into(), signed("s"));
    let expected = [
        Part::from_text("One"),
        Part::Text(two),
        Part::from_text(", three."),
    ];
    assert_eq!(response.unwrap().message().parts(), expected);
}

#[tokio::test]
async fn usage_is_cumulative_and_set() {
    let with = |mut chunk: Value, usage: Value| {
        chunk["usageMetadata"] = usage;
        chunk
    };
    let chunk = parts(json!([{ "text": "a" }]));
    let (response, _) = streamed(events(&[
        with(
            chunk.clone(),
            json!({ "promptTokenCount": 5, "thoughtsTokenCount": 8 }),
        ),
        with(
            chunk,
            json!({ "promptTokenCount": 5, "candidatesTokenCount": 1 }),
        ),
        with(
            finished(json!([]), "STOP"),
            json!({ "candidatesTokenCount": 2 }),
        ),
    ]))
    .await;
    let mut usage = Usage::new(5, 10);
    usage.reasoning_tokens = 8;
    assert_eq!(response.unwrap().usage(), usage);
}

#[tokio::test]
async fn chunks_after_the_finish_reason_count() {
    let usage = json!({ "usageMetadata": { "promptTokenCount": 5 } });
    let chunks = [
        finished(json!([{ "text": "a" }]), "MAX_TOKENS"),
        parts(json!([{ "text": "", "thoughtSignature": "s" }])),
        usage,
    ];
    let (response, _) = streamed(events(&chunks)).await;
    let response = response.unwrap();
    assert_eq!(response.finish_reason(), &FinishReason::Length);
    assert_eq!(response.usage().input_tokens, 5);
    assert_eq!(response.message().parts().len(), 2);
}

#[tokio::test]
async fn an_end_as_other_protocols_have_it() {
    let whole = [
        event(&finished(json!([{ "text": "a" }]), "STOP")),
        "data: [DONE]\n\n".into(),
    ];
    let (response, _) = streamed(chunked(whole)).await;
    assert_eq!(response.unwrap().text(), "a");
    let (response, _) = streamed(chunked(["data: [DONE]\n\n"])).await;
    assert!(response.unwrap_err().message().contains("ended early"));
}

#[tokio::test]
async fn a_reason_in_every_chunk_is_no_end() {
    let (response, _) = streamed(events(&[
        finished(json!([{ "text": "a" }]), "FINISH_REASON_UNSPECIFIED"),
        finished(json!([{ "text": "b" }]), "STOP"),
        finished(json!([{ "text": "c" }]), "STOP"),
    ]))
    .await;
    assert_eq!(response.unwrap().text(), "abc");
    let only = finished(json!([{ "text": "a" }]), "FINISH_REASON_UNSPECIFIED");
    let (response, _) = streamed(events(&[only])).await;
    assert!(response.unwrap_err().message().contains("ended early"));
}

#[tokio::test]
async fn a_reason_counts_only_if_nothing_is_said_after_it() {
    let more = [
        parts(json!([{ "text": "b" }])),
        parts(json!([{ "executableCode": { "code": "1 + 1" } }])),
        parts(json!([{ "functionCall": { "name": "look", "args": {} } }])),
    ];
    for more in more {
        let begun = [finished(json!([{ "text": "a" }]), "STOP"), more];
        let (cut, _) = streamed(events(&begun)).await;
        assert!(cut.unwrap_err().message().contains("ended early"));
        let [first, second] = begun;
        let last = finished(json!([{ "text": "c" }]), "STOP");
        let (whole, _) = streamed(events(&[first, second, last])).await;
        assert!(whole.unwrap().text().ends_with('c'));
    }
}
