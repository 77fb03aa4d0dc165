use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use http::request::Parts;
use rmcp::ServerHandler;
use rmcp::model::{
    CacheScope, CallToolRequestParams, CallToolResponse, CallToolResult, ContentBlock, ErrorData,
    Implementation, ListToolsResult, NumberOrString, PaginatedRequestParams, ProgressToken,
    ServerCapabilities, ServerConfig, ToolAnnotations,
};
use rmcp::service::{RequestContext, RoleServer};
use serde_json::Value;
use tokio::time::timeout;
use tower_agent::Effect;
use tower_agent::tool::ToolDeclaration;
use tracing::{Instrument, Span};

use super::bounds;
use super::caller::CallToken;
use super::failure::FailureMessage;
use super::http_settings::HttpSettings;
use super::seal::Seal;
use super::served::Served;
use super::served_call::ServedCall;
use crate::trace::{self, Network, OpenSpan, Operation};

/// The time that a client may cache the list of tools, in milliseconds: it does not change.
const LIST_VALID: u64 = 60 * 60 * 1000;

/// The configuration of a server, and the seal that its clones share.
#[derive(Debug)]
pub(super) struct ServerInner {
    pub(super) name: String,
    pub(super) version: String,
    pub(super) instructions: Option<String>,
    pub(super) served: BTreeMap<Arc<str>, Served>,
    pub(super) seal: Seal,
    pub(super) failure_message: FailureMessage,
    /// Of one call.
    pub(super) run_time: Duration,
    pub(super) http: HttpSettings,
}

/// Answers a client's requests.
#[derive(Clone, Debug)]
pub(super) struct McpServerHandler(pub(super) Arc<ServerInner>);

impl ServerHandler for McpServerHandler {
    fn get_info(&self) -> ServerConfig {
        let capabilities = ServerCapabilities::builder().enable_tools().build();
        let server = Implementation::new(self.0.name.clone(), self.0.version.clone());
        let mut config = ServerConfig::new(capabilities).with_server_info(server);
        config.instructions = self.0.instructions.clone();
        config
    }

    async fn list_tools(
        &self,
        _: Option<PaginatedRequestParams>,
        _: RequestContext<RoleServer>,
    ) -> Result<ListToolsResult, ErrorData> {
        let tools = self
            .0
            .served
            .values()
            .map(|served| tool(served.declaration()));
        let mut result = ListToolsResult::with_all_items(tools.collect());
        result.ttl_ms = Some(LIST_VALID);
        // Shared caches may keep it, since the list is the same for every client.
        result.cache_scope = Some(CacheScope::Public);
        Ok(result)
    }

    fn get_tool(&self, name: &str) -> Option<rmcp::model::Tool> {
        self.0
            .served
            .get(name)
            .map(|served| tool(served.declaration()))
    }

    async fn call_tool(
        &self,
        params: CallToolRequestParams,
        context: RequestContext<RoleServer>,
    ) -> Result<CallToolResponse, ErrorData> {
        let span = self.span(&params, &context);
        let open = OpenSpan::new(span.clone());
        let answered = self.answer(params, context).instrument(span).await;
        match &answered {
            Ok(response) => open.end(trace::tool_error(response)),
            Err(rejection) => open.end_rejected(rejection.code),
        }
        answered
    }
}

impl McpServerHandler {
    /// Returns the span of a call. Its parent is the span of the client.
    fn span(&self, params: &CallToolRequestParams, context: &RequestContext<RoleServer>) -> Span {
        let served = self.0.served.get(&*params.name);
        let version = context.protocol_version();
        let http = context.extensions.get::<Parts>();
        let operation = Operation {
            method: "tools/call",
            tool: served.map(|served| served.declaration().name()),
            version: version.as_ref().map(|version| version.as_str()),
            ..Operation::default()
        };
        let span = operation.server_span(&Network {
            transport: http.map(|_| "tcp"),
            ..Network::default()
        });
        trace::adopt(&span, &context.meta, http.map(|http| &http.extensions));
        span
    }

    async fn answer(
        &self,
        params: CallToolRequestParams,
        context: RequestContext<RoleServer>,
    ) -> Result<CallToolResponse, ErrorData> {
        let Some(served) = self.0.served.get(&*params.name) else {
            return Err(ErrorData::invalid_params(
                format!("unknown tool `{}`", params.name),
                None,
            ));
        };
        let cancelled = context.ct.clone();
        let http = context.extensions.get::<Parts>();
        let response = http
            .and_then(|http| http.extensions.get::<CallToken>())
            .cloned();
        // Without HTTP, the end of the connection cancels the request.
        let gone = async {
            match &response {
                Some(CallToken(token)) => token.cancelled().await,
                None => std::future::pending().await,
            }
        };
        check_token(&context)?;
        let call = ServedCall::new(
            &self.0.seal,
            &self.0.failure_message,
            served,
            params,
            &context,
        )?;
        let call = timeout(self.0.run_time, call.run());
        tokio::select! {
            // First: a cancelled call must not go on for as long as it is ready.
            biased;
            () = cancelled.cancelled() => Err(ErrorData::internal_error("the call was cancelled", None)),
            () = gone => Err(ErrorData::internal_error("the client is gone", None)),
            ended = call => ended.unwrap_or_else(|_| Ok(too_late(self.0.run_time))),
        }
    }
}

/// Fails for a token of progress that would make every notification long.
fn check_token(context: &RequestContext<RoleServer>) -> Result<(), ErrorData> {
    let token = context.meta.get_progress_token();
    let is_long = token.is_some_and(|ProgressToken(token)| match token {
        NumberOrString::String(token) => token.len() > bounds::PROGRESS_TOKEN,
        NumberOrString::Number(_) => false,
    });
    if is_long {
        let most = bounds::PROGRESS_TOKEN;
        let why = format!("the progress token is longer than {most} bytes");
        return Err(ErrorData::invalid_params(why, None));
    }
    Ok(())
}

fn too_late(time: Duration) -> CallToolResponse {
    let why = format!("the call took longer than {time:?}, and was stopped");
    CallToolResult::error(vec![ContentBlock::text(why)]).into()
}

fn tool(declaration: &ToolDeclaration) -> rmcp::model::Tool {
    let schema = match declaration.parameters() {
        Value::Object(schema) => schema.clone(),
        // A tool without parameters; MCP requires an object.
        _ => Default::default(),
    };
    let hints = ToolAnnotations::new().read_only(declaration.effect() == Effect::Pure);
    let hints = hints.idempotent(declaration.effect() != Effect::Mutating);
    let name = declaration.name().to_owned();
    let description = declaration.description().to_owned();
    rmcp::model::Tool::new(name, description, schema).with_annotations(hints)
}
