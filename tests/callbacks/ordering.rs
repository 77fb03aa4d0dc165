//! Who acts first, and what nothing outside can undo.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::task::{Context, Poll};
use std::time::Duration;

use futures::future::{join, ready};
use tower::limit::ConcurrencyLimitLayer;
use tower::load_shed::LoadShedLayer;
use tower::retry::{Policy, RetryLayer};
use tower::timeout::TimeoutLayer;
use tower::util::MapResponseLayer;
use tower::{Layer, Service, ServiceBuilder, ServiceExt};
use tower_agent::call::Origin;
use tower_agent::callback::{after_model, before_model, on_model_error, wrap_model};
use tower_agent::{
    Action, BoxError, Callbacks, Error, ErrorKind, Interrupt, ModelRequest, ModelResponse,
    Recovery, Request, Result,
};
use tower_agent_test::{Ended, ProbeLayer, RecordLayer, ScriptedModel, Turn};

use test_support::logger::Logger;
use test_support::trace::Trace;

type Model = Callbacks<ModelRequest>;

fn logs(names: &[&'static str], trace: &Trace) -> Model {
    names.iter().map(|name| Logger::new(*name, trace)).collect()
}

/// Answers, and writes `call`.
fn model(trace: &Trace) -> ScriptedModel {
    let trace = trace.clone();
    ScriptedModel::always(Turn::function(move |_| {
        trace.push("call");
        Ok(ModelResponse::from_text("service"))
    }))
}

async fn call<S>(stack: S) -> Result<ModelResponse>
where
    S: Service<ModelRequest, Response = ModelResponse, Error: Into<BoxError>>,
{
    stack
        .oneshot(ModelRequest::default())
        .await
        .map_err(|error| Error::from(error.into()))
}

#[tokio::test]
async fn a_tower_layer_draws_a_line_between_two_bands() {
    let trace = Trace::default();
    let stack = ServiceBuilder::new()
        .layer(logs(&["a", "b"], &trace))
        .layer(TimeoutLayer::new(Duration::from_secs(30)))
        .layer(logs(&["c", "d"], &trace))
        .service(model(&trace));
    call(stack).await.unwrap();
    assert_eq!(trace.take(), "a> b> c> d> call <c <d <a <b");
}

#[tokio::test]
async fn two_layers_are_two_bands() {
    let trace = Trace::default();
    let stack = ServiceBuilder::new()
        .layer(logs(&["a"], &trace))
        .layer(logs(&["b"], &trace))
        .service(model(&trace));
    call(stack).await.unwrap();
    assert_eq!(trace.take(), "a> b> call <b <a");
}

/// The same four closures, once as layers and once as a band.
#[tokio::test]
async fn closures_standing_alone_are_layers() {
    let trace = Trace::default();
    let write = |word: &'static str| {
        let trace = trace.clone();
        move || trace.push(word)
    };
    let (a, b, c, d) = (write("a>"), write("b>"), write("<a"), write("<b"));
    let (a, b) = (before_model(move |_| a()), before_model(move |_| b()));
    let (c, d) = (after_model(move |_, _| c()), after_model(move |_, _| d()));

    let layers = ServiceBuilder::new()
        .layer(a.clone())
        .layer(c.clone())
        .layer(b.clone())
        .layer(d.clone())
        .service(model(&trace));
    call(layers).await.unwrap();
    assert_eq!(trace.take(), "a> b> call <b <a");

    let band = Callbacks::new().with(a).with(c).with(b).with(d);
    call(band.layer(model(&trace))).await.unwrap();
    assert_eq!(trace.take(), "a> b> call <a <b");
}

#[tokio::test]
async fn callbacks_are_registered_by_condition_and_in_a_loop() {
    let trace = Trace::default();
    for verbose in [false, true] {
        let mut band = Model::new();
        if verbose {
            band.push(Logger::new("verbose", &trace));
        }
        for name in ["a", "b"] {
            band.push(Logger::new(name, &trace));
        }
        band.extend([before_model(|_| ()).named("closure")]);
        let names: Vec<_> = band.names().collect();
        assert_eq!(names[usize::from(verbose)..], ["a", "b", "closure"]);

        call(band.layer(model(&trace))).await.unwrap();
        let words = trace.take();
        if verbose {
            assert_eq!(words, "verbose> a> b> call <verbose <a <b")
        } else {
            assert_eq!(words, "a> b> call <a <b")
        }
    }
}

