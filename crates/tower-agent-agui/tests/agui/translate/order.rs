//! Whatever callbacks make of the order, what leaves is in order.

use tower_agent::Action;
use tower_agent::stream::EventKind as Told;
use tower_agent_agui::{
    AgUiBuilder, Event, EventKind, TranslateRequest, TranslateResponse, after_translate,
    before_translate,
};

use super::{content, customs, error, greeter, in_step, input, names, presets, run, text};

/// Puts other events in the place of those of one kind.
fn instead(
    server: AgUiBuilder,
    of: fn(&Told) -> bool,
    events: impl IntoIterator<Item = Event>,
) -> AgUiBuilder {
    let response = TranslateResponse::new(events);
    server.on_translate(after_translate(move |request: &TranslateRequest, _| {
        if of(&request.event().kind) {
            Action::Respond(response.clone())
        } else {
            Action::Continue
        }
    }))
}

fn is_delta(event: &Told) -> bool {
    matches!(event, Told::TextDelta { .. })
}

fn is_end(event: &Told) -> bool {
    matches!(event, Told::RunFinished { .. })
}

#[test]
fn a_terminal_that_is_dropped_is_sent() {
    let server = instead(greeter(), is_end, []).build();
    let sent = run(&server, input());
    assert_eq!(names(&sent).last(), Some(&"RUN_FINISHED"));
    // Also where everything is dropped.
    let server = instead(greeter(), |_| true, []).build();
    assert_eq!(
        names(&run(&server, input())),
        ["RUN_STARTED", "RUN_FINISHED"]
    );
}

#[test]
fn the_end_of_a_run_that_failed_is_sent_as_that() {
    use tower_agent::{Error, ErrorKind};
    use tower_agent_test::Turn;

    let turn = Turn::error(Error::new(ErrorKind::Auth, "no key"));
    let server = instead(super::says([turn]), |_| true, []).build();
    let sent = run(&server, input());
    assert_eq!(names(&sent), ["RUN_ERROR"]);
    assert_eq!(error(&sent).code.as_deref(), Some("auth"));
}

#[test]
fn the_first_of_two_terminals_counts() {
    let ends = [
        Event::run_finished("t", "r"),
        Event::run_error("too late"),
        Event::custom("no", 1),
    ];
    let sent = run(&instead(greeter(), is_end, ends).build(), input());
    assert_eq!(names(&sent).last(), Some(&"RUN_FINISHED"));
    assert!(customs(&sent).is_empty());

    let ends = [Event::run_error("first"), Event::run_finished("t", "r")];
    let sent = run(&instead(greeter(), is_end, ends).build(), input());
    assert_eq!(error(&sent).message, "first");
}

#[test]
fn an_early_terminal_ends_the_run_and_the_agent() {
    use crate::watched::Watched;
    use futures::{FutureExt, StreamExt};
    use tower_agent_agui::AgUi;

    for end in [Event::run_finished("t", "r"), Event::run_error("enough")] {
        let watched = Watched::default();
        let server = AgUi::builder(watched.agent().build().unwrap());
        let server = instead(server, is_delta, [end.clone()]).build();
        let mut events = super::started(&server, input());
        let mut sent = Vec::new();
        while let Some(event) = events.next().now_or_never().expect("it goes on") {
            sent.push(event);
            if sent.last() == Some(&end) {
                assert_eq!(watched.alive(), 0, "the agent is gone with its last event");
            }
        }
        crate::rules::check("t", "r", &super::wire(&sent)).unwrap();
        assert_eq!(sent.last(), Some(&end));
        assert_eq!(watched.calls(), 1);
    }
}

#[test]
fn an_open_entity_is_not_opened_twice() {
    let twice = [Event::text_start("r-m1"), Event::text_content("r-m1", "ho")];
    let sent = run(&instead(greeter(), is_delta, twice).build(), input());
    let starts = names(&sent)
        .into_iter()
        .filter(|name| *name == "TEXT_MESSAGE_START")
        .count();
    assert_eq!((starts, &*text(&sent)), (1, "ho"));
}

