use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, SystemTime};

use futures_util::future::BoxFuture;

use super::claim::Claim;
use super::seal::{SealKeys, Used, is_sealed};
use super::store::{BoxStore, ThreadKey};
use super::take::{self, Allowed, Taken};
use super::thread::{Asked, Entry, Open, Speaker, Thread};
use crate::conversation::Conversation;
use crate::lock::lock;
use crate::translate::TranslateRun;
use crate::wire::{EncryptedEntity, Event, InputError, InputErrorKind, MessageKind, RunAgentInput};
use tower_agent::agent::{AgentRequest, Checkpoint};
use tower_agent::error::BoxError;
use tower_agent::message::{Message, MessageId, Messages, Role};
use tower_agent::stream::EventKind;

/// Where a server keeps its threads.
#[derive(Clone, Debug)]
pub(crate) enum Keeping {
    Store(BoxStore),
    /// With the client, sealed.
    Sealed(SealKeys, Used),
}

impl Keeping {
    pub(crate) fn sealed(keys: SealKeys) -> Self {
        Self::Sealed(keys, Used::default())
    }
}

/// A run that may start.
pub(crate) struct Begun {
    pub(crate) request: AgentRequest,
    pub(crate) keeper: Keeper,
    /// The prefix of its messages' ids.
    pub(crate) name: Arc<str>,
}

/// Takes the accepted parts of the input, and claims the thread for one run.
pub(crate) async fn begin(
    keeping: &Keeping,
    key: ThreadKey,
    input: &mut RunAgentInput,
    abandoned_after: Duration,
    allowed: Allowed,
) -> Result<Begun, InputError> {
    let known = match keeping {
        Keeping::Store(store) => store.load(&key).await.map_err(|error| broken(&*error))?,
        Keeping::Sealed(keys, _) => unseal(keys, &key, input),
    };
    let is_lost = match known.as_ref().and_then(|thread| thread.running) {
        None => false,
        Some(since) if now().saturating_sub(since) < abandoned_after.as_secs() => {
            return Err(busy());
        }
        Some(_) => true,
    };
    let earlier = known
        .as_ref()
        .map(|thread| (thread.version, thread.answered.clone()));
    let Taken {
        mut thread,
        request,
    } = match known {
        None => take::begin(input)?,
        Some(thread) => take::go_on(thread, input, is_lost, allowed)?,
    };
    let name = name(input, &thread);
    thread.runs.push(name.clone());
    thread.run_from = thread.log.len();
    thread.is_cut = false;
    match keeping {
        Keeping::Store(store) => {
            thread.running = Some(now());
            let claim = Claim::new(store.clone(), key.clone(), thread.clone());
            if !claim.save().await.map_err(|error| broken(&*error))? {
                return Err(busy());
            }
            thread.version += 1;
        }
        Keeping::Sealed(_, used) => {
            // An answer repeated after a run that broke off counts once for what that run has left.
            let (version, earlier) = earlier.unwrap_or_default();
            let mut answers = Vec::new();
            for answered in &thread.answered {
                let is_repeated = earlier.iter().any(|earlier| earlier.id == answered.id);
                answers.push(if is_repeated {
                    format!("{} {version}", answered.id).into()
                } else {
                    answered.id.clone()
                });
            }
            if !used.claim(&answers) {
                let why = "the interrupt was answered before";
                return Err(InputError::new("resume", why).of(InputErrorKind::NotOpen));
            }
        }
    }
    let client_tools = input.tools.iter().map(|tool| tool.name.clone()).collect();
    let version = Arc::new(AtomicU64::new(thread.version));
    let keeper = Keeper {
        keeping: keeping.clone(),
        key,
        name: name.clone(),
        base: thread,
        client_tools,
        saved: HashSet::new(),
        version,
    };
    Ok(Begun {
        request,
        keeper,
        name,
    })
}

/// Returns the thread that the client has kept, if it is sealed for exactly this use. The sealed
/// value is removed from the input.
fn unseal(keys: &SealKeys, key: &ThreadKey, input: &mut RunAgentInput) -> Option<Thread> {
    let sealed = input
        .messages
        .iter_mut()
        .filter_map(|message| message.encrypted_value.take_if(|value| is_sealed(value)));
    let opened = sealed.filter_map(|value| keys.open(key, &value));
    opened.max_by_key(|thread| thread.version)
}

/// Returns the prefix of a run's message ids: the run's id, made unique if the thread already has
/// messages with that prefix, since the run would append to those.
fn name(input: &RunAgentInput, thread: &Thread) -> Arc<str> {
    let run = &input.run_id;
    let number = |id: &str| {
        let rest = id.strip_prefix(&**run)?;
        match rest.strip_prefix('.') {
            Some(rest) => rest.split('-').next()?.parse::<u64>().ok(),
            None => (rest.is_empty() || rest.starts_with(['-', '+', '/'])).then_some(0),
        }
    };
    let told = input.messages.iter().map(|message| &*message.id);
    let kept = thread.log.iter().filter_map(|entry| entry.id.as_deref());
    let runs = thread.runs.iter().map(|run| &**run);
    match told.chain(kept).chain(runs).filter_map(number).max() {
        None => run.clone(),
        Some(number) => format!("{run}.{}", number.saturating_add(1)).into(),
    }
}

