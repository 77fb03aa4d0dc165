//! The endpoint: a question in, a streamed answer out, as server-sent events.

use std::convert::Infallible;
use std::future::ready;

use axum::Json;
use axum::extract::State;
use axum::http::header::RETRY_AFTER;
use axum::http::{HeaderValue, StatusCode};
use axum::response::sse::{Event, KeepAlive, Sse};
use axum::response::{IntoResponse, Response};
use futures::StreamExt;
use serde_json::json;
use tokio_util::sync::CancellationToken;
use tower_agent::stream::EventKind;
use tower_agent::{Agent, AgentRequest, Error};

/// The state of the endpoint.
#[derive(Clone, Debug)]
pub(crate) struct Chat {
    pub(crate) agent: Agent,
    /// Ends the runs that are still there when the server has to stop.
    pub(crate) stop: CancellationToken,
}

/// Runs the agent. A client that goes away drops the stream, and with it the run.
pub(crate) async fn chat(
    State(chat): State<Chat>,
    question: String,
) -> Result<impl IntoResponse, Failed> {
    let request = AgentRequest::new(question).with_cancellation(chat.stop.child_token());
    let mut run = chat.agent.stream(request);
    run.first_output().await?;
    let events = run.filter_map(|event| ready(shown(event.kind)));
    Ok(Sse::new(events.map(Ok::<_, Infallible>)).keep_alive(KeepAlive::default()))
}

/// Chooses what the client is shown. An event as a whole is for developers: it has the arguments
/// and results of tools, the state and the texts of errors.
fn shown(event: EventKind) -> Option<Event> {
    let (name, data) = match event {
        EventKind::TextDelta { message, text } => {
            ("text", json!({ "message": message, "text": text }))
        }
        EventKind::ToolCallStart(call) => ("tool", json!({ "name": call.name })),
        // The client takes the text of this message back.
        EventKind::AttemptDiscarded { message, .. } | EventKind::ResponseReplaced { message } => {
            ("discard", json!({ "message": message }))
        }
        EventKind::RunFinished { reason } => ("end", json!({ "reason": reason })),
        EventKind::RunInterrupted { .. } => ("question", json!({})),
        EventKind::RunFailed { error } => ("error", json!({ "error": error.kind() })),
        _ => return None,
    };
    Some(Event::default().event(name).data(data.to_string()))
}

/// The answer for a run that failed before it had shown anything.
pub(crate) struct Failed(Error);

impl From<Error> for Failed {
    fn from(error: Error) -> Self {
        Self(error)
    }
}

impl IntoResponse for Failed {
    fn into_response(self) -> Response {
        let Self(error) = self;
        // The text may name the provider's account or a tool's path: it is for the log.
        eprintln!("{error}");
        let kind = error.kind();
        let status = StatusCode::from_u16(kind.http_status());
        let status = status.unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
        let mut response = (status, Json(json!({ "error": kind }))).into_response();
        if let Some(wait) = error.retry_after() {
            let seconds = HeaderValue::from(wait.as_secs_f64().ceil() as u64);
            response.headers_mut().insert(RETRY_AFTER, seconds);
        }
        response
    }
}
