//! The record of a run: its summary, and one entry for everything that happened in it.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::SystemTime;

use serde::Serialize;
use serde_json::{Value, json};
use tokio::time::Instant;
use tower_agent::Usage;
use tower_agent::call::{AttemptEnd, Attempted, CallKind};
use tower_agent::stream::{CallbackDecision, FieldChange, NextAttempt, PromptPart};

use crate::forked::ForkOf;
use crate::kept::Kept;
use crate::saved::Said;

/// Returns a time in microseconds since 1970.
pub(crate) fn micros(time: SystemTime) -> u64 {
    let since = time.duration_since(SystemTime::UNIX_EPOCH);
    let since = since.unwrap_or_default().as_micros();
    u64::try_from(since).unwrap_or(u64::MAX)
}

/// A run as the list shows it.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Summary {
    /// Its place among all runs, from 1.
    pub(crate) number: u64,
    pub(crate) id: Arc<str>,
    /// The path of the agent that was called.
    pub(crate) agent: Arc<str>,
    pub(crate) status: Status,
    pub(crate) begun: u64,
    pub(crate) ended: Option<u64>,
    /// The code of the kind of the error with which it failed.
    pub(crate) error: Option<&'static str>,
    /// The parties that it waits for: `user`, or a role.
    pub(crate) waits_for: Vec<Arc<str>>,
    /// The callbacks that have decided something, the last ones.
    pub(crate) decided_by: Vec<Arc<str>>,
    pub(crate) usage: Usage,
    /// In US dollars, of the attempts whose providers have stated it.
    pub(crate) cost: Option<f64>,
    pub(crate) model_calls: u32,
    pub(crate) tool_calls: u32,
    pub(crate) failed_attempts: u32,
    pub(crate) conversation: Option<Arc<str>>,
    /// The run and the step that it goes on from.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) fork_of: Option<ForkOf>,
    /// The ids of its own forks, the first ones.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(crate) forks: Vec<Arc<str>>,
    /// In the clear; a response has what its reader may see.
    #[serde(skip)]
    pub(crate) user: Option<Arc<str>>,
    pub(crate) entries: u32,
    /// The number of things that were observed and not kept.
    pub(crate) left_out: u64,
    /// Of all changes in the store, the last one of this run.
    #[serde(skip)]
    pub(crate) version: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Status {
    Running,
    Completed,
    Waiting,
    Failed,
    Cancelled,
    /// Of a run in the database alone: it had not ended when its process wrote it last.
    Unfinished,
}

impl Status {
    /// Returns its name, as it serialises.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Running => "running",
            Self::Completed => "completed",
            Self::Waiting => "waiting",
            Self::Failed => "failed",
            Self::Cancelled => "cancelled",
            Self::Unfinished => "unfinished",
        }
    }

    pub(crate) fn from_name(name: &str) -> Option<Self> {
        let all = [
            Self::Running,
            Self::Completed,
            Self::Waiting,
            Self::Failed,
            Self::Cancelled,
            Self::Unfinished,
        ];
        all.into_iter().find(|status| status.name() == name)
    }
}

/// A run with its entries.
#[derive(Debug)]
pub(crate) struct Run {
    /// The id that the run has itself; that of the summary is another one for a run that was made
    /// again.
    pub(crate) id: Arc<str>,
    pub(crate) summary: Summary,
    pub(crate) entries: Vec<Entry>,
    /// The number of things that were left out of the whole store when it began.
    pub(crate) left_out_before: u64,
    /// The estimated memory, in bytes.
    pub(crate) bytes: usize,
    /// That of its texts and of what is whole.
    pub(crate) content: usize,
    /// That of what is whole.
    pub(crate) kept: usize,
    /// The progress of it in the database; `None` if nothing is there.
    pub(crate) stored: Option<StoredMark>,
    /// The progress of what is whole in the database.
    pub(crate) said: Said,
    /// The entries of its agents, by the ids of their invocations.
    pub(crate) agents: HashMap<Arc<str>, u32>,
    /// The entries of the turns under way, by the entries of their agents.
    pub(crate) turns: HashMap<u32, u32>,
    /// The entries of open calls, by the numbers that the layers have given them.
    pub(crate) calls: HashMap<u64, u32>,
    /// The entries of tool calls, by their ids.
    pub(crate) tools: HashMap<Arc<str>, u32>,
    /// The outermost agents that have not ended: one, but for an agent that is watched inside
    /// another.
    pub(crate) open: u32,
}

