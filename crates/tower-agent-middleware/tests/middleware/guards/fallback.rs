//! `guard::fallback`

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll};
use std::time::Duration;

use futures::FutureExt;
use serde_json::json;
use tower::{Service, ServiceBuilder};
use tower_agent::agent::AtNoAnswer;
use tower_agent::callback::before_model;
use tower_agent::message::NoAnswer;
use tower_agent::model::FinishReason;
use tower_agent::{
    Agent, AgentRequest, CancellationToken, EndReason, Error, ErrorKind, Interrupt, Message,
    ModelRequest, ModelResponse, Request, Settings, Usage,
};
use tower_agent_middleware::fallback::{Fallback, ModelsFailed};
use tower_agent_middleware::retry::CallRetryLayer;
use tower_agent_middleware::timeout::CallTimeoutLayer;
use tower_agent_test::{ProbeLayer, ScriptedModel, Turn};
use tower_layer::Layer;

use super::watch::{busy, read};
use test_support::call;
use test_support::traces::Traces;

fn failing(error: Error) -> ScriptedModel {
    ScriptedModel::new([Turn::error(error)])
}

fn saying(text: &str) -> ScriptedModel {
    ScriptedModel::new([Turn::from_text(text)])
}

fn error(kind: ErrorKind) -> Error {
    Error::new(kind, "no")
}

#[tokio::test]
async fn models_are_asked_in_their_order_until_one_answers() {
    let (first, second, third, fourth) = (
        failing(busy()),
        failing(busy()),
        saying("third"),
        ScriptedModel::new([]),
    );
    let model = Fallback::new(first.clone())
        .or(second.clone())
        .or(third.clone())
        .or(fourth.clone());

    let response = call(model, ModelRequest::default()).await.unwrap();

    assert_eq!(response.message().text(), "third");
    [first, second, third, fourth]
        .iter()
        .for_each(ScriptedModel::assert_done);
}

#[tokio::test]
async fn a_model_that_answers_is_the_only_one_asked() {
    let (first, second) = (saying("first"), ScriptedModel::new([]));
    let response = call(
        Fallback::new(first).or(second.clone()),
        ModelRequest::default(),
    )
    .await;
    assert_eq!(response.unwrap().message().text(), "first");
    second.assert_done();
}

#[tokio::test]
async fn another_model_is_asked_after_errors_that_it_may_not_have() {
    use ErrorKind::*;
    let kinds = [
        (Timeout, true),
        (RateLimited, true),
        (Overloaded, true),
        (Provider, true),
        (Connection, true),
        (Protocol, true),
        (ContextLength, true),
        (Auth, false),
        (NotFound, false),
        (InvalidRequest, false),
        (Cancelled, false),
        (Callback, false),
        (Other, false),
    ];
    for (kind, falls_back) in kinds {
        for retryable in [false, true] {
            let first = failing(error(kind).with_retryable(retryable));
            let model = Fallback::new(first).or(saying("second"));
            let result = call(model, ModelRequest::default()).await;
            assert_eq!(
                result.is_ok(),
                falls_back || retryable,
                "{kind:?} {retryable}"
            );
        }
    }
}

#[tokio::test]
async fn a_predicate_decides_in_the_place_of_the_kind() {
    let model = |kind| {
        Fallback::new(failing(error(kind)))
            .or(saying("second"))
            .fall_back_if(|error| error.kind() == ErrorKind::Auth)
    };
    call(model(ErrorKind::Auth), ModelRequest::default())
        .await
        .unwrap();
    let error = call(model(ErrorKind::Overloaded), ModelRequest::default())
        .await
        .unwrap_err();
    assert_eq!(
        (error.kind(), error.message()),
        (ErrorKind::Overloaded, "no")
    );
}

#[tokio::test]
async fn a_predicate_that_panics_fails_the_call() {
    let second = ScriptedModel::new([]);
    let model = Fallback::new(failing(busy()))
        .or(second.clone())
        .fall_back_if(|_| panic!("oh"));
    let error = call(model, ModelRequest::default()).await.unwrap_err();
    assert_eq!(
        (error.kind(), error.message()),
        (ErrorKind::Callback, "the predicate panicked: oh")
    );
    second.assert_done();
}

#[tokio::test]
async fn the_error_in_the_end_names_every_attempt() {
    let model = Fallback::new(failing(error(ErrorKind::RateLimited)))
        .or(failing(error(ErrorKind::ContextLength)))
        .or(failing(error(ErrorKind::Auth)))
        .or(ScriptedModel::new([]));

    let error = call(model, ModelRequest::default()).await.unwrap_err();

    assert_eq!(
        error.message(),
        "3 models failed: 1. rate limited: no; 2. context too long: no; 3. not authorised: no"
    );
    assert_eq!(error.kind(), ErrorKind::Auth);
    // A second round would begin with the first.
    assert!(error.is_retryable());
    let failed = error.downcast_ref::<ModelsFailed>().unwrap();
    let kinds: Vec<_> = failed.errors().iter().map(Error::kind).collect();
    assert_eq!(
        kinds,
        [
            ErrorKind::RateLimited,
            ErrorKind::ContextLength,
            ErrorKind::Auth
        ]
    );
}

