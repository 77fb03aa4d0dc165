//! The band that the rows are about, in every style of callback.

use std::borrow::Cow;
use std::cell::Cell;
use std::future::pending;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Once};

use tower::service_fn;
use tower_agent::callback::{self, Outcome};
use tower_agent::{
    Action, BoxError, Callback, Callbacks, Error, ErrorKind, Interrupt, Recovery, Result,
};

use crate::hook_matrix::rows::{Does, Hook, Reply};
use test_support::call::Call;
use test_support::trace::{Trace, pending_once};

/// How `b` is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Style {
    /// A `Callback` that decides at its first poll.
    Method,
    /// A `Callback` that waits once before it decides.
    Waiting,
    /// Closures that decide at once, without a future.
    Sync,
    /// Closures that decide before they make a future.
    Early,
    /// Closures whose future waits once before it decides.
    Owning,
}

pub(crate) const STYLES: [Style; 5] = [
    Style::Method,
    Style::Waiting,
    Style::Sync,
    Style::Early,
    Style::Owning,
];

impl Style {
    fn is_closure(self) -> bool {
        matches!(self, Self::Sync | Self::Early | Self::Owning)
    }

    /// No closure ends a call, and one that decides at once cannot hang.
    pub(crate) fn can(self, hook: Hook, does: Does) -> bool {
        match self {
            Self::Method | Self::Waiting => true,
            Self::Sync => hook != Hook::OnEnd && does != Does::Hang,
            Self::Early | Self::Owning => hook != Hook::OnEnd,
        }
    }

    /// The words of a row that are written in this style: closures have no `on_end`.
    pub(crate) fn visible(self, trace: &str) -> String {
        let seen = |word: &&str| !(self.is_closure() && word.starts_with("b="));
        trace
            .split_whitespace()
            .filter(seen)
            .collect::<Vec<_>>()
            .join(" ")
    }
}

/// A callback that writes down what it is asked.
pub(crate) struct Traced {
    name: &'static str,
    trace: Trace,
    hook: Hook,
    does: Does,
    waits: bool,
    is_guard: bool,
}

impl Traced {
    pub(crate) fn innocent(name: &'static str, trace: &Trace) -> Self {
        let (hook, does, trace) = (Hook::Before, Does::Continue, trace.clone());
        Self {
            name,
            trace,
            hook,
            does,
            waits: false,
            is_guard: false,
        }
    }

    pub(crate) fn acting(name: &'static str, hook: Hook, does: Does, trace: &Trace) -> Self {
        Self {
            hook,
            does,
            ..Self::innocent(name, trace)
        }
    }

    pub(crate) fn guarding(self) -> Self {
        Self {
            is_guard: true,
            ..self
        }
    }

    pub(crate) fn waiting(self) -> Self {
        Self {
            waits: true,
            ..self
        }
    }

    async fn does(&self, hook: Hook) -> Does {
        if self.waits {
            pending_once().await;
        }
        let does = if self.hook == hook {
            self.does
        } else {
            Does::Continue
        };
        if does == Does::Hang {
            pending::<()>().await;
        }
        does
    }
}

impl<R: Call> Callback<R> for Traced {
    async fn before(&self, request: &mut R) -> Result<Action<R::Response>> {
        self.trace.push(format!("{}>", self.name));
        if self.name == "b" {
            request.note("b");
        }
        action::<R>(self.name, self.does(Hook::Before).await)
    }

    async fn after(&self, _: &R, _: &R::Response) -> Result<Action<R::Response>> {
        self.trace.push(format!("<{}", self.name));
        action::<R>(self.name, self.does(Hook::After).await)
    }

    async fn on_error(&self, request: &mut R, error: &Error) -> Result<Recovery<R::Response>> {
        self.trace
            .push(format!("{}!{}", self.name, error.message()));
        recovery(self.name, self.does(Hook::OnError).await, request)
    }

    fn on_end(&self, _: &R, outcome: Outcome<'_, R::Response>) {
        let word = match outcome {
            Outcome::Done(_) => "done",
            Outcome::Failed(_) => "failed",
            Outcome::Dropped => "dropped",
            _ => "otherwise",
        };
        self.trace.push(format!("{}={word}", self.name));
        if self.hook == Hook::OnEnd && self.does == Does::Panic {
            panic_on_purpose("out of on_end");
        }
    }

    fn name(&self) -> Cow<'static, str> {
        self.name.into()
    }

    fn is_guard(&self) -> bool {
        self.is_guard
    }
}

fn error(name: &'static str, does: Does) -> Error {
    match does {
        Does::Abort | Does::FailWithAbort => Error::abort(name),
        Does::Interrupt | Does::FailWithInterrupt => {
            Error::interrupt(Interrupt::new("wait", "input_required"))
        }
        Does::EndInvocation | Does::FailWithEnd => Error::end_invocation(),
        Does::Error | Does::Fail => Error::new(ErrorKind::Auth, name),
        does => panic!("{does:?} is no error"),
    }
}

/// Panics with this message, and keeps it out of the output: thousands of intended panics would
/// hide the one line that says why a test failed.
pub(crate) fn panic_on_purpose(message: &'static str) -> ! {
    thread_local! {
        static ON_PURPOSE: Cell<bool> = const { Cell::new(false) };
    }
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        let report = std::panic::take_hook();
        std::panic::set_hook(Box::new(move |info| {
            if !ON_PURPOSE.take() {
                report(info);
            }
        }));
    });
    ON_PURPOSE.set(true);
    panic!("{message}")
}

