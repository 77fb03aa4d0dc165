//! However a translation fails: one `RUN_ERROR`, and the agent is dropped where it stands.

use futures::{FutureExt, StreamExt};
use serde_json::json;
use tower_agent::callback::before_tool;
use tower_agent::model::FinishReason;
use tower_agent::stream::EventKind as Told;
use tower_agent::{
    Action, Agent, BoxError, Error, ErrorKind, Interrupt, ModelResponse, Recovery, Result, Tool,
    Usage,
};
use tower_agent_agui::{
    AgUi, AgUiBuilder, Event, TranslateRequest, TranslateResponse, after_translate,
    before_translate, on_translate_error, wrap_translate,
};
use tower_agent_test::{ScriptedModel, Turn};

use super::{customs, error, input, names, open, presets, run, text};
use crate::watched::Watched;

/// Runs the endless agent until it ends, which only the translation can do.
fn ends(change: impl FnOnce(AgUiBuilder) -> AgUiBuilder) -> Vec<Event> {
    let watched = Watched::default();
    let server = change(open(watched.agent().build().unwrap())).build();
    let mut events = super::started(&server, input());
    let runtime = tokio::runtime::Builder::new_current_thread()
        .build()
        .unwrap();
    let mut sent = Vec::new();
    loop {
        let event = runtime.block_on(events.next()).expect("it ends once");
        let is_error = event.kind.name() == "RUN_ERROR";
        sent.push(event);
        if is_error {
            break;
        }
        assert_eq!(watched.calls(), watched.alive());
    }
    // At once, and not only when the stream is dropped.
    assert_eq!(watched.alive(), 0);
    assert!(events.next().now_or_never().unwrap().is_none());
    assert!(watched.calls() <= 1);
    drop(events);
    crate::rules::check("t", "r", &super::wire(&sent)).unwrap();
    sent
}

fn third_word(request: &TranslateRequest) -> bool {
    matches!(&request.event().kind, Told::TextDelta { .. })
        && request.messages().last().is_some_and(|message| {
            serde_json::to_value(message).unwrap()["content"] == json!("word word ")
        })
}

fn other(message: &'static str) -> Error {
    Error::new(ErrorKind::Other, message)
}

#[test]
fn an_error_of_a_hook_is_one_run_error_and_drops_the_model() {
    let sent = ends(|server| {
        server.on_translate(before_translate(|request| {
            if third_word(request) {
                Err(other("no more"))
            } else {
                Ok(())
            }
        }))
    });
    assert_eq!(text(&sent), "word word ");
    assert_eq!(
        (&*error(&sent).message, error(&sent).code.as_deref()),
        ("no more", Some("callback"))
    );

    let sent = ends(|server| {
        server.on_translate(after_translate(|request, _| {
            if third_word(request) {
                Err(other("no more"))
            } else {
                Ok(())
            }
        }))
    });
    assert_eq!(text(&sent), "word word ");
    assert_eq!(error(&sent).message, "no more");
}

#[test]
fn an_abort_of_a_hook_has_a_code_of_its_own_under_every_preset() {
    for (preset, band, _) in presets() {
        let sent = ends(|server| {
            server
                .semantics(band)
                // Neither may undo it.
                .on_translate(on_translate_error(|_, _| {
                    Recovery::Fallback(TranslateResponse::none())
                }))
                .translate_layer(wrap_translate(
                    |request: TranslateRequest, mut next| async move {
                        let _ = next.run(request.clone()).await;
                        next.run(request).await
                    },
                ))
                .on_translate(before_translate(|request| {
                    if third_word(request) {
                        Err(Error::abort("that is enough"))
                    } else {
                        Ok(())
                    }
                }))
        });
        assert_eq!(text(&sent), "word word ", "{preset}");
        let error = error(&sent);
        assert_eq!(
            (&*error.message, error.code.as_deref()),
            ("that is enough", Some("stop_agent_error")),
            "{preset}",
        );
    }
}

/// The outermost layer makes nothing of the abort; the agent ends by it all the same.
#[test]
fn an_abort_that_a_layer_swallows_ends_the_run_all_the_same() {
    let turns = (0..30).map(|turn| Turn::tool("echo", json!(turn)));
    let model = ScriptedModel::new(turns);
    let echo = Tool::function("echo", "Echoes.", |value: serde_json::Value| value);
    let agent = Agent::builder(model.clone())
        .tool(echo)
        .max_iterations(30)
        .build()
        .unwrap();
    let server = open(agent)
        .translate_layer(wrap_translate(
            |request: TranslateRequest, mut next| async move {
                Ok(next.run(request).await.unwrap_or_default())
            },
        ))
        .on_translate(before_translate(|request| match request.event().kind {
            Told::ToolCallStart(_) => Err(Error::abort("no tools")),
            _ => Ok(()),
        }))
        .build();
    let sent = run(&server, input());
    assert_eq!(error(&sent).code.as_deref(), Some("stop_agent_error"));
    assert_eq!(error(&sent).message, "no tools");
    // The agent is ahead of what is translated by the events that wait, and no more.
    assert!(model.requests().len() <= 4, "{}", model.requests().len());
}