#[tokio::test]
async fn one_model_that_fails_alone_fails_as_it_is() {
    let alone = Fallback::new(failing(busy()));
    let refused = Fallback::new(failing(error(ErrorKind::Auth))).or(ScriptedModel::new([]));
    assert_eq!(
        call(alone, ModelRequest::default())
            .await
            .unwrap_err()
            .message(),
        "busy"
    );
    assert_eq!(
        call(refused, ModelRequest::default())
            .await
            .unwrap_err()
            .message(),
        "no"
    );
}

#[tokio::test]
async fn each_model_gets_the_request_as_it_came_and_prepared_for_it_alone() {
    let (first, second, third) = (failing(busy()), failing(busy()), saying("third"));
    let named = |name: &'static str| {
        before_model(move |request| {
            request.settings_mut().model = Some(name.into());
            request.add_instructions(name);
        })
    };
    let model = Fallback::new(named("large").layer(first.clone()))
        .or(named("small").layer(second.clone()))
        .or(third.clone());

    let mut asked = Message::assistant("Hm.");
    asked
        .provider_mut()
        .set("one", json!({ "signature": "abc" }));
    let mut settings = Settings::default();
    settings.model = Some("chosen".into());
    settings.temperature = Some(0.5);
    settings.extra.insert("logit_bias".into(), json!({}));
    let request = ModelRequest::new([Message::user("?"), asked]).with_settings(settings);
    call(model, request.clone()).await.unwrap();

    let sent = |model: &ScriptedModel| model.requests().remove(0);
    let seen = [&first, &second, &third].map(|model| {
        let sent = sent(model);
        assert_eq!(sent.messages(), request.messages());
        assert_eq!(sent.settings().temperature, Some(0.5));
        let instructions = sent.instructions().map(str::to_owned);
        (
            sent.settings().model.clone(),
            instructions,
            sent.settings().extra.len(),
        )
    });
    assert_eq!(seen[0], (Some("large".into()), Some("large".into()), 1));
    assert_eq!(seen[1], (Some("small".into()), Some("small".into()), 0));
    assert_eq!(seen[2], (None, None, 0));
}

#[tokio::test]
async fn an_ending_is_the_end_whichever_model_brought_it() {
    let endings = [
        Error::abort("stop"),
        Error::interrupt(Interrupt::new("1", "confirmation")),
        Error::end_invocation(),
    ];
    for ending in endings {
        let last = ScriptedModel::new([]);
        let model = Fallback::new(failing(busy()))
            .or(failing(ending.clone()))
            .or(last.clone())
            .fall_back_if(|_| true);
        let error = call(model, ModelRequest::default()).await.unwrap_err();
        assert_eq!(
            (error.kind(), error.message()),
            (ending.kind(), ending.message())
        );
        last.assert_done();
    }
}

#[tokio::test]
async fn an_abort_that_a_layer_made_another_error_of_is_the_end() {
    let second = ScriptedModel::new([]);
    let first = ServiceBuilder::new()
        .map_err(|_: Error| busy())
        .layer(before_model(|_| Err::<(), _>(Error::abort("stop"))))
        .service(ScriptedModel::new([]));
    let agent = Agent::builder(Fallback::new(first).or(second.clone()))
        .build()
        .unwrap();

    let error = agent.run("?").await.unwrap_err();

    assert_eq!(
        (error.kind(), error.message()),
        (ErrorKind::Aborted, "stop")
    );
    second.assert_done();
}

fn half() -> ScriptedModel {
    ScriptedModel::new([Turn::from_text("Hello world").failing_after(1, busy())]).chunk_size(6)
}

#[tokio::test]
async fn no_other_model_continues_a_response_that_was_partly_streamed() {
    let second = ScriptedModel::new([]);
    let agent = Agent::builder(Fallback::new(half()).or(second.clone()))
        .build()
        .unwrap();

    let (left, response) = read(&agent).await;

    assert_eq!(left, [""; 0]);
    assert_eq!(
        response.unwrap_err().message(),
        "busy; not falling back: output was already streamed"
    );
    second.assert_done();
}

#[tokio::test]
async fn a_fallback_model_begins_again_and_its_text_alone_remains() {
    let model = Fallback::new(half())
        .or(half())
        .or(saying("Hello world"))
        .restart_streams(true);
    let agent = Agent::builder(model).build().unwrap();

    let (left, response) = read(&agent).await;

    assert_eq!(
        (left, response.unwrap().text()),
        (vec!["Hello world".into()], "Hello world".into())
    );
}

