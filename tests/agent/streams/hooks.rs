//! Which hooks are shown: those that a callback has, whatever their futures look like.

use std::future::{Future, poll_fn};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::task::Poll;

use serde_json::json;
use tower_agent::callback::{Bundle, after_model};
use tower_agent::compat::Hooks;
use tower_agent::stream::{CallbackDecision, Event, EventKind};
use tower_agent::{
    Action, Agent, Callback, Error, ErrorKind, ModelRequest, ModelResponse, Recovery, Request,
    Result, Tool,
};
use tower_agent_test::{ScriptedModel, Turn};

use super::read;

/// The hooks of one callback that were shown, with what they decided.
fn shown(events: &[Event], callback: &str) -> Vec<String> {
    let notes = events.iter().filter_map(|event| match &event.kind {
        EventKind::Callback(note) if note.callback.contains(callback) => {
            Some(format!("{} {}: {:?}", note.call, note.hook, note.decision))
        }
        _ => None,
    });
    notes.collect()
}

/// A future of no size that is pending at its first poll: a callback whose hooks capture nothing,
/// one for each phase.
macro_rules! captures_nothing {
    ($name:ident, $hook:ident($($arg:ident: $ty:ty),*) -> $out:ty, $decision:expr) => {
        struct $name;

        impl $name {
            fn runs() -> &'static AtomicUsize {
                static RUNS: AtomicUsize = AtomicUsize::new(0);
                &RUNS
            }

            fn waits() -> &'static AtomicBool {
                static WAITS: AtomicBool = AtomicBool::new(true);
                &WAITS
            }
        }

        impl Callback<ModelRequest> for $name {
            #[allow(refining_impl_trait)]
            fn $hook(&self, $(_: $ty),*) -> impl Future<Output = Result<$out>> + Send + use<> {
                let future = async {
                    Self::runs().fetch_add(1, Ordering::Relaxed);
                    poll_fn(|cx| if Self::waits().swap(false, Ordering::Relaxed) {
                            cx.waker().wake_by_ref();
                            Poll::Pending
                        } else { Poll::Ready(()) })
                    .await;
                    Ok($decision)
                };
                assert_eq!(size_of_val(&future), 1);
                future
            }
        }
    };
}

captures_nothing!(
    IdleBefore, before(request: &mut ModelRequest) -> Action<ModelResponse>, Action::SkipRest
);
captures_nothing!(
    IdleAfter, after(request: &ModelRequest, response: &ModelResponse) -> Action<ModelResponse>,
    Action::Respond(ModelResponse::from_text("changed"))
);
captures_nothing!(
    IdleOnError, on_error(request: &mut ModelRequest, error: &Error) -> Recovery<ModelResponse>,
    Recovery::Retry
);

#[tokio::test]
async fn a_hook_that_captures_nothing_and_waits_runs_once_and_is_shown() {
    let model = ScriptedModel::new([
        Turn::error(Error::new(ErrorKind::Overloaded, "busy")),
        Turn::from_text("said"),
    ]);
    let agent = Agent::builder(model)
        .on_model(IdleOnError)
        .on_model(IdleAfter)
        .on_model(Arc::new(IdleBefore))
        .build()
        .unwrap();

    let (events, response) = read(agent.stream("?")).await;

    assert_eq!(response.unwrap().text(), "changed");
    assert_eq!(shown(&events, "IdleBefore"), ["model before: SkipRest"]);
    assert_eq!(shown(&events, "IdleAfter"), ["model after: Respond"]);
    assert_eq!(shown(&events, "IdleOnError"), ["model on_error: Retry"]);
    for runs in [IdleBefore::runs(), IdleAfter::runs(), IdleOnError::runs()] {
        assert_eq!(runs.load(Ordering::Relaxed), 1);
    }
    for waits in [
        IdleBefore::waits(),
        IdleAfter::waits(),
        IdleOnError::waits(),
    ] {
        assert!(!waits.load(Ordering::Relaxed));
    }
}

/// A hook whose future is of no size at all, and ready at once.
struct Nothing;

impl Callback<ModelRequest> for Nothing {
    #[allow(refining_impl_trait)]
    fn before(
        &self,
        _: &mut ModelRequest,
    ) -> impl Future<Output = Result<Action<ModelResponse>>> + Send + use<> {
        let future = poll_fn(|_| Poll::Ready(Ok(Action::Respond(ModelResponse::from_text("no")))));
        assert_eq!(size_of_val(&future), 0);
        future
    }
}

#[tokio::test]
async fn a_hook_of_no_size_is_run_and_shown() {
    let model = ScriptedModel::always(Turn::from_text("said"));
    let agent = Agent::builder(model).on_model(Nothing).build().unwrap();

    let (events, response) = read(agent.stream("?")).await;

    assert_eq!(response.unwrap().text(), "no");
    assert_eq!(shown(&events, "Nothing"), ["model before: Respond"]);
}

/// Does something before it hands on to a callback that does not have the hook.
struct HandsOn<C> {
    inner: C,
    before: AtomicUsize,
}

impl<R: Request, C: Callback<R>> Callback<R> for HandsOn<C> {
    fn before(&self, request: &mut R) -> impl Future<Output = Result<Action<R::Response>>> + Send {
        self.before.fetch_add(1, Ordering::Relaxed);
        self.inner.before(request)
    }
}

struct Bare;

impl<R: Request> Callback<R> for Bare {}

#[tokio::test]
async fn a_hook_that_hands_on_to_a_default_runs_and_is_shown() {
    let model = ScriptedModel::always(Turn::from_text("said"));
    let hands_on = Arc::new(HandsOn {
        inner: Bare,
        before: AtomicUsize::new(0),
    });
    let agent = Agent::builder(model)
        .on_model(hands_on.clone())
        .build()
        .unwrap();

    let (events, _) = read(agent.stream("?")).await;

    assert_eq!(shown(&events, "HandsOn"), ["model before: Continue"]);
    assert_eq!(hands_on.before.load(Ordering::Relaxed), 1);
}

/// Has the hooks of a model call alone.
struct Object;

impl Hooks for Object {
    async fn after_model(
        &self,
        _: &ModelRequest,
        _: &ModelResponse,
    ) -> Result<Action<ModelResponse>> {
        Ok(Action::SkipRest)
    }
}

#[tokio::test]
async fn a_hook_that_a_callback_lacks_is_not_shown() {
    let model = ScriptedModel::new([
        Turn::tool("look", json!({ "value": 1 })),
        Turn::from_text("said"),
    ]);
    let agent = Agent::builder(model)
        .tool(Tool::function("look", "Looks.", |n: u32| n))
        .callbacks(Object)
        .callbacks(Bundle::new().on_agent(Bare).on_model(Bare).on_tool(Bare))
        .on_model(Arc::new(Bare))
        .on_model(after_model(|_, _| ()).named("closure"))
        .build()
        .unwrap();

    let (events, _) = read(agent.stream("?")).await;

    assert_eq!(shown(&events, "Object"), ["model after: SkipRest"; 2]);
    assert!(shown(&events, "Bare").is_empty());
    // The object skips it.
    assert!(shown(&events, "closure").is_empty());
    let decided = |event: &Event| match &event.kind {
        EventKind::Callback(note) => Some(note.decision.clone()),
        _ => None,
    };
    assert!(
        events
            .iter()
            .filter_map(decided)
            .all(|decision| matches!(decision, CallbackDecision::SkipRest))
    );
}
