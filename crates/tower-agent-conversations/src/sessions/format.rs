//! The stored form of a session.

use std::sync::Arc;

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use tower_agent::agent::CheckpointHead;
use tower_agent::call::Request;
use tower_agent::message::{Message, MessageId, Messages, Role};
use tower_agent::{AgentRequest, Checkpoint};

use crate::cache::{Cache, Entries, Known};
use crate::error::StoreError;
use crate::head::{Claim, Format, Head};
use crate::json::to_json;
use crate::lease::{Lease, Record, Stored};
use crate::names::Names;
use crate::policy::Policy;

pub(super) const FORMAT: Format = Format {
    kind: Policy::Session.kind(),
    number: 1,
};

/// The text after a run's id in the ids of the messages that were sent with it.
const SENT: &str = "-u";

/// The body of a session's head.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub(super) struct SessionBody {
    checkpoint: CheckpointHead,
    /// The messages after the entries, which may still change.
    #[serde(default, skip_serializing_if = "Messages::is_empty")]
    open: Messages,
    #[serde(default)]
    pub(super) state: Map<String, Value>,
    /// The id of the latest run.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) run: Option<Arc<str>>,
}

/// The messages of a session that are stored as entries.
#[derive(Clone, Default)]
pub(super) struct Settled {
    messages: Messages,
    /// The runs that were begun with one of them.
    runs: Names,
}

/// Sessions that this process has used last.
pub(super) type Sessions = Cache<Settled, SessionBody>;

/// A session as it is to be written.
pub(super) struct Draft {
    body: SessionBody,
    /// The messages that are entries then.
    pub(super) entries: Settled,
    /// The number of those that are entries already.
    same: usize,
}

impl Draft {
    /// Creates the draft of a session that has these entries now.
    ///
    /// A settled message is written once, as an entry; the head, which is written each time, has
    /// only those that may still change. So the cost of a write does not grow with the
    /// conversation.
    pub(super) fn new(
        entries: &Settled,
        checkpoint: &Checkpoint,
        state: Map<String, Value>,
        run: Arc<str>,
    ) -> Self {
        let Checkpoint { head, messages } = checkpoint;
        // Nearly always a run has only added messages.
        let known = &entries.messages;
        let same = if messages.continues(known) {
            known.len()
        } else {
            common(known, messages)
        };
        let stays = settled(messages, same);
        let entries = entries.followed_by(messages, same, stays);
        Self {
            body: SessionBody {
                checkpoint: head.clone(),
                open: messages.range(stays).cloned().collect(),
                state,
                run: Some(run),
            },
            entries,
            same,
        }
    }

    /// Returns the write.
    pub(super) fn record(&self) -> Result<Record, StoreError> {
        let mut new = Vec::with_capacity(self.entries.count() - self.same);
        for message in self.entries.messages.range(self.same) {
            new.push(to_json(message)?);
        }
        let is_waiting = !self.body.checkpoint.interrupts.is_empty();
        Record::new(&self.body, self.same, new, is_waiting)
    }

    /// Returns the session as it is known after this was written as the end of its run.
    pub(super) fn known(self, lease: &Lease, stored: Stored) -> Known<Settled, SessionBody> {
        let writer = lease.name().clone();
        Known {
            version: stored.version,
            head: Head::new(FORMAT, writer, stored.entries, None, self.body),
            entries: self.entries,
        }
    }
}

impl Entries for Settled {
    fn count(&self) -> usize {
        self.messages.len()
    }

    fn add(&mut self, entry: &str) -> Result<(), StoreError> {
        let message: Message = serde_json::from_str(entry).map_err(StoreError::data)?;
        self.note(&message, self.messages.len());
        self.messages.push(message);
        Ok(())
    }
}

impl Settled {
    /// Returns the first `stays` of these messages, of which the first `same` are those of this.
    fn followed_by(&self, messages: &Messages, same: usize, stays: usize) -> Self {
        for index in same..stays {
            self.note(&messages[index], index);
        }
        let mut messages = messages.clone();
        messages.truncate(stays);
        let runs = self.runs.clone();
        Self { messages, runs }
    }

    fn note(&self, message: &Message, index: usize) {
        let id = message.id().and_then(sent_with);
        if let Some(run) = id {
            self.runs.note(run, index);
        }
    }

    /// Returns the places of the messages that may have been sent with a run, first those that are
    /// entries.
    fn sent_with(&self, run: &str, length: usize) -> impl Iterator<Item = usize> {
        let settled = self.runs.places(run).into_iter();
        let open = self.messages.len()..length;
        settled.filter(move |index| *index < open.start).chain(open)
    }
}

/// Returns the run with whose request a message was sent, if its id is one that [`identify`] gives.
fn sent_with(id: &MessageId) -> Option<Arc<str>> {
    // A message of the run itself has an id that is data: no text is made of it here.
    if id.place().is_some() {
        return None;
    }
    let id = id.to_shared();
    let (run, index) = id.rsplit_once(SENT)?;
    index.parse::<usize>().is_ok().then(|| run.into())
}

