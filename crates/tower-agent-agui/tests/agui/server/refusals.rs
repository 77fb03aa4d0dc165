//! Requests that cannot be run are answered before anything runs.

use std::convert::Infallible;
use std::time::Duration;

use bytes::Bytes;
use futures::stream;
use http::{Method, Request, StatusCode};
use http_body::Frame;
use http_body_util::{Full, StreamBody};
use serde_json::{Value, json};
use tower::ServiceExt;
use tower_agent::{Agent, Tool};
use tower_agent_agui::AgUi;
use tower_agent_test::{ScriptedModel, Turn};

use super::client::{Reply, post, send};
use super::{Served, input, serve};
use crate::watched::Watched;

/// A server whose model must not be called.
async fn unused() -> (Served, Watched) {
    let watched = Watched::default();
    let agent = watched.agent().build().unwrap();
    let server = AgUi::builder(agent)
        .max_body_size(1000)
        .max_nesting(10)
        .build();
    (serve(server).await, watched)
}

async fn refused(reply: Reply, status: StatusCode) -> Value {
    assert_eq!(reply.status, status);
    assert_eq!(reply.header("content-type"), Some("application/json"));
    let json = reply.json().await;
    assert!(
        !json["error"]["message"].as_str().unwrap().is_empty(),
        "{json}"
    );
    json["error"].clone()
}

fn with_tools(tools: Value) -> String {
    with("tools", tools)
}

/// The input with something else in the place of one field.
fn with(field: &str, value: Value) -> String {
    let mut input = input();
    input[field] = value;
    input.to_string()
}

#[tokio::test]
async fn another_method_is_405_and_says_what_is_allowed() {
    let (served, watched) = unused().await;
    for method in [Method::PUT, Method::DELETE, Method::OPTIONS] {
        let mut request = post(input().to_string());
        *request.method_mut() = method;
        let reply = send(&served, request).await;
        assert_eq!(reply.header("allow"), Some("GET, POST"));
        refused(reply, StatusCode::METHOD_NOT_ALLOWED).await;
    }
    assert_eq!(watched.calls(), 0);
}

#[tokio::test]
async fn a_body_of_another_type_is_415() {
    let (served, watched) = unused().await;
    for content_type in [
        None,
        Some("text/plain"),
        Some("application/jsonlines"),
        Some("json"),
    ] {
        let mut request = post(input().to_string());
        request.headers_mut().remove("content-type");
        if let Some(content_type) = content_type {
            request
                .headers_mut()
                .insert("content-type", content_type.parse().unwrap());
        }
        refused(
            send(&served, request).await,
            StatusCode::UNSUPPORTED_MEDIA_TYPE,
        )
        .await;
    }
    assert_eq!(watched.calls(), 0);
}

#[tokio::test]
async fn a_front_end_that_takes_no_events_is_406() {
    let (served, watched) = unused().await;
    for accept in [
        "application/json",
        "text/html, image/*",
        "text/event-streams",
        "text/event-stream;q=0",
    ] {
        let mut request = post(input().to_string());
        request
            .headers_mut()
            .insert("accept", accept.parse().unwrap());
        refused(send(&served, request).await, StatusCode::NOT_ACCEPTABLE).await;
    }
    assert_eq!(watched.calls(), 0);
}

#[tokio::test]
async fn types_may_have_parameters_and_any_case_and_accept_may_be_wide() {
    let served = serve(AgUi::new(super::agent(Vec::from_iter(
        (0..9).map(|_| super::Turn::from_text("hi")),
    ))))
    .await;
    let accepts = [
        "text/event-stream",
        "TEXT/Event-Stream; q=0.5",
        "application/json, text/event-stream",
        "*/*",
        "text/*;q=0.1",
    ];
    for accept in accepts {
        let mut request = post(input().to_string());
        request
            .headers_mut()
            .insert("accept", accept.parse().unwrap());
        let content_type = "Application/JSON; charset=utf-8".parse().unwrap();
        request.headers_mut().insert("content-type", content_type);
        assert_eq!(
            send(&served, request).await.status,
            StatusCode::OK,
            "{accept}"
        );
    }
}

