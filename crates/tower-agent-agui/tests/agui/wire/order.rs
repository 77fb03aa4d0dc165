//! One test per rule of order, and per repair.

use std::sync::Arc;

use serde_json::json;
use tower_agent::{Error, ErrorKind};
use tower_agent_agui::{
    EncryptedEntity, Event, EventKind, Interrupt, Message, OrderKeeper, RunError, RunFinished,
    RunOutcome, SubagentOutcome, SubagentStarted, Violation,
};

use crate::allocations::{self, Allocations};

/// A run that has begun.
fn running() -> OrderKeeper {
    let mut keeper = OrderKeeper::new("t", "r");
    assert_eq!(push(&mut keeper, begin()), [begin()]);
    keeper
}

fn begin() -> Event {
    Event::run_started("t", "r")
}

fn end() -> Event {
    Event::run_finished("t", "r")
}

fn push(keeper: &mut OrderKeeper, event: Event) -> Vec<Event> {
    let mut out = Vec::new();
    keeper.push(event, &mut out).unwrap();
    out
}

/// Returns the emitted events, without the beginning and the end of the run.
fn kept(events: impl IntoIterator<Item = Event>) -> Vec<Event> {
    let mut keeper = running();
    let mut out: Vec<_> = events
        .into_iter()
        .flat_map(|event| push(&mut keeper, event))
        .collect();
    out.extend(push(&mut keeper, end()));
    assert_eq!(out.pop(), Some(end()));
    out
}

fn assert_unchanged(events: impl IntoIterator<Item = Event>) {
    let events: Vec<_> = events.into_iter().collect();
    assert_eq!(kept(events.clone()), events);
}

/// Returns the violation of the last of these.
fn refused<const N: usize>(events: [Event; N]) -> Violation {
    let mut keeper = running();
    let mut events = Vec::from(events);
    let last = events.pop().unwrap();
    for event in events {
        push(&mut keeper, event);
    }
    let mut out = Vec::new();
    let violation = keeper.push(last, &mut out).unwrap_err();
    assert_eq!(out, []);
    assert!(!keeper.is_over());
    violation
}

fn is_of_another(violation: Violation, id: &str, its: Option<&str>, found: Option<&str>) {
    let Violation::Owner {
        id: of,
        owner,
        found: by,
        ..
    } = violation
    else {
        panic!("{violation}");
    };
    assert_eq!((&*of, owner.as_deref(), by.as_deref()), (id, its, found));
}

fn by(subagent: &str, event: Event) -> Event {
    event.with_subagent_run_id(subagent)
}

fn text_chunk(id: Option<&str>, delta: Option<&str>) -> Event {
    EventKind::TextMessageChunk {
        message_id: id.map(Arc::from),
        role: None,
        name: None,
        delta: delta.map(str::to_owned),
    }
    .into()
}

fn call_chunk(id: Option<&str>, name: Option<&str>, delta: Option<&str>) -> Event {
    EventKind::ToolCallChunk {
        tool_call_id: id.map(Arc::from),
        tool_call_name: name.map(Arc::from),
        parent_message_id: None,
        delta: delta.map(str::to_owned),
    }
    .into()
}

fn interrupted(interrupts: Vec<Interrupt>) -> Event {
    RunFinished::new("t", "r")
        .with_outcome(RunOutcome::Interrupt { interrupts })
        .into()
}

#[test]
fn a_run_that_was_not_begun_is_begun() {
    let mut keeper = OrderKeeper::new("t", "r");
    assert_eq!(
        push(&mut keeper, Event::custom("a", 1)),
        [begin(), Event::custom("a", 1)]
    );
    assert_eq!(push(&mut keeper, begin()), []);
}

#[test]
fn a_run_may_fail_before_it_begins() {
    let mut keeper = OrderKeeper::new("t", "r");
    assert_eq!(
        push(&mut keeper, Event::run_error("no")),
        [Event::run_error("no")]
    );
    assert!(keeper.is_over());
}

#[test]
fn a_second_beginning_is_dropped() {
    assert_eq!(kept([begin()]), []);
}

#[test]
fn another_run_is_refused() {
    for stray in [
        Event::run_started("t", "r2"),
        Event::run_started("t2", "r"),
        Event::run_finished("t", "r2"),
        Event::run_finished("t2", "r"),
    ] {
        assert!(matches!(refused([stray]), Violation::WrongRun { .. }));
    }
    let mut out = Vec::new();
    let first = OrderKeeper::new("t", "r").push(Event::run_started("t", "r2"), &mut out);
    assert!(matches!(first, Err(Violation::WrongRun { .. })));
}

