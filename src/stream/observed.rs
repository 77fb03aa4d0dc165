use std::sync::atomic::AtomicU32;
use std::sync::{Arc, Mutex};
use std::time::SystemTime;

use super::event::{Event, EventKind, Invocation};
use super::observer::{Observation, Observer, Wrappers};
use super::prefix_note::PrefixNote;
use super::wrapper_note::WrapperNote;
use crate::lock::lock;

/// The observers of one agent in a run, and the agent as they see it.
#[derive(Clone)]
pub(crate) struct Observed(Arc<ObservedAgent>);

struct ObservedAgent {
    run: Arc<ObservedRun>,
    invocation: Arc<Invocation>,
    observers: Vec<Observer>,
    /// The most that one of them asks for.
    wrappers: Wrappers,
    /// One of them asks for the texts of what they changed.
    texts: bool,
}

/// Data shared by the observed agents of a run, whoever observes which of them.
pub(crate) struct ObservedRun {
    id: Arc<str>,
    /// The number of the next event, locked while one is told: all are told in order.
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
    /// Returns an agent of a run with the observers of its caller, and `more`. `streamed` is how
    /// the stream of the run names it.
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
            let mut known = observers.iter_mut();
            match known.find(|known| known.is_clone_of(observer)) {
                Some(known) => known.join(observer),
                None if observer.is_read() => observers.push(observer.clone()),
                None => {}
            }
        }
        if observers.is_empty() {
            return None;
        }
        let wrappers = observers.iter().map(|observer| observer.wrappers).max();
        let texts = observers.iter().any(|observer| observer.texts);
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
            wrappers: wrappers.unwrap_or_default(),
            texts,
        })))
    }

    pub(crate) fn invocation(&self) -> &Arc<Invocation> {
        &self.0.invocation
    }

    #[inline]
    pub(crate) fn asks_about_wrappers(&self) -> bool {
        self.0.wrappers != Wrappers::None
    }

    pub(crate) fn asks_for_texts(&self) -> bool {
        self.0.texts
    }

    pub(crate) fn asks_about_all_wrappers(&self) -> bool {
        self.0.wrappers == Wrappers::All
    }

    pub(crate) fn is_same(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }

    pub(crate) fn tell_wrapper(&self, note: WrapperNote) {
        let least = if note.is_idle() {
            Wrappers::All
        } else {
            Wrappers::Active
        };
        self.tell_asking(least, EventKind::Wrapper(Arc::new(note)));
    }

    pub(crate) fn tell_prefix(&self, note: PrefixNote) {
        self.tell_asking(Wrappers::Active, EventKind::PrefixChanged(Arc::new(note)));
    }

    pub(crate) fn tell(&self, kind: EventKind) {
        self.tell_asking(Wrappers::None, kind);
    }

    /// Tells those who ask about these wrappers at least.
    fn tell_asking(&self, least: Wrappers, kind: EventKind) {
        let ObservedAgent {
            run,
            invocation,
            observers,
            ..
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
        let mut asking = observers.iter().filter(|known| known.wrappers >= least);
        if let Some(first) = asking.next() {
            asking.for_each(|other| other.tell(observation.clone()));
            first.tell(observation);
        }
    }
}
