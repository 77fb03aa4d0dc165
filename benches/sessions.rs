//! The cost of a session as it grows: an append of its new messages, a load of all. The database
//! has a thread of its own; both are pinned to one CPU.

mod support;

use std::sync::atomic::{AtomicUsize, Ordering};

use tokio::runtime::{Builder, Runtime};
use tower_agent::Message;
use tower_agent_conversations::{Append, ConversationKey, ConversationStore};

use tower_agent_durable::Sqlite;

use self::support::Race;

const LENGTHS: [usize; 3] = [100, 1000, 10_000];

/// A session of so many messages, in memory: the disk is not what is measured.
struct Kept {
    runtime: Runtime,
    store: Sqlite,
    key: ConversationKey,
    length: AtomicUsize,
    version: AtomicUsize,
}

impl Kept {
    fn new(length: usize) -> Self {
        let runtime = Builder::new_current_thread().enable_all().build().unwrap();
        let store = runtime.block_on(Sqlite::in_memory()).unwrap();
        let key = ConversationKey::new("bench", "", "1");
        let (length_now, version) = (AtomicUsize::new(0), AtomicUsize::new(0));
        let kept = Self {
            runtime,
            store,
            key,
            length: length_now,
            version,
        };
        kept.append(length);
        kept
    }

    fn append(&self, messages: usize) {
        let length = self.length.fetch_add(messages, Ordering::Relaxed);
        let message = |index| Message::user(format!("This is message {index} of the session."));
        let entries = (length..length + messages).map(message);
        let entries = entries
            .map(|message| serde_json::to_string(&message).unwrap())
            .collect();
        let append = Append::new("{}", length).entries(entries);
        let version = self.version.load(Ordering::Relaxed) as u64;
        let append = self.store.append(&self.key, version, append);
        let version = self.runtime.block_on(append).unwrap();
        self.version.store(version as usize, Ordering::Relaxed);
    }

    fn load(&self) -> usize {
        let session = self
            .runtime
            .block_on(self.store.load(&self.key, 0))
            .unwrap();
        session.map_or(0, |session| session.entries.len())
    }
}

fn main() {
    support::pin();
    table("append of 2 messages", 0, |kept| {
        kept.append(2);
        2
    });
    table("load", 1, Kept::load);
}

/// Prints how the cost depends on the length; `power` is how it may.
fn table(what: &str, power: i32, run: fn(&Kept) -> usize) {
    let sessions = LENGTHS.map(Kept::new);
    let mut race = Race::default();
    for (session, length) in sessions.iter().zip(LENGTHS) {
        race.enter(length.to_string(), move || run(session));
    }
    let measured = race.run();
    let first = measured[0].nanoseconds();
    println!(
        "| messages | ns for one {what} | times that of {} | expected |",
        LENGTHS[0]
    );
    println!("|--:|--:|--:|--:|");
    for (measured, length) in measured.iter().zip(LENGTHS) {
        let expected = (length / LENGTHS[0]) as f64;
        let (cost, expected) = (measured.nanoseconds(), expected.powi(power));
        println!(
            "| {} | {cost:.0} | {:.1} | {expected:.0} |",
            measured.name,
            cost / first
        );
    }
    println!();
}
