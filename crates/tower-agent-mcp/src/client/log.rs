//! The log messages of a server.
// Deprecated since protocol version 2026-07-28; servers still send them.
#![allow(deprecated)]

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

use rmcp::model::{LoggingLevel, LoggingMessageNotificationParam};
use serde_json::Value;

/// The `tracing` target of messages of servers.
const TARGET: &str = "tower_agent_mcp::server_log";

/// The maximum length of a forwarded message, in bytes: a server must not fill the log.
const FORWARDED: usize = 4 * 1024;

/// The severity of a [`LogMessage`], as in syslog.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[non_exhaustive]
pub enum LogLevel {
    /// Details for debugging.
    Debug,
    /// General information.
    Info,
    /// Normal, but significant.
    Notice,
    /// A warning.
    Warning,
    /// An error.
    Error,
    /// A critical condition.
    Critical,
    /// Something that must be acted upon at once.
    Alert,
    /// The server is unusable.
    Emergency,
}

/// A message that a server has written to its client's log.
///
/// It is the server's own word: show it to nobody as that of the application.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct LogMessage {
    /// The [name](super::McpClientBuilder::name) of the server.
    pub server: Arc<str>,
    /// The severity.
    pub level: LogLevel,
    /// The part of the server that it comes from.
    pub logger: Option<String>,
    /// A text, or any other JSON.
    pub data: Value,
}

/// The function that takes messages.
pub(super) type OnLog = Arc<dyn Fn(LogMessage) + Send + Sync>;

/// Hands a message to the function of the caller.
pub(super) fn receive(server: &Arc<str>, on_log: &OnLog, message: LoggingMessageNotificationParam) {
    let message = LogMessage {
        server: server.clone(),
        level: LogLevel::of(message.level),
        logger: message.logger,
        data: message.data,
    };
    // The transport calls this, and a panic must not end it for all calls.
    if catch_unwind(AssertUnwindSafe(|| on_log(message))).is_err() {
        tracing::error!(%server, "the function for log messages panicked");
    }
}

/// Forwards a message to `tracing`.
pub(super) fn forward(message: LogMessage) {
    let server = &*message.server;
    // By `Debug` and as JSON, which escape what could forge a line of the log.
    let logger = message.logger.as_deref().map(beginning);
    let data = message.data.to_string();
    let data = beginning(&data);
    match message.level {
        LogLevel::Debug => tracing::debug!(target: TARGET, ?server, ?logger, data),
        LogLevel::Info | LogLevel::Notice => {
            tracing::info!(target: TARGET, ?server, ?logger, data);
        }
        LogLevel::Warning => tracing::warn!(target: TARGET, ?server, ?logger, data),
        _ => tracing::error!(target: TARGET, ?server, ?logger, data),
    }
}

fn beginning(text: &str) -> &str {
    let mut ends = (0..=FORWARDED.min(text.len())).rev();
    let end = ends.find(|end| text.is_char_boundary(*end));
    &text[..end.unwrap_or_default()]
}

impl LogLevel {
    fn of(level: LoggingLevel) -> Self {
        match level {
            LoggingLevel::Debug => Self::Debug,
            LoggingLevel::Info => Self::Info,
            LoggingLevel::Notice => Self::Notice,
            LoggingLevel::Warning => Self::Warning,
            LoggingLevel::Error => Self::Error,
            LoggingLevel::Critical => Self::Critical,
            LoggingLevel::Alert => Self::Alert,
            LoggingLevel::Emergency => Self::Emergency,
        }
    }

    /// Returns the level of the protocol.
    pub(super) fn to_protocol(self) -> LoggingLevel {
        match self {
            Self::Debug => LoggingLevel::Debug,
            Self::Info => LoggingLevel::Info,
            Self::Notice => LoggingLevel::Notice,
            Self::Warning => LoggingLevel::Warning,
            Self::Error => LoggingLevel::Error,
            Self::Critical => LoggingLevel::Critical,
            Self::Alert => LoggingLevel::Alert,
            Self::Emergency => LoggingLevel::Emergency,
        }
    }
}
