use std::sync::Arc;

use serde_json::{Map, Value};
use tokio::runtime::Handle;
use tower_agent::call::{Origin, Request};
use tower_agent::callback::Bundle;
use tower_agent::error::{AnswerError, Error, ErrorKind, Result};
use tower_agent::message::{Messages, Role};
use tower_agent::{AgentRequest, AgentResponse, Checkpoint};

use super::config::SessionConfig;
use super::format::{Draft, FORMAT, Repeated, Settled, identify, is_of, repeated};
use super::mark::Arrival;
use super::not_stored::{NotStored, Unstored};
use super::open_calls::{OpenCalls, without_journal};
use super::writer::{SessionState, Writer};
use crate::cache::Known;
use crate::error::StoreError;
use crate::head::Claim;
use crate::key::ConversationKey;
use crate::lease::{Lease, Stored};
use crate::policy::Policy;
use crate::time::{now, time};

/// A run that has its session. Whatever happens to it, its progress is stored.
///
/// The end is written by a task, since a write that is cancelled halfway leaves unknown whether it
/// has happened.
pub(super) struct Running {
    writer: Writer,
    /// The request of the run, which has its progress.
    request: AgentRequest,
    /// The conversation until the run does something.
    before: Checkpoint,
    runtime: Handle,
    is_done: bool,
}

/// The beginning of a run in its session.
pub(super) enum Entered {
    /// The run has its session, and the request follows the conversation.
    Run(Box<Running>, AgentRequest),
    /// A run of this id has had the request, and this is its response.
    Answered(AgentResponse),
}

impl Running {
    /// Loads the session, and stores the request. Returns the request after the conversation.
    pub(super) async fn begin(
        config: &SessionConfig,
        key: ConversationKey,
        mut request: AgentRequest,
        mut entry: Arrival,
    ) -> Result<Entered> {
        let Ok(runtime) = Handle::try_current() else {
            let message = "a session needs a Tokio runtime";
            return Err(Error::new(ErrorKind::Other, message));
        };
        // A run that was dropped just now may still be storing its progress.
        config.store.busy().wait_for(&key).await;
        let mut loaded = Checkpoint::default();
        let mut state = Map::new();
        let mut is_lost = false;
        let mut left: Option<Arc<str>> = None;
        let mut since = now();
        let known = config.sessions.load(&config.store, &key, FORMAT).await?;
        let stored = Stored::of(known.as_ref());
        let mut entries = Settled::default();
        if let Some(Known {
            head, entries: all, ..
        }) = known
        {
            entries = all;
            loaded = head.body.checkpoint(&entries);
            state = head.body.state;
            match head.claim {
                Some(claim) if claim.until > now() => return Err(in_use(&key)),
                // The same request after its process has died: its messages are stored.
                Some(claim) if is_of(&claim, &request, &entries, &loaded.messages) => {
                    *request.messages_mut() = Messages::new();
                    entry = Arrival::Again;
                    is_lost = claim.resumes;
                    // The answers that it had then, which a journal may know.
                    since = claim.since;
                }
                // Another request: the calls that the lost run may have started are not made again.
                Some(claim) if claim.resumes => {
                    loaded = loaded.with_calls_stopped();
                    left = Some(claim.run);
                }
                _ => {}
            }
        }
        if entry == Arrival::New {
            // A run counts once in its session, whoever delivers its request again.
            match repeated(&request, &entries, &loaded.messages) {
                None => {}
                Some(Repeated::Open) => *request.messages_mut() = Messages::new(),
                Some(Repeated::Answered { before, added }) => {
                    let request = request.with_checkpoint(Checkpoint::new(before));
                    let mut response = AgentResponse::new(added);
                    request.mark(&mut response, None, Origin::Service);
                    return Ok(Entered::Answered(response));
                }
                Some(Repeated::Other) => return Err(used(&key, request.context().run_id())),
            }
        }
        identify(&mut request, loaded.messages.len());
        // Another attempt repeats its resolutions, whose interrupts the first one may have closed.
        if entry != Arrival::Again {
            check_answers(&key, &request, &loaded, since, left.as_deref())?;
        }
        // The request's own state is newer than the stored one.
        state.extend(request.context().state().snapshot());
        let checkpoint = asked(&mut request, &loaded, since);
        let run: Arc<str> = request.context().run_id().into();
        let claim = Claim {
            until: 0,
            run: run.clone(),
            since,
            resumes: checkpoint.messages.open_calls().next().is_some(),
            // A lost run is made again only if a journal had it.
            is_journaled: is_lost,
        };
        let draft = Draft::new(&entries, &checkpoint, state.clone(), run.clone());
        // The compare-and-swap that decides between two runs which have loaded the same version.
        let claimed = Lease::claim(
            config.store.clone(),
            key,
            config.terms,
            stored,
            claim,
            draft.record()?,
            request.context().lease().clone(),
        );
        let lease = claimed.await?.begin();
        // Only what differs, so that the state does not count as changed by the run.
        let own = request.context().state();
        for (key, value) in state {
            if own.get(&key).as_ref() != Some(&value) {
                own.set(key, value);
            }
        }
        let written = SessionState {
            run,
            entries: draft.entries,
            is_lost,
            was_lost: is_lost,
        };
        let writer = Writer::new(lease, config.sessions.clone(), written);
        let open = OpenCalls::new(writer.clone());
        open.offer(request.context());
        let mut request = Policy::Session.request(request.with_checkpoint(loaded));
        // The open calls of a lost process are safe only in a journal: fail before the first one if
        // none has taken the run over.
        if is_lost {
            request = request.with_callbacks(Bundle::new().on_agent(open.guard()));
        }
        let running = Self {
            writer,
            request: request.clone(),
            before: checkpoint,
            runtime,
            is_done: false,
        };
        Ok(Entered::Run(Box::new(running), request))
    }

