use std::sync::Arc;

use futures_util::FutureExt;
use rmcp::RoleClient;
use rmcp::model::{
    CallToolRequest, CallToolRequestParams, CallToolResponse, CancelledNotification,
    CancelledNotificationParam, ClientNotification, ClientRequest, ElicitResult, ElicitationAction,
    JsonObject, ProgressNotificationParam, RequestId, ServerResult,
};
use rmcp::service::{Peer, PeerRequestOptions};
use serde_json::{Value, json};
use tokio::sync::mpsc;
use tokio::time::{Instant, sleep};
use tower_agent::call::Request;
use tower_agent::{Effect, Error, ErrorKind, Result, ToolRequest, ToolResponse};

use super::calls::{CallEvent, Registered, UnderWay};
use super::config::Config;
use super::connection::Connection;
use super::link::Link;
use super::questions::Questions;
use super::{content, error, task};

/// The name of the [custom event](tower_agent::stream::EventKind::Custom) that reports the progress
/// of a call. Its value has the fields `tool` and `progress`, and `total` and `message` if the server
/// sent them.
pub const PROGRESS: &str = "mcp.progress";

/// How many events of a call may wait.
const EVENTS: usize = 64;

/// How often in a row a server may ask for input without asking the user.
const ROUNDS: u32 = 10;

/// One call of a server's tool, with all requests that it takes.
pub(super) struct Call<'a> {
    pub(super) link: &'a Arc<Link>,
    /// The server's own name of the tool.
    pub(super) tool: &'a Arc<str>,
    pub(super) request: &'a ToolRequest,
    arguments: JsonObject,
    is_repeatable: bool,
}

impl<'a> Call<'a> {
    pub(super) fn new(
        link: &'a Arc<Link>,
        tool: &'a Arc<str>,
        request: &'a ToolRequest,
        effect: Effect,
    ) -> Result<Self> {
        let arguments = match request.arguments() {
            Value::Object(arguments) => arguments.clone(),
            Value::Null => JsonObject::default(),
            _ => {
                let message = format!("the arguments of `{}` must be an object", request.name());
                return Err(Error::new(ErrorKind::InvalidArguments, message));
            }
        };
        Ok(Self { link, tool, request, arguments, is_repeatable: effect != Effect::Mutating })
    }

    pub(super) fn config(&self) -> &Config {
        self.link.config()
    }

    pub(super) async fn run(self) -> Result<ToolResponse> {
        let mut questions = Questions::of(&self);
        questions.resolve(&self)?;
        let connection = self.link.connection().await?;
        if let Some(id) = questions.task() {
            return task::follow(&self, connection, id, &mut questions).await;
        }
        for round in 0..ROUNDS {
            match self.send(&connection, &mut questions).await? {
                CallToolResponse::Complete(result) => return Ok(content::response(result)),
                CallToolResponse::InputRequired(asked) => {
                    let requests = asked.input_requests.unwrap_or_default();
                    // The server only wants to be asked again later.
                    if requests.is_empty() {
                        let wait = std::time::Duration::from_millis(50 << round.min(3));
                        sleep(wait).await;
                    }
                    questions.ask_inputs(&self, requests, asked.request_state).await?;
                }
                CallToolResponse::Task(created) => {
                    let id = created.task.task_id;
                    return task::follow(&self, connection, id, &mut questions).await;
                }
                _ => return Err(self.broken("answered with something else")),
            }
        }
        Err(self.broken("asks for input again and again"))
    }

