//! Tool calls in fragments, as the protocol has them and as servers send them.

use serde_json::{Value, json};
use tower_agent::stream::Delta;
use tower_agent::{Agent, Error, ErrorKind, Message, ModelRequest, ModelResponse, Tool};

use crate::server::{self, Server, delta, events, finished, says};
use test_support::{arguments, begins, deltas, stream};

async fn streamed(
    pieces: impl IntoIterator<Item = Value>,
) -> (Result<ModelResponse, Error>, Vec<Delta>) {
    let chunks = pieces
        .into_iter()
        .map(|piece| delta(json!({ "tool_calls": [piece] })));
    let chunks: Vec<_> = chunks.chain([finished("tool_calls")]).collect();
    let server = Server::start([events(&chunks)]).await;
    let (response, chunks) = stream(server.model(), ModelRequest::default()).await;
    (response, deltas(chunks))
}

async fn seen(pieces: impl IntoIterator<Item = Value>) -> Vec<Delta> {
    let (response, deltas) = streamed(pieces).await;
    response.unwrap();
    deltas
}

/// A fragment with these of its fields.
fn piece(index: Option<u32>, id: Option<&str>, name: Option<&str>, arguments: &str) -> Value {
    let mut piece = json!({ "function": { "arguments": arguments } });
    if let Some(index) = index {
        piece["index"] = index.into();
    }
    if let Some(id) = id {
        piece["id"] = id.into();
    }
    if let Some(name) = name {
        piece["function"]["name"] = name.into();
    }
    piece
}

#[tokio::test]
async fn as_the_protocol_has_them() {
    let (response, deltas) = streamed([
        piece(Some(0), Some("a"), Some("add"), ""),
        piece(Some(0), None, None, "{\"a\""),
        piece(Some(0), None, None, ":1}"),
        piece(Some(1), Some("b"), Some("now"), "{"),
        piece(Some(0), None, None, " "),
        piece(Some(1), None, None, "}"),
    ])
    .await;
    let expected = [
        begins(0, "a", "add"),
        arguments(0, "{\"a\""),
        arguments(0, ":1}"),
        begins(1, "b", "now"),
        arguments(1, "{"),
        arguments(0, " "),
        arguments(1, "}"),
    ];
    assert_eq!(deltas, expected);
    let response = response.unwrap();
    let calls: Vec<_> = response.message().tool_calls().collect();
    assert_eq!(calls[0].arguments, json!({ "a": 1 }));
    assert_eq!(calls[1].arguments, json!({}));
}

#[tokio::test]
async fn two_in_one_chunk() {
    let both = json!({ "tool_calls": [
        piece(Some(0), Some("a"), Some("add"), "{}"),
        piece(Some(1), Some("b"), Some("now"), "{}"),
    ]});
    let server = Server::start([events(&[delta(both), finished("tool_calls")])]).await;
    let (_, chunks) = stream(server.model(), ModelRequest::default()).await;
    let expected = [
        begins(0, "a", "add"),
        arguments(0, "{}"),
        begins(1, "b", "now"),
        arguments(1, "{}"),
    ];
    assert_eq!(deltas(chunks), expected);
}

#[tokio::test]
async fn a_late_id_or_name_holds_the_arguments_back() {
    let expected = [
        begins(0, "a", "add"),
        arguments(0, "{\"a\":"),
        arguments(0, "1}"),
    ];
    for index in [Some(0), None] {
        let late_id = [
            piece(index, None, Some("add"), "{"),
            piece(index, Some("a"), None, "\"a\":"),
            piece(index, None, None, "1}"),
        ];
        assert_eq!(seen(late_id).await, expected);
        let late_name = [
            piece(index, Some("a"), Some(""), "{"),
            piece(index, None, Some("add"), "\"a\":"),
            piece(index, None, None, "1}"),
        ];
        assert_eq!(seen(late_name).await, expected);
    }
}

#[tokio::test]
async fn repeated_items_count_once() {
    let expected = [begins(0, "a", "add"), arguments(0, "{"), arguments(0, "}")];
    for index in [Some(0), None] {
        let pieces = [
            piece(index, Some("a"), Some("add"), "{"),
            piece(index, Some("a"), Some("add"), "}"),
        ];
        assert_eq!(seen(pieces).await, expected);
    }
}