    /// Returns the lease of the session.
    pub(super) fn lease(&self) -> &Lease {
        self.writer.lease()
    }

    /// Leaves the session, which another run has, without a write.
    pub(super) fn give_up(&mut self) {
        self.is_done = true;
        self.lease().stop_renewing();
    }

    /// Stores the progress of a run that has ended.
    pub(super) async fn finish(
        mut self,
        result: Result<AgentResponse>,
        checkpoint: Checkpoint,
    ) -> Result<AgentResponse> {
        let checkpoint = match &result {
            Ok(_) => checkpoint,
            Err(_) => self.untouched(checkpoint),
        };
        let result = match result {
            // A layer or callback has answered before the guard: no journal has taken the run over.
            Ok(_) if self.writer.is_lost().await => {
                Err(without_journal(self.request.context().run_id())
                    .with_checkpoint(checkpoint.clone()))
            }
            result => result,
        };
        let state = self.request.context().state().snapshot();
        match self.store(checkpoint.clone(), state.clone()).await {
            Ok(()) => result,
            Err(error) => {
                let unstored = Unstored {
                    writer: self.writer.clone(),
                    checkpoint: checkpoint.clone(),
                    state,
                };
                let error = NotStored::new(result, error, unstored);
                Err(Error::from(error).with_checkpoint(checkpoint))
            }
        }
    }

    /// Returns the checkpoint of a run that has failed or was dropped. If it has done nothing, as
    /// that of a program which may not go on with the conversation, its questions stay open.
    fn untouched(&self, mut checkpoint: Checkpoint) -> Checkpoint {
        if self.before.is_untouched_in(&checkpoint) {
            return self.before.clone();
        }
        let before = &self.before;
        let has_no_result = checkpoint.messages.len() == before.messages.len();
        if has_no_result && checkpoint.head.interrupts.is_empty() {
            checkpoint
                .head
                .interrupts
                .clone_from(&before.head.interrupts);
        }
        checkpoint
    }

    fn store(
        &mut self,
        checkpoint: Checkpoint,
        state: Map<String, Value>,
    ) -> impl Future<Output = Result<(), StoreError>> + use<> {
        self.is_done = true;
        self.lease().stop_renewing();
        let writer = self.writer.clone();
        let write = async move { writer.finish(&checkpoint, state).await };
        self.lease().in_task(&self.runtime, write)
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        self.lease().stop_renewing();
        if !self.is_done {
            let checkpoint = self.untouched(self.request.checkpoint());
            let state = self.request.context().state().snapshot();
            drop(self.store(checkpoint, state));
        }
    }
}

/// Fails if the request answers an interrupt that is not open, or not any more. `left` is the run
/// that the session has lost, and that this request does not go on with.
fn check_answers(
    key: &ConversationKey,
    request: &AgentRequest,
    loaded: &Checkpoint,
    since: i64,
    left: Option<&str>,
) -> Result<()> {
    for resolution in request.context().resolutions() {
        let mut open = loaded.head.interrupts.iter();
        match open.find(|open| open.id == resolution.id) {
            None => return Err(answered(key, &resolution.id, left)),
            Some(open) => {
                let checked = open.check(&resolution, time(since));
                checked.map_err(|error| unfit(key, &resolution.id, error))?;
            }
        }
    }
    Ok(())
}

/// Returns the conversation with the request, which is given the outcomes of what has expired.
fn asked(request: &mut AgentRequest, loaded: &Checkpoint, since: i64) -> Checkpoint {
    let mut checkpoint = loaded.clone();
    let sent = request.messages();
    checkpoint.messages.extend(sent.iter().cloned());
    // A new message of the user closes the open interrupts, as in a run without a session.
    if sent.iter().any(|message| message.role() == Role::User) {
        checkpoint.head.interrupts.clear();
    }
    let open = checkpoint.head.interrupts.iter();
    request.add_resolutions(open.filter_map(|open| open.answer_at(time(since))));
    checkpoint
}

fn used(key: &ConversationKey, run: &str) -> Error {
    let message = format!(
        "session `{key}` has had another request under the run id `{run}`; give this one an id of its \
         own"
    );
    Error::new(ErrorKind::Conflict, message)
}

fn in_use(key: &ConversationKey) -> Error {
    let message = format!("session `{key}` has another run; wait until it ends");
    Error::new(ErrorKind::Conflict, message)
}

/// Returns the error for an answer that does not count for its question, which stays open.
fn unfit(key: &ConversationKey, interrupt: &str, error: AnswerError) -> Error {
    let kind = match error {
        AnswerError::Late => ErrorKind::Expired,
        AnswerError::Misfit(_) => ErrorKind::InvalidRequest,
        _ => ErrorKind::Denied,
    };
    let message =
        format!("the answer to interrupt `{interrupt}` of session `{key}` does not count: {error}");
    Error::new(kind, message).with_source(error)
}

fn answered(key: &ConversationKey, interrupt: &str, left: Option<&str>) -> Error {
    let mut message = format!(
        "interrupt `{interrupt}` of session `{key}` is not open: it was answered before, the question \
         has changed, or the conversation has gone on"
    );
    if let Some(run) = left {
        // A process that ends after the journal's last write leaves the question in the journal
        // alone.
        let lost = format!(
            "; if run `{run}` has asked, whose process was lost, send its request again first"
        );
        message.push_str(&lost);
    }
    Error::new(ErrorKind::Conflict, message)
}
