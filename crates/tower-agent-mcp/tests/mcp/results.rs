//! Conversion of the results of a server's tools.

use rmcp::model::*;
use serde_json::json;
use tower_agent::message::{Media, MediaSource};
use tower_agent::{ErrorKind, Part};

use crate::support::{LIFECYCLES, Server, ask, said};

#[tokio::test]
async fn a_call_returns_the_servers_text_in_both_lifecycles() {
    for lifecycle in LIFECYCLES {
        let client = Server::echo().connect(lifecycle).await;
        let response = ask(&client, "echo", json!({ "text": "hello" }))
            .await
            .unwrap();
        assert_eq!(response.value(), r#"{"text":"hello"}"#);
        assert!(!response.is_error());
    }
}

#[tokio::test]
async fn every_kind_of_content_becomes_a_part() {
    let server = Server::new(async |_, _| {
        let text = ResourceContents::text("a note", "file:///note");
        let blob = ResourceContents::blob("JVBERi0=", "file:///paper.pdf")
            .with_mime_type("application/pdf");
        let picture = ResourceContents::blob("iVBO", "file:///cat").with_mime_type("image/png");
        let link = Resource::new("file:///far", "far").with_description("Far away.");
        let mut result = CallToolResult::success(vec![
            ContentBlock::text("words"),
            ContentBlock::image("AAAA", "image/png"),
            ContentBlock::audio("BBBB", "audio/wav"),
            ContentBlock::resource(text),
            ContentBlock::resource(blob),
            ContentBlock::resource(picture),
            ContentBlock::resource_link(link),
        ]);
        result.structured_content = Some(json!({ "n": 1 }));
        Ok(result.into())
    });
    let client = server.client().connect().await.unwrap();
    let response = ask(&client, "echo", json!({})).await.unwrap();
    let paper = Media::new(MediaSource::base64("application/pdf", "JVBERi0="));
    let parts = [
        Part::from_text("words"),
        Part::image(MediaSource::base64("image/png", "AAAA")),
        Part::audio(MediaSource::base64("audio/wav", "BBBB")),
        Part::from_text("a note"),
        Part::document(paper.with_name("file:///paper.pdf")),
        Part::image(MediaSource::base64("image/png", "iVBO")),
        Part::from_text("[far](file:///far): Far away."),
    ];
    assert_eq!(response.parts(), parts);
    // For the program, and not once more for the model.
    assert_eq!(response.value(), &json!({ "n": 1 }));
}

#[tokio::test]
async fn structured_content_that_is_also_sent_as_text_is_read_once() {
    let server = Server::new(async |_, _| Ok(CallToolResult::structured(json!({ "n": 1 })).into()));
    let client = server.client().connect().await.unwrap();
    let response = ask(&client, "echo", json!({})).await.unwrap();
    assert_eq!(response.parts(), [Part::from_text(r#"{"n":1}"#)]);
    assert_eq!(response.value()["n"], 1);
}

#[tokio::test]
async fn structured_content_in_other_words_than_the_text_is_read_once() {
    for (text, structured) in [
        // A typed tool of Python's SDK, for one value and for a list.
        (vec!["hi"], json!({ "result": "hi" })),
        (vec!["a", "b"], json!({ "result": ["a", "b"] })),
        // The reference server for files.
        (
            vec!["line 1\nline 2"],
            json!({ "content": "line 1\nline 2" }),
        ),
    ] {
        let content: Vec<_> = text.iter().copied().map(ContentBlock::text).collect();
        let mut result = CallToolResult::success(content);
        result.structured_content = Some(structured.clone());
        let server = Server::new(move |_, _| {
            let result = result.clone();
            async { Ok(result.into()) }
        });
        let client = server.client().connect().await.unwrap();
        let response = ask(&client, "echo", json!({})).await.unwrap();
        let parts: Vec<_> = text.into_iter().map(Part::from_text).collect();
        assert_eq!(response.parts(), parts);
        assert_eq!(response.value(), &structured);
    }
}

#[tokio::test]
async fn structured_content_alone_is_read() {
    for content in [vec![], vec![ContentBlock::text("")]] {
        let mut result = CallToolResult::success(content);
        result.structured_content = Some(json!({ "n": 1 }));
        let server = Server::new(move |_, _| {
            let result = result.clone();
            async { Ok(result.into()) }
        });
        let client = server.client().connect().await.unwrap();
        let response = ask(&client, "echo", json!({})).await.unwrap();
        assert_eq!(response.parts(), [Part::from_text(r#"{"n":1}"#)]);
    }
}

#[tokio::test]
async fn an_error_of_a_tool_is_a_response_that_the_model_reads() {
    let server = Server::new(async |_, _| {
        Ok(CallToolResult::error(vec![ContentBlock::text("no such city")]).into())
    });
    let client = server.client().connect().await.unwrap();
    let response = ask(&client, "echo", json!({})).await.unwrap();
    assert!(response.is_error());
    assert_eq!(response.value(), "no such city");
}

#[tokio::test]
async fn a_rejected_call_is_an_error_that_is_not_retried() {
    let server =
        Server::new(async |_, _| Err(ErrorData::invalid_params("`text` is missing", None)));
    let client = server.client().connect().await.unwrap();
    let error = ask(&client, "echo", json!({})).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::InvalidArguments);
    assert_eq!(
        error.message(),
        "MCP server `test`: `text` is missing (code -32602)"
    );
    assert!(!error.is_retryable());
}

#[tokio::test]
async fn an_unknown_tool_is_not_sent_to_the_server() {
    let client = Server::new(async |_, _| Ok(said("called")))
        .client()
        .connect()
        .await
        .unwrap();
    let error = ask(&client, "ecko", json!({})).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::UnknownTool);
    assert_eq!(
        error.message(),
        "MCP server `test` has no tool `ecko`; it has: echo"
    );
}