#[tokio::test]
async fn a_body_that_says_it_is_too_large_is_413_before_it_is_read() {
    let (served, watched) = unused().await;
    let body = with("forwardedProps", json!("x".repeat(1000)));
    let error = refused(
        send(&served, post(body)).await,
        StatusCode::PAYLOAD_TOO_LARGE,
    )
    .await;
    assert!(
        error["message"].as_str().unwrap().contains("1000"),
        "{error}"
    );
    assert_eq!(watched.calls(), 0);
}

#[tokio::test]
async fn an_id_that_is_too_long_is_422_and_the_longest_is_not() {
    let watched = Watched::default();
    let served = serve(AgUi::new(watched.agent().build().unwrap())).await;
    let message = |length: usize| {
        let id = "m".repeat(length);
        json!([{ "id": id, "role": "user", "content": "hi" }])
    };
    let id = |length: usize| json!("x".repeat(length));
    for (field, longest, longer, most) in [
        ("threadId", id(1024), id(1025), "1024 bytes"),
        ("runId", id(1024), id(1025), "1024 bytes"),
        ("messages", message(16_384), message(16_385), "16384 bytes"),
    ] {
        let calls = watched.calls();
        let reply = send(&served, post(with(field, longer))).await;
        let error = refused(reply, StatusCode::UNPROCESSABLE_ENTITY).await;
        assert!(error["message"].as_str().unwrap().contains(most), "{error}");
        assert_eq!(watched.calls(), calls, "{field}");
        let reply = send(&served, post(with(field, longest))).await;
        assert_eq!(reply.status, StatusCode::OK, "{field}");
    }
}

#[tokio::test]
async fn a_body_in_chunks_that_grows_too_large_is_413() {
    let (served, watched) = unused().await;
    let chunks =
        (0..20).map(|_| Ok::<_, std::io::Error>(Frame::data(Bytes::from("x".repeat(100)))));
    let request = post("").map(|_| StreamBody::new(stream::iter(chunks)));
    refused(send(&served, request).await, StatusCode::PAYLOAD_TOO_LARGE).await;
    assert_eq!(watched.calls(), 0);
}

#[tokio::test]
async fn the_limit_of_the_size_is_exact() {
    let body = |length: usize| {
        let empty = with("forwardedProps", json!("")).len();
        with("forwardedProps", json!("x".repeat(length - empty)))
    };
    for (length, status) in [
        (1000, StatusCode::OK),
        (1001, StatusCode::PAYLOAD_TOO_LARGE),
    ] {
        let (served, watched) = unused().await;
        assert_eq!(body(length).len(), length);
        let reply = send(&served, post(body(length))).await;
        assert_eq!(reply.status, status);
        drop(reply);
        // The same in chunks.
        let bytes = Bytes::from(body(length));
        let chunks = stream::iter([Ok::<_, std::io::Error>(Frame::data(bytes))]);
        let request = post("").map(|_| StreamBody::new(chunks));
        assert_eq!(send(&served, request).await.status, status);
        if status != StatusCode::OK {
            assert_eq!(watched.calls(), 0);
        }
    }
}

#[tokio::test]
async fn invalid_json_is_400_and_says_where() {
    let (served, watched) = unused().await;
    for body in ["", "{", "nonsense", "{\"threadId\": }"] {
        refused(send(&served, post(body)).await, StatusCode::BAD_REQUEST).await;
    }
    let twice = format!("{0} {0}", input());
    refused(send(&served, post(twice)).await, StatusCode::BAD_REQUEST).await;
    // Also in what nobody reads.
    let other = [
        b"{\"other\":\"\xff\",",
        &input().to_string().as_bytes()[1..],
    ]
    .concat();
    for not_utf8 in [b"{\"threadId\":\"\xff\"}".to_vec(), other] {
        let error = refused(send(&served, post(not_utf8)).await, StatusCode::BAD_REQUEST).await;
        assert!(
            error["message"].as_str().unwrap().contains("UTF-8"),
            "{error}"
        );
    }
    // The key is broken: the place is that of the object.
    let broken = "{\"state\":{\"a\":[{b}]}}";
    let error = refused(send(&served, post(broken)).await, StatusCode::BAD_REQUEST).await;
    assert_eq!(error["path"], "state.a[0]");
    assert_eq!(watched.calls(), 0);
}