    /// Sends one request, and waits for its answer.
    async fn send(
        &self,
        connection: &Arc<Connection>,
        questions: &mut Questions,
    ) -> Result<CallToolResponse> {
        let peer = connection.peer();
        let (events, happened) = mpsc::channel(EVENTS);
        let params = CallToolRequestParams::new(self.tool.to_string());
        let mut call = CallToolRequest::new(questions.answered(params));
        call.params.arguments = Some(self.arguments.clone());
        call.extensions.insert(UnderWay { events, context: self.request.context().clone() });
        let options = PeerRequestOptions::no_options();
        let call = ClientRequest::CallToolRequest(call);
        let sent = peer.send_request_with_option(call, options).await;
        let sent = sent.map_err(|failed| error::request(&self.config().server, failed))?;

        let mut abandoned = Abandoned { peer, id: Some(sent.id.clone()) };
        let _registered = Registered { calls: connection.calls().clone(), id: sent.id.clone() };
        // Dropped before the registration ends.
        let mut happened = happened;
        let mut answer = std::pin::pin!(sent.await_response());
        let mut idle = std::pin::pin!(sleep(self.config().call_timeout));
        let answer = loop {
            tokio::select! {
                biased;
                answer = &mut answer => break answer,
                Some(event) = happened.recv() => match event {
                    CallEvent::Progress(progress) => self.progress(progress).await,
                    CallEvent::Question(question, reply) => match questions.answer_to(&question) {
                        Some(answer) => drop(reply.send(answer)),
                        None => {
                            // The server must not take what follows for an answer of the user.
                            abandoned.cancel("the user is asked first").await;
                            drop(reply.send(ElicitResult::new(ElicitationAction::Cancel)));
                            return Err(questions.ask(self, &question));
                        }
                    },
                },
                () = &mut idle => {
                    abandoned.cancel("no answer in time").await;
                    return Err(self.timed_out());
                }
            }
            let timeout = self.config().call_timeout;
            if let Some(later) = Instant::now().checked_add(timeout) {
                idle.as_mut().reset(later);
            }
        };
        abandoned.id = None;
        while let Ok(event) = happened.try_recv() {
            if let CallEvent::Progress(progress) = event {
                self.progress(progress).await;
            }
        }
        match answer {
            Ok(answer) => {
                connection.note_answer();
                match answer {
                    ServerResult::CallToolResult(result) => Ok(CallToolResponse::Complete(result)),
                    ServerResult::InputRequiredResult(asked) => {
                        Ok(CallToolResponse::InputRequired(asked))
                    }
                    ServerResult::CreateTaskResult(created) => Ok(CallToolResponse::Task(created)),
                    _ => Err(self.broken("answered with something else")),
                }
            }
            Err(failed) => {
                if matches!(failed, rmcp::ServiceError::McpError(_)) {
                    connection.note_answer();
                }
                Err(self.after_sending(error::request(&self.config().server, failed)))
            }
        }
    }

    async fn progress(&self, progress: ProgressNotificationParam) {
        let mut value = json!({ "tool": self.request.name(), "progress": progress.progress });
        if let Some(total) = progress.total {
            value["total"] = total.into();
        }
        if let Some(message) = progress.message {
            value["message"] = message.into();
        }
        self.request.context().emit(PROGRESS, value).await;
    }

    /// Marks an error of a call that the server may have carried out.
    pub(super) fn after_sending(&self, error: Error) -> Error {
        let retryable = error.is_retryable() && self.is_repeatable;
        error.with_retryable(retryable)
    }

    pub(super) fn timed_out(&self) -> Error {
        let Config { server, call_timeout, .. } = self.config();
        let message = format!(
            "MCP server `{server}` did not answer the call of `{}` within {call_timeout:?}; it was \
             cancelled, and may have been carried out",
            self.request.name(),
        );
        self.after_sending(Error::new(ErrorKind::Timeout, message))
    }

    pub(super) fn broken(&self, what: &str) -> Error {
        let message = format!("MCP server `{}` {what}", self.config().server);
        self.after_sending(Error::new(ErrorKind::Protocol, message))
    }
}

/// A request that is cancelled at the server unless it was answered.
struct Abandoned<'a> {
    peer: &'a Peer<RoleClient>,
    id: Option<RequestId>,
}

impl Abandoned<'_> {
    async fn cancel(&mut self, reason: &str) {
        if let Some(id) = self.id.take()
            && let Err(error) = self.peer.send_notification(cancelled(id, reason)).await
        {
            tracing::debug!(%error, "the server was not told that a call is cancelled");
        }
    }
}

impl Drop for Abandoned<'_> {
    fn drop(&mut self) {
        if let Some(id) = self.id.take() {
            // Polled once, it puts the notification into the queue, unless that is full.
            let told = self.peer.send_notification(cancelled(id, "the call was dropped"));
            drop(told.now_or_never());
        }
    }
}

fn cancelled(id: RequestId, reason: &str) -> ClientNotification {
    let params = CancelledNotificationParam::new(Some(id), Some(reason.to_owned()));
    CancelledNotification::new(params).into()
}
