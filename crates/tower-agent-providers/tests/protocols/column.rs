//! A protocol's column of the table.

use http::{HeaderName, HeaderValue};
use serde_json::Value;
use tower_agent::message::{Part, Usage};
use tower_agent_providers::protocol::Framing;
use tower_agent_providers::{HttpClient, HttpModel, Protocol};

use crate::answer::Answer;
use crate::server::{Reply, Server, chunked_as};

/// A protocol, as its servers speak it. Write it from the provider's documentation and recordings,
/// not from the code under test.
pub(crate) trait Column {
    type Protocol: Protocol + Default;

    /// Scenarios that the protocol cannot have, and why.
    const LACKS: &'static [(&'static str, &'static str)] = &[];

    /// The method and the target of a call whose base URL ends with `/v1`.
    const LINE: &'static str;

    /// The field that holds the conversation.
    const MESSAGES: &'static str;

    /// Set if tool calls have ids of the server's.
    const HAS_CALL_IDS: bool = true;

    /// How long an id of a tool call may be, if it may not be any text.
    const CALL_ID_LENGTH: usize = usize::MAX;

    /// Set if an answer names its model.
    const HAS_MODEL: bool = true;

    /// How many of the last events may be missing: what they say is known before.
    const SPARE_EVENTS: usize = 0;

    /// The bytes of an event. An event of a binary format is its name and its data in a line.
    fn framed(event: &str) -> Vec<u8> {
        event.into()
    }

    /// The events of a streamed answer, with the end of each.
    fn events(answer: &Answer) -> Vec<String>;

    /// The plain answer.
    fn body(answer: &Answer) -> Value;

    /// The events of an answer with everything left out that servers leave out.
    fn sparse_events(answer: &Answer) -> Vec<String>;

    /// The plain answer with everything left out that servers leave out.
    fn sparse_body(answer: &Answer) -> Value;

    /// An event of a kind that nobody knows yet.
    fn unknown_event() -> String;

    /// An event that reports `Overloaded.`, of a kind that may be tried again.
    fn error_event() -> String;

    /// The status and the body of a response that reports `Slow down.`, as a rate limit.
    fn error_body() -> (u16, Value);

    /// The header of the key `k`.
    fn key_header() -> (HeaderName, HeaderValue) {
        (
            http::header::AUTHORIZATION,
            HeaderValue::from_static("Bearer k"),
        )
    }

    /// Returns the parts of a request that send back earlier answers: texts, reasoning by its data,
    /// calls and results by their ids, in order. Without the messages of the user.
    fn sent_back(body: &Value) -> Vec<Sent>;

    /// The usage of an [`Answer`], as far as the protocol says it.
    fn usage() -> Usage {
        let mut usage = Usage::new(20, 10);
        usage.cached_input_tokens = 5;
        usage.reasoning_tokens = 7;
        usage
    }

    /// A part that a user's message cannot have.
    fn unsupported_part() -> Part;
}

/// A part that a request sends back.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Sent {
    Text(String),
    Reasoning(String),
    Call(String),
    Result(String),
}

pub(crate) fn model<C: Column>(server: &Server) -> HttpModel<C::Protocol, HttpClient> {
    let builder = HttpModel::<C::Protocol, _>::builder().base_url(&server.base_url);
    builder.api_key("k").model("test-model").build().unwrap()
}

pub(crate) fn media_type<C: Column>() -> &'static str {
    match <C::Protocol as Protocol>::FRAMING {
        Framing::ServerSentEvents => "text/event-stream",
        Framing::Lines => "application/x-ndjson",
        Framing::AwsEventStream => "application/vnd.amazon.eventstream",
        other => panic!("{other:?}"),
    }
}

/// A stream in these pieces.
pub(crate) fn stream_of<C: Column, P: AsRef<[u8]>>(pieces: impl IntoIterator<Item = P>) -> Reply {
    chunked_as(media_type::<C>(), pieces)
}

/// A stream of these events.
pub(crate) fn events_of<C: Column>(events: impl IntoIterator<Item = impl AsRef<str>>) -> Reply {
    let events = events.into_iter();
    stream_of::<C, _>(events.map(|event| C::framed(event.as_ref())))
}

/// The bytes of these events.
pub(crate) fn bytes_of<C: Column>(events: &[String]) -> Vec<u8> {
    events.iter().flat_map(|event| C::framed(event)).collect()
}

pub(crate) fn streamed<C: Column>(answer: &Answer) -> Reply {
    events_of::<C>(C::events(answer))
}