#[test]
fn an_error_of_a_layer_and_one_of_anybody_elses_type_end_the_run() {
    let sent = ends(|server| {
        server.translate_layer(wrap_translate(
            |request: TranslateRequest, mut next| async move {
                if third_word(&request) {
                    return Err(other("the layer is ill"));
                }
                next.run(request).await
            },
        ))
    });
    assert_eq!(error(&sent).message, "the layer is ill");

    let sent = ends(|server| {
        server.translate_layer(tower::layer::layer_fn(|inner| {
            tower::filter::Filter::new(inner, |request: TranslateRequest| {
                if third_word(&request) {
                    return Err(BoxError::from("filtered"));
                }
                Ok(request)
            })
        }))
    });
    assert_eq!(error(&sent).message, "filtered");
}

#[test]
fn a_panic_in_a_hook_or_in_a_layer_is_one_run_error() {
    let panics = |request: &TranslateRequest| assert!(!third_word(request), "three words");
    type Change = Box<dyn FnOnce(AgUiBuilder) -> AgUiBuilder>;
    let cases: Vec<(&str, Change)> = vec![
        (
            "before",
            Box::new(move |server| {
                server.on_translate(before_translate(move |request| panics(request)))
            }),
        ),
        (
            "after",
            Box::new(move |server| {
                server.on_translate(after_translate(move |request, _| panics(request)))
            }),
        ),
        (
            "later",
            Box::new(move |server| {
                server.on_translate(before_translate(move |request| {
                    let request = request.clone();
                    async move {
                        tokio::task::yield_now().await;
                        panics(&request);
                    }
                }))
            }),
        ),
        (
            "wrap",
            Box::new(move |server| {
                server.translate_layer(wrap_translate(
                    move |request: TranslateRequest, mut next| {
                        panics(&request);
                        async move { next.run(request).await }
                    },
                ))
            }),
        ),
        (
            "layer",
            Box::new(move |server| {
                server.translate_layer(tower::util::MapRequestLayer::new(move |request| {
                    panics(&request);
                    request
                }))
            }),
        ),
        (
            "response",
            Box::new(move |server| {
                server.translate_layer(tower::util::MapResponseLayer::new(
                    move |response: TranslateResponse| -> TranslateResponse {
                        let deltas = response.events().iter();
                        let deltas =
                            deltas.filter(|event| event.kind.name() == "TEXT_MESSAGE_CONTENT");
                        assert_eq!(deltas.count(), 0, "three words");
                        response
                    },
                ))
            }),
        ),
    ];
    for (place, change) in cases {
        let sent = ends(change);
        let error = error(&sent);
        assert!(
            error.message.contains("three words"),
            "{place}: {}",
            error.message
        );
        assert_eq!(error.code.as_deref(), Some("callback"), "{place}");
    }
}

/// Whoever fails at the first event: the agent has not begun.
#[test]
fn an_error_on_the_very_first_event_is_all_that_is_sent_and_the_model_is_not_called() {
    let after = |server: AgUiBuilder| {
        server.on_translate(after_translate(|_, _| Err::<(), _>(other("not today"))))
    };
    let before = |server: AgUiBuilder| {
        server.on_translate(before_translate(|_| {
            Err::<(), _>(Error::abort("not today"))
        }))
    };
    let panics = |server: AgUiBuilder| {
        server.translate_layer(wrap_translate(|_: TranslateRequest, _| async {
            panic!("not today")
        }))
    };
    type Change = Box<dyn FnOnce(AgUiBuilder) -> AgUiBuilder>;
    let changes: [Change; 3] = [Box::new(after), Box::new(before), Box::new(panics)];
    for change in changes {
        let watched = Watched::default();
        let sent = run(
            &change(open(watched.agent().build().unwrap())).build(),
            input(),
        );
        assert_eq!(names(&sent), ["RUN_ERROR"]);
        assert!(error(&sent).message.contains("not today"));
        assert_eq!(watched.calls(), 0);
    }
}

/// An ending of more than a call ends the run here: there is nothing of a translation to resume.
#[test]
fn an_interrupt_or_an_end_of_the_invocation_ends_the_run_with_its_code() {
    let endings = [
        (Error::interrupt(Interrupt::new("i", "why")), "interrupted"),
        (Error::end_invocation(), "invocation_ended"),
    ];
    for (ending, code) in endings {
        let (in_before, in_after) = (ending.clone(), ending);
        let sent = ends(|server| {
            server.on_translate(before_translate(move |request| {
                if third_word(request) {
                    Err(in_before.clone())
                } else {
                    Ok(())
                }
            }))
        });
        assert_eq!(error(&sent).code.as_deref(), Some(code));
        let sent = ends(|server| {
            server.on_translate(after_translate(move |request, _| {
                if third_word(request) {
                    Err(in_after.clone())
                } else {
                    Ok(())
                }
            }))
        });
        // The event itself has its translation.
        assert_eq!(text(&sent), "word word word ");
        assert_eq!(error(&sent).code.as_deref(), Some(code));
    }
}

