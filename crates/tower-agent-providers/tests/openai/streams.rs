//! Streamed answers.

use serde_json::{Value, json};
use tower_agent::model::FinishReason;
use tower_agent::stream::Delta;
use tower_agent::{Agent, ErrorKind, Message, ModelRequest, ModelResponse, Part, Role, Settings};
use tower_agent_middleware::budget::{Account, Budget, Limits};

use crate::server::{Reply, Server, chunked, delta, event, events, finished, unfinished, whole};
use test_support::{deltas, stream, text};

type Streamed = (
    Result<tower_agent::ModelResponse, tower_agent::Error>,
    Vec<Delta>,
);

async fn streamed(reply: Reply) -> Streamed {
    let server = Server::start([reply]).await;
    let (response, chunks) = stream(server.model(), ModelRequest::default()).await;
    (response, deltas(chunks))
}

#[tokio::test]
async fn a_full_stream() {
    let mut first = delta(json!({ "role": "assistant", "content": "" }));
    first["id"] = "chatcmpl-1".into();
    first["model"] = "gpt-4o-2024-08-06".into();
    let usage = json!({ "choices": [], "usage": {
        "prompt_tokens": 20, "completion_tokens": 10,
        "prompt_tokens_details": { "cached_tokens": 5 },
        "completion_tokens_details": { "reasoning_tokens": 7 },
    }});
    let (response, deltas) = streamed(events(&[
        json!({ "choices": [], "prompt_filter_results": [] }),
        first,
        delta(json!({ "reasoning_content": "h" })),
        delta(json!({ "reasoning": "m" })),
        delta(json!({ "content": "Hel", "reasoning_content": null })),
        delta(json!({ "content": "lö" })),
        finished("stop"),
        usage,
    ]))
    .await;
    let response = response.unwrap();
    let thought = |text: &str| Delta::Reasoning(text.into());
    assert_eq!(
        deltas,
        [thought("h"), thought("m"), text("Hel"), text("lö")]
    );
    let expected = Message::new(
        Role::Assistant,
        [crate::answers::thought("hm"), Part::from_text("Hellö")],
    );
    assert_eq!(response.message(), &expected);
    assert_eq!(response.attempt(), Some(0));
    assert_eq!(response.finish_reason(), &FinishReason::Stop);
    let usage = response.usage();
    assert_eq!((usage.input_tokens, usage.output_tokens), (20, 10));
    assert_eq!((usage.cached_input_tokens, usage.reasoning_tokens), (5, 7));
    assert_eq!(response.metadata().request_id.as_deref(), Some("req_1"));
    assert_eq!(
        response.metadata().model.as_deref(),
        Some("gpt-4o-2024-08-06")
    );
    assert_eq!(response.metadata().status, Some(200));
}

/// A stream with everything that a split could break: two lines of data, comments, both line ends,
/// characters of two, three and four bytes, an escape, and calls in fragments.
fn fixture(end: &str) -> Vec<u8> {
    let fragment = |index: u32, more: &str| {
        let call = json!({ "index": index, "function": { "arguments": more } });
        delta(json!({ "tool_calls": [call] }))
    };
    let begin = |index: u32, id: &str, name: &str| {
        let function = json!({ "name": name, "arguments": "" });
        let call = json!({ "index": index, "id": id, "type": "function", "function": function });
        delta(json!({ "tool_calls": [call] }))
    };
    let chunks = [
        delta(json!({ "content": "aé漢🦀\n" })),
        begin(0, "a", "add"),
        fragment(0, "{\"city\":\"Trom"),
        begin(1, "b", "now"),
        fragment(1, "{}"),
        fragment(0, "sø 🦀\"}"),
        finished("tool_calls"),
        json!({ "choices": [], "usage": { "prompt_tokens": 1, "completion_tokens": 2 } }),
    ];
    let mut text =
        String::from(": keep-alive\n\nid: 1\nevent: message\ndata: {\"choices\":[\ndata: ]}\n\n");
    text.extend(chunks.iter().map(event));
    text.push_str("data: [DONE]\n\n");
    text.replace('\n', end).into_bytes()
}

