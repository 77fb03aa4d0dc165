//! Who calls a server over HTTP, what belongs to whom, and what a caller may read.
#![allow(deprecated)]

use std::sync::atomic::Ordering;
use std::time::Duration;

use axum::Router;
use axum::http::{HeaderValue, Request, Response, StatusCode};
use http_body_util::BodyExt;
use serde_json::{Value, json};
use tower::{Service, ServiceBuilder, ServiceExt};
use tower_agent::tool::ToolDeclaration;
use tower_agent::{
    Agent, AgentRequest, Error, ErrorKind, Request as _, Resolution, Tool, ToolRequest,
    ToolResponse,
};
use tower_agent_mcp::client::{Lifecycle, McpClient};
use tower_agent_mcp::server::{Caller, McpHttp, McpServer, McpServerBuilder, ResponseBody};
use tower_agent_providers::{HttpClient, RequestBody};
use tower_agent_test::{ScriptedModel, Turn};

use crate::http::Http;
use crate::serving::{clerk, client_of};
use crate::support::{LIFECYCLES, agent_with_tools_of, ask, connected, first_result};

fn builder() -> McpServerBuilder {
    McpServer::builder("test", "1.0.0")
}

/// A server whose caller says who it is, as if a layer had verified it.
fn with_users(builder: McpServerBuilder) -> McpServer {
    builder
        .principal(|parts| Some(parts.headers.get("user")?.to_str().ok()?.to_owned()))
        .build()
        .unwrap()
}

async fn served(server: McpServer) -> Http {
    Http::serve(Router::new().route_service("/mcp", server.into_http())).await
}

/// A client of a user.
async fn client_as(http: &Http, user: &'static str, lifecycle: Lifecycle) -> McpClient {
    let service = ServiceBuilder::new()
        .map_request(move |mut request: Request<RequestBody>| {
            let user = HeaderValue::from_static(user);
            request.headers_mut().insert("user", user);
            request
        })
        .service(HttpClient::new().unwrap());
    let url = format!("http://{}/mcp", http.address);
    connected(
        McpClient::http(url, service)
            .name("test")
            .lifecycle(lifecycle),
    )
    .await
}

/// A tool that says who calls it.
fn who() -> Tool {
    let service = tower::service_fn(async |request: ToolRequest| {
        let context = request.context();
        let caller = context.extension::<Caller>().ok();
        let parts = context.extension::<axum::http::request::Parts>().ok();
        let header = parts.and_then(|parts| parts.headers.get("user").cloned());
        Ok::<_, Error>(ToolResponse::new(json!({
            "principal": caller.as_ref().and_then(|caller| caller.principal.clone()),
            "client": caller.as_ref().and_then(|caller| caller.client.clone()),
            "header": header.map(|header| header.to_str().unwrap().to_owned()),
        })))
    });
    Tool::service(ToolDeclaration::new("who", "Says who calls."), service)
}

#[tokio::test]
async fn a_tool_knows_its_caller() {
    let http = served(with_users(builder().tool(who()))).await;
    for lifecycle in LIFECYCLES {
        for user in ["alice", "bob"] {
            let client = client_as(&http, user, lifecycle).await;
            let seen = ask(&client, "who", json!({})).await.unwrap();
            let expected =
                json!({ "principal": user, "client": "tower-agent-mcp", "header": user });
            assert_eq!(seen.value(), &expected);
        }
    }
    // Over a stream there is nobody to name.
    let client = connected(client_of(&builder().tool(who()).build().unwrap())).await;
    let seen = ask(&client, "who", json!({})).await.unwrap();
    assert_eq!(seen.value()["principal"], Value::Null);
    assert_eq!(seen.value()["client"], "tower-agent-mcp");
}