#[tokio::test]
async fn json_that_is_no_input_is_422_with_the_path() {
    let (served, watched) = unused().await;
    let cases = [
        (with("threadId", json!(1)), Some("threadId")),
        (
            with("messages", json!([{ "id": "u", "role": "user" }])),
            Some("messages[0]"),
        ),
        (with("state", json!([])), Some("state")),
        (
            with(
                "messages",
                json!([{ "id": "u", "role": "user", "content": 1 }]),
            ),
            Some("messages[0].content"),
        ),
        (
            with(
                "messages",
                json!([{ "id": "x", "role": "tool", "toolCallId": "c", "content": "" }]),
            ),
            Some("messages[0].toolCallId"),
        ),
        (
            with(
                "messages",
                json!([{ "id": "u", "role": null, "content": "" }]),
            ),
            Some("messages[0].role"),
        ),
        (
            with(
                "messages",
                json!([{ "id": "u", "role": { "user": null }, "content": "" }]),
            ),
            Some("messages[0].role"),
        ),
        (
            with(
                "messages",
                json!([{ "id": "u", "role": "user", "content": [{ "type": 3 }] }]),
            ),
            Some("messages[0].content[0].type"),
        ),
        (
            with("resume", json!([{ "interruptId": "i", "status": {} }])),
            Some("resume[0].status"),
        ),
        (
            with(
                "resume",
                json!(
                    ["resolved", "cancelled"]
                        .map(|status| { json!({ "interruptId": "i", "status": status }) })
                ),
            ),
            Some("resume[1].interruptId"),
        ),
        (
            with(
                "tools",
                json!([{ "name": "paint", "description": "", "parameters": true }]),
            ),
            Some("tools[0].parameters"),
        ),
        ("[]".to_owned(), None),
    ];
    for (body, path) in cases {
        let reply = send(&served, post(body.clone())).await;
        let error = refused(reply, StatusCode::UNPROCESSABLE_ENTITY).await;
        assert_eq!(
            error.get("path").and_then(Value::as_str),
            path,
            "{body}: {error}"
        );
    }
    assert_eq!(watched.calls(), 0);
}

/// Arrays in an array, so many levels deep with the input's own.
fn nested(field: &str, levels: usize) -> String {
    // The input itself is one level.
    let inner = format!("{}{}", "[".repeat(levels - 1), "]".repeat(levels - 1));
    with(field, json!(null)).replace("null", &inner)
}

#[tokio::test]
async fn the_limit_of_nesting_is_exact() {
    let (served, watched) = unused().await;
    let reply = send(&served, post(nested("forwardedProps", 10))).await;
    assert_eq!(reply.status, StatusCode::OK);
    drop(reply);
    let error = refused(
        send(&served, post(nested("forwardedProps", 11))).await,
        StatusCode::BAD_REQUEST,
    )
    .await;
    assert!(
        error["message"].as_str().unwrap().contains("10 levels"),
        "{error}"
    );
    assert!(watched.calls() <= 1);
    // Objects count as arrays do.
    let objects = format!("{}1{}", "{\"a\":".repeat(10), "}".repeat(10));
    let body = with("forwardedProps", json!(null)).replace("null", &objects);
    refused(send(&served, post(body)).await, StatusCode::BAD_REQUEST).await;
}

