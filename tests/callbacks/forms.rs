//! Every form that a callback may be written in.

use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::task::{Context, Poll};

use serde_json::json;
use tower::{BoxError, Layer, ServiceBuilder, ServiceExt, service_fn};
use tower_agent::callback::{
    self, after_agent, after_model, after_model_async, after_tool, after_tool_async, before_agent,
    before_agent_async, before_model, before_model_async, before_tool, before_tool_async,
    on_agent_error, on_agent_error_async, on_model_error, on_model_error_async, on_tool_error,
    on_tool_error_async, wrap_agent, wrap_model, wrap_tool,
};
use tower_agent::message::ToolCall;
use tower_agent::{
    Action, AgentRequest, AgentResponse, Callback, Callbacks, Error, ErrorKind, Message,
    ModelRequest, ModelResponse, Recovery, Request, Result, ToolRequest, ToolResponse,
};
use tower_agent_test::{ScriptedModel, Turn};

use test_support::call::{Call, Embed};
use test_support::trace::{Trace, pending_once};

/// Answers with what it was asked.
fn echo() -> ScriptedModel {
    ScriptedModel::always(Turn::function(|request| {
        Ok(ModelResponse::from_text(request.noted()))
    }))
}

fn failing() -> ScriptedModel {
    ScriptedModel::always(Turn::error(Error::new(ErrorKind::Provider, "service")))
}

async fn text(layer: impl Layer<ScriptedModel, Service: Model>, model: ScriptedModel) -> String {
    let answer = answer(layer, model).await;
    answer.map_or_else(
        |error| error.to_string(),
        |response| response.message().text(),
    )
}

async fn answer(
    layer: impl Layer<ScriptedModel, Service: Model>,
    model: ScriptedModel,
) -> Result<ModelResponse> {
    layer.layer(model).oneshot(ModelRequest::default()).await
}

trait Model: tower::Service<ModelRequest, Response = ModelResponse, Error = Error> {}
impl<S: tower::Service<ModelRequest, Response = ModelResponse, Error = Error>> Model for S {}

fn sync_item(request: &mut ModelRequest) -> Result<Action<ModelResponse>> {
    request.note("i");
    Ok(Action::Continue)
}

async fn async_item(request: &mut ModelRequest) -> Result<Action<ModelResponse>> {
    pending_once().await;
    request.note("j");
    Ok(Action::Continue)
}

async fn async_unit_item(request: &mut ModelRequest) {
    pending_once().await;
    request.note("k");
}

#[tokio::test]
async fn before_in_every_form() {
    let captured = Arc::new(String::from("d"));
    let shared = captured.clone();
    let band = Callbacks::new()
        // Sync: nothing, an action, a result of either.
        .with(before_model(|request| request.note("a")))
        .with(before_model(|request| {
            request.note("b");
            Action::Continue
        }))
        .with(before_model(|request| {
            request.note("c");
            Ok(Action::Continue)
        }))
        .with(before_model(move |request| {
            request.note(&captured);
            Ok(())
        }))
        .with(before_model(|request| {
            let n: u32 = "1".parse()?;
            let even: bool = "false".parse()?;
            request.note(if n == 1 && !even { "e" } else { "?" });
            Ok(())
        }))
        // A future that owns what it uses.
        .with(before_model(|request| {
            request.note("f");
            async move { pending_once().await }
        }))
        .with(before_model(move |request| {
            request.note("g");
            let shared = shared.clone();
            async move {
                pending_once().await;
                match shared.len() {
                    0 => Err(Error::abort("empty")),
                    _ => Ok(Action::Continue),
                }
            }
        }))
        .with(before_model(|request| {
            request.note("h");
            async move {
                let _: u32 = "1".parse()?;
                Ok(())
            }
        }))
        .with(before_model(sync_item))
        // A future that borrows the request.
        .with(before_model_async(async_item))
        .with(before_model_async(async_unit_item))
        .with(before_model_async(async |request: &mut ModelRequest| {
            pending_once().await;
            request.note("l");
        }))
        .with(before_model_async(async |request: &mut ModelRequest| {
            let _: u32 = "1".parse()?;
            request.note("m");
            Ok(())
        }));
    assert_eq!(text(band, echo()).await, "abcdefghijklm");
}

#[tokio::test]
async fn before_answers_in_every_form() {
    let yes = || ModelResponse::from_text("yes");
    assert_eq!(
        text(before_model(move |_| Action::Respond(yes())), echo()).await,
        "yes"
    );
    assert_eq!(
        text(before_model(move |_| Ok(Action::Respond(yes()))), echo()).await,
        "yes"
    );
    let owning = before_model(move |_| async move { Action::Respond(yes()) });
    assert_eq!(text(owning, echo()).await, "yes");
    let borrowing = before_model_async(async |request: &mut ModelRequest| {
        pending_once().await;
        Action::Respond(ModelResponse::from_text(format!(
            "{} messages",
            request.messages().len()
        )))
    });
    assert_eq!(text(borrowing, echo()).await, "0 messages");
}