#[tokio::test]
async fn a_question_belongs_to_the_user_whose_call_raised_it() {
    let (agent, paid) = clerk();
    let http = served(with_users(builder().agent(agent))).await;
    let asks = |client: McpClient| async move {
        let model = ScriptedModel::always(Turn::function(|request| {
            let results = request.messages().iter();
            let result = results.flat_map(|message| message.tool_results()).next();
            Ok(match result {
                None => tower_agent::ModelResponse::from_tool_calls([
                    tower_agent::message::ToolCall::new(
                        "call_1",
                        "clerk",
                        json!({ "request": "Pay." }),
                    ),
                ]),
                Some(_) => tower_agent::ModelResponse::from_text("Done."),
            })
        }));
        agent_with_tools_of(&client, model).await
    };
    let alices = asks(client_as(&http, "alice", Lifecycle::Discover).await).await;
    let bobs = asks(client_as(&http, "bob", Lifecycle::Discover).await).await;
    let paused = alices.run("Pay.").await.unwrap();
    let yes = Resolution::resolved(&paused.interrupts()[0].id, json!({ "approved": true }));
    let answered = || AgentRequest::resume(paused.checkpoint()).with_resolutions([yes.clone()]);

    let refused = bobs.run(answered()).await.unwrap();
    let result = first_result(&refused);
    let foreign = "the request state does not belong to this call";
    assert!(result.text().contains(foreign), "{}", result.text());
    assert_eq!(paid.load(Ordering::SeqCst), 0);

    let done = alices.run(answered()).await.unwrap();
    assert_eq!(first_result(&done).text(), "I paid 100.");
    assert_eq!(paid.load(Ordering::SeqCst), 1);
}

const INITIALIZE: &str = r#"{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":"2025-11-25","capabilities":{},"clientInfo":{"name":"a","version":"1"}}}"#;
const LIST: &str = r#"{"jsonrpc":"2.0","id":2,"method":"tools/list"}"#;

