//! Connections that end, and are made again.

use std::sync::atomic::Ordering;
use std::time::Duration;

use rmcp::model::ToolAnnotations;
use serde_json::json;
use tower_agent::ErrorKind;
use tower_agent::tool::ToolDeclaration;
use tower_agent_mcp::client::{Lifecycle, McpClient};

use crate::support::{LIFECYCLES, Server, ask, connected, names, said, tool};

/// Answers, or waits to be killed.
fn mortal() -> Server {
    let server = Server::new(async |params, _| {
        if params
            .arguments
            .is_some_and(|arguments| arguments.contains_key("wait"))
        {
            std::future::pending::<()>().await;
        }
        Ok(said("alive"))
    });
    let reads = tool("read").with_annotations(ToolAnnotations::new().read_only(true));
    server.with_tools([reads, tool("write")])
}

#[tokio::test]
async fn a_server_that_dies_fails_its_calls_and_the_next_call_connects_again() {
    for lifecycle in LIFECYCLES {
        let server = mortal();
        let builder = server.client().effect(ToolDeclaration::effect);
        let client = connected(builder.lifecycle(lifecycle)).await;
        ask(&client, "read", json!({})).await.unwrap();
        let world = server.world.clone();
        let (read, write, ()) = futures::join!(
            ask(&client, "read", json!({ "wait": true })),
            ask(&client, "write", json!({ "wait": true })),
            async { world.kill.notify_waiters() },
        );
        let read = read.unwrap_err();
        let write = write.unwrap_err();
        for error in [&read, &write] {
            assert_eq!(error.kind(), ErrorKind::Connection);
            assert_eq!(error.message(), "MCP server `test` closed the connection");
        }
        // Only what changes nothing may be repeated.
        assert!(read.is_retryable() && !write.is_retryable());
        assert_eq!(
            ask(&client, "write", json!({})).await.unwrap().value(),
            "alive"
        );
        assert_eq!(world.connections.load(Ordering::SeqCst), 2);
    }
}

#[tokio::test(start_paused = true)]
async fn connecting_again_waits_longer_each_time_and_all_calls_share_it() {
    let server = mortal();
    let client = server.client().connect().await.unwrap();
    ask(&client, "read", json!({})).await.unwrap();
    server.world.kill.notify_waiters();
    tokio::task::yield_now().await;
    server.world.refuses.store(2, Ordering::SeqCst);
    let start = tokio::time::Instant::now();
    // The connection is known to be closed once a call has failed.
    while ask(&client, "read", json!({})).await.is_err() {}
    assert_eq!(start.elapsed().as_millis(), 1250);
    assert_eq!(server.world.connections.load(Ordering::SeqCst), 2);
}

#[tokio::test(start_paused = true)]
async fn a_server_that_stays_away_is_an_error_of_the_connection() {
    let server = mortal();
    let client = server.client().connect().await.unwrap();
    server.world.kill.notify_waiters();
    server.world.refuses.store(usize::MAX, Ordering::SeqCst);
    let mut error = ask(&client, "read", json!({})).await.unwrap_err();
    if error.message().contains("closed the connection") {
        error = ask(&client, "read", json!({})).await.unwrap_err();
    }
    assert_eq!(error.kind(), ErrorKind::Connection);
    assert!(
        error
            .message()
            .starts_with("cannot connect to MCP server `test`"),
        "{error}"
    );
    // The tools are those that were read last.
    assert_eq!(names(&client).await, ["read", "write"]);
    server.world.refuses.store(0, Ordering::SeqCst);
    assert!(ask(&client, "read", json!({})).await.is_ok());
}

#[tokio::test]
async fn a_closed_client_refuses_calls() {
    let client = mortal().client().connect().await.unwrap();
    client.close().await;
    let error = ask(&client, "read", json!({})).await.unwrap_err();
    assert_eq!(
        error.message(),
        "the client of MCP server `test` was closed"
    );
    assert!(!error.is_retryable());
}

#[tokio::test(start_paused = true)]
async fn a_server_that_says_nothing_at_all_fails_to_connect_in_time() {
    for lifecycle in LIFECYCLES {
        let (ours, theirs) = tokio::io::duplex(1 << 12);
        let theirs = std::sync::Mutex::new(Some(theirs));
        let builder = McpClient::stream(move || {
            let stream = theirs.lock().unwrap().take();
            async move { stream.ok_or_else(|| std::io::ErrorKind::NotFound.into()) }
        });
        let builder = builder
            .lifecycle(lifecycle)
            .connect_timeout(Duration::from_secs(7));
        let error = builder.connect().await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Timeout);
        assert_eq!(
            error.message(),
            "connecting to MCP server `stream` took longer than 7s"
        );
        drop(ours);
    }
}

#[tokio::test]
async fn a_program_that_is_not_there_is_named() {
    let command = tokio::process::Command::new("/no/such/program");
    let error = McpClient::child_process(command)
        .connect()
        .await
        .unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Connection);
    assert!(error.message().contains("`/no/such/program`"), "{error}");
    assert!(!error.is_retryable());
}

#[tokio::test]
async fn initialize_asks_for_the_last_version_that_has_it() {
    let server =
        Server::new(async |_, context| Ok(said(context.protocol_version().unwrap().as_str())));
    let client = server.connect(Lifecycle::Initialize).await;
    assert_eq!(
        ask(&client, "echo", json!({})).await.unwrap().value(),
        "2025-11-25"
    );
}

#[tokio::test]
async fn a_server_of_an_earlier_version_is_found_out() {
    for server in [
        Server::echo().only_initialize(),
        Server::echo().hanging_up(),
    ] {
        let client = server.client().connect().await.unwrap();
        assert!(ask(&client, "echo", json!({})).await.is_ok());
    }
    let modern = Server::echo()
        .only_initialize()
        .client()
        .lifecycle(Lifecycle::Discover);
    assert_eq!(
        modern.connect().await.unwrap_err().kind(),
        ErrorKind::Protocol
    );
}