#[tokio::test]
async fn a_new_id_for_each_fragment_is_still_one_call() {
    let expected = [begins(0, "a", "add"), arguments(0, "{"), arguments(0, "}")];
    for index in [Some(0), None] {
        let pieces = [
            piece(index, Some("a"), Some("add"), "{"),
            piece(index, Some("b"), None, "}"),
        ];
        assert_eq!(seen(pieces).await, expected);
    }
}

#[tokio::test]
async fn calls_that_are_all_numbered_0() {
    let pieces = [
        piece(Some(0), Some("a"), Some("add"), "{}"),
        piece(Some(0), Some("b"), Some("add"), "{"),
        piece(Some(0), None, None, "}"),
    ];
    let expected = [
        begins(0, "a", "add"),
        arguments(0, "{}"),
        begins(1, "b", "add"),
        arguments(1, "{"),
        arguments(1, "}"),
    ];
    assert_eq!(seen(pieces).await, expected);
}

/// Without ids, a name and what is complete say more than a number.
#[tokio::test]
async fn calls_that_are_all_numbered_0_without_ids() {
    let two = [
        begins(0, "call_0_0", "add"),
        arguments(0, "{\"a\":1}"),
        begins(1, "call_0_1", "add"),
        arguments(1, "{\"a\":2}"),
    ];
    let pieces = [
        piece(Some(0), None, Some("add"), "{\"a\":1}"),
        piece(Some(0), None, Some("add"), "{\"a\":2}"),
    ];
    assert_eq!(seen(pieces).await, two);
    // In fragments, each with the name.
    let pieces = [
        piece(Some(0), None, Some("add"), "{\"a\""),
        piece(Some(0), None, Some("add"), ":1}"),
        piece(Some(0), None, Some("add"), "{\"a\":"),
        piece(Some(0), None, Some("add"), "2}"),
        piece(Some(0), None, Some("add"), ""),
    ];
    assert_eq!(seen(pieces).await, two);
    let pieces = [
        piece(Some(0), None, Some("add"), "{"),
        piece(Some(0), None, None, "}"),
        piece(Some(0), None, Some("now"), ""),
    ];
    let expected = [
        begins(0, "call_0_0", "add"),
        arguments(0, "{}"),
        begins(1, "call_0_1", "now"),
    ];
    assert_eq!(seen(pieces).await, expected);
    // Only one of them has an id.
    let pieces = [
        piece(Some(0), None, Some("add"), "{\"a\":1}"),
        piece(Some(0), Some("b"), Some("add"), "{\"a\":2}"),
    ];
    let expected = [
        begins(0, "call_0_0", "add"),
        arguments(0, "{\"a\":1}"),
        begins(1, "b", "add"),
        arguments(1, "{\"a\":2}"),
    ];
    assert_eq!(seen(pieces).await, expected);
}

/// Pieces of one call whose number, id or place is that of another are put together.
#[tokio::test]
async fn pieces_that_do_not_agree() {
    let whole = [begins(0, "a", "add"), arguments(0, "{"), arguments(0, "}")];
    for pieces in [
        // A number that no call has.
        [
            piece(Some(0), Some("a"), Some("add"), "{"),
            piece(Some(1), None, None, "}"),
        ],
        // The id of the call, and another number.
        [
            piece(Some(0), Some("a"), Some("add"), "{"),
            piece(Some(1), Some("a"), None, "}"),
        ],
        [
            piece(Some(0), Some("a"), Some("add"), "{"),
            piece(Some(1), Some("a"), Some("add"), "}"),
        ],
        // Numbered only at first, and only later.
        [
            piece(Some(3), Some("a"), Some("add"), "{"),
            piece(None, None, None, "}"),
        ],
        [
            piece(None, Some("a"), Some("add"), "{"),
            piece(Some(0), None, None, "}"),
        ],
    ] {
        assert_eq!(seen(pieces.clone()).await, whole, "{pieces:?}");
    }
    // A server that sends the whole call again.
    let again = [
        piece(Some(0), Some("a"), Some("add"), "{\"a\":1}"),
        piece(Some(0), Some("a"), Some("add"), "{\"a\":1}"),
    ];
    assert_eq!(
        seen(again).await,
        [begins(0, "a", "add"), arguments(0, "{\"a\":1}")]
    );
    // One id for calls that differ.
    let calls = [
        piece(Some(0), Some("a"), Some("add"), "{\"a\":1}"),
        piece(Some(0), Some("a"), Some("add"), "{\"a\":2}"),
    ];
    let expected = [
        begins(0, "a", "add"),
        arguments(0, "{\"a\":1}"),
        begins(1, "call_0_1", "add"),
        arguments(1, "{\"a\":2}"),
    ];
    assert_eq!(seen(calls).await, expected);
}