async fn assert_fixture(replies: Vec<Reply>) {
    let count = replies.len();
    let server = Server::start(replies).await;
    let model = server.model();
    for at in 0..count {
        let (response, chunks) = stream(model.clone(), ModelRequest::default()).await;
        let response = response.unwrap_or_else(|error| panic!("split at {at}: {error}"));
        assert_eq!(response.message().text(), "aé漢🦀\n", "split at {at}");
        let calls: Vec<_> = response.message().tool_calls().collect();
        assert_eq!(
            (&*calls[0].id, &*calls[0].name),
            ("a", "add"),
            "split at {at}"
        );
        assert_eq!(
            calls[0].arguments,
            json!({ "city": "Tromsø 🦀" }),
            "split at {at}"
        );
        assert_eq!(
            (&*calls[1].id, &*calls[1].name),
            ("b", "now"),
            "split at {at}"
        );
        assert_eq!(response.usage().total(), 3, "split at {at}");
        assert_eq!(
            response.finish_reason(),
            &FinishReason::ToolCalls,
            "split at {at}"
        );
        assert_eq!(deltas(chunks).len(), 6, "split at {at}");
    }
}

#[tokio::test]
async fn split_anywhere() {
    for end in ["\n", "\r\n", "\r"] {
        let bytes = fixture(end);
        let splits = 1..bytes.len();
        assert_fixture(
            splits
                .map(|at| chunked([&bytes[..at], &bytes[at..]]))
                .collect(),
        )
        .await;
    }
}

#[tokio::test]
async fn split_everywhere() {
    let by = |size: usize| chunked(fixture("\r\n").chunks(size));
    assert_fixture(vec![by(1), by(2), by(3), by(7), by(100_000)]).await;
}

#[tokio::test]
async fn a_huge_line() {
    let long = "漢".repeat(2_000_000);
    let (response, _) = streamed(events(&[
        delta(json!({ "content": long })),
        finished("stop"),
    ]))
    .await;
    assert_eq!(response.unwrap().message().text(), long);
}

#[tokio::test]
async fn the_last_usage_counts_wherever_it_stands() {
    let with = |field: &str, mut chunk: serde_json::Value, tokens: u64| {
        let usage = json!({ "prompt_tokens": 1, "completion_tokens": tokens });
        chunk[field] = if field == "x_groq" {
            json!({ "usage": usage })
        } else {
            usage
        };
        chunk
    };
    for field in ["usage", "x_groq"] {
        let (response, _) = streamed(events(&[
            with(field, delta(json!({ "content": "a" })), 1),
            with(field, finished("stop"), 2),
        ]))
        .await;
        assert_eq!(response.unwrap().usage().output_tokens, 2, "{field}");
    }
}

#[tokio::test]
async fn a_refusal() {
    let refusal = [
        delta(json!({ "refusal": "I can" })),
        delta(json!({ "refusal": "not." })),
    ];
    let (response, deltas) = streamed(events(&[&refusal[..], &[finished("stop")]].concat())).await;
    let response = response.unwrap();
    assert_eq!(deltas, [text("I can"), text("not.")]);
    assert_eq!(response.message().text(), "I cannot.");
    assert_eq!(response.finish_reason(), &FinishReason::Refusal);
}

#[tokio::test]
async fn a_finish_reason_is_enough_of_an_end() {
    let whole = [
        event(&delta(json!({ "content": "hi" }))),
        event(&finished("stop")),
    ];
    let (response, _) = streamed(chunked(whole)).await;
    assert_eq!(response.unwrap().message().text(), "hi");
}

#[tokio::test]
async fn a_reason_is_not_forgotten_over_a_later_chunk() {
    let chunks = [finished("length"), delta(json!({ "content": "" }))];
    let (response, _) = streamed(chunked(chunks.iter().map(event))).await;
    assert_eq!(response.unwrap().finish_reason(), &FinishReason::Length);
}

#[tokio::test]
async fn done_is_enough_of_an_end() {
    let (response, _) = streamed(events(&[delta(json!({ "content": "hi" }))])).await;
    assert_eq!(response.unwrap().finish_reason(), &FinishReason::Stop);
}

