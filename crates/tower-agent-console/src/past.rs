//! A recorded run, from memory or from the database, as a fork and a recording read it.

use std::sync::{Arc, Mutex};

use serde::Deserialize;
use serde::de::IgnoredAny;
use tower_agent::Checkpoint;
use tower_agent::error::ErrorKind;

use crate::address::address;
use crate::kept::{Kept, KeptRun};
use crate::lock::lock;
use crate::not_recorded::NotRecorded;
use crate::record::{Entry, EntryKind, Run};
use crate::saved::{Read, Texts, Unread};
use crate::store::Store;
use crate::stored::{StoredEntry, StoredHead, StoredPlace};

/// A recorded run.
#[cfg_attr(
    not(feature = "recording"),
    expect(dead_code, reason = "a recording alone needs all of it")
)]
pub(crate) struct Past {
    /// The id that the page shows.
    pub(crate) id: Arc<str>,
    /// The id that it had first.
    pub(crate) name: Arc<str>,
    pub(crate) agent: Arc<str>,
    pub(crate) user: Option<Arc<str>>,
    pub(crate) place: StoredPlace,
    /// Nothing of it was left out.
    pub(crate) is_whole: bool,
    pub(crate) entries: Vec<PastEntry>,
    texts: Mutex<Texts>,
}

/// Something that happened in it.
pub(crate) struct PastEntry {
    pub(crate) n: u32,
    pub(crate) agent: u32,
    pub(crate) at: u64,
    pub(crate) end: Option<u64>,
    pub(crate) call: Option<Arc<str>>,
    pub(crate) kind: PastKind,
    whole: Whole,
}

#[derive(Deserialize)]
#[serde(tag = "kind", rename_all = "snake_case")]
#[cfg_attr(
    not(feature = "recording"),
    expect(dead_code, reason = "a recording alone needs all of it")
)]
pub(crate) enum PastKind {
    Agent {
        path: Arc<str>,
    },
    Model {
        is_given: bool,
    },
    Tool {
        name: Arc<str>,
        is_given: bool,
        error: Option<String>,
        attempts: Vec<IgnoredAny>,
    },
    #[serde(other)]
    Other,
}

/// An entry as it is stored.
#[derive(Deserialize)]
struct ReadEntry {
    n: u32,
    agent: u32,
    at: u64,
    end: Option<u64>,
    call: Option<Arc<str>>,
    #[serde(flatten)]
    kind: PastKind,
}

/// The part of a stored summary that is read.
#[derive(Deserialize)]
struct ReadSummary {
    #[serde(default)]
    is_whole: bool,
}

/// The whole call of an entry, if there is one.
enum Whole {
    None,
    Kept(Arc<Kept>),
    Stored(Box<Unread>),
}

/// A call as far as it is known.
pub(crate) enum Known {
    Nothing,
    Kept(Arc<Kept>),
    /// A redaction hides a part of it, which is in no database. The conversation before it may be.
    Hidden(Option<Box<Checkpoint>>),
}

impl Past {
    /// Returns a run in memory.
    pub(crate) fn of(store: &Store, run: &Run) -> Self {
        let summary = &run.summary;
        Self {
            id: summary.id.clone(),
            name: summary.id.clone(),
            agent: summary.agent.clone(),
            user: summary.user.clone(),
            place: store.place(summary),
            is_whole: store.is_whole(run),
            entries: run.entries.iter().map(PastEntry::of).collect(),
            texts: Mutex::default(),
        }
    }

    /// Returns a run in the database.
    pub(crate) fn stored(
        head: &StoredHead,
        entries: Vec<StoredEntry>,
    ) -> Result<Self, NotRecorded> {
        let id: Arc<str> = address(head).into();
        let mut texts = Texts::default();
        let mut read = |entry: StoredEntry| -> serde_json::Result<PastEntry> {
            let ReadEntry {
                n,
                agent,
                at,
                end,
                call,
                kind,
            } = serde_json::from_str(&entry.entry)?;
            let whole = match entry.whole {
                Some(whole) => Whole::Stored(Box::new(texts.add(n, &whole)?)),
                None => Whole::None,
            };
            Ok(PastEntry {
                n,
                agent,
                at,
                end,
                call,
                kind,
                whole,
            })
        };
        let entries: serde_json::Result<Vec<_>> = entries.into_iter().map(&mut read).collect();
        let entries = entries.map_err(|error| not_read(&id, &error))?;
        let summary: ReadSummary =
            serde_json::from_str(&head.summary).map_err(|error| not_read(&id, &error))?;
        Ok(Self {
            name: head.id.as_str().into(),
            agent: head.agent.as_str().into(),
            user: head.user.as_deref().map(Into::into),
            place: head.place(),
            is_whole: summary.is_whole,
            entries,
            texts: Mutex::new(texts),
            id,
        })
    }

