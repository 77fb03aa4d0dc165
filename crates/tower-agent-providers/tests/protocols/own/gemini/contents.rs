//! How a conversation is sent.

use serde_json::{Value, json};
use tower_agent::message::{
    Media, MediaSource, ProviderData, Reasoning, Text, ToolCall, ToolResult,
};
use tower_agent::{ErrorKind, Message, ModelRequest, Part, Role};

use super::{model, named, ours, says, signed};
use crate::server::{Seen, Server};
use test_support::call;

async fn sent(request: ModelRequest) -> Seen {
    let server = Server::start([says("ok")]).await;
    call(model(&server), request).await.unwrap();
    server.only()
}

async fn contents(messages: impl IntoIterator<Item = Message>) -> Value {
    sent(ModelRequest::new(Vec::from_iter(messages))).await.body["contents"].clone()
}

fn called(id: &str, signature: Option<&str>) -> ToolCall {
    let mut call = ToolCall::new(id, "weather", json!({ "city": id }));
    if let Some(signature) = signature {
        call.provider = signed(signature);
    }
    call
}

fn calls(calls: impl IntoIterator<Item = ToolCall>) -> Message {
    Message::new(Role::Assistant, calls.into_iter().map(Part::ToolCall))
}

fn answered(id: &str, text: &str) -> Message {
    Message::tool(ToolResult::new(&called(id, None), [Part::from_text(text)]))
}

fn function_call(id: &str) -> Value {
    json!({ "id": id, "name": "weather", "args": { "city": id } })
}

fn function_response(id: &str, text: &str) -> Value {
    json!({ "functionResponse": { "id": id, "name": "weather", "response": { "output": text } } })
}

#[tokio::test]
async fn a_plain_call() {
    let mut request = ModelRequest::new([Message::user("Hello, Wörld ✓")]);
    request.add_instructions("Be brief.");
    let seen = sent(request).await;
    assert_eq!(
        seen.line(),
        "POST /v1/models/gemini-3-flash-preview:generateContent"
    );
    let expected = json!({
        "contents": [{ "role": "user", "parts": [{ "text": "Hello, Wörld ✓" }] }],
        "systemInstruction": { "parts": [{ "text": "Be brief." }] },
    });
    assert_eq!(seen.body, expected);
}

#[tokio::test]
async fn results_of_parallel_calls_are_one_content_in_order() {
    let contents = contents([
        Message::user("Where is it warm?"),
        calls([
            called("a", Some("sig")),
            called("b", None),
            called("c", None),
        ]),
        answered("a", "1"),
        answered("b", "2"),
        answered("c", "3"),
        Message::assistant("In c."),
        Message::user("Thanks."),
    ])
    .await;
    let expected = json!([
        { "role": "user", "parts": [{ "text": "Where is it warm?" }] },
        { "role": "model", "parts": [
            { "functionCall": function_call("a"), "thoughtSignature": "sig" },
            { "functionCall": function_call("b") },
            { "functionCall": function_call("c") },
        ]},
        { "role": "user", "parts": [
            function_response("a", "1"), function_response("b", "2"), function_response("c", "3"),
        ]},
        { "role": "model", "parts": [{ "text": "In c." }] },
        { "role": "user", "parts": [{ "text": "Thanks." }] },
    ]);
    assert_eq!(contents, expected);
}

/// The protocol counts the parts of the content after the calls.
#[tokio::test]
async fn a_user_message_after_results_is_a_content_of_its_own() {
    let contents = contents([
        Message::user("Go."),
        calls([called("a", Some("sig"))]),
        answered("a", "1"),
        Message::user("Well?"),
    ])
    .await;
    assert_eq!(
        contents[2],
        json!({ "role": "user", "parts": [function_response("a", "1")] })
    );
    assert_eq!(
        contents[3],
        json!({ "role": "user", "parts": [{ "text": "Well?" }] })
    );
}

/// The protocol requires a user's turn before a turn with calls.
#[tokio::test]
async fn neighbouring_messages_of_one_role_are_one_content() {
    let contents = contents([
        Message::user("One."),
        Message::user("Two."),
        Message::assistant("Three."),
        calls([called("a", Some("sig"))]),
    ])
    .await;
    let expected = json!([
        { "role": "user", "parts": [{ "text": "One." }, { "text": "Two." }] },
        { "role": "model", "parts": [
            { "text": "Three." },
            { "functionCall": function_call("a"), "thoughtSignature": "sig" },
        ]},
    ]);
    assert_eq!(contents, expected);
}

