//! Answers, plain and streamed.

use serde_json::{Value, json};
use tower_agent::message::{ProviderData, Reasoning};
use tower_agent::model::FinishReason;
use tower_agent::{ErrorKind, Message, ModelRequest, Part, Role};

use super::fixtures::{
    answer, both, event, events, events_of, messages, model, plain, streamed, text_block, tool_use,
};
use crate::server::{Server, chunked, json as reply, whole};
use test_support::{arguments, begins, call, stream, text};

fn data(value: Value) -> ProviderData {
    let mut data = ProviderData::default();
    data.set("anthropic", value);
    data
}

#[tokio::test]
async fn a_full_answer() {
    let mut body = answer(json!([text_block("Hellö")]), "end_turn");
    body["usage"] = json!({
        "input_tokens": 3, "cache_creation_input_tokens": 20, "cache_read_input_tokens": 100,
        "output_tokens": 50, "output_tokens_details": { "thinking_tokens": 40 },
        "service_tier": "standard", "server_tool_use": null,
    });
    let headers = [
        ("content-type", "application/json"),
        ("request-id", "req_011"),
        ("anthropic-ratelimit-requests-remaining", "49"),
    ];
    let server = Server::start([whole(200, &headers, body.to_string())]).await;
    let response = call(model(&server), ModelRequest::new([Message::user("Hi.")]))
        .await
        .unwrap();
    assert_eq!(response.message(), &Message::assistant("Hellö"));
    assert_eq!(response.finish_reason(), &FinishReason::Stop);
    let metadata = response.metadata();
    assert_eq!(metadata.request_id.as_deref(), Some("req_011"));
    assert_eq!(metadata.model.as_deref(), Some("claude-test-1"));
    let limits = &metadata.rate_limits;
    assert_eq!(
        *limits,
        [("anthropic-ratelimit-requests-remaining".into(), "49".into())].into()
    );
    let usage = response.usage();
    assert_eq!((usage.input_tokens, usage.output_tokens), (123, 50));
    assert_eq!(
        (usage.cached_input_tokens, usage.cache_write_tokens),
        (100, 20)
    );
    assert_eq!(usage.reasoning_tokens, 40);
}

#[tokio::test]
async fn text_and_parallel_calls_in_order() {
    let body = answer(
        json!([
            text_block("Let me see: 🦀"),
            tool_use("toolu_1", "weather", json!({ "city": "Tromsø" })),
            tool_use("toolu_2", "now", json!({})),
        ]),
        "tool_use",
    );
    let response = both(&body).await;
    assert_eq!(response.finish_reason(), &FinishReason::ToolCalls);
    let calls: Vec<_> = response.message().tool_calls().collect();
    assert_eq!((&*calls[0].id, &*calls[0].name), ("toolu_1", "weather"));
    assert_eq!(calls[0].arguments, json!({ "city": "Tromsø" }));
    assert_eq!(
        (&*calls[1].id, calls[1].arguments.as_str()),
        ("toolu_2", "{}")
    );
    assert_eq!(response.message().text(), "Let me see: 🦀");
    assert_eq!(response.message().parts().len(), 3);
}

#[tokio::test]
async fn arguments_arrive_in_fragments() {
    let block = |index, event: Value| json!({ "type": "content_block_delta", "index": index, "delta": event });
    let piece = |json: &str| json!({ "type": "input_json_delta", "partial_json": json });
    let mut all = events_of(&answer(
        json!([tool_use("a", "add", json!({}))]),
        "tool_use",
    ));
    let at = all
        .iter()
        .position(|event| event["type"] == "content_block_stop")
        .unwrap();
    let pieces = [
        "{\"a\"",
        ": 1",
        "00000000000000000000000000001, \"b\": ",
        "\"\\u00e9\"}",
    ];
    all.splice(at..at, pieces.map(|json| block(0, piece(json))));
    let (response, deltas) = streamed(events(&all)).await;
    let response = response.unwrap();
    let call = response.message().tool_calls().next().unwrap();
    let whole = "{\"a\": 100000000000000000000000000001, \"b\": \"\\u00e9\"}";
    assert_eq!(call.arguments.as_str(), whole);
    let expected: Vec<_> = pieces.iter().map(|json| arguments(0, json)).collect();
    assert_eq!(deltas, [&[begins(0, "a", "add")], &expected[..]].concat());
}

