//! A guard is asked whatever another callback has decided.

use std::borrow::Cow;
use std::sync::Arc;

use serde_json::json;
use tower::{ServiceExt, service_fn};
use tower_agent::callback::{
    self, Bundle, Outcome, after_model, before_model, before_tool, before_tool_async,
    on_model_error, on_tool_error,
};
use tower_agent::compat::{CallbackSemantics, Hooks, Semantics};
use tower_agent::message::ToolCall;
use tower_agent::{
    Action, Agent, AgentRequest, BoxError, Callback, Callbacks, Error, ErrorKind, ModelRequest,
    ModelResponse, Recovery, Result, Tool, ToolRequest, ToolResponse,
};
use tower_agent_test::{ScriptedModel, Turn};
use tower_layer::Layer;

use test_support::log::Log;

/// Refuses every call of a tool.
struct Refuses;

fn refusal() -> ToolResponse {
    ToolResponse::error("not allowed")
}

impl Callback<ToolRequest> for Refuses {
    async fn before(&self, _: &mut ToolRequest) -> Result<Action<ToolResponse>> {
        Ok(Action::Respond(refusal()))
    }

    fn is_guard(&self) -> bool {
        true
    }
}

impl Hooks for Refuses {
    async fn before_tool(&self, _: &mut ToolRequest) -> Result<Action<ToolResponse>> {
        Ok(Action::Respond(refusal()))
    }

    fn is_guard(&self) -> bool {
        true
    }
}

async fn refuse(_: &mut ToolRequest) -> Action<ToolResponse> {
    Action::Respond(refusal())
}

/// The guard in each form in which one can be written.
fn forms() -> Vec<(&'static str, Bundle)> {
    vec![
        (
            "sync",
            Bundle::new().on_tool(before_tool(|_| Action::Respond(refusal())).guard()),
        ),
        (
            "owning",
            Bundle::new().on_tool(before_tool(|_| async { Action::Respond(refusal()) }).guard()),
        ),
        (
            "borrowing",
            Bundle::new().on_tool(before_tool_async(refuse).guard()),
        ),
        (
            "any call",
            Bundle::new().on_tool(
                callback::before(|_: &mut ToolRequest| Action::Respond(refusal())).guard(),
            ),
        ),
        (
            "any call, borrowing",
            Bundle::new().on_tool(callback::before_async(refuse).guard()),
        ),
        ("callback", Bundle::new().on_tool(Refuses)),
        ("shared callback", Bundle::new().on_tool(Arc::new(Refuses))),
        ("hooks", Bundle::from(Refuses)),
        ("shared hooks", Bundle::from(Arc::new(Refuses))),
    ]
}

/// A callback before the guard that would have it skipped.
fn skips() -> Bundle {
    Bundle::new().on_tool(before_tool(|_| Action::SkipRest))
}

#[tokio::test]
async fn any_guard_anywhere_blocks_a_tool_whatever_was_decided_before_it() {
    let trpc = Semantics::trpc();
    let all = [
        Semantics::default(),
        Semantics::potato(),
        Semantics::adk_python(),
        trpc,
    ];
    for semantics in all {
        for (form, guard) in forms() {
            for place in ["own", "global", "run"] {
                let log = Log::default();
                let ran = log.clone();
                let model =
                    ScriptedModel::new([Turn::tool("pay", json!(1)), Turn::from_text("done")]);
                let builder = Agent::builder(model)
                    .semantics(semantics)
                    .tool(Tool::function("pay", "Pays.", move |_: u32| {
                        ran.note("paid")
                    }));
                let both = skips().and(guard.clone());
                let mut request = AgentRequest::new("?");
                let builder = match place {
                    "own" => builder.callbacks(both),
                    "global" => builder.global_callbacks(both),
                    _ => {
                        request = request.with_callbacks(both);
                        builder
                    }
                };
                let done = builder.build().unwrap().run(request).await.unwrap();
                let results: Vec<_> = done
                    .messages()
                    .iter()
                    .flat_map(|m| m.tool_results())
                    .cloned()
                    .collect();
                assert_eq!(log.take(), [""; 0], "{form}, {place}, {semantics:?}");
                assert!(results[0].is_error, "{form}, {place}, {semantics:?}");
            }
        }
    }
}