fn action<R: Call>(name: &'static str, does: Does) -> Result<Action<R::Response>> {
    match does {
        Does::Continue => Ok(Action::Continue),
        Does::SkipRest => Ok(Action::SkipRest),
        Does::Respond => Ok(Action::Respond(R::response(name))),
        Does::Panic => panic_on_purpose(name),
        does => Err(error(name, does)),
    }
}

fn recovery<R: Call>(
    name: &'static str,
    does: Does,
    request: &mut R,
) -> Result<Recovery<R::Response>> {
    match does {
        Does::Continue => Ok(Recovery::Propagate),
        Does::Retry => {
            request.note("+");
            Ok(Recovery::Retry)
        }
        Does::Fallback => Ok(Recovery::Fallback(R::response(name))),
        Does::Panic => panic_on_purpose(name),
        Does::Fail | Does::FailWithAbort | Does::FailWithInterrupt | Does::FailWithEnd => {
            Ok(Recovery::Fail(error(name, does)))
        }
        does => Err(error(name, does)),
    }
}

/// `a`, `b` and `c`, of which `b` does something in one hook.
pub(crate) fn band<R: Call>(hook: Hook, does: Does, style: Style, trace: &Trace) -> Callbacks<R> {
    let mut band = Callbacks::new().with(Traced::innocent("a", trace));
    if style.is_closure() {
        closures(&mut band, hook, does, style, trace);
    } else {
        let waits = style == Style::Waiting;
        band.push(Traced {
            waits,
            ..Traced::acting("b", hook, does, trace)
        });
    }
    band.with(Traced::innocent("c", trace))
}

/// `b` as one closure for each hook.
fn closures<R: Call>(band: &mut Callbacks<R>, hook: Hook, does: Does, style: Style, trace: &Trace) {
    let in_hook = move |wanted| if hook == wanted { does } else { Does::Continue };
    let (before, after, on_error) = (
        in_hook(Hook::Before),
        in_hook(Hook::After),
        in_hook(Hook::OnError),
    );
    let (trace1, trace2, trace3) = (trace.clone(), trace.clone(), trace.clone());
    let see_before = move |request: &mut R| {
        trace1.push("b>");
        request.note("b");
    };
    let see_after = move || trace2.push("<b");
    let see_error = move |error: &Error| trace3.push(format!("b!{}", error.message()));
    match style {
        Style::Sync => {
            band.push(
                callback::before(move |request: &mut R| {
                    see_before(request);
                    action::<R>("b", before)
                })
                .named("b"),
            );
            band.push(
                callback::after(move |_: &R, _: &R::Response| {
                    see_after();
                    action::<R>("b", after)
                })
                .named("b"),
            );
            band.push(
                callback::on_error(move |request: &mut R, error: &Error| {
                    see_error(error);
                    recovery("b", on_error, request)
                })
                .named("b"),
            );
        }
        Style::Early => {
            band.push(
                callback::before(move |request: &mut R| {
                    see_before(request);
                    let decided = (before != Does::Hang).then(|| action::<R>("b", before));
                    later(decided)
                })
                .named("b"),
            );
            band.push(
                callback::after(move |_: &R, _: &R::Response| {
                    see_after();
                    later((after != Does::Hang).then(|| action::<R>("b", after)))
                })
                .named("b"),
            );
            band.push(
                callback::on_error(move |request: &mut R, error: &Error| {
                    see_error(error);
                    later((on_error != Does::Hang).then(|| recovery("b", on_error, request)))
                })
                .named("b"),
            );
        }
        _ => {
            band.push(
                callback::before(move |request: &mut R| {
                    see_before(request);
                    async move { action::<R>("b", waited(before).await) }
                })
                .named("b"),
            );
            band.push(
                callback::after(move |_: &R, _: &R::Response| {
                    see_after();
                    async move { action::<R>("b", waited(after).await) }
                })
                .named("b"),
            );
            band.push(
                callback::on_error(move |request: &mut R, error: &Error| {
                    see_error(error);
                    // A future that owns what it needs changes the request before it is made.
                    let mut changed = request.clone();
                    if on_error == Does::Retry {
                        request.note("+");
                    }
                    async move { recovery("b", waited(on_error).await, &mut changed) }
                })
                .named("b"),
            );
        }
    }
}

async fn later<T>(decided: Option<T>) -> T {
    match decided {
        Some(decided) => decided,
        None => pending().await,
    }
}

async fn waited(does: Does) -> Does {
    pending_once().await;
    if does == Does::Hang {
        pending::<()>().await;
    }
    does
}

/// A service that replies from a script, the last reply repeated, and records its requests.
pub(crate) fn service<R: Call>(
    replies: &'static [Reply],
    trace: &Trace,
    seen: &Trace,
) -> impl tower::Service<R, Response = R::Response, Error = BoxError, Future: Send>
+ Clone
+ Send
+ 'static {
    let (trace, seen, calls) = (trace.clone(), seen.clone(), Arc::new(AtomicUsize::new(0)));
    service_fn(move |request: R| {
        trace.push("call");
        let noted = request.noted();
        if !noted.is_empty() {
            seen.push(noted);
        }
        let call = calls.fetch_add(1, Ordering::Relaxed).min(replies.len() - 1);
        async move {
            let error = match replies[call] {
                Reply::Answers => return Ok(R::response("service")),
                Reply::Hangs => pending().await,
                Reply::Fails => Error::new(ErrorKind::Provider, "service"),
                Reply::Aborts => Error::abort("service"),
                Reply::Interrupts => Error::interrupt(Interrupt::new("wait", "input_required")),
                Reply::Ends => Error::end_invocation(),
            };
            Err(BoxError::from(error))
        }
    })
}
