//! Errors that servers send, before and inside an answer.

use tower_agent::{ErrorKind, ModelRequest};

use super::read;
use crate::answer::{Answer, call, text};
use crate::column::{Column, model, stream_of};
use crate::server::{Server, json};
use test_support::stream;

pub(crate) async fn an_error_in_place_of_an_answer<C: Column>() {
    let (status, body) = C::error_body();
    // With its status, and behind a status that says nothing of it.
    let replies = [json(status, &body), json(status, &body), json(200, &body), json(200, &body)];
    let server = Server::start(replies).await;
    let model = model::<C>(&server);
    for status in [status, 200] {
        let plain = test_support::call(model.clone(), ModelRequest::default()).await;
        let (streamed, events) = stream(model.clone(), ModelRequest::default()).await;
        assert!(events.is_empty());
        for error in [plain.unwrap_err(), streamed.unwrap_err()] {
            assert_eq!(error.kind(), ErrorKind::RateLimited, "{status}: {error:?}");
            assert_eq!(error.message(), "Slow down.", "{status}");
            assert!(error.is_retryable(), "{status}");
            assert_eq!(error.metadata().status(), Some(status));
        }
    }
}

pub(crate) async fn an_error_before_any_delta<C: Column>() {
    let read = read::<C>(stream_of::<C, _>([C::error_event()])).await;
    assert_eq!(read.deltas, []);
    let error = read.response.unwrap_err();
    assert_eq!((error.kind(), error.message()), (ErrorKind::Overloaded, "Overloaded."));
    assert!(error.is_retryable());
    assert_eq!(error.metadata().request_id(), Some("req_1"));
}

pub(crate) async fn an_error_after_some_deltas<C: Column>() {
    let answer = Answer::new([text(&["a", "b"]), call("call_1", "now", &["{", "}"])]);
    let events = C::events(&answer);
    let count = events.len() - C::SPARE_EVENTS;
    for kept in 0..count {
        let with_error = events[..kept].iter().cloned().chain([C::error_event()]);
        let read = read::<C>(stream_of::<C, _>(with_error)).await;
        let said: String = events[..kept].concat();
        // What came before the error has been passed on.
        assert_eq!(read.texts().concat().contains('a'), said.contains("\"a\""), "{kept}");
        let error = read.response.unwrap_err();
        assert_eq!((error.kind(), error.message()), (ErrorKind::Overloaded, "Overloaded."));
        assert!(error.is_retryable());
    }
}
