use std::fmt;
use std::future::pending;
use std::sync::Arc;
use std::time::Duration;

use serde_json::Value;
use tower_agent::error::{Error, Result};
use tower_agent::message::{Message, Part, Role, ToolCall, Usage};
use tower_agent::model::{FinishReason, ModelRequest, ModelResponse};
use tower_agent::stream::{Attempt, Delta, Piece};

/// One response of a [`ScriptedModel`](super::ScriptedModel).
///
/// ```
/// use std::time::Duration;
/// use serde_json::json;
/// use tower_agent::{Error, ErrorKind, ModelResponse, Usage};
/// use tower_agent_test::Turn;
///
/// let overloaded = Error::new(ErrorKind::Overloaded, "come back later");
/// let turns = [
///     Turn::from_text("hi").usage(Usage::new(12, 1)),
///     Turn::tool("add", json!({ "a": 1, "b": 2 })).and_tool("add", json!({ "a": 3, "b": 4 })),
///     Turn::error(overloaded.clone()),
///     Turn::from_text("late").latency(Duration::from_secs(5)),
///     Turn::from_text("broken off").failing_after(2, overloaded),
///     Turn::function(|request| Ok(ModelResponse::from_text(request.messages().len().to_string()))),
///     Turn::pending(),
/// ];
/// # drop(turns);
/// ```
#[derive(Clone)]
#[must_use = "a turn does nothing until a script contains it"]
pub struct Turn {
    response: TurnResponse,
    usage: Option<Usage>,
    latency: Duration,
    fault: Option<Fault>,
}

type Make = dyn Fn(&ModelRequest) -> Result<ModelResponse> + Send + Sync;

#[derive(Clone)]
enum TurnResponse {
    Fixed(ModelResponse),
    Made(Arc<Make>),
}

/// The point at which a response fails. Without an error it hangs.
#[derive(Clone, Debug)]
struct Fault {
    after: usize,
    error: Option<Error>,
}

impl Turn {
    /// Creates a response of text.
    pub fn from_text(text: impl Into<String>) -> Self {
        Self::response(ModelResponse::from_text(text))
    }

    /// Creates a response with one tool call. The script numbers its calls: `call_1`, `call_2` and
    /// so on.
    pub fn tool(name: impl Into<Arc<str>>, arguments: Value) -> Self {
        let silent = ModelResponse::new(Message::new(Role::Assistant, []));
        Self::response(silent).and_tool(name, arguments)
    }

    /// Uses this response. Tool calls with an empty id are given one.
    pub fn response(response: ModelResponse) -> Self {
        Self::of(TurnResponse::Fixed(response))
    }

    /// Computes the response from the request.
    pub fn function(
        function: impl Fn(&ModelRequest) -> Result<ModelResponse> + Send + Sync + 'static,
    ) -> Self {
        Self::of(TurnResponse::Made(Arc::new(function)))
    }

    /// Fails before any output.
    pub fn error(error: Error) -> Self {
        Self::from_text("").failing_after(0, error)
    }

    /// Never responds.
    pub fn pending() -> Self {
        Self::from_text("").hanging_after(0)
    }

    fn of(response: TurnResponse) -> Self {
        Self {
            response,
            usage: None,
            latency: Duration::ZERO,
            fault: None,
        }
    }

    /// Adds a tool call. Has no effect on a turn made by [`function`](Self::function),
    /// [`error`](Self::error) or [`pending`](Self::pending).
    pub fn and_tool(mut self, name: impl Into<Arc<str>>, arguments: Value) -> Self {
        if let TurnResponse::Fixed(response) = self.response {
            let call = ToolCall::new("", name, arguments);
            let response = response.with_tool_call(call);
            self.response =
                TurnResponse::Fixed(response.with_finish_reason(FinishReason::ToolCalls));
        }
        self
    }

    /// Sets the token usage.
    pub fn usage(mut self, usage: Usage) -> Self {
        self.usage = Some(usage);
        self
    }

    /// Delays the turn by this much of `tokio`'s time, which a test can pause.
    pub fn latency(mut self, latency: Duration) -> Self {
        self.latency = latency;
        self
    }

    /// Fails with `error` after `deltas` deltas, or after all of them if there are fewer. A call
    /// that is not streamed just fails.
    pub fn failing_after(mut self, deltas: usize, error: Error) -> Self {
        self.fault = Some(Fault {
            after: deltas,
            error: Some(error),
        });
        self
    }