#[tokio::test]
async fn system_messages_join_the_instructions() {
    let mut request = ModelRequest::new([
        Message::user("Hi."),
        Message::system("Be kind."),
        Message::user("Hello?"),
    ]);
    request.add_instructions("Be brief.");
    let body = sent(request).await.body;
    let texts = json!([{ "text": "Be brief." }, { "text": "Be kind." }]);
    assert_eq!(body["systemInstruction"], json!({ "parts": texts }));
    let texts = json!([{ "text": "Hi." }, { "text": "Hello?" }]);
    assert_eq!(
        body["contents"],
        json!([{ "role": "user", "parts": texts }])
    );
}

#[tokio::test]
async fn signatures_go_back_on_exactly_their_parts() {
    let text = |text: &str, provider: ProviderData| {
        let mut part = Text::default();
        (part.text, part.provider) = (text.into(), provider);
        Part::Text(part)
    };
    let mut thought = Reasoning::default();
    (thought.text, thought.provider) = ("Hm.".into(), signed("t"));
    let mut image = Media::new(MediaSource::base64("image/png", "iVBO"));
    image.provider = signed("i");
    let said = [
        Part::Reasoning(thought),
        text("Let me", ProviderData::default()),
        text(" see.", signed("s")),
        text("", signed("e")),
        text("", ProviderData::default()),
        Part::image(image),
        Part::ToolCall(called("a", Some("c"))),
        Part::ToolCall(called("b", None)),
    ];
    let contents = contents([Message::user("?"), Message::new(Role::Assistant, said)]).await;
    let expected = json!([
        { "text": "Hm.", "thought": true, "thoughtSignature": "t" },
        { "text": "Let me" },
        { "text": " see.", "thoughtSignature": "s" },
        { "text": "", "thoughtSignature": "e" },
        { "inlineData": { "mimeType": "image/png", "data": "iVBO" }, "thoughtSignature": "i" },
        { "functionCall": function_call("a"), "thoughtSignature": "c" },
        { "functionCall": function_call("b") },
    ]);
    assert_eq!(contents[1]["parts"], expected);
}

/// A conversation that another provider began.
#[tokio::test]
async fn reasoning_and_signatures_of_others_are_left_out() {
    let foreign = |value: Value| {
        let mut data = ProviderData::default();
        data.set("anthropic", value);
        data
    };
    let mut thought = Reasoning::default();
    (thought.text, thought.provider) = ("Hm.".into(), foreign(json!({ "signature": "x" })));
    let mut call = called("toolu_1", None);
    call.provider = foreign(json!({ "index": 1 }));
    let provider = Part::Provider(foreign(json!({ "type": "server_tool_use" })));
    let said = [
        Part::Reasoning(thought),
        provider,
        Part::from_text("See."),
        Part::ToolCall(call),
    ];
    let messages = [
        Message::user("?"),
        Message::new(Role::Assistant, said),
        Message::tool(ToolResult::new(
            &called("toolu_1", None),
            [Part::from_text("1")],
        )),
        // Nothing of it is left.
        Message::new(Role::Assistant, [Part::reasoning("Hm, hm.")]),
        answered("toolu_2", "2"),
    ];
    for (name, signature) in [
        (
            "gemini-3-pro-preview",
            json!("skip_thought_signature_validator"),
        ),
        (
            "gemini-flash-latest",
            json!("skip_thought_signature_validator"),
        ),
        ("gemini-2.5-flash", Value::Null),
        ("models/gemini-2.5-pro", Value::Null),
    ] {
        let server = Server::start([says("ok")]).await;
        call_ok(&server, name, ModelRequest::new(messages.clone())).await;
        let mut call = json!({ "functionCall": function_call("toolu_1") });
        if !signature.is_null() {
            call["thoughtSignature"] = signature;
        }
        let results = [
            function_response("toolu_1", "1"),
            function_response("toolu_2", "2"),
        ];
        let expected = json!([
            { "role": "user", "parts": [{ "text": "?" }] },
            { "role": "model", "parts": [{ "text": "See." }, call] },
            { "role": "user", "parts": results },
        ]);
        assert_eq!(server.only().body["contents"], expected, "{name}");
    }
}

