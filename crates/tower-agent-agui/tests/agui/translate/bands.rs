//! Callbacks of the translation: one, several, and layers around them.

use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};
use std::sync::{Arc, Mutex};

use serde_json::json;
use tower::ServiceBuilder;
use tower_agent::callback::Outcome;
use tower_agent::stream::{self, EventKind as Told};
use tower_agent::{Action, Agent, Callback, Error, ErrorKind, Recovery, Result};
use tower_agent_agui::{
    AgUi, Event, EventKind, TranslateRequest, TranslateResponse, after_translate, before_translate,
    on_translate_error, wrap_translate,
};
use tower_agent_test::{ProbeLayer, RecordLayer, Turn};

use super::{
    content, customs, error, greeter, in_step, input, names, presets, run, says, text, wire,
};

fn is_delta(event: &stream::Event) -> bool {
    matches!(event.kind, Told::TextDelta { .. })
}

#[test]
fn a_before_changes_what_is_translated() {
    let server = greeter()
        .on_translate(before_translate(|request| {
            if let Told::TextDelta { text, .. } = &mut request.event_mut().kind {
                *text = text.to_uppercase();
            }
        }))
        .build();
    assert_eq!(text(&run(&server, input())), "HI");
}

#[test]
fn a_before_drops_an_event() {
    let server = greeter()
        .on_translate(before_translate(|request| match request.event().kind {
            Told::StepStarted { .. } | Told::StepFinished { .. } | Told::StateSnapshot { .. } => {
                Action::Respond(TranslateResponse::none())
            }
            _ => Action::Continue,
        }))
        .build();
    let text = [
        "TEXT_MESSAGE_START",
        "TEXT_MESSAGE_CONTENT",
        "TEXT_MESSAGE_END",
    ];
    let sent = names(&run(&server, input()));
    assert_eq!(
        sent,
        [&["RUN_STARTED"][..], &text, &["RUN_FINISHED"]].concat()
    );
}

#[test]
fn a_before_answers_in_the_place_of_the_translation() {
    let server = greeter()
        .on_translate(before_translate(|request| {
            if is_delta(request.event()) {
                Action::Respond(Event::custom("said", "something").into())
            } else {
                Action::Continue
            }
        }))
        .build();
    let sent = in_step(&run(&server, input()));
    let said = json!({ "type": "CUSTOM", "name": "said", "value": "something" });
    assert_eq!(sent[1], said);
    assert_eq!(sent.len(), 3, "{sent:?}");
}

#[test]
fn an_after_changes_drops_and_expands_what_is_sent() {
    let server = greeter()
        .on_translate(after_translate(|request, response| {
            let mut response = response.clone();
            match &request.event().kind {
                Told::TextDelta { .. } => {
                    let events = response.events_mut();
                    events[0] = Event::text_content("r-m1", "ho");
                    events.push(Event::text_content("r-m1", ", ho"));
                    events.push(Event::custom("counted", 2));
                }
                Told::StateSnapshot { .. } => response = TranslateResponse::none(),
                _ => return Action::Continue,
            }
            Action::Respond(response)
        }))
        .build();
    let events = run(&server, input());
    assert_eq!(text(&events), "ho, ho");
    assert_eq!(customs(&events), ["counted"]);
    assert!(!names(&events).contains(&"STATE_SNAPSHOT"));
}

/// Two `after`s that each add themselves, under every preset.
#[test]
fn several_afters_add_up_or_one_of_them_counts_as_the_preset_says() {
    for (preset, band, _) in presets() {
        let asked = Arc::<Mutex<Vec<&str>>>::default();
        let adds = |name: &'static str| {
            let asked = asked.clone();
            after_translate(move |request, response| {
                if !is_delta(request.event()) {
                    return Action::Continue;
                }
                asked.lock().unwrap().push(name);
                let mut response = response.clone();
                response.events_mut().push(Event::custom(name, true));
                Action::Respond(response)
            })
        };
        let server = greeter()
            .semantics(band)
            .on_translate(adds("a"))
            .on_translate(adds("b"));
        let events = run(&server.build(), input());
        let (sent, told): (&[_], &[_]) = match preset {
            "default" | "adk_elixir" => (&["a", "b"], &["a", "b"]),
            "adk_python" | "trpc" | "trpc, on error" => (&["a"], &["a"]),
            // There a response counts after a model call alone.
            "potato" => (&[], &["a", "b"]),
            _ => (&["b"], &["a", "b"]),
        };
        assert_eq!(customs(&events), sent, "{preset}");
        assert_eq!(*asked.lock().unwrap(), told, "{preset}");
        assert_eq!(text(&events), "hi", "{preset}");
    }
}

