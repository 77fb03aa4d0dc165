//! A log that has lost its end: that of a disk that has not kept what it said, or of an older copy.
//!
//! With `synchronous=FULL` a commit is on the disk when it returns, so neither a kill nor a power
//! cut loses the start of a call that was made. Here the loss is greater than SQLite allows for.
//! Even so the journal must be one that the run had, nothing that is left of it is made again, and
//! what is lost is made again as it was, with the same key.

use std::path::{Path, PathBuf};

use tower_agent_durable::Sqlite;
use tower_agent_durable::journal::JournalError;

use super::breaking::{World, name};
use crate::support::folder::Folder;

const HEAD: usize = 32;
const FRAME_HEAD: usize = 24;
const FRAME: usize = FRAME_HEAD + 4096;

/// The steps that a journal has, in order, and whether they have ended.
type Steps = Vec<(String, bool)>;

async fn steps(database: &Sqlite) -> Steps {
    match database.runs().steps("run 1").await {
        Err(JournalError::UnknownRun { .. }) => Vec::new(),
        steps => {
            let steps = steps.unwrap();
            steps
                .iter()
                .map(|step| (name(&step.id), step.ended_at.is_some()))
                .collect()
        }
    }
}

/// The data that a killed process has left.
struct Left {
    file: Vec<u8>,
    log: Vec<u8>,
    world: World,
    steps: Steps,
    transcript: Vec<String>,
}

impl Left {
    async fn new() -> Self {
        let folder = Folder::new("lost-end");
        let (path, world) = (folder.file("runs.db"), World::default());
        let database = Sqlite::open(&path).await.unwrap();
        let agent = world.agent(database.clone(), |_| {});
        let failed = async |error| panic!("{error}");
        let transcript = world.finish(&agent, &database.runs(), failed).await;
        let steps = steps(&database).await;
        let log = std::fs::read(log_of(&path)).unwrap();
        let file = std::fs::read(&path).unwrap();
        database.close().await;
        Self {
            file,
            log,
            world,
            steps,
            transcript,
        }
    }

    /// Opens it with another log.
    async fn open(&self, folder: &Folder, log: &[u8]) -> Sqlite {
        let path = folder.file("runs.db");
        std::fs::write(&path, &self.file).unwrap();
        std::fs::write(log_of(&path), log).unwrap();
        Sqlite::open(path).await.unwrap()
    }

    fn frames(&self) -> usize {
        (self.log.len() - HEAD) / FRAME
    }

    /// Returns whether a frame is the last of its commit.
    fn is_commit(&self, frame: usize) -> bool {
        let at = HEAD + frame * FRAME;
        self.log[at + 4..at + 8] != [0; 4]
    }
}

fn log_of(file: &Path) -> PathBuf {
    file.with_extension("db-wal")
}

#[tokio::test]
async fn a_log_cut_anywhere_is_a_prefix_and_the_run_continues() {
    let left = Left::new().await;
    assert_eq!(left.log.len(), HEAD + left.frames() * FRAME);
    let order: Vec<_> = left.steps.iter().map(|(step, _)| step).collect();
    let (mut before, mut states, mut asked) = (Steps::new(), 0, 0);
    for frame in 0..left.frames() {
        let border = HEAD + frame * FRAME;
        let inside = [
            1,
            FRAME_HEAD - 1,
            FRAME_HEAD,
            FRAME_HEAD + 1,
            FRAME / 2,
            FRAME - 1,
        ];
        let mut flipped = left.log.clone();
        flipped[border + FRAME_HEAD + frame] ^= 1;
        for log in [&left.log[..border + inside[frame % inside.len()]], &flipped] {
            let folder = Folder::new("cut-inside");
            let database = left.open(&folder, log).await;
            assert_eq!(steps(&database).await, before, "frame {frame}");
            database.close().await;
        }

        let folder = Folder::new("cut");
        let database = left.open(&folder, &left.log[..border + FRAME]).await;
        let found = steps(&database).await;
        let is_prefix = found
            .iter()
            .zip(&order)
            .all(|((found, _), step)| found == *step);
        assert!(is_prefix && found.len() <= order.len(), "{found:?}");
        if !left.is_commit(frame) {
            assert_eq!(found, before, "frame {frame}");
            database.close().await;
            continue;
        }
        states += usize::from(found != before);
        let world = left.world.after(&found);
        let agent = world.agent(database.clone(), |_| {});
        let failed = async |error| panic!("{error}");
        let transcript = world.finish(&agent, &database.runs(), failed).await;
        assert_eq!(transcript, left.transcript, "{found:?}");
        for tool in ["charge", "pay"] {
            // Nobody can ask about a call whose start is lost.
            let is_lost = found.iter().all(|(step, _)| step != tool);
            assert_eq!(
                world.times(tool),
                usize::from(is_lost),
                "{tool} of {found:?}"
            );
        }
        asked += world.asked();
        database.close().await;
        before = found;
    }
    assert_eq!(before, left.steps);
    // Each of the six steps was begun and has ended.
    assert!(states >= 12, "{states}");
    // Between the start and the end of each call that changes something.
    assert!(asked >= 2, "{asked}");
}
