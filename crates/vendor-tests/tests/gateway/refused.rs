//! What the gateway would lose is refused by name, at any depth.

use reqwest::{Client, Response};
use serde_json::{Value, json};

use crate::{mocks, start};

async fn post(address: &str, body: &Value) -> Response {
    let request = Client::new().post(format!("{address}/chat/completions"));
    let request = request.bearer_auth("sk-ada").json(body);
    request.send().await.unwrap()
}

/// A request with everything that the gateway knows.
fn whole() -> Value {
    json!({
        "model": "m", "temperature": 1, "top_p": 1, "max_completion_tokens": 9, "stop": "x", "seed": 1,
        "reasoning_effort": "low", "frequency_penalty": 0, "presence_penalty": 0, "logit_bias": {},
        "stream": false, "stream_options": { "include_usage": true }, "parallel_tool_calls": true,
        "response_format": { "type": "json_schema", "json_schema": {
            "name": "n", "schema": { "type": "object" }, "strict": true,
        } },
        "tool_choice": { "type": "function", "function": { "name": "f" } },
        "tools": [{ "type": "function", "function": {
            "name": "f", "description": "d", "strict": false, "parameters": { "type": "object" },
        } }],
        "messages": [
            { "role": "developer", "content": "Be brief." },
            { "role": "user", "content": [
                { "type": "text", "text": "Look." },
                { "type": "image_url", "image_url": { "url": "https://example.com/a.png", "detail": "low" } },
            ] },
            {
                "role": "assistant", "content": null, "reasoning_content": "Hm.", "refusal": null,
                "annotations": [], "audio": null, "function_call": null, "parsed": { "a": 1 },
                "tool_calls": [{ "index": 0, "id": "c", "type": "function", "function": {
                    "name": "f", "arguments": "{}", "parsed_arguments": { "a": 1 },
                } }],
            },
            { "role": "tool", "tool_call_id": "c", "content": "seen" },
        ],
    })
}

/// Adds a field to the object at this place.
fn with(place: &str, name: &str, value: Value) -> Value {
    let mut body = whole();
    body.pointer_mut(place).unwrap()[name] = value;
    body
}

async fn refused(address: &str, body: &Value) -> (String, Value) {
    let response = post(address, body).await;
    assert_eq!(response.status().as_u16(), 400, "{body}");
    let mut error: Value = response.json().await.unwrap();
    let message = error["error"]["message"].as_str().unwrap().to_owned();
    assert_eq!(error["error"]["type"], "invalid_request_error");
    (message, error["error"]["param"].take())
}

#[tokio::test]
async fn all_that_is_known_is_accepted() {
    let address = start(mocks().await, 1000).await;
    let response = post(&address, &whole()).await;
    assert_eq!(response.status().as_u16(), 200);
    // As if it was left out.
    let nulls = json!({
        "model": "m", "messages": [{ "role": "user", "content": "Hello.", "tool_calls": null }],
        "tools": null, "tool_choice": null, "stream": null, "stop": null, "stream_options": null,
    });
    assert_eq!(post(&address, &nulls).await.status().as_u16(), 200);
}

#[tokio::test]
async fn a_field_that_is_not_known_is_named_at_any_depth() {
    let address = start(mocks().await, 1000).await;
    let places = [
        ("", ""),
        ("/stream_options", "stream_options."),
        ("/response_format", "response_format."),
        (
            "/response_format/json_schema",
            "response_format.json_schema.",
        ),
        ("/tool_choice", "tool_choice."),
        ("/tool_choice/function", "tool_choice.function."),
        ("/tools/0", "tools[0]."),
        ("/tools/0/function", "tools[0].function."),
        ("/messages/0", "messages[0]."),
        ("/messages/1/content/0", "messages[1].content[0]."),
        ("/messages/1/content/1", "messages[1].content[1]."),
        (
            "/messages/1/content/1/image_url",
            "messages[1].content[1].image_url.",
        ),
        ("/messages/2", "messages[2]."),
        ("/messages/2/tool_calls/0", "messages[2].tool_calls[0]."),
        (
            "/messages/2/tool_calls/0/function",
            "messages[2].tool_calls[0].function.",
        ),
        ("/messages/3", "messages[3]."),
    ];
    for (place, path) in places {
        let body = with(place, "secret", json!(1));
        let (message, param) = refused(&address, &body).await;
        assert!(message.contains("unknown field `secret`"), "{message}");
        assert_eq!(param, format!("{path}secret"), "{message}");
    }
}