/// The progress of a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Progress {
    Running,
    /// It completed, or was interrupted.
    Ended,
    /// It failed, or its client disconnected.
    Cut,
}

/// The progress that is emitted at the end of a run, or saved.
pub(crate) enum Kept {
    Saving(BoxFuture<'static, Result<(), BoxError>>),
    Sealed(Option<Event>),
}

/// Saves one thread during a run.
pub(crate) struct Keeper {
    keeping: Keeping,
    key: ThreadKey,
    /// The prefix of the ids of the run's messages.
    name: Arc<str>,
    /// The thread at the start of the run.
    base: Thread,
    client_tools: HashSet<Arc<str>>,
    /// The tool results that are saved.
    saved: HashSet<Arc<str>>,
    version: Arc<AtomicU64>,
}

impl Keeper {
    /// Returns whether to save before this event is emitted: the client must not read a result that
    /// the server could forget.
    #[inline]
    pub(crate) fn must_save_before(&self, event: &EventKind) -> bool {
        match event {
            EventKind::ToolResult { message, .. } => {
                matches!(self.keeping, Keeping::Store(_)) && !self.saved.contains(message)
            }
            _ => false,
        }
    }

    /// Saves the progress.
    pub(crate) fn keep(
        &mut self,
        checkpoint: Checkpoint,
        run: &TranslateRun,
        progress: Progress,
    ) -> Kept {
        let mut thread = self.thread(checkpoint, run, progress);
        match &self.keeping {
            Keeping::Store(store) => {
                let store = store.clone();
                let key = self.key.clone();
                let version = self.version.clone();
                Kept::Saving(Box::pin(async move {
                    thread.version = version.load(Ordering::Acquire);
                    if !store.save(&key, thread).await? {
                        return Err("the thread was changed or removed during the run".into());
                    }
                    version.fetch_add(1, Ordering::AcqRel);
                    Ok(())
                }))
            }
            Keeping::Sealed(keys, _) => {
                thread.version += 1;
                let shown = lock(&run.shown);
                let is_place = |message: &&crate::wire::Message| {
                    let is_activity = matches!(message.kind, MessageKind::Activity { .. });
                    message.subagent_run_id.is_none() && !is_activity
                };
                let place = shown
                    .messages()
                    .iter()
                    .find(is_place)
                    .map(|message| message.id.clone());
                let sealed = place.and_then(|place| Some((place, keys.seal(&self.key, &thread)?)));
                Kept::Sealed(sealed.map(|(place, sealed)| {
                    let of = EncryptedEntity::Message;
                    Event::reasoning_encrypted_value(of, place, sealed)
                }))
            }
        }
    }

    fn thread(&mut self, checkpoint: Checkpoint, run: &TranslateRun, progress: Progress) -> Thread {
        let mut thread = self.base.clone();
        let Checkpoint { head, messages } = checkpoint;
        self.add(&mut thread, &messages, run, progress);
        if progress != Progress::Cut {
            thread.open.clear();
        }
        if progress == Progress::Ended {
            thread
                .open
                .extend(head.interrupts.iter().map(|pending| Open {
                    id: run.interrupt_ids.of(&pending.id),
                    pending: pending.id.clone(),
                    is_for_operator: pending.is_for_operator,
                }));
            thread.answered.clear();
        }
        thread.head = head;
        thread.is_cut = progress == Progress::Cut;
        let is_running = progress == Progress::Running;
        thread.running = (is_running && matches!(self.keeping, Keeping::Store(_))).then(now);
        thread
    }

    /// Adds the messages of the transcript that the thread does not have.
    fn add(
        &mut self,
        thread: &mut Thread,
        messages: &Messages,
        run: &TranslateRun,
        progress: Progress,
    ) {
        let shown = lock(&run.shown);
        let old = std::mem::take(&mut thread.branch);
        let places = places(thread, &old, messages);
        let last = places
            .iter()
            .rposition(Option::is_some)
            .map_or(0, |at| at + 1);
        let mut branch = Vec::with_capacity(old.len() + messages.len());
        let mut asked = Asking::default();
        old.iter().for_each(|index| asked.note(thread, *index));
        let mut known = old.iter().copied();
        let mut passed = 0;
        for (index, (message, place)) in messages.iter().zip(&places).enumerate() {
            if index == last {
                // Messages that callbacks have hidden from the model are kept.
                branch.extend(known.by_ref());
            }
            if let Some(place) = place {
                branch.extend(known.by_ref().take(place + 1 - passed));
                passed = place + 1;
                let at = branch.last().copied().and_then(|index| thread.entry(index));
                if at.is_none_or(|entry| entry.message.as_ref() == Some(message)) {
                    continue;
                }
                // A callback has changed it since. What is stored does not change, so the message
                // is stored again in its place.
                branch.pop();
            }
            let entry = self.entry(&asked, message, &shown);
            if let (Role::Tool, Some(id)) = (message.role(), &entry.id) {
                self.saved.insert(id.clone());
            }
            branch.push(thread.push(entry));
            asked.note(thread, thread.log.len() - 1);
        }
        branch.extend(known);
        if progress == Progress::Cut {
            for half in self.broken_off(messages, &shown) {
                branch.push(thread.push(half));
            }
        }
        thread.branch = branch;
    }

