//! Limits that processes share.

use std::collections::HashMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use futures::future::BoxFuture;
use tokio::time::{Instant, sleep};
use tower_agent::gauge::Gauge;
use tower_agent::{Agent, AgentRequest, Error, ErrorKind, Result, RunContext};
use tower_agent_middleware::rate_limit::{
    Exhausted, RateChange, RateLimitLayer, RateState, RateStore,
};
use tower_agent_test::ScriptedModel;
use tower_layer::Layer;

use super::{MINUTE, SECOND, assert_near, reserving, time_of, using};
use test_support::call;

/// A store behind a network: each change takes 5 ms, and the states are text.
#[derive(Clone, Debug)]
struct Remote {
    rows: Arc<Mutex<HashMap<String, String>>>,
    started: Instant,
    is_down: Arc<Mutex<bool>>,
}

impl Remote {
    fn new() -> Self {
        Self {
            rows: Arc::default(),
            started: Instant::now(),
            is_down: Arc::default(),
        }
    }

    async fn change(&self, key: String, change: RateChange) -> Result<Option<Exhausted>> {
        sleep(Duration::from_millis(5)).await;
        if *self.is_down.lock().unwrap() {
            return Err(Error::new(ErrorKind::Store, "the store is down"));
        }
        let mut rows = self.rows.lock().unwrap();
        let mut state = match rows.get(&key) {
            Some(row) => serde_json::from_str(row).unwrap(),
            None => RateState::default(),
        };
        let exhausted = change.apply(&mut state, self.started.elapsed());
        rows.insert(key, serde_json::to_string(&state).unwrap());
        Ok(exhausted)
    }
}

impl RateStore for Remote {
    fn update<'a>(
        &'a self,
        key: &'a str,
        change: RateChange,
    ) -> BoxFuture<'a, Result<Option<Exhausted>>> {
        Box::pin(self.change(key.to_owned(), change))
    }

    fn read<'a>(&'a self, key: &'a str) -> BoxFuture<'a, Result<(RateState, Duration)>> {
        Box::pin(async move {
            sleep(Duration::from_millis(5)).await;
            if *self.is_down.lock().unwrap() {
                return Err(Error::new(ErrorKind::Store, "the store is down"));
            }
            let rows = self.rows.lock().unwrap();
            let row = rows.get(key).map(|row| serde_json::from_str(row).unwrap());
            Ok((row.unwrap_or_default(), self.started.elapsed()))
        })
    }

    fn update_later(&self, key: &str, change: RateChange) {
        let store = self.clone();
        let key = key.to_owned();
        // A limit that was not settled comes back by itself.
        tokio::spawn(async move { drop(store.change(key, change).await) });
    }
}

#[tokio::test(start_paused = true)]
async fn processes_share_a_limit() {
    let store = Remote::new();
    let process = || {
        RateLimitLayer::new()
            .requests(600, MINUTE)
            .shared_in(store.clone(), "key-1")
            .max_wait(Duration::MAX)
            .layer(ScriptedModel::always(using(1)))
    };
    let counts = Arc::new(Mutex::new(0_u64));
    let mut tasks = Vec::new();
    for _ in 0..4 {
        let model = process();
        for _ in 0..8 {
            let model = model.clone();
            let counts = counts.clone();
            tasks.push(tokio::spawn(async move {
                loop {
                    call(model.clone(), reserving(1)).await.unwrap();
                    *counts.lock().unwrap() += 1;
                }
            }));
        }
    }
    sleep(MINUTE).await;
    for task in tasks {
        task.abort();
    }
    super::assert_uses(*counts.lock().unwrap(), 600);
}

#[tokio::test(start_paused = true)]
async fn names_and_keys_tell_limits_of_a_store_apart() {
    let store = Remote::new();
    let limit = |name: &str| {
        RateLimitLayer::new()
            .requests(6, MINUTE)
            .shared_in(store.clone(), name)
            .max_wait(Duration::ZERO)
            .layer(ScriptedModel::always(using(1)))
    };
    call(limit("one"), reserving(1)).await.unwrap();
    call(limit("two"), reserving(1)).await.unwrap();
    call(limit("one"), reserving(1)).await.unwrap_err();
}