async fn call_ok(server: &Server, name: &str, request: ModelRequest) {
    call(named(server, name), request).await.unwrap();
}

#[tokio::test]
async fn arguments_go_back_byte_for_byte() {
    const WRITTEN: &str =
        r#"{ "b":"Z\u00fcrich",  "a" : 123456789012345678901234567890 , "c":1.10 }"#;
    let call = ToolCall::from_text("a", "pay", WRITTEN);
    let seen = sent(ModelRequest::new([Message::user("?"), calls([call])])).await;
    assert!(
        seen.text.contains(&format!("\"args\":{WRITTEN}}}")),
        "{}",
        seen.text
    );
}

#[tokio::test]
async fn arguments_that_are_not_an_object_are_sent_as_text() {
    for text in ["{\"a\":", "[1]", "\"a\"", "no"] {
        let call = ToolCall::from_text("a", "pay", text);
        let contents = contents([Message::user("?"), calls([call])]).await;
        let args = &contents[1]["parts"][0]["functionCall"]["args"];
        assert_eq!(args, &json!({ "INVALID_JSON": text }));
    }
}

#[tokio::test]
async fn a_failed_result_says_so() {
    let result = ToolResult::new(&called("a", None), [Part::from_text("No such city.")]).failed();
    let contents = contents([
        Message::user("?"),
        calls([called("a", Some("s"))]),
        Message::tool(result),
    ])
    .await;
    let response = &contents[2]["parts"][0]["functionResponse"]["response"];
    assert_eq!(response, &json!({ "error": "No such city." }));
}

#[tokio::test]
async fn texts_of_a_result_are_lines_of_one() {
    let texts = ["one", "two"].map(Part::from_text);
    let result = ToolResult::new(&called("a", None), texts);
    let contents = contents([
        Message::user("?"),
        calls([called("a", Some("s"))]),
        Message::tool(result),
    ])
    .await;
    let response = &contents[2]["parts"][0]["functionResponse"]["response"];
    assert_eq!(response, &json!({ "output": "one\ntwo" }));
}

#[tokio::test]
async fn media_of_results_follow_the_last_result() {
    let shows = |id: &str, data: &str| {
        let parts = [
            Part::from_text("Look."),
            Part::image(MediaSource::base64("image/png", data)),
        ];
        Message::tool(ToolResult::new(&called(id, None), parts))
    };
    let begin = [
        Message::user("?"),
        calls([called("a", Some("s")), called("b", None)]),
    ];
    let results = [shows("a", "AAAA"), shows("b", "BBBB")];
    let inline = |data: &str| json!({ "inlineData": { "mimeType": "image/png", "data": data } });
    let line = |id: &str| json!({ "text": format!("Shown by the tool `weather` (call {id}):") });
    let mut shown = vec![line("a"), inline("AAAA"), line("b"), inline("BBBB")];
    let answers = json!([
        function_response("a", "Look."),
        function_response("b", "Look.")
    ]);

    let contents_now = contents(begin.clone().into_iter().chain(results.clone())).await;
    assert_eq!(contents_now[2], json!({ "role": "user", "parts": answers }));
    assert_eq!(contents_now[3], json!({ "role": "user", "parts": shown }));

    let more = [Message::user("Well?"), Message::assistant("Nice.")];
    let contents_later = contents(begin.into_iter().chain(results).chain(more)).await;
    shown.push(json!({ "text": "Well?" }));
    assert_eq!(contents_later[3], json!({ "role": "user", "parts": shown }));
    assert_eq!(contents_later[4]["role"], "model");
    assert_eq!(contents_later.as_array().unwrap().len(), 5);
}