/// The progress of a run in the database.
#[derive(Clone, Copy, Debug)]
pub(crate) struct StoredMark {
    /// All changes until this one are there.
    pub(crate) version: u64,
    pub(crate) entries: usize,
    pub(crate) at: Instant,
    /// Only a part of what was new was put.
    pub(crate) is_part: bool,
}

/// Something that happened in a run.
#[derive(Debug, Serialize)]
pub(crate) struct Entry {
    /// Its place among those of the run.
    pub(crate) n: u32,
    /// The entry of the agent that it happened in; its own for an agent.
    pub(crate) agent: u32,
    /// The number of the turn in that agent.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) turn: Option<u32>,
    /// The id of the tool call that it is, or that it is about.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) call: Option<Arc<str>>,
    pub(crate) at: u64,
    /// `None` for a moment, and for what has not ended.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) end: Option<u64>,
    #[serde(flatten)]
    pub(crate) kind: EntryKind,
    /// The texts, if they are recorded.
    #[serde(skip)]
    pub(crate) content: Content,
    #[serde(skip)]
    pub(crate) version: u64,
}

/// An entry as whoever looks sees it: without its texts.
#[derive(Serialize)]
pub(crate) struct ShownEntry<'a> {
    #[serde(flatten)]
    entry: &'a Entry,
    /// The length of its texts, in bytes.
    #[serde(skip_serializing_if = "is_zero")]
    content: usize,
}

fn is_zero(len: &usize) -> bool {
    *len == 0
}

impl<'a> From<&'a Entry> for ShownEntry<'a> {
    fn from(entry: &'a Entry) -> Self {
        Self {
            entry,
            content: entry.content.texts_len(),
        }
    }
}

/// The content of an entry: its texts, each as JSON, and what is whole.
#[derive(Debug, Default)]
pub(crate) struct Content {
    pub(crate) input: Option<Box<str>>,
    pub(crate) output: Option<Box<str>>,
    pub(crate) kept: Option<Arc<Kept>>,
}

impl Content {
    /// Returns the texts as one object, whose values are `null` where there is none.
    pub(crate) fn json(&self) -> Value {
        let of = |text: &Option<Box<str>>| -> Option<Value> {
            text.as_deref()
                .and_then(|text| serde_json::from_str(text).ok())
        };
        json!({ "input": of(&self.input), "output": of(&self.output) })
    }

    /// Returns the length of the texts, in bytes.
    pub(crate) fn texts_len(&self) -> usize {
        let of = |text: &Option<Box<str>>| text.as_ref().map_or(0, |text| text.len());
        of(&self.input) + of(&self.output)
    }

    /// Returns the memory that all of it takes, about, in bytes.
    pub(crate) fn len(&self) -> usize {
        self.texts_len() + self.kept_len()
    }

    /// Returns the memory that what is whole takes, about, in bytes.
    pub(crate) fn kept_len(&self) -> usize {
        self.kept.as_ref().map_or(0, |kept| kept.len())
    }
}

