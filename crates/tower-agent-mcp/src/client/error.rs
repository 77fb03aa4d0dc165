//! Converts the failures of rmcp.

use std::error::Error as StdError;
use std::io;

use rmcp::ServiceError;
use rmcp::model::{ErrorCode, ErrorData, ProtocolVersion};
use rmcp::service::ClientInitializeError;
use rmcp::transport::DynamicTransportError;
use rmcp::transport::streamable_http_client::StreamableHttpError;
use tower_agent::{Error, ErrorKind};

use super::connect_error::ConnectError;
use super::transport::HttpFault;

/// Converts the failure of a request to a server.
pub(super) fn request(server: &str, error: ServiceError) -> Error {
    match error {
        ServiceError::McpError(rejection) => rejected(server, &rejection),
        ServiceError::TransportSend(error) => transport(server, error),
        ServiceError::TransportClosed => {
            let message = format!("MCP server `{server}` closed the connection");
            Error::new(ErrorKind::Connection, message)
        }
        ServiceError::UnexpectedResponse => {
            let message = format!("MCP server `{server}` sent an unexpected response");
            Error::new(ErrorKind::Protocol, message)
        }
        ServiceError::Cancelled { reason } => {
            let reason = reason
                .map(|reason| format!(": {reason}"))
                .unwrap_or_default();
            let message = format!("MCP server `{server}` cancelled the request{reason}");
            Error::new(ErrorKind::Tool, message)
        }
        other => {
            let message = format!("the request to MCP server `{server}` failed: {other}");
            Error::new(ErrorKind::Protocol, message).with_source(other)
        }
    }
}

/// Converts a JSON-RPC error of the server. Repeating the request would change nothing.
pub(super) fn rejected(server: &str, rejection: &ErrorData) -> Error {
    let kind = match rejection.code {
        ErrorCode::INVALID_PARAMS => ErrorKind::InvalidArguments,
        ErrorCode::METHOD_NOT_FOUND => ErrorKind::UnknownTool,
        _ => ErrorKind::Tool,
    };
    rejected_as(kind, server, rejection)
}

/// Converts a JSON-RPC error of the server to an error of this kind.
pub(super) fn rejected_as(kind: ErrorKind, server: &str, rejection: &ErrorData) -> Error {
    let message = format!(
        "MCP server `{server}`: {} (code {})",
        rejection.message, rejection.code.0
    );
    Error::new(kind, message).with_retryable(false)
}

/// Converts the failure of an attempt to connect.
pub(super) fn connecting(server: &str, error: ConnectError) -> Error {
    let begin = format!("cannot connect to MCP server `{server}`");
    match error {
        ConnectError::Open(error) => {
            // A program that is not installed will not be there at the next attempt either.
            let is_permanent = matches!(
                error.kind(),
                io::ErrorKind::NotFound | io::ErrorKind::PermissionDenied
            );
            let message = format!("{begin}: {error}");
            let kind = ErrorKind::Connection;
            Error::new(kind, message)
                .with_retryable(!is_permanent)
                .with_source(error)
        }
        ConnectError::Handshake(error) => handshake(server, *error),
    }
}

fn handshake(server: &str, error: ClientInitializeError) -> Error {
    let begin = format!("cannot connect to MCP server `{server}`");
    match error {
        ClientInitializeError::TransportError { error, .. } => {
            let error = transport(server, error);
            let message = format!("{begin}: {}", error.message());
            error.with_message(message)
        }
        // The first failure only means that the server is of an earlier version.
        ClientInitializeError::LegacyFallbackFailed { fallback, .. } => {
            handshake(server, *fallback)
        }
        ClientInitializeError::JsonRpcError(rejection) => {
            let message = format!("{begin}: {} (code {})", rejection.message, rejection.code.0);
            Error::new(ErrorKind::Protocol, message).with_retryable(false)
        }
        ClientInitializeError::ConnectionClosed(_) => Error::new(
            ErrorKind::Connection,
            format!("{begin}: it closed the connection"),
        ),
        ClientInitializeError::NoCompatibleProtocolVersion {
            client_supported,
            server_supported,
        } => {
            let ours = joined(&client_supported);
            let its = joined(&server_supported);
            let message = format!("{begin}: it speaks the protocol versions {its}, and not {ours}");
            Error::new(ErrorKind::Protocol, message).with_retryable(false)
        }
        other => Error::new(ErrorKind::Protocol, format!("{begin}: {other}")),
    }
}

fn joined(versions: &[ProtocolVersion]) -> String {
    let versions: Vec<_> = versions.iter().map(ToString::to_string).collect();
    versions.join(", ")
}

fn transport(server: &str, error: DynamicTransportError) -> Error {
    let http_error = error.error.downcast_ref::<StreamableHttpError<HttpFault>>();
    let Some(http_error) = http_error else {
        let message = format!(
            "the connection to MCP server `{server}` broke: {}",
            with_sources(&*error.error)
        );
        return Error::new(ErrorKind::Connection, message).with_source(error);
    };
    match http_error {
        StreamableHttpError::Client(HttpFault(fault)) => {
            let message = format!("MCP server `{server}`: {}", fault.message());
            // The kind and the retry-after of the HTTP service's own error stay.
            fault.clone().with_message(message)
        }
        StreamableHttpError::AuthRequired(_) | StreamableHttpError::InsufficientScope(_) => {
            let message = format!("MCP server `{server}` requires authorization");
            Error::new(ErrorKind::Auth, message).with_source(error)
        }
        StreamableHttpError::UnexpectedServerResponse(_)
        | StreamableHttpError::UnexpectedContentType(_)
        | StreamableHttpError::Deserialize(_) => {
            let message = format!("MCP server `{server}`: {http_error}");
            Error::new(ErrorKind::Protocol, message).with_source(error)
        }
        other => {
            let message = format!("the connection to MCP server `{server}` broke: {other}");
            Error::new(ErrorKind::Connection, message).with_source(error)
        }
    }
}

/// Returns the texts of an error and its sources.
fn with_sources(error: &(dyn StdError + 'static)) -> String {
    let mut text = error.to_string();
    let mut next = error.source();
    while let Some(source) = next {
        text.push_str(": ");
        text.push_str(&source.to_string());
        next = source.source();
    }
    text
}
