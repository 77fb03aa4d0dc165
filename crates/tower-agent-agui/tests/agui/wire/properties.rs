//! Any events that the keeper receives leave in an order that follows the rules.

use std::sync::Arc;

use proptest::prelude::*;
use serde_json::Value;
use tower_agent_agui::{Conversation, Event, EventKind, OrderKeeper, sse};

use crate::any::any_event;
use crate::rules;
use test_support::property::cases;

fn json(events: &[Event]) -> Vec<Value> {
    events
        .iter()
        .map(|event| serde_json::to_value(event).unwrap())
        .collect()
}

/// Feeds the events, in a run that fails at the first violation or goes on.
fn keep(events: &[Event], stop: bool) -> Vec<Event> {
    let mut keeper = OrderKeeper::new("t", "r");
    let mut out = Vec::new();
    for event in events {
        if let Err(violation) = keeper.push(event.clone(), &mut out)
            && stop
        {
            keeper.fail(violation, &mut out);
        }
    }
    keeper.finish(&mut out);
    assert!(keeper.is_over());
    out
}

fn obeys(events: &[Event], stop: bool) -> Result<(), TestCaseError> {
    let out = keep(events, stop);
    let verdict = rules::check("t", "r", &json(&out));
    prop_assert!(
        verdict.is_ok(),
        "{verdict:?}\nin: {events:#?}\nout: {out:#?}"
    );
    // Emitted events are in order, and events in order are emitted as they came.
    prop_assert_eq!(keep(&out, true), out);
    Ok(())
}

/// A run in order: pieces of work on names of their own, begun and ended, one among another.
fn run_in_order() -> impl Strategy<Value = Vec<Event>> {
    let work = (0..6_u8, 0..4_usize, any::<bool>());
    (
        prop::collection::vec(work, 0..6),
        prop::collection::vec(any::<prop::sample::Index>(), 40),
    )
        .prop_map(|(works, turns)| {
            let works = works.into_iter().enumerate();
            let mut queues: Vec<_> = works
                .map(|(at, work)| piece(at, work).into_iter())
                .collect();
            let mut events = vec![Event::run_started("t", "r")];
            for turn in &turns {
                if !queues.is_empty() {
                    events.extend(turn.get_mut(&mut queues).next());
                }
            }
            events.extend(queues.into_iter().flatten());
            events.push(Event::run_finished("t", "r"));
            events
        })
}

fn piece(at: usize, (kind, length, tagged): (u8, usize, bool)) -> Vec<Event> {
    let id: Arc<str> = format!("n{at}").into();
    let more = |event: fn(Arc<str>) -> Event| std::iter::repeat_n(id.clone(), length).map(event);
    let mut events = Vec::new();
    match kind {
        0 => {
            events.push(Event::text_start(id.clone()));
            events.extend(more(|id| Event::text_content(id, "x")));
            events.push(Event::text_end(id.clone()));
        }
        1 => {
            events.push(Event::tool_call_start(id.clone(), "add", None));
            events.extend(more(|id| Event::tool_call_args(id, "{")));
            events.push(Event::tool_call_end(id.clone()));
            events.push(Event::tool_call_result(format!("{id}r"), id.clone(), "3"));
        }
        2 => {
            events.push(Event::reasoning_start(id.clone()));
            events.push(Event::reasoning_message_start(id.clone()));
            events.extend(more(|id| Event::reasoning_message_content(id, "x")));
            events.push(Event::reasoning_message_end(id.clone()));
            events.push(Event::reasoning_end(id.clone()));
        }
        3 => {
            events.push(Event::step_started(id.clone()));
            events.extend(more(|id| Event::custom(id, 1)));
            events.push(Event::step_finished(id.clone()));
        }
        4 => {
            events.push(Event::subagent_started(id.clone(), "helper"));
            events.push(Event::subagent_finished(id.clone()));
        }
        _ => events.extend(more(|id| {
            Event::activity_snapshot(id, "PLAN", Default::default())
        })),
    }
    if tagged {
        events = events
            .into_iter()
            .map(|event| event.with_subagent_run_id("s"))
            .collect();
    }
    events
}

