//! The way from runs into the store: two bounded queues, and whoever empties them.

use std::pin::Pin;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, OnceLock, Weak};
use std::task::{Context, Poll, Wake, Waker};
use std::thread::{self, Thread};
use std::time::{Duration, SystemTime};

use futures_util::Stream;
use tokio::sync::watch;
use tower_agent::stream::{self, Observation, Observations, Observer};

use crate::kept::Roots;
use crate::lock::lock;
use crate::note::Note;
use crate::store::Store;

/// The number of events, and of notes, that wait to be taken in.
const WAITING: usize = 16_384;

/// The bytes of texts that wait to be taken in. Above it, texts are left out before rows are.
const WAITING_CONTENT: usize = 8 << 20;

/// The reader's rest between two times, so that a run wakes it as rarely.
const REST: Duration = Duration::from_millis(50);

/// The queue of what the layers of all watched agents tell.
pub(crate) struct Tap {
    notes: Mutex<Notes>,
    calls: AtomicU64,
    pub(crate) roots: Roots,
    /// Nobody has the console any more.
    is_closed: AtomicBool,
    reader: OnceLock<Thread>,
}

#[derive(Default)]
struct Notes {
    waiting: Vec<Note>,
    /// In bytes.
    content: usize,
    dropped: u64,
}

impl Tap {
    pub(crate) fn is_closed(&self) -> bool {
        self.is_closed.load(Ordering::Relaxed)
    }

    /// Returns the number of the next call.
    pub(crate) fn call(&self) -> u64 {
        self.calls.fetch_add(1, Ordering::Relaxed)
    }

    /// Adds a note if there is room for it. Never waits.
    pub(crate) fn tell(&self, mut note: Note) {
        let mut notes = lock(&self.notes);
        if notes.waiting.len() >= WAITING {
            notes.dropped += 1;
            return;
        }
        let room = WAITING_CONTENT.saturating_sub(notes.content);
        // Calls that were kept whole go first: the texts on the page then stay as they are.
        for leave_out in [Note::drop_kept, Note::drop_content] {
            if note.content_len() > room {
                notes.dropped += 1;
                leave_out(&mut note);
            }
        }
        notes.content += note.content_len();
        notes.waiting.push(note);
        let is_first = notes.waiting.len() == 1;
        drop(notes);
        if is_first {
            self.wake_reader();
        }
    }

    fn wake_reader(&self) {
        if let Some(reader) = self.reader.get() {
            reader.unpark();
        }
    }
}

/// For the queue of events: it wakes the reader.
impl Wake for Tap {
    fn wake(self: Arc<Self>) {
        self.wake_reader();
    }
}

/// The store, and what comes into it.
pub(crate) struct Collector {
    pub(crate) tap: Arc<Tap>,
    pub(crate) observer: Observer,
    pub(crate) store: Mutex<Store>,
    incoming: Mutex<Incoming>,
    pub(crate) changed: watch::Sender<Change>,
}

/// A change that those who look on wait for.
#[derive(Clone, Copy, Default)]
pub(crate) struct Change {
    /// The version of the store.
    version: u64,
    /// They are to leave.
    pub(crate) is_over: bool,
}

struct Incoming {
    observations: Observations,
    /// Always the same one: the queue knows of one reader.
    waker: Waker,
    /// The events that were dropped and are counted.
    counted: u64,
}

/// An item of either queue.
enum Told {
    Event(Observation),
    Note(Note),
}

impl Told {
    /// Returns its place in the order in which both are taken in.
    fn place(&self) -> (SystemTime, bool) {
        match self {
            Self::Event(event) => (event.event.time, false),
            Self::Note(note) => (note.at, true),
        }
    }
}

impl Collector {
    pub(crate) fn new(store: Store) -> Arc<Self> {
        let (observer, observations) = stream::observer(WAITING);
        let tap = Arc::new(Tap {
            notes: Mutex::default(),
            calls: AtomicU64::new(0),
            roots: Roots::default(),
            is_closed: AtomicBool::new(false),
            reader: OnceLock::new(),
        });
        let waker = Waker::from(tap.clone());
        Arc::new(Self {
            tap,
            observer,
            store: Mutex::new(store),
            incoming: Mutex::new(Incoming {
                observations,
                waker,
                counted: 0,
            }),
            changed: watch::Sender::default(),
        })
    }

    /// Starts the reader, unless it runs: a thread of its own, since there may be no runtime yet,
    /// and there may be another one later. It ends with the console.
    pub(crate) fn read(self: &Arc<Self>) {
        let tap = &self.tap;
        if tap.reader.get().is_some() {
            return;
        }
        let collector = Arc::downgrade(self);
        let name = "tower-agent-console".to_owned();
        let spawned = thread::Builder::new()
            .name(name)
            .spawn(move || read(&collector));
        match spawned {
            Ok(handle) => {
                // Another thread may have been quicker; two readers take turns.
                let _ = tap.reader.set(handle.thread().clone());
                tap.wake_reader();
            }
            Err(error) => tracing::warn!(
                %error,
                "the console has no thread: it takes in what runs tell when somebody looks at it"
            ),
        }
    }

    /// Ends the live views.
    pub(crate) fn close(&self) {
        self.changed.send_modify(|change| change.is_over = true);
    }

    /// Wakes those who wait for a change.
    pub(crate) fn wake(&self) {
        self.changed.send_modify(|_| {});
    }

    /// Takes in everything that runs have told by now.
    pub(crate) fn collect(&self) {
        let mut incoming = lock(&self.incoming);
        let Incoming {
            observations,
            waker,
            counted,
        } = &mut *incoming;
        // First: an agent or a turn is told to the observer before its calls are noted, so that all
        // that was told before these notes is among the events.
        let Notes {
            waiting, dropped, ..
        } = std::mem::take(&mut *lock(&self.tap.notes));
        let notes = waiting.into_iter().map(Told::Note);
        let mut all: Vec<_> = notes.collect();
        let mut context = Context::from_waker(waker);
        while let Poll::Ready(Some(event)) = Pin::new(&mut *observations).poll_next(&mut context) {
            all.push(Told::Event(event));
        }
        all.sort_by_key(Told::place);
        let lost = observations.dropped() - *counted;
        *counted += lost;

        let mut store = lock(&self.store);
        for told in all {
            match told {
                Told::Event(event) => store.observe(event),
                Told::Note(note) => store.note(note),
            }
        }
        store.count_dropped(lost + dropped);
        store.drop_old(SystemTime::now());
        let version = store.version;
        drop(store);
        self.changed.send_if_modified(|known| {
            let is_new = known.version != version;
            known.version = version;
            is_new
        });
    }
}

/// Reads until the console is gone.
fn read(collector: &Weak<Collector>) {
    loop {
        let Some(there) = collector.upgrade() else {
            return;
        };
        there.collect();
        drop(there);
        thread::park();
        thread::sleep(REST);
    }
}

impl Drop for Collector {
    fn drop(&mut self) {
        self.tap.is_closed.store(true, Ordering::Relaxed);
        self.tap.wake_reader();
    }
}