fn request() -> ToolRequest {
    ToolRequest::new(ToolCall::new("call_1", "pay", json!(1)))
}

/// The presets, and what differs most from each of them.
fn semantics() -> Vec<CallbackSemantics> {
    let everywhere = CallbackSemantics::potato().with_each(|rules| {
        rules.before_responds = true;
        rules.after_responds = true;
    });
    vec![
        CallbackSemantics::default(),
        CallbackSemantics::potato(),
        everywhere,
        CallbackSemantics::adk_python(),
        CallbackSemantics::adk_elixir(),
        CallbackSemantics::trpc(false, false),
        CallbackSemantics::trpc(false, true),
        CallbackSemantics::trpc(true, false),
        CallbackSemantics::trpc(true, true),
    ]
}

async fn answer(callbacks: Callbacks<ModelRequest>, answer: Result<&str>) -> Result<String> {
    let answer = answer.map(ModelResponse::from_text);
    let model = callbacks.layer(service_fn(move |_: ModelRequest| {
        let answer = answer.clone();
        async move { answer.map_err(BoxError::from) }
    }));
    model
        .oneshot(ModelRequest::default())
        .await
        .map(|response| response.message().text())
}

/// Puts a star in the place of every `raw`.
fn hides() -> impl Callback<ModelRequest> {
    after_model(|_, response| {
        let text = response.message().text();
        if text.contains("raw") {
            Action::Respond(ModelResponse::from_text(text.replace("raw", "*")))
        } else {
            Action::Continue
        }
    })
    .guard()
}

#[tokio::test]
async fn an_after_that_is_a_guard_sees_every_response_that_leaves_the_band() {
    for semantics in semantics() {
        let band = || Callbacks::new().with_semantics(semantics);
        let skipped = band()
            .with(after_model(|_, _| Action::SkipRest))
            .with(hides());
        assert_eq!(
            answer(skipped, Ok("raw")).await.unwrap(),
            "*",
            "{semantics:?}"
        );

        let replaced = band()
            .with(after_model(|_, _| {
                Action::Respond(ModelResponse::from_text("another raw"))
            }))
            .with(hides());
        assert_eq!(
            answer(replaced, Ok("raw")).await.unwrap(),
            "another *",
            "{semantics:?}"
        );

        let given = band()
            .with(before_model(|_| {
                Action::Respond(ModelResponse::from_text("given raw"))
            }))
            .with(hides());
        let expected = if semantics.model.before_responds {
            "given *"
        } else {
            "*"
        };
        assert_eq!(
            answer(given, Ok("raw")).await.unwrap(),
            expected,
            "{semantics:?}"
        );

        let recovered = band()
            .with(on_model_error(|_, _| {
                Recovery::Fallback(ModelResponse::from_text("some raw"))
            }))
            .with(hides());
        let failure = Err(Error::new(ErrorKind::Overloaded, "down"));
        assert_eq!(
            answer(recovered, failure).await.unwrap(),
            "some *",
            "{semantics:?}"
        );

        let ends = band()
            .with(after_model(|_, _| Err::<(), _>(Error::end_invocation())))
            .with(hides());
        assert_eq!(answer(ends, Ok("raw")).await.unwrap(), "*", "{semantics:?}");
    }
}

#[tokio::test]
async fn callbacks_after_a_guard_see_what_it_left_of_a_response() {
    for semantics in semantics() {
        let log = Log::default();
        let seen = log.clone();
        let callbacks = Callbacks::new()
            .with_semantics(semantics)
            .with(after_model(|_, _| {
                Action::Respond(ModelResponse::from_text("another raw"))
            }))
            .with(hides())
            .with(after_model(move |_, response| {
                seen.note(response.message().text())
            }));
        answer(callbacks, Ok("raw")).await.unwrap();
        assert!(!log.take().concat().contains("raw"), "{semantics:?}");
    }
}

