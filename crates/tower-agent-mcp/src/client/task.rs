//! Polls the task that a server answered a call with.

use std::sync::Arc;
use std::time::Duration;

use futures_util::FutureExt;
use rmcp::model::{
    CallToolResult, CancelTaskParams, CancelTaskRequest, ClientRequest, ErrorData, GetTaskParams,
    GetTaskResult, TaskPayload, UpdateTaskParams,
};
use rmcp::service::PeerRequestOptions;
use serde_json::{Value, json};
use tokio::time::{sleep, timeout};
use tower_agent::call::Request;
use tower_agent::{Error, ErrorKind, Result, ToolResponse};

use super::connection::Connection;
use super::questions::Questions;
use super::remote_call::RemoteCall;
use super::{content, error};
use crate::progress::PROGRESS;

/// The wait between two polls, unless the server says otherwise.
const INTERVAL: Duration = Duration::from_secs(1);

/// The shortest and the longest wait between two polls that a server can set.
const INTERVALS: (Duration, Duration) = (Duration::from_millis(50), Duration::from_secs(60));

/// The maximum number of failed polls in a row. A task survives a lost connection.
const FAILURES: u32 = 3;

/// Waits for the result of a task. A question of the task interrupts the run, and the task goes on;
/// dropping the call cancels it.
pub(super) async fn follow(
    call: &RemoteCall<'_>,
    connection: Arc<Connection>,
    id: String,
    questions: &mut Questions,
) -> Result<ToolResponse> {
    let mut cancel_on_drop = CancelTaskOnDrop {
        connection,
        id: Some(id.clone()),
    };
    let mut last_message = None;
    let mut failures = 0;
    loop {
        let answers = questions.take_answers();
        if !answers.is_empty() {
            let params = UpdateTaskParams::new(id.clone(), answers);
            let updated = timeout(
                call.config().call_timeout,
                cancel_on_drop.connection.peer().update_task(params),
            );
            let updated = updated.await.map_err(|_| call.timed_out())?;
            updated.map_err(|failed| error::request(&call.config().server, failed))?;
        }
        let polled = match poll(call, &cancel_on_drop.connection, &id).await {
            Ok(polled) => polled,
            Err(failed) if failed.is_retryable() && failures < FAILURES => {
                failures += 1;
                sleep(INTERVAL).await;
                // Polling has no effect, so that it can be repeated whatever the tool does.
                cancel_on_drop.connection = call.link.connection().await?;
                continue;
            }
            Err(failed) => return Err(call.after_sending(failed)),
        };
        failures = 0;
        let task = polled.task.task;
        if task.status_message != last_message {
            let message = task.status_message.clone();
            let value = json!({ "tool": call.request.name(), "task": id, "message": message });
            call.request.context().emit(PROGRESS, value).await;
            last_message = task.status_message;
        }
        match polled.task.payload {
            TaskPayload::Working => {}
            TaskPayload::InputRequired { input_requests } => {
                if let Err(interrupt) = questions.ask_task(call, &id, input_requests).await {
                    // The resumed run goes on with the same task.
                    if interrupt.is_ending() {
                        cancel_on_drop.id = None;
                    }
                    return Err(interrupt);
                }
            }
            TaskPayload::Completed { result } => {
                cancel_on_drop.id = None;
                let result: CallToolResult = serde_json::from_value(Value::Object(result))
                    .map_err(|_| call.protocol_error("completed a task without a result"))?;
                return Ok(content::response(result));
            }
            TaskPayload::Failed { error } => {
                cancel_on_drop.id = None;
                let rejection: ErrorData = serde_json::from_value(Value::Object(error))
                    .map_err(|_| call.protocol_error("failed a task without a reason"))?;
                return Err(error::rejected(&call.config().server, &rejection));
            }
            _ => {
                cancel_on_drop.id = None;
                let message = format!("MCP server `{}` cancelled the task", call.config().server);
                return Err(Error::new(ErrorKind::Tool, message));
            }
        }
        let wait = task
            .poll_interval_ms
            .map_or(INTERVAL, Duration::from_millis);
        // Clamped: a server could ask for a busy loop, or for a wait without end.
        sleep(wait.clamp(INTERVALS.0, INTERVALS.1)).await;
    }
}

async fn poll(call: &RemoteCall<'_>, connection: &Connection, id: &str) -> Result<GetTaskResult> {
    let polled = connection
        .peer()
        .get_task(GetTaskParams::new(id.to_owned()));
    match timeout(call.config().call_timeout, polled).await {
        Ok(polled) => polled.map_err(|failed| error::request(&call.config().server, failed)),
        Err(_) => Err(call.timed_out()),
    }
}

/// Cancels a task on drop, unless it has ended or a later run goes on with it.
struct CancelTaskOnDrop {
    connection: Arc<Connection>,
    id: Option<String>,
}

impl Drop for CancelTaskOnDrop {
    fn drop(&mut self) {
        if let Some(id) = self.id.take() {
            let cancel = CancelTaskRequest::new(CancelTaskParams::new(id));
            let cancel = ClientRequest::CancelTaskRequest(cancel);
            let options = PeerRequestOptions::no_options();
            // `drop` cannot wait. Polled once, it puts the request into the queue, unless that is
            // full.
            let sending = self
                .connection
                .peer()
                .send_request_with_option(cancel, options);
            drop(sending.now_or_never());
        }
    }
}
