//! How many runs there may be at once, and when one makes room for another.

use std::time::Duration;

use bytes::Bytes;
use http::StatusCode;
use http_body_util::{BodyExt, Full};
use serde_json::{Value, json};
use tokio::io::AsyncWriteExt;
use tower::limit::ConcurrencyLimitLayer;
use tower::{ServiceBuilder, ServiceExt};
use tower_agent_agui::{AgUi, InputErrorKind, RunAgentInput};

use super::client::{Reply, parse, post, send};
use super::{Served, agent, app, input, serve};
use crate::watched::Watched;
use tower_agent_test::Turn;

/// Starts a run in a thread of its own.
async fn start(served: &Served, thread: &str, user: &str) -> Reply {
    let mut input = input();
    input["threadId"] = json!(thread);
    let mut request = post(input.to_string());
    let headers = request.headers_mut();
    headers.insert("user", user.parse().unwrap());
    send(served, request).await
}

async fn refusal(reply: Reply) -> (StatusCode, Value) {
    (reply.status, reply.json().await["error"]["code"].clone())
}

/// Waits until the server has noticed that a client is gone.
async fn freed(watched: &Watched, alive: usize) {
    while watched.alive() > alive {
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
}

#[tokio::test]
async fn a_run_keeps_its_place_until_its_stream_ends_or_goes_away() {
    let watched = Watched::default();
    let server = AgUi::builder(watched.agent().build().unwrap()).max_runs(2);
    // A layer counts heads alone.
    let server = ServiceBuilder::new()
        .layer(ConcurrencyLimitLayer::new(1))
        .service(server.build());
    let served = app(axum::Router::new().route_service("/agent", server)).await;
    let first = start(&served, "1", "ada").await;
    let second = start(&served, "2", "ada").await;
    assert_eq!(
        (first.status, second.status),
        (StatusCode::OK, StatusCode::OK)
    );
    let overloaded = (StatusCode::SERVICE_UNAVAILABLE, json!("overloaded"));
    assert_eq!(refusal(start(&served, "3", "ada").await).await, overloaded);

    drop(first);
    freed(&watched, 1).await;
    let third = start(&served, "3", "ada").await;
    assert_eq!(third.status, StatusCode::OK);
    assert_eq!(refusal(start(&served, "4", "ada").await).await, overloaded);
}

#[tokio::test]
async fn a_run_that_has_ended_and_a_request_that_is_refused_keep_no_place() {
    let turns = [Turn::from_text("One."), Turn::from_text("Two.")];
    let served = serve(AgUi::builder(agent(turns)).max_runs(1).build()).await;
    for thread in ["1", "2"] {
        for body in ["{", "{}"] {
            let status = send(&served, post(body)).await.status;
            assert!(status.is_client_error(), "{status}");
        }
        let events = start(&served, thread, "ada").await.events().await;
        assert_eq!(events.last().unwrap()["type"], "RUN_FINISHED");
    }
}

#[tokio::test]
async fn one_principal_leaves_room_for_another() {
    let watched = Watched::default();
    let server = AgUi::builder(watched.agent().build().unwrap())
        .principal(|parts| Some(parts.headers.get("user")?.to_str().ok()?.to_owned()))
        .max_runs(3)
        .max_runs_per_principal(2);
    let served = serve(server.build()).await;
    let _first = start(&served, "1", "ada").await;
    let second = start(&served, "2", "ada").await;
    let too_many = (StatusCode::TOO_MANY_REQUESTS, json!("too_many_runs"));
    assert_eq!(refusal(start(&served, "3", "ada").await).await, too_many);
    let other = start(&served, "1", "bob").await;
    assert_eq!(other.status, StatusCode::OK);
    let overloaded = (StatusCode::SERVICE_UNAVAILABLE, json!("overloaded"));
    assert_eq!(refusal(start(&served, "2", "bob").await).await, overloaded);

    drop((second, other));
    freed(&watched, 1).await;
    assert_eq!(start(&served, "3", "ada").await.status, StatusCode::OK);
}

#[tokio::test]
async fn a_run_without_http_has_a_place_until_it_is_read_or_dropped() {
    use futures::StreamExt;

    let turns = [Turn::from_text("One."), Turn::from_text("Two.")];
    let server = AgUi::builder(agent(turns)).max_runs(1).build();
    let begin = |thread: &str| {
        let mut input = input();
        input["threadId"] = json!(thread);
        let input: RunAgentInput = serde_json::from_value(input).unwrap();
        server.run_for("ada", input)
    };
    let mut first = begin("1").await.unwrap();
    let error = begin("2").await.unwrap_err();
    assert_eq!(error.kind(), InputErrorKind::Overloaded);
    while first.next().await.is_some() {}
    // It is not dropped yet.
    let second = begin("2").await.unwrap();
    assert!(begin("3").await.is_err());
    drop(second);
    let third = begin("3").await.unwrap();
    drop((first, third));
}

#[tokio::test(start_paused = true)]
async fn a_run_that_takes_too_long_ends_with_an_error_and_frees_its_place() {
    use futures::StreamExt;

    let silent = tower::service_fn(|_: tower_agent::ModelRequest| {
        std::future::pending::<tower_agent::Result<tower_agent::ModelResponse>>()
    });
    let agent = tower_agent::Agent::builder(silent).build().unwrap();
    let minutes = AgUi::builder(agent.clone())
        .max_run_time(Duration::from_secs(600))
        .max_runs(1)
        .build();
    // Nobody has to think of it.
    let default = AgUi::builder(agent).max_runs(1).build();
    for (server, run, time) in [
        (&minutes, "1", 600),
        (&minutes, "2", 600),
        (&default, "1", 3600),
        (&default, "2", 3600),
    ] {
        let start = tokio::time::Instant::now();
        let mut body = input();
        body["runId"] = json!(run);
        let input: RunAgentInput = serde_json::from_value(body).unwrap();
        let mut run = server.run(input).await.unwrap();
        let mut last = Value::Null;
        while let Some(event) = run.next().await {
            last = serde_json::to_value(event).unwrap();
        }
        let end = (&last["type"], &last["code"]);
        assert_eq!(end, (&json!("RUN_ERROR"), &json!("timeout")));
        assert_eq!(start.elapsed().as_secs(), time);
    }
}

/// The time in which a client that reads nothing is let go.
const LET_GO: Duration = Duration::from_secs(2 * 60 + 1);

fn body_of(thread: &str) -> Value {
    let mut input = input();
    input["threadId"] = json!(thread);
    input
}

async fn ask(server: &AgUi, thread: &str) -> http::Response<tower_agent_agui::server::Body> {
    let request = post(body_of(thread).to_string());
    server.clone().oneshot(request).await.unwrap()
}

#[tokio::test(start_paused = true)]
async fn a_client_that_does_not_read_is_let_go_and_told_if_it_reads_after_all() {
    let watched = Watched::default();
    let agent = watched.agent().build().unwrap();
    let server = AgUi::builder(agent).max_runs(1).build();
    // Before the first event, and after one.
    for (run, reads) in [false, true].into_iter().enumerate() {
        let mut body = ask(&server, "t").await.into_body();
        if reads {
            body.frame().await.unwrap().unwrap();
            assert_eq!(watched.alive(), 1);
        }
        let busy = ask(&server, "other").await;
        assert_eq!(busy.status(), StatusCode::SERVICE_UNAVAILABLE);
        tokio::time::sleep(LET_GO).await;
        assert_eq!(watched.alive(), 0, "run {run}");

        // Its place and its thread are free.
        let again = ask(&server, "t").await;
        assert_eq!(again.status(), StatusCode::OK, "run {run}");
        drop(again);
        let rest = body.collect().await.unwrap().to_bytes();
        let events = parse(std::str::from_utf8(&rest).unwrap());
        assert_eq!(events.len(), 1);
        let end = (&events[0]["type"], &events[0]["code"]);
        assert_eq!(end, (&json!("RUN_ERROR"), &json!("timeout")));
    }
}

#[tokio::test(start_paused = true)]
async fn a_client_that_waits_for_the_agent_or_reads_slowly_is_not_let_go() {
    let silent = tower::service_fn(async |_: tower_agent::ModelRequest| {
        tokio::time::sleep(Duration::from_secs(1200)).await;
        Ok::<_, tower_agent::Error>(tower_agent::ModelResponse::from_text("At last."))
    });
    let agent = tower_agent::Agent::builder(silent).build().unwrap();
    let server = AgUi::builder(agent).build();
    let mut body = ask(&server, "t").await.into_body();
    let mut text = String::new();
    while let Some(frame) = body.frame().await {
        let data = frame.unwrap().into_data().unwrap();
        text.push_str(std::str::from_utf8(&data).unwrap());
        // Just soon enough, each time.
        tokio::time::sleep(Duration::from_secs(59)).await;
    }
    assert!(text.contains("RUN_FINISHED"), "{text}");
}

#[tokio::test(start_paused = true)]
async fn a_stored_thread_that_nobody_reads_keeps_no_place() {
    let server = AgUi::builder(agent([Turn::from_text("One.")])).max_runs(1);
    let server = server.build();
    drop(ask(&server, "t").await.into_body().collect().await.unwrap());
    let request = http::Request::get("/agent?threadId=t");
    let request = request.body(Full::<Bytes>::default()).unwrap();
    let shown = server.clone().oneshot(request).await.unwrap();
    assert_eq!(shown.status(), StatusCode::OK);
    assert_eq!(ask(&server, "other").await.status(), 503);
    tokio::time::sleep(LET_GO).await;
    assert_eq!(ask(&server, "other").await.status(), 200);
    // It would be cut off, and not taken for the whole.
    assert!(shown.into_body().collect().await.is_err());
}

#[tokio::test]
async fn a_client_that_does_not_read_its_socket_is_let_go() {
    let watched = Watched::default();
    let server = AgUi::builder(watched.agent().build().unwrap());
    let server = server.read_timeout(Duration::from_millis(50)).max_runs(1);
    let served = serve(server.build()).await;
    let mut socket = tokio::net::TcpStream::connect(served.address)
        .await
        .unwrap();
    let body = input().to_string();
    let head = format!(
        "POST /agent HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\n\
         content-length: {}\r\n\r\n",
        body.len()
    );
    socket.write_all(head.as_bytes()).await.unwrap();
    socket.write_all(body.as_bytes()).await.unwrap();
    while watched.calls() == 0 {
        tokio::task::yield_now().await;
    }
    // The model never stops talking, and the socket is full at some time.
    freed(&watched, 0).await;
    drop(socket);
    assert_eq!(start(&served, "other", "ada").await.status, StatusCode::OK);
}