#[test]
fn an_end_of_an_entity_that_is_not_open_is_dropped() {
    let ends = [
        Event::text_end("nobody"),
        Event::tool_call_end("nothing"),
        Event::text_end("r-m1"),
    ];
    let sent = run(&instead(greeter(), is_delta, ends).build(), input());
    // The message is ended once, where the callback says.
    let ends = names(&sent)
        .into_iter()
        .filter(|name| *name == "TEXT_MESSAGE_END")
        .count();
    assert_eq!(ends, 1);
    assert!(!names(&sent).contains(&"TOOL_CALL_END"));
}

#[test]
fn content_for_nothing_is_begun_and_ended() {
    let other = [Event::text_content("mine", "more")];
    let sent = run(&instead(greeter(), is_delta, other).build(), input());
    let position = |name, id: &str| {
        let event = super::wire(&sent);
        event
            .iter()
            .position(|event| event["type"] == name && event["messageId"] == id)
            .unwrap()
    };
    let start = position("TEXT_MESSAGE_START", "mine");
    assert!(start < position("TEXT_MESSAGE_CONTENT", "mine"));
    assert!(position("TEXT_MESSAGE_CONTENT", "mine") < position("TEXT_MESSAGE_END", "mine"));
}

#[test]
fn a_start_that_is_dropped_is_made_up_for() {
    let is_start = |event: &Told| matches!(event, Told::TextStart { .. });
    let plain = in_step(&run(&greeter().build(), input()));
    let sent = in_step(&run(&instead(greeter(), is_start, []).build(), input()));
    assert_eq!(sent[1..], plain[1..]);
    assert_eq!(sent[0]["type"], "TEXT_MESSAGE_START");
    assert!(sent.contains(&content("r-m1", "hi")));
}

#[test]
fn an_end_that_is_dropped_is_made_up_for_when_the_run_ends() {
    let is_some_end =
        |event: &Told| matches!(event, Told::TextEnd { .. } | Told::StepFinished { .. });
    let sent = names(&run(&instead(greeter(), is_some_end, []).build(), input()));
    let end = sent.len();
    assert_eq!(
        sent[end - 3..],
        ["TEXT_MESSAGE_END", "STEP_FINISHED", "RUN_FINISHED"]
    );
}

#[test]
fn an_event_that_cannot_be_repaired_ends_the_run_with_an_order_error() {
    let bad = [
        Event::tool_call_args("nothing", "{}"),
        Event::run_finished("t", "another"),
        Event::text_content("r-m1", "hi").with_subagent_run_id("somebody"),
    ];
    for event in bad {
        let sent = run(&instead(greeter(), is_delta, [event]).build(), input());
        assert_eq!(error(&sent).code.as_deref(), Some("EVENT_ORDER"));
    }
}

#[test]
fn renamed_messages_stay_whole() {
    for (preset, band, _) in presets() {
        let server = greeter()
            .semantics(band)
            .on_translate(before_translate(|request| {
                if let Told::TextStart { message }
                | Told::TextDelta { message, .. }
                | Told::TextEnd { message } = &mut request.event_mut().kind
                {
                    *message = format!("x-{message}").into();
                }
            }));
        let sent = in_step(&run(&server.build(), input()));
        assert!(sent.contains(&content("x-r-m1", "hi")), "{preset}");
        assert_eq!(sent.len(), 3, "{preset}");
    }
}

#[test]
fn any_event_may_be_added_activities_too() {
    let content = || {
        serde_json::json!({ "steps": ["one"] })
            .as_object()
            .unwrap()
            .clone()
    };
    let more = [
        Event::text_content("r-m1", "hi"),
        Event::activity_snapshot("plan", "PLAN", content()),
        Event::raw(serde_json::json!({ "of": "another protocol" })),
    ];
    let sent = run(&instead(greeter(), is_delta, more.clone()).build(), input());
    for event in more {
        assert!(sent.contains(&event), "{event:?}");
    }
    let is_activity = |event: &&Event| matches!(event.kind, EventKind::ActivitySnapshot { .. });
    assert_eq!(sent.iter().filter(is_activity).count(), 1);
}