async fn louder(_: &ModelRequest, response: &ModelResponse) -> Action<ModelResponse> {
    pending_once().await;
    Action::Respond(ModelResponse::from_text(response.message().text() + "!"))
}

#[tokio::test]
async fn after_in_every_form() {
    let add = |response: &ModelResponse, more: &str| {
        Action::Respond(ModelResponse::from_text(response.message().text() + more))
    };
    let seen = Trace::default();
    let (seen1, seen2) = (seen.clone(), seen.clone());
    let band = Callbacks::new()
        .with(after_model(move |_, response| {
            seen1.push(response.message().text())
        }))
        .with(after_model(move |_, response| add(response, "a")))
        .with(after_model(move |_, response| Ok(add(response, "b"))))
        .with(after_model(|_, _| Ok(())))
        .with(after_model(move |_, response| {
            let louder = add(response, "c");
            async move {
                pending_once().await;
                Ok(louder)
            }
        }))
        .with(after_model(|request, response| {
            let (asked, text) = (request.noted(), response.message().text());
            async move { Action::Respond(ModelResponse::from_text(asked + &text)) }
        }))
        .with(after_model_async(louder))
        .with(after_model_async(
            async |_: &ModelRequest, response: &ModelResponse| {
                pending_once().await;
                Ok(Action::Respond(ModelResponse::from_text(
                    response.message().text() + "?",
                )))
            },
        ))
        .with(after_model(move |_, response| {
            let text = response.message().text();
            let seen = seen2.clone();
            async move { seen.push(text) }
        }))
        .with(before_model(|request| request.note("-")));
    assert_eq!(text(band, echo()).await, "--abc!?");
    assert_eq!(seen.take(), "- --abc!?");
}

async fn reworded(_: &mut ModelRequest, error: &Error) -> Result<Recovery<ModelResponse>> {
    pending_once().await;
    Ok(Recovery::Fail(Error::new(
        ErrorKind::Provider,
        format!("{}c", error.message()),
    )))
}

#[tokio::test]
async fn on_error_in_every_form() {
    let reword = |error: &Error, more: &str| {
        Recovery::Fail(Error::new(
            ErrorKind::Provider,
            format!("{}{more}", error.message()),
        ))
    };
    let band = Callbacks::new()
        .with(on_model_error(|_, _| ()))
        .with(on_model_error(|_, _| Ok(())))
        .with(on_model_error(move |_, error| reword(error, "a")))
        .with(on_model_error(move |_, error| {
            let reworded = reword(error, "b");
            async move {
                pending_once().await;
                Ok(reworded)
            }
        }))
        .with(on_model_error_async(reworded))
        .with(on_model_error_async(
            async |request: &mut ModelRequest, error: &Error| {
                pending_once().await;
                request.note("d");
                Recovery::Fail(Error::new(
                    ErrorKind::Provider,
                    format!("{}{}", error.message(), request.noted()),
                ))
            },
        ))
        .with(on_model_error_async(
            async |_: &mut ModelRequest, _: &Error| pending_once().await,
        ));
    assert_eq!(
        answer(band.clone(), failing()).await.unwrap_err().message(),
        "serviceabcd"
    );

    let band = band.with(on_model_error(|_, error| {
        let _: u32 = "1".parse()?;
        Ok(Recovery::Fallback(ModelResponse::from_text(
            error.message().to_owned(),
        )))
    }));
    assert_eq!(text(band, failing()).await, "serviceabcd");
}

/// `?` on an error of the standard library fails the call, and names the callback.
#[tokio::test]
async fn a_question_mark_fails_the_call() {
    let sync = before_model(|_| {
        let _: u32 = "one".parse()?;
        Ok(())
    });
    let owning = after_model(|_, response| {
        let text = response.message().text() + "one";
        async move {
            let _: u32 = text.parse()?;
            Ok(())
        }
    });
    let borrowing = before_model_async(async |request: &mut ModelRequest| {
        request.note(&"one".parse::<u32>()?.to_string());
        Ok(())
    });
    let borrowed = after_model_async(async |_: &ModelRequest, _: &ModelResponse| {
        pending_once().await;
        let _: u32 = "one".parse()?;
        Ok(())
    });
    for result in [
        answer(sync.named("n"), echo()).await,
        answer(owning.named("n"), echo()).await,
        answer(borrowing.named("n"), echo()).await,
        answer(borrowed.named("n"), echo()).await,
    ] {
        let error = result.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Callback);
        assert!(
            error.downcast_ref::<std::num::ParseIntError>().is_some(),
            "{error:?}"
        );
        assert_eq!(error.raised_by().unwrap().callback, "n");
    }
}