#[tokio::test]
async fn a_hundred_callbacks_stand_in_one_list() {
    let trace = Trace::default();
    let names: Vec<_> = (0..100).map(|i| i.to_string()).collect();
    let band: Model = names
        .iter()
        .map(|name| Logger::new(name.clone(), &trace))
        .collect();
    call(band.layer(model(&trace))).await.unwrap();

    let before: Vec<_> = names.iter().map(|name| format!("{name}>")).collect();
    let after: Vec<_> = names.iter().map(|name| format!("<{name}")).collect();
    assert_eq!(
        trace.take(),
        format!("{} call {}", before.join(" "), after.join(" "))
    );
}

#[tokio::test(start_paused = true)]
async fn a_timeout_between_two_bands_fails_one_and_drops_the_other() {
    let trace = Trace::default();
    let band = |name| Callbacks::<ModelRequest>::new().with(Logger::new(name, &trace).with_ends());
    let stack = ServiceBuilder::new()
        .layer(band("a"))
        .layer(TimeoutLayer::new(Duration::from_secs(30)))
        .layer(band("b"))
        .service(ScriptedModel::new([Turn::pending()]));
    assert_eq!(call(stack).await.unwrap_err().kind(), ErrorKind::Timeout);
    assert_eq!(trace.take(), "a> b> b=dropped a!timed out a=failed");
}

// Readiness

#[tokio::test]
async fn a_wrap_that_runs_twice_drives_readiness() {
    let probe = ProbeLayer::new().pending_polls(2);
    let record = RecordLayer::new();
    let stack = ServiceBuilder::new()
        .layer(wrap_model(|request, mut next| async move {
            let first = next.run(request.clone()).await?;
            let second = next.run(request).await?;
            Ok(ModelResponse::from_text(
                first.message().text() + &second.message().text(),
            ))
        }))
        .layer(ConcurrencyLimitLayer::new(1))
        .layer(probe.clone())
        .layer(record.clone())
        .service(ScriptedModel::new([
            Turn::from_text("one"),
            Turn::from_text("two"),
        ]));
    assert_eq!(call(stack).await.unwrap().message().text(), "onetwo");
    assert_eq!(
        (probe.calls(), probe.violations(), probe.max_in_flight()),
        (2, 0, 1)
    );
    assert_eq!(record.responses().len(), 2);
}

#[tokio::test]
async fn clones_of_next_run_side_by_side() {
    let probe = ProbeLayer::new().pending_polls(1);
    let stack = ServiceBuilder::new()
        .layer(wrap_model(|request, mut next| async move {
            let mut other = next.clone();
            let (one, two) = join(next.run(request.clone()), other.run(request)).await;
            one.and(two)
        }))
        .layer(ConcurrencyLimitLayer::new(1))
        .layer(probe.clone())
        .service(ScriptedModel::always(Turn::from_text("hi")));
    call(stack).await.unwrap();
    assert_eq!(
        (probe.calls(), probe.violations(), probe.max_in_flight()),
        (2, 0, 1)
    );
}

#[tokio::test]
async fn a_retry_of_an_error_callback_drives_readiness() {
    let probe = ProbeLayer::new().pending_polls(2);
    let script = ScriptedModel::new([
        Turn::error(Error::new(ErrorKind::Overloaded, "busy")),
        Turn::from_text("hi"),
        Turn::from_text("again"),
    ]);
    let mut stack = ServiceBuilder::new()
        .layer(on_model_error(|_, _| Recovery::Retry))
        .layer(ConcurrencyLimitLayer::new(1))
        .layer(probe.clone())
        .service(script.clone());
    for text in ["hi", "again"] {
        let response = stack
            .ready()
            .await
            .unwrap()
            .call(ModelRequest::default())
            .await
            .unwrap();
        assert_eq!(response.message().text(), text);
    }
    assert_eq!((probe.calls(), probe.violations()), (3, 0));
    script.assert_done();
}

