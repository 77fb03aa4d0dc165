use std::collections::VecDeque;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll};

use futures_util::future::BoxFuture;
use tower::Service;
use tower_agent::error::{Error, ErrorKind, Result};
use tower_agent::model::{ModelRequest, ModelResponse};

use super::turn::Turn;
use crate::lock::lock;
use crate::without_sink::without_sink;

/// A model that follows a script: one [`Turn`] for each call, in order.
///
/// It is strict: a call beyond the end of the script fails and is recorded. Clones share the
/// script. It is always ready.
///
/// If the request has a sink, the response is streamed; parts that have no delta, such as images,
/// are not streamed.
///
/// ```
/// use tower::ServiceExt;
/// use tower_agent::{Message, ModelRequest};
/// use tower_agent_test::{ScriptedModel, Turn};
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> tower_agent::Result<()> {
/// let model = ScriptedModel::new([Turn::from_text("blue")]);
/// let request = ModelRequest::new([Message::user("Name a colour.")]);
///
/// assert_eq!(model.clone().oneshot(request.clone()).await?.message().text(), "blue");
/// model.assert_done();
/// assert_eq!(model.requests()[0].messages()[0].text(), "Name a colour.");
///
/// let error = model.clone().oneshot(request).await.unwrap_err();
/// assert_eq!(error.message(), "unexpected model call 2: the script ends after call 1");
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug)]
pub struct ScriptedModel {
    shared: Arc<SharedScript>,
    chunk: usize,
}

#[derive(Debug)]
struct SharedScript {
    /// The turn of every call, instead of a script.
    always: Option<Turn>,
    length: usize,
    state: Mutex<ScriptState>,
    /// Number of ids given to tool calls.
    tool_calls: AtomicUsize,
}

/// The turns that are left, and the requests so far.
#[derive(Debug)]
struct ScriptState {
    left: VecDeque<Turn>,
    requests: Vec<ModelRequest>,
}

impl ScriptedModel {
    /// Creates a model that responds with these turns, in order.
    #[must_use]
    pub fn new(turns: impl IntoIterator<Item = Turn>) -> Self {
        Self::of(turns.into_iter().collect(), None)
    }

    /// Creates a model that responds to every call with `turn`. It records no requests, so that
    /// long benchmarks can use it.
    #[must_use]
    pub fn always(turn: Turn) -> Self {
        Self::of(VecDeque::new(), Some(turn))
    }

    fn of(left: VecDeque<Turn>, always: Option<Turn>) -> Self {
        let requests = Vec::new();
        Self {
            shared: Arc::new(SharedScript {
                always,
                length: left.len(),
                state: Mutex::new(ScriptState { left, requests }),
                tool_calls: AtomicUsize::new(0),
            }),
            chunk: 4,
        }
    }

    /// Sets the number of characters in a delta. Defaults to 4.
    #[must_use]
    pub fn chunk_size(mut self, characters: usize) -> Self {
        self.chunk = characters.max(1);
        self
    }

    /// Returns the requests so far, without their sinks. Those beyond the script are included.
    #[must_use]
    pub fn requests(&self) -> Vec<ModelRequest> {
        lock(&self.shared.state).requests.clone()
    }

    /// Asserts that there was exactly one call for each turn of the script.
    ///
    /// # Panics
    ///
    /// Panics if there were fewer or more calls than turns.
    #[track_caller]
    pub fn assert_done(&self) {
        let length = self.shared.length;
        let calls = self.requests().len();
        assert!(
            calls == length,
            "the script ends after call {length}, but there were {calls} calls"
        );
    }
}

impl SharedScript {
    fn next(&self, request: &ModelRequest) -> Result<Turn> {
        if let Some(turn) = &self.always {
            return Ok(turn.clone());
        }
        let mut state = lock(&self.state);
        // Before the turn is taken, so that a call beyond the script is recorded as well.
        state.requests.push(without_sink(request));
        state.left.pop_front().ok_or_else(|| {
            let call = state.requests.len();
            let message = format!(
                "unexpected model call {call}: the script ends after call {}",
                self.length
            );
            Error::new(ErrorKind::Other, message)
        })
    }

    /// Returns the next id of a tool call.
    fn name_call(&self) -> Arc<str> {
        let number = self.tool_calls.fetch_add(1, Ordering::Relaxed) + 1;
        format!("call_{number}").into()
    }
}

impl Service<ModelRequest> for ScriptedModel {
    type Response = ModelResponse;
    type Error = Error;
    type Future = BoxFuture<'static, Result<ModelResponse>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: ModelRequest) -> Self::Future {
        // Taken in `call` and not in the future: the script follows the order of the calls.
        let turn = self.shared.next(&request);
        let shared = self.shared.clone();
        let chunk = self.chunk;
        Box::pin(async move { turn?.play(request, chunk, || shared.name_call()).await })
    }
}