#[tokio::test(start_paused = true)]
async fn no_key_of_a_client_is_the_name_of_another_limit() {
    let store = Remote::new();
    let model = ScriptedModel::always(using(1));
    let limit = |name: &str| {
        let limit = RateLimitLayer::new().requests(6, MINUTE);
        limit
            .max_wait(Duration::ZERO)
            .shared_in(store.clone(), name)
    };
    let keys = ["b", "b/c", "\"/b", "", "/"];
    let names = ["a", "a/b", "a/b/c", "a\"", "a/", "a\"/b"];
    for name in names {
        call(limit(name).layer(model.clone()), reserving(1))
            .await
            .unwrap();
        for key in keys {
            let limit = limit(name).by(move |_| Ok(key.to_owned()));
            call(limit.layer(model.clone()), reserving(1))
                .await
                .unwrap();
        }
    }
    assert_eq!(
        store.rows.lock().unwrap().len(),
        names.len() * (keys.len() + 1)
    );
}

#[test]
fn a_state_that_says_less_or_more_than_this_version_knows_is_an_error() {
    let state = serde_json::to_string(&RateState::default()).unwrap();
    serde_json::from_str::<RateState>(&state).unwrap();
    let more = state.replacen('{', "{\"images\":1,", 1);
    for text in ["{}", "[]", &more, "null"] {
        serde_json::from_str::<RateState>(text).unwrap_err();
    }
}

#[tokio::test(start_paused = true)]
async fn what_is_given_back_reaches_other_processes() {
    let store = Remote::new();
    let process = || {
        RateLimitLayer::new()
            .tokens(6_000, MINUTE)
            .shared_in(store.clone(), "key-1")
            .layer(ScriptedModel::always(using(10)))
    };
    call(process(), reserving(240)).await.unwrap();
    sleep(SECOND).await;
    let time = time_of(&process(), reserving(240)).await;
    assert_near(time, Duration::from_millis(5));
}

#[tokio::test(start_paused = true)]
async fn a_gauge_reads_what_all_processes_have_used() {
    let store = Remote::new();
    let process = |key: &'static str| {
        RateLimitLayer::new()
            .requests(6, MINUTE)
            .max_wait(Duration::ZERO)
            .shared_in(store.clone(), "users")
            .by(move |_| Ok(key.to_owned()))
    };
    let one = process("ada");
    let other = process("ada");
    let model = ScriptedModel::always(using(1));
    call(one.layer(model.clone()), reserving(1)).await.unwrap();
    call(other.layer(model), reserving(1)).await.unwrap_err();
    for limit in [&one, &other] {
        let readings = limit.read(10).await.unwrap();
        assert_eq!(readings.len(), 1);
        assert_eq!(readings[0].of.as_deref(), Some("ada"));
        assert_eq!(readings[0].state, "used up");
    }
    // A process that nobody has called knows of no key.
    assert_eq!(process("ada").read(10).await.unwrap(), []);
    *store.is_down.lock().unwrap() = true;
    let error = one.read(10).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Store);
}

#[tokio::test(start_paused = true)]
async fn keys_that_are_not_used_for_a_minute_make_room_for_others() {
    let limit = |period| {
        RateLimitLayer::new()
            .requests(10, period)
            .by(|run: &RunContext| Ok(run.run_id().to_owned()))
    };
    let model = ScriptedModel::always(using(1));
    let layer = limit(MINUTE);
    let agent = Agent::builder(layer.layer(model)).build().unwrap();
    let run = |name: String| agent.run(AgentRequest::new("").with_run_id(name));
    for number in 0..200 {
        run(format!("early-{number}")).await.unwrap();
    }
    assert_eq!(layer.read(1_000).await.unwrap().len(), 200);
    assert_eq!(layer.read(3).await.unwrap().len(), 3);
    sleep(MINUTE * 2).await;
    for number in 0..200 {
        run(format!("late-{number}")).await.unwrap();
    }
    let readings = layer.read(1_000).await.unwrap();
    let late = readings.iter().take(200);
    assert!(late.clone().all(|reading| {
        let of = reading.of.as_deref();
        of.is_some_and(|of| of.starts_with("late"))
    }));
    assert!(readings.len() < 400, "{}", readings.len());
}

#[tokio::test(start_paused = true)]
async fn no_call_is_made_without_its_store() {
    let store = Remote::new();
    *store.is_down.lock().unwrap() = true;
    let inner = ScriptedModel::new([]);
    let model = RateLimitLayer::new()
        .shared_in(store, "key-1")
        .layer(inner.clone());
    let error = call(model, reserving(1)).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Store);
    inner.assert_done();
}
