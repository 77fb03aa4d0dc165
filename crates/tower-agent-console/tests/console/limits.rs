//! Guards as they stand: each is driven to its end, and asked what the console says then.

use std::future::pending;
use std::time::Duration;

use futures::future::join_all;
use http::{Request, StatusCode};
use serde_json::{Value, json};
use tokio::sync::oneshot;
use tokio::time::advance;
use tower::service_fn;
use tower_agent::gauge::{Amount, Gauge, Reading};
use tower_agent::model::ModelService;
use tower_agent::{
    Agent, AgentRequest, BoxError, Error, ErrorKind, ModelRequest, ModelResponse, RunContext, Tool,
    Usage,
};
use tower_agent_console::{Console, Operator};
use tower_agent_middleware::adaptive_concurrency::AdaptiveConcurrencyLayer;
use tower_agent_middleware::budget::{Account, Budget, Limits};
use tower_agent_middleware::cache::CacheLayer;
use tower_agent_middleware::circuit_breaker::CircuitBreakerLayer;
use tower_agent_middleware::hedge::HedgeLayer;
use tower_agent_middleware::pool::Pool;
use tower_agent_middleware::rate_limit::RateLimitLayer;
use tower_agent_test::{ScriptedModel, Turn};
use tower_layer::Layer;

use crate::world::{User, json as ask, send, service, service_for};

const MINUTE: Duration = Duration::from_secs(60);

fn answers() -> ScriptedModel {
    ScriptedModel::always(Turn::from_text("hi").usage(Usage::new(30, 10)))
}

fn fails(error: Error) -> ScriptedModel {
    ScriptedModel::always(Turn::error(error))
}

fn overloaded() -> Error {
    Error::new(ErrorKind::Overloaded, "busy")
}

fn agent(model: impl ModelService) -> Agent {
    Agent::builder(model).build().unwrap()
}

fn user(run: &RunContext) -> tower_agent::Result<String> {
    Ok(run.extension::<User>()?.0.to_owned())
}

fn of(user: &'static str) -> AgentRequest {
    AgentRequest::new("?").with_extension(User(user))
}

/// A console with one guard, and what it says of it.
struct Shown(Console);

impl Shown {
    fn new(gauge: impl Gauge) -> Self {
        let console = Console::new();
        console.show("guard", gauge);
        Self(console)
    }

    async fn readings(&self) -> Vec<Value> {
        let gauges = ask(&service(&self.0), "/api/limits").await;
        assert_eq!(gauges[0]["name"], "guard");
        assert_eq!(gauges[0]["is_away"], false);
        gauges[0]["readings"].as_array().unwrap().clone()
    }

    /// The only reading.
    async fn reading(&self) -> Value {
        let readings = self.readings().await;
        assert_eq!(readings.len(), 1, "{readings:?}");
        readings[0].clone()
    }

    async fn is(&self, state: &str, admits: bool) {
        let reading = self.reading().await;
        assert_eq!(reading["state"], state, "{reading}");
        assert_eq!(reading["admits"], admits, "{reading}");
    }

    async fn has(&self, name: &str, value: Value, limit: Value) {
        let reading = self.reading().await;
        assert_amount(&reading, name, &value, &limit);
    }
}

fn amount<'a>(reading: &'a Value, name: &str) -> &'a Value {
    let mut amounts = reading["amounts"].as_array().unwrap().iter();
    let amount = amounts.find(|amount| amount["name"] == name);
    amount.unwrap_or_else(|| panic!("no {name} in {reading}"))
}

fn assert_amount(reading: &Value, name: &str, value: &Value, limit: &Value) {
    let amount = amount(reading, name);
    let is = |field: &str, wanted: &Value| amount[field].as_f64() == wanted.as_f64();
    assert!(is("value", value) && is("limit", limit), "{amount}");
}

/// A model whose calls run until they are told to end.
fn held(calls: usize) -> (impl ModelService, Vec<oneshot::Sender<()>>) {
    let (ends, waits): (Vec<_>, Vec<_>) = (0..calls).map(|_| oneshot::channel::<()>()).unzip();
    let waits = std::sync::Arc::new(std::sync::Mutex::new(waits));
    let model = service_fn(move |_: ModelRequest| {
        let wait = waits.lock().unwrap().pop();
        async move {
            if let Some(wait) = wait {
                drop(wait.await);
            }
            Ok::<_, BoxError>(ModelResponse::from_text("hi"))
        }
    });
    (model, ends)
}

