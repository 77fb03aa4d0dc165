//! Rate limits that processes share.

mod clock;
mod ends;
mod failing;
mod load;
mod rows;

use std::time::Duration;

use tower_agent::gauge::Gauge;
use tower_agent::message::Metadata;
use tower_agent::model::ModelService;
use tower_agent::{
    Agent, AgentRequest, Error, ErrorKind, ModelRequest, ModelResponse, Result, RunContext,
    Settings, Usage,
};
use tower_agent_durable::Postgres;
use tower_agent_middleware::rate_limit::{Exhausted, LimitedResource, RateLimitLayer};
use tower_agent_test::{ScriptedModel, Turn};
use tower_layer::Layer;

use self::clock::Clock;
use crate::support::server::Server;
use test_support::call;

const SECOND: Duration = Duration::from_secs(1);
const MINUTE: Duration = Duration::from_secs(60);

/// A request without a prompt, which reserves this many tokens.
fn reserving(tokens: u32) -> ModelRequest {
    let mut settings = Settings::default();
    settings.max_tokens = Some(tokens);
    ModelRequest::default().with_settings(settings)
}

fn using(tokens: u64) -> Turn {
    Turn::from_text("fine").usage(Usage::new(0, tokens))
}

/// A limit that no call waits for.
fn at_once() -> RateLimitLayer {
    RateLimitLayer::new().max_wait(Duration::ZERO)
}

fn exhausted(error: &Error) -> Exhausted {
    assert_eq!(error.kind(), ErrorKind::Overloaded, "{error}");
    *error.downcast_ref().unwrap()
}

/// The user of a run.
struct User(String);

fn user(run: &RunContext) -> Result<String> {
    Ok(run.extension::<User>()?.0.clone())
}

/// Returns what calls a model with one request a minute for each user.
fn of_users(database: &Postgres) -> Agent {
    let limit = at_once().requests(1, MINUTE).by(user);
    Agent::builder(ScriptedModel::always(using(1)))
        .model_layer(limit.shared_in(database.clone(), "users"))
        .build()
        .unwrap()
}

fn from(user: impl Into<String>) -> AgentRequest {
    AgentRequest::new("").with_extension(User(user.into()))
}

#[tokio::test]
async fn processes_share_what_is_used_and_what_comes_back() {
    if let Some(server) = Server::start("rates-shared") {
        processes_share_a_limit(server).await;
    }
}

#[tokio::test]
async fn processes_behind_a_pooler_share_what_is_used_and_what_comes_back() {
    if let Some(server) = Server::start_pooled("rates-shared-pooled") {
        processes_share_a_limit(server).await;
    }
}

async fn processes_share_a_limit(server: Server) {
    let clock = Clock::new(&server, "shared");
    let process = async || {
        let database = clock.open().await;
        let limit = at_once().requests(6, MINUTE);
        let model = limit
            .shared_in(database.clone(), "key-1")
            .layer(ScriptedModel::always(using(1)));
        (database, model)
    };
    let (_one, first) = process().await;
    let (_other, second) = process().await;
    call(first.clone(), reserving(1)).await.unwrap();
    let refused = call(second.clone(), reserving(1)).await.unwrap_err();
    let refused = exhausted(&refused);
    assert_eq!(refused.resource, LimitedResource::Requests);
    assert_eq!(refused.retry_after, SECOND * 10);
    clock.advance(SECOND * 9);
    call(second.clone(), reserving(1)).await.unwrap_err();
    clock.advance(SECOND);
    call(second, reserving(1)).await.unwrap();
    call(first, reserving(1)).await.unwrap_err();
}

