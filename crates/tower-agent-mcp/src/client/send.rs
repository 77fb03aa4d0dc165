use std::sync::Arc;

use futures_util::FutureExt;
use rmcp::model::{
    CallToolRequest, CallToolRequestParams, CallToolResponse, CancelledNotification,
    CancelledNotificationParam, ClientNotification, ClientRequest, CustomResult, ElicitResult,
    ElicitationAction, ErrorData, GetMeta, RequestId, ServerResult,
};
use rmcp::service::{Peer, PeerRequestOptions};
use rmcp::{RoleClient, ServiceError};
use tokio::sync::mpsc;
use tokio::time::{Instant, sleep};
use tower_agent::call::Request;
use tower_agent::{Error, Result};
use tracing::{Instrument, Span};

use super::calls::{ActiveCall, CallEvent, CallRegistration};
use super::connection::Connection;
use super::questions::Questions;
use super::remote_call::RemoteCall;
use super::{content, error};
use crate::trace::{self, OpenSpan, Operation};

/// The capacity of the channel for a call's events. Progress beyond it is dropped.
const EVENTS: usize = 64;

/// Sends one request in a span of its own, and waits for its answer.
pub(super) async fn send(
    call: &RemoteCall<'_>,
    connection: &Arc<Connection>,
    questions: &mut Questions,
) -> Result<CallToolResponse> {
    let operation = Operation {
        tool: Some(call.tool),
        ..connection.operation("tools/call")
    };
    let span = operation.client_span(&call.config().network);
    let open = OpenSpan::new(span.clone());
    let answered = send_in(span.clone(), call, connection, questions)
        .instrument(span)
        .await;
    match answered {
        Ok(response) => {
            open.end(trace::tool_error(&response));
            Ok(response)
        }
        Err(Failure::Rejected(rejection)) => {
            open.end_rejected(rejection.code);
            let error = error::rejected(&call.config().server, &rejection);
            Err(call.after_sending(error))
        }
        Err(Failure::Other(error)) => {
            // A question is no failure: the call goes on later.
            open.end((!error.is_ending()).then(|| error.kind().code()));
            Err(error)
        }
    }
}

/// The reason why a request has no result.
enum Failure {
    /// The server has rejected it.
    Rejected(ErrorData),
    Other(Error),
}

impl From<Error> for Failure {
    fn from(error: Error) -> Self {
        Self::Other(error)
    }
}

async fn send_in(
    span: Span,
    call: &RemoteCall<'_>,
    connection: &Arc<Connection>,
    questions: &mut Questions,
) -> Result<CallToolResponse, Failure> {
    let peer = connection.peer();
    let (events, receiver) = mpsc::channel(EVENTS);
    let params = CallToolRequestParams::new(call.tool.to_string());
    let mut request = CallToolRequest::new(questions.answered(params));
    request.params.arguments = Some(call.arguments.clone());
    // Not registered here: the transport does it, which knows the id before the server can answer.
    request.extensions.insert(ActiveCall {
        events,
        context: call.request.context().clone(),
        span: span.clone(),
    });
    let options = PeerRequestOptions::no_options();
    let mut request = ClientRequest::CallToolRequest(request);
    let meta = request.get_meta_mut();
    trace::inject(&span, meta);
    call.config().set_log_level(meta);
    let sent = peer
        .send_request_with_option(request, options)
        .await
        .map_err(|failed| error::request(&call.config().server, failed))?;

    let mut cancel_on_drop = CancelRequestOnDrop {
        peer,
        id: Some(sent.id.clone()),
    };
    let _registered = CallRegistration {
        calls: connection.calls().clone(),
        id: sent.id.clone(),
    };
    // Bound again, so that it is dropped before the registration ends.
    let mut receiver = receiver;
    let mut answer = std::pin::pin!(sent.await_response());
    let mut idle = std::pin::pin!(sleep(call.config().call_timeout));
    let answer = loop {
        tokio::select! {
            // The answer first: once it is here, questions and the timeout no longer matter.
            biased;
            answer = &mut answer => break answer,
            Some(event) = receiver.recv() => match event {
                CallEvent::Progress(progress) => call.emit_progress(progress).await,
                CallEvent::Question(question, reply) => match questions.answer_to(&question) {
                    Some(answer) => drop(reply.send(answer)),
                    None => {
                        // The server must not take what follows for an answer of the user.
                        cancel_on_drop.cancel("the user is asked first").await;
                        drop(reply.send(ElicitResult::new(ElicitationAction::Cancel)));
                        return Err(questions.ask(call, &question).into());
                    }
                },
            },
            () = &mut idle => {
                // The server is not the one who takes long while a person is asked.
                if !call.config().logins.is_pending() {
                    cancel_on_drop.cancel("no answer in time").await;
                    return Err(call.timed_out().into());
                }
            }
        }
        // Anything that the server sends about the call shows that it is alive.
        let timeout = call.config().call_timeout;
        if let Some(later) = Instant::now().checked_add(timeout) {
            idle.as_mut().reset(later);
        }
    };
    cancel_on_drop.id = None;
    // The transport reads in order: progress that came before the answer is here by now.
    while let Ok(event) = receiver.try_recv() {
        if let CallEvent::Progress(progress) = event {
            call.emit_progress(progress).await;
        }
    }
    match answer {
        Ok(answer) => {
            connection.note_answer();
            match answer {
                ServerResult::CallToolResult(result) => Ok(CallToolResponse::Complete(result)),
                // One block of a kind that rmcp does not know makes it read none.
                ServerResult::CustomResult(CustomResult(result)) => content::readable(result)
                    .map(CallToolResponse::Complete)
                    .ok_or_else(|| call.protocol_error("sent an unexpected response").into()),
                ServerResult::InputRequiredResult(required) => {
                    Ok(CallToolResponse::InputRequired(required))
                }
                ServerResult::CreateTaskResult(created) => Ok(CallToolResponse::Task(created)),
                _ => Err(call.protocol_error("sent an unexpected response").into()),
            }
        }
        Err(ServiceError::McpError(rejection)) => {
            // A rejection is an answer too: the server is alive.
            connection.note_answer();
            Err(Failure::Rejected(rejection))
        }
        Err(failed) => {
            let error = error::request(&call.config().server, failed);
            Err(call.after_sending(error).into())
        }
    }
}

/// Cancels a request at the server on drop, unless it was answered.
struct CancelRequestOnDrop<'a> {
    peer: &'a Peer<RoleClient>,
    id: Option<RequestId>,
}

impl CancelRequestOnDrop<'_> {
    async fn cancel(&mut self, reason: &str) {
        if let Some(id) = self.id.take()
            && let Err(error) = self.peer.send_notification(cancelled(id, reason)).await
        {
            tracing::debug!(error = %error.to_string().escape_debug(), "the server was not told that a call is cancelled");
        }
    }
}

impl Drop for CancelRequestOnDrop<'_> {
    fn drop(&mut self) {
        if let Some(id) = self.id.take() {
            // `drop` cannot wait. Polled once, it puts the notification into the queue, unless
            // that is full.
            let sending = self
                .peer
                .send_notification(cancelled(id, "the call was dropped"));
            drop(sending.now_or_never());
        }
    }
}

fn cancelled(id: RequestId, reason: &str) -> ClientNotification {
    let params = CancelledNotificationParam::new(Some(id), Some(reason.to_owned()));
    CancelledNotification::new(params).into()
}
