//! A call that is dropped, at each of its await points.

use tower::ServiceExt;
use tower_agent::{
    AgentRequest, BoxError, Callbacks, Error, ErrorKind, ModelRequest, RunContext, ToolRequest,
};
use tower_layer::Layer;

use crate::hook_matrix::band::Traced;
use test_support::call::{Call, Embed};
use test_support::trace::{Trace, pending_once, poll_times};

/// The trace of a call that is dropped after so many polls. Every hook, and the service, waits
/// once.
const DONE: [&str; 9] = [
    "",
    "a> a=dropped",
    "a> b> a=dropped b=dropped",
    "a> b> c> a=dropped b=dropped c=dropped",
    "a> b> c> call a=dropped b=dropped c=dropped",
    "a> b> c> call <a a=dropped b=dropped c=dropped",
    "a> b> c> call <a <b a=dropped b=dropped c=dropped",
    "a> b> c> call <a <b <c a=dropped b=dropped c=dropped",
    "a> b> c> call <a <b <c a=done b=done c=done",
];

const FAILED: [&str; 9] = [
    "",
    "a> a=dropped",
    "a> b> a=dropped b=dropped",
    "a> b> c> a=dropped b=dropped c=dropped",
    "a> b> c> call a=dropped b=dropped c=dropped",
    "a> b> c> call a!why a=dropped b=dropped c=dropped",
    "a> b> c> call a!why b!why a=dropped b=dropped c=dropped",
    "a> b> c> call a!why b!why c!why a=dropped b=dropped c=dropped",
    "a> b> c> call a!why b!why c!why a=failed b=failed c=failed",
];

fn dropped<R: Call>() {
    for (fails, expected) in [(false, DONE), (true, FAILED)] {
        for (polls, words) in expected.into_iter().enumerate() {
            let (trace, context) = (Trace::default(), RunContext::default());
            let service_trace = trace.clone();
            let stack = ["a", "b", "c"]
                .map(|name| Traced::innocent(name, &trace).waiting())
                .into_iter()
                .collect::<Callbacks<R>>()
                .layer(tower::service_fn(move |_: R| {
                    let trace = service_trace.clone();
                    async move {
                        trace.push("call");
                        pending_once().await;
                        if fails {
                            Err(BoxError::from(Error::new(ErrorKind::Provider, "why")))
                        } else {
                            Ok(R::response("service"))
                        }
                    }
                }));
            let result = poll_times(stack.oneshot(R::request(context)), polls);
            assert_eq!(trace.take(), words, "{} after {polls} polls", R::CALL);
            assert_eq!(result.map(|r| r.is_err()), (polls == 8).then_some(fails));
        }
    }
}

#[test]
fn agent() {
    dropped::<AgentRequest>();
}

#[test]
fn model() {
    dropped::<ModelRequest>();
}

#[test]
fn tool() {
    dropped::<ToolRequest>();
}

#[test]
fn a_call_that_the_crate_does_not_know() {
    dropped::<Embed>();
}
