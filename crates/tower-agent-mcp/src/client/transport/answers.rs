//! Finds the request that an answer over HTTP belongs to.

use std::collections::{HashMap, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard};

use rmcp::model::{GetExtensions, RequestId, ServerJsonRpcMessage};
use rmcp::service::InboundStreamOrigin;
use serde::Deserialize;
use serde::de::IgnoredAny;
use serde_json::{Map, Value, json};
use tokio::sync::Notify;
use tokio::time::{Duration, Instant};

use crate::client::backoff::Backoff;
use crate::lock::lock;

/// The time after which a stream counts as one that did not end at once.
const LONG: Duration = Duration::from_secs(30);

/// The code of an error that has none that can be read.
const INTERNAL_ERROR: i64 = -32603;

/// The requests of one connection that wait for an answer.
///
/// The answer to a POST is the answer to its request, whatever id it has: a server that could not
/// read a request, or did not want to, answers with the id `null`. rmcp knows answers by their id
/// alone, and the call would wait for its timeout.
#[derive(Debug, Default)]
pub(super) struct Answers {
    state: Mutex<Awaited>,
    /// Told of each message in `Awaited::others`.
    arrived: Notify,
}

#[derive(Debug, Default)]
struct Awaited {
    waiting: HashMap<RequestId, ResponseStream>,
    /// The waits of the stream that belongs to no request.
    unasked: Backoff,
    /// Messages that came with an answer, for the connection to read.
    others: VecDeque<ServerJsonRpcMessage>,
}

/// The stream with the answer to a request.
#[derive(Debug, Default)]
struct ResponseStream {
    /// The id of its last event, from which the stream can be resumed.
    last_event: Option<String>,
    backoff: Backoff,
}

/// The fields in which a message says what it is.
#[derive(Deserialize)]
struct Head {
    id: Option<Value>,
    method: Option<IgnoredAny>,
    result: Option<IgnoredAny>,
    error: Option<IgnoredAny>,
}

/// The messages in an answer.
pub(super) struct Sorted {
    /// The messages before the answer to the request, in order.
    pub(super) before: Vec<Value>,
    /// The answer to the request, with its id.
    pub(super) own: Option<Value>,
    /// Set if the server has given it none: by JSON-RPC it has not read the request then.
    pub(super) is_without_id: bool,
}

impl Answers {
    /// Records a request that is about to be sent.
    pub(super) fn begin(&self, id: &RequestId) {
        self.lock()
            .waiting
            .insert(normal(id), ResponseStream::default());
    }

    /// Records that a request waits no longer.
    pub(super) fn end(&self, id: &RequestId) {
        self.lock().waiting.remove(&normal(id));
    }

    /// Sorts the messages of an answer to this request, or of a stream that belongs to none. `None`
    /// if it is one message and needs no change.
    ///
    /// The answers to other requests go to them.
    pub(super) fn sort(&self, answer: &str, to: Option<&RequestId>) -> Option<Sorted> {
        let is_list = answer.trim_start().starts_with('[');
        if !is_list {
            let to = to?;
            let head: Head = serde_json::from_str(answer).ok()?;
            let is_own = head.id.as_ref().is_some_and(|id| is(id, to));
            // An error, or nothing at all, is small, and is made readable below.
            let is_result = head.result.is_some() && head.error.is_none();
            if head.method.is_some() || is_own && is_result {
                return None;
            }
        }
        let messages = match serde_json::from_str(answer).ok()? {
            Value::Array(messages) => messages,
            message => vec![message],
        };
        let mut sorted = Sorted {
            before: Vec::new(),
            own: None,
            is_without_id: false,
        };
        let mut without_request = None;
        for message in messages {
            let Value::Object(message) = message else {
                continue;
            };
            let Some(to) = to.filter(|_| !message.contains_key("method")) else {
                sorted.before.push(message.into());
                continue;
            };
            // A map, and no value, panics at an index that it does not have.
            let id = message.get("id").unwrap_or(&Value::Null);
            if is(id, to) {
                sorted.own.get_or_insert(own(message, to));
            } else if self.is_waiting(id) {
                self.pass_on_value(message.into(), None);
            } else {
                without_request.get_or_insert(message);
            }
        }
        if sorted.own.is_none()
            && let Some(to) = to
            && let Some(message) = without_request
        {
            sorted.is_without_id = message.get("id").is_none_or(Value::is_null);
            sorted.own = Some(own(message, to));
        }
        Some(sorted)
    }

    /// Gives the connection a message that came with the answer to a request.
    pub(super) fn pass_on(&self, mut message: ServerJsonRpcMessage, with: Option<&RequestId>) {
        if let (ServerJsonRpcMessage::Request(request), Some(with)) = (&mut message, with) {
            let origin = InboundStreamOrigin::OutboundRequest(with.clone());
            request.request.extensions_mut().insert(origin);
        }
        self.lock().others.push_back(message);
        self.arrived.notify_one();
    }