/// Sends a message as it is.
async fn send(
    service: &mut McpHttp,
    headers: &[(&'static str, &str)],
    body: &str,
) -> Response<ResponseBody> {
    let mut request = Request::post("/mcp")
        .header("host", "localhost")
        .header("content-type", "application/json")
        .header("accept", "application/json, text/event-stream");
    for (name, value) in headers {
        request = request.header(*name, *value);
    }
    let request = request.body(body.to_owned()).unwrap();
    let service: &mut McpHttp = ServiceExt::<Request<String>>::ready(service).await.unwrap();
    service.call(request).await.unwrap()
}

#[tokio::test]
async fn a_session_belongs_to_the_user_who_opened_it() {
    let mut service = with_users(builder().tool(who())).into_http();
    let opened = send(&mut service, &[("user", "alice")], INITIALIZE).await;
    assert_eq!(opened.status(), StatusCode::OK);
    let session = opened.headers()["mcp-session-id"]
        .to_str()
        .unwrap()
        .to_owned();
    drop(opened);
    let (id, proof) = session.rsplit_once('.').unwrap();
    let of_bob = send(&mut service, &[("user", "bob")], INITIALIZE).await;
    let bobs = of_bob.headers()["mcp-session-id"]
        .to_str()
        .unwrap()
        .to_owned();
    let (_, proof_of_bob) = bobs.rsplit_once('.').unwrap();

    let bare = id.to_owned();
    let forged = [
        format!("{id}.{proof_of_bob}"),
        format!("{id}."),
        format!("x.{proof}"),
    ];
    let tries = [("bob", &session), ("alice", &bare), ("alice", &bobs)];
    let tries = tries
        .into_iter()
        .chain(forged.iter().map(|forged| ("bob", forged)));
    for (user, session) in tries {
        let headers = [("user", user), ("mcp-session-id", session)];
        let response = send(&mut service, &headers, LIST).await;
        assert_eq!(response.status(), StatusCode::NOT_FOUND, "{user} {session}");
    }
    // Two ids are none.
    let both = [
        ("user", "bob"),
        ("mcp-session-id", &*bobs),
        ("mcp-session-id", &*session),
    ];
    let response = send(&mut service, &both, LIST).await;
    assert_eq!(response.status(), StatusCode::NOT_FOUND);

    let own = [("user", "alice"), ("mcp-session-id", &*session)];
    let response = send(&mut service, &own, LIST).await;
    assert_eq!(response.status(), StatusCode::OK);
}

#[tokio::test]
async fn a_request_of_nobody_is_rejected() {
    let mut service = with_users(builder().tool(who())).into_http();
    let response = send(&mut service, &[], INITIALIZE).await;
    assert_eq!(response.status(), StatusCode::UNAUTHORIZED);
}

#[tokio::test]
async fn a_page_of_another_origin_is_rejected() {
    type Build = fn(McpServerBuilder) -> McpServerBuilder;
    let cases: [(Build, &[&str], &[&str]); 4] = [
        (
            |builder| builder,
            &[
                "http://localhost:3000",
                "https://localhost",
                "http://127.0.0.1",
                "http://[::1]:80",
            ],
            &[
                "https://evil.example",
                "null",
                "http://localhost.evil.example",
                "nonsense",
            ],
        ),
        (
            |builder| builder.allowed_hosts(["localhost", "mcp.example.com"]),
            &["https://mcp.example.com", "http://localhost"],
            &[
                "https://example.com",
                "https://mcp.example.com.evil.example",
                "null",
            ],
        ),
        (
            |builder| builder.allowed_origins(["https://app.example.com:443"]),
            &["https://app.example.com"],
            &[
                "http://localhost",
                "http://app.example.com",
                "https://app.example.com:8443",
            ],
        ),
        (
            |builder| builder.allowed_origins(Vec::<String>::new()),
            &[],
            &["http://localhost", "null"],
        ),
    ];
    for (at, (build, accepted, refused)) in cases.into_iter().enumerate() {
        let mut service = build(builder().tool(who())).build().unwrap().into_http();
        let none = send(&mut service, &[], INITIALIZE).await;
        assert_eq!(none.status(), StatusCode::OK, "{at}: without an origin");
        for (origins, status) in [(accepted, StatusCode::OK), (refused, StatusCode::FORBIDDEN)] {
            for origin in origins {
                let response = send(&mut service, &[("origin", origin)], INITIALIZE).await;
                assert_eq!(response.status(), status, "{at}: {origin}");
            }
        }
    }
}

/// Tools that fail with a secret, in each way.
fn leaky() -> [Tool; 4] {
    let fails = tower::service_fn(async |_: ToolRequest| {
        Err::<ToolResponse, _>(Error::new(
            ErrorKind::Other,
            "postgres://user:hunter2@db failed",
        ))
    });
    let panics = Tool::function("panics", "Panics.", |_: Value| -> () {
        panic!("boom hunter2")
    });
    let says = tower::service_fn(async |_: ToolRequest| {
        Ok::<_, Error>(ToolResponse::error("there is no such order"))
    });
    let typed = Tool::function("typed", "Takes a number.", |_: u32| ());
    [
        Tool::service(ToolDeclaration::new("fails", "Fails."), fails),
        panics,
        Tool::service(ToolDeclaration::new("says", "Says why."), says),
        typed,
    ]
}

fn words(response: &ToolResponse) -> &str {
    response.value().as_str().unwrap()
}

#[tokio::test]
async fn an_error_is_not_shown_to_a_client_unless_the_server_says_so() {
    let server = builder().tools(leaky()).build().unwrap();
    let model = ScriptedModel::new([Turn::error(Error::new(ErrorKind::Other, "hunter2"))]);
    let agent = Agent::builder(model).name("agent").build().unwrap();
    let of_agent = builder().agent(agent).build().unwrap();
    for (server, tool, arguments) in [
        (&server, "fails", json!({})),
        (&server, "panics", json!({})),
        (&of_agent, "agent", json!({ "request": "Go." })),
    ] {
        let client = connected(client_of(server)).await;
        let failed = ask(&client, tool, arguments).await.unwrap();
        assert!(failed.is_error());
        let text = words(&failed);
        assert!(!text.contains("hunter2"), "{text}");
        assert!(
            text.starts_with("Something went wrong on the server (error "),
            "{text}"
        );
    }
    let client = connected(client_of(&server)).await;
    // The tool's own words, and what is wrong with the call.
    let said = ask(&client, "says", json!({})).await.unwrap();
    assert_eq!(words(&said), "there is no such order");
    let wrong = ask(&client, "typed", json!({ "value": "x" }))
        .await
        .unwrap();
    assert!(words(&wrong).contains("value"), "{}", words(&wrong));

    let server = builder()
        .tools(leaky())
        .failure_message(|error, run| {
            assert!(!run.run_id().is_empty());
            error
                .message()
                .contains("db failed")
                .then(|| "Call the office.".to_owned())
        })
        .build()
        .unwrap();
    let client = connected(client_of(&server)).await;
    let failed = ask(&client, "fails", json!({})).await.unwrap();
    assert_eq!(words(&failed), "Call the office.");
    let failed = ask(&client, "panics", json!({})).await.unwrap();
    assert!(
        words(&failed).starts_with("Something went wrong"),
        "{}",
        words(&failed)
    );
}

#[tokio::test]
async fn the_body_of_a_request_has_a_limit_that_can_be_set() {
    let mut service = builder().max_request(1000).build().unwrap().into_http();
    let long = INITIALIZE.replace("\"a\"", &format!("\"{}\"", "a".repeat(1000)));
    let response = send(&mut service, &[], &long).await;
    assert_eq!(response.status(), StatusCode::PAYLOAD_TOO_LARGE);
    let response = send(&mut service, &[], INITIALIZE).await;
    assert_eq!(response.status(), StatusCode::OK);
}

#[tokio::test]
async fn an_answer_may_be_json() {
    for is_json in [false, true] {
        let server = builder().tool(who()).answer_with_json(is_json);
        let mut service = server.build().unwrap().into_http();
        let meta = json!({
            "io.modelcontextprotocol/protocolVersion": "2026-07-28",
            "io.modelcontextprotocol/clientInfo": { "name": "a", "version": "1" },
            "io.modelcontextprotocol/clientCapabilities": {},
        });
        let params = json!({ "name": "who", "arguments": {}, "_meta": meta });
        let call = json!({ "jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": params });
        let headers = [
            ("mcp-protocol-version", "2026-07-28"),
            ("mcp-method", "tools/call"),
            ("mcp-name", "who"),
        ];
        let response = send(&mut service, &headers, &call.to_string()).await;
        assert_eq!(response.status(), StatusCode::OK);
        let kind = response.headers()["content-type"].to_str().unwrap();
        assert_eq!(kind.starts_with("application/json"), is_json, "{kind}");
        let body = response.into_body().collect().await.unwrap().to_bytes();
        assert!(String::from_utf8_lossy(&body).contains("principal"));
    }
}

#[tokio::test]
async fn sessions_are_limited_in_number() {
    let same = Tool::function("same", "Same.", |value: u32| value.to_string());
    let server = builder().tool(same).max_sessions(2).build().unwrap();
    let http = served(server).await;
    let connect = |lifecycle| http.client().lifecycle(lifecycle).connect();
    let first = connect(Lifecycle::Initialize).await.unwrap();
    let second = connect(Lifecycle::Initialize).await.unwrap();
    let refused = connect(Lifecycle::Initialize).await.unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::Overloaded);
    assert!(refused.is_retryable());
    assert_eq!(refused.retry_after(), Some(Duration::from_secs(30)));
    // A client without sessions takes none, and those that there are go on.
    let modern = connect(Lifecycle::Discover).await.unwrap();
    for client in [&first, &second, &modern] {
        let same = ask(client, "same", json!({ "value": 7 })).await.unwrap();
        assert_eq!(same.value(), "7");
    }
    first.close().await;
    connect(Lifecycle::Initialize).await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_session_that_nobody_uses_makes_room_for_another() {
    let idle = Duration::from_secs(60);
    let builder = builder().max_sessions(1).session_timeout(idle);
    let mut service = builder.build().unwrap().into_http();
    let mut begin = async || {
        let message = json!({ "jsonrpc": "2.0", "id": 1, "method": "initialize", "params": {
            "protocolVersion": "2025-11-25", "capabilities": {},
            "clientInfo": { "name": "bare", "version": "1" },
        } });
        let request = Request::post("http://localhost/mcp")
            .header("host", "localhost")
            .header("content-type", "application/json")
            .header("accept", "application/json, text/event-stream")
            .body(axum::body::Body::from(message.to_string()))
            .unwrap();
        service.call(request).await.unwrap().status()
    };
    assert_eq!(begin().await, StatusCode::OK);
    assert_eq!(begin().await, StatusCode::SERVICE_UNAVAILABLE);
    tokio::time::sleep(idle * 2).await;
    assert_eq!(begin().await, StatusCode::OK);
}
