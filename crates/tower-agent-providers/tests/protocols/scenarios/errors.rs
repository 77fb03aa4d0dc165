//! Errors that servers send, before and inside an answer.

use std::sync::{Arc, Mutex};

use tower_agent::{ErrorKind, ModelRequest};
use tower_agent_providers::HttpModel;
use tracing::field::{Field, Visit};
use tracing::span::{Attributes, Id, Record};
use tracing::{Metadata, Subscriber};

use super::read;
use crate::answer::{Answer, call, text};
use crate::column::{Column, bytes_of, events_of, media_type, model};
use crate::server::{Server, json, whole};
use test_support::stream;

pub(crate) async fn an_error_in_place_of_an_answer<C: Column>() {
    let (status, body) = C::error_body();
    // With its status, and behind a status that says nothing of it.
    let replies = [
        json(status, &body),
        json(status, &body),
        json(200, &body),
        json(200, &body),
    ];
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
            assert_eq!(error.metadata().status, Some(status));
        }
    }
}

pub(crate) async fn an_error_before_any_delta<C: Column>() {
    let read = read::<C>(events_of::<C>([C::error_event()])).await;
    assert_eq!(read.deltas, []);
    let error = read.response.unwrap_err();
    assert_eq!(
        (error.kind(), error.message()),
        (ErrorKind::Overloaded, "Overloaded.")
    );
    assert!(error.is_retryable());
    assert_eq!(error.metadata().request_id.as_deref(), Some("req_1"));
}

pub(crate) async fn an_error_after_some_deltas<C: Column>() {
    let answer = Answer::new([text(&["a", "b"]), call("call_1", "now", &["{", "}"])]);
    let events = C::events(&answer);
    let count = events.len() - C::SPARE_EVENTS;
    for kept in 0..count {
        let with_error = events[..kept].iter().cloned().chain([C::error_event()]);
        let read = read::<C>(events_of::<C>(with_error)).await;
        let said: String = events[..kept].concat();
        // The pieces before the error have been passed on.
        assert_eq!(
            read.texts().concat().contains('a'),
            said.contains("\"a\""),
            "{kept}"
        );
        let error = read.response.unwrap_err();
        assert_eq!(
            (error.kind(), error.message()),
            (ErrorKind::Overloaded, "Overloaded.")
        );
        assert!(error.is_retryable());
    }
}

pub(crate) async fn every_error_status_keeps_the_providers_message<C: Column>() {
    let (_, body) = C::error_body();
    for (status, kind) in [
        (400, None),
        (401, Some(ErrorKind::Auth)),
        (403, Some(ErrorKind::Auth)),
        (404, Some(ErrorKind::NotFound)),
        (408, Some(ErrorKind::Timeout)),
        (413, None),
        (422, None),
        (429, Some(ErrorKind::RateLimited)),
        (500, Some(ErrorKind::Provider)),
        (502, Some(ErrorKind::Provider)),
        (503, Some(ErrorKind::Overloaded)),
        (504, Some(ErrorKind::Timeout)),
        (529, Some(ErrorKind::Overloaded)),
    ] {
        let server = Server::start([json(status, &body), json(status, &body)]).await;
        let plain = test_support::call(model::<C>(&server), ModelRequest::default()).await;
        let streamed = stream(model::<C>(&server), ModelRequest::default()).await.0;
        for error in [plain.unwrap_err(), streamed.unwrap_err()] {
            assert!(
                error.message().starts_with("Slow down."),
                "{status}: {error}"
            );
            assert_eq!(error.metadata().status, Some(status));
            // Otherwise the body may say more.
            let Some(kind) = kind else { continue };
            assert_eq!(error.kind(), kind, "{status}");
            assert_eq!(error.is_retryable(), kind.is_retryable(), "{status}");
        }
    }
}

/// Everything that a program could print of an error.
fn printed(error: &tower_agent::Error) -> String {
    let mut all = format!("{error} {error:?} {error:#?} {:?}", error.metadata());
    let mut cause = std::error::Error::source(error);
    while let Some(error) = cause {
        all.push_str(&format!(" {error} {error:?}"));
        cause = error.source();
    }
    all
}

