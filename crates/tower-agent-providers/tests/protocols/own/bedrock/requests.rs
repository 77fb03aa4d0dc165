//! What Converse is sent.

use std::sync::Arc;

use serde_json::{Value, json};
use tower_agent::message::{Media, MediaSource, Messages, ProviderData, ToolCall, ToolResult};
use tower_agent::model::{
    CacheRetention, PromptCache, ReasoningEffort, ResponseFormat, ServerTool, ToolChoice,
};
use tower_agent::tool::ToolDeclaration;
use tower_agent::{Error, ErrorKind, Message, ModelRequest, Part, Role, Settings};
use tower_agent_providers::bedrock::Converse;
use tower_agent_providers::protocol::{Call, Protocol};

fn try_body(request: &ModelRequest) -> Result<Value, Error> {
    let mut body = Vec::new();
    Converse::default().encode(&Call::new(request).with_model("m"), &mut body)?;
    Ok(serde_json::from_slice(&body).unwrap())
}

fn body(request: &ModelRequest) -> Value {
    try_body(request).unwrap()
}

fn messages(messages: impl Into<Messages>) -> Value {
    body(&ModelRequest::new(messages))["messages"].take()
}

fn look() -> ToolDeclaration {
    ToolDeclaration::new("look", "Looks.").with_parameters(json!({ "type": "object" }))
}

fn with_a_tool(settings: Settings) -> ModelRequest {
    ModelRequest::new([Message::user("Hi.")])
        .with_tools(Arc::new(vec![Arc::new(look())]))
        .with_settings(settings)
}

fn ours(fields: Value) -> ProviderData {
    let mut data = ProviderData::default();
    data.set("bedrock", fields);
    data
}

/// Valid by the definition of the API that botocore 1.44.8 has.
#[test]
fn a_whole_request() {
    let mut settings = Settings::default();
    settings.temperature = Some(0.5);
    settings.top_p = Some(0.25);
    settings.max_tokens = Some(70);
    settings.stop = vec!["END".into()];
    settings.tool_choice = Some(ToolChoice::Tool("look".into()));
    settings.reasoning_effort = Some(ReasoningEffort::High);
    settings.response_format = Some(ResponseFormat::JsonSchema {
        name: "place".into(),
        schema: json!({ "type": "object", "properties": { "n": { "type": "integer", "minimum": 2 } } }),
        strict: false,
    });
    settings.prompt_cache = Some(PromptCache::new().with_retention(CacheRetention::Long));
    settings.extra = json!({
        "model": "another",
        "additionalModelRequestFields": { "top_k": 5 },
        "serviceTier": { "type": "flex" },
    })
    .as_object()
    .unwrap()
    .clone();
    let asks = ToolCall::new("call.of/another", "look", json!({ "at": "it" }));
    let said = [
        Message::new(Role::System, [Part::from_text("Be short.")]),
        Message::user("Look."),
        Message::user(" \n"),
        Message::new(
            Role::Assistant,
            [Part::from_text("I look."), asks.clone().into()],
        ),
        Message::tool(ToolResult::new(&asks, [Part::from_text("a cat")])),
        Message::new(Role::System, [Part::from_text("Be kind.")]),
        Message::user("And now?"),
    ];
    let mut request = ModelRequest::new(said)
        .with_tools(Arc::new(vec![Arc::new(look())]))
        .with_settings(settings);
    request.add_instructions("You are a cat.");
    let id = "call_of_another_58ecdcf2c0dd2dfd";
    let sent = body(&request);
    let id_sent = sent["messages"][1]["content"][1]["toolUse"]["toolUseId"].clone();
    assert!(
        id_sent.as_str().unwrap().starts_with("call_of_another_"),
        "{id_sent}"
    );
    let sent: Value =
        serde_json::from_str(&sent.to_string().replace(id_sent.as_str().unwrap(), id)).unwrap();
    let schema = json!({
        "description": "{minimum: 2}",
        "type": "integer",
    });
    let schema = json!({ "type": "object", "properties": { "n": schema } });
    let text = sent["outputConfig"]["textFormat"]["structure"]["jsonSchema"]["schema"].clone();
    let sent_schema: Value = serde_json::from_str(text.as_str().unwrap()).unwrap();
    assert_eq!(sent_schema, schema);
    let expected = json!({
        "messages": [
            { "role": "user", "content": [{ "text": "Look." }] },
            { "role": "assistant", "content": [
                { "text": "I look." },
                { "toolUse": { "toolUseId": id, "name": "look", "input": { "at": "it" } } },
            ] },
            { "role": "user", "content": [
                { "toolResult": { "toolUseId": id, "content": [{ "text": "a cat" }] } },
                { "text": "And now?" },
                { "cachePoint": { "type": "default", "ttl": "1h" } },
            ] },
        ],
        "system": [{ "text": "You are a cat." }, { "text": "Be short." }, { "text": "Be kind." }],
        "toolConfig": {
            "tools": [{ "toolSpec": {
                "name": "look",
                "description": "Looks.",
                "inputSchema": { "json": { "type": "object" } },
            } }],
            "toolChoice": { "tool": { "name": "look" } },
        },
        "inferenceConfig": {
            "maxTokens": 70, "temperature": 0.5, "topP": 0.25, "stopSequences": ["END"],
        },
        "outputConfig": {
            "effort": "high",
            "textFormat": {
                "type": "json_schema",
                "structure": { "jsonSchema": { "name": "place", "schema": text } },
            },
        },
        "additionalModelRequestFields": { "top_k": 5 },
        "serviceTier": { "type": "flex" },
    });
    assert_eq!(sent, expected);
}