    /// Returns what is known of an entry.
    pub(crate) fn known(&self, entry: &PastEntry) -> Result<Known, NotRecorded> {
        match &entry.whole {
            Whole::None => Ok(Known::Nothing),
            Whole::Kept(kept) => Ok(Known::Kept(kept.clone())),
            Whole::Stored(unread) => {
                let read = unread.read(&mut lock(&self.texts));
                match read.map_err(|error| not_read(&self.id, &error))? {
                    Read::Kept(kept) => Ok(Known::Kept(Arc::from(kept))),
                    Read::Hidden(before) => Ok(Known::Hidden(before.map(Box::new))),
                    Read::OfCode => Err(NotRecorded::OfCode {
                        run: self.id.to_string(),
                    }),
                }
            }
        }
    }

    /// Returns the entry of the outermost agent, and its request.
    pub(crate) fn root(&self) -> Result<(&PastEntry, KeptRun), NotRecorded> {
        let mut entries = self.entries.iter();
        let root = entries.find(|entry| match &entry.whole {
            Whole::None => false,
            Whole::Kept(kept) => matches!(**kept, Kept::Run(_)),
            Whole::Stored(unread) => unread.is_run(),
        });
        if let Some(root) = root
            && let Known::Kept(kept) = self.known(root)?
            && let Kept::Run(run) = &*kept
        {
            return Ok((root, run.clone()));
        }
        Err(NotRecorded::NoContent {
            run: self.id.to_string(),
        })
    }

    /// Returns whether anything of it is whole.
    #[cfg(feature = "recording")]
    pub(crate) fn is_kept(&self) -> bool {
        let mut entries = self.entries.iter();
        entries.any(|entry| !matches!(entry.whole, Whole::None))
    }

    /// Returns the path of the agent of an entry.
    pub(crate) fn agent_of(&self, entry: &PastEntry) -> Arc<str> {
        let agent = self.entries.get(entry.agent as usize);
        match agent.map(|agent| &agent.kind) {
            Some(PastKind::Agent { path }) => path.clone(),
            _ => self.agent.clone(),
        }
    }

    /// Returns the calls of tools that wait for an answer.
    pub(crate) fn waiting(&self) -> Vec<Arc<str>> {
        let waits = |entry: &&PastEntry| {
            matches!(&entry.kind, PastKind::Tool { error: Some(error), .. }
                if error == ErrorKind::Interrupted.code())
        };
        let waiting = self.entries.iter().filter(waits);
        waiting.filter_map(|entry| entry.call.clone()).collect()
    }

    /// Returns a call in words, as the page shows it.
    pub(crate) fn words(&self, entry: &PastEntry) -> String {
        let what = match &entry.kind {
            PastKind::Model { .. } => "model call".to_owned(),
            PastKind::Tool { name, .. } => format!("call of `{name}`"),
            _ => "agent".to_owned(),
        };
        format!("entry {} ({what} at `{}`)", entry.n, self.agent_of(entry))
    }
}

impl PastEntry {
    fn of(entry: &Entry) -> Self {
        let kind = match &entry.kind {
            EntryKind::Agent { path, .. } => PastKind::Agent { path: path.clone() },
            EntryKind::Model { is_given, .. } => PastKind::Model {
                is_given: *is_given,
            },
            EntryKind::Tool {
                name,
                is_given,
                end,
                ..
            } => PastKind::Tool {
                name: name.clone(),
                is_given: *is_given,
                error: end.error.map(str::to_owned),
                attempts: end.attempts.iter().map(|_| IgnoredAny).collect(),
            },
            _ => PastKind::Other,
        };
        let kept = entry.content.kept.clone();
        Self {
            n: entry.n,
            agent: entry.agent,
            at: entry.at,
            end: entry.end,
            call: entry.call.clone(),
            kind,
            whole: kept.map_or(Whole::None, Whole::Kept),
        }
    }

    pub(crate) fn is_model(&self) -> bool {
        matches!(self.kind, PastKind::Model { .. })
    }
}

/// The error of a run that is stored in a form that cannot be read.
fn not_read(run: &str, reason: &dyn std::fmt::Display) -> NotRecorded {
    NotRecorded::NotRead {
        run: run.to_owned(),
        reason: reason.to_string(),
    }
}
