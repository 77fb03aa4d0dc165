//! Converts the failures of rmcp.

use std::error::Error as StdError;
use std::io;

use rmcp::ServiceError;
use rmcp::model::{ErrorCode, ErrorData};
use rmcp::service::ClientInitializeError;
use rmcp::transport::DynamicTransportError;
use rmcp::transport::streamable_http_client::StreamableHttpError;
use tower_agent::{Error, ErrorKind};

use super::connect_error::ConnectError;
use super::transport::HttpFault;

/// Converts the failure of a request to a server.
pub(super) fn request(server: &str, error: ServiceError) -> Error {
    match error {
        ServiceError::McpError(said) => rejected(server, &said),
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
pub(super) fn rejected(server: &str, said: &ErrorData) -> Error {
    let kind = match said.code {
        ErrorCode::INVALID_PARAMS => ErrorKind::InvalidArguments,
        ErrorCode::METHOD_NOT_FOUND => ErrorKind::UnknownTool,
        _ => ErrorKind::Tool,
    };
    let message = format!(
        "MCP server `{server}`: {} (code {})",
        said.message, said.code.0
    );
    Error::new(kind, message).with_retryable(false)
}

/// Converts the failure of an attempt to connect.
pub(super) fn connecting(server: &str, error: ConnectError) -> Error {
    let begin = format!("cannot connect to MCP server `{server}`");
    match error {
        ConnectError::Open(error) => {
            let will_not_be_there = matches!(
                error.kind(),
                io::ErrorKind::NotFound | io::ErrorKind::PermissionDenied
            );
            let message = format!("{begin}: {error}");
            let kind = ErrorKind::Connection;
            Error::new(kind, message)
                .with_retryable(!will_not_be_there)
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
        ClientInitializeError::LegacyFallbackFailed { fallback, .. } => {
            handshake(server, *fallback)
        }
        ClientInitializeError::JsonRpcError(said) => {
            let message = format!("{begin}: {} (code {})", said.message, said.code.0);
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
            let list = |versions: &[_]| {
                let versions: Vec<_> = versions.iter().map(ToString::to_string).collect();
                versions.join(", ")
            };
            let (ours, its) = (list(&client_supported), list(&server_supported));
            let message = format!("{begin}: it speaks the protocol versions {its}, and not {ours}");
            Error::new(ErrorKind::Protocol, message).with_retryable(false)
        }
        other => Error::new(ErrorKind::Protocol, format!("{begin}: {other}")),
    }
}

fn transport(server: &str, error: DynamicTransportError) -> Error {
    let of_http = error.error.downcast_ref::<StreamableHttpError<HttpFault>>();
    let Some(of_http) = of_http else {
        let message = format!(
            "the connection to MCP server `{server}` broke: {}",
            words(&*error.error)
        );
        return Error::new(ErrorKind::Connection, message).with_source(error);
    };
    match of_http {
        StreamableHttpError::Client(HttpFault(fault)) => {
            let message = format!("MCP server `{server}`: {}", fault.message());
            fault.clone().with_message(message)
        }
        StreamableHttpError::AuthRequired(_) | StreamableHttpError::InsufficientScope(_) => {
            let message = format!("MCP server `{server}` requires authorization");
            Error::new(ErrorKind::Auth, message).with_source(error)
        }
        StreamableHttpError::UnexpectedServerResponse(_)
        | StreamableHttpError::UnexpectedContentType(_)
        | StreamableHttpError::Deserialize(_) => {
            let message = format!("MCP server `{server}`: {of_http}");
            Error::new(ErrorKind::Protocol, message).with_source(error)
        }
        other => {
            let message = format!("the connection to MCP server `{server}` broke: {other}");
            Error::new(ErrorKind::Connection, message).with_source(error)
        }
    }
}

/// Returns the texts of an error and its sources.
fn words(error: &(dyn StdError + 'static)) -> String {
    let mut words = error.to_string();
    let mut next = error.source();
    while let Some(source) = next {
        words.push_str(": ");
        words.push_str(&source.to_string());
        next = source.source();
    }
    words
}
