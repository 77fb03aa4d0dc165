use std::sync::Arc;

use rmcp::model::{JsonObject, ProgressNotificationParam};
use serde_json::{Value, json};
use tower_agent::call::Request;
use tower_agent::{Effect, Error, ErrorKind, Result, ToolRequest};

use super::config::Config;
use super::link::Link;
use super::transport::Refused;
use crate::progress::PROGRESS;

/// One call of a server's tool, with all requests that it takes.
pub(super) struct RemoteCall<'a> {
    pub(super) link: &'a Arc<Link>,
    /// The server's own name of the tool.
    pub(super) tool: &'a Arc<str>,
    pub(super) request: &'a ToolRequest,
    pub(super) arguments: JsonObject,
    is_repeatable: bool,
}

impl<'a> RemoteCall<'a> {
    pub(super) fn new(
        link: &'a Arc<Link>,
        tool: &'a Arc<str>,
        request: &'a ToolRequest,
        effect: Effect,
    ) -> Result<Self> {
        let arguments = match request.arguments() {
            Value::Object(arguments) => arguments.clone(),
            // Models send `null` to a tool without parameters; MCP has only objects.
            Value::Null => JsonObject::default(),
            _ => {
                let message = format!("the arguments of `{}` must be an object", request.name());
                return Err(Error::new(ErrorKind::InvalidArguments, message));
            }
        };
        Ok(Self {
            link,
            tool,
            request,
            arguments,
            is_repeatable: effect != Effect::Mutating,
        })
    }

    pub(super) fn config(&self) -> &Config {
        self.link.config()
    }

    /// Emits progress on the run.
    pub(super) async fn emit_progress(&self, progress: ProgressNotificationParam) {
        let mut value = json!({ "tool": self.request.name(), "progress": progress.progress });
        if let Some(total) = progress.total {
            value["total"] = total.into();
        }
        if let Some(message) = progress.message {
            value["message"] = message.into();
        }
        self.request.context().emit(PROGRESS, value).await;
    }

    /// Marks an error of a call that was sent as retryable only if the effect allows it, or if the
    /// server has refused the call.
    pub(super) fn after_sending(&self, error: Error) -> Error {
        if Refused::of(&error).is_some() {
            return error;
        }
        // The server may have acted before the failure: a repeated mutation would act twice.
        let retryable = error.is_retryable() && self.is_repeatable;
        error.with_retryable(retryable)
    }

    /// Returns the error of a call whose time is over.
    pub(super) fn timed_out(&self) -> Error {
        let Config {
            server,
            call_timeout,
            ..
        } = self.config();
        let message = format!(
            "MCP server `{server}` did not answer the call of `{}` within {call_timeout:?}; it was \
             cancelled, and may have been carried out",
            self.request.name(),
        );
        self.after_sending(Error::new(ErrorKind::Timeout, message))
    }

    /// Returns the error of a server that violates the protocol; `violation` is a predicate.
    pub(super) fn protocol_error(&self, violation: &str) -> Error {
        let message = format!("MCP server `{}` {violation}", self.config().server);
        self.after_sending(Error::new(ErrorKind::Protocol, message))
    }
}
