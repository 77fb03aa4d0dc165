use rmcp::ServiceError;
use rmcp::model::{ClientRequest, ErrorCode, GetMeta, ServerResult};
use tower_agent::{Error, ErrorKind, Result};
use tracing::Instrument;

use super::config::Config;
use super::connection::Connection;
use super::error;
use crate::trace::{self, OpenSpan, Operation};

/// Sends a request that is no call of a tool, in a span of its own.
pub(super) async fn request(
    connection: &Connection,
    config: &Config,
    operation: Operation<'_>,
    mut request: ClientRequest,
) -> Result<ServerResult> {
    let span = operation.client_span(&config.network);
    let open = OpenSpan::new(span.clone());
    let meta = request.get_meta_mut();
    trace::inject(&span, meta);
    config.set_log_level(meta);
    let answer = connection.peer().send_request(request);
    let answered = config.logins.timeout(config.call_timeout, answer);
    let answered = answered.instrument(span).await;
    let server = &config.server;
    let error = match answered {
        Ok(Ok(ServerResult::InputRequiredResult(_))) => {
            // Only a call of a tool is a part of a run, which can be interrupted.
            let message =
                format!("MCP server `{server}` asks for input outside of a call of a tool");
            Error::new(ErrorKind::Protocol, message).with_retryable(false)
        }
        Ok(Ok(result)) => {
            connection.note_answer();
            open.end(None);
            return Ok(result);
        }
        Ok(Err(ServiceError::McpError(rejection))) => {
            open.end_rejected(rejection.code);
            let kind = match rejection.code {
                ErrorCode::RESOURCE_NOT_FOUND => ErrorKind::NotFound,
                ErrorCode::INVALID_PARAMS => ErrorKind::InvalidArguments,
                _ => ErrorKind::Protocol,
            };
            return Err(error::rejected_as(kind, server, &rejection));
        }
        Ok(Err(failed)) => error::request(server, failed),
        Err(_) => {
            let limit = config.call_timeout;
            let method = operation.method;
            let message =
                format!("MCP server `{server}` did not answer `{method}` within {limit:?}");
            Error::new(ErrorKind::Timeout, message)
        }
    };
    open.end(Some(error.kind().code()));
    Err(error)
}