    /// Hangs after `deltas` deltas. A call that is not streamed just hangs.
    pub fn hanging_after(mut self, deltas: usize) -> Self {
        self.fault = Some(Fault {
            after: deltas,
            error: None,
        });
        self
    }

    pub(super) async fn play(
        self,
        request: ModelRequest,
        chunk: usize,
        name_call: impl FnMut() -> Arc<str>,
    ) -> Result<ModelResponse> {
        if !self.latency.is_zero() {
            tokio::time::sleep(self.latency).await;
        }
        if let Some(fault) = &self.fault
            && (fault.after == 0 || request.delta_sender().is_none())
        {
            return fault.strike().await;
        }
        let mut response = match self.response {
            TurnResponse::Fixed(response) => response,
            TurnResponse::Made(make) => make(&request)?,
        };
        if let Some(usage) = self.usage {
            response = response.with_usage(usage);
        }
        name_calls(&mut response, name_call);
        let Some(sink) = request.delta_sender() else {
            return Ok(response);
        };

        // Opened last: a turn that hangs or fails before any output leaves no attempt behind.
        let mut attempt = sink.open();
        let after = self.fault.as_ref().map_or(usize::MAX, |fault| fault.after);
        for piece in pieces(response.message(), chunk).into_iter().take(after) {
            attempt.send(piece).await?;
        }
        match self.fault {
            // The attempt is dropped with the future, as that of a provider whose connection
            // breaks.
            Some(fault) => fault.strike().await,
            None => streamed(response, attempt).await,
        }
    }
}

impl Fault {
    async fn strike<T>(&self) -> Result<T> {
        match &self.error {
            Some(error) => Err(error.clone()),
            None => pending().await,
        }
    }
}

async fn streamed(response: ModelResponse, attempt: Attempt) -> Result<ModelResponse> {
    Ok(ModelResponse::from(attempt.finish().await?)
        .with_finish_reason(response.finish_reason().clone())
        .with_usage(response.usage())
        .with_metadata(response.metadata().clone()))
}

fn name_calls(response: &mut ModelResponse, mut name: impl FnMut() -> Arc<str>) {
    // Checked first, because changing a shared message copies it.
    if response
        .message()
        .tool_calls()
        .any(|call| call.id.is_empty())
    {
        for part in response.message_mut().parts_mut() {
            if let Part::ToolCall(call) = part
                && call.id.is_empty()
            {
                call.id = name();
            }
        }
    }
}

/// Returns the pieces that a provider would send, with `size` characters in each delta.
fn pieces(message: &Message, size: usize) -> Vec<Piece> {
    let mut pieces = Vec::new();
    for (index, part) in message.parts().iter().enumerate() {
        match part {
            Part::Text(part) if part.provider.is_empty() => {
                pieces.extend(chunks(&part.text, size).map(Delta::Text).map(Piece::from));
            }
            Part::Reasoning(part) => {
                let deltas = chunks(&part.text, size).map(Delta::Reasoning);
                pieces.extend(deltas.map(Piece::from));
                let is_followed =
                    matches!(message.parts().get(index + 1), Some(Part::Reasoning(_)));
                // Two reasoning parts in a row would otherwise become one.
                if is_followed || !part.provider.is_empty() {
                    pieces.push(Piece::ReasoningEnd(part.provider.clone()));
                }
            }
            // Deltas have no place for provider data: a call that has some is sent whole.
            Part::ToolCall(call) if call.provider.is_empty() => {
                pieces.push(Piece::Delta(Delta::ToolCall {
                    index,
                    id: call.id.clone(),
                    name: call.name.clone(),
                }));
                let chunks = chunks(call.arguments.as_str(), size);
                pieces.extend(chunks.map(|json| Delta::Arguments { index, json }.into()));
            }
            part => pieces.push(part.clone().into()),
        }
    }
    pieces
}

fn chunks(text: &str, size: usize) -> impl Iterator<Item = String> {
    // By characters, so that no delta ends inside one.
    let mut characters = text.chars().peekable();
    std::iter::from_fn(move || {
        characters.peek()?;
        Some(characters.by_ref().take(size).collect())
    })
}

impl fmt::Debug for Turn {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut debug = f.debug_struct("Turn");
        match &self.response {
            TurnResponse::Fixed(response) => debug.field("response", response),
            TurnResponse::Made(_) => debug.field("response", &"of the request"),
        };
        debug
            .field("latency", &self.latency)
            .field("fault", &self.fault)
            .finish_non_exhaustive()
    }
}
