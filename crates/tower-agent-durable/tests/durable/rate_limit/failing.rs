//! Databases that fail.

use std::time::Duration;

use tower_agent::{Error, ErrorKind, ModelRequest, ModelResponse, Usage};
use tower_agent_durable::{Postgres, StoreError};
use tower_agent_test::ScriptedModel;
use tower_layer::Layer;

use super::clock::Clock;
use super::{MINUTE, at_once, exhausted, reserving, using};
use crate::support::server::Server;
use test_support::call;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn without_the_database_no_call_is_made_and_what_has_ended_meanwhile_is_not_lost() {
    let Some(mut server) = Server::start("rates-away") else {
        return;
    };
    Clock::new(&server, "away");
    let url = server.url("away");
    let options = Postgres::options().wait(Duration::from_millis(300));
    let database = options.connect(&url).await.unwrap();
    let limit = at_once().tokens(60_000, MINUTE).burst(0.5);
    let limit = limit.shared_in(database.clone(), "openai");

    // A call that ends while the database is away.
    let (end, ended) = tokio::sync::oneshot::channel();
    let (begun, has_begun) = tokio::sync::oneshot::channel();
    let channels = std::sync::Mutex::new(Some((begun, ended)));
    let slow = tower::service_fn(move |_: ModelRequest| {
        let channels = channels.lock().unwrap().take();
        async move {
            let (begun, ended) = channels.unwrap();
            begun.send(()).unwrap();
            ended.await.unwrap();
            let response = ModelResponse::from_text("fine").with_usage(Usage::new(0, 1_000));
            Ok::<_, Error>(response)
        }
    });
    let slow = std::sync::Arc::new(tokio::sync::Mutex::new(slow));
    let shared = tower::service_fn(move |request: ModelRequest| {
        let slow = slow.clone();
        async move { tower::Service::call(&mut *slow.lock().await, request).await }
    });
    let running = tokio::spawn(call(limit.layer(shared), reserving(30_000)));
    has_begun.await.unwrap();
    server.stop();
    end.send(()).unwrap();
    running.await.unwrap().unwrap();

    let inner = ScriptedModel::new([]);
    let error = call(limit.layer(inner.clone()), reserving(1)).await;
    let error = error.unwrap_err();
    inner.assert_done();
    assert_eq!(error.kind(), ErrorKind::Store);
    let text = error.to_string();
    assert!(text.contains("not called: the limit \"openai\""), "{text}");
    // The words of the database and of the connection to it are for the operator.
    assert!(!text.contains("onnection"), "{text}");
    let source = error.downcast_ref::<StoreError>().unwrap();
    assert!(matches!(source, StoreError::Database(_)), "{source}");

    server.resume();
    database.close().await;
    let database = Postgres::connect(&url).await.unwrap();
    let limit = at_once().tokens(60_000, MINUTE).burst(0.5);
    let limit = limit.shared_in(database, "openai");
    let model = limit.layer(ScriptedModel::always(using(29_000)));
    // Its 29,000 have come back, and nothing else: the clock stands still.
    call(model.clone(), reserving(29_000)).await.unwrap();
    let error = call(model, reserving(1)).await.unwrap_err();
    assert!(!exhausted(&error).retry_after.is_zero());
}

#[tokio::test]
async fn a_database_that_never_answers_fails_the_call_after_ten_seconds() {
    let Some(server) = Server::start("rates-deaf") else {
        return;
    };
    let database = server.connect().await;
    let inner = ScriptedModel::new([]);
    let limit = at_once().requests(60, MINUTE);
    let model = limit.shared_in(database, "openai").layer(inner.clone());
    let mut locked = server.lock("tower_agent_rates");
    let calling = tokio::spawn(call(model, reserving(1)));
    while server.query("SELECT count(*) FROM pg_locks WHERE NOT granted") == "0" {
        tokio::task::yield_now().await;
    }
    // Nothing else happens: the time goes on by itself.
    tokio::time::pause();
    let start = tokio::time::Instant::now();
    let error = calling.await.unwrap().unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Store);
    assert!(start.elapsed() <= Duration::from_secs(10));
    inner.assert_done();
    locked.kill().unwrap();
    locked.wait().unwrap();
}

#[tokio::test]
async fn a_state_that_cannot_be_read_is_an_error_that_says_how_to_begin_again() {
    let Some(server) = Server::start("rates-unreadable") else {
        return;
    };
    let clock = Clock::new(&server, "unreadable");
    let database = clock.open().await;
    let limit = at_once().requests(60, MINUTE).shared_in(database, "openai");
    let model = limit.layer(ScriptedModel::always(using(1)));
    call(model.clone(), reserving(1)).await.unwrap();
    for state in ["{\"requests\": 3}", "", "null", "[]"] {
        clock.query(&format!("UPDATE tower_agent_rates SET state = '{state}'"));
        let error = call(model.clone(), reserving(1)).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Store, "{state}");
        assert!(
            error.to_string().contains("the limit \"openai\""),
            "{error}"
        );
        let source = error.downcast_ref::<StoreError>().unwrap().to_string();
        let cure = source.find("DELETE FROM").map(|at| &source[at..]);
        let cure = cure.unwrap_or_else(|| panic!("no cure: {source}"));
        assert_eq!(clock.query(cure), "DELETE 1");
        call(model.clone(), reserving(1)).await.unwrap();
    }
}
