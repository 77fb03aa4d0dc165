//! The table. Each row follows from the documentation of `callback`, not from what the code does.

use tower_agent::ErrorKind;
use tower_agent::call::Origin;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Hook {
    Before,
    After,
    OnError,
    OnEnd,
}

/// The behaviour of `b` in its hook. In the others it does nothing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Does {
    Continue,
    SkipRest,
    Respond,
    Error,
    Abort,
    Interrupt,
    EndInvocation,
    Panic,
    /// Waits until the call is dropped.
    Hang,
    // Only an `on_error` can do these:
    Fail,
    FailWithAbort,
    FailWithInterrupt,
    FailWithEnd,
    Retry,
    Fallback,
}

/// The service's reply to each call; the last of a row's is repeated.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Reply {
    Answers,
    Fails,
    Aborts,
    Interrupts,
    Ends,
    Hangs,
}

#[derive(Clone, Copy, Debug)]
pub(crate) enum Expected {
    Done(&'static str, Origin),
    /// Kind, message, and the hook of `b` that raised it.
    Fails(ErrorKind, &'static str, Option<&'static str>),
    Dropped,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Latch {
    Open,
    Aborted,
    Interrupted,
    Ended,
}

#[derive(Clone, Debug)]
pub(crate) struct Row {
    pub(crate) hook: Hook,
    pub(crate) does: Does,
    pub(crate) service: &'static [Reply],
    pub(crate) trace: &'static str,
    /// The notes that the service read in the request at each call.
    pub(crate) seen: &'static str,
    pub(crate) result: Expected,
    pub(crate) latch: Latch,
}

const OK: &[Reply] = &[Reply::Answers];
const FAILS: &[Reply] = &[Reply::Fails];

pub(crate) const INTERRUPTED: &str = "waiting for input_required";
pub(crate) const ENDED: &str = "a callback ended the invocation";

#[rustfmt::skip]
pub(crate) fn rows() -> Vec<Row> {
    use Does::*;
    use Expected::{Done, Dropped, Fails};
    use Hook::*;
    use Latch::{Aborted, Ended, Interrupted, Open};
    use tower_agent::ErrorKind as Kind;

    let served = Done("service", Origin::Service);
    let unserved = Fails(Kind::Provider, "service", None);
    let row = |hook, does, service, trace, result, latch| {
        // `b` notes `b` in its `before`, and `+` in an `on_error` that retries.
        let seen = match (hook, does) {
            (OnError, Retry) => "b b+",
            _ if str::contains(trace, "call") => "b",
            _ => "",
        };
        Row { hook, does, service, trace, seen, result, latch }
    };
    let mut rows = vec![
        // A `before` decides about the call; an error of it is not for this band's `on_error`.
        row(Before, Continue, OK, "a> b> c> call <a <b <c a=done b=done c=done", served, Open),
        row(Before, SkipRest, OK, "a> b> call <a <b <c a=done b=done c=done", served, Open),
        row(Before, SkipRest, FAILS, "a> b> call a!service b!service c!service a=failed b=failed c=failed", unserved, Open),
        row(Before, Respond, OK, "a> b> <a <b <c a=done b=done c=done", Done("b", Origin::Before), Open),
        row(Before, Error, OK, "a> b> a=failed b=failed", Fails(Kind::Auth, "b", Some("before")), Open),
        row(Before, Abort, OK, "a> b> a=failed b=failed", Fails(Kind::Aborted, "b", Some("before")), Aborted),
        row(Before, Interrupt, OK, "a> b> a=failed b=failed", Fails(Kind::Interrupted, INTERRUPTED, Some("before")), Interrupted),
        row(Before, EndInvocation, OK, "a> b> a=failed b=failed", Fails(Kind::InvocationEnded, ENDED, Some("before")), Ended),
        row(Before, Panic, OK, "a> b> a=failed b=failed", Fails(Kind::Callback, "panicked: b", Some("before")), Open),
        row(Before, Hang, OK, "a> b> a=dropped b=dropped", Dropped, Open),

        // An `after` decides about the response. An interrupt or an end leaves the call its own.
        row(After, Continue, OK, "a> b> c> call <a <b <c a=done b=done c=done", served, Open),
        row(After, SkipRest, OK, "a> b> c> call <a <b a=done b=done c=done", served, Open),
        row(After, Respond, OK, "a> b> c> call <a <b <c a=done b=done c=done", Done("b", Origin::After), Open),
        row(After, Error, OK, "a> b> c> call <a <b a=failed b=failed c=failed", Fails(Kind::Auth, "b", Some("after")), Open),
        row(After, Abort, OK, "a> b> c> call <a <b a=failed b=failed c=failed", Fails(Kind::Aborted, "b", Some("after")), Aborted),
        row(After, Interrupt, OK, "a> b> c> call <a <b a=done b=done c=done", served, Interrupted),
        row(After, EndInvocation, OK, "a> b> c> call <a <b a=done b=done c=done", served, Ended),
        row(After, Panic, OK, "a> b> c> call <a <b a=failed b=failed c=failed", Fails(Kind::Callback, "panicked: b", Some("after")), Open),
        row(After, Hang, OK, "a> b> c> call <a <b a=dropped b=dropped c=dropped", Dropped, Open),

        // An `on_error` decides about the error. The next one sees the error that replaces it.
        row(OnError, Continue, FAILS, "a> b> c> call a!service b!service c!service a=failed b=failed c=failed", unserved, Open),
        row(OnError, Continue, OK, "a> b> c> call <a <b <c a=done b=done c=done", served, Open),
        row(OnError, Fail, FAILS, "a> b> c> call a!service b!service c!b a=failed b=failed c=failed", Fails(Kind::Auth, "b", Some("on_error")), Open),
        row(OnError, Retry, &[Reply::Fails, Reply::Answers], "a> b> c> call a!service b!service call <a <b <c a=done b=done c=done", served, Open),
        row(OnError, Fallback, FAILS, "a> b> c> call a!service b!service <a <b <c a=done b=done c=done", Done("b", Origin::Fallback), Open),
        row(OnError, Error, FAILS, "a> b> c> call a!service b!service a=failed b=failed c=failed", Fails(Kind::Auth, "b", Some("on_error")), Open),
        row(OnError, Abort, FAILS, "a> b> c> call a!service b!service a=failed b=failed c=failed", Fails(Kind::Aborted, "b", Some("on_error")), Aborted),
        row(OnError, Interrupt, FAILS, "a> b> c> call a!service b!service a=failed b=failed c=failed", Fails(Kind::Interrupted, INTERRUPTED, Some("on_error")), Interrupted),
        row(OnError, EndInvocation, FAILS, "a> b> c> call a!service b!service a=failed b=failed c=failed", Fails(Kind::InvocationEnded, ENDED, Some("on_error")), Ended),
        // An error that ends more than the call, no `on_error` sees: also not one put in another's
        // place.
        row(OnError, FailWithAbort, FAILS, "a> b> c> call a!service b!service a=failed b=failed c=failed", Fails(Kind::Aborted, "b", Some("on_error")), Aborted),
        row(OnError, FailWithInterrupt, FAILS, "a> b> c> call a!service b!service a=failed b=failed c=failed", Fails(Kind::Interrupted, INTERRUPTED, Some("on_error")), Interrupted),
        row(OnError, FailWithEnd, FAILS, "a> b> c> call a!service b!service a=failed b=failed c=failed", Fails(Kind::InvocationEnded, ENDED, Some("on_error")), Ended),
        row(OnError, Panic, FAILS, "a> b> c> call a!service b!service a=failed b=failed c=failed", Fails(Kind::Callback, "panicked: b", Some("on_error")), Open),
        row(OnError, Hang, FAILS, "a> b> c> call a!service b!service a=dropped b=dropped c=dropped", Dropped, Open),

        // An `on_end` cannot change anything, and its panic goes no further.
        row(OnEnd, Continue, OK, "a> b> c> call <a <b <c a=done b=done c=done", served, Open),
        row(OnEnd, Panic, OK, "a> b> c> call <a <b <c a=done b=done c=done", served, Open),
        row(OnEnd, Panic, FAILS, "a> b> c> call a!service b!service c!service a=failed b=failed c=failed", unserved, Open),
        row(OnEnd, Panic, &[Reply::Hangs], "a> b> c> call a=dropped b=dropped c=dropped", Dropped, Open),

        // The service itself. Its endings of more than the call are not for an `on_error`.
        row(OnError, Fallback, &[Reply::Aborts], "a> b> c> call a=failed b=failed c=failed", Fails(Kind::Aborted, "service", None), Aborted),
        row(OnError, Fallback, &[Reply::Interrupts], "a> b> c> call a=failed b=failed c=failed", Fails(Kind::Interrupted, INTERRUPTED, None), Interrupted),
        row(OnError, Fallback, &[Reply::Ends], "a> b> c> call a=failed b=failed c=failed", Fails(Kind::InvocationEnded, ENDED, None), Ended),
        row(OnError, Fallback, &[Reply::Hangs], "a> b> c> call a=dropped b=dropped c=dropped", Dropped, Open),
        row(After, Continue, FAILS, "a> b> c> call a!service b!service c!service a=failed b=failed c=failed", unserved, Open),
    ];
    // Three retries at most: the fourth failure asks `c` too, and stands.
    let exhausted = "a> b> c> call a!service b!service call a!service b!service \
                     call a!service b!service call a!service b!service c!service \
                     a=failed b=failed c=failed";
    rows.push(Row { seen: "b b+ b++ b+++", ..row(OnError, Retry, FAILS, exhausted, unserved, Open) });
    // An abort that a retried call brings about stands as well.
    rows.push(row(OnError, Retry, &[Reply::Fails, Reply::Aborts], "a> b> c> call a!service b!service call a=failed b=failed c=failed", Fails(Kind::Aborted, "service", None), Aborted));
    rows
}