#[test]
fn nothing_leaves_after_the_terminal() {
    for terminal in [end(), Event::run_error("no")] {
        let mut keeper = running();
        push(&mut keeper, terminal);
        assert!(keeper.is_over());
        for late in [
            end(),
            begin(),
            Event::run_error("no"),
            Event::text_content("m", "x"),
        ] {
            assert_eq!(push(&mut keeper, late), []);
        }
        let mut out = Vec::new();
        keeper.finish(&mut out);
        keeper.fail(RunError::new("late"), &mut out);
        assert_eq!(out, []);
    }
}

#[test]
fn a_run_without_an_end_has_failed() {
    let mut keeper = running();
    let mut out = Vec::new();
    keeper.finish(&mut out);
    assert!(keeper.is_over());
    let [
        Event {
            kind: EventKind::RunError(error),
            ..
        },
    ] = &out[..]
    else {
        panic!("{out:?}")
    };
    assert_eq!(error.code.as_deref(), Some("UNFINISHED"));
}

#[test]
fn a_failed_run_says_why_and_nothing_is_closed() {
    let mut keeper = running();
    push(&mut keeper, Event::text_start("m"));
    let mut out = Vec::new();
    let violation = keeper
        .push(Event::tool_call_args("c", "{"), &mut out)
        .unwrap_err();
    assert!(
        violation.to_string().contains("TOOL_CALL_ARGS") && violation.to_string().contains('c')
    );
    keeper.fail(violation.clone(), &mut out);
    let error = RunError::new(violation.to_string()).with_code("EVENT_ORDER");
    assert_eq!(out, [error.into()]);
    let error = Error::from(violation);
    assert_eq!(
        (error.kind(), error.is_retryable()),
        (ErrorKind::Protocol, false)
    );
    assert!(error.downcast_ref::<Violation>().is_some());
}

#[test]
fn open_entities_end_before_the_run_last_opened_first() {
    let mut keeper = running();
    for event in [
        Event::step_started("s"),
        Event::subagent_started("a", "helper"),
        by("a", Event::step_started("s")),
        by("a", Event::text_start("m")),
        Event::tool_call_start("c", "add", Some("m".into())),
        Event::reasoning_start("x"),
        Event::reasoning_message_start("x"),
    ] {
        push(&mut keeper, event);
    }
    let ends = [
        Event::reasoning_message_end("x"),
        Event::reasoning_end("x"),
        by("a", Event::tool_call_end("c")),
        by("a", Event::text_end("m")),
        by("a", Event::step_finished("s")),
        Event::subagent_finished("a"),
        Event::step_finished("s"),
        end(),
    ];
    assert_eq!(push(&mut keeper, end()), ends);
}

#[test]
fn a_subagent_that_is_open_ends_as_the_run_does() {
    let suspended = EventKind::SubagentFinished {
        subagent_run_id: "a".into(),
        result: None,
        outcome: Some(SubagentOutcome::Suspended {
            interrupt_ids: Vec::new(),
        }),
    };
    let waits = interrupted(vec![Interrupt::new("i", "confirmation")]);
    let cancelled = RunFinished::new("t", "r").with_outcome(RunOutcome::Cancelled);
    for (terminal, closed) in [
        (waits, suspended.into()),
        (
            cancelled.into(),
            Event::subagent_error("a", "the run was cancelled"),
        ),
        (end(), Event::subagent_finished("a")),
    ] {
        let mut keeper = running();
        push(&mut keeper, Event::subagent_started("a", "helper"));
        assert_eq!(push(&mut keeper, terminal.clone()), [closed, terminal]);
    }
}

#[test]
fn a_run_that_waits_for_nothing_is_refused() {
    assert_eq!(
        refused([interrupted(Vec::new())]),
        Violation::EmptyInterrupt
    );
}

#[test]
fn text_and_thoughts_that_were_not_opened_are_opened() {
    assert_eq!(
        kept([by("a", Event::text_content("m", "x")), Event::text_end("m")]),
        [
            by("a", Event::text_start("m")),
            by("a", Event::text_content("m", "x")),
            Event::text_end("m"),
        ],
    );
    assert_eq!(
        kept([
            Event::reasoning_message_content("m", "x"),
            Event::reasoning_message_end("m")
        ]),
        [
            Event::reasoning_message_start("m"),
            Event::reasoning_message_content("m", "x"),
            Event::reasoning_message_end("m"),
        ],
    );
}