#[tokio::test]
async fn another_model_streams_where_the_first_had_said_nothing() {
    let agent = Agent::builder(Fallback::new(failing(busy())).or(saying("Hello")))
        .build()
        .unwrap();
    let (left, response) = read(&agent).await;
    assert_eq!(
        (left, response.unwrap().text()),
        (vec!["Hello".into()], "Hello".into())
    );
}

#[tokio::test]
async fn all_models_count_as_the_agents() {
    let second = ScriptedModel::new([Turn::from_text("hi").usage(Usage::new(12, 1))]);
    let agent = Agent::builder(Fallback::new(failing(busy())).or(second))
        .on_model(before_model(|request| {
            request.add_instructions("Be brief.")
        }))
        .build()
        .unwrap();
    assert_eq!(agent.run("?").await.unwrap().usage().total(), 13);
}

#[tokio::test(start_paused = true)]
async fn each_model_has_its_own_retry_and_timeout_around_it() {
    let first = ScriptedModel::new([Turn::error(busy()), Turn::pending()]);
    let guarded = ServiceBuilder::new()
        .layer(CallRetryLayer::new().max_attempts(2))
        .layer(CallTimeoutLayer::new(Duration::from_secs(1)))
        .service(first.clone());
    let model = Fallback::new(guarded).or(saying("second"));

    let response = call(model, ModelRequest::default()).await.unwrap();

    first.assert_done();
    assert_eq!(response.message().text(), "second");
}

#[tokio::test]
async fn it_is_ready_when_the_first_is_and_waits_for_the_others() {
    let (first, second) = (ProbeLayer::new(), ProbeLayer::new().pending_polls(2));
    first.hold();
    let mut model = Fallback::new(first.layer(failing(busy()))).or(second.layer(saying("second")));
    let poll = std::future::poll_fn(|cx| std::task::Poll::Ready(model.poll_ready(cx).is_ready()));
    assert!(!poll.await);

    first.release();
    call(model, ModelRequest::default()).await.unwrap();

    assert_eq!((first.calls(), first.violations()), (1, 0));
    assert_eq!((second.calls(), second.violations()), (1, 0));
}

#[tokio::test]
async fn a_dropped_call_leaves_nothing() {
    let (first, second) = (ProbeLayer::new(), ProbeLayer::new());
    let model = Fallback::new(first.layer(failing(busy())))
        .or(second.layer(ScriptedModel::new([Turn::pending()])));
    let mut answer = Box::pin(call(model, ModelRequest::default()));
    assert!(answer.as_mut().now_or_never().is_none());
    assert_eq!((first.in_flight(), second.in_flight()), (0, 1));

    drop(answer);

    assert_eq!(
        (second.in_flight(), second.cancelled(), first.cancelled()),
        (0, 1, 0)
    );
}

#[tokio::test]
async fn a_panic_is_the_models_error_and_the_next_is_asked() {
    let broken = || ScriptedModel::new([Turn::function(|_| panic!("broken"))]);
    let model = Fallback::new(broken()).or(broken()).or(saying("third"));
    assert_eq!(
        call(model, ModelRequest::default())
            .await
            .unwrap()
            .message()
            .text(),
        "third"
    );

    let model = Fallback::new(broken()).or(broken());
    let error = call(model, ModelRequest::default()).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Provider);
    assert!(
        error
            .message()
            .contains("2. provider failed: the model panicked: broken"),
        "{error}"
    );
}

#[tokio::test]
async fn each_other_model_is_traced() {
    let traces = Traces::default();
    let _traced = tracing::subscriber::set_default(traces.clone());
    let model = Fallback::new(failing(busy()))
        .or(saying("second"))
        .or(saying("third"));

    let request = ModelRequest::default();
    let run_id = request.context().run_id().to_owned();
    call(model, request).await.unwrap();

    let expected = format!(
        "message=falling back to next model run_id={run_id:?} call=model call asked=1 of=3 \
         kind=overloaded"
    );
    assert_eq!(traces.take(), [expected]);
}

/// The ways in which a model gives no answer.
fn no_answers() -> Vec<Turn> {
    let ends = |text: &str, reason| {
        Turn::response(ModelResponse::from_text(text).with_finish_reason(reason))
    };
    vec![
        ends("It is", FinishReason::Length),
        ends("", FinishReason::ContentFilter),
        ends("No.", FinishReason::Refusal),
        Turn::from_text(" "),
    ]
}

