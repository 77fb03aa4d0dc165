//! Servers over streamable HTTP on the loopback.
#![allow(deprecated)]

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use axum::Router;
use axum::body::Body;
use axum::http::StatusCode;
use axum::routing::any;
use futures::StreamExt;
use rmcp::model::ProgressNotificationParam;
use rmcp::transport::streamable_http_server::session::local::LocalSessionManager;
use rmcp::transport::{StreamableHttpServerConfig, StreamableHttpService};
use serde_json::json;
use test_support::process::free_port;
use tokio::net::TcpListener;
use tokio::sync::Notify;
use tokio::task::AbortHandle;
use tokio::time::timeout;
use tower::ServiceBuilder;
use tower_agent::{Agent, AgentRequest, BoxError, ErrorKind, Resolution, Tool};
use tower_agent_mcp::client::{Lifecycle, McpClient, McpClientBuilder};
use tower_agent_mcp::server::McpServer;
use tower_agent_middleware::approval::Approval;
use tower_agent_providers::{HttpClient, RequestBody};
use tower_agent_test::{ScriptedModel, Turn};

use crate::questions::{asking, asking_during, question};
use crate::support::{
    LIFECYCLES, SOON, Server, agent_with_tools_of, ask, connected, elicit, fifty_at_once,
    first_result, names, said, server_of_fifty,
};

/// An HTTP server on a free port, until it is dropped.
pub(crate) struct Http {
    pub(crate) address: SocketAddr,
    task: AbortHandle,
}

impl Http {
    pub(crate) async fn serve(app: Router) -> Self {
        Self::serve_at(app, ([127, 0, 0, 1], free_port()).into()).await
    }

    async fn serve_at(app: Router, address: SocketAddr) -> Self {
        let listener = loop {
            match TcpListener::bind(address).await {
                Ok(listener) => break listener,
                // The server before it may listen until its task is dropped.
                Err(error) => assert_eq!(error.kind(), std::io::ErrorKind::AddrInUse),
            }
            tokio::task::yield_now().await;
        };
        let address = listener.local_addr().unwrap();
        let task = tokio::spawn(async move { axum::serve(listener, app).await }).abort_handle();
        Self { address, task }
    }

    pub(crate) fn client(&self) -> McpClientBuilder {
        McpClient::http(
            format!("http://{}/mcp", self.address),
            HttpClient::new().unwrap(),
        )
        .name("test")
    }

    async fn connect(&self, lifecycle: Lifecycle) -> McpClient {
        connected(self.client().lifecycle(lifecycle)).await
    }
}

impl Drop for Http {
    fn drop(&mut self) {
        self.task.abort();
    }
}

fn routes(server: &Server, json: bool) -> Router {
    let server = server.clone();
    let config = StreamableHttpServerConfig::default();
    let config = if json {
        config
            .with_legacy_session_mode(false)
            .with_json_response(true)
    } else {
        config
    };
    let sessions = Arc::new(LocalSessionManager::default());
    let service = StreamableHttpService::new(move || Ok(server.clone()), sessions, config);
    Router::new().route_service("/mcp", service)
}

/// The ways in which a server of rmcp answers: with sessions and streams, or without both.
async fn servers(server: &Server) -> [Http; 2] {
    [
        Http::serve(routes(server, false)).await,
        Http::serve(routes(server, true)).await,
    ]
}

