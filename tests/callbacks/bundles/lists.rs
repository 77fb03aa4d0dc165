//! Lists of callbacks asked without any service.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use serde_json::json;
use tower_agent::call::Origin;
use tower_agent::callback::{
    Outcome, after_model, after_tool, before_model, before_tool, on_model_error, on_tool_error,
};
use tower_agent::compat::CallbackSemantics;
use tower_agent::message::ToolCall;
use tower_agent::{
    Action, Callback, Callbacks, Error, ErrorKind, Interrupt, ModelRequest, ModelResponse,
    Recovery, Request, ToolRequest, ToolResponse,
};

use test_support::logger::Logger;
use test_support::trace::Trace;

fn says(text: &'static str) -> impl Callback<ModelRequest> {
    after_model(move |_, response| {
        let text = format!("{} {text}", response.message().text());
        Action::Respond(ModelResponse::from_text(text))
    })
}

#[tokio::test]
async fn run_before_threads_the_request_and_stops_at_a_response() {
    let trace = Trace::default();
    let callbacks = Callbacks::new()
        .with(before_model(|request| {
            request.add_instructions("Be brief.")
        }))
        .with(before_model(|request| {
            assert_eq!(request.instructions(), Some("Be brief."));
            request.add_instructions("Be kind.");
            Action::Respond(ModelResponse::from_text("no"))
        }))
        .with(Logger::new("rest", &trace));
    let mut request = ModelRequest::default();
    let response = callbacks.run_before(&mut request).await.unwrap().unwrap();
    assert_eq!(response.message().text(), "no");
    assert_eq!(request.instructions(), Some("Be brief.\n\nBe kind."));
    assert_eq!(trace.take(), "");
}

#[tokio::test]
async fn run_before_without_a_response_says_so() {
    let mut request = ModelRequest::default();
    assert_eq!(
        Callbacks::new().run_before(&mut request).await.unwrap(),
        None
    );
    let proceed = Callbacks::new().with(before_model(|_| Action::SkipRest));
    assert_eq!(proceed.run_before(&mut request).await.unwrap(), None);
}

#[tokio::test]
async fn run_after_threads_the_response() {
    let callbacks = Callbacks::new().with(says("b")).with(says("c"));
    let request = ModelRequest::default();
    let response = callbacks
        .run_after(&request, ModelResponse::from_text("a"))
        .await
        .unwrap();
    assert_eq!(
        (response.message().text().as_str(), response.origin()),
        ("a b c", Origin::After)
    );

    let untouched = Callbacks::new()
        .run_after(&request, ModelResponse::from_text("a"))
        .await
        .unwrap();
    assert_eq!(
        (untouched.message().text().as_str(), untouched.origin()),
        ("a", Origin::Service)
    );
}

#[tokio::test]
async fn run_after_obeys_the_lists_semantics() {
    for (semantics, text) in [
        (CallbackSemantics::default(), "a b c"),
        (CallbackSemantics::adk_python(), "a b"),
        (CallbackSemantics::trpc(false, true), "a c"),
        (CallbackSemantics::potato(), "a b"),
    ] {
        let callbacks = Callbacks::new()
            .with(says("b"))
            .with(says("c"))
            .with_semantics(semantics);
        let request = ModelRequest::default();
        let response = callbacks
            .run_after(&request, ModelResponse::from_text("a"))
            .await
            .unwrap();
        assert_eq!(response.message().text(), text);
    }
}

#[tokio::test]
async fn a_failing_hook_fails_the_list_with_its_name() {
    let fails = || Err::<(), _>(Error::new(ErrorKind::Auth, "no"));
    let before = Callbacks::new().with(before_model(move |_| fails()).named("guard"));
    let after = Callbacks::new().with(after_model(move |_, _| fails()).named("guard"));
    let mut request = ModelRequest::default();
    let errors = [
        ("before", before.run_before(&mut request).await.unwrap_err()),
        (
            "after",
            after
                .run_after(&request, ModelResponse::from_text("a"))
                .await
                .unwrap_err(),
        ),
    ];
    for (hook, error) in errors {
        let by = error.raised_by().unwrap();
        assert_eq!(
            (error.kind(), &*by.callback, &*by.hook),
            (ErrorKind::Auth, "guard", hook)
        );
    }
}

fn down() -> Error {
    Error::new(ErrorKind::Provider, "down")
}

