//! Routes for the page and the agent.

use axum::Router;
use axum::http::HeaderValue;
use axum::http::header::X_FRAME_OPTIONS;
use axum::response::Html;
use axum::routing::get;
use tower_agent::Agent;
use tower_agent::agent::BuildError;
use tower_agent::model::ModelService;
use tower_agent_agui::AgUi;
use tower_agent_middleware::approval::Approval;
use tower_http::set_header::SetResponseHeaderLayer;
use tower_http::validate_request::ValidateRequestHeaderLayer;

use crate::callbacks::{Log, Stopwatch, TokenCount, forbid};
use crate::local::is_local;
use crate::notes::tell_callbacks;
use crate::session::{begin, delete_file, keep_results};
use crate::tools::tools;

/// Returns the router for this loopback port.
///
/// Pages of other origins cannot reach the agent through a visitor's browser: there is no CORS
/// layer, requests for another host or from another page are rejected, and the page cannot be
/// framed, which prevents clickjacking of an approval.
pub(crate) fn app(agent: AgUi, port: u16) -> Router {
    Router::new()
        .route("/", get(Html(include_str!("page.html"))))
        .route_service("/agent", agent)
        .layer(ValidateRequestHeaderLayer::custom(is_local(port)))
        .layer(SetResponseHeaderLayer::overriding(
            X_FRAME_OPTIONS,
            HeaderValue::from_static("DENY"),
        ))
}

/// Returns the agent with any model, as a server.
pub(crate) fn agent(model: impl ModelService) -> Result<AgUi, BuildError> {
    let agent = Agent::builder(model)
        .name("assistant")
        .instructions("Do all arithmetic with the tools. Answer in plain text.")
        .tools(tools())
        .tool(delete_file())
        .max_iterations(100)
        .on_agent(Log)
        .on_agent(begin())
        .on_model(Log)
        .on_model(TokenCount::default())
        .on_tool(Log)
        .on_tool(Stopwatch)
        .on_tool(forbid("delete_all_records"))
        .on_tool(Approval::of_tools(["delete_file"]).allow_edits())
        .on_tool(keep_results())
        .build()?;
    Ok(AgUi::builder(agent).on_translate(tell_callbacks()).build())
}