#[tokio::test(start_paused = true)]
async fn a_budget_is_within_its_limits_until_it_is_used_up() {
    let account = Account::new(Limits::new().model_calls(2).tokens(10_000));
    let shown = Shown::new(account.clone());
    shown.is("within its limits", true).await;
    shown.has("model calls used", json!(0), json!(2)).await;
    let agent = Agent::builder(answers())
        .global_callbacks(Budget::of(account))
        .build()
        .unwrap();
    agent.run("?").await.unwrap();
    shown.is("within its limits", true).await;
    shown.has("tokens used", json!(40), json!(10_000)).await;
    agent.run("?").await.unwrap();
    shown.is("used up", false).await;
    shown.has("model calls used", json!(2), json!(2)).await;
    agent.run("?").await.unwrap_err();
    shown.has("model calls used", json!(2), json!(2)).await;
    assert_eq!(shown.reading().await["kind"], "budget");
}

#[tokio::test(start_paused = true)]
async fn what_running_calls_have_reserved_counts() {
    let account = Account::new(Limits::new().model_calls(1));
    let shown = Shown::new(account.clone());
    let (model, ends) = held(1);
    let agent = Agent::builder(model)
        .global_callbacks(Budget::of(account))
        .build()
        .unwrap();
    let mut run = Box::pin(agent.run("?"));
    assert!(futures::poll!(&mut run).is_pending());
    shown.is("used up", false).await;
    shown.has("model calls used", json!(0), json!(1)).await;
    assert_eq!(
        amount(&shown.reading().await, "model calls reserved")["value"],
        1.0
    );
    drop(ends);
    run.await.unwrap();
    shown.has("model calls used", json!(1), json!(1)).await;
}

#[tokio::test(start_paused = true)]
async fn a_budget_in_which_no_usual_call_has_room_says_so() {
    let shown = Shown::new(Account::new(Limits::new().tokens(1_000).reservation(1_001)));
    shown.is("too little left for a usual call", false).await;
    let shown = Shown::new(Account::new(Limits::new().tokens(1_000).reservation(1_000)));
    shown.is("within its limits", true).await;
}

#[tokio::test(start_paused = true)]
async fn a_budget_without_limits_says_what_was_used() {
    let shown = Shown::new(Account::new(Limits::new()));
    shown.is("within its limits", true).await;
    shown.has("tokens used", json!(0), json!(null)).await;
}

#[tokio::test(start_paused = true)]
async fn a_rate_limit_is_used_up_and_comes_back() {
    let layer = RateLimitLayer::new()
        .requests(60, MINUTE)
        .max_wait(Duration::ZERO);
    let shown = Shown::new(layer.clone());
    shown.is("free", true).await;
    shown.has("requests left at once", json!(2), json!(2)).await;
    shown
        .has("requests allowed in 60s", json!(60), json!(null))
        .await;
    let agent = agent(layer.layer(answers()));
    agent.run("?").await.unwrap();
    agent.run("?").await.unwrap();
    shown.is("used up", false).await;
    shown.has("requests left at once", json!(0), json!(2)).await;
    let wait = amount(&shown.reading().await, "next call in").clone();
    assert!(
        (0.0..=1.1).contains(&wait["value"].as_f64().unwrap()),
        "{wait}"
    );
    assert_eq!(wait["unit"], "s");
    agent.run("?").await.unwrap_err();
    advance(MINUTE).await;
    shown.is("free", true).await;
}

#[tokio::test(start_paused = true)]
async fn a_provider_closes_a_rate_limit_and_calls_wait_for_it() {
    let layer = RateLimitLayer::new().max_wait(Duration::from_secs(100));
    let shown = Shown::new(layer.clone());
    let refused = Error::new(ErrorKind::RateLimited, "too many").with_retry_after(MINUTE);
    let agent = agent(layer.layer(fails(refused)));
    agent.run("?").await.unwrap_err();
    shown.is("closed by the provider", false).await;
    shown.has("next call in", json!(60), json!(null)).await;
    let mut waiting = Box::pin(agent.run("?"));
    assert!(futures::poll!(&mut waiting).is_pending());
    shown.has("calls waiting", json!(1), json!(null)).await;
    drop(waiting);
    let reading = shown.reading().await.to_string();
    assert!(!reading.contains("waiting"), "{reading}");
}

