use std::sync::atomic::AtomicU32;
use std::sync::{Arc, Mutex};
use std::time::SystemTime;

use super::emitter::results;
use super::event::{Event, EventKind, Invocation};
use super::observer::{Observation, Observer};
use crate::conversation::CallName;
use crate::lock::lock;
use crate::message::Message;

/// The observers of one agent in a run, and the agent as they see it.
#[derive(Clone)]
pub(crate) struct Observed(Arc<ObservedAgent>);

struct ObservedAgent {
    run: Arc<ObservedRun>,
    invocation: Arc<Invocation>,
    observers: Vec<Observer>,
}

/// Data shared by the observed agents of a run, whoever observes which of them.
pub(crate) struct ObservedRun {
    id: Arc<str>,
    /// The number of the next event. Locked while an event is told, so that every observer is told
    /// in the order of the numbers.
    next: Mutex<u64>,
    invocations: AtomicU32,
}

impl ObservedRun {
    pub(crate) fn new(id: Arc<str>) -> Arc<Self> {
        Arc::new(Self {
            id,
            next: Mutex::new(0),
            invocations: AtomicU32::new(0),
        })
    }
}

impl Observed {
    /// Returns an agent of a run as its observers see it: those of its caller, and `more`. `run`
    /// returns the run, and `streamed` is the agent's invocation in the stream of the run, if there
    /// is one.
    pub(crate) fn enter(
        run: impl FnOnce() -> Arc<ObservedRun>,
        caller: Option<&Self>,
        more: &[Observer],
        streamed: Option<&Arc<Invocation>>,
        path: Arc<str>,
        tool_call: Option<Arc<str>>,
        goes_on: bool,
    ) -> Option<Self> {
        let mut observers: Vec<Observer> = Vec::new();
        let above = caller.map_or(&[][..], |caller| &caller.0.observers);
        for observer in above.iter().chain(more) {
            // One that is registered twice is told once.
            let is_known = observers.iter().any(|known| known.is_clone_of(observer));
            if observer.is_read() && !is_known {
                observers.push(observer.clone());
            }
        }
        if observers.is_empty() {
            return None;
        }
        let run = run();
        let invocation = match streamed {
            // The stream and the observers name an agent alike.
            Some(streamed) => streamed.clone(),
            None => {
                let caller = caller.map(|caller| caller.0.invocation.clone());
                let count = &run.invocations;
                Invocation::next(&run.id, count, path, caller, tool_call, goes_on)
            }
        };
        Some(Self(Arc::new(ObservedAgent {
            run,
            invocation,
            observers,
        })))
    }

    /// Tells the observers of the results of tool calls.
    pub(crate) fn tell_results<'a>(
        &self,
        call: &CallName,
        messages: impl IntoIterator<Item = &'a Message>,
    ) {
        for message in messages {
            results(call, message).for_each(|result| self.tell(result));
        }
    }

    /// Tells the observers what has happened in this agent.
    pub(crate) fn tell(&self, kind: EventKind) {
        let ObservedAgent {
            run,
            invocation,
            observers,
        } = &*self.0;
        let mut next = lock(&run.next);
        let observation = Observation {
            run: run.id.clone(),
            event: Event {
                number: *next,
                time: SystemTime::now(),
                invocation: invocation.clone(),
                kind,
            },
        };
        *next += 1;
        if let Some((last, others)) = observers.split_last() {
            for observer in others {
                observer.tell(observation.clone());
            }
            last.tell(observation);
        }
    }
}
