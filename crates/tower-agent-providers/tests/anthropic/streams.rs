//! Streams: usage, splits and cut-offs.

use serde_json::{Value, json};
use tower_agent::model::FinishReason;
use tower_agent::{ErrorKind, Message, ModelRequest};

use crate::fixtures::{answer, event, events, events_of, model, streamed, text_block, tool_use};
use crate::server::{Reply, Server, chunked, unfinished};
use test_support::{deltas, stream, text};

fn with_usage(start: Value, end: Value) -> Reply {
    let mut all = events_of(&answer(json!([text_block("hi")]), "end_turn"));
    let last = all.len() - 2;
    all[0]["message"]["usage"] = start;
    all[last]["usage"] = end;
    events(&all)
}

async fn counted(start: Value, end: Value) -> (u64, u64, u64, u64) {
    let (response, _) = streamed(with_usage(start, end)).await;
    let usage = response.unwrap().usage();
    (usage.input_tokens, usage.output_tokens, usage.cached_input_tokens, usage.cache_write_tokens)
}

#[tokio::test]
async fn cumulative_usage_is_set_and_not_added() {
    let start = json!({ "input_tokens": 25, "output_tokens": 1,
        "cache_read_input_tokens": 100, "cache_creation_input_tokens": 30 });
    let end = json!({ "input_tokens": 25, "output_tokens": 15,
        "cache_read_input_tokens": 100, "cache_creation_input_tokens": 30 });
    assert_eq!(counted(start, end).await, (155, 15, 100, 30));
}

#[tokio::test]
async fn cache_counts_of_the_start_stay_if_the_end_has_none() {
    let start = json!({ "input_tokens": 25, "output_tokens": 1, "cache_read_input_tokens": 100 });
    assert_eq!(counted(start.clone(), json!({ "output_tokens": 15 })).await, (125, 15, 100, 0));
    let end = json!({ "output_tokens": 15, "cache_read_input_tokens": null });
    assert_eq!(counted(start, end).await, (125, 15, 100, 0));
}

#[tokio::test]
async fn cache_counts_may_come_only_at_the_end() {
    let end = json!({ "input_tokens": 5, "output_tokens": 15,
        "cache_read_input_tokens": 100, "cache_creation_input_tokens": 20 });
    assert_eq!(
        counted(json!({ "input_tokens": 125, "output_tokens": 0 }), end.clone()).await,
        (125, 15, 100, 20)
    );
    assert_eq!(counted(Value::Null, end).await, (125, 15, 100, 20));
}

/// A stream with everything that a split could break.
fn fixture(end: &str) -> Vec<u8> {
    let body = answer(
        json!([
            { "type": "thinking", "thinking": "hé🦀m", "signature": "EqQB+/=" },
            text_block("aé漢🦀\n"),
            tool_use("toolu_1", "add", json!({ "city": "Tromsø 🦀" })),
            { "type": "server_tool_use", "id": "s", "name": "web_search", "input": { "q": "é" } },
        ]),
        "tool_use",
    );
    let all: String = events_of(&body).iter().map(event).collect();
    format!(": keep-alive\n\n{all}").replace('\n', end).into_bytes()
}

fn assert_whole(message: &Message, at: usize) {
    assert_eq!(message.parts().len(), 4, "at {at}");
    assert_eq!(message.text(), "aé漢🦀\n", "at {at}");
    let call = message.tool_calls().next().unwrap();
    assert_eq!(call.arguments, json!({ "city": "Tromsø 🦀" }), "at {at}");
}

#[tokio::test]
async fn a_stream_may_be_split_anywhere() {
    let splits = |end: &str| {
        let bytes = fixture(end);
        (1..bytes.len()).map(|at| chunked([&bytes[..at], &bytes[at..]])).collect::<Vec<_>>()
    };
    let replies = [splits("\n"), splits("\r\n")].concat();
    let count = replies.len();
    let server = Server::start(replies).await;
    let model = model(&server);
    for at in 0..count {
        let (response, events) = stream(model.clone(), ModelRequest::default()).await;
        assert_whole(response.unwrap().message(), at);
        assert_eq!(deltas(events).len(), 7, "at {at}");
    }
}

#[tokio::test]
async fn a_stream_may_be_split_everywhere() {
    for size in [1, 2, 3, 7] {
        let (response, _) = streamed(chunked(fixture("\n").chunks(size))).await;
        assert_whole(response.unwrap().message(), size);
    }
}

#[tokio::test]
async fn a_stream_cut_off_at_any_byte_is_an_error_unless_it_is_complete() {
    let bytes = fixture("\n");
    // From the end of the event with the stop reason on, nothing is missing.
    let text = String::from_utf8(bytes.clone()).unwrap();
    let complete = text.find("event: message_stop").unwrap();
    let replies: Vec<_> = (0..bytes.len()).map(|at| chunked([&bytes[..at]])).collect();
    let server = Server::start(replies).await;
    let model = model(&server);
    for at in 0..bytes.len() {
        let (response, _) = stream(model.clone(), ModelRequest::default()).await;
        match response {
            Ok(response) => {
                // The blank line after an event may be missing at the end of the body.
                assert!(at + 2 >= complete, "cut off at {at}");
                assert_whole(response.message(), at);
            }
            Err(error) => {
                assert!(at < complete, "cut off at {at}: {error}");
                assert_eq!(error.kind(), ErrorKind::Protocol, "cut off at {at}");
                assert!(error.is_retryable(), "cut off at {at}");
            }
        }
    }
}

#[tokio::test]
async fn a_connection_that_breaks_is_an_error() {
    let all = events_of(&answer(json!([text_block("hi there")]), "end_turn"));
    for count in 0..all.len() - 1 {
        let (response, _) = streamed(unfinished(all[..count].iter().map(event))).await;
        assert!(response.is_err(), "after {count} events");
    }
}

#[tokio::test]
async fn what_came_before_the_cut_was_shown() {
    let all = events_of(&answer(json!([text_block("hi there")]), "end_turn"));
    let (response, deltas) = streamed(events(&all[..4])).await;
    let error = response.unwrap_err();
    assert!(error.message().contains("ended early"), "{error}");
    assert_eq!(error.metadata().request_id(), Some("req_1"));
    assert_eq!(deltas, [text("hi t")]);
}

#[tokio::test]
async fn a_stop_reason_is_enough_of_an_end() {
    let mut all = events_of(&answer(json!([text_block("hi")]), "max_tokens"));
    all.pop();
    let (response, _) = streamed(events(&all)).await;
    assert_eq!(response.unwrap().finish_reason(), &FinishReason::Length);
}

#[tokio::test]
async fn nothing_is_read_after_the_last_event() {
    let all = events_of(&answer(json!([text_block("hi")]), "end_turn"));
    let bytes: String = all.iter().map(event).chain(["data: no json\n\n".into()]).collect();
    let (response, _) = streamed(chunked([bytes])).await;
    assert_eq!(response.unwrap().message().text(), "hi");
}