#[tokio::test]
async fn a_stream_that_ends_early() {
    let begun = event(&delta(json!({ "content": "Hel" })));
    let half = format!("{begun}data: {{\"choices\":[");
    for reply in [chunked([&begun]), chunked([&half]), chunked([""; 0])] {
        let (response, _) = streamed(reply).await;
        let error = response.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Protocol);
        assert!(error.message().contains("ended early"), "{error}");
        assert!(error.is_retryable());
        assert_eq!(error.metadata().request_id.as_deref(), Some("req_1"));
    }
}

#[tokio::test]
async fn a_body_without_length_that_ends_early() {
    let head = b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\n\r\n";
    let begun = event(&delta(json!({ "content": "Hel" })));
    let (response, deltas) = streamed(vec![head.to_vec(), begun.into_bytes()]).await;
    assert!(response.unwrap_err().message().contains("ended early"));
    assert_eq!(deltas, [text("Hel")]);
}

#[tokio::test]
async fn a_connection_that_breaks() {
    let (response, deltas) =
        streamed(unfinished([event(&delta(json!({ "content": "Hel" })))])).await;
    let error = response.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Connection, "{error}");
    assert!(
        error
            .message()
            .starts_with("the connection broke while reading the response"),
        "{error}"
    );
    assert!(error.is_retryable());
    assert_eq!(error.metadata().request_id.as_deref(), Some("req_1"));
    assert_eq!(deltas, [text("Hel")]);
}

#[tokio::test]
async fn chunks_that_are_no_json() {
    for data in ["{\"choices\":", "hello", "[1]", "7", "{\"choices\":[7]}"] {
        let begun = event(&delta(json!({ "content": "Hel" })));
        let (response, deltas) = streamed(chunked([begun, format!("data: {data}\n\n")])).await;
        let error = response.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Protocol, "{error}");
        assert!(error.message().contains(data), "{error}");
        assert_eq!(deltas, [text("Hel")]);
    }
}

#[tokio::test]
async fn bytes_that_are_no_text() {
    let (response, _) = streamed(chunked([&b"data: \xff\xfe\n\n"[..]])).await;
    let error = response.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Protocol, "{error}");
    assert!(
        error.message().contains("cannot read the stream"),
        "{error}"
    );
}

#[tokio::test]
async fn no_choices_at_all() {
    let (response, deltas) = streamed(events(&[json!({ "id": "x" })])).await;
    assert_eq!(
        response.unwrap_err().message(),
        "the response has no choices"
    );
    assert_eq!(deltas, []);
}

#[tokio::test]
async fn a_stream_that_does_not_say_that_it_is_one() {
    let body = [
        event(&delta(json!({ "content": "hi" }))),
        "data: [DONE]\n\n".into(),
    ]
    .concat();
    for headers in [&[][..], &[("content-type", "text/plain")]] {
        let (response, _) = streamed(whole(200, headers, &body)).await;
        assert_eq!(response.unwrap().message().text(), "hi");
    }
}

#[tokio::test]
async fn other_choices_are_left_out() {
    let other = json!({ "choices": [{ "index": 1, "delta": { "content": "b" } }] });
    let (response, deltas) = streamed(events(&[
        delta(json!({ "content": "a" })),
        other,
        finished("stop"),
    ]))
    .await;
    assert_eq!(response.unwrap().message().text(), "a");
    assert_eq!(deltas, [text("a")]);
}

#[tokio::test]
async fn a_chunk_that_says_all_again_is_not_said_twice() {
    let mut last = finished("stop");
    last["choices"][0]["message"] = json!({ "content": "hi" });
    let (response, _) = streamed(events(&[delta(json!({ "content": "hi" })), last])).await;
    assert_eq!(response.unwrap().message().text(), "hi");
}

#[tokio::test]
async fn attempts_are_numbered_by_the_sink() {
    let server = Server::start([
        events(&[delta(json!({ "content": "a" })), finished("stop")]),
        events(&[delta(json!({ "content": "b" })), finished("stop")]),
    ])
    .await;
    let (sink, _chunks) = tower_agent::stream::channel(8);
    for attempt in 0..2 {
        let request = ModelRequest::default().with_delta_sender(sink.clone());
        let response = test_support::call(server.model(), request).await.unwrap();
        assert_eq!(response.attempt(), Some(attempt));
    }
}