/// What counts as an answer is the agent's rule: where it accepts any, the first model's stands.
#[tokio::test]
async fn the_next_model_is_asked_where_the_agent_accepts_no_such_answer() {
    for (at, falls_back) in [
        (AtNoAnswer::Tell, false),
        (AtNoAnswer::AskAgain(0), true),
        (AtNoAnswer::AskAgain(1), true),
        (AtNoAnswer::Fail, true),
    ] {
        for turn in no_answers() {
            for is_streamed in [false, true] {
                let usage = Usage::new(10, 2);
                let first = ScriptedModel::new([turn.clone().usage(usage)]);
                let second = ScriptedModel::new([Turn::from_text("It is 5.").usage(usage)]);
                let model = Fallback::new(first.clone()).or(second.clone());
                let agent = Agent::builder(model.restart_streams(true)).at_no_answer(at);
                let agent = agent.build().unwrap();
                let response = if is_streamed {
                    agent.stream("?").response().await.unwrap()
                } else {
                    agent.run("?").await.unwrap()
                };
                first.assert_done();
                assert_eq!(second.requests().len(), usize::from(falls_back), "{at:?}");
                let is_whole = response.end_reason() == &EndReason::Completed;
                assert_eq!(is_whole, falls_back, "{at:?}");
                // What was refused was paid for.
                let calls = 1 + u64::from(falls_back);
                assert_eq!(response.usage().total(), 12 * calls, "{at:?}");
            }
        }
    }
}

#[tokio::test]
async fn without_a_next_model_or_after_output_the_agent_gets_what_there_is() {
    for turn in no_answers() {
        let model = || ScriptedModel::new([turn.clone()]);
        let agent = Agent::builder(Fallback::new(model()).or(model()))
            .at_no_answer(AtNoAnswer::AskAgain(0))
            .build()
            .unwrap();
        let response = agent.run("?").await.unwrap();
        assert!(response.no_answer().is_some());

        // Where something was shown, another answer would be a second one.
        let (first, second) = (model(), saying("It is 5."));
        let agent = Agent::builder(Fallback::new(first).or(second.clone()))
            .at_no_answer(AtNoAnswer::AskAgain(0))
            .build()
            .unwrap();
        let response = agent.stream("?").response().await.unwrap();
        let is_shown = !response.text().is_empty() && second.requests().is_empty();
        assert_eq!(response.no_answer().is_some(), is_shown);
    }
}

/// The error of the call says what became of each model, and a predicate decides about it.
#[tokio::test]
async fn a_missing_answer_is_an_error_among_the_others() {
    let agent = |only_busy: bool| {
        let mut model = Fallback::new(saying("")).or(failing(busy()));
        if only_busy {
            model = model.fall_back_if(|error| error.kind() == ErrorKind::Overloaded);
        }
        let agent = Agent::builder(model).at_no_answer(AtNoAnswer::AskAgain(0));
        agent.build().unwrap()
    };
    let error = agent(false).run("?").await.unwrap_err();
    let failed = error.downcast_ref::<ModelsFailed>().unwrap();
    let kinds: Vec<_> = failed.errors().iter().map(Error::kind).collect();
    assert_eq!(kinds, [ErrorKind::InvalidAnswer, ErrorKind::Overloaded]);
    let response = agent(true).run("?").await.unwrap();
    assert_eq!(response.end_reason(), &EndReason::NoAnswer(NoAnswer::Empty));
}

/// The next model may keep the call waiting until it is ready, and the run is cancelled meanwhile.
#[tokio::test]
async fn a_model_that_becomes_ready_after_a_cancellation_is_not_called() {
    let token = CancellationToken::new();
    let next = saying("too late");
    let is_ready = Arc::new(AtomicBool::new(false));
    let (cancel, ready) = (token.clone(), is_ready.clone());
    let waits = Readied {
        inner: next.clone(),
        is_ready,
    };
    let agent = Agent::builder(Fallback::new(failing(busy())).or(waits))
        .build()
        .unwrap();
    let request = AgentRequest::new("?").with_cancellation(token);
    let mut run = std::pin::pin!(agent.run(request));
    assert!(run.as_mut().now_or_never().is_none());
    cancel.cancel();
    ready.store(true, Ordering::SeqCst);
    let error = run.await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Cancelled);
    assert_eq!(next.requests().len(), 0);
}

/// Is ready once it is said to be.
#[derive(Clone)]
struct Readied<S> {
    inner: S,
    is_ready: Arc<AtomicBool>,
}

impl<S: Service<ModelRequest>> Service<ModelRequest> for Readied<S> {
    type Response = S::Response;
    type Error = S::Error;
    type Future = S::Future;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), S::Error>> {
        if self.is_ready.load(Ordering::SeqCst) {
            return self.inner.poll_ready(cx);
        }
        cx.waker().wake_by_ref();
        Poll::Pending
    }

    fn call(&mut self, request: ModelRequest) -> S::Future {
        self.inner.call(request)
    }
}