/// Events of which many are pieces of a few messages, in turn. No two share a name in memory.
fn pieces() -> impl Strategy<Value = Vec<Event>> {
    let name = prop::sample::select(vec!["a", "b", "c"]);
    let tag = prop::sample::select(vec![None, None, Some("s"), Some("a")]);
    let piece = (0..3_u8, name, tag, "[\"\n\\PC]{0,3}", any::<bool>());
    let piece = piece.prop_map(|(kind, name, tag, says, is_plain)| {
        let event = match kind {
            0 => Event::text_content(name, says),
            1 => Event::reasoning_message_content(name, says),
            _ => Event::tool_call_args(name, says),
        };
        let event = if is_plain {
            event
        } else {
            event.with_timestamp(1)
        };
        tag.into_iter().fold(event, Event::with_subagent_run_id)
    });
    let event = prop_oneof![4 => piece, 1 => any_event(&["a", "b", "c"])];
    let repeated = (event, 1..3_usize).prop_map(|(event, times)| vec![event; times]);
    prop::collection::vec(repeated, 0..30).prop_map(|events| {
        events
            .iter()
            .flatten()
            .map(|event| rename(event, |name| (&**name).into()))
            .collect()
    })
}

/// The same, with other copies of the names of what it is a piece of, and whose it is.
fn rename(event: &Event, copy: impl Fn(&Arc<str>) -> Arc<str>) -> Event {
    let mut event = event.clone();
    if let EventKind::TextMessageContent { message_id: id, .. }
    | EventKind::ReasoningMessageContent { message_id: id, .. }
    | EventKind::ToolCallArgs {
        tool_call_id: id, ..
    } = &mut event.kind
    {
        *id = copy(id);
    }
    let owner = event.subagent_run_id().map(copy);
    owner.into_iter().fold(event, Event::with_subagent_run_id)
}

#[derive(Clone, Debug)]
enum Harm {
    Drop(prop::sample::Index),
    Double(prop::sample::Index, prop::sample::Index),
    Swap(prop::sample::Index, prop::sample::Index),
}

fn harmed() -> impl Strategy<Value = Vec<Event>> {
    let at = any::<prop::sample::Index>;
    let harm = prop_oneof![
        at().prop_map(Harm::Drop),
        (at(), at()).prop_map(|(from, to)| Harm::Double(from, to)),
        (at(), at()).prop_map(|(one, other)| Harm::Swap(one, other)),
    ];
    (run_in_order(), prop::collection::vec(harm, 1..6)).prop_map(|(mut events, harms)| {
        for harm in harms {
            let length = events.len();
            if length == 0 {
                break;
            }
            match harm {
                Harm::Drop(at) => drop(events.remove(at.index(length))),
                Harm::Double(from, to) => {
                    let event = events[from.index(length)].clone();
                    events.insert(to.index(length), event);
                }
                Harm::Swap(one, other) => events.swap(one.index(length), other.index(length)),
            }
        }
        events
    })
}

proptest! {
    #![proptest_config(cases(12_000))]

    #[test]
    fn any_events_leave_in_order(
        events in prop::collection::vec(any_event(&["a", "b", "c"]), 0..40),
        begins in any::<bool>(),
        stop in any::<bool>(),
    ) {
        let first = begins.then(|| Event::run_started("t", "r"));
        let events: Vec<_> = first.into_iter().chain(events).collect();
        obeys(&events, stop)?;
    }
}

proptest! {
    #![proptest_config(cases(6_000))]

    #[test]
    fn a_run_with_faults_leaves_in_order(events in harmed(), stop in any::<bool>()) {
        obeys(&events, stop)?;
    }
}

proptest! {
    #![proptest_config(cases(2_000))]

    #[test]
    fn a_run_in_order_leaves_as_it_came(events in run_in_order()) {
        prop_assert_eq!(rules::check("t", "r", &json(&events)), Ok(()));
        prop_assert_eq!(keep(&events, true), events);
    }
}

proptest! {
    #![proptest_config(cases(4_000))]

    /// Whoever remembers the last piece knows the next by where its name is in memory.
    #[test]
    fn pieces_that_share_their_names_in_memory_are_as_those_that_do_not(
        apart in pieces(),
        stop in any::<bool>(),
    ) {
        let names: Vec<Arc<str>> = ["a", "b", "c", "s", ""].map(Arc::from).into();
        let known = |name: &Arc<str>| names.iter().find(|known| *known == name);
        let share = |name: &Arc<str>| known(name).unwrap_or(name).clone();
        let shared: Vec<_> = apart.iter().map(|event| rename(event, share)).collect();

        prop_assert_eq!(keep(&shared, stop), keep(&apart, stop));

        let mut writer = sse::Writer::new();
        let (mut one, mut other) = (Conversation::default(), Conversation::default());
        for (shared, apart) in shared.iter().zip(&apart) {
            let mut bytes = Vec::new();
            writer.write(shared, &mut bytes).unwrap();
            let alone = format!("data: {}\n\n", serde_json::to_string(apart).unwrap());
            prop_assert_eq!(std::str::from_utf8(&bytes).unwrap(), alone);
            one.apply(shared);
            other.apply(apart);
            prop_assert_eq!(one.messages(), other.messages());
        }
    }
}