    /// [Passes on](Self::pass_on) a message that is not read yet.
    pub(super) fn pass_on_value(&self, message: Value, with: Option<&RequestId>) {
        match serde_json::from_value(message) {
            Ok(message) => self.pass_on(message, with),
            Err(error) => tracing::debug!(%error, "a message beside an answer was dropped"),
        }
    }

    /// Returns the next message that was [passed on](Self::pass_on).
    pub(super) async fn next_other(&self) -> ServerJsonRpcMessage {
        loop {
            let message = self.lock().others.pop_front();
            match message {
                Some(message) => return message,
                None => self.arrived.notified().await,
            }
        }
    }

    /// Records an event of the stream that answers a request.
    pub(super) fn note_event(&self, of: &RequestId, event: &str) {
        if let Some(stream) = self.lock().waiting.get_mut(&normal(of)) {
            stream.last_event = Some(event.to_owned());
        }
    }

    /// Returns the request whose stream ended after this event.
    pub(super) fn resumed_after(&self, event: &str) -> Option<RequestId> {
        let state = self.lock();
        let mut waiting = state.waiting.iter();
        waiting
            .find(|(_, stream)| stream.last_event.as_deref() == Some(event))
            .map(|(id, _)| id.clone())
    }

    /// Returns how long to wait before a stream is opened again, beside what the server asks for.
    pub(super) fn wait_before_stream(&self, of: Option<&RequestId>) -> Duration {
        self.lock()
            .backoff(of)
            .map(Backoff::next)
            .unwrap_or_default()
    }

    fn reset_backoff(&self, of: Option<&RequestId>) {
        if let Some(backoff) = self.lock().backoff(of) {
            backoff.reset();
        }
    }

    fn is_waiting(&self, id: &Value) -> bool {
        request_id(id).is_some_and(|id| self.lock().waiting.contains_key(&id))
    }

    fn lock(&self) -> MutexGuard<'_, Awaited> {
        lock(&self.state)
    }
}

impl Awaited {
    fn backoff(&mut self, of: Option<&RequestId>) -> Option<&mut Backoff> {
        match of {
            Some(id) => self
                .waiting
                .get_mut(&normal(id))
                .map(|stream| &mut stream.backoff),
            None => Some(&mut self.unasked),
        }
    }
}

/// A stream that was opened again and again: one with a message, or a long one, ends its waits.
pub(super) struct Opened {
    answers: Arc<Answers>,
    of: Option<RequestId>,
    at: Instant,
}

impl Opened {
    pub(super) fn new(answers: Arc<Answers>, of: Option<RequestId>) -> Self {
        let at = Instant::now();
        Self { answers, of, at }
    }

    pub(super) fn note_message(&self) {
        self.answers.reset_backoff(self.of.as_ref());
    }
}

impl Drop for Opened {
    fn drop(&mut self) {
        if self.at.elapsed() >= LONG {
            self.note_message();
        }
    }
}

/// Returns the answer to a request in a form that rmcp reads.
fn own(mut answer: Map<String, Value>, to: &RequestId) -> Value {
    answer.insert("jsonrpc".to_owned(), "2.0".into());
    answer.insert("id".to_owned(), json!(to));
    let error = answer.remove("error").filter(|error| !error.is_null());
    let error = match (error, answer.get("result")) {
        (Some(error), _) => Some(readable_error(&error)),
        (None, None | Some(Value::Null)) => Some(readable_error(
            &"the answer has neither a result nor an error".into(),
        )),
        (None, Some(_)) => None,
    };
    if let Some(error) = error {
        answer.remove("result");
        answer.insert("error".to_owned(), error);
    }
    answer.into()
}

/// Returns an error with a code and a message.
pub(super) fn readable_error(error: &Value) -> Value {
    let code = error["code"].as_i64();
    let code = code.filter(|code| i32::try_from(*code).is_ok());
    let message = error["message"].as_str().or(error.as_str());
    json!({
        "code": code.unwrap_or(INTERNAL_ERROR),
        "message": message.map_or_else(|| error.to_string(), str::to_owned),
        "data": error["data"],
    })
}

/// Returns whether this is the id of a request.
pub(super) fn is(id: &Value, request: &RequestId) -> bool {
    request_id(id).is_some_and(|id| id == normal(request))
}

fn request_id(id: &Value) -> Option<RequestId> {
    let id: RequestId = serde_json::from_value(id.clone()).ok()?;
    Some(normal(&id))
}

/// Returns an id in its one form: some servers answer to the number 7 with the text "7".
fn normal(id: &RequestId) -> RequestId {
    match id {
        RequestId::String(text) => text.parse().map_or_else(|_| id.clone(), RequestId::Number),
        RequestId::Number(_) => id.clone(),
    }
}