#[tokio::test]
async fn calls_over_http_are_answered_in_both_lifecycles_with_streams_and_without() {
    for http in servers(&Server::echo()).await {
        for lifecycle in LIFECYCLES {
            let client = http.connect(lifecycle).await;
            assert_eq!(names(&client).await, ["echo"]);
            let answer = ask(&client, "echo", json!({ "text": "hello" }))
                .await
                .unwrap();
            assert_eq!(answer.value(), r#"{"text":"hello"}"#);
            client.close().await;
        }
    }
}

#[tokio::test]
async fn fifty_calls_at_once_over_http_each_get_their_own_answer() {
    let server = server_of_fifty();
    for http in servers(&server).await {
        for lifecycle in LIFECYCLES {
            fifty_at_once(&http.connect(lifecycle).await).await;
        }
    }
}

#[tokio::test]
async fn an_answer_of_twenty_megabytes_comes_over_http() {
    let server = Server::new(async |_, _| Ok(said(&"x".repeat(20 << 20))));
    for http in servers(&server).await {
        let client = http.client().connect().await.unwrap();
        let answer = ask(&client, "echo", json!({})).await.unwrap();
        assert_eq!(answer.value().as_str().unwrap().len(), 20 << 20);
    }
}

#[tokio::test]
async fn an_answer_over_http_that_is_too_large_is_an_error() {
    let server = Server::new(async |params, _| {
        let large = params
            .arguments
            .is_some_and(|arguments| arguments.contains_key("large"));
        Ok(said(&"x".repeat(if large { 1 << 20 } else { 1 })))
    });
    for http in servers(&server).await {
        let client = http
            .client()
            .max_message_size(1 << 16)
            .connect()
            .await
            .unwrap();
        let error = ask(&client, "echo", json!({ "large": true }))
            .await
            .unwrap_err();
        assert!(
            matches!(error.kind(), ErrorKind::Protocol | ErrorKind::Connection),
            "{error}"
        );
        assert!(ask(&client, "echo", json!({})).await.is_ok());
    }
}

#[tokio::test]
async fn questions_over_http_interrupt_the_run_even_if_several_calls_are_running() {
    for (server, lifecycle, asked) in [
        (asking_during(), Lifecycle::Initialize, 1),
        (asking().0, Lifecycle::Discover, 2),
    ] {
        let http = Http::serve(routes(&server, false)).await;
        let client = http.connect(lifecycle).await;
        let model = ScriptedModel::new([
            Turn::tool("echo", json!({ "n": 1 })).and_tool("echo", json!({ "n": 2 })),
            Turn::from_text("Done."),
        ]);
        let agent = agent_with_tools_of(&client, model).await;
        let mut paused = agent.run("Go.").await.unwrap();
        assert_eq!(paused.interrupts().len(), 2 * asked);
        while !paused.interrupts().is_empty() {
            let answers = paused.interrupts().iter();
            let answers = answers
                .map(|interrupt| Resolution::resolved(&interrupt.id, json!({ "name": "Ada" })));
            let answers: Vec<_> = answers.collect();
            let request = AgentRequest::resume(paused.checkpoint()).with_resolutions(answers);
            paused = agent.run(request).await.unwrap();
        }
        assert_eq!(paused.text(), "Done.");
    }
}

#[tokio::test]
async fn a_question_over_http_goes_to_the_run_whose_call_raised_it() {
    let both = Arc::new(tokio::sync::Barrier::new(2));
    let server = Server::new(move |params, context| {
        let both = both.clone();
        async move {
            let who = params.arguments.unwrap()["who"]
                .as_str()
                .unwrap()
                .to_owned();
            both.wait().await;
            let answer = elicit(&context, question(&format!("Are you {who}?"))).await;
            Ok(said(&json!(answer.unwrap().content).to_string()))
        }
    });
    let http = Http::serve(routes(&server, false)).await;
    let client = http.connect(Lifecycle::Initialize).await;
    let tools = client.tools().await;
    let run = async |who: &str| {
        let model = ScriptedModel::new([
            Turn::tool("echo", json!({ "who": who })),
            Turn::from_text("Done."),
        ]);
        let agent = Agent::builder(model).tools(tools.clone()).build().unwrap();
        let paused = agent.run("Go.").await.unwrap();
        let [asked] = paused.interrupts() else {
            panic!("{:?}", paused.messages())
        };
        assert_eq!(asked.message.as_deref(), Some(&*format!("Are you {who}?")));
        let answer = Resolution::resolved(&asked.id, json!({ "name": who }));
        let request = AgentRequest::resume(paused.checkpoint()).with_resolutions([answer]);
        let done = agent.run(request).await.unwrap();
        let result = first_result(&done);
        assert_eq!(result.text(), json!({ "name": who }).to_string());
    };
    futures::join!(run("Ada"), run("Bob"));
}

#[tokio::test]
async fn a_dropped_call_over_http_is_cancelled_at_the_server() {
    let begun = Arc::new(Notify::new());
    let cancelled = Arc::new(Notify::new());
    let begins = begun.clone();
    let cancels = cancelled.clone();
    let server = Server::new(move |_, context| {
        let begins = begins.clone();
        let cancels = cancels.clone();
        async move {
            begins.notify_one();
            context.ct.cancelled().await;
            cancels.notify_one();
            std::future::pending().await
        }
    });
    let http = Http::serve(routes(&server, false)).await;
    for lifecycle in LIFECYCLES {
        let client = http.connect(lifecycle).await;
        tokio::select! {
            _ = ask(&client, "echo", json!({})) => panic!("it is silent"),
            () = begun.notified() => {}
        }
        timeout(SOON, cancelled.notified()).await.unwrap();
    }
}

#[tokio::test]
async fn progress_comes_over_http() {
    let server = Server::new(async |_, context| {
        let token = context.meta.get_progress_token().unwrap();
        for step in 1..=5 {
            let progress = ProgressNotificationParam::new(token.clone(), f64::from(step));
            context.peer.notify_progress(progress).await.unwrap();
        }
        Ok(said("done"))
    });
    for http in servers(&server).await {
        for lifecycle in LIFECYCLES {
            let client = http.connect(lifecycle).await;
            let model =
                ScriptedModel::new([Turn::tool("echo", json!({})), Turn::from_text("Done.")]);
            let agent = agent_with_tools_of(&client, model).await;
            let events: Vec<_> = futures::StreamExt::collect(agent.stream("Go.")).await;
            let is_custom = |event: &&tower_agent::stream::Event| {
                matches!(event.kind, tower_agent::stream::EventKind::Custom { .. })
            };
            assert_eq!(events.iter().filter(is_custom).count(), 5);
        }
    }
}

#[tokio::test]
async fn a_server_that_is_gone_fails_calls_until_it_is_back() {
    for lifecycle in LIFECYCLES {
        let server = Server::echo();
        let http = Http::serve(routes(&server, false)).await;
        let address = http.address;
        let client = http.connect(lifecycle).await;
        assert!(ask(&client, "echo", json!({})).await.is_ok());
        http.task.abort();
        drop(http);
        // Open connections are served to their end.
        let mut error = None;
        for _ in 0..100 {
            match ask(&client, "echo", json!({})).await {
                Ok(_) => tokio::task::yield_now().await,
                Err(failed) => {
                    error = Some(failed);
                    break;
                }
            }
        }
        if let Some(error) = error {
            assert_eq!(error.kind(), ErrorKind::Connection, "{error}");
        }
        let _http = Http::serve_at(routes(&server, false), address).await;
        // The session of an earlier protocol is unknown to the new server, and is made again.
        assert!(ask(&client, "echo", json!({})).await.is_ok());
    }
}

#[tokio::test]
async fn the_tools_are_read_again_from_a_server_that_has_forgotten_the_session() {
    let server = Server::echo();
    let sessions = Arc::new(LocalSessionManager::default());
    let config = StreamableHttpServerConfig::default();
    let service = StreamableHttpService::new(
        {
            let server = server.clone();
            move || Ok(server.clone())
        },
        sessions.clone(),
        config,
    );
    let http = Http::serve(Router::new().route_service("/mcp", service)).await;
    let client = http.connect(Lifecycle::Initialize).await;
    assert_eq!(names(&client).await, ["echo"]);
    sessions.sessions.write().await.clear();
    server
        .world
        .tools
        .lock()
        .unwrap()
        .push(crate::support::tool("added"));
    assert!(ask(&client, "echo", json!({})).await.is_ok());
    assert_eq!(names(&client).await, ["added", "echo"]);
}

#[tokio::test(start_paused = true)]
async fn a_client_that_no_longer_hears_its_server_connects_again() {
    let server = Server::echo();
    let service = StreamableHttpService::new(
        {
            let server = server.clone();
            move || Ok(server.clone())
        },
        Arc::new(LocalSessionManager::default()),
        StreamableHttpServerConfig::default(),
    );
    let cut = Arc::new(Notify::new());
    let is_cut = Arc::new(AtomicBool::new(false));
    let cuts = cut.clone();
    let fails = is_cut.clone();
    let http = tower::service_fn(move |request: axum::http::Request<Body>| {
        let mut service = service.clone();
        let cuts = cuts.clone();
        let is_stream = request.method() == "GET";
        let fails = is_stream && fails.load(Ordering::SeqCst);
        async move {
            if fails {
                return Err(BoxError::from("no route to the host"));
            }
            let response = tower::Service::call(&mut service, request).await.unwrap();
            Ok(response.map(|body| {
                let body = Body::new(body);
                if !is_stream {
                    return body;
                }
                Body::from_stream(body.into_data_stream().take_until(async move {
                    cuts.notified().await;
                }))
            }))
        }
    });
    let client = McpClient::http("http://localhost/mcp", http).lifecycle(Lifecycle::Initialize);
    let client = client.connect().await.unwrap();
    assert!(ask(&client, "echo", json!({})).await.is_ok());
    is_cut.store(true, Ordering::SeqCst);
    cut.notify_one();
    // A report of this cannot arrive.
    server
        .world
        .tools
        .lock()
        .unwrap()
        .push(crate::support::tool("added"));
    tokio::time::sleep(Duration::from_secs(30)).await;
    assert_eq!(names(&client).await, ["added", "echo"]);
    is_cut.store(false, Ordering::SeqCst);
    assert!(ask(&client, "echo", json!({})).await.is_ok());
}

#[tokio::test]
async fn errors_of_http_are_errors_of_their_kind() {
    for (status, kind) in [
        (StatusCode::UNAUTHORIZED, ErrorKind::Auth),
        (StatusCode::FORBIDDEN, ErrorKind::Auth),
        (StatusCode::TOO_MANY_REQUESTS, ErrorKind::RateLimited),
        (StatusCode::SERVICE_UNAVAILABLE, ErrorKind::Overloaded),
        (StatusCode::INTERNAL_SERVER_ERROR, ErrorKind::Provider),
    ] {
        let answer = move || async move { (status, [("retry-after", "7")], "no") };
        let http = Http::serve(Router::new().route("/mcp", any(answer))).await;
        for lifecycle in LIFECYCLES {
            let error = http
                .client()
                .lifecycle(lifecycle)
                .connect()
                .await
                .unwrap_err();
            assert_eq!(error.kind(), kind, "{error}");
            assert_eq!(error.retry_after().unwrap().as_secs(), 7);
            assert!(error.message().contains("MCP server `test`"), "{error}");
        }
    }
}

#[tokio::test]
async fn a_page_that_is_no_server_fails_to_connect() {
    let page = || async { ([("content-type", "text/html")], "<h1>Hello</h1>") };
    let http = Http::serve(Router::new().route("/mcp", any(page))).await;
    let error = http.client().connect().await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Protocol);
    assert!(error.message().contains("text/html"), "{error}");
}