#[derive(Debug, Serialize)]
#[serde(tag = "kind", rename_all = "snake_case")]
pub(crate) enum EntryKind {
    Agent {
        path: Arc<str>,
        /// The entry of the agent that has called it.
        caller: Option<u32>,
        error: Option<&'static str>,
        waits_for: Vec<Arc<str>>,
    },
    Turn {
        finish: Option<String>,
    },
    Model {
        provider: Option<&'static str>,
        model: Option<Arc<str>>,
        is_streamed: bool,
        /// A callback or a layer has answered, and no model was called.
        is_given: bool,
        finish: Option<String>,
        #[serde(flatten)]
        end: CallOutcome,
    },
    Tool {
        name: Arc<str>,
        /// The tool itself has refused or failed.
        is_error: bool,
        is_given: bool,
        answered_by: Vec<String>,
        #[serde(flatten)]
        end: CallOutcome,
    },
    /// A hook of a callback has run.
    Decision {
        callback: Arc<str>,
        hook: &'static str,
        on: CallKind,
        attempt: u32,
        decision: CallbackDecision,
        /// The reasons, in the callback's words.
        #[serde(skip_serializing_if = "Vec::is_empty")]
        reasons: Vec<Arc<str>>,
        /// The place of its band around the call, from the outside in.
        wrapper: Option<u32>,
    },
    /// A band or a layer has done something to a call.
    Wrapper {
        on: CallKind,
        /// Its place around the call, from the outside in.
        index: u32,
        /// The names of a band's callbacks, or a layer's in brackets.
        names: Vec<Arc<str>>,
        attempt: u32,
        /// Its deeds, in words.
        did: String,
        /// The reasons, in its own words.
        #[serde(skip_serializing_if = "Vec::is_empty")]
        reasons: Vec<Arc<str>>,
        request: Vec<FieldChange>,
        response: Vec<FieldChange>,
        /// In microseconds.
        own_time: u64,
    },
    /// A model call does not begin with what the one before has sent.
    Prefix {
        on: CallKind,
        attempt: u32,
        /// The first part of the prompt that differs.
        changed: PromptPart,
        /// The names of the band or the layer that has changed it; none for the agent itself.
        by: Vec<Arc<str>>,
    },
    /// An attempt has failed, and another follows.
    Retry {
        on: CallKind,
        attempt: u32,
        error: &'static str,
        usage: Usage,
        next: NextAttempt,
    },
    /// A stream was taken back.
    Discarded {
        error: Option<&'static str>,
        usage: Usage,
    },
    Replaced,
    /// The answer was refused, and the model is asked again.
    Rejected {
        error: &'static str,
    },
    /// An event of the application's own.
    Event {
        name: Arc<str>,
    },
    /// A note of middleware about what it has found or decided.
    Note {
        name: Arc<str>,
    },
}

/// The end of a call, and the attempts at it that have reached its target.
#[derive(Debug, Default, Serialize)]
pub(crate) struct CallOutcome {
    pub(crate) error: Option<&'static str>,
    pub(crate) attempts: Vec<Attempt>,
}

#[derive(Debug, Serialize)]
pub(crate) struct Attempt {
    /// `answered`, `cut`, or the code of the kind of the error.
    pub(crate) end: &'static str,
    pub(crate) next: Option<NextAttempt>,
    pub(crate) usage: Usage,
    /// In US dollars, if the provider states it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) cost: Option<f64>,
}

impl From<Attempted> for Attempt {
    fn from(attempted: Attempted) -> Self {
        let end = match attempted.end {
            AttemptEnd::Answered => "answered",
            AttemptEnd::Failed(kind) => kind.code(),
            // Also an ending that is newer than this crate: nothing is known of its effect.
            _ => "cut",
        };
        Self {
            end,
            next: attempted.next,
            usage: attempted.usage,
            // A number that is none would be no JSON.
            cost: attempted.metadata.cost.filter(|cost| cost.is_finite()),
        }
    }
}

impl EntryKind {
    /// Returns the bytes that it has beside its own size, about.
    pub(crate) fn len(&self) -> usize {
        match self {
            Self::Agent { path, .. } => path.len(),
            Self::Tool { name, end, .. } => name.len() + end.len(),
            Self::Model { end, .. } => end.len(),
            Self::Decision {
                callback, reasons, ..
            } => callback.len() + sum(reasons),
            Self::Wrapper {
                names,
                did,
                reasons,
                request,
                response,
                ..
            } => {
                let changes = request.len() + response.len();
                sum(names) + sum(reasons) + did.len() + changes * size_of::<FieldChange>()
            }
            Self::Prefix { by, .. } => sum(by),
            Self::Event { name } | Self::Note { name } => name.len(),
            _ => 0,
        }
    }
}

fn sum(names: &[Arc<str>]) -> usize {
    names.iter().map(|name| name.len()).sum()
}

impl CallOutcome {
    fn len(&self) -> usize {
        self.attempts.len() * size_of::<Attempt>()
    }
}