#[test]
fn a_closure_is_named_after_its_place() {
    let line = line!() + 1;
    let here = before_model(|_| ());
    assert_eq!(
        Callback::name(&here),
        format!("before_model at tests/callbacks/forms.rs:{line}:16")
    );
    assert_eq!(Callback::name(&here.clone()), Callback::name(&here));
    assert_eq!(Callback::name(&here.named("policy")), "policy");

    let start =
        |name: std::borrow::Cow<'_, str>| name.split(" at tests/").next().map(str::to_owned);
    let names: Vec<_> = Callbacks::new()
        .with(after_model(|_, _| ()))
        .with(on_model_error(|_, _| ()))
        .with(before_model_async(async_item))
        .with(callback::before(|_: &mut ModelRequest| ()))
        .names()
        .filter_map(start)
        .collect();
    assert_eq!(
        names,
        ["after_model", "on_model_error", "before_model", "before"]
    );
    assert!(
        wrap_model(|request, mut next| async move { next.run(request).await })
            .name()
            .starts_with("wrap_model at tests/callbacks/forms.rs:")
    );
}

#[tokio::test]
async fn one_value_is_a_layer_and_a_callback() {
    let once = before_model(|request| request.note("x"));
    let stack = ServiceBuilder::new()
        .layer(once.clone())
        .layer(Callbacks::new().with(once.clone()).with(once))
        .service(echo());
    let response = stack.oneshot(ModelRequest::default()).await.unwrap();
    assert_eq!(response.message().text(), "xxx");
}

/// Counts calls of every kind.
#[derive(Clone, Default)]
struct Counter(Arc<AtomicU32>, Trace);

impl<R: Request> Callback<R> for Counter {
    async fn before(&self, _: &mut R) -> Result<Action<R::Response>> {
        self.0.fetch_add(1, Ordering::Relaxed);
        self.1.push(R::CALL.to_string());
        Ok(Action::Continue)
    }
}

async fn ask<R: Call>(layer: impl Callback<R>) -> Result<R::Response> {
    let service = service_fn(async |request: R| {
        if request.noted() == "fail" {
            return Err(BoxError::from(Error::new(ErrorKind::Provider, "service")));
        }
        Ok(R::response(&request.noted()))
    });
    Callbacks::new()
        .with(layer)
        .layer(service)
        .oneshot(R::request(Default::default()))
        .await
}

#[tokio::test]
async fn one_callback_wraps_every_call() {
    let counter = Counter::default();
    ask::<AgentRequest>(counter.clone()).await.unwrap();
    ask::<ModelRequest>(counter.clone()).await.unwrap();
    ask::<ToolRequest>(counter.clone()).await.unwrap();
    ask::<Embed>(counter.clone()).await.unwrap();
    assert_eq!(counter.0.load(Ordering::Relaxed), 4);
    assert_eq!(counter.1.take(), "agent model tool embed");
    assert_eq!(Callback::<ModelRequest>::name(&counter), "Counter");
}

async fn note_agent(request: &mut AgentRequest) {
    request.note("b");
}

async fn note_tool(request: &mut ToolRequest) {
    request.note("b");
}

/// The constructors of the other calls take the same forms.
#[tokio::test]
async fn every_call_has_its_own_constructors() {
    let agent = ServiceBuilder::new()
        .layer(before_agent(|request| request.note("a")))
        .layer(before_agent_async(note_agent))
        .layer(after_agent(|_, response| {
            Action::Respond(AgentResponse::new([Message::assistant(
                response.text() + "c",
            )]))
        }))
        .layer(on_agent_error(|_, error| {
            Recovery::Fallback(AgentRequest::response(error.message()))
        }))
        .layer(on_agent_error_async(
            async |_: &mut AgentRequest, error: &Error| {
                Recovery::Fail(Error::new(error.kind(), "reworded"))
            },
        ))
        .layer(wrap_agent(|request, mut next| async move {
            let response = next.run(request).await?;
            match response.text().len() {
                0 => Err("silence".into()),
                _ => Ok(response),
            }
        }))
        .service_fn(async |request: AgentRequest| {
            Ok::<_, BoxError>(AgentRequest::response(&request.noted()))
        });
    assert_eq!(
        agent
            .oneshot(AgentRequest::conversation([]))
            .await
            .unwrap()
            .text(),
        "abc"
    );

    let tool = ServiceBuilder::new()
        .layer(before_tool(|request| request.note("a")))
        .layer(before_tool_async(note_tool))
        .layer(after_tool(|_, response| {
            Action::Respond(ToolResponse::new(ToolRequest::text(response) + "d"))
        }))
        .layer(after_tool_async(
            async |request: &ToolRequest, response: &ToolResponse| {
                assert_eq!(request.name(), "tool");
                Action::Respond(ToolResponse::new(ToolRequest::text(response) + "c"))
            },
        ))
        .layer(on_tool_error(|_, error| {
            Recovery::Fallback(ToolResponse::error(error.message().to_owned()))
        }))
        .layer(on_tool_error_async(
            async |request: &mut ToolRequest, _: &Error| {
                request.note("e");
                Recovery::Retry
            },
        ))
        .layer(wrap_tool(|request, mut next| async move {
            next.run(request).await
        }))
        .service_fn(async |request: ToolRequest| {
            if request.noted().contains('e') {
                Ok(ToolRequest::response(&request.noted()))
            } else {
                Err(BoxError::from("not yet"))
            }
        });
    let request = ToolRequest::new(ToolCall::new("call_1", "tool", json!("")));
    assert_eq!(
        ToolRequest::text(&tool.oneshot(request).await.unwrap()),
        "abecd"
    );
}