#[tokio::test(start_paused = true)]
async fn a_limit_of_each_user_names_them_to_those_who_see_users() {
    let layer = RateLimitLayer::new()
        .requests(10, MINUTE)
        .max_wait(Duration::ZERO)
        .by(user);
    let console = Console::new().user_id(crate::world::user_of);
    console.show("each customer", layer.clone());
    let agent = Agent::builder(answers())
        .model_layer(layer)
        .global_callbacks(console.watch())
        .build()
        .unwrap();
    let sees = service(&console);
    let shown = ask(&sees, "/api/limits").await;
    assert_eq!(shown[0]["readings"], json!([]), "nobody has asked");

    agent.run(of("Ada")).await.unwrap();
    agent.run(of("bob")).await.unwrap();
    agent.run(of("Ada")).await.unwrap_err();
    let shown = ask(&sees, "/api/limits").await;
    let keys = |shown: &Value| {
        let readings = shown[0]["readings"].as_array().unwrap().iter();
        let keys = readings.map(|reading| reading["of"].as_str().unwrap().to_owned());
        keys.collect::<Vec<_>>()
    };
    assert_eq!(keys(&shown), ["Ada", "bob"], "the last one first");

    let reader = service_for(&console, || Operator::new("rea"));
    let hashed = ask(&reader, "/api/limits").await;
    let text = hashed.to_string();
    assert!(!text.contains("Ada") && !text.contains("bob"), "{text}");
    // The same as at the user's runs.
    let runs = crate::world::runs(&reader).await;
    assert_eq!(json!(keys(&hashed)[0]), runs[0]["user"]);
}

#[tokio::test(start_paused = true)]
async fn a_circuit_is_closed_and_open_and_tested() {
    let layer = CircuitBreakerLayer::new().failures(2).pause(MINUTE);
    let shown = Shown::new(layer.clone());
    shown.is("closed", true).await;
    shown.has("failures in a row", json!(0), json!(2)).await;
    let model = ScriptedModel::new([
        Turn::error(overloaded()),
        Turn::error(overloaded()),
        Turn::from_text("hi"),
    ]);
    let agent = agent(layer.layer(model));
    agent.run("?").await.unwrap_err();
    shown.is("closed", true).await;
    shown.has("failures in a row", json!(1), json!(2)).await;
    agent.run("?").await.unwrap_err();
    shown.is("open", false).await;
    shown.has("next call in", json!(60), json!(null)).await;
    advance(MINUTE).await;
    shown.is("open, and the next call tests it", true).await;
    agent.run("?").await.unwrap();
    shown.is("closed", true).await;
}

#[tokio::test(start_paused = true)]
async fn each_tool_and_each_user_has_a_circuit() {
    let layer = CircuitBreakerLayer::new()
        .failures(1)
        .failure_if(|error| error.kind() == ErrorKind::Tool)
        .by(user);
    let shown = Shown::new(layer.clone());
    let search = Tool::function("search", "Searches.", |_: Value| {
        Err::<String, _>(Error::new(ErrorKind::Tool, "down"))
    });
    let model = ScriptedModel::new([Turn::tool("search", json!({})), Turn::from_text("hi")]);
    let agent = Agent::builder(model)
        .tool(search.layer(layer))
        .build()
        .unwrap();
    agent.run(of("Ada")).await.unwrap();
    let reading = shown.reading().await;
    assert_eq!(reading["name"], "search");
    assert_eq!(reading["of"], "Ada");
    assert_eq!(reading["state"], "open");
}

#[tokio::test(start_paused = true)]
async fn an_adaptive_limit_is_full_and_free_again() {
    let layer = AdaptiveConcurrencyLayer::new().initial(2);
    let shown = Shown::new(layer.clone());
    shown.is("free", true).await;
    let (model, ends) = held(2);
    let agent = agent(layer.layer(model));
    let mut runs: Vec<_> = (0..2).map(|_| Box::pin(agent.run("?"))).collect();
    for run in &mut runs {
        assert!(futures::poll!(run).is_pending());
    }
    shown.is("full", false).await;
    shown.has("calls running", json!(2), json!(2)).await;
    drop(ends);
    for run in join_all(runs).await {
        run.unwrap();
    }
    let reading = shown.reading().await;
    assert_eq!(reading["admits"], true);
    assert_eq!(amount(&reading, "calls running")["value"], 0.0);
}