/// Returns whether this request is one of the run that has claimed the session and stored these
/// messages, and may be made again.
pub(super) fn is_of(
    claim: &Claim,
    request: &AgentRequest,
    entries: &Settled,
    stored: &Messages,
) -> bool {
    // The run id alone is not enough: a caller may give it to another message. A claim stores the
    // request's messages last.
    let sent = request.messages();
    let from = stored.len().saturating_sub(sent.len());
    *claim.run == *request.context().run_id()
        // Without a journal, open calls may have been started, and would be made twice.
        && (claim.is_journaled || !claim.resumes)
        // Or it has begun the run, which has gone on with an answer since: its journal says that
        // this is another request, and the calls stay open for the one that the run has.
        && (stored.range(from).eq(sent.iter())
            || matches!(repeated(request, entries, stored), Some(Repeated::Open)))
}

impl SessionBody {
    /// Returns the conversation of the session, which has these entries.
    pub(super) fn checkpoint(&self, entries: &Settled) -> Checkpoint {
        let mut messages = entries.messages.clone();
        messages.extend(self.open.iter().cloned());
        Checkpoint {
            head: self.checkpoint.clone(),
            messages,
        }
    }
}

/// Returns the number of messages, from the first on, that no longer change; the first `known` are
/// known not to. A message with an open call may still change, and so may everything after it. So
/// may the last calls until a message follows their results, which a run may still put in order.
fn settled(messages: &Messages, known: usize) -> usize {
    let mut open: Vec<(Arc<str>, usize)> = Vec::new();
    for (index, message) in messages.range(known).enumerate() {
        for result in message.tool_results() {
            open.retain(|(id, _)| *id != result.call_id);
        }
        open.extend(
            message
                .tool_calls()
                .map(|call| (call.id.clone(), known + index)),
        );
    }
    // The trailing results, and the message with their calls.
    let results = messages
        .iter()
        .rev()
        .take_while(|message| message.role() == Role::Tool)
        .count();
    let last = messages.len() - results - usize::from(results > 0);
    open.iter()
        .map(|(_, index)| *index)
        .fold(last, usize::min)
        .max(known)
}

/// Returns the number of messages that two conversations have in common, from the first on. The
/// contents are compared as well as the ids, since a changed message keeps its id.
fn common(one: &Messages, other: &Messages) -> usize {
    one.iter()
        .zip(other.iter())
        .take_while(|(one, other)| one.id() == other.id() && one == other)
        .count()
}

/// The part of a request that its session has, if it knows the run id.
pub(super) enum Repeated {
    /// The run has not answered: it goes on, and its messages are stored.
    Open,
    /// The run has answered.
    Answered {
        /// The conversation before the request.
        before: Messages,
        /// The messages that the run has added.
        added: Messages,
    },
    /// The run was another request's, or the conversation has gone on without its answer.
    Other,
}

/// Finds a request in the conversation of its session, by the ids that [`identify`] gives.
pub(super) fn repeated(
    request: &AgentRequest,
    entries: &Settled,
    stored: &Messages,
) -> Option<Repeated> {
    let context = request.context();
    let run = context.run_id();
    let sent = request.messages();
    let role = sent.iter().next().map_or(Role::User, Message::role);
    let is_of_run = |message: &Message| {
        let of = message.id().and_then(sent_with);
        message.role() == role && of.is_some_and(|of| *of == *run)
    };
    // A request that only answers goes on with the run.
    let may_repeat = !sent.is_empty() || context.resolutions().is_empty();
    let mut places = entries.sent_with(run, stored.len());
    let at = places.find(|index| stored.get(*index).is_some_and(is_of_run));
    let at = at.filter(|_| may_repeat)?;
    let is_same =
        |one: &Message, other: &Message| one.role() == other.role() && one.parts() == other.parts();
    let same = stored
        .range(at)
        .zip(sent)
        .take_while(|(one, other)| is_same(one, other));
    if same.count() != sent.len() {
        return Some(Repeated::Other);
    }
    // One that names the run alone stands for whatever the run was begun with.
    let length = if sent.is_empty() {
        stored
            .range(at)
            .take_while(|message| is_of_run(message))
            .count()
    } else {
        sent.len()
    };
    let after = at + length;
    let of_run = stored.range(after);
    let added: Messages = of_run
        .take_while(|message| message.role() != Role::User)
        .cloned()
        .collect();
    let has_answered = added
        .iter()
        .next_back()
        .is_some_and(|last| last.role() == Role::Assistant && last.tool_calls().next().is_none());
    Some(if has_answered {
        let before = stored.range(0).take(at).cloned().collect();
        Repeated::Answered { before, added }
    } else if after + added.len() == stored.len() {
        Repeated::Open
    } else {
        Repeated::Other
    })
}

/// Gives an id to each message of a request that has none, before the request is stored: the run
/// must not give it another one later. `known` is the number of messages that the session has.
pub(super) fn identify(request: &mut AgentRequest, known: usize) {
    let run = request.context().run_id().to_owned();
    let messages = request.messages_mut();
    for index in 0..messages.len() {
        // Looked at first, since `get_mut` copies messages that are shared.
        if messages[index].id().is_none()
            && let Some(message) = messages.get_mut(index)
        {
            let id = format!("{run}{SENT}{}", known + index);
            *message = message.clone().with_id(id);
        }
    }
}