#[tokio::test]
async fn load_is_shed_through_bands_and_wraps() {
    let probe = ProbeLayer::new();
    let stack = ServiceBuilder::new()
        .layer(LoadShedLayer::new())
        .layer(logs(&["a"], &Trace::default()))
        .layer(wrap_model(
            async |request, mut next: tower_agent::callback::Next<_>| next.run(request).await,
        ))
        .layer(probe.clone())
        .service(ScriptedModel::always(Turn::from_text("hi")));
    probe.hold();
    assert_eq!(
        call(stack.clone()).await.unwrap_err().kind(),
        ErrorKind::Overloaded
    );
    probe.release();
    assert_eq!(call(stack).await.unwrap().message().text(), "hi");
    assert_eq!((probe.calls(), probe.violations()), (1, 0));
}

#[tokio::test]
async fn a_panic_in_a_wrap_is_named() {
    let at_once = wrap_model(|request, _| {
        assert!(request.messages().len() > 1, "no messages");
        ready(Ok(ModelResponse::from_text("")))
    });
    let error = call(at_once.layer(model(&Trace::default())))
        .await
        .unwrap_err();
    let by = error.raised_by().unwrap();
    assert_eq!((error.kind(), &*by.hook), (ErrorKind::Callback, "wrap"));
    assert_eq!(error.message(), "panicked: no messages");
    assert!(
        by.callback
            .starts_with("wrap_model at tests/callbacks/ordering.rs:"),
        "{}",
        by.callback
    );

    let later = wrap_model(|request, mut next| async move {
        let response = next.run(request).await?;
        assert_eq!(response.message().text(), "nothing");
        Result::Ok(response)
    });
    let stack = later.named("checker").layer(model(&Trace::default()));
    let error = call(stack).await.unwrap_err();
    assert_eq!(
        (error.kind(), &*error.raised_by().unwrap().callback),
        (ErrorKind::Callback, "checker")
    );
}

// Endings that are latched.

/// Makes the call again after every failure, so many times.
#[derive(Clone, Debug)]
struct Again(u32);

impl Policy<ModelRequest, ModelResponse, Error> for Again {
    type Future = std::future::Ready<()>;

    fn retry(
        &mut self,
        _: &mut ModelRequest,
        result: &mut Result<ModelResponse>,
    ) -> Option<Self::Future> {
        self.0 = self.0.checked_sub(1)?;
        result.is_err().then(|| std::future::ready(()))
    }

    fn clone_request(&mut self, request: &ModelRequest) -> Option<ModelRequest> {
        Some(request.clone())
    }
}

fn endings() -> [Error; 3] {
    let wait = Interrupt::new("wait", "input_required");
    [
        Error::abort("enough"),
        Error::interrupt(wait),
        Error::end_invocation(),
    ]
}

#[tokio::test]
async fn a_retry_outside_does_not_enter_the_band_again() {
    for ending in endings() {
        let (trace, record, raised) = (Trace::default(), RecordLayer::new(), ending.clone());
        let band = Model::new()
            .with(Logger::new("a", &trace).with_ends())
            .with(before_model(move |_| Err::<(), _>(raised.clone())));
        let stack = ServiceBuilder::new()
            .layer(RetryLayer::new(Again(3)))
            .layer(record.clone())
            .layer(band)
            .service(model(&trace));
        assert_eq!(call(stack).await.unwrap_err().kind(), ending.kind());
        assert_eq!(trace.take(), "a> a=failed", "entered once");
        assert_eq!(record.calls().len(), 4, "tried four times");
    }
}

/// The same retry over an ordinary error does enter it again: the latch is what made the
/// difference.
#[tokio::test]
async fn a_retry_outside_enters_the_band_again_after_an_ordinary_error() {
    let trace = Trace::default();
    let band = Model::new()
        .with(Logger::new("a", &trace))
        .with(before_model(|_| {
            Err::<(), _>(Error::new(ErrorKind::Overloaded, "busy"))
        }));
    let stack = ServiceBuilder::new()
        .layer(RetryLayer::new(Again(1)))
        .layer(band)
        .service(model(&trace));
    assert_eq!(call(stack).await.unwrap_err().kind(), ErrorKind::Overloaded);
    assert_eq!(trace.take(), "a> a>");
}