#[tokio::test]
async fn headers_and_refusals_that_one_process_sees_hold_in_the_others() {
    let Some(server) = Server::start("rates-headers") else {
        return;
    };
    let clock = Clock::new(&server, "headers");
    let one = clock.open().await;
    let other = clock.open().await;
    let asking = |database: &Postgres, name: &str, turn: Turn| {
        let limit = at_once().shared_in(database.clone(), name);
        call(limit.layer(ScriptedModel::always(turn)), reserving(1))
    };

    let mut headers = Metadata::default();
    headers.rate_limits = [
        ("x-ratelimit-limit-requests".into(), "100".into()),
        ("x-ratelimit-remaining-requests".into(), "0".into()),
        ("x-ratelimit-reset-requests".into(), "100s".into()),
    ]
    .into();
    let answer = ModelResponse::from_text("fine").with_usage(Usage::new(1, 1));
    let answer = Turn::response(answer.with_metadata(headers));
    asking(&one, "headers", answer).await.unwrap();
    let busy = Error::new(ErrorKind::RateLimited, "slow down").with_retry_after(SECOND * 30);
    asking(&one, "refusals", Turn::error(busy))
        .await
        .unwrap_err();
    one.close().await;

    let error = asking(&other, "headers", using(1)).await.unwrap_err();
    assert_eq!(exhausted(&error).retry_after, SECOND);
    let error = asking(&other, "refusals", using(1)).await.unwrap_err();
    assert_eq!(exhausted(&error).resource, LimitedResource::Provider);
    assert_eq!(exhausted(&error).retry_after, SECOND * 30);
    clock.advance(SECOND * 30);
    asking(&other, "headers", using(1)).await.unwrap();
    asking(&other, "refusals", using(1)).await.unwrap();
}

#[tokio::test]
async fn a_gauge_reads_the_state_in_the_database_and_changes_nothing() {
    let Some(server) = Server::start("rates-gauge") else {
        return;
    };
    let clock = Clock::new(&server, "gauge");
    let one = clock.open().await;
    let other = clock.open().await;
    let limit = |database: &Postgres| {
        let limit = at_once().requests(1, MINUTE);
        limit.shared_in(database.clone(), "key-1")
    };
    let unused = limit(&other).read(10).await.unwrap();
    assert_eq!(unused[0].state, "free");
    assert_eq!(clock.rows(), 0);
    let model = ScriptedModel::always(using(1));
    call(limit(&one).layer(model), reserving(1)).await.unwrap();
    let used = limit(&other).read(10).await.unwrap();
    assert_eq!(used[0].state, "used up");
    assert!(!used[0].admits);
    let wait = used[0].amounts.last().unwrap();
    assert_eq!(wait.to_string(), "next call in: 60 s");
    clock.advance(MINUTE);
    let back = limit(&other).read(10).await.unwrap();
    assert_eq!(back[0].state, "free");

    other.close().await;
    let error = limit(&other).read(10).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Store);
}

#[tokio::test]
async fn every_key_that_a_client_can_send_is_a_limit_of_its_own() {
    let Some(server) = Server::start("rates-keys") else {
        return;
    };
    let clock = Clock::new(&server, "keys");
    let database = clock.open().await;
    let agent = of_users(&database);
    // With one character more, as long as a key may be.
    let long = "x".repeat(511);
    let keys = [
        String::new(),
        "ada".to_owned(),
        "Ada".to_owned(),
        "ada\0".to_owned(),
        "\0".to_owned(),
        "'; DROP TABLE tower_agent_rates; --".to_owned(),
        "\u{feff}\u{202e}ada\r\n".to_owned(),
        "ａｄａ".to_owned(),
        format!("{long}1"),
        format!("{long}2"),
    ];
    for key in &keys {
        agent.run(from(key)).await.unwrap();
    }
    for key in &keys {
        let error = agent.run(from(key)).await.unwrap_err();
        assert_eq!(exhausted(&error).resource, LimitedResource::Requests);
    }
    let error = agent.run(from(format!("{long}12"))).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::InvalidRequest);
    assert_eq!(clock.rows(), keys.len() as u32);
}

/// A model that says that it is called, and never answers.
fn silent(called: impl Fn() + Clone + Send + Sync + 'static) -> impl ModelService {
    tower::service_fn(move |_: ModelRequest| {
        called();
        std::future::pending::<Result<ModelResponse>>()
    })
}
