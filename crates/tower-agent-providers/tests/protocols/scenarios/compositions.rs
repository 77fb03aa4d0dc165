//! A model within the middleware that programs put around it.

use std::time::Duration;

use tower::ServiceBuilder;
use tower_agent::stream::{Delta, Event, EventKind};
use tower_agent::{ErrorKind, Message, ModelRequest};
use tower_agent_middleware::retry::CallRetryLayer;

use super::assert_said;
use crate::answer::{Answer, call, text};
use crate::column::{Column, events_of, model, streamed};
use crate::server::{Reply, Server, unfinished_as};
use test_support::{deltas, stream};

fn answer() -> Answer {
    Answer::new([
        text(&["Hel", "lo."]),
        call("call_1", "look", &["{\"at\":", "1}"]),
    ])
}

/// Streams that fail after the first word: the server says so, is cut off, or hangs up.
fn broken<C: Column>() -> [Reply; 3] {
    let events = C::events(&answer());
    let first = events
        .iter()
        .position(|event| event.contains("\"Hel\""))
        .unwrap();
    let begun = &events[..=first];
    [
        events_of::<C>(begun.iter().cloned().chain([C::error_event()])),
        events_of::<C>(begun),
        unfinished_as(
            crate::column::media_type::<C>(),
            begun.iter().map(|event| C::framed(event)),
        ),
    ]
}

fn texts(events: &[Event]) -> String {
    let texts = deltas(events.to_vec())
        .into_iter()
        .filter_map(|delta| match delta {
            Delta::Text(text) => Some(text),
            _ => None,
        });
    texts.collect()
}

fn retry() -> CallRetryLayer {
    CallRetryLayer::new()
        .max_attempts(2)
        .backoff(Duration::ZERO, Duration::ZERO)
}

pub(crate) async fn a_stream_that_failed_begins_again_if_it_may<C: Column>() {
    for reply in broken::<C>() {
        let server = Server::start([reply, streamed::<C>(&answer())]).await;
        let retry = retry().restart_streams(true);
        let model = ServiceBuilder::new()
            .layer(retry)
            .service(model::<C>(&server));
        let request = ModelRequest::new([Message::user("What do you see?")]);
        let (response, events) = stream(model, request).await;
        let response = response.unwrap();
        assert_said::<C>(&response, &answer());
        assert_eq!(response.usage(), C::usage(), "only of the answer");
        assert_eq!(response.attempt(), Some(1));
        let is_discarded = |event: &Event| matches!(event.kind, EventKind::AttemptDiscarded { .. });
        let (before, after) = events.split_at(events.iter().position(is_discarded).unwrap());
        assert_eq!((&*texts(before), &*texts(after)), ("Hel", "Hello."));
        let [first, second] = &server.seen()[..] else {
            panic!("{:?}", server.seen())
        };
        assert_eq!(first.text, second.text, "the same request");
    }
}

/// Text that was shown cannot be taken back without a word.
pub(crate) async fn a_stream_that_failed_is_not_tried_again_unasked<C: Column>() {
    for reply in broken::<C>() {
        let server = Server::start([reply, streamed::<C>(&answer())]).await;
        let model = ServiceBuilder::new()
            .layer(retry())
            .service(model::<C>(&server));
        let (response, events) = stream(model, ModelRequest::default()).await;
        let error = response.unwrap_err();
        assert!(error.is_retryable(), "{error}");
        assert_ne!(error.kind(), ErrorKind::Other);
        assert_eq!(texts(&events), "Hel");
        assert_eq!(server.seen().len(), 1);
    }
}