#[tokio::test(start_paused = true)]
async fn a_pool_says_which_endpoint_is_taken_out() {
    let pool = Pool::new([("down", fails(overloaded())), ("up", answers())]).failures(1);
    let shown = Shown::new(pool.clone());
    let agent = agent(pool);
    // Whichever is chosen first, after some calls the one that fails was.
    while agent.run("?").await.is_ok() {}
    let readings = shown.readings().await;
    assert_eq!(readings[0]["name"], "down");
    assert_eq!(readings[0]["state"], "open");
    assert_eq!(readings[0]["admits"], false);
    assert_eq!(readings[1]["name"], "up");
    assert_eq!(readings[1]["state"], "closed");
    assert_eq!(amount(&readings[1], "calls running")["value"], 0.0);
}

#[tokio::test(start_paused = true)]
async fn a_hedge_and_a_cache_hold_nothing_back_and_have_numbers() {
    let shown = Shown::new(HedgeLayer::new(Duration::from_secs(3)));
    shown.is("in use", true).await;
    shown
        .has("second attempt after", json!(3), json!(null))
        .await;

    let layer = CacheLayer::<ModelRequest>::new(user).entries(10);
    let shown = Shown::new(layer.clone());
    shown.has("responses kept", json!(0), json!(10)).await;
    let agent = agent(layer.layer(answers()));
    agent.run(of("Ada")).await.unwrap();
    agent.run(of("Ada")).await.unwrap();
    shown.has("responses kept", json!(1), json!(10)).await;
    shown.has("calls running", json!(0), json!(null)).await;
    assert!(!shown.reading().await.to_string().contains("Ada"));
}

#[tokio::test(start_paused = true)]
async fn one_that_fails_hangs_or_panics_hides_no_other() {
    let console = Console::new();
    let down = |_| async { Err(Error::new(ErrorKind::Store, "canary-of-the-store")) };
    console.show("down", down);
    console.show("hangs", |_| pending());
    console.show("panics", |_| async { panic!("canary-of-the-panic") });
    console.show("works", |_| async {
        Ok(vec![Reading::new("mine", "fine", true)])
    });
    let shown = ask(&service(&console), "/api/limits").await;
    let away: Vec<_> = (0..4).map(|at| shown[at]["is_away"] == true).collect();
    assert_eq!(away, [true, true, true, false], "{shown}");
    assert_eq!(shown[3]["readings"][0]["state"], "fine");
    assert!(!shown.to_string().contains("canary"), "{shown}");
}

#[tokio::test]
async fn of_many_keys_the_first_fifty_are_shown_and_it_says_so() {
    let console = Console::new();
    let many = |most: usize| async move {
        let readings = (0..1_000).map(|key| {
            let used = Amount::new("used", 1.0).unit("GB").limit(f64::INFINITY);
            Reading::new("mine", "fine", true)
                .of(format!("user-{key}"))
                .with(used)
        });
        Ok(readings.take(most).collect())
    };
    console.show("many", many);
    let shown = ask(&service(&console), "/api/limits").await;
    assert_eq!(shown[0]["readings"].as_array().unwrap().len(), 50);
    assert_eq!(shown[0]["has_more"], true);

    // One of the same name takes its place.
    console.show("many", Account::new(Limits::new()));
    let shown = ask(&service(&console), "/api/limits").await;
    assert_eq!(shown.as_array().unwrap().len(), 1);
    assert_eq!(shown[0]["has_more"], false);
}

#[tokio::test]
async fn nothing_of_a_guard_can_be_written() {
    let shown = Shown::new(Account::new(Limits::new().model_calls(1)));
    let request = Request::post("/api/limits").body("{}".to_owned()).unwrap();
    let response = send(&service(&shown.0), request).await;
    assert_eq!(response.status(), StatusCode::METHOD_NOT_ALLOWED);
}