#[tokio::test]
async fn a_body_of_too_many_values_is_413_wherever_they_are() {
    let watched = Watched::default();
    let agent = watched.agent().build().unwrap();
    let served = serve(AgUi::builder(agent).max_values(100).build()).await;
    let zeros = |count: usize| json!(vec![0; count]);
    for (field, value) in [
        ("state", json!({ "a": zeros(100) })),
        ("forwardedProps", zeros(100)),
        ("other", zeros(100)),
        // An object counts as five.
        ("forwardedProps", json!(vec![json!({}); 20])),
    ] {
        let reply = send(&served, post(with(field, value))).await;
        let error = refused(reply, StatusCode::PAYLOAD_TOO_LARGE).await;
        let message = error["message"].as_str().unwrap();
        assert!(message.contains("100 values"), "{message}");
    }
    assert_eq!(watched.calls(), 0);
    for value in [zeros(50), json!(",[{".repeat(1000))] {
        let reply = send(&served, post(with("forwardedProps", value))).await;
        assert_eq!(reply.status, StatusCode::OK);
    }
}

#[tokio::test]
async fn brackets_in_strings_are_not_counted_and_escapes_do_not_end_them() {
    let (served, _) = unused().await;
    let texts = [
        "[".repeat(50),
        "{\"[[[[[[[[[[[[[".into(),
        "\\".into(),
        "\\\"[[[[[[[[[[[[[[".into(),
    ];
    for text in texts {
        let reply = send(&served, post(with("forwardedProps", json!([text, text])))).await;
        assert_eq!(reply.status, StatusCode::OK, "{text}");
    }
    // Brackets after a string are counted.
    let body = with("forwardedProps", json!(["\\", null])).replace("null", &"[".repeat(20));
    let error = refused(send(&served, post(body)).await, StatusCode::BAD_REQUEST).await;
    assert!(
        error["message"].as_str().unwrap().contains("nested"),
        "{error}"
    );
}

/// Deeper than the JSON reader goes: refused by it, whatever limit was set.
#[tokio::test]
async fn a_limit_beyond_that_of_the_json_reader_is_not_reached() {
    let watched = Watched::default();
    let agent = watched.agent().build().unwrap();
    let served = serve(AgUi::builder(agent).max_nesting(10_000).build()).await;
    let reply = send(&served, post(nested("state", 5000))).await;
    refused(reply, StatusCode::BAD_REQUEST).await;
    assert_eq!(watched.calls(), 0);
    // As text, the depth does not matter.
    let reply = send(&served, post(nested("forwardedProps", 5000))).await;
    assert_eq!(reply.status, StatusCode::OK);
}

#[tokio::test]
async fn a_body_that_breaks_off_is_400_and_runs_nothing() {
    use tower::ServiceExt;

    let watched = Watched::default();
    let server = AgUi::new(watched.agent().build().unwrap());
    let frames = [
        Ok(Frame::data(Bytes::from("{\"threadId\":"))),
        Err(std::io::Error::other("the line is dead")),
    ];
    let request = post("").map(|_: Full<Bytes>| StreamBody::new(stream::iter(frames)));
    let response = ServiceExt::<Request<_>>::oneshot(server, request)
        .await
        .unwrap();
    assert_eq!(response.status(), StatusCode::BAD_REQUEST);
    assert_eq!(watched.calls(), 0);
}

#[tokio::test]
async fn a_body_that_comes_a_byte_at_a_time_is_408() {
    let watched = Watched::default();
    let agent = watched.agent().build().unwrap();
    let server = AgUi::builder(agent).body_timeout(Duration::from_millis(200));
    // Each byte comes soon enough, and the whole does not.
    let bytes = stream::unfold((), async |()| {
        tokio::time::sleep(Duration::from_millis(50)).await;
        let frame = Frame::data(Bytes::from_static(b" "));
        Some((Ok::<_, Infallible>(frame), ()))
    });
    let request = post(String::new()).map(|_| StreamBody::new(Box::pin(bytes)));
    let response = server.build().oneshot(request).await.unwrap();
    assert_eq!(response.status(), StatusCode::REQUEST_TIMEOUT);
    assert_eq!(watched.calls(), 0);
}

#[tokio::test]
async fn an_id_with_a_control_character_is_422() {
    let (served, watched) = unused().await;
    let message = json!([{ "id": "u\u{1b}[31m", "role": "user", "content": "Hi." }]);
    for (field, value, path) in [
        ("threadId", json!("t\n INFO refund approved"), "threadId"),
        ("runId", json!("r\u{7f}"), "runId"),
        ("messages", message, "messages[0].id"),
    ] {
        let reply = send(&served, post(with(field, value))).await;
        let error = refused(reply, StatusCode::UNPROCESSABLE_ENTITY).await;
        assert_eq!(error["path"], path);
    }
    assert_eq!(watched.calls(), 0);
}