#[tokio::test]
async fn a_call_that_is_refused_opens_no_attempt() {
    let server = Server::start([
        whole(429, &[], ""),
        events(&[delta(json!({ "content": "a" })), finished("stop")]),
    ])
    .await;
    let (sink, _chunks) = tower_agent::stream::channel(8);
    let request = ModelRequest::default().with_delta_sender(sink);
    test_support::call(server.model(), request.clone())
        .await
        .unwrap_err();
    let response = test_support::call(server.model(), request).await.unwrap();
    assert_eq!(response.attempt(), Some(0));
}

/// The chunk with the usage is the last one, after the one with the finish reason.
#[tokio::test]
async fn a_stream_that_is_cut_before_its_usage_is_marked() {
    let usage = json!({ "choices": [], "usage": { "prompt_tokens": 20, "completion_tokens": 10 } });
    let said = [
        event(&delta(json!({ "content": "Hel" }))),
        event(&finished("stop")),
    ];
    let counted = [said.concat(), event(&usage)].concat();
    let whole = [&*counted, "data: [DONE]\n\n"].concat();
    for (body, total, is_cut) in [
        (said.concat(), 0, true),
        (counted, 30, false),
        (whole, 30, false),
        // A server that counts nothing has said all the same.
        ([&*said.concat(), "data: [DONE]\n\n"].concat(), 0, false),
    ] {
        let (response, _) = streamed(chunked([&body])).await;
        let response = response.unwrap();
        assert_eq!(response.text(), "Hel");
        assert_eq!(response.usage().total(), total, "{body}");
        assert_eq!(response.metadata().is_cut, is_cut, "{body}");
        // In another process as well.
        let saved = serde_json::to_value(&response).unwrap();
        let read: ModelResponse = serde_json::from_value(saved).unwrap();
        assert_eq!(read.metadata(), response.metadata(), "{body}");
    }
}

#[tokio::test]
async fn a_stream_whose_usage_was_not_requested_is_not_cut() {
    let body = [
        event(&delta(json!({ "content": "Hel" }))),
        event(&finished("stop")),
    ];
    let server = Server::start([chunked(body)]).await;
    let mut settings = Settings::default();
    settings.extra.insert("stream_options".into(), Value::Null);
    let request = ModelRequest::default().with_settings(settings);
    let (response, _) = stream(server.model(), request).await;
    assert!(!response.unwrap().metadata().is_cut);
}

/// Cut at every byte: an error, or the whole text with its usage or the mark.
#[tokio::test]
async fn a_cut_stream_is_never_a_whole_one() {
    let chunks = [
        delta(json!({ "reasoning_content": "hm" })),
        delta(json!({ "content": "Hello" })),
        finished("stop"),
        json!({ "choices": [], "usage": { "prompt_tokens": 20, "completion_tokens": 10 } }),
    ];
    let body: String = chunks.iter().map(event).collect();
    for end in 0..body.len() {
        let (response, _) = streamed(chunked([&body[..end]])).await;
        let Ok(response) = response else { continue };
        assert_eq!(response.text(), "Hello", "{end}");
        let is_counted = response.usage().total() == 30;
        assert_ne!(is_counted, response.metadata().is_cut, "{end}");
    }
}

#[tokio::test]
async fn a_budget_charges_what_a_cut_stream_had_reserved() {
    let body = [
        event(&delta(json!({ "content": "Hel" }))),
        event(&finished("stop")),
    ];
    let server = Server::start([chunked(body)]).await;
    let account = Account::new(Limits::new().tokens(10_000).reservation(700));
    let agent = Agent::builder(server.model())
        .global_callbacks(Budget::of(account.clone()))
        .build()
        .unwrap();
    let response = agent.stream("?").response().await.unwrap();
    assert_eq!(response.text(), "Hel");
    assert_eq!(account.used().tokens, 700);
}