/// Two `before`s that each answer, and what `after`s see of it.
#[test]
fn one_of_several_answering_befores_counts_as_the_preset_says() {
    for (preset, band, _) in presets() {
        let seen = Arc::<Mutex<Vec<String>>>::default();
        let (asked, told) = (seen.clone(), seen.clone());
        let answers = |name: &'static str| {
            let asked = asked.clone();
            before_translate(move |request| {
                if !is_delta(request.event()) {
                    return Action::Continue;
                }
                asked.lock().unwrap().push(format!("{name}>"));
                Action::Respond(Event::custom(name, true).into())
            })
        };
        let looks = after_translate(move |request, response| {
            if is_delta(request.event()) {
                let name = response.events()[0].kind.name();
                told.lock().unwrap().push(format!("<{name}"));
            }
        });
        let server = greeter()
            .semantics(band)
            .on_translate(answers("a"))
            .on_translate(answers("b"));
        let events = run(&server.on_translate(looks).build(), input());
        let (sent, expected): (&[_], _) = match preset {
            "potato" => (&[], "a> b> <TEXT_MESSAGE_CONTENT"),
            "trpc, on response" | "trpc, on both" => (&["b"], "a> b> <CUSTOM"),
            _ => (&["a"], "a> <CUSTOM"),
        };
        assert_eq!(customs(&events), sent, "{preset}");
        assert_eq!(seen.lock().unwrap().join(" "), expected, "{preset}");
    }
}

/// A framework whose `before` gives another event in the place of one: the first counts.
#[test]
fn a_changed_event_that_proceeds_is_the_one_that_is_translated() {
    let changes = |to: &'static str| {
        before_translate(move |request| match &mut request.event_mut().kind {
            Told::TextDelta { text, .. } => {
                *text = to.into();
                Action::SkipRest
            }
            _ => Action::Continue,
        })
    };
    for (preset, band, _) in presets() {
        let server = greeter().semantics(band).on_translate(changes("first"));
        let events = run(&server.on_translate(changes("second")).build(), input());
        assert_eq!(text(&events), "first", "{preset}");
    }
}

#[test]
fn after_one_has_failed_the_rest_are_asked_as_the_preset_says() {
    for (preset, band, _) in presets() {
        let asked = Arc::new(AtomicUsize::new(0));
        let count = asked.clone();
        let fails = before_translate(|request| {
            if is_delta(request.event()) {
                Err(Error::new(ErrorKind::Other, "no"))
            } else {
                Ok(())
            }
        });
        let counts = before_translate(move |request| {
            count.fetch_add(usize::from(is_delta(request.event())), SeqCst);
        });
        let server = greeter()
            .semantics(band)
            .on_translate(fails)
            .on_translate(counts)
            .build();
        assert_eq!(error(&run(&server, input())).message, "no", "{preset}");
        let told = matches!(preset, "potato" | "trpc, on error" | "trpc, on both");
        assert_eq!(asked.load(SeqCst), usize::from(told), "{preset}");
    }
}

#[tokio::test(start_paused = true)]
async fn hooks_may_wait_and_events_keep_their_order() {
    use futures::StreamExt;
    use std::time::Duration;

    let waits = before_translate(|request| {
        // The later, the sooner done.
        let time = match request.event().kind {
            Told::TextStart { .. } => 30,
            Told::TextDelta { .. } => 20,
            _ => 10,
        };
        async move { tokio::time::sleep(Duration::from_secs(time)).await }
    });
    let adds = after_translate(|request, response| {
        let delta = is_delta(request.event());
        let mut response = response.clone();
        async move {
            tokio::task::yield_now().await;
            if delta {
                response.events_mut().push(Event::custom("late", 1));
            }
            Action::Respond(response)
        }
    });
    let server = says([Turn::from_text("one two three")])
        .on_translate(waits)
        .on_translate(adds)
        .build();
    let plain = says([Turn::from_text("one two three")]).build();
    let start = tokio::time::Instant::now();
    let events: Vec<_> = super::started(&server, input()).collect().await;
    assert!(start.elapsed() > Duration::from_secs(100));
    assert_eq!(text(&events), "one two three");
    assert!(customs(&events).len() > 1);
    let without = events
        .into_iter()
        .filter(|event| event.kind.name() != "CUSTOM")
        .collect::<Vec<_>>();
    assert_eq!(without, run(&plain, input()));
}