#[test]
fn text_that_has_ended_is_opened_again() {
    let whole = [
        Event::text_start("m"),
        Event::text_content("m", "x"),
        Event::text_end("m"),
    ];
    let again = [&whole[..], &whole[1..]].concat();
    assert_eq!(kept(again), [&whole[..], &whole[..]].concat());
}

#[test]
fn arguments_of_a_call_that_is_not_open_are_refused() {
    let args = || Event::tool_call_args("c", "{");
    let not_open = Violation::NotOpen {
        event: "TOOL_CALL_ARGS",
        id: "c".into(),
    };
    assert_eq!(refused([args()]), not_open);
    let start = Event::tool_call_start("c", "add", None);
    assert_eq!(
        refused([start, Event::tool_call_end("c"), args()]),
        not_open
    );
}

#[test]
fn a_second_start_is_dropped() {
    for start in [
        Event::text_start("m"),
        Event::tool_call_start("m", "add", None),
        Event::reasoning_start("m"),
        Event::reasoning_message_start("m"),
        Event::step_started("m"),
        Event::subagent_started("m", "helper"),
    ] {
        let mut keeper = running();
        assert_eq!(push(&mut keeper, start.clone()).len(), 1);
        assert_eq!(push(&mut keeper, start), []);
    }
}

#[test]
fn an_end_of_nothing_is_dropped() {
    for end in [
        Event::text_end("m"),
        Event::tool_call_end("m"),
        Event::reasoning_end("m"),
        Event::reasoning_message_end("m"),
        Event::step_finished("m"),
        Event::subagent_finished("m"),
        Event::subagent_error("m", "no"),
    ] {
        assert_eq!(kept([end]), []);
    }
}

#[test]
fn an_end_closes_only_its_own_kind() {
    assert_eq!(
        kept([
            Event::reasoning_start("x"),
            Event::reasoning_message_end("x"),
            Event::text_end("x")
        ]),
        [Event::reasoning_start("x"), Event::reasoning_end("x")],
    );
}

#[test]
fn one_name_may_be_a_message_a_call_a_span_and_a_thought_at_once() {
    assert_unchanged([
        by("a", Event::text_start("x")),
        by("b", Event::tool_call_start("x", "add", None)),
        Event::reasoning_start("x"),
        Event::reasoning_message_start("x"),
        Event::reasoning_end("x"),
        Event::reasoning_message_content("x", "hm"),
        Event::reasoning_message_end("x"),
        by("b", Event::tool_call_end("x")),
        by("a", Event::text_end("x")),
        Event::tool_call_result("y", "x", "3"),
        Event::text_start("x"),
        Event::text_end("x"),
    ]);
}

#[test]
fn agents_may_have_steps_of_one_name_open() {
    assert_unchanged([
        Event::step_started("tools"),
        by("a", Event::step_started("tools")),
        by("", Event::step_started("tools")),
        Event::step_finished("tools"),
        by("", Event::step_finished("tools")),
        by("a", Event::step_finished("tools")),
    ]);
}

#[test]
fn a_step_is_finished_by_who_began_it() {
    let violation = refused([by("a", Event::step_started("s")), Event::step_finished("s")]);
    is_of_another(violation, "s", Some("a"), None);
}

#[test]
fn an_entity_is_continued_only_by_its_owner() {
    let start = || Event::tool_call_start("x", "add", None);
    let seal = |entity| Event::reasoning_encrypted_value(entity, "x", "sealed");
    for (start, next) in [
        (Event::text_start("x"), Event::text_content("x", "")),
        (Event::text_start("x"), Event::text_end("x")),
        (Event::text_start("x"), Event::text_start("x")),
        (Event::text_start("x"), seal(EncryptedEntity::Message)),
        (start(), Event::tool_call_args("x", "")),
        (start(), Event::tool_call_end("x")),
        (start(), seal(EncryptedEntity::ToolCall)),
        (
            Event::reasoning_start("x"),
            Event::reasoning_message_start("x"),
        ),
        (Event::reasoning_start("x"), Event::reasoning_end("x")),
        (
            Event::reasoning_message_start("x"),
            Event::reasoning_message_content("x", ""),
        ),
        (
            Event::reasoning_message_start("x"),
            seal(EncryptedEntity::Message),
        ),
        (
            Event::activity_snapshot("x", "PLAN", Default::default()),
            Event::activity_delta("x", "PLAN", Default::default()),
        ),
    ] {
        // Who names nobody agrees with everybody.
        let mut keeper = running();
        push(&mut keeper, by("a", start.clone()));
        push(&mut keeper, next.clone());
        is_of_another(
            refused([start.clone(), by("b", next.clone())]),
            "x",
            None,
            Some("b"),
        );
        is_of_another(
            refused([by("a", start), by("b", next)]),
            "x",
            Some("a"),
            Some("b"),
        );
    }
}