/// A call that the crate does not know has the same closures.
#[tokio::test]
async fn a_custom_call_takes_every_form() {
    let stack = ServiceBuilder::new()
        .layer(callback::before(|request: &mut Embed| request.note("a")))
        .layer(callback::before_async(async |request: &mut Embed| {
            pending_once().await;
            request.note("b");
        }))
        .layer(callback::after(|_: &Embed, response| {
            Action::Respond(Embed::response(&(response.text.clone() + "f")))
        }))
        .layer(callback::after_async(
            async |_: &Embed, response: &test_support::call::Embedding| {
                Action::Respond(Embed::response(&(response.text.clone() + "e")))
            },
        ))
        .layer(callback::on_error(|request: &mut Embed, _| {
            request.note("d");
            Recovery::Retry
        }))
        .layer(callback::on_error_async(
            async |_: &mut Embed, error: &Error| {
                Recovery::Fail(Error::new(error.kind(), "reworded"))
            },
        ))
        .layer(callback::wrap(|mut request: Embed, mut next| async move {
            request.note("c");
            next.run(request).await
        }))
        .service_fn(async |request: Embed| {
            if request.text.contains('d') {
                Ok(Embed::response(&request.text))
            } else {
                Err(BoxError::from("not yet"))
            }
        });
    assert_eq!(
        stack.oneshot(Embed::default()).await.unwrap().text,
        "abdcef"
    );
}

/// A hook whose future has this size, and waits once.
struct Waits<const SIZE: usize>;

impl<const SIZE: usize> Callback<ModelRequest> for Waits<SIZE> {
    async fn before(&self, request: &mut ModelRequest) -> Result<Action<ModelResponse>> {
        let kept = [b'x'; SIZE];
        pending_once().await;
        request.note(&String::from_utf8_lossy(&kept));
        Ok(Action::Continue)
    }
}

#[tokio::test]
async fn a_hook_may_wait_whatever_the_size_of_its_future() {
    let hooks = Callbacks::new()
        .with(Waits::<1>)
        .with(Waits::<200>)
        .with(Waits::<2>);
    assert_eq!(text(hooks, echo()).await, "x".repeat(203));
}

/// A hook whose future panics when it is polled, when it is dropped, or both.
struct Breaks {
    polled: bool,
    dropped: bool,
}

struct Breaking {
    polled: bool,
    dropped: bool,
}

impl Future for Breaking {
    type Output = Result<Action<ModelResponse>>;

    fn poll(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<Self::Output> {
        assert!(!self.polled, "polled");
        Poll::Ready(Ok(Action::Continue))
    }
}

impl Drop for Breaking {
    fn drop(&mut self) {
        assert!(!self.dropped, "dropped");
    }
}

impl Callback<ModelRequest> for Breaks {
    fn before(
        &self,
        _: &mut ModelRequest,
    ) -> impl Future<Output = Result<Action<ModelResponse>>> + Send {
        Breaking {
            polled: self.polled,
            dropped: self.dropped,
        }
    }
}

#[tokio::test]
async fn a_panic_of_a_hooks_future_is_an_error_wherever_it_panics() {
    for (polled, dropped, message) in [
        (true, false, "polled"),
        (false, true, "dropped"),
        (true, true, "polled"),
    ] {
        let hooks = Callbacks::new().with(Breaks { polled, dropped });
        let error = answer(hooks, echo()).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Callback);
        assert_eq!(error.message(), format!("panicked: {message}"));
    }
}