#[test]
fn a_wrap_stands_around_the_translation() {
    let server = greeter()
        .on_translate(before_translate(|_| {}))
        .translate_layer(wrap_translate(
            |request: TranslateRequest, mut next| async move {
                let twice = matches!(request.event().kind, Told::StateSnapshot { .. });
                let mut response = next.run(request.clone()).await?;
                if twice {
                    let more = next.run(request).await?;
                    response.events_mut().extend(more.into_events());
                }
                Ok(response)
            },
        ))
        .build();
    let sent = names(&run(&server, input()));
    assert_eq!(
        sent.iter()
            .filter(|name| **name == "STATE_SNAPSHOT")
            .count(),
        2
    );
}

#[test]
fn tower_layers_stand_around_the_translation() {
    let (record, probe) = (RecordLayer::<TranslateRequest>::new(), ProbeLayer::new());
    let stack = ServiceBuilder::new()
        .map_response(|mut response: TranslateResponse| {
            for event in response.events_mut() {
                if let EventKind::TextMessageContent { delta, .. } = &mut event.kind {
                    delta.push('!');
                }
            }
            response
        })
        .layer(probe.clone())
        .into_inner();
    let server = greeter()
        .translate_layer(stack)
        .on_translate(before_translate(|request| {
            if let Told::TextDelta { text, .. } = &mut request.event_mut().kind {
                text.push('?');
            }
        }))
        .translate_layer(record.clone())
        .build();
    let events = run(&server, input());
    assert_eq!(text(&events), "hi?!");
    assert_eq!(probe.violations(), 0);
    // One call for every event of the agent, and the inner layer sees what the callback made.
    let seen = record.requests();
    let told = seen
        .iter()
        .filter_map(|request| match &request.event().kind {
            Told::TextDelta { text, .. } => Some(text.as_str()),
            _ => None,
        });
    assert_eq!(told.collect::<Vec<_>>(), ["hi?"]);
    assert!(
        seen.iter()
            .all(|request| request.input().run_id == "r".into())
    );
}