#[test]
fn media_are_sent_inline_or_from_s3() {
    let of_s3 = MediaSource::url("s3://bucket/a.png").with_media_type("image/png");
    let mut document = Media::new(MediaSource::base64("text/markdown; charset=utf-8", "IyBB"));
    document.name = Some("notes_of  today.md".into());
    let parts: [Part; 5] = [
        Part::image(MediaSource::base64("image/JPEG", "AAAA")),
        Part::image(of_s3),
        Part::document(document),
        Part::document(MediaSource::base64("application/pdf", "AAAA")),
        Part::audio(MediaSource::base64("audio/mpeg", "AAAA")),
    ];
    let sent = messages([Message::new(Role::User, parts)]);
    let bytes = json!({ "bytes": "AAAA" });
    let expected = json!([
        { "image": { "format": "jpeg", "source": bytes } },
        { "image": { "format": "png", "source": { "s3Location": { "uri": "s3://bucket/a.png" } } } },
        { "document": { "format": "md", "source": { "bytes": "IyBB" }, "name": "notes-of today-md" } },
        { "document": { "format": "pdf", "source": bytes, "name": "document" } },
        { "audio": { "format": "mp3", "source": bytes } },
    ]);
    assert_eq!(sent[0]["content"], expected);
}

/// Both are rejected: a result without content, and blank text in it.
#[test]
fn a_result_has_content() {
    let asks = ToolCall::new("a", "look", json!({}));
    let said = |result: ToolResult| {
        let said = [
            Message::user("Look."),
            Message::new(Role::Assistant, [asks.clone().into()]),
            Message::tool(result),
        ];
        messages(said)[2]["content"][0]["toolResult"].clone()
    };
    let blank = said(ToolResult::new(&asks, [Part::from_text(" ")]));
    assert_eq!(
        blank,
        json!({ "toolUseId": "a", "content": [{ "text": "The tool returned nothing." }] })
    );
    let mut failed = ToolResult::new(&asks, []);
    failed.is_error = true;
    assert_eq!(
        said(failed),
        json!({ "toolUseId": "a", "content": [{ "text": "The tool failed." }], "status": "error" })
    );
}

#[test]
fn provider_data_is_sent_with_what_carries_it() {
    let point = Part::Provider(ours(json!({ "cachePoint": { "type": "default" } })));
    let sent = messages([Message::new(Role::User, [Part::from_text("Hi."), point])]);
    assert_eq!(
        sent[0]["content"][1],
        json!({ "cachePoint": { "type": "default" } })
    );
    let mut strict = look();
    *strict.provider_mut() = ours(json!({ "strict": true }));
    let request =
        ModelRequest::new([Message::user("Hi.")]).with_tools(Arc::new(vec![Arc::new(strict)]));
    assert_eq!(
        body(&request)["toolConfig"]["tools"][0]["toolSpec"]["strict"],
        true
    );
}

#[test]
fn tools_of_the_server_stand_beside_those_of_the_agent() {
    let mut settings = Settings::default();
    settings.server_tools = vec![ServerTool::web_search()];
    settings.extra = json!({ "toolConfig": { "tools": [{ "systemTool": { "name": "mine" } }] } })
        .as_object()
        .unwrap()
        .clone();
    let sent = body(&with_a_tool(settings.clone()));
    let tools = sent["toolConfig"]["tools"].as_array().unwrap();
    assert_eq!(tools.len(), 3, "{tools:?}");
    assert_eq!(tools[0]["toolSpec"]["name"], "look");
    assert_eq!(tools[1]["systemTool"]["name"], "mine");
    assert_eq!(tools[2]["systemTool"]["name"], "nova_grounding");
    let alone = ModelRequest::new([Message::user("Hi.")]).with_settings(settings);
    let sent = body(&alone);
    assert_eq!(sent["toolConfig"]["tools"].as_array().unwrap().len(), 2);
}

#[test]
fn no_extra_field_removes_what_the_agent_has_set() {
    let mut settings = Settings::default();
    settings.response_format = Some(ResponseFormat::JsonSchema {
        name: "a".into(),
        schema: json!({ "type": "object" }),
        strict: false,
    });
    for (field, extra) in [
        ("messages", json!({ "messages": null })),
        ("toolConfig", json!({ "toolConfig": null })),
        ("toolConfig", json!({ "toolConfig": "none" })),
        ("toolConfig", json!({ "toolConfig": { "tools": null } })),
        ("toolConfig", json!({ "toolConfig": { "tools": {} } })),
        ("outputConfig.textFormat", json!({ "outputConfig": null })),
        (
            "outputConfig.textFormat",
            json!({ "outputConfig": { "textFormat": null } }),
        ),
    ] {
        settings.extra = extra.as_object().unwrap().clone();
        let error = try_body(&with_a_tool(settings.clone())).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::InvalidRequest, "{extra}");
        assert!(error.message().contains(field), "{extra}: {error}");
    }
    settings.extra = json!({ "outputConfig": { "effort": "max" } })
        .as_object()
        .unwrap()
        .clone();
    let sent = body(&with_a_tool(settings));
    assert_eq!(sent["outputConfig"]["effort"], "max");
    assert_eq!(sent["outputConfig"]["textFormat"]["type"], "json_schema");
}

#[test]
fn a_model_name_is_one_segment_of_the_path() {
    for name in [".", "..", ""] {
        let request = ModelRequest::new([Message::user("Hi.")]);
        let error = Converse::default()
            .path(&Call::new(&request).with_model(name))
            .unwrap_err();
        assert_eq!(error.kind(), ErrorKind::InvalidRequest, "{name}");
    }
    let request = ModelRequest::new([Message::user("Hi.")]);
    let call = Call::new(&request).with_model("a/../b?c#d@e");
    let path = Converse::default().path(&call).unwrap();
    assert_eq!(path, "/model/a%2F..%2Fb%3Fc%23d%40e/converse");
}