#[tokio::test]
async fn a_value_that_would_be_lost_is_named() {
    let address = start(mocks().await, 1000).await;
    let cases = [
        (
            "/messages/2",
            "audio",
            json!({ "id": "a" }),
            "messages[2].audio",
        ),
        (
            "/messages/2",
            "annotations",
            json!([{}]),
            "messages[2].annotations",
        ),
        (
            "/messages/2",
            "function_call",
            json!({ "name": "f" }),
            "messages[2].function_call",
        ),
        (
            "/messages/1",
            "tool_calls",
            json!([]),
            "messages[1].tool_calls",
        ),
        (
            "/messages/1",
            "reasoning_content",
            json!("Hm."),
            "messages[1].reasoning_content",
        ),
        (
            "/messages/1",
            "tool_call_id",
            json!("c"),
            "messages[1].tool_call_id",
        ),
        ("/messages/1", "content", Value::Null, "messages[1].content"),
        (
            "/messages/1/content/0",
            "image_url",
            json!({ "url": "u" }),
            "messages[1].content[0]",
        ),
        (
            "/messages/1/content/0",
            "type",
            json!("input_audio"),
            "messages[1].content[0].type",
        ),
        ("/messages/0", "role", json!("wizard"), "messages[0].role"),
        (
            "/messages/3",
            "tool_call_id",
            json!("other"),
            "messages[3].tool_call_id",
        ),
        ("/tools/0", "type", json!("custom"), "tools[0].type"),
        ("", "tool_choice", json!("perhaps"), "tool_choice"),
        (
            "/response_format",
            "type",
            json!("text"),
            "response_format.json_schema",
        ),
        ("", "temperature", json!("hot"), "temperature"),
    ];
    for (place, name, value, path) in cases {
        let body = with(place, name, value);
        let (message, param) = refused(&address, &body).await;
        assert_eq!(param, path, "{message}");
        assert!(message.starts_with(path), "{message}");
    }
}

#[tokio::test]
async fn what_is_no_json_is_refused() {
    let address = start(mocks().await, 1000).await;
    let send = |kind: &'static str, body: &'static str| {
        let request = Client::new().post(format!("{address}/chat/completions"));
        let request = request.bearer_auth("sk-ada").header("content-type", kind);
        request.body(body).send()
    };
    for body in ["", "{", "[]", "{\"model\":\"m\",\"messages\":[]} x"] {
        let status = send("application/json", body).await.unwrap().status();
        assert_eq!(status.as_u16(), 400, "{body}");
    }
    let status = send("text/plain", "{}").await.unwrap().status();
    assert_eq!(status.as_u16(), 415);
}

/// Returns the places of all values in a body, as JSON pointers.
fn places(value: &Value, at: &str, found: &mut Vec<String>) {
    let inside: Vec<(String, &Value)> = match value {
        Value::Object(entries) => entries
            .iter()
            .map(|(key, value)| (key.clone(), value))
            .collect(),
        Value::Array(items) => {
            let items = items.iter().enumerate();
            items
                .map(|(index, value)| (index.to_string(), value))
                .collect()
        }
        _ => Vec::new(),
    };
    for (step, value) in inside {
        let place = format!("{at}/{step}");
        places(value, &place, found);
        found.push(place);
    }
}

#[tokio::test]
async fn nothing_that_a_client_says_multiplies_or_is_a_fault_of_the_gateway() {
    let address = start(mocks().await, 1_000_000).await;
    let mut all = Vec::new();
    places(&whole(), "", &mut all);
    let long = "x".repeat(1 << 16);
    let values = [
        json!(""),
        json!(long),
        json!("\u{0}\u{202e}\u{feff}\u{1b}[31m\r\ndata: x\n\n"),
        json!(i64::MIN),
        json!(u64::MAX),
        json!(f64::MAX),
        json!(null),
        json!(true),
        json!([]),
        json!(vec!["x"; 3_000]),
        json!({ "type": long }),
    ];
    let mut broken = Vec::new();
    for place in &all {
        for (number, value) in values.iter().enumerate() {
            let mut body = whole();
            *body.pointer_mut(place).unwrap() = value.clone();
            let response = post(&address, &body).await;
            let status = response.status();
            let length = response.bytes().await.unwrap().len();
            // A refusal may quote what it refuses once.
            let most = 2 * body.to_string().len() + 4096;
            if status.is_server_error() || length > most {
                broken.push(format!("{place}, value {number}: {status}, {length} bytes"));
            }
        }
    }
    assert!(broken.is_empty(), "{}", broken.join("\n"));
    assert_eq!(post(&address, &whole()).await.status().as_u16(), 200);
}
