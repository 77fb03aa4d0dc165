//! One server of the fleet: an agent in all its layers, over AG-UI.

use std::time::Duration;

use bytes::Bytes;
use http::request::Parts;
use http::{Request, Response, StatusCode};
use http_body_util::combinators::UnsyncBoxBody;
use http_body_util::{BodyExt, Full};
use hyper::body::Incoming;
use serde_json::{Value, json};
use tower::{ServiceBuilder, ServiceExt, service_fn};
use tower_agent::{Agent, AgentRequest, BoxError, Effect, Resolution, Tool};
use tower_agent_agui::AgUi;
use tower_agent_agui::conversations::Roles;
use tower_agent_durable::journal::{Durable, RunKey};
use tower_agent_middleware::approval::Approval;
use tower_agent_middleware::budget::{Budget, Limits};
use tower_agent_middleware::circuit_breaker::CircuitBreakerLayer;
use tower_agent_middleware::hedge::HedgeLayer;
use tower_agent_middleware::pool::Pool;
use tower_agent_middleware::rate_limit::RateLimitLayer;
use tower_agent_middleware::retry::CallRetryLayer;
use tower_agent_middleware::timeout::CallTimeoutLayer;
use tower_agent_providers::openai::OpenAi;

use crate::bank;
use crate::database::Database;
use crate::wire::{self, Host};
use crate::world::{BURST, CALLS, LIMIT, PERIOD, Part, World};

pub(crate) const PROVIDERS: [Host; 3] = ["provider-1", "provider-2", "provider-3"];

/// The headers of who sends a request.
pub(crate) const USER: &str = "x-user";
pub(crate) const ROLE: &str = "x-role";

/// The path of runs without a page.
pub(crate) const JOBS: &str = "/jobs";

pub(crate) async fn run(world: World, database: Database) -> Result<(), BoxError> {
    let header = |parts: &Parts, name: &str| {
        let value = parts.headers.get(name)?.to_str().ok()?;
        Some(value.to_owned())
    };
    let worker = agent(&world, &database, false)?;
    let clerk = agent(&world, &database, world.has(Part::Approval))?;
    let pages = AgUi::builder(clerk)
        .name("fleet")
        .principal(move |parts| header(parts, USER))
        .roles(move |parts| Roles::new(header(parts, ROLE)))
        .threads(database.clone())
        .build();
    let service = service_fn(move |request: Request<Incoming>| {
        let worker = worker.clone();
        let database = database.clone();
        let pages = pages.clone();
        async move {
            if request.uri().path() == JOBS {
                return Ok(job(worker, &database, request).await);
            }
            let response = pages.oneshot(request).await?;
            Ok::<_, BoxError>(response.map(|body| body.map_err(BoxError::from).boxed_unsync()))
        }
    });
    wire::serve(service).await
}

/// Makes a run that is known by its order, or goes on with it. Who sends it has approved the order.
async fn job(
    agent: Agent,
    database: &Database,
    request: Request<Incoming>,
) -> Response<UnsyncBoxBody<Bytes, BoxError>> {
    let made = async {
        let body = request.into_body().collect().await?.to_bytes();
        let job: Value = serde_json::from_slice(&body)?;
        let order = job["order"].as_str().ok_or("no order")?;
        let answers: Vec<Resolution> = serde_json::from_value(job["answers"].clone())?;
        let key = RunKey::new(order);
        let next = match database.next_request(&key).await? {
            Some(next) => next.with_resolutions(answers),
            None => AgentRequest::new(format!("Pay {order}")),
        };
        let response = agent.run(key.request(next)).await?;
        let questions = response.interrupts();
        Ok::<_, BoxError>(json!({ "questions": questions, "text": response.text() }))
    };
    let (status, body) = match made.await {
        Ok(answer) => (StatusCode::OK, answer),
        Err(error) => (StatusCode::SERVICE_UNAVAILABLE, json!(error.to_string())),
    };
    let body = Full::new(Bytes::from(body.to_string()));
    let body = body.map_err(|never| match never {}).boxed_unsync();
    let mut response = Response::new(body);
    *response.status_mut() = status;
    response
}

/// Builds an agent, whose payments a person may have to approve.
fn agent(world: &World, database: &Database, asks: bool) -> Result<Agent, BoxError> {
    let mut providers = Vec::new();
    for host in PROVIDERS {
        let http = service_fn(wire::send);
        let model = OpenAi::builder()
            .base_url(format!("http://{host}/v1"))
            .api_key("none")
            .model("mock")
            .build_with(http)?;
        let limit = RateLimitLayer::new()
            .requests(LIMIT, PERIOD)
            .burst(BURST)
            .max_wait(Duration::from_secs(60))
            .shared_in(database.clone(), host);
        let timeouts = CallTimeoutLayer::new(Duration::from_secs(60)).idle(Duration::from_secs(10));
        let endpoint = ServiceBuilder::new()
            .layer(CircuitBreakerLayer::new().pause(Duration::from_secs(5)))
            .option_layer(world.has(Part::RateLimit).then_some(limit))
            .option_layer(world.has(Part::Timeouts).then_some(timeouts))
            .service(model);
        providers.push((host, endpoint));
    }
    let model = ServiceBuilder::new()
        .layer(CallRetryLayer::new().max_attempts(6).restart_streams(true))
        .layer(HedgeLayer::new(Duration::from_secs(2)))
        .service(Pool::new(providers));
    let look = Tool::function("look", "Looks.", |_: Value| "nothing").effect(Effect::Pure);
    let mut agent = Agent::builder(model)
        .name("clerk")
        .tool(look)
        .tool(Tool::function("pay", "Pays an order.", pay).effect(Effect::Mutating));
    if asks {
        agent = agent.on_tool(Approval::of_tools(["pay"]));
    }
    if world.has(Part::Budget) {
        agent = agent.global_callbacks(Budget::new(Limits::new().model_calls(CALLS)));
    }
    if world.has(Part::Journal) {
        agent = agent.global_callbacks(Durable::new(database.clone()));
    }
    Ok(agent.build()?)
}

async fn pay(arguments: Value) -> Result<Value, BoxError> {
    let order = arguments["order"].as_str().ok_or("no order")?;
    bank::tell_to_pay(order).await?;
    Ok(json!("paid"))
}