#[tokio::test]
async fn nothing_outside_undoes_an_ending() {
    for ending in endings() {
        let (trace, raised) = (Trace::default(), ending.clone());
        let outer = Model::new()
            .with(Logger::new("a", &trace))
            .with(on_model_error(|_, _| {
                Recovery::Fallback(ModelResponse::from_text("fallback"))
            }))
            .with(after_model(|_, _| {
                Action::Respond(ModelResponse::from_text("after"))
            }));
        let stack = ServiceBuilder::new()
            .layer(outer)
            .layer(before_model(move |_| Err::<(), _>(raised.clone())))
            .service(model(&trace));
        let request = ModelRequest::default();
        let context = request.context().clone();
        assert_eq!(
            stack.oneshot(request).await.unwrap_err().kind(),
            ending.kind()
        );
        assert_eq!(trace.take(), "a>", "its `on_error` is not asked");
        assert_eq!(
            context.aborted().is_some(),
            ending.kind() == ErrorKind::Aborted
        );
        assert_eq!(context.interrupts().len(), ending.interrupts().len());
    }
}

/// A layer between the bands makes an answer of the failure.
#[tokio::test]
async fn a_layer_that_swallows_an_abort_does_not_undo_it() {
    let trace = Trace::default();
    let stack = ServiceBuilder::new()
        .layer(logs(&["a"], &trace))
        .layer(tower::util::ThenLayer::new(
            |result: Result<ModelResponse>| async move {
                Ok::<_, Error>(result.unwrap_or_else(|_| ModelResponse::from_text("all is well")))
            },
        ))
        .layer(after_model(|_, _| Err::<(), _>(Error::abort("enough"))))
        .service(model(&trace));
    let error = call(stack).await.unwrap_err();
    assert_eq!(
        (error.kind(), error.message()),
        (ErrorKind::Aborted, "enough")
    );
    assert_eq!(trace.take(), "a> call");
}

#[tokio::test]
async fn no_on_error_sees_what_a_layer_made_of_an_abort() {
    let trace = Trace::default();
    let asked = trace.clone();
    let stack = ServiceBuilder::new()
        .layer(on_model_error(move |_, _| {
            asked.push("on_error");
            Recovery::Retry
        }))
        .map_err(|_: Error| Error::new(ErrorKind::Overloaded, "busy"))
        .layer(before_model(|_| Err::<(), _>(Error::abort("enough"))))
        .service(model(&trace));
    assert_eq!(call(stack).await.unwrap_err().kind(), ErrorKind::Aborted);
    assert_eq!(trace.take(), "");
}

/// A wrap has it no easier.
#[tokio::test]
async fn a_wrap_that_swallows_an_abort_does_not_undo_it() {
    let stack = ServiceBuilder::new()
        .layer(wrap_model(|request, mut next| async move {
            let result = next.run(request).await;
            Ok(result.unwrap_or_else(|_| ModelResponse::from_text("all is well")))
        }))
        .layer(before_model(|_| Err::<(), _>(Error::abort("enough"))))
        .service(model(&Trace::default()));
    assert_eq!(call(stack).await.unwrap_err().kind(), ErrorKind::Aborted);
}

/// An interrupt or an end in an `after` leaves the call its response, which no band outside
/// replaces.
#[tokio::test]
async fn an_after_outside_does_not_replace_the_response_of_a_run_that_ended() {
    for ending in &endings()[1..] {
        let (trace, raised) = (Trace::default(), ending.clone());
        let stack = ServiceBuilder::new()
            .layer(Model::new().with(Logger::new("a", &trace).with_ends()))
            .layer(after_model(|_, _| {
                Action::Respond(ModelResponse::from_text("after"))
            }))
            .layer(after_model(move |_, _| Err::<(), _>(raised.clone())))
            .service(model(&trace));
        let response = call(stack).await.unwrap();
        assert_eq!(
            (response.message().text().as_str(), response.origin()),
            ("service", Origin::Service)
        );
        assert_eq!(trace.take(), "a> call a=done");
    }
}

