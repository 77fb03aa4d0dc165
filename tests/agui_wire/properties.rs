//! Whatever the keeper is fed, what leaves follows the rules.

use std::sync::Arc;

use proptest::prelude::*;
use proptest::test_runner::Config;
use serde_json::Value;
use tower_agent::agui::{Event, OrderKeeper};

use crate::any::any_event;
use crate::rules;

fn config(cases: u32) -> Config {
    Config { cases, failure_persistence: None, ..Config::default() }
}

fn json(events: &[Event]) -> Vec<Value> {
    events.iter().map(|event| serde_json::to_value(event).unwrap()).collect()
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
    prop_assert!(verdict.is_ok(), "{verdict:?}\nin: {events:#?}\nout: {out:#?}");
    // What leaves is in order, and what is in order leaves as it came.
    prop_assert_eq!(keep(&out, true), out);
    Ok(())
}

/// A run in order: pieces of work on names of their own, begun and ended, one among another.
fn run_in_order() -> impl Strategy<Value = Vec<Event>> {
    let work = (0..6_u8, 0..4_usize, any::<bool>());
    (prop::collection::vec(work, 0..6), prop::collection::vec(any::<prop::sample::Index>(), 40))
        .prop_map(|(works, turns)| {
            let works = works.into_iter().enumerate();
            let mut queues: Vec<_> = works.map(|(at, work)| piece(at, work).into_iter()).collect();
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
        _ => events.extend(more(|id| Event::activity_snapshot(id, "PLAN", Default::default()))),
    }
    if tagged {
        events = events.into_iter().map(|event| event.with_subagent_run_id("s")).collect();
    }
    events
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
    #![proptest_config(config(12_000))]

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
    #![proptest_config(config(6_000))]

    #[test]
    fn a_run_with_faults_leaves_in_order(events in harmed(), stop in any::<bool>()) {
        obeys(&events, stop)?;
    }
}

proptest! {
    #![proptest_config(config(2_000))]

    #[test]
    fn a_run_in_order_leaves_as_it_came(events in run_in_order()) {
        prop_assert_eq!(rules::check("t", "r", &json(&events)), Ok(()));
        prop_assert_eq!(keep(&events, true), events);
    }
}