/// Told of each event, once, how its translation ended.
struct Ends(Arc<Mutex<Vec<(String, &'static str)>>>);

impl Callback<TranslateRequest> for Ends {
    async fn before(&self, _: &mut TranslateRequest) -> Result<Action<TranslateResponse>> {
        Ok(Action::Continue)
    }

    fn on_end(&self, request: &TranslateRequest, outcome: Outcome<'_, TranslateResponse>) {
        let how = match outcome {
            Outcome::Done(_) => "done",
            Outcome::Failed(_) => "failed",
            _ => "dropped",
        };
        let event = format!("{:?}", request.event().kind);
        let name = event.split([' ', '(']).next().unwrap().to_owned();
        self.0.lock().unwrap().push((name, how));
    }
}

#[test]
fn on_end_is_called_once_for_each_event() {
    let ends = Arc::<Mutex<Vec<_>>>::default();
    let server = greeter().on_translate(Ends(ends.clone())).build();
    run(&server, input());
    let expected = [
        "RunStarted",
        "StateSnapshot",
        "AgentStarted",
        "StepStarted",
        "TextStart",
        "TextDelta",
        "TextEnd",
        "StepFinished",
        "AgentFinished",
        "RunFinished",
    ];
    let seen = std::mem::take(&mut *ends.lock().unwrap());
    assert!(seen.iter().all(|(_, how)| *how == "done"), "{seen:?}");
    assert_eq!(
        seen.iter().map(|(name, _)| name).collect::<Vec<_>>(),
        expected
    );
}

#[test]
fn on_end_is_told_of_a_failure_and_of_a_run_that_is_dropped() {
    use futures::{FutureExt, StreamExt};

    let ends = Arc::<Mutex<Vec<_>>>::default();
    let fails = before_translate(|request| {
        if is_delta(request.event()) {
            Err(Error::new(ErrorKind::Other, "no"))
        } else {
            Ok(())
        }
    });
    let server = greeter()
        .on_translate(Ends(ends.clone()))
        .on_translate(fails)
        .build();
    run(&server, input());
    assert_eq!(
        ends.lock().unwrap().pop(),
        Some(("TextDelta".to_owned(), "failed"))
    );

    ends.lock().unwrap().clear();
    let waits = before_translate(|_| std::future::pending::<()>());
    let server = greeter()
        .on_translate(Ends(ends.clone()))
        .on_translate(waits)
        .build();
    let mut events = super::started(&server, input());
    assert!(events.next().now_or_never().is_none());
    assert!(ends.lock().unwrap().is_empty());
    drop(events);
    assert_eq!(
        *ends.lock().unwrap(),
        [("RunStarted".to_owned(), "dropped")]
    );
}

#[test]
fn a_failed_translation_may_be_tried_again_or_answered() {
    let failures = Arc::new(AtomicUsize::new(0));
    let count = failures.clone();
    let server = greeter()
        .on_translate(on_translate_error(|request, error| match error.message() {
            "once" => Recovery::Retry,
            _ if is_delta(request.event()) => {
                Recovery::Fallback(Event::custom("lost", error.message()).into())
            }
            _ => Recovery::Propagate,
        }))
        .translate_layer(wrap_translate(
            move |request: TranslateRequest, mut next| {
                let first = count.fetch_add(1, SeqCst) == 0;
                async move {
                    match &request.event().kind {
                        Told::RunStarted { .. } if first => {
                            Err(Error::new(ErrorKind::Other, "once"))
                        }
                        Told::TextDelta { .. } => Err(Error::new(ErrorKind::Other, "always")),
                        _ => next.run(request).await,
                    }
                }
            },
        ))
        .build();
    let events = run(&server, input());
    assert_eq!(customs(&events), ["lost"]);
    assert_eq!(names(&events).last(), Some(&"RUN_FINISHED"));
}

/// Under each preset, callbacks that only look change nothing, whatever the run.
#[test]
fn callbacks_that_only_look_change_nothing() {
    for (preset, band, semantics) in presets() {
        let agent = || {
            let model = tower_agent_test::ScriptedModel::new([
                Turn::tool("echo", json!("one")).and_tool("echo", json!("two")),
                Turn::from_text("done"),
            ]);
            let echo =
                tower_agent::Tool::function("echo", "Echoes.", |value: serde_json::Value| value);
            Agent::builder(model)
                .tool(echo)
                .semantics(semantics)
                .build()
                .unwrap()
        };
        let plain = wire(&run(&AgUi::new(agent()), input()));
        let watched = AgUi::builder(agent())
            .semantics(band)
            .on_translate(before_translate(|_| {}))
            .on_translate(after_translate(|_, _| {}))
            .translate_layer(wrap_translate(
                |request: TranslateRequest, mut next| async move { next.run(request).await },
            ))
            .on_translate(after_translate(|_, _| async {}))
            .build();
        assert_eq!(wire(&run(&watched, input())), plain, "{preset}");
        assert!(
            plain.contains(&content("r-m2", "done")),
            "{preset}: {plain:#?}"
        );
    }
}

#[test]
fn an_after_finds_the_data_of_its_before() {
    struct At(usize);
    let clock = Arc::new(AtomicUsize::new(0));
    let server = greeter()
        .on_translate(before_translate(move |request| {
            let at = At(clock.fetch_add(1, SeqCst));
            request.extensions_mut().insert(at);
        }))
        .on_translate(after_translate(|request, response| {
            let at = request.extensions().get::<At>().unwrap().0;
            let mut response = response.clone();
            response.events_mut().push(Event::custom("at", at));
            Action::Respond(response)
        }))
        .build();
    let events = run(&server, input());
    let numbers = events.iter().filter_map(|event| match &event.kind {
        EventKind::Custom { value, .. } => value.as_u64(),
        _ => None,
    });
    let numbers = numbers.collect::<Vec<_>>();
    // The last one comes after the terminal, and does not leave.
    assert_eq!(numbers, (0..9).collect::<Vec<u64>>());
}

#[test]
fn callbacks_see_the_messages_as_the_front_end_has_them() {
    let lengths = Arc::<Mutex<Vec<usize>>>::default();
    let seen = lengths.clone();
    let server = greeter()
        .on_translate(before_translate(move |request| {
            assert_eq!(&*request.input().run_id, "r");
            seen.lock().unwrap().push(request.messages().len());
        }))
        .build();
    run(&server, input());
    // The answer is there once its start has left.
    assert_eq!(*lengths.lock().unwrap(), [1, 1, 1, 1, 1, 2, 2, 2, 2, 2]);
}