#[tokio::test]
async fn numbers_with_holes() {
    let pieces = [
        piece(Some(3), Some("a"), Some("add"), "{"),
        piece(Some(7), Some("b"), Some("now"), "{}"),
        piece(Some(3), None, None, "}"),
    ];
    let expected = [
        begins(0, "a", "add"),
        arguments(0, "{"),
        begins(1, "b", "now"),
        arguments(1, "{}"),
        arguments(0, "}"),
    ];
    assert_eq!(seen(pieces).await, expected);
}

#[tokio::test]
async fn without_numbers() {
    let pieces = [
        piece(None, Some("a"), Some("add"), "{"),
        piece(None, None, None, "}"),
        piece(None, Some("b"), Some("add"), "{"),
        piece(None, Some("a"), None, " "),
        piece(None, Some("b"), None, "}"),
    ];
    let expected = [
        begins(0, "a", "add"),
        arguments(0, "{"),
        arguments(0, "}"),
        begins(1, "b", "add"),
        arguments(1, "{"),
        arguments(0, " "),
        arguments(1, "}"),
    ];
    assert_eq!(seen(pieces).await, expected);
}

#[tokio::test]
async fn without_ids() {
    for id in [None, Some("")] {
        let pieces = [
            piece(Some(0), id, Some("add"), "{"),
            piece(Some(0), id, None, "}"),
            piece(Some(1), id, Some("now"), "{}"),
        ];
        let expected = [
            begins(0, "call_0_0", "add"),
            arguments(0, "{}"),
            begins(1, "call_0_1", "now"),
            arguments(1, "{}"),
        ];
        assert_eq!(seen(pieces).await, expected);
    }
}

/// Results find their calls by id in the whole conversation, and front ends keep calls by it.
#[tokio::test]
async fn without_ids_in_two_turns() {
    let mut ids = Vec::new();
    for asked in [1, 3] {
        let chunk = delta(json!({ "tool_calls": [piece(Some(0), None, Some("add"), "{}")] }));
        let server = Server::start([events(&[chunk, finished("tool_calls")])]).await;
        let request = ModelRequest::new(vec![Message::user("Go on."); asked]);
        let (response, _) = stream(server.model(), request).await;
        ids.extend(
            response
                .unwrap()
                .message()
                .tool_calls()
                .map(|call| call.id.clone()),
        );
    }
    assert_ne!(ids[0], ids[1]);
}

#[tokio::test]
async fn without_numbers_and_ids() {
    let pieces = [
        piece(None, None, Some("add"), "{"),
        piece(None, None, Some("add"), "}"),
        piece(None, None, Some("add"), "{}"),
        piece(None, None, Some("now"), ""),
    ];
    let expected = [
        begins(0, "call_0_0", "add"),
        arguments(0, "{}"),
        begins(1, "call_0_1", "add"),
        arguments(1, "{}"),
        begins(2, "call_0_2", "now"),
    ];
    assert_eq!(seen(pieces).await, expected);
}

#[tokio::test]
async fn one_id_for_two_calls() {
    let pieces = [
        piece(Some(0), Some("a"), Some("add"), "{}"),
        piece(Some(1), Some("a"), Some("add"), "{}"),
    ];
    let expected = [
        begins(0, "a", "add"),
        arguments(0, "{}"),
        begins(1, "call_0_1", "add"),
        arguments(1, "{}"),
    ];
    assert_eq!(seen(pieces).await, expected);
}

