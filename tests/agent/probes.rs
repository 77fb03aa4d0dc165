//! Probes: which wrapper, a band or a layer, has changed, answered, repeated or dropped a call.

use std::future::pending;
use std::time::Duration;

use futures::FutureExt;
use serde_json::{Value, json};
use test_support::wrappers::{told, word, wrappers};
use tower::timeout::TimeoutLayer;
use tower_agent::callback::{
    Bundle, after_agent, after_model, after_tool, before_agent, before_model, before_tool,
    on_model_error, on_tool_error, wrap_agent, wrap_model, wrap_tool,
};
use tower_agent::compat::CallbackSemantics;
use tower_agent::message::ToolCall;
use tower_agent::stream::{CallEnd, EventKind, observer};
use tower_agent::{
    Action, Agent, AgentBuilder, AgentRequest, AgentResponse, Error, ErrorKind, Message,
    ModelRequest, ModelResponse, Recovery, Request, Tool, ToolRequest, ToolResponse,
};
use tower_agent_test::{ScriptedModel, Turn};

const MINUTE: Duration = Duration::from_secs(60);

fn answers() -> AgentBuilder {
    Agent::builder(ScriptedModel::always(Turn::from_text("It rains.")))
}

/// A model that calls a tool, `look`, and then answers.
fn looks() -> AgentBuilder {
    let turns = [
        Turn::tool("look", json!({ "at": "sky" })),
        Turn::from_text("It rains."),
    ];
    Agent::builder(ScriptedModel::new(turns)).tool(Tool::function(
        "look",
        "Looks.",
        |_: Value| "rain",
    ))
}

fn fails(kind: ErrorKind) -> AgentBuilder {
    Agent::builder(ScriptedModel::always(Turn::error(Error::new(kind, "no"))))
}

#[tokio::test]
async fn the_band_that_changes_a_request_is_named_with_the_fields() {
    let seen = wrappers(|| {
        answers()
            .on_model(before_model(|_| ()))
            .model_layer(TimeoutLayer::new(MINUTE))
            .on_model(before_model(|request| {
                request.add_instructions("Be brief.");
                request.settings_mut().temperature = Some(0.0);
                request.messages_mut().push(Message::user("Really?"));
            }))
            .on_model(before_model(|_| ()))
    })
    .await;
    let fields = "instructions, messages, settings.temperature";
    assert_eq!(seen, [format!("model 2: changed the request's {fields}")]);
}