    /// Returns the streamed part of a response that broke off: the client has it, and the
    /// transcript does not.
    fn broken_off(&self, messages: &Messages, shown: &Conversation) -> Vec<Entry> {
        let mut entries = Vec::new();
        for half in shown.messages() {
            let MessageKind::Assistant {
                content: Some(text),
                ..
            } = &half.kind
            else {
                continue;
            };
            let is_of_run = half
                .id
                .strip_prefix(&*self.name)
                .is_some_and(|rest| rest.starts_with(['-', '+', '/']));
            let is_in = |message: &Message| message.id().is_some_and(|id| *id == *half.id);
            if is_of_run
                && half.subagent_run_id.is_none()
                && !text.is_empty()
                && !messages.iter().any(is_in)
            {
                let said = Message::assistant(text.clone()).with_id(half.id.clone());
                entries.push(Entry::new(Some(half.id.clone()), Speaker::Assistant, said));
            }
        }
        entries
    }

    fn entry(&self, asked: &Asking, message: &Message, shown: &Conversation) -> Entry {
        let id = message.id().map(MessageId::to_shared);
        match message.role() {
            // The client has not read what callbacks say in the name of others.
            Role::System => Entry::new(None, Speaker::System, message.clone()),
            Role::User => Entry::new(None, Speaker::User, message.clone()),
            Role::Assistant => {
                let mut calls = Vec::new();
                for (index, call) in message.tool_calls().enumerate() {
                    let wire = message.id().map(|id| id.tool_call(index));
                    calls.push(Asked {
                        id: call.id.clone(),
                        wire: wire.unwrap_or_default(),
                        is_client: self.client_tools.contains(&call.name),
                    });
                }
                Entry::new(
                    id.and_then(|id| id_at_client(id, shown)),
                    Speaker::Assistant,
                    message.clone(),
                )
                .asking(calls)
            }
            // A message of any other role is not a result.
            _ => {
                let mut results = message.tool_results();
                let answers = results.next().and_then(|result| asked.of(&result.call_id));
                let id = id.filter(|_| answers.is_some());
                Entry::new(id, Speaker::Tool, message.clone()).answering(answers)
            }
        }
    }
}

/// Returns the places of these messages among those of the thread's branch, if they are there.
fn places(thread: &Thread, branch: &[usize], messages: &Messages) -> Vec<Option<usize>> {
    let mut from = 0;
    let mut places = Vec::with_capacity(messages.len());
    for message in messages {
        let is_it = |index: &usize| {
            let known = thread
                .entry(*index)
                .and_then(|entry| entry.message.as_ref());
            known.is_some_and(|known| known.id() == message.id())
        };
        // Nearly always the next one.
        let found = branch[from..].iter().position(is_it).map(|at| from + at);
        if let Some(at) = found {
            from = at + 1;
        }
        places.push(found);
    }
    places
}

/// Returns the id under which the client has a message, if it has it. Of a message without text and
/// calls it has only the reasoning.
fn id_at_client(id: Arc<str>, shown: &Conversation) -> Option<Arc<str>> {
    if shown.has(&id) {
        return Some(id);
    }
    let reasoning = format!("{id}-r0");
    shown.has(&reasoning).then(|| reasoning.into())
}

/// The message with the latest call of each id.
#[derive(Default)]
struct Asking(HashMap<Arc<str>, usize>);

impl Asking {
    fn note(&mut self, thread: &Thread, index: usize) {
        for call in thread.entry(index).iter().flat_map(|entry| &entry.calls) {
            self.0.insert(call.id.clone(), index);
        }
    }

    fn of(&self, call: &str) -> Option<usize> {
        self.0.get(call).copied()
    }
}

fn now() -> u64 {
    SystemTime::UNIX_EPOCH
        .elapsed()
        .map_or(0, |since| since.as_secs())
}

fn busy() -> InputError {
    let why = "another run is active in this thread; wait until it ends";
    InputError::new("threadId", why).of(InputErrorKind::Busy)
}

fn broken(error: &(dyn std::error::Error + 'static)) -> InputError {
    tracing::error!(%error, "the thread store failed");
    let why = "the thread could not be loaded or saved; try again";
    InputError::new("threadId", why).of(InputErrorKind::Store)
}