#[tokio::test]
async fn arguments_of_a_plain_answer_are_the_servers_own_text() {
    let input = r#"{"z": 100000000000000000000000000001,  "a": 1.50}"#;
    let text =
        format!(r#"{{"content":[{{"type":"tool_use","id":"a","name":"add","input":{input}}}]}}"#);
    let server = Server::start([whole(200, &[("content-type", "application/json")], text)]).await;
    let response = call(model(&server), ModelRequest::new([Message::user("Hi.")]))
        .await
        .unwrap();
    assert_eq!(
        response
            .message()
            .tool_calls()
            .next()
            .unwrap()
            .arguments
            .as_str(),
        input
    );
}

#[tokio::test]
async fn arguments_at_the_start_of_a_block_count_if_no_fragments_follow() {
    let call = tool_use("a", "add", json!({ "a": 1 }));
    let start = json!({ "type": "content_block_start", "index": 0, "content_block": call });
    let end = json!({ "type": "message_delta", "delta": { "stop_reason": "tool_use" } });
    let (response, _) = streamed(events(&[start.clone(), end.clone()])).await;
    let response = response.unwrap();
    assert_eq!(
        response.message().tool_calls().next().unwrap().arguments,
        json!({ "a": 1 })
    );

    let delta = json!({ "type": "input_json_delta", "partial_json": "{\"a\":2}" });
    let delta = json!({ "type": "content_block_delta", "index": 0, "delta": delta });
    let (response, _) = streamed(events(&[start, delta, end])).await;
    let response = response.unwrap();
    assert_eq!(
        response
            .message()
            .tool_calls()
            .next()
            .unwrap()
            .arguments
            .as_str(),
        "{\"a\":2}"
    );
}

#[tokio::test]
async fn fragments_of_two_calls_may_mix() {
    let start = |index: u32, id: &str| {
        let block = tool_use(id, "add", json!({}));
        json!({ "type": "content_block_start", "index": index, "content_block": block })
    };
    let piece = |index: u32, json: &str| {
        let delta = json!({ "type": "input_json_delta", "partial_json": json });
        json!({ "type": "content_block_delta", "index": index, "delta": delta })
    };
    let end = json!({ "type": "message_delta", "delta": { "stop_reason": "tool_use" } });
    let all = [
        start(0, "a"),
        start(1, "b"),
        piece(0, "{\"a\":"),
        piece(1, "{\"b\":"),
        piece(0, "1}"),
        piece(1, "2}"),
        end,
    ];
    let (response, _) = streamed(events(&all)).await;
    let response = response.unwrap();
    let calls: Vec<_> = response
        .message()
        .tool_calls()
        .map(|call| &call.arguments)
        .collect();
    assert_eq!(calls, [&json!({ "a": 1 }), &json!({ "b": 2 })]);
}

#[tokio::test]
async fn calls_without_an_id_or_with_the_same_are_told_apart() {
    let call = |id: &str| tool_use(id, "now", json!({}));
    let response = both(&answer(json!([call("a"), call("a"), call("")]), "tool_use")).await;
    let ids: Vec<_> = response
        .message()
        .tool_calls()
        .map(|call| &*call.id)
        .collect();
    assert_eq!(ids, ["a", "call_1_1", "call_1_2"]);
}

#[tokio::test]
async fn a_call_without_a_name_or_without_a_start_is_an_error() {
    let nameless = answer(
        json!([{ "type": "tool_use", "id": "a", "input": {} }]),
        "tool_use",
    );
    let error = plain(&nameless).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Protocol);
    assert!(error.message().contains("without a name"), "{error}");

    let delta = json!({ "type": "input_json_delta", "partial_json": "{" });
    let delta = json!({ "type": "content_block_delta", "index": 0, "delta": delta });
    let (response, _) = streamed(events(&[delta])).await;
    let error = response.unwrap_err();
    assert!(error.message().contains("has not started"), "{error}");
}

#[tokio::test]
async fn fields_that_the_server_added_to_a_call_go_back() {
    let mut block = tool_use("toolu_1", "query", json!({ "a": 1 }));
    block["caller"] = json!({ "type": "code_execution_20250825", "tool_id": "srvtoolu_1" });
    let response = both(&answer(json!([block]), "tool_use")).await;
    let sent = messages([Message::user("Hi."), response.message().clone()]);
    assert_eq!(sent[1]["content"][0], block);
}

#[tokio::test]
async fn blocks_of_text_stay_apart_and_keep_their_citations() {
    let citation = json!({ "type": "char_location", "cited_text": "green", "start_char_index": 0 });
    let cited = json!({ "type": "text", "text": "It is green", "citations": [citation] });
    let body = answer(
        json!([text_block("Look: "), cited, text_block(".")]),
        "end_turn",
    );
    let response = both(&body).await;
    assert_eq!(response.message().text(), "Look: It is green.");
    assert_eq!(response.message().parts().len(), 3);
    let Part::Text(text) = &response.message().parts()[1] else {
        panic!()
    };
    assert_eq!(text.provider, data(json!({ "citations": [citation] })));
    let sent = messages([Message::user("Hi."), response.message().clone()]);
    assert_eq!(sent[1]["content"], body["content"]);
}

