//! How many runs there may be at once, and when one makes room for another.

use std::time::Duration;

use http::StatusCode;
use serde_json::{Value, json};
use tower::ServiceBuilder;
use tower::limit::ConcurrencyLimitLayer;
use tower_agent_agui::{AgUi, InputErrorKind, RunAgentInput};

use super::client::{Reply, post, send};
use super::{Served, agent, app, input, serve};
use crate::watched::Watched;
use tower_agent::testing::Turn;

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
    let server = AgUi::builder(agent)
        .max_run_time(Duration::from_secs(600))
        .max_runs(1)
        .build();
    for run in ["1", "2"] {
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
    }
}
