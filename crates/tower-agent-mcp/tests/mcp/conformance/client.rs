//! The client that the suite runs: an agent that calls every tool it is offered, and accepts every
//! question with the values that the server proposes.

use http_body_util::BodyExt;
use serde_json::{Map, Value, json};
use tower::ServiceExt;
use tower_agent::message::ToolCall;
use tower_agent::tool::ToolDeclaration;
use tower_agent::{
    Agent, AgentRequest, BoxError, Interrupt, ModelRequest, ModelResponse, Resolution,
};
use tower_agent_mcp::client::oauth::OAuth;
use tower_agent_mcp::client::{Lifecycle, McpClient};
use tower_agent_providers::{HttpClient, RequestBody};
use tower_agent_test::{ScriptedModel, Turn};

/// Runs against the server at `url`. The suite says the rest in the environment.
pub(super) async fn run(url: &str) -> Result<(), BoxError> {
    let lifecycle = match std::env::var("MCP_CONFORMANCE_PROTOCOL_VERSION")?.as_str() {
        "2026-07-28" => Lifecycle::Discover,
        _ => Lifecycle::Initialize,
    };
    let model = ScriptedModel::new([
        Turn::function(|request| Ok(ModelResponse::from_tool_calls(calls(request)))),
        Turn::from_text("Done."),
    ]);

    let mut builder = McpClient::http(url, HttpClient::new()?).lifecycle(lifecycle);
    if std::env::var("MCP_CONFORMANCE_SCENARIO")?.starts_with("auth/") {
        builder = builder.oauth(oauth(url).await?);
    }
    let client = builder.connect().await?;
    let tools = client.tools().await;
    if !tools.is_empty() {
        let agent = Agent::builder(model).tools(tools).build()?;
        let mut response = agent.run("Call every tool.").await?;
        while !response.interrupts().is_empty() {
            let answers: Vec<_> = response.interrupts().iter().map(answer).collect();
            let request = AgentRequest::resume(response.checkpoint()).with_resolutions(answers);
            response = agent.run(request).await?;
        }
    }
    client.close().await;
    Ok(())
}

/// The suite's own description of a client.
const METADATA: &str = "https://conformance-test.local/client-metadata.json";

/// Logs in as the suite's user, or with the secret that it gives.
async fn oauth(url: &str) -> Result<OAuth, BoxError> {
    let context = context();
    let known = |name: &str| context[name].as_str().map(str::to_owned);
    let scenario = std::env::var("MCP_CONFORMANCE_SCENARIO").unwrap_or_default();
    let (id, secret) = (known("client_id"), known("client_secret"));
    if scenario.contains("client-credentials") {
        let issuer = issuer_of(url).await?;
        return Ok(OAuth::client_credentials(
            issuer,
            id.unwrap(),
            secret.unwrap(),
        ));
    }
    let oauth = OAuth::authorization_code("http://localhost:3000/callback", log_in)
        .client_metadata_url(METADATA);
    Ok(match (id, secret) {
        (Some(id), Some(secret)) => {
            let issuer = known("issuer").unwrap_or(issuer_of(url).await?);
            oauth.client_with_secret(issuer, id, secret)
        }
        (Some(id), None) => oauth.client(id),
        (None, _) => oauth,
    })
}

/// Returns the authorization server of the suite, which does not say whose its secret is.
async fn issuer_of(url: &str) -> Result<String, BoxError> {
    let path = "/.well-known/oauth-protected-resource/mcp";
    let address = url.replace("/mcp", path);
    let request = http::Request::get(address).body(RequestBody::default())?;
    let response = HttpClient::new()?.oneshot(request).await?;
    let body = response.into_body().collect().await?.to_bytes();
    let resource: Value = serde_json::from_slice(&body)?;
    let issuer = resource["authorization_servers"][0].as_str();
    Ok(issuer.ok_or("no authorization server")?.to_owned())
}

/// The suite's login page sends its user back at once.
async fn log_in(page: String) -> Result<String, BoxError> {
    let request = http::Request::get(page).body(RequestBody::default())?;
    let response = HttpClient::new()?.oneshot(request).await?;
    let back = response.headers().get(http::header::LOCATION);
    Ok(back.ok_or("no redirect")?.to_str()?.to_owned())
}

fn context() -> Value {
    let context = std::env::var("MCP_CONFORMANCE_CONTEXT").unwrap_or_default();
    serde_json::from_str(&context).unwrap_or_default()
}

/// The calls that the suite asks for, or else one of every tool.
fn calls(request: &ModelRequest) -> Vec<ToolCall> {
    let context = context();
    let call = |(n, (name, arguments)): (usize, (&str, Value))| {
        ToolCall::new(format!("call_{n}"), name, arguments)
    };
    match context["toolCalls"].as_array() {
        Some(calls) => {
            let calls = calls.iter();
            let calls =
                calls.map(|call| (call["name"].as_str().unwrap(), call["arguments"].clone()));
            calls.enumerate().map(call).collect()
        }
        None => {
            let tools = request.tools().iter();
            let calls = tools.map(|tool| (tool.name(), arguments(tool, request)));
            calls.enumerate().map(call).collect()
        }
    }
}

/// A value for every parameter: the schema of the first tool where one is asked for.
fn arguments(tool: &ToolDeclaration, request: &ModelRequest) -> Value {
    let fields = tool.parameters()["properties"]
        .as_object()
        .into_iter()
        .flatten();
    let value = |schema: &Value| match schema["type"].as_str() {
        Some("object") => request.tools()[0].parameters().clone(),
        Some("number" | "integer") => json!(1),
        Some("boolean") => json!(true),
        _ => json!("text"),
    };
    fields
        .map(|(name, schema)| (name.clone(), value(schema)))
        .collect::<Map<_, _>>()
        .into()
}

/// Accepts, with the values that the form proposes.
fn answer(interrupt: &Interrupt) -> Resolution {
    let fields = interrupt.response_schema["properties"]
        .as_object()
        .into_iter()
        .flatten();
    let fields =
        fields.filter_map(|(name, schema)| Some((name.clone(), schema.get("default")?.clone())));
    Resolution::resolved(&interrupt.id, fields.collect::<Map<_, _>>())
}