#[tokio::test]
async fn run_on_error_answers_with_the_first_decision() {
    let with = |recovery: fn() -> Recovery<ModelResponse>| {
        Callbacks::new()
            .with(on_model_error(|_, _| Recovery::Propagate))
            .with(on_model_error(move |request, _| {
                request.add_instructions("Try again.");
                recovery()
            }))
            .with(on_model_error(|_, error| match error.message() {
                "down" => Recovery::Fallback(ModelResponse::from_text("late")),
                _ => Recovery::Propagate,
            }))
    };
    let mut request = ModelRequest::default();
    let retry = with(|| Recovery::Retry)
        .run_on_error(&mut request, down())
        .await;
    assert!(matches!(retry, Recovery::Retry), "{retry:?}");
    assert_eq!(
        request.instructions(),
        Some("Try again."),
        "the change is for the retry"
    );

    let fallback = with(|| Recovery::Fallback(ModelResponse::from_text("soon")));
    match fallback.run_on_error(&mut request, down()).await {
        Recovery::Fallback(response) => assert_eq!(response.message().text(), "soon"),
        recovery => panic!("{recovery:?}"),
    }
    let fail = with(|| Recovery::Fail(Error::new(ErrorKind::Auth, "another")));
    match fail.run_on_error(&mut request, down()).await {
        Recovery::Fail(error) => assert_eq!(error.message(), "another", "the next one saw it"),
        recovery => panic!("{recovery:?}"),
    }
    match Callbacks::new().run_on_error(&mut request, down()).await {
        Recovery::Fail(error) => assert_eq!(error.message(), "down", "nobody decided"),
        recovery => panic!("{recovery:?}"),
    }
}

/// Nor does a band ask them.
#[tokio::test]
async fn run_on_error_runs_no_hook_for_an_ending() {
    let wait = Interrupt::new("wait", "input_required");
    for ending in [
        Error::abort("enough"),
        Error::interrupt(wait),
        Error::end_invocation(),
    ] {
        let trace = Trace::default();
        let callbacks = Callbacks::new()
            .with(Logger::new("a", &trace))
            .with(on_model_error(|_, _| {
                Recovery::Fallback(ModelResponse::from_text("fine"))
            }));
        let mut request = ModelRequest::default();
        let recovery = callbacks.run_on_error(&mut request, ending.clone()).await;
        assert!(matches!(recovery, Recovery::Fail(error) if error.kind() == ending.kind()));
        assert_eq!(trace.take(), "");
    }
}

#[tokio::test]
async fn lists_of_tool_callbacks_are_asked_alike() {
    let callbacks = Callbacks::new()
        .with(before_tool(|request| {
            request.arguments_mut()["n"] = json!(2)
        }))
        .with(after_tool(|request, response| {
            let (n, value) = (request.arguments()["n"].clone(), response.value().clone());
            Action::Respond(ToolResponse::new(json!([n, value])))
        }))
        .with(on_tool_error(|_, error| {
            Recovery::Fallback(ToolResponse::error(error.message().to_owned()))
        }));
    let mut request = ToolRequest::new(ToolCall::new("1", "add", json!({ "n": 1 })));
    assert_eq!(callbacks.run_before(&mut request).await.unwrap(), None);
    let response = callbacks
        .run_after(&request, ToolResponse::new("ok"))
        .await
        .unwrap();
    assert_eq!(*response.value(), json!([2, "ok"]));
    match callbacks.run_on_error(&mut request, down()).await {
        Recovery::Fallback(response) => assert_eq!(*response.value(), json!("down")),
        recovery => panic!("{recovery:?}"),
    }
}

/// A phase is no call: none has begun, so none ends.
#[tokio::test]
async fn running_one_phase_calls_no_on_end() {
    #[derive(Default)]
    struct Ends(AtomicU32);

    impl<R: Request> Callback<R> for Ends {
        fn on_end(&self, _: &R, _: Outcome<'_, R::Response>) {
            self.0.fetch_add(1, Ordering::SeqCst);
        }
    }

    let ends = Arc::new(Ends::default());
    let callbacks = Callbacks::new().with(ends.clone());
    let mut request = ModelRequest::default();
    callbacks.run_before(&mut request).await.unwrap();
    callbacks
        .run_after(&request, ModelResponse::from_text("a"))
        .await
        .unwrap();
    let _ = callbacks.run_on_error(&mut request, down()).await;
    assert_eq!(ends.0.load(Ordering::SeqCst), 0);
}