pub(crate) async fn the_key_is_nowhere_to_be_read<C: Column>() {
    const KEY: &str = "sk-for-nobody/else+0123456789==";
    let tells = |text: String| text.replace("Slow down.", KEY).replace("Overloaded.", KEY);
    let body = tells(C::error_body().1.to_string());
    let content_type = [("content-type", "application/json"), ("x-request-id", KEY)];
    let head = whole(401, &content_type, &body);
    let garbage = whole(200, &content_type, format!("{{\"a\": \"{KEY}\""));
    let event = events_of::<C>([tells(C::error_event())]);
    let replies = [head.clone(), head, garbage.clone(), garbage, event];
    let server = Server::start(replies).await;

    let logged = Logged::default();
    let guard = tracing::subscriber::set_default(logged.clone());
    let builder = HttpModel::<C::Protocol, _>::builder().base_url(&server.base_url);
    let builder = builder.api_key(KEY).model("test-model");
    let mut all = format!("{builder:?} {builder:#?}");
    let model = builder.build().unwrap();
    all.push_str(&format!("{model:?} {model:#?}"));
    for _ in 0..2 {
        let plain = test_support::call(model.clone(), ModelRequest::default()).await;
        all.push_str(&printed(&plain.unwrap_err()));
        let (streamed, _) = stream(model.clone(), ModelRequest::default()).await;
        all.push_str(&printed(&streamed.unwrap_err()));
    }
    let (streamed, _) = stream(model.clone(), ModelRequest::default()).await;
    all.push_str(&printed(&streamed.unwrap_err()));
    drop(guard);
    all.push_str(&logged.take());
    // The key was sent, and what the server repeated was shown as hidden.
    assert!(server.seen().iter().all(|seen| seen.head.contains(KEY)));
    assert!(all.contains("[hidden]"), "{all}");
    let from = all.find("sk-for").map_or(0, |at| at.saturating_sub(40));
    assert!(
        !all.contains("sk-for") && !all.contains("0123456789"),
        "{}",
        &all[from..]
    );
}

/// Writes down whatever is logged in this thread.
#[derive(Clone, Default)]
struct Logged(Arc<Mutex<String>>);

impl Logged {
    fn take(&self) -> String {
        std::mem::take(&mut *self.0.lock().unwrap())
    }
}

impl Visit for Logged {
    fn record_debug(&mut self, field: &Field, value: &dyn std::fmt::Debug) {
        self.0
            .lock()
            .unwrap()
            .push_str(&format!("{field}={value:?} "));
    }
}

impl Subscriber for Logged {
    fn enabled(&self, _: &Metadata<'_>) -> bool {
        true
    }

    fn new_span(&self, span: &Attributes<'_>) -> Id {
        span.record(&mut self.clone());
        Id::from_u64(1)
    }

    fn record(&self, _: &Id, values: &Record<'_>) {
        values.record(&mut self.clone());
    }

    fn event(&self, event: &tracing::Event<'_>) {
        event.record(&mut self.clone());
    }

    fn record_follows_from(&self, _: &Id, _: &Id) {}
    fn enter(&self, _: &Id) {}
    fn exit(&self, _: &Id) {}
}

/// OpenAI's spelling and Anthropic's, whoever sends them.
pub(crate) async fn limits_and_ids_of_the_head_are_kept<C: Column>() {
    let answer = Answer::new([text(&["ok"])]);
    let events = bytes_of::<C>(&C::events(&answer));
    let plain = C::body(&answer).to_string();
    let failed = C::error_body().1.to_string();
    for (limit, id) in [
        ("x-ratelimit-remaining-tokens", "x-request-id"),
        ("anthropic-ratelimit-tokens-remaining", "request-id"),
    ] {
        let head = |media_type| [("content-type", media_type), (limit, "5"), (id, "req_7")];
        let server = Server::start([
            whole(200, &head("application/json"), &plain),
            whole(429, &head("application/json"), &failed),
            whole(200, &head(media_type::<C>()), &events),
            whole(200, &head(media_type::<C>()), C::framed(&C::error_event())),
        ])
        .await;
        let model = model::<C>(&server);
        let request = ModelRequest::default;
        let plain = test_support::call(model.clone(), request()).await.unwrap();
        let refused = test_support::call(model.clone(), request())
            .await
            .unwrap_err();
        let streamed = stream(model.clone(), request()).await.0.unwrap();
        let broken = stream(model, request()).await.0.unwrap_err();
        for metadata in [
            plain.metadata(),
            refused.metadata(),
            streamed.metadata(),
            broken.metadata(),
        ] {
            assert_eq!(metadata.rate_limits, [(limit.into(), "5".into())].into());
            assert_eq!(metadata.request_id.as_deref(), Some("req_7"));
        }
    }
}