#[test]
fn an_owner_outlives_the_end() {
    let opened = [by("a", Event::text_start("x")), Event::text_end("x")];
    let [start, end] = opened;
    let violation = refused([start.clone(), end.clone(), by("b", Event::text_start("x"))]);
    is_of_another(violation, "x", Some("a"), Some("b"));
    assert_unchanged([start.clone(), end.clone(), start, end]);
}

#[test]
fn a_result_makes_its_message_anew() {
    assert_unchanged([
        by("a", Event::text_start("x")),
        Event::text_end("x"),
        by("b", Event::tool_call_result("x", "c", "3")),
        by("b", Event::text_start("x")),
        by("b", Event::text_end("x")),
    ]);
}

#[test]
fn a_call_belongs_to_the_message_that_asks() {
    let message = || by("a", Event::text_start("m"));
    let call = || Event::tool_call_start("c", "add", Some("m".into()));
    is_of_another(
        refused([message(), by("b", call())]),
        "m",
        Some("a"),
        Some("b"),
    );
    // One that names nobody is of the message's agent.
    let args = by("b", Event::tool_call_args("c", "{"));
    is_of_another(
        refused([message(), call(), args]),
        "c",
        Some("a"),
        Some("b"),
    );
    let first = by("b", Event::tool_call_start("c", "add", None));
    let violation = refused([message(), first, Event::tool_call_end("c"), call()]);
    is_of_another(violation, "c", Some("b"), Some("a"));
}

#[test]
fn a_snapshot_says_whose_the_messages_are() {
    let mut message = Message::assistant("m", "Hello");
    message.subagent_run_id = Some("a".into());
    let snapshot = || Event::messages_snapshot(vec![message.clone()]);
    let violation = refused([snapshot(), by("b", Event::text_start("m"))]);
    is_of_another(violation, "m", Some("a"), Some("b"));
    assert_unchanged([
        by("b", Event::text_start("m")),
        Event::text_end("m"),
        snapshot(),
        by("a", Event::text_start("m")),
        by("a", Event::text_end("m")),
    ]);
}

#[test]
fn only_a_replacing_snapshot_hands_an_activity_on() {
    let show = |replace| {
        Event::from(EventKind::ActivitySnapshot {
            message_id: "x".into(),
            activity_type: "PLAN".into(),
            content: Default::default(),
            replace,
        })
    };
    let delta = || by("b", Event::activity_delta("x", "PLAN", Default::default()));
    assert_unchanged([by("a", show(None)), by("b", show(None)), delta()]);
    let violation = refused([by("a", show(None)), by("b", show(Some(false))), delta()]);
    is_of_another(violation, "x", Some("a"), Some("b"));
}

#[test]
fn a_subagents_name_is_used_once() {
    let start = || Event::subagent_started("a", "helper");
    let violation = refused([start(), Event::subagent_finished("a"), start()]);
    assert_eq!(violation, Violation::SubagentReused { id: "a".into() });
}

#[test]
fn a_subagents_parent_has_begun() {
    let child = || {
        let mut started = SubagentStarted::new("b", "helper");
        started.parent_subagent_run_id = Some("a".into());
        Event::from(started)
    };
    let unknown = Violation::UnknownParent {
        id: "b".into(),
        parent: "a".into(),
    };
    assert_eq!(refused([child()]), unknown);
    assert_unchanged([
        Event::subagent_started("a", "helper"),
        Event::subagent_finished("a"),
        child(),
        Event::subagent_error("b", "no"),
    ]);
}

#[test]
fn a_subagents_tag_needs_no_subagent() {
    assert_unchanged([
        by("a", Event::text_start("m")),
        by("a", Event::text_end("m")),
    ]);
}

