//! The server that the suite talks to: the tools that it asks for, as far as a server of agents and
//! tools has them.

use serde_json::{Value, json};
use tower::service_fn;
use tower_agent::message::{Media, MediaSource};
use tower_agent::tool::ToolDeclaration;
use tower_agent::{
    Error, ErrorKind, Interrupt, Part, Request, Resolution, Tool, ToolRequest, ToolResponse,
};
use tower_agent_mcp::PROGRESS;
use tower_agent_mcp::server::{McpServer, ServerBuildError};

/// A red pixel.
const PNG: &str = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mP8z8DwHwAFBQIAX8jx0gAAAABJRU5ErkJggg==";

/// No sound at all.
const WAV: &str = "UklGRiQAAABXQVZFZm10IBAAAAABAAEAQB8AAIA+AAACABAAZGF0YQAAAAA=";

pub(super) fn server() -> Result<McpServer, ServerBuildError> {
    let image = || Part::image(MediaSource::base64("image/png", PNG));
    let note = |name| {
        let source = MediaSource::base64("text/plain", "QSBub3RlLg==");
        Part::document(Media::new(source).with_name(name))
    };
    let mixed = [
        Part::from_text("Mixed."),
        image(),
        note("test://mixed-content-resource"),
    ];
    let ok = json!({ "ok": { "type": "boolean" } });
    McpServer::builder("conformance", "1.0.0")
        .tool(says(
            "test_simple_text",
            [Part::from_text("This is a simple text response.")],
        ))
        .tool(says("test_image_content", [image()]))
        .tool(says(
            "test_audio_content",
            [Part::audio(MediaSource::base64("audio/wav", WAV))],
        ))
        .tool(says(
            "test_embedded_resource",
            [note("test://embedded-resource")],
        ))
        .tool(says("test_multiple_content_types", mixed))
        .tool(Tool::function_with(
            "test_tool_with_progress",
            "Reports progress.",
            async |_: Value, call: ToolRequest| {
                for done in [0, 50, 100] {
                    call.context()
                        .emit(PROGRESS, json!({ "progress": done, "total": 100 }))
                        .await;
                }
            },
        ))
        .tool(Tool::function(
            "test_error_handling",
            "Fails.",
            |_: Value| Err::<(), _>(Error::new(ErrorKind::Tool, "this tool fails on purpose")),
        ))
        .tool(asks("test_elicitation", "form", credentials()))
        .tool(asks(
            "test_elicitation_sep1034_defaults",
            "form",
            defaults(),
        ))
        .tool(asks("test_elicitation_sep1330_enums", "form", enums()))
        .tool(asks(
            "test_input_required_result_elicitation",
            "user_name",
            person(),
        ))
        .tool(asks(
            "test_input_required_result_request_state",
            "confirm",
            ok.clone(),
        ))
        .tool(asks(
            "test_input_required_result_tampered_state",
            "confirm",
            ok,
        ))
        .tool(asks("test_streaming_elicitation", "user_name", person()))
        .tool(asks_twice("test_input_required_result_multi_round"))
        // Servers of agents and tools never write to the client's log, and never end a stream
        // early.
        .tool(says(
            "test_logging_tool",
            [Part::from_text("Nothing is logged.")],
        ))
        .tool(says("test_reconnection", [Part::from_text("Still here.")]))
        .tool(with_schema("json_schema_2020_12_tool", every_keyword()))
        .tool(with_schema("test_header", header()))
        .build()
}

fn says<const N: usize>(name: &'static str, parts: [Part; N]) -> Tool {
    Tool::function(name, "Answers.", move |_: Value| {
        ToolResponse::new("").with_parts(parts.clone())
    })
}

fn with_schema(name: &'static str, schema: Value) -> Tool {
    let declaration = ToolDeclaration::new(name, "Does nothing.").with_parameters(schema);
    Tool::service(
        declaration,
        service_fn(async |_: ToolRequest| Ok::<_, Error>(ToolResponse::new("nothing"))),
    )
}

/// A tool that asks the user for the fields of a form, and shows the answer.
fn asks(name: &'static str, id: &'static str, fields: Value) -> Tool {
    Tool::function_with(name, "Asks.", move |_: Value, call: ToolRequest| {
        let answer = ask(&call, id, &fields)?;
        Ok::<_, Error>(format!("state-ok {:?}", answer.outcome))
    })
}

/// A tool that asks the user a second time after the first answer.
fn asks_twice(name: &'static str) -> Tool {
    Tool::function_with(name, "Asks.", |_: Value, call: ToolRequest| {
        let private = call.context().private_state();
        let key = call.context().call_key("conformance.first");
        if private.get(&key).is_none() {
            let first = ask(&call, "step1", &person())?;
            private.set(key, format!("{:?}", first.outcome));
        }
        ask(&call, "step2", &json!({ "color": { "type": "string" } })).map(|_| "done")
    })
}

/// Returns the user's answer, or else the interrupt that asks for it.
fn ask(call: &ToolRequest, id: &str, fields: &Value) -> Result<Resolution, Error> {
    let required: Vec<_> = fields
        .as_object()
        .into_iter()
        .flatten()
        .map(|(name, _)| name)
        .collect();
    let schema = json!({ "type": "object", "properties": fields, "required": required });
    let question = Interrupt::new(id, "input_required").with_message("Please fill in.");
    call.ask(question.with_response_schema(schema))
}

fn person() -> Value {
    json!({ "name": { "type": "string" } })
}

fn credentials() -> Value {
    json!({ "username": { "type": "string" }, "email": { "type": "string" } })
}

fn defaults() -> Value {
    let states = ["active", "inactive", "pending"];
    json!({
        "name": { "type": "string", "default": "John Doe" },
        "age": { "type": "integer", "default": 30 },
        "score": { "type": "number", "default": 95.5 },
        "status": { "type": "string", "enum": states, "default": "active" },
        "verified": { "type": "boolean", "default": true },
    })
}

fn enums() -> Value {
    let options = ["option1", "option2", "option3"];
    let titled = [
        ("value1", "First"),
        ("value2", "Second"),
        ("value3", "Third"),
    ];
    let titled = titled.map(|(value, title)| json!({ "const": value, "title": title }));
    json!({
        "untitledSingle": { "type": "string", "enum": options },
        "titledSingle": { "type": "string", "oneOf": titled },
        "legacyEnum": { "type": "string", "enum": options, "enumNames": ["One", "Two", "Three"] },
        "untitledMulti": { "type": "array", "items": { "type": "string", "enum": options } },
        "titledMulti": { "type": "array", "items": { "anyOf": titled } },
    })
}

fn every_keyword() -> Value {
    json!({
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "type": "object",
        "$defs": { "address": {
            "$anchor": "addressDef",
            "type": "object",
            "properties": { "street": { "type": "string" }, "city": { "type": "string" } },
        } },
        "properties": {
            "name": { "type": "string" },
            "address": { "$ref": "#/$defs/address" },
            "contactMethod": { "type": "string", "enum": ["phone", "email"] },
            "phone": { "type": "string" },
            "email": { "type": "string" },
        },
        "allOf": [{ "anyOf": [{ "required": ["phone"] }, { "required": ["email"] }] }],
        "if": { "properties": { "contactMethod": { "const": "phone" } }, "required": ["contactMethod"] },
        "then": { "required": ["phone"] },
        "else": { "required": ["email"] },
        "additionalProperties": false,
    })
}

fn header() -> Value {
    json!({
        "type": "object",
        "properties": { "region": { "type": "string", "x-mcp-header": "Region" } },
        "required": ["region"],
    })
}