#[tokio::test]
async fn unknown_blocks_are_kept_in_their_place_and_sent_back() {
    let call = json!({
        "type": "server_tool_use", "id": "srvtoolu_1", "name": "web_search",
        "input": { "query": "rust" },
    });
    let found = json!({
        "type": "web_search_tool_result", "tool_use_id": "srvtoolu_1",
        "content": [{ "type": "web_search_result", "encrypted_content": "EqI", "page_age": null }],
    });
    let compaction = json!({ "type": "compaction", "content": null });
    let body = answer(
        json!([
            text_block("Hm."),
            call,
            found,
            compaction,
            text_block("Yes.")
        ]),
        "end_turn",
    );
    let response = both(&body).await;
    let expected = [
        Part::from_text("Hm."),
        Part::Provider(data(call)),
        Part::Provider(data(found)),
        Part::Provider(data(compaction)),
        Part::from_text("Yes."),
    ];
    assert_eq!(response.message(), &Message::new(Role::Assistant, expected));
    let sent = messages([Message::user("Hi."), response.message().clone()]);
    assert_eq!(sent[1]["content"], body["content"]);
}

#[tokio::test]
async fn pieces_of_an_unknown_block_are_put_together() {
    let start = json!({ "type": "content_block_start", "index": 0,
        "content_block": { "type": "compaction", "content": null } });
    let piece = |text: &str| {
        let delta = json!({ "type": "compaction_delta", "content": text });
        json!({ "type": "content_block_delta", "index": 0, "delta": delta })
    };
    let end = json!({ "type": "message_delta", "delta": { "stop_reason": "end_turn" } });
    let (response, _) = streamed(events(&[start, piece("We "), piece("said."), end])).await;
    let expected = Part::Provider(data(json!({ "type": "compaction", "content": "We said." })));
    assert_eq!(response.unwrap().message().parts(), [expected]);
}

#[tokio::test]
async fn unknown_events_and_pieces_are_ignored() {
    let mut all = events_of(&answer(json!([text_block("hi")]), "end_turn"));
    let odd =
        json!({ "type": "content_block_delta", "index": 0, "delta": { "type": "odd_delta" } });
    all.insert(3, odd);
    all.insert(
        1,
        json!({ "type": "message_progress", "index": "x", "delta": 7, "usage": 7 }),
    );
    let (response, deltas) = streamed(events(&all)).await;
    assert_eq!(response.unwrap().message().text(), "hi");
    assert_eq!(deltas, [text("h"), text("i")]);
    // Without a name, and of no type.
    let nameless = "data: {\"type\": null, \"delta\": null, \"content_block\": null}\n\n";
    let bytes: String = [nameless.into()]
        .into_iter()
        .chain(all.iter().map(event))
        .collect();
    assert_eq!(
        streamed(chunked([bytes])).await.0.unwrap().message().text(),
        "hi"
    );
}

#[tokio::test]
async fn every_stop_reason() {
    for (word, reason) in [
        ("end_turn", FinishReason::Stop),
        ("stop_sequence", FinishReason::Stop),
        ("tool_use", FinishReason::ToolCalls),
        ("max_tokens", FinishReason::Length),
        ("model_context_window_exceeded", FinishReason::Length),
        ("refusal", FinishReason::ContentFilter),
        ("pause_turn", FinishReason::PauseTurn),
        ("brand_new", FinishReason::Other("brand_new".into())),
    ] {
        let block = match reason {
            FinishReason::ToolCalls => tool_use("a", "now", json!({})),
            _ => text_block("hi"),
        };
        let response = both(&answer(json!([block]), word)).await;
        assert_eq!(response.finish_reason(), &reason);
    }
}

#[tokio::test]
async fn calls_beside_a_stop_are_calls() {
    let body = answer(json!([tool_use("a", "now", json!({}))]), "end_turn");
    assert_eq!(both(&body).await.finish_reason(), &FinishReason::ToolCalls);
}

#[tokio::test]
async fn a_refusal_says_why() {
    let why = json!({ "type": "refusal", "category": "cyber", "explanation": "No." });
    let mut body = answer(json!([]), "refusal");
    body["stop_details"] = why.clone();
    let response = plain(&body).await.unwrap();
    assert_eq!(
        response.message().provider(),
        &data(json!({ "stop_details": why }))
    );
    let mut all = events_of(&body);
    let end = all.len() - 2;
    all[end]["delta"]["stop_details"] = why;
    let (streamed, _) = streamed(events(&all)).await;
    assert_eq!(streamed.unwrap().message(), response.message());
}

#[tokio::test]
async fn an_empty_answer_is_an_answer() {
    let response = both(&answer(json!([]), "end_turn")).await;
    assert_eq!(response.message().parts(), []);
    assert_eq!(response.finish_reason(), &FinishReason::Stop);
}