#[test]
fn chunks_are_spelt_out_and_end_with_the_owners_next_event() {
    assert_eq!(
        kept([
            text_chunk(Some("m"), Some("a")),
            text_chunk(None, Some("b")),
            Event::raw(json!(1)),
            text_chunk(Some("m"), None),
            Event::custom("x", 1),
        ]),
        [
            Event::text_start("m"),
            Event::text_content("m", "a"),
            Event::text_content("m", "b"),
            Event::raw(json!(1)),
            Event::text_end("m"),
            Event::custom("x", 1),
        ],
    );
}

#[test]
fn a_chunk_of_something_else_ends_what_the_owner_had() {
    assert_eq!(
        kept([
            text_chunk(Some("m"), Some("a")),
            call_chunk(Some("c"), Some("add"), Some("{")),
            call_chunk(None, None, Some("}")),
            call_chunk(Some("d"), Some("add"), None),
        ]),
        [
            Event::text_start("m"),
            Event::text_content("m", "a"),
            Event::text_end("m"),
            Event::tool_call_start("c", "add", None),
            Event::tool_call_args("c", "{"),
            Event::tool_call_args("c", "}"),
            Event::tool_call_end("c"),
            Event::tool_call_start("d", "add", None),
            Event::tool_call_end("d"),
        ],
    );
}

#[test]
fn agents_chunks_do_not_end_one_another() {
    assert_eq!(
        kept([
            text_chunk(Some("m"), Some("a")),
            by("s", text_chunk(Some("n"), Some("b"))),
            text_chunk(Some("n"), Some("c")),
            by("s", text_chunk(None, Some("d"))),
            text_chunk(None, Some("e")),
            by("s", Event::custom("x", 1)),
        ]),
        [
            Event::text_start("m"),
            Event::text_content("m", "a"),
            by("s", Event::text_start("n")),
            by("s", Event::text_content("n", "b")),
            by("s", Event::text_content("n", "c")),
            by("s", Event::text_content("n", "d")),
            Event::text_content("m", "e"),
            by("s", Event::text_end("n")),
            by("s", Event::custom("x", 1)),
            Event::text_end("m"),
        ],
    );
}

#[test]
fn a_chunk_says_what_it_begins() {
    let lacks = |violation, lacking| {
        assert!(matches!(violation, Violation::Chunk { field, .. } if field == lacking));
    };
    lacks(refused([text_chunk(None, Some("a"))]), "messageId");
    lacks(refused([call_chunk(None, Some("add"), None)]), "toolCallId");
    lacks(
        refused([call_chunk(Some("c"), None, Some("{"))]),
        "toolCallName",
    );
    // Of two it could go on with, it has to say which.
    let two = ["a", "b"].map(|agent| by(agent, text_chunk(Some(agent), Some("x"))));
    let [one, other] = two;
    lacks(
        refused([one, other, text_chunk(None, Some("x"))]),
        "messageId",
    );
    let foreign = refused([
        text_chunk(Some("m"), Some("a")),
        by("s", text_chunk(Some("m"), None)),
    ]);
    is_of_another(foreign, "m", None, Some("s"));
}

#[test]
fn metadata_of_a_chunk_stays_with_its_content() {
    let chunk = text_chunk(Some("m"), Some("a"))
        .with_timestamp(7)
        .with_raw_event(json!(1));
    let content = Event::text_content("m", "a")
        .with_timestamp(7)
        .with_raw_event(json!(1));
    assert_eq!(kept([chunk])[..2], [Event::text_start("m"), content]);
}

#[test]
fn a_refused_event_leaves_the_keeper_as_it_was() {
    let mut keeper = running();
    push(&mut keeper, by("a", Event::text_start("m")));
    let mut out = Vec::new();
    keeper
        .push(by("b", Event::text_end("m")), &mut out)
        .unwrap_err();
    assert_eq!(
        push(&mut keeper, Event::text_end("m")),
        [Event::text_end("m")]
    );
}

#[test]
fn text_of_an_open_message_costs_no_allocation() {
    let mut keeper = running();
    for id in ["m", "n"] {
        push(&mut keeper, Event::text_start(id));
    }
    let mut out = Vec::with_capacity(4);
    let mut events = vec![Event::text_content("m", "x"), by("a", Event::raw(json!(1)))];
    let used = allocations::of(|| {
        while let Some(event) = events.pop() {
            keeper.push(event, &mut out).unwrap();
        }
    });
    assert_eq!(used, Allocations::default());
    assert_eq!(out.len(), 2);
}