#[tokio::test]
async fn arguments_as_an_object() {
    let mut piece = piece(Some(0), Some("a"), Some("add"), "");
    piece["function"]["arguments"] = json!({ "a": 1 });
    assert_eq!(
        seen([piece]).await,
        [begins(0, "a", "add"), arguments(0, "{\"a\":1}")]
    );
}

#[tokio::test]
async fn nulls_and_empty_pieces() {
    let nulls = json!({ "index": 0, "id": null, "type": null, "function": null });
    let none = json!({ "index": 0, "function": { "name": null, "arguments": null } });
    let pieces = [
        piece(Some(0), Some("a"), Some("add"), "{"),
        nulls,
        none,
        json!({ "index": 9 }),
    ];
    assert_eq!(
        seen(pieces).await,
        [begins(0, "a", "add"), arguments(0, "{")]
    );
}

#[tokio::test]
async fn a_call_that_never_gets_a_name() {
    let (response, deltas) = streamed([piece(Some(0), Some("a"), None, "{}")]).await;
    let error = response.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Protocol);
    assert!(
        error.message().contains("tool call without a name"),
        "{error}"
    );
    assert_eq!(deltas, []);
}

/// The order of its keys, its spacing and all its digits.
#[tokio::test]
async fn the_models_arguments_go_back_letter_for_letter() {
    #[derive(serde::Deserialize, schemars::JsonSchema)]
    struct Pay {
        to: String,
        amount: u128,
    }
    const WRITTEN: &str =
        r#"{ "to":"Z\u00fcrich",  "amount" : 123456789012345678901234567890 , "a":1.10 }"#;

    let function = json!({ "name": "pay", "arguments": WRITTEN });
    let calls = json!([{ "id": "call_1", "type": "function", "function": function }]);
    let message = json!({ "content": null, "tool_calls": calls });
    let plain = server::json(200, &json!({ "choices": [{ "message": message }] }));
    let pieces = [
        (Some("call_1"), Some("pay"), &WRITTEN[..21]),
        (None, None, &WRITTEN[21..]),
    ];
    let pieces = pieces.map(|(id, name, text)| piece(Some(0), id, name, text));
    let chunks = pieces.map(|piece| delta(json!({ "tool_calls": [piece] })));
    let streamed = events(&[&chunks[..], &[finished("tool_calls")]].concat());
    let done = events(&[delta(json!({ "content": "Paid." })), finished("stop")]);

    let pay = |Pay { to, amount }: Pay| format!("{amount} to {to}");
    for (is_stream, replies) in [(false, [plain, says("Paid.")]), (true, [streamed, done])] {
        let server = Server::start(replies).await;
        let tool = Tool::function("pay", "Pays.", pay);
        let agent = Agent::builder(server.model()).tool(tool).build().unwrap();
        let response = if is_stream {
            agent.stream("Pay!").response().await
        } else {
            agent.run("Pay!").await
        };
        assert_eq!(response.unwrap().text(), "Paid.");
        let sent = &server.seen()[1].body["messages"];
        assert_eq!(sent[1]["tool_calls"][0]["function"]["arguments"], WRITTEN);
        assert_eq!(
            sent[2]["content"],
            "123456789012345678901234567890 to Z\u{fc}rich"
        );
    }
}

/// Servers that repeat the tool's name in every piece, and number none.
#[tokio::test]
async fn pieces_of_a_call_without_a_number_cost_what_they_hold() {
    const PIECES: usize = 20_000;

    let piece = |arguments: &str| {
        let function = json!({ "name": "look", "arguments": arguments });
        delta(json!({ "tool_calls": [{ "function": function }] }))
    };
    let middle = (0..PIECES).map(|_| piece("x"));
    let pieces = std::iter::once(piece("{\"at\":\"")).chain(middle);
    let pieces = pieces.chain([piece("\"}"), piece("{}"), finished("tool_calls")]);
    let server = Server::start([events(&pieces.collect::<Vec<_>>())]).await;
    let (response, _) = stream(server.model(), ModelRequest::default()).await;
    let response = response.unwrap();
    let calls: Vec<_> = response.message().tool_calls().collect();
    assert_eq!(
        calls.len(),
        2,
        "a piece behind a whole value begins another call"
    );
    assert_eq!(
        calls[0].arguments.value()["at"].as_str().unwrap().len(),
        PIECES
    );
}