/// The agent, those that may take over, and the members of a team have the client's tools.
#[tokio::test]
async fn a_tool_with_the_name_of_the_servers_is_422_that_names_it_wherever_that_is() {
    let with = |agent: &str, tool: &str| {
        let own = Tool::function(tool, "Pays.", |_: Value| "paid");
        let model = ScriptedModel::always(Turn::from_text("Hello."));
        Agent::builder(model).name(agent).tool(own)
    };
    let pay = || with("payer", "pay").build().unwrap();
    let other = || with("other", "look");
    let agents = [
        (pay(), "pay"),
        (other().sub_agent(pay()).build().unwrap(), "pay"),
        (
            other().sub_agent(pay()).build().unwrap(),
            "transfer_to_agent",
        ),
        (
            other().tool(pay().into_tool("Pays.")).build().unwrap(),
            "payer",
        ),
        (
            Agent::sequential("team")
                .agent(other().build().unwrap())
                .agent(pay())
                .build()
                .unwrap(),
            "pay",
        ),
    ];
    for (agent, name) in agents {
        let served = serve(AgUi::new(agent)).await;
        let declared = |name: &str| {
            with_tools(json!([
                { "name": "pick", "description": "Picks." },
                { "name": name, "description": "Mine." },
            ]))
        };
        let reply = send(&served, post(declared(name))).await;
        let error = refused(reply, StatusCode::UNPROCESSABLE_ENTITY).await;
        assert_eq!(error["path"], "tools[1].name", "{error}");
        let why =
            format!("the server has a tool named `{name}`: give the client's tool another name");
        assert_eq!(error["message"], why);
        // Nothing has begun: under another name the same works.
        let reply = send(&served, post(declared("my_own"))).await;
        assert_eq!(reply.status, StatusCode::OK, "{name}");
    }
}

/// The tool of an agent that is one itself is no tool of the conversation.
#[tokio::test]
async fn a_tool_may_have_the_name_of_one_of_an_inner_agent() {
    let look = Tool::function("look", "Looks.", |_: Value| "seen");
    let inner = Agent::builder(ScriptedModel::new([]))
        .name("inner")
        .tool(look);
    let inner = inner.build().unwrap().into_tool("Looks.");
    let model = ScriptedModel::always(Turn::from_text("Hello."));
    let agent = Agent::builder(model).tool(inner).build().unwrap();
    let served = serve(AgUi::new(agent)).await;
    let body = with_tools(json!([{ "name": "look", "description": "Mine." }]));
    let reply = send(&served, post(body)).await;
    assert_eq!(reply.status, StatusCode::OK);
    let events = reply.events().await;
    assert_eq!(events.last().unwrap()["type"], "RUN_FINISHED");
}

/// Nothing is known of the tools inside a layer before the run.
#[tokio::test]
async fn a_tool_with_the_name_of_one_inside_a_layer_is_an_error_that_names_it() {
    let pay = Tool::function("pay", "Pays.", |_: Value| "paid");
    let model = ScriptedModel::always(Turn::from_text("Hello."));
    let agent = Agent::builder(model).tool(pay).build().unwrap();
    let agent = tower::service_fn(move |request| agent.clone().oneshot(request));
    let served = serve(AgUi::new(agent)).await;
    let body = with_tools(json!([{ "name": "pay", "description": "Mine." }]));
    let events = send(&served, post(body)).await.events().await;
    let error = events.last().unwrap();
    assert_eq!(error["code"], "invalid_request", "{error}");
    let why = error["message"].as_str().unwrap();
    assert!(
        why.starts_with("the server has a tool named `pay`"),
        "{why}"
    );
    let reply = send(&served, post(input().to_string())).await;
    let events = reply.events().await;
    assert_eq!(events.last().unwrap()["type"], "RUN_FINISHED");
}
