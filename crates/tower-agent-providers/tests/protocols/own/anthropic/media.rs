//! Images, documents and audio.

use serde_json::{Value, json};
use tower_agent::message::{Media, MediaSource, ToolCall, ToolResult};
use tower_agent::{ErrorKind, Message, ModelRequest, Part};
use tower_agent_providers::anthropic::Messages;

use super::fixtures::{messages, try_body};

fn block(part: Part) -> Value {
    messages([Message::new(tower_agent::Role::User, [part])])[0]["content"][0].take()
}

fn refusal(message: Message) -> String {
    let request = ModelRequest::new([Message::user("Look:"), message]);
    let error = try_body(&Messages::default(), &request).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::InvalidRequest);
    error.message().to_owned()
}

#[test]
fn images_from_every_source() {
    let image = |source: Value| json!({ "type": "image", "source": source });
    let source = json!({ "type": "url", "url": "https://example.com/a.png" });
    assert_eq!(
        block(Part::image(MediaSource::url("https://example.com/a.png"))),
        image(source)
    );
    let source = json!({ "type": "base64", "media_type": "image/png", "data": "iVBO" });
    assert_eq!(
        block(Part::image(MediaSource::base64("image/png", "iVBO"))),
        image(source)
    );
    let source = json!({ "type": "file", "file_id": "file_1" });
    assert_eq!(
        block(Part::image(MediaSource::file("file_1"))),
        image(source)
    );
}

#[test]
fn documents_from_every_source() {
    let document = |source: Value| json!({ "type": "document", "source": source });
    let source = json!({ "type": "url", "url": "https://example.com/a.pdf" });
    assert_eq!(
        block(Part::document(MediaSource::url(
            "https://example.com/a.pdf"
        ))),
        document(source)
    );
    let source = json!({ "type": "file", "file_id": "file_1" });
    assert_eq!(
        block(Part::document(MediaSource::file("file_1"))),
        document(source)
    );
    let source = json!({ "type": "base64", "media_type": "application/pdf", "data": "JVBERi0=" });
    assert_eq!(
        block(Part::document(MediaSource::base64(
            "application/pdf",
            "JVBERi0="
        ))),
        document(source)
    );
    // "grün" in base64.
    let source = json!({ "type": "text", "media_type": "text/plain", "data": "grün" });
    for media_type in ["text/plain", "text/markdown; charset=utf-8"] {
        assert_eq!(
            block(Part::document(MediaSource::base64(media_type, "Z3LDvG4="))),
            document(source.clone())
        );
    }
}

#[test]
fn a_document_has_a_title_and_citations() {
    let mut report = Media::new(MediaSource::file("file_1")).with_name("Report");
    report
        .provider
        .set("anthropic", json!({ "citations": { "enabled": true } }));
    let expected = json!({
        "type": "document", "source": { "type": "file", "file_id": "file_1" },
        "title": "Report", "citations": { "enabled": true },
    });
    assert_eq!(block(Part::document(report)), expected);
}

#[test]
fn an_unsendable_part_is_an_error_that_names_it() {
    for (part, problem) in [
        (
            Part::audio(MediaSource::base64("audio/wav", "UklGR")),
            "the protocol has no audio",
        ),
        (
            Part::document(MediaSource::base64("application/msword", "0M8R")),
            "the protocol has no document of the type `application/msword`: send a PDF or text",
        ),
        (
            Part::document(MediaSource::base64("text/plain", "//8=")),
            "the document is declared as text, but is not UTF-8",
        ),
        (
            Part::document(MediaSource::base64("text/plain", "?")),
            "the document is not valid base64",
        ),
    ] {
        let error = refusal(Message::user("This:").with_part(part.clone()));
        assert!(
            error.starts_with(&format!("messages[1].parts[1]: {problem}")),
            "{error}"
        );
        let call = ToolCall::new("a", "show", json!({}));
        let result = ToolResult::new(&call, [Part::from_text("Here:"), part]);
        let error = refusal(Message::tool(result));
        assert!(
            error.starts_with(&format!("messages[1].parts[0].parts[1]: {problem}")),
            "{error}"
        );
    }
}

#[test]
fn a_result_shows_images_and_documents() {
    let call = ToolCall::new("a", "show", json!({}));
    let parts = [
        Part::from_text("Here:"),
        Part::image(MediaSource::base64("image/png", "iVBO")),
        Part::document(MediaSource::file("file_1")),
    ];
    let asks = Message::new(tower_agent::Role::Assistant, [call.clone().into()]);
    let sent = messages([
        Message::user("Show."),
        asks,
        Message::tool(ToolResult::new(&call, parts)),
    ]);
    let content = &sent[2]["content"][0]["content"];
    let types: Vec<_> = content
        .as_array()
        .unwrap()
        .iter()
        .map(|part| part["type"].clone())
        .collect();
    assert_eq!(types, ["text", "image", "document"]);
}