#[tokio::test]
async fn a_layer_around_the_http_service_sees_every_request() {
    let http = Http::serve(routes(&Server::echo(), false)).await;
    let seen = Arc::new(std::sync::atomic::AtomicUsize::new(0));
    let sees = seen.clone();
    let service = ServiceBuilder::new()
        .map_request(move |request: axum::http::Request<RequestBody>| {
            sees.fetch_add(1, Ordering::SeqCst);
            request
        })
        .service(HttpClient::new().unwrap());
    let url = format!("http://{}/mcp?key=secret", http.address);
    let client = McpClient::http(url, service).connect().await.unwrap();
    ask(&client, "echo", json!({})).await.unwrap();
    assert!(seen.load(Ordering::SeqCst) >= 3);
    let error = ask(&client, "none", json!({})).await.unwrap_err();
    assert!(!format!("{error} {error:?} {client:?}").contains("secret"));
}

#[tokio::test]
async fn an_agent_served_over_http_asks_and_goes_on() {
    let model = ScriptedModel::new([
        Turn::tool("pay", json!({ "value": 100 })),
        Turn::from_text("Paid."),
        Turn::from_text("Paid."),
    ]);
    let clerk = Agent::builder(model)
        .name("clerk")
        .tool(Tool::function("pay", "Pays.", |amount: u32| {
            format!("paid {amount}")
        }))
        .on_tool(Approval::of_tools(["pay"]))
        .build()
        .unwrap();
    let server = McpServer::builder("office", "1.0.0")
        .agent(clerk)
        .build()
        .unwrap();
    let http = Http::serve(Router::new().route_service("/mcp", server.into_http())).await;
    let client = http.connect(Lifecycle::Discover).await;
    let model = ScriptedModel::new([
        Turn::tool("clerk", json!({ "request": "Pay." })),
        Turn::from_text("Done."),
    ]);
    let outer = agent_with_tools_of(&client, model).await;
    let paused = outer.run("Pay.").await.unwrap();
    let answer = Resolution::resolved(&paused.interrupts()[0].id, json!({ "approved": true }));
    let request = AgentRequest::resume(paused.checkpoint()).with_resolutions([answer]);
    let done = outer.run(request).await.unwrap();
    let result = first_result(&done);
    assert_eq!(result.text(), "Paid.");
}

#[tokio::test]
async fn a_request_for_another_host_is_rejected_unless_it_is_allowed() {
    for (hosts, is_allowed) in [(None, false), (Some("mcp.example.com"), true)] {
        let builder = McpServer::builder("test", "1.0.0");
        let builder = match hosts {
            Some(host) => builder.allowed_hosts([host]),
            None => builder,
        };
        let mut service = builder.build().unwrap().into_http();
        let body = r#"{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":"2025-11-25","capabilities":{},"clientInfo":{"name":"a","version":"1"}}}"#;
        let request = axum::http::Request::post("/mcp")
            .header("host", "mcp.example.com")
            .header("content-type", "application/json")
            .header("accept", "application/json, text/event-stream")
            .body(body.to_owned())
            .unwrap();
        let response = tower::Service::call(&mut service, request).await.unwrap();
        assert_eq!(response.status().is_success(), is_allowed);
    }
}