#[tokio::test]
async fn an_error_of_a_hook_is_for_the_band_outside() {
    let trace = Trace::default();
    let record = RecordLayer::new();
    let stack = ServiceBuilder::new()
        .layer(logs(&["outer"], &trace).with(on_model_error(|_, error| {
            Recovery::Fallback(ModelResponse::from_text(error.message().to_owned()))
        })))
        .layer(record.clone())
        .layer(logs(&["inner"], &trace).with(before_model(|_| {
            Err::<(), _>(Error::new(ErrorKind::InvalidRequest, "too long"))
        })))
        .service(model(&trace));
    let response = call(stack).await.unwrap();
    assert_eq!(
        (response.message().text().as_str(), response.origin()),
        ("too long", Origin::Fallback)
    );
    assert_eq!(trace.take(), "outer> inner> outer!invalid request <outer");
    assert!(matches!(&record.calls()[..], [Ended::Failed(_)]));
}

/// Layers between two bands that change the response keep what the inner band made of it.
#[tokio::test]
async fn a_layer_between_two_bands_sees_what_the_inner_one_answered() {
    let stack = ServiceBuilder::new()
        .layer(after_model(|_, response| {
            Action::Respond(ModelResponse::from_text(
                response.message().text() + " outer",
            ))
        }))
        .layer(MapResponseLayer::new(|response: ModelResponse| {
            ModelResponse::from_text(response.message().text() + " between")
        }))
        .layer(after_model(|_, response| {
            Action::Respond(ModelResponse::from_text(
                response.message().text() + " inner",
            ))
        }))
        .service(model(&Trace::default()));
    assert_eq!(
        call(stack).await.unwrap().message().text(),
        "service inner between outer"
    );
}

/// Nor has a hook that makes a call of its own.
#[tokio::test]
async fn a_hook_that_swallows_an_abort_does_not_undo_it() {
    let sub =
        || before_model(|_| Err::<(), _>(Error::abort("enough"))).layer(model(&Trace::default()));
    let before = before_model(move |request| {
        let call = sub().oneshot(request.clone());
        async move { call.await.map(drop).map_err(|_| Error::from("all is lost")) }
    });
    let after = after_model(move |request, _| {
        let call = sub().oneshot(request.clone());
        async move {
            call.await
                .map_or_else(|_| Action::Continue, Action::Respond)
        }
    });
    for result in [
        call(before.layer(model(&Trace::default()))).await,
        call(after.layer(model(&Trace::default()))).await,
    ] {
        assert_eq!(result.unwrap_err().kind(), ErrorKind::Aborted);
    }
}

#[tokio::test]
async fn no_call_is_made_after_a_hook_that_hides_an_abort() {
    let trace = Trace::default();
    let before = before_model(|request| {
        let sub = before_model(|_| Err::<(), _>(Error::abort("enough")));
        let call = sub.layer(model(&Trace::default())).oneshot(request.clone());
        async move { drop(call.await) }
    });
    let error = call(before.layer(model(&trace))).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Aborted);
    assert_eq!(trace.take(), "");
}

/// Ready, then broken, then ready again; its first call fails.
#[derive(Clone, Default)]
struct Flaky {
    polls: Arc<AtomicU32>,
    calls: Arc<AtomicU32>,
}

impl Service<ModelRequest> for Flaky {
    type Response = ModelResponse;
    type Error = Error;
    type Future = std::future::Ready<Result<ModelResponse>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<()>> {
        match self.polls.fetch_add(1, Ordering::SeqCst) {
            1 => Poll::Ready(Err(Error::new(ErrorKind::Connection, "lost"))),
            _ => Poll::Ready(Ok(())),
        }
    }

    fn call(&mut self, _: ModelRequest) -> Self::Future {
        std::future::ready(match self.calls.fetch_add(1, Ordering::SeqCst) {
            0 => Err(Error::new(ErrorKind::Provider, "down")),
            _ => Ok(ModelResponse::from_text("up")),
        })
    }
}

#[tokio::test]
async fn a_retry_that_finds_the_service_not_ready_is_a_failure_like_any_other() {
    let seen = Trace::default();
    let flaky = Flaky::default();
    let model = on_model_error({
        let seen = seen.clone();
        move |_, error| {
            seen.push(error.message());
            Recovery::Retry
        }
    })
    .layer(flaky.clone());

    let response = model.oneshot(ModelRequest::default()).await.unwrap();

    assert_eq!(response.message().text(), "up");
    assert_eq!(seen.take(), "down lost");
    assert_eq!(flaky.calls.load(Ordering::SeqCst), 2);
}