/// As a callback that shows a tool's result may add messages to it.
#[tokio::test]
async fn nothing_comes_between_the_results_of_a_turn() {
    let contents = contents([
        Message::user("?"),
        Message::assistant("Two."),
        calls([called("a", Some("s")), called("b", None)]),
        answered("a", "1"),
        Message::user("That was a."),
        Message::system("Be kind."),
        answered("b", "2"),
        Message::user("That was b."),
        Message::assistant("Seen."),
    ])
    .await;
    let texts =
        |texts: &[&str]| -> Value { texts.iter().map(|text| json!({ "text": text })).collect() };
    let results = json!([function_response("a", "1"), function_response("b", "2")]);
    assert_eq!(contents[1]["parts"].as_array().unwrap().len(), 3);
    assert_eq!(contents[2], json!({ "role": "user", "parts": results }));
    let said = texts(&["That was a.", "That was b."]);
    assert_eq!(contents[3], json!({ "role": "user", "parts": said }));
    assert_eq!(
        contents[4],
        json!({ "role": "model", "parts": texts(&["Seen."]) })
    );
    assert_eq!(contents.as_array().unwrap().len(), 5);
}

#[tokio::test]
async fn content_behind_a_call_without_a_result_is_sent() {
    let open = [
        Message::user("?"),
        calls([called("a", Some("s"))]),
        Message::user("Stop."),
    ];
    let stop = json!({ "role": "user", "parts": [{ "text": "Stop." }] });
    let now = contents(open.clone()).await;
    assert_eq!(now[2], stop);
    let later = contents(open.into_iter().chain([Message::assistant("Stopped.")])).await;
    assert_eq!(later[2], stop);
    assert_eq!(later[3]["role"], "model");
}

#[tokio::test]
async fn media_inline_by_url_and_by_file() {
    let parts = [
        Part::image(MediaSource::base64("image/webp", "UklG")),
        Part::image(MediaSource::url("https://example.com/cat.png")),
        Part::audio(MediaSource::file(
            "https://generativelanguage.googleapis.com/v1beta/files/abc",
        )),
        Part::document(
            Media::new(
                MediaSource::url("https://example.com/a").with_media_type("application/pdf"),
            )
            .with_name("a.pdf"),
        ),
    ];
    let contents = contents([Message::new(Role::User, parts)]).await;
    let expected = json!([
        { "inlineData": { "mimeType": "image/webp", "data": "UklG" } },
        { "fileData": { "fileUri": "https://example.com/cat.png" } },
        { "fileData": {
            "fileUri": "https://generativelanguage.googleapis.com/v1beta/files/abc",
        }},
        { "fileData": { "mimeType": "application/pdf", "fileUri": "https://example.com/a" } },
    ]);
    assert_eq!(contents[0]["parts"], expected);
}

#[tokio::test]
async fn provider_data_adds_fields_and_provider_parts_are_sent_unchanged() {
    let mut image = Media::new(MediaSource::base64("image/png", "iVBO"));
    image.provider = ours(json!({ "mediaResolution": { "level": "MEDIA_RESOLUTION_HIGH" } }));
    let code = json!({ "executableCode": { "language": "PYTHON", "code": "1" } });
    let said = Part::Provider(ours(code.clone()));
    let contents = contents([
        Message::new(Role::User, [Part::image(image)]),
        Message::new(Role::Assistant, [said, Part::from_text("One.")]),
    ])
    .await;
    let sent = &contents[0]["parts"][0];
    assert_eq!(sent["mediaResolution"]["level"], "MEDIA_RESOLUTION_HIGH");
    assert_eq!(sent["inlineData"]["data"], "iVBO");
    assert_eq!(contents[1]["parts"], json!([code, { "text": "One." }]));
}

#[tokio::test]
async fn messages_without_content_are_left_out() {
    let contents = contents([
        Message::user(""),
        Message::user("Hi."),
        Message::assistant(""),
        Message::user("Hello?"),
    ])
    .await;
    let texts = json!([{ "text": "Hi." }, { "text": "Hello?" }]);
    assert_eq!(contents, json!([{ "role": "user", "parts": texts }]));
}

#[tokio::test]
async fn a_system_message_with_an_image_is_an_error() {
    let server = Server::start([]).await;
    let image = Part::image(MediaSource::url("https://example.com/cat.png"));
    let request = ModelRequest::new([Message::new(Role::System, [image])]);
    let error = call(model(&server), request).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::InvalidRequest);
    assert!(error.message().contains("system message"), "{error}");
    assert!(server.seen().is_empty());
}