#[tokio::test]
async fn sizes_are_told_and_nothing_of_the_content() {
    let (observer, mut observations) = observer(64);
    let agent = answers()
        .on_model(before_model(|request| request.add_instructions("secret")))
        .on_model(after_model(|_, response| {
            Action::Respond(response.clone().with_text("another secret"))
        }))
        .callbacks(Bundle::new().observer(observer.with_wrappers()))
        .build()
        .unwrap();
    agent.run("a secret, too").await.unwrap();
    let told = told(&mut observations);
    let [(event, note)] = &told[..] else {
        panic!("{told:?}");
    };
    let sizes = |changes: &[tower_agent::stream::FieldChange]| {
        let change = &changes[0];
        (change.field.to_string(), change.before, change.after)
    };
    assert_eq!(
        sizes(&note.request),
        ("instructions".to_owned(), None, Some(6))
    );
    assert_eq!(
        sizes(&note.response),
        ("text".to_owned(), Some(9), Some(14))
    );
    let json = serde_json::to_string(event).unwrap();
    assert!(!json.contains("secret"), "{json}");
    assert!(json.contains(r#""type":"wrapper""#), "{json}");
}

/// Values that are replaced by equal ones are not changed, and those that callbacks look at are not
/// copied.
#[tokio::test]
async fn what_is_equal_is_not_changed() {
    let seen = wrappers(|| {
        looks()
            .on_model(before_model(|request| {
                let messages: Vec<_> = request.messages().iter().cloned().collect();
                *request.messages_mut() = messages.into();
                let _ = request.settings_mut();
                let _ = request.tools_mut();
            }))
            .on_model(after_model(|_, response| {
                let message = Message::new(
                    response.message().role(),
                    response.message().parts().to_vec(),
                );
                Action::Respond(ModelResponse::new(message).with_usage(response.usage()))
            }))
            .on_tool(before_tool(|request| {
                let _ = request.arguments_mut();
            }))
            .on_tool(after_tool(|_, response| Action::Respond(response.clone())))
            .on_agent(after_agent(|_, response| Action::Respond(response.clone())))
    })
    .await;
    assert!(seen.is_empty(), "{seen:?}");
}

#[tokio::test]
async fn a_call_that_a_callback_answers_was_never_made() {
    let seen = wrappers(|| {
        answers()
            .on_model(before_model(|_| ()))
            .model_layer(TimeoutLayer::new(MINUTE))
            .on_model(before_model(|_| {
                Action::Respond(ModelResponse::from_text("No."))
            }))
            .model_layer(TimeoutLayer::new(MINUTE))
    })
    .await;
    assert_eq!(seen, ["model 2: answered without the call"]);

    let seen =
        wrappers(|| looks().on_tool(before_tool(|_| Action::Respond(ToolResponse::new("no")))))
            .await;
    assert_eq!(seen, ["tool 0: answered without the call"]);

    let seen = wrappers(|| {
        answers().on_agent(before_agent(|_| {
            Action::Respond(AgentResponse::new([Message::assistant("No.")]))
        }))
    })
    .await;
    assert_eq!(seen, ["agent 0: answered without the call"]);
}

#[tokio::test]
async fn a_guard_that_fails_a_call_or_asks_a_person_is_named() {
    let denies = || before_tool(|_| Err::<(), _>(Error::new(ErrorKind::Denied, "no")));
    let seen = wrappers(|| looks().on_tool(denies())).await;
    assert_eq!(seen, ["tool 0: failed: denied"]);

    let asks = || {
        before_tool(|request| {
            request
                .ask(tower_agent::Interrupt::new("sure", "confirm"))
                .map(drop)
        })
    };
    let seen = wrappers(|| {
        looks()
            .tool_layer(TimeoutLayer::new(MINUTE))
            .on_tool(asks())
    })
    .await;
    assert_eq!(seen, ["tool 1: failed: interrupted"]);
}

#[tokio::test]
async fn errors_and_responses_that_are_turned_into_another() {
    let seen = wrappers(|| {
        fails(ErrorKind::Overloaded).on_model(on_model_error(|_, _| {
            Recovery::Fallback(ModelResponse::from_text("Later."))
        }))
    })
    .await;
    assert_eq!(
        seen,
        ["model 0: turned an error into a response: overloaded"]
    );

    let seen = wrappers(|| {
        fails(ErrorKind::Overloaded).on_model(on_model_error(|_, _| {
            Recovery::Fail(Error::new(ErrorKind::Denied, "no"))
        }))
    })
    .await;
    assert_eq!(
        seen,
        ["model 0: turned an error into another: overloaded into denied"]
    );

    let seen = wrappers(|| {
        answers().on_model(after_model(|_, _| {
            Err::<(), _>(Error::new(ErrorKind::Denied, "no"))
        }))
    })
    .await;
    assert_eq!(seen, ["model 0: turned a response into an error: denied"]);

    let seen = wrappers(|| {
        let down = Tool::function("look", "Looks.", |_: Value| {
            Err::<String, _>(Error::new(ErrorKind::Tool, "down"))
        });
        let turns = [Turn::tool("look", json!({})), Turn::from_text("So be it.")];
        Agent::builder(ScriptedModel::new(turns))
            .tool(down)
            .on_tool(on_tool_error(|_, _| {
                Recovery::Fallback(ToolResponse::new("?"))
            }))
    })
    .await;
    assert_eq!(
        seen,
        ["tool 0: turned an error into a response: tool failed"]
    );
}

#[tokio::test]
async fn each_call_of_a_retry_is_counted_and_so_is_what_is_inside() {
    let seen = wrappers(|| {
        let busy = || Turn::error(Error::new(ErrorKind::Overloaded, "busy"));
        Agent::builder(ScriptedModel::new([
            busy(),
            busy(),
            Turn::from_text("Yes."),
        ]))
        .on_model(on_model_error(|request, _| {
            request.add_instructions("Again.");
            Recovery::Retry
        }))
        .model_layer(wrap_model(async |mut request, mut next| {
            request.add_instructions("Be brief.");
            next.run(request).await
        }))
    })
    .await;
    let brief = "model 1: changed the request's instructions";
    assert_eq!(
        seen,
        [
            brief,
            brief,
            brief,
            "model 0: changed the request's instructions, made 3 calls"
        ]
    );
}

/// The calls belong to the run, although the layer has made the request itself.
#[tokio::test]
async fn a_layer_that_builds_a_new_request() {
    let seen = wrappers(|| {
        answers()
            .on_model(before_model(|_| ()))
            .model_layer(wrap_model(async |request: ModelRequest, mut next| {
                let new = ModelRequest::new([Message::user("Something else.")])
                    .with_context(request.context().clone())
                    .with_delta_sender(request.delta_sender().cloned());
                next.run(new).await
            }))
            .on_model(before_model(|request| {
                request.add_instructions("Be brief.")
            }))
    })
    .await;
    assert_eq!(
        seen,
        [
            "model 2: changed the request's instructions",
            "model 1: changed the request's messages",
        ]
    );

    let seen = wrappers(|| {
        looks().tool_layer(wrap_tool(async |request: ToolRequest, mut next| {
            let call = ToolCall::new(request.id(), "look", json!({ "at": "sea" }));
            next.run(ToolRequest::new(call).with_context(request.context().clone()))
                .await
        }))
    })
    .await;
    assert_eq!(seen, ["tool 0: changed the request's arguments"]);

    let seen = wrappers(|| {
        answers().agent_layer(wrap_agent(async |request: AgentRequest, mut next| {
            let new = AgentRequest::new("Something else.").with_context(request.context().clone());
            next.run(new).await
        }))
    })
    .await;
    assert_eq!(seen, ["agent 0: changed the request's messages"]);
}

#[tokio::test(start_paused = true)]
async fn a_layer_that_drops_the_call_and_one_that_waits() {
    let seen = wrappers(|| {
        Agent::builder(ScriptedModel::always(Turn::pending()))
            .on_model(before_model(|_| ()))
            .model_layer(TimeoutLayer::new(MINUTE))
            .on_model(before_model(|_| ()))
    })
    .await;
    assert_eq!(
        seen,
        ["model 1: dropped the call inside, failed: timed out"]
    );

    let (observer, mut observations) = observer(64);
    let agent = Agent::builder(ScriptedModel::always(Turn::from_text("hi")))
        .on_model(before_model(|_| ()))
        .model_layer(wrap_model(async |request, mut next| {
            tokio::time::sleep(MINUTE).await;
            next.run(request).await
        }))
        .model_layer(wrap_model(async |request, mut next| {
            let response = next.run(request).await;
            tokio::time::sleep(2 * MINUTE).await;
            response
        }))
        .global_callbacks(Bundle::new().observer(observer.with_all_wrappers()))
        .build()
        .unwrap();
    agent.run("?").await.unwrap();
    let told = told(&mut observations);
    let times: Vec<_> = told
        .iter()
        .map(|(_, note)| (note.index, note.own_time))
        .collect();
    assert_eq!(times, [(2, 2 * MINUTE), (1, MINUTE), (0, Duration::ZERO)]);
    assert!(told.iter().all(|(_, note)| note.is_idle()));
    let json = serde_json::to_value(&told[0].0).unwrap();
    assert_eq!(json["own_time"], 120_000_000);
}

/// A run that is dropped leaves a note of what each wrapper had done by then.
#[tokio::test]
async fn a_run_that_is_dropped() {
    for is_streamed in [false, true] {
        let (observer, mut observations) = observer(64);
        let agent = Agent::builder(ScriptedModel::always(Turn::pending()))
            .on_model(before_model(|request| {
                request.add_instructions("Be brief.")
            }))
            .model_layer(TimeoutLayer::new(MINUTE))
            .model_layer(wrap_model(async |_, _| pending().await))
            .global_callbacks(Bundle::new().observer(observer.with_wrappers()))
            .build()
            .unwrap();
        if is_streamed {
            let mut events = agent.stream("?");
            while futures::StreamExt::next(&mut events)
                .now_or_never()
                .is_some()
            {}
        } else {
            assert!(agent.run("?").now_or_never().is_none());
        }
        let told = told(&mut observations);
        let words: Vec<_> = told.iter().map(|(event, note)| word(event, note)).collect();
        assert_eq!(
            words,
            [
                "model 2: was dropped",
                "model 0: changed the request's instructions, was dropped"
            ]
        );
        assert_eq!((told[0].1.calls, told[0].1.outside), (0, CallEnd::Dropped));
    }
}

#[tokio::test]
async fn a_layer_that_panics_has_failed_and_was_not_dropped() {
    let seen = wrappers(|| {
        answers()
            .on_model(before_model(|_| ()))
            .model_layer(tower::util::MapRequestLayer::new(
                |request: ModelRequest| {
                    assert!(request.messages().is_empty(), "oh no");
                    request
                },
            ))
    })
    .await;
    assert_eq!(seen, ["model 1: failed: callback failed"]);

    let seen =
        wrappers(|| {
            answers().on_model(before_model(|_| ())).model_layer(
                tower::util::MapResponseLayer::new(|response: ModelResponse| {
                    assert!(response.text().is_empty(), "oh no");
                    response
                }),
            )
        })
        .await;
    assert_eq!(
        seen,
        ["model 1: turned a response into an error: callback failed"]
    );
}

/// A hedge makes two calls at once, and takes the first answer.
#[tokio::test]
async fn a_layer_with_several_calls_at_once_may_take_the_answer_of_any() {
    let seen = wrappers(|| {
        let turns = ["one", "two"].map(Turn::from_text);
        Agent::builder(ScriptedModel::new(turns)).model_layer(wrap_model(
            async |request: ModelRequest, mut next| {
                let first = next.run(request.clone()).await;
                let _ = next.run(request).await;
                first
            },
        ))
    })
    .await;
    assert_eq!(seen, ["model 0: made 2 calls"]);
}

#[tokio::test]
async fn calls_of_tools_at_the_same_time_are_told_apart() {
    let (observer, mut observations) = observer(64);
    let calls = Turn::tool("look", json!({ "at": "sky" })).and_tool("look", json!({ "at": "sea" }));
    let model = ScriptedModel::new([calls, Turn::from_text("It rains.")]);
    let agent = Agent::builder(model)
        .tool(Tool::function("look", "Looks.", |_: Value| "rain"))
        .on_tool(before_tool(|request| {
            if request.arguments()["at"] == "sea" {
                request.arguments_mut()["at"] = json!("the sea");
            }
        }))
        .global_callbacks(Bundle::new().observer(observer.with_wrappers()))
        .build()
        .unwrap();
    let response = agent
        .run(AgentRequest::new("?").with_run_id("r"))
        .await
        .unwrap();
    let told = told(&mut observations);
    let [(_, note)] = &told[..] else {
        panic!("{told:?}");
    };
    let second = response.messages()[1].id().unwrap().tool_call(1);
    assert_eq!(note.tool_call.as_deref(), Some(&*second));
    assert_eq!((note.name.as_deref(), note.iteration), (Some("look"), 0));
    let [change] = &note.request[..] else {
        panic!("{note:?}");
    };
    assert_eq!((change.before, change.after), (Some(12), Some(16)));
}

#[tokio::test]
async fn a_note_of_a_callback_names_the_place_of_its_band() {
    let (observer, mut observations) = observer(64);
    let agent = answers()
        .on_model(before_model(|_| ()).named("outside"))
        .model_layer(TimeoutLayer::new(MINUTE))
        .on_model(before_model(|_| ()).named("inside"))
        .on_agent(before_agent(|_| ()).named("around"))
        .global_callbacks(Bundle::new().observer(observer.with_wrappers()))
        .build()
        .unwrap();
    agent.run("?").await.unwrap();
    let mut places = Vec::new();
    while let Some(Some(told)) = futures::StreamExt::next(&mut observations).now_or_never() {
        if let EventKind::Callback(note) = &told.event.kind {
            let explanation = agent.explain();
            let wrapper = explanation.wrapper_of(&told.event).unwrap();
            assert_eq!(wrapper.to_string(), note.callback);
            places.push((note.call.to_string(), note.wrapper));
        }
    }
    let place = |call: &str, place| (call.to_owned(), Some(place));
    assert_eq!(
        places,
        [place("agent", 0), place("model", 0), place("model", 2)]
    );
}

/// What an agent inherits is counted with its own, in the order of the stack.
#[tokio::test]
async fn wrappers_of_bundles_trees_and_runs_have_their_places() {
    let change = || before_model(|request| request.add_instructions("More."));
    let around = |name: &'static str| {
        wrap_model(async move |mut request: ModelRequest, mut next| {
            request.add_instructions("More.");
            next.run(request).await
        })
        .named(name)
    };
    let bundle = |name| {
        Bundle::new()
            .model_layer(around(name))
            .model_layer(around("second"))
            .outermost_model(change())
            .innermost_model(change())
            .on_model(change())
    };
    let all = |callbacks: usize| {
        let places: Vec<_> = (0..callbacks).rev().collect();
        places
            .into_iter()
            .map(|place| format!("model {place}: changed the request's instructions"))
            .collect::<Vec<_>>()
    };
    // Outermost, two layers, the band of the tree with that of the agent, a layer, innermost.
    let seen = wrappers(|| {
        answers()
            .global_callbacks(bundle("tree"))
            .on_model(change())
            .model_layer(around("own"))
    })
    .await;
    assert_eq!(seen, all(7));
    // One band under these semantics.
    let seen = wrappers(|| {
        answers()
            .semantics(CallbackSemantics::adk_python())
            .global_callbacks(bundle("tree"))
            .on_model(change())
            .model_layer(around("own"))
    })
    .await;
    assert_eq!(seen, all(6));
    let seen = wrappers(|| {
        answers()
            .callbacks(bundle("own"))
            .model_layer(around("behind"))
    })
    .await;
    assert_eq!(seen, all(6));

    let (observer, mut observations) = observer(64);
    let agent = answers()
        .global_callbacks(bundle("tree"))
        .on_model(change())
        .build()
        .unwrap();
    let request = AgentRequest::new("?")
        .with_global_callbacks(bundle("run").observer(observer.with_wrappers()))
        .with_callbacks(bundle("inside"));
    let explanation = agent.explain_for(&request);
    agent.run(request).await.unwrap();
    let told = told(&mut observations);
    for (event, note) in &told {
        let wrapper = explanation.wrapper_of(event).map(ToString::to_string);
        assert_eq!(wrapper, Some(note.names.join(", ")));
    }
    let words: Vec<_> = told.iter().map(|(event, note)| word(event, note)).collect();
    assert_eq!(words, all(told.len()));
    assert!(told.len() > 9, "{words:?}");
}

#[tokio::test]
async fn agents_used_as_tools_sub_agents_and_members_have_stacks_of_their_own() {
    let brief = || before_model(|request| request.add_instructions("Be brief."));
    let seen = wrappers(|| {
        let worker = answers().name("worker").on_model(brief()).build().unwrap();
        let turns = [
            Turn::tool("worker", json!({ "request": "?" })),
            Turn::from_text("So."),
        ];
        Agent::builder(ScriptedModel::new(turns))
            .name("boss")
            .tool(worker.into_tool("Works."))
            .on_tool(after_tool(|_, _| {
                Action::Respond(ToolResponse::new("hidden"))
            }))
            .global_callbacks(Bundle::new().model_layer(TimeoutLayer::new(MINUTE)))
    })
    .await;
    assert_eq!(
        seen,
        [
            "worker model 1: changed the request's instructions",
            "tool 0: changed the response's value",
        ]
    );

    let (observer, mut observations) = observer(64);
    let member = |name: &str| answers().name(name).on_model(brief()).build().unwrap();
    let team = Agent::sequential("team")
        .agent(member("first"))
        .agent(member("second"))
        .on_agent(after_agent(|_, response: &AgentResponse| {
            Action::Respond(response.clone().with_message(Message::assistant("So.")))
        }))
        .global_callbacks(Bundle::new().observer(observer.with_wrappers()))
        .build()
        .unwrap();
    team.run("?").await.unwrap();
    let told = told(&mut observations);
    let words: Vec<_> = told.iter().map(|(event, note)| word(event, note)).collect();
    assert_eq!(
        words,
        [
            "first model 0: changed the request's instructions",
            "second model 0: changed the request's instructions",
            "agent 0: changed the response's messages, text",
        ]
    );
    for (event, note) in &told {
        let explanation = team.explain();
        let wrapper = explanation.wrapper_of(event).unwrap();
        assert_eq!(wrapper.to_string(), note.names.join(", "));
    }
}

/// One that does not ask is not told, nor is the consumer of a stream.
#[tokio::test]
async fn only_those_are_told_that_ask() {
    let (plain, mut of_plain) = observer(64);
    let (asking, mut of_asking) = observer(64);
    let agent = answers()
        .on_model(before_model(|request| {
            request.add_instructions("Be brief.")
        }))
        .on_model(before_model(|_| ()))
        .global_callbacks(Bundle::new().observer(plain.clone()))
        // The same reader, by a clone that asks for less.
        .global_callbacks(
            Bundle::new()
                .observer(asking.clone().with_wrappers())
                .observer(asking),
        )
        .build()
        .unwrap();
    let events: Vec<_> = futures::StreamExt::collect(agent.stream("?")).await;
    let is_note = |kind: &EventKind| matches!(kind, EventKind::Wrapper(_));
    assert!(!events.iter().any(|event| is_note(&event.kind)));
    assert!(told(&mut of_plain).is_empty());
    assert_eq!(told(&mut of_asking).len(), 1);
}

#[tokio::test]
async fn callbacks_and_layers_give_reasons() {
    let (observer, mut observations) = observer(64);
    let agent = looks()
        .on_tool(before_tool(|request| request.context().because("looked at")).named("first"))
        .on_tool(
            before_tool(|request| {
                request.context().because("closed on Sundays");
                Action::Respond(ToolResponse::error("no"))
            })
            .named("hours"),
        )
        .global_callbacks(Bundle::new().observer(observer.with_wrappers()))
        .build()
        .unwrap();
    agent.run("?").await.unwrap();
    let mut reasons = Vec::new();
    while let Some(Some(told)) = futures::StreamExt::next(&mut observations).now_or_never() {
        match &told.event.kind {
            EventKind::Callback(note) => {
                reasons.push(format!("{}: {}", note.callback, note.reasons.join("; ")));
            }
            EventKind::Wrapper(note) => reasons.push(word(&told.event, note)),
            _ => {}
        }
    }
    assert_eq!(
        reasons,
        [
            "first: looked at",
            "hours: closed on Sundays",
            "tool 0: answered without the call (looked at; closed on Sundays)",
        ]
    );

    let seen = wrappers(|| {
        answers().model_layer(wrap_model(async |request: ModelRequest, mut next| {
            request.context().because("to be sure");
            next.run(request.clone()).await?;
            next.run(request).await
        }))
    });
    assert_eq!(seen.await, ["model 0: made 2 calls (to be sure)"]);
    // Whoever gives a reason has done something.
    let seen = wrappers(|| {
        answers().on_model(before_model(|request| {
            request.context().because("looked at")
        }))
    });
    assert_eq!(seen.await, ["model 0: passed the call on (looked at)"]);
    // It may be said where nobody asks.
    looks()
        .on_tool(before_tool(|request| {
            request.context().because("looked at")
        }))
        .build()
        .unwrap()
        .run("?")
        .await
        .unwrap();
}

/// The texts that changed, as an observer is told that asks for them.
async fn texts(agent: AgentBuilder) -> Vec<(String, Option<[String; 2]>)> {
    let (observer, mut observations) = observer(64);
    let observer = observer.with_wrappers().with_texts();
    let agent = agent.global_callbacks(Bundle::new().observer(observer));
    agent.build().unwrap().run("Is it?").await.unwrap();
    let told = told(&mut observations);
    let notes = told.iter().map(|(_, note)| note);
    let changes = notes.flat_map(|note| note.request.iter().chain(&note.response));
    let text = |texts: &[std::sync::Arc<str>; 2]| texts.clone().map(|text| text.to_string());
    changes
        .map(|change| (change.field.to_string(), change.texts.as_ref().map(text)))
        .collect()
}

#[tokio::test]
async fn texts_are_told_to_an_observer_that_asks_for_them() {
    let agent = looks()
        .instructions("Answer.")
        .on_model(before_model(|request: &mut ModelRequest| {
            if request.context().iteration() == 0 {
                request.add_instructions("Be brief.");
                request.messages_mut().push(Message::user("Really?"));
            }
        }))
        .on_tool(before_tool(|request: &mut ToolRequest| {
            request.arguments_mut()["at"] = "sea".into();
        }))
        .on_tool(after_tool(|_, _| Action::Respond(ToolResponse::new("sun"))))
        .on_agent(after_agent(|_, response: &AgentResponse| {
            Action::Respond(
                response
                    .clone()
                    .with_message(Message::assistant("It shines.")),
            )
        }));
    let of = |before: &str, after: &str| Some([before.to_owned(), after.to_owned()]);
    let told = texts(agent).await;
    for (field, texts) in [
        ("instructions", of("Answer.", "Answer.\n\nBe brief.")),
        ("messages", of("", "User: Really?\n")),
        ("arguments", of(r#"{"at":"sky"}"#, r#"{"at":"sea"}"#)),
        ("value", of("rain", "sun")),
        ("text", of("It rains.", "It shines.")),
    ] {
        assert!(
            told.contains(&(field.to_owned(), texts)),
            "{field}: {told:?}"
        );
    }
}

/// What is inside something that hides, or is it, is known by its size alone. What is outside is
/// told.
#[tokio::test]
async fn no_text_is_told_from_inside_something_that_hides() {
    let writes = |word: &'static str| {
        before_model(move |request: &mut ModelRequest| request.add_instructions(word))
    };
    let says = |word: &'static str| {
        after_model(move |_, response: &ModelResponse| {
            Action::Respond(response.clone().with_text(word))
        })
    };
    // A layer between two callbacks makes two bands of them.
    let agent = answers()
        .on_model(writes("outside"))
        .model_layer(TimeoutLayer::new(MINUTE))
        .on_model(before_model(|request: &mut ModelRequest| {
            request.extensions_mut().note_hiding();
        }))
        .on_model(says("hidden"))
        .model_layer(TimeoutLayer::new(MINUTE))
        .on_model(writes("inside"))
        .on_model(says("secret"));
    let told = texts(agent).await;
    let outside = Some(["".to_owned(), "outside".to_owned()]);
    let with_texts: Vec<_> = told.iter().filter(|(_, texts)| texts.is_some()).collect();
    assert_eq!(with_texts, [&("instructions".to_owned(), outside)]);
    assert_eq!(told.len(), 4, "{told:?}");
}
