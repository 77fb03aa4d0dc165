//! Every hook of every call, and every way it can end.
//!
//! Three callbacks, `a`, `b` and `c`, stand in one band, and `b` does something. The rows say what
//! must be seen, in words:
//!
//! | word | what happened |
//! |---|---|
//! | `a>` | `a`'s `before` ran |
//! | `call` | the service was called |
//! | `<a` | `a`'s `after` ran |
//! | `a!why` | `a`'s `on_error` ran and saw the error `why` |
//! | `a=done` | `a`'s `on_end` ran with that outcome |
//!
//! The rows are about the default semantics. A model of a band, worked out from the documentation,
//! predicts them for the presets, and for `b` and `c` both acting.

#![allow(clippy::expect_used, clippy::panic)]

mod band;
mod drops;
mod guards;
mod model;
mod presets;
mod rows;

use tower::{Layer, ServiceExt};
use tower_agent::{AgentRequest, ErrorKind, ModelRequest, RunContext, ToolRequest};

use self::band::{STYLES, Style, Traced, band, panic_on_purpose, service};
use self::rows::{Does, Expected, Latch, Row};
use test_support::call::{Call, Embed};
use test_support::trace::{Trace, poll_times};

/// More polls than any row needs; what is still pending then is dropped.
const POLLS: usize = 64;

#[test]
fn agent() {
    matrix::<AgentRequest>();
}

#[test]
fn model() {
    matrix::<ModelRequest>();
}

#[test]
fn tool() {
    matrix::<ToolRequest>();
}

#[test]
fn a_call_that_the_crate_does_not_know() {
    matrix::<Embed>();
}

fn matrix<R: Call>() {
    for style in STYLES {
        for row in rows::rows()
            .into_iter()
            .filter(|row| style.can(row.hook, row.does))
        {
            check::<R>(&row, style);
        }
    }
}

fn check<R: Call>(row: &Row, style: Style) {
    let label = format!(
        "{} {:?} {:?} over {:?}, {style:?}",
        R::CALL,
        row.hook,
        row.does,
        row.service
    );
    let (trace, seen, context) = (Trace::default(), Trace::default(), RunContext::default());
    let stack = band::<R>(row.hook, row.does, style, &trace).layer(service::<R>(
        row.service,
        &trace,
        &seen,
    ));

    let result = poll_times(stack.oneshot(R::request(context.clone())), POLLS);

    assert_eq!(trace.take(), style.visible(row.trace), "{label}");
    assert_eq!(seen.take(), row.seen, "{label}: what the service was asked");
    match (result, row.result) {
        (Some(Ok(response)), Expected::Done(text, origin)) => {
            assert_eq!(
                (&*R::text(&response), R::origin(&response)),
                (text, origin),
                "{label}"
            );
        }
        (Some(Err(error)), Expected::Fails(kind, message, raised)) => {
            assert_eq!((error.kind(), error.message()), (kind, message), "{label}");
            let by = error.raised_by().map(|by| (&*by.callback, &*by.hook));
            assert_eq!(by, raised.map(|hook| ("b", hook)), "{label}");
            assert_eq!(error.call().map(|call| call.kind), Some(R::CALL), "{label}");
        }
        (None, Expected::Dropped) => {}
        (result, expected) => panic!("{label}: expected {expected:?}, got {result:?}"),
    }
    check_latch::<R>(row.latch, &context, &label);
}

/// Checks the latch, and that it refuses a second call, whatever that would have done.
fn check_latch<R: Call>(latch: Latch, context: &RunContext, label: &str) {
    assert_eq!(
        context.aborted().is_some(),
        latch == Latch::Aborted,
        "{label}"
    );
    let pending: Vec<_> = context
        .interrupts()
        .into_iter()
        .map(|pending| pending.name)
        .collect();
    let expected: &[&str] = if latch == Latch::Interrupted {
        &["wait"]
    } else {
        &[]
    };
    assert_eq!(pending, expected, "{label}");

    let (trace, seen) = (Trace::default(), Trace::default());
    let stack = tower_agent::Callbacks::new()
        .with(Traced::innocent("d", &trace))
        .layer(service::<R>(&[rows::Reply::Answers], &trace, &seen));
    let again = poll_times(stack.oneshot(R::request(context.clone())), POLLS);
    let kind = again
        .expect("nothing waits")
        .err()
        .map(|error| error.kind());
    let (expected, words) = match latch {
        Latch::Open => (None, "d> call <d d=done"),
        Latch::Aborted => (Some(ErrorKind::Aborted), ""),
        Latch::Interrupted => (Some(ErrorKind::Interrupted), ""),
        Latch::Ended => (Some(ErrorKind::InvocationEnded), ""),
    };
    assert_eq!(
        (kind, &*trace.take()),
        (expected, words),
        "{label}: a second call"
    );
}

/// A panic of the service is not the band's to catch, but it still ends the call once.
#[test]
fn a_panic_of_the_service_ends_the_call_as_dropped() {
    let trace = Trace::default();
    let stack = band::<ModelRequest>(rows::Hook::After, Does::Continue, Style::Method, &trace)
        .layer(tower::service_fn(
            async |_: ModelRequest| -> tower_agent::Result<_> { panic_on_purpose("service") },
        ));
    let future = stack.oneshot(ModelRequest::default());
    let panicked = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| poll_times(future, 1)));
    assert!(panicked.is_err());
    assert_eq!(trace.take(), "a> b> c> a=dropped b=dropped c=dropped");
}
