//! Streams: usage and ends.

use serde_json::{Value, json};
use tower_agent::model::FinishReason;
use tower_agent::stream::channel;
use tower_agent::{ModelRequest, Usage};

use super::fixtures::{answer, event, events, events_of, model, streamed, text_block, tool_use};
use crate::server::{Reply, Server, chunked, unfinished};
use test_support::text;

fn with_usage(start: Value, end: Value) -> Reply {
    let mut all = events_of(&answer(json!([text_block("hi")]), "end_turn"));
    let last = all.len() - 2;
    all[0]["message"]["usage"] = start;
    all[last]["usage"] = end;
    events(&all)
}

/// The prompt is charged also where the rest of the answer never comes.
#[tokio::test]
async fn the_usage_of_the_prompt_is_known_of_a_stream_that_breaks() {
    let mut all = events_of(&answer(json!([text_block("hi")]), "end_turn"));
    all[0]["message"]["usage"] =
        json!({ "input_tokens": 25, "output_tokens": 1, "cache_read_input_tokens": 100 });
    let server = Server::start([unfinished(all[..3].iter().map(event))]).await;
    let (sink, _events) = channel(100);
    let request = ModelRequest::default().with_delta_sender(sink.clone());

    test_support::call(model(&server), request)
        .await
        .unwrap_err();

    let mut usage = Usage::new(125, 1);
    usage.cached_input_tokens = 100;
    let received = sink.unfinished();
    assert_eq!((received.len(), received[0].usage), (1, usage));
}

async fn counted(start: Value, end: Value) -> (u64, u64, u64, u64) {
    let (response, _) = streamed(with_usage(start, end)).await;
    let usage = response.unwrap().usage();
    (
        usage.input_tokens,
        usage.output_tokens,
        usage.cached_input_tokens,
        usage.cache_write_tokens,
    )
}

/// Servers of others tell the whole prompt first, and at the end what of it the cache had.
#[tokio::test]
async fn a_cached_prompt_of_another_server_is_counted_once() {
    let start = json!({ "input_tokens": 100, "output_tokens": 0 });
    let end = json!({ "output_tokens": 5, "cache_read_input_tokens": 80 });
    assert_eq!(counted(start, end).await, (100, 5, 80, 0));
    let start = json!({ "input_tokens": 100, "output_tokens": 0 });
    let end = json!({ "input_tokens": 20, "output_tokens": 5, "cache_read_input_tokens": 80 });
    assert_eq!(counted(start, end).await, (100, 5, 80, 0));
    let start = json!({ "input_tokens": 0, "output_tokens": 0 });
    let end = json!({ "input_tokens": 100, "output_tokens": 5, "cache_read_input_tokens": 80,
                      "total_tokens": 105 });
    assert_eq!(counted(start, end).await, (100, 5, 80, 0));
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
    assert_eq!(
        counted(start.clone(), json!({ "output_tokens": 15 })).await,
        (125, 15, 100, 0)
    );
    let end = json!({ "output_tokens": 15, "cache_read_input_tokens": null });
    assert_eq!(counted(start, end).await, (125, 15, 100, 0));
}

#[tokio::test]
async fn cache_counts_may_come_only_at_the_end() {
    let end = json!({ "input_tokens": 5, "output_tokens": 15,
        "cache_read_input_tokens": 100, "cache_creation_input_tokens": 20 });
    assert_eq!(
        counted(
            json!({ "input_tokens": 125, "output_tokens": 0 }),
            end.clone()
        )
        .await,
        (125, 15, 100, 20)
    );
    assert_eq!(counted(Value::Null, end).await, (125, 15, 100, 20));
}

#[tokio::test]
async fn deltas_before_a_cut_are_shown() {
    let all = events_of(&answer(json!([text_block("hi there")]), "end_turn"));
    let (response, deltas) = streamed(events(&all[..4])).await;
    let error = response.unwrap_err();
    assert!(error.message().contains("ended early"), "{error}");
    assert_eq!(error.metadata().request_id.as_deref(), Some("req_1"));
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
    let bytes: String = all
        .iter()
        .map(event)
        .chain(["data: no json\n\n".into()])
        .collect();
    let (response, _) = streamed(chunked([bytes])).await;
    assert_eq!(response.unwrap().message().text(), "hi");
}

/// A gateway asked another server after the first one had begun.
#[tokio::test]
async fn a_second_answer_in_one_stream_is_an_error() {
    let one = answer(
        json!([tool_use("toolu_1", "look", json!({ "at": "sky" }))]),
        "tool_use",
    );
    let first = events_of(&one);
    let second = events_of(&answer(json!([text_block("hi")]), "end_turn"));
    for kept in 1..first.len() {
        let both: Vec<_> = first[..kept].iter().chain(&second).cloned().collect();
        let (response, _) = streamed(events(&both)).await;
        let error = response.unwrap_err();
        assert!(
            error.message().contains("a second answer"),
            "{kept}: {error}"
        );
    }
}