#[tokio::test]
async fn the_least_and_the_sloppiest_answers() {
    let least = plain(&json!({ "content": [text_block("hi")] }))
        .await
        .unwrap();
    assert_eq!(least.message().text(), "hi");
    let sloppy = json!({
        "id": 7, "type": null, "model": null, "usage": "none", "error": null, "stop_reason": {},
        "content": [
            { "type": "text", "text": "h", "citations": null },
            { "type": "text", "text": [{ "type": "text", "text": "i" }] },
        ],
    });
    assert_eq!(plain(&sloppy).await.unwrap().message().text(), "hi");
    // No start of the message, no start and no end of the block, no last event.
    let delta = json!({ "type": "text_delta", "text": "hi" });
    let delta = json!({ "type": "content_block_delta", "delta": delta });
    let end = json!({ "type": "message_delta", "delta": { "stop_reason": "end_turn" } });
    let start = json!({ "type": "message_start" });
    let (response, _) = streamed(events(&[start, delta, end])).await;
    assert_eq!(response.unwrap().message().text(), "hi");
}

#[tokio::test]
async fn no_message() {
    for body in [json!({}), json!({ "content": null, "id": "x" })] {
        let error = plain(&body).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Protocol);
        assert_eq!(error.message(), "the response has no message");
    }
    let (response, _) = streamed(events(&[json!({ "type": "message_stop" })])).await;
    assert_eq!(
        response.unwrap_err().message(),
        "the response has no message"
    );
}

#[tokio::test]
async fn a_plain_answer_to_a_streamed_call_and_the_other_way_round() {
    let body = answer(
        json!([{ "type": "thinking", "thinking": "hm", "signature": "Eq" }, text_block("yes")]),
        "end_turn",
    );
    let server = Server::start([reply(200, &body), events(&events_of(&body))]).await;
    let request = || ModelRequest::new([Message::user("Hi.")]);
    let (first, _) = stream(model(&server), request()).await;
    let second = call(model(&server), request()).await.unwrap();
    let first = first.unwrap();
    assert_eq!(first.message(), second.message());
    let Part::Reasoning(Reasoning { text, .. }) = &first.message().parts()[0] else {
        panic!()
    };
    assert_eq!(text, "hm");
    let seen = server.seen();
    assert_eq!(
        (&seen[0].body["stream"], seen[1].body.get("stream")),
        (&json!(true), None)
    );
}

/// vercel/ai, `anthropic-compaction`: the answer's own counts leave out the call that compacted the
/// conversation.
#[tokio::test]
async fn every_call_that_an_answer_took_counts() {
    let body = answer_with_usage(json!({
        "input_tokens": 682, "output_tokens": 40,
        "iterations": [
            { "type": "compaction", "input_tokens": 60_385, "output_tokens": 300,
              "cache_creation_input_tokens": 7 },
            { "type": "message", "input_tokens": 682, "output_tokens": 40 },
        ],
    }));
    let usage = usage_of(body).await;
    assert_eq!((usage.input_tokens, usage.output_tokens), (61_074, 340));
    assert_eq!(usage.cache_write_tokens, 7);
}

#[tokio::test]
async fn iterations_that_say_less_or_nothing_change_no_count() {
    for iterations in [
        json!(null),
        json!([]),
        json!("?"),
        json!([{ "type": "message", "input_tokens": 1 }]),
    ] {
        let body = answer_with_usage(
            json!({ "input_tokens": 6, "output_tokens": 4, "iterations": iterations }),
        );
        let usage = usage_of(body).await;
        assert_eq!((usage.input_tokens, usage.output_tokens), (6, 4));
    }
}

#[tokio::test]
async fn tokens_that_the_cache_keeps_for_an_hour_are_told_apart() {
    let body = answer_with_usage(json!({
        "input_tokens": 6, "output_tokens": 4, "cache_creation_input_tokens": 30,
        "cache_creation": { "ephemeral_5m_input_tokens": 10, "ephemeral_1h_input_tokens": 20 },
    }));
    let response = read(body).await;
    assert_eq!(response.usage().cache_write_tokens, 30);
    assert_eq!(response.metadata().long_cache_write_tokens, Some(20));
}

fn answer_with_usage(usage: Value) -> Value {
    let mut body = answer(json!([text_block("ok")]), "end_turn");
    body["usage"] = usage;
    body
}

async fn usage_of(body: Value) -> tower_agent::Usage {
    read(body).await.usage()
}

async fn read(body: Value) -> tower_agent::ModelResponse {
    let server = Server::start([reply(200, &body)]).await;
    let request = ModelRequest::new([Message::user("Hi.")]);
    call(model(&server), request).await.unwrap()
}