/// The agent ends by an abort: callbacks see all that it has told, the end included.
#[test]
fn events_before_an_abort_pass_the_callbacks() {
    let agent = || {
        let model = ScriptedModel::new([Turn::tool("erase", json!("all")).usage(Usage::new(7, 5))]);
        Agent::builder(model)
            .tool(Tool::function(
                "erase",
                "Erases.",
                |_: serde_json::Value| "gone",
            ))
            .on_tool(before_tool(|_| Err::<(), _>(Error::abort("not here"))))
            .build()
            .unwrap()
    };
    let plain = run(&open(agent()).build(), input());
    assert_eq!(error(&plain).code.as_deref(), Some("stop_agent_error"));
    assert_eq!(error(&plain).message, "not here");
    assert_eq!(error(&plain).usage.len(), 1);

    for (preset, band, _) in presets() {
        let server = open(agent())
            .semantics(band)
            .on_translate(before_translate(|_| {}))
            .on_translate(after_translate(|_, _| {}));
        assert_eq!(run(&server.build(), input()), plain, "{preset}");
    }

    // Only a callback that sees what it was can tell people more.
    let server =
        open(agent()).on_translate(before_translate(|request| match &request.event().kind {
            Told::RunFailed { error } if error.kind() == ErrorKind::Aborted => {
                let told = [
                    Event::custom("stopped", error.message()),
                    Event::run_error("Stopped."),
                ];
                Action::Respond(TranslateResponse::new(told))
            }
            _ => Action::Continue,
        }));
    let sent = run(&server.build(), input());
    assert_eq!(customs(&sent), ["stopped"]);
    assert_eq!(error(&sent).message, "Stopped.");
}

#[test]
fn a_failure_of_the_agent_is_one_run_error_with_the_code_of_its_kind() {
    for (kind, code) in [
        (ErrorKind::Provider, "provider"),
        (ErrorKind::RateLimited, "rate_limited"),
        (ErrorKind::MaxIterations, "max_iterations"),
    ] {
        let turn = Turn::from_text("half an answer").failing_after(2, Error::new(kind, "ill"));
        let sent = run(&super::says([turn]).build(), input());
        assert_eq!(
            (&*error(&sent).message, error(&sent).code.as_deref()),
            ("ill", Some(code))
        );
        let errors = names(&sent)
            .into_iter()
            .filter(|name| *name == "RUN_ERROR")
            .count();
        assert_eq!(errors, 1);
    }
}

#[test]
fn a_panic_of_the_agents_own_layer_is_one_run_error() {
    let agent = tower::service_fn(|_: tower_agent::AgentRequest| async {
        panic!("the layer broke") as Result<tower_agent::AgentResponse>
    });
    let sent = run(&open(agent).build(), input());
    assert!(
        error(&sent).message.contains("the layer broke"),
        "{:?}",
        error(&sent)
    );
}

#[test]
fn dropping_the_stream_drops_the_model() {
    let watched = Watched::default();
    let server = open(watched.agent().build().unwrap())
        .on_translate(before_translate(|_| {}))
        .build();
    let mut events = super::started(&server, input());
    while watched.deltas() < 3 {
        assert!(events.next().now_or_never().flatten().is_some());
    }
    assert_eq!(watched.alive(), 1);
    drop(events);
    assert_eq!(watched.alive(), 0);
}

#[test]
fn a_stream_that_is_not_read_stops_the_model() {
    let watched = Watched::default();
    let server = open(watched.agent().build().unwrap())
        .on_translate(before_translate(|_| {}))
        .build();
    let mut events = super::started(&server, input());
    for _ in 0..10 {
        assert!(events.next().now_or_never().flatten().is_some());
    }
    // The number of waiting events is bounded.
    assert!(watched.deltas() <= 10 + 16, "{}", watched.deltas());
    assert_eq!(watched.alive(), 1);
}

/// A client reads the end of the run, and not how each step has ended.
#[test]
fn a_client_is_told_why_a_run_has_no_whole_answer() {
    let finished = |turn: Turn| {
        let agent = Agent::builder(ScriptedModel::new([turn])).build().unwrap();
        let sent = run(&AgUi::new(agent), input());
        crate::rules::check("t", "r", &super::wire(&sent)).unwrap();
        super::wire(&sent).pop().unwrap()
    };
    let cut = |reason| Turn::response(ModelResponse::from_text("Hal").with_finish_reason(reason));
    for (turn, reason) in [
        (cut(FinishReason::Length), "cut_off"),
        (cut(FinishReason::ContentFilter), "filtered"),
        (cut(FinishReason::Refusal), "refused"),
        (Turn::from_text(""), "empty"),
    ] {
        let last = finished(turn);
        assert_eq!(last["type"], "RUN_FINISHED");
        assert_eq!(last["result"]["endReason"], reason);
        assert!(last["result"]["message"].is_string(), "{last}");
    }
    let whole = finished(Turn::from_text("All of it."));
    assert_eq!(whole.get("result"), None);
}