#[tokio::test]
async fn a_guard_is_asked_after_a_failure_that_another_callback_recovers() {
    for semantics in semantics() {
        let log = Log::default();
        let (seen, failed) = (log.clone(), Error::new(ErrorKind::Overloaded, "raw"));
        let recovers = on_model_error(|_, _| Recovery::Fallback(ModelResponse::from_text("saved")));
        let guard = on_model_error(move |_, error| {
            seen.note(error.message());
            Recovery::Fail(Error::new(error.kind(), "*"))
        });
        let callbacks = Callbacks::new()
            .with_semantics(semantics)
            .with(recovers)
            .with(guard.guard());
        let answered = answer(callbacks, Err(failed)).await.unwrap();
        assert_eq!(
            (answered.as_str(), log.take()),
            ("saved", vec!["raw".to_owned()])
        );
    }
}

/// Lets a call through once for each argument that was agreed to, and says what it was asked.
struct Agreed {
    log: Log,
    to: u64,
}

impl Callback<ToolRequest> for Agreed {
    async fn before(&self, request: &mut ToolRequest) -> Result<Action<ToolResponse>> {
        self.log
            .note(format!("asked about {}", request.arguments()));
        if request.arguments() == self.to {
            Ok(Action::Continue)
        } else {
            Ok(Action::Respond(refusal()))
        }
    }

    fn on_end(&self, _: &ToolRequest, _: Outcome<'_, ToolResponse>) {
        self.log.note("ended");
    }

    fn name(&self) -> Cow<'static, str> {
        "agreed".into()
    }

    fn is_guard(&self) -> bool {
        true
    }
}

#[tokio::test]
async fn a_retry_of_a_changed_call_is_made_only_if_the_guards_let_it_through() {
    for changes in [false, true] {
        let log = Log::default();
        let guard = Agreed {
            log: log.clone(),
            to: 1,
        };
        let retries = on_tool_error(move |request, _| {
            if changes {
                *request.arguments_mut() = json!(1000);
            }
            Recovery::Retry
        });
        let callbacks = Callbacks::new().with(guard).with(retries);
        let ran = log.clone();
        let tool = callbacks.layer(service_fn(move |request: ToolRequest| {
            let log = ran.clone();
            async move {
                log.note(format!("ran {}", request.arguments()));
                Err::<ToolResponse, BoxError>("busy".into())
            }
        }));
        let result = tool.oneshot(request()).await;
        let log = log.take();
        if changes {
            assert!(result.unwrap().is_error());
            assert_eq!(log, ["asked about 1", "ran 1", "asked about 1000", "ended"]);
        } else {
            result.unwrap_err();
            assert_eq!(
                log,
                ["asked about 1", "ran 1", "ran 1", "ran 1", "ran 1", "ended"]
            );
        }
    }
}

#[tokio::test]
async fn on_end_runs_for_the_callbacks_that_were_entered() {
    // A guard that is skipped in `before` is asked in `after`, so the call must end before that.
    let log = Log::default();
    let not_asked = {
        let log = log.clone();
        EndNoted(log)
    };
    let callbacks = Callbacks::new()
        .with(before_tool(|_| Action::SkipRest))
        .with(not_asked)
        .with(Agreed {
            log: log.clone(),
            to: 1,
        });
    let call = callbacks.layer(service_fn(|_: ToolRequest| async {
        std::future::pending::<Result<ToolResponse, BoxError>>().await
    }));
    let mut call = Box::pin(call.oneshot(request()));
    assert!(futures::poll!(&mut call).is_pending());
    drop(call);
    assert_eq!(log.take(), ["asked about 1", "ended"]);
}

struct EndNoted(Log);

impl Callback<ToolRequest> for EndNoted {
    fn on_end(&self, _: &ToolRequest, _: Outcome<'_, ToolResponse>) {
        self.0.note("ended, though it was not asked");
    }
}
