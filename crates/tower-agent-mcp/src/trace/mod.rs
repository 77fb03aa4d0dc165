//! Spans of requests, by OpenTelemetry's conventions for MCP, and the trace context in `_meta`.

#[cfg(feature = "opentelemetry")]
mod propagation;

use rmcp::model::{CallToolResponse, ErrorCode, MetaObject};
use tracing::field::Empty;
use tracing::{Span, info_span};

#[cfg(all(feature = "opentelemetry", feature = "server"))]
pub(crate) use self::propagation::HttpContext;

/// One request, as a span names it.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Operation<'a> {
    pub(crate) method: &'static str,
    /// A tool that exists: a name that a client or a model has made up is not one to group spans
    /// by.
    pub(crate) tool: Option<&'a str>,
    pub(crate) prompt: Option<&'a str>,
    pub(crate) resource: Option<&'a str>,
    /// The protocol version of the connection.
    pub(crate) version: Option<&'a str>,
}

/// The way to the other side.
#[derive(Clone, Debug, Default)]
pub(crate) struct Network {
    /// `pipe` or `tcp`, if it is known.
    pub(crate) transport: Option<&'static str>,
    pub(crate) address: Option<String>,
    pub(crate) port: Option<u16>,
}

impl Operation<'_> {
    /// Creates the span of a request that is sent.
    #[cfg(feature = "client")]
    pub(crate) fn client_span(&self, network: &Network) -> Span {
        self.span("client", network)
    }

    /// Creates the span of a request that is served.
    #[cfg(feature = "server")]
    pub(crate) fn server_span(&self, network: &Network) -> Span {
        self.span("server", network)
    }

    // Session ids are no attribute: whoever knows one can use its session.
    fn span(&self, kind: &str, network: &Network) -> Span {
        info_span!(
            "mcp",
            otel.name = self.name(),
            otel.kind = kind,
            otel.status_code = Empty,
            mcp.method.name = self.method,
            mcp.protocol.version = self.version,
            mcp.resource.uri = self.resource,
            gen_ai.operation.name = self.tool.map(|_| "execute_tool"),
            gen_ai.tool.name = self.tool,
            gen_ai.prompt.name = self.prompt,
            network.transport = network.transport,
            server.address = network.address.as_deref(),
            // Signed, as the conventions have it: an unsigned integer would be exported as a text.
            server.port = network.port.map(i64::from),
            error.type = Empty,
            rpc.response.status_code = Empty,
        )
    }

    fn name(&self) -> String {
        match self.tool.or(self.prompt) {
            Some(target) => format!("{} {target}", self.method),
            None => self.method.to_owned(),
        }
    }
}

/// A request in progress, whose span says so if it is dropped.
pub(crate) struct OpenSpan {
    span: Span,
    has_ended: bool,
}

impl OpenSpan {
    pub(crate) fn new(span: Span) -> Self {
        Self {
            span,
            has_ended: false,
        }
    }

    /// Records the end of a request; `error_type` is `None` if it has not failed.
    pub(crate) fn end(mut self, error_type: Option<&str>) {
        self.has_ended = true;
        if let Some(error_type) = error_type {
            record_failure(&self.span, error_type);
        }
    }

    /// Records a request that the other side has rejected.
    pub(crate) fn end_rejected(self, code: ErrorCode) {
        let code = code.0.to_string();
        self.span.record("rpc.response.status_code", &*code);
        self.end(Some(&code));
    }
}

impl Drop for OpenSpan {
    fn drop(&mut self) {
        if !self.has_ended {
            record_failure(&self.span, "cancelled");
        }
    }
}

fn record_failure(span: &Span, error_type: &str) {
    span.record("error.type", error_type);
    span.record("otel.status_code", "ERROR");
}

/// Returns the type of error of a tool's answer. A tool that fails is no error of the protocol.
pub(crate) fn tool_error(response: &CallToolResponse) -> Option<&'static str> {
    match response {
        CallToolResponse::Complete(result) if result.is_error == Some(true) => Some("tool_error"),
        _ => None,
    }
}

/// Writes the context of a span into `_meta`, if the program has a propagator.
#[cfg(feature = "client")]
pub(crate) fn inject(span: &Span, meta: &mut MetaObject) {
    #[cfg(feature = "opentelemetry")]
    propagation::inject(span, meta);
    #[cfg(not(feature = "opentelemetry"))]
    let _ = (span, meta);
}

/// Makes the sender's span, which `_meta` names, the parent of a span. The HTTP request that
/// brought the message becomes a link, or the parent if the sender has named no span.
#[cfg(feature = "server")]
pub(crate) fn adopt(span: &Span, meta: &MetaObject, http: Option<&http::Extensions>) {
    #[cfg(feature = "opentelemetry")]
    propagation::adopt(span, meta, http.and_then(|http| http.get()));
    #[cfg(not(feature = "opentelemetry"))]
    let _ = (span, meta, http);
}
