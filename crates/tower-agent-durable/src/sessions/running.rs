use std::sync::Arc;
use std::time::Duration;

use serde_json::{Map, Value};
use tokio::runtime::Handle;
use tokio::sync::{Mutex, oneshot};
use tokio_util::sync::CancellationToken;
use tower_agent::call::Request;
use tower_agent::callback::Bundle;
use tower_agent::error::{Error, ErrorKind, Result};
use tower_agent::message::{Messages, Role};
use tower_agent::{AgentRequest, AgentResponse, Checkpoint};

use super::busy::Busy;
use super::config::SessionConfig;
use super::format::{SessionHead, identify, read_entries};
use super::key::SessionKey;
use super::mark::Entry;
use super::not_stored::{NotStored, Unstored};
use super::open_calls::{OpenCalls, without_journal};
use super::store::SessionStore;
use super::writer::Writer;
use crate::error::StoreError;
use crate::time::{now, time};

/// The shortest time between two renewals of a lease.
const LEAST: Duration = Duration::from_millis(100);

/// A run that has its session. Whatever happens to it, its progress is stored.
///
/// Everything is written by tasks, since a write that is cancelled halfway leaves unknown whether
/// it has happened.
pub(super) struct Running<S: SessionStore> {
    writer: Arc<Mutex<Writer<S>>>,
    key: SessionKey,
    /// The request of the run, which has its progress.
    request: AgentRequest,
    busy: Busy,
    runtime: Handle,
    /// Cancelled to end the renewal of the lease.
    over: CancellationToken,
    /// Cancelled when another run has got the session.
    lost: CancellationToken,
    is_done: bool,
}

/// A session that a run has got.
struct Claimed<S> {
    writer: Writer<S>,
    request: AgentRequest,
    /// The conversation before the request.
    loaded: Checkpoint,
}

impl<S: SessionStore> Running<S> {
    /// Loads the session, and stores the request. Returns the request after the conversation.
    pub(super) async fn begin(
        config: &SessionConfig<S>,
        key: SessionKey,
        request: AgentRequest,
        entry: Entry,
    ) -> Result<(Self, AgentRequest)> {
        let Ok(runtime) = Handle::try_current() else {
            let message = "a session needs a Tokio runtime";
            return Err(Error::new(ErrorKind::Other, message));
        };
        // A run that was dropped just now may still be storing its progress.
        config.busy.wait_for(&key).await;
        let (send, begun) = oneshot::channel();
        let writing = config.busy.write(key.clone());
        let config = config.clone();
        let here = runtime.clone();
        runtime.spawn(async move {
            let claimed = claim(config.clone(), key.clone(), request, entry).await;
            let begun = claimed.map(|claimed| Self::start(&config, key, claimed, here));
            // If the caller is gone, the run is dropped here, which gives the session up.
            drop(send.send(begun));
            drop(writing);
        });
        begun.await.unwrap_or_else(|_| {
            let message = "the runtime is shutting down";
            Err(Error::new(ErrorKind::Cancelled, message))
        })
    }

    fn start(
        config: &SessionConfig<S>,
        key: SessionKey,
        claimed: Claimed<S>,
        runtime: Handle,
    ) -> (Self, AgentRequest) {
        let Claimed {
            writer,
            request,
            loaded,
        } = claimed;
        // Only what differs, so that the state does not count as changed by the run.
        let state = request.context().state();
        for (key, value) in &writer.state {
            if state.get(key).as_ref() != Some(value) {
                state.set(key, value.clone());
            }
        }
        let over = CancellationToken::new();
        let lost = CancellationToken::new();
        // Half of it leaves time for one more try after a renewal has failed.
        let every = (writer.lease / 2).max(LEAST);
        let is_again = writer.is_lost;
        let writer = Arc::new(Mutex::new(writer));
        let open = OpenCalls::new(writer.clone(), over.clone());
        open.offer(request.context());
        let mut request = request.with_checkpoint(loaded);
        // The open calls of a lost process are safe only in a journal: fail before the first one if
        // none has taken the run over.
        if is_again {
            request = request.with_callbacks(Bundle::new().on_agent(open.guard()));
        }
        let running = Self {
            writer,
            key,
            request: request.clone(),
            busy: config.busy.clone(),
            runtime,
            over,
            lost,
            is_done: false,
        };
        running.renew(every);
        (running, request)
    }

    /// Renews the lease while the run lasts, in a task, so that a run that is not polled keeps its
    /// session.
    fn renew(&self, every: Duration) {
        let writer = self.writer.clone();
        let over = self.over.clone();
        let lost = self.lost.clone();
        self.runtime.spawn(async move {
            while over
                .run_until_cancelled(tokio::time::sleep(every))
                .await
                .is_some()
            {
                let mut writer = writer.lock().await;
                // The end of the run may have been written while this task waited for the lock. A
                // claim after it would lock the session again.
                if over.is_cancelled() {
                    return;
                }
                match writer.claim().await {
                    Err(error) if error.is_conflict() => return lost.cancel(),
                    // The lease lasts for another try. If it ends meanwhile, the next write says
                    // so.
                    Err(error) => tracing::warn!(error = %error.to_string().escape_debug(), "failed to renew the lease of a session"),
                    Ok(()) => {}
                }
            }
        });
    }

    /// Returns a token that is cancelled when another run has got the session.
    pub(super) fn lost(&self) -> CancellationToken {
        self.lost.clone()
    }

    /// Leaves the session, which another run has, without a write.
    pub(super) fn give_up(&mut self) {
        self.is_done = true;
        self.over.cancel();
    }

    /// Stores the progress of a run that has ended.
    pub(super) async fn finish(
        mut self,
        result: Result<AgentResponse>,
        checkpoint: Checkpoint,
    ) -> Result<AgentResponse> {
        let is_lost = self.writer.lock().await.is_lost;
        let result = match result {
            // A layer or callback has answered before the guard: no journal has taken the run over.
            Ok(_) if is_lost => Err(without_journal(self.request.context().run_id())
                .with_checkpoint(checkpoint.clone())),
            result => result,
        };
        let state = self.request.context().state().snapshot();
        let stored = self.store(checkpoint.clone(), state.clone()).await;
        let stored =
            stored.unwrap_or_else(|_| Err(StoreError::database("the runtime is shutting down")));
        match stored {
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

    fn store(
        &mut self,
        checkpoint: Checkpoint,
        state: Map<String, Value>,
    ) -> oneshot::Receiver<Result<(), StoreError>> {
        self.is_done = true;
        self.over.cancel();
        let (send, stored) = oneshot::channel();
        let writer = self.writer.clone();
        let writing = self.busy.write(self.key.clone());
        self.runtime.spawn(async move {
            let stored = writer.lock().await.finish(checkpoint, state).await;
            drop(writing);
            // Nobody waits for a dropped run, so its error goes to the log.
            if let Err(stored) = send.send(stored) {
                log(stored);
            }
        });
        stored
    }
}

impl<S: SessionStore> Drop for Running<S> {
    fn drop(&mut self) {
        self.over.cancel();
        if !self.is_done {
            let checkpoint = self.request.checkpoint();
            let state = self.request.context().state().snapshot();
            drop(self.store(checkpoint, state));
        }
    }
}

/// Loads the session and claims it for a run with this request.
async fn claim<S: SessionStore>(
    config: SessionConfig<S>,
    key: SessionKey,
    mut request: AgentRequest,
    mut entry: Entry,
) -> Result<Claimed<S>> {
    let stored = config.store.load(&key).await?;
    let version = stored.as_ref().map_or(0, |stored| stored.version);
    let entries = stored
        .as_ref()
        .map(read_entries)
        .transpose()?
        .unwrap_or_default();
    let mut loaded = Checkpoint::default();
    let mut state = Map::new();
    let mut is_lost = false;
    let mut since = now();
    if let Some(stored) = stored {
        let head = SessionHead::read(&stored.head)?;
        loaded = head.checkpoint(&entries);
        state = head.state;
        match head.claim {
            Some(claim) if claim.until > now() => return Err(busy(&key)),
            // The same request after its process has died: its messages are stored.
            Some(claim) if claim.is_of(&request, &loaded.messages) => {
                *request.messages_mut() = Messages::new();
                entry = Entry::Again;
                is_lost = claim.resumes;
                // The answers that it had then, which a journal may know.
                since = claim.since;
            }
            // Another request: the calls that the lost run may have started are not made again.
            Some(claim) if claim.resumes => loaded = loaded.with_calls_stopped(),
            _ => {}
        }
    }
    identify(&mut request, loaded.messages.len());
    let context = request.context();
    // Another attempt repeats its resolutions, whose interrupts the first one may have closed.
    if entry != Entry::Again {
        for resolution in context.resolutions() {
            let mut open = loaded.head.interrupts.iter();
            match open.find(|open| open.id == resolution.id) {
                None => return Err(answered(&key, &resolution.id)),
                Some(open) if open.is_late(&resolution, time(since)) => {
                    return Err(expired(&key, &resolution.id));
                }
                Some(_) => {}
            }
        }
    }
    // The request's own state is newer than the stored one.
    state.extend(context.state().snapshot());
    let mut checkpoint = loaded.clone();
    checkpoint
        .messages
        .extend(request.messages().iter().cloned());
    let has_user_message = request
        .messages()
        .iter()
        .any(|message| message.role() == Role::User);
    // A new message of the user closes the open interrupts, as in a run without a session.
    if has_user_message {
        checkpoint.head.interrupts.clear();
    }
    let open = checkpoint.head.interrupts.iter();
    request.add_resolutions(open.filter_map(|open| open.answer_at(time(since))));
    let context = request.context();
    let resumes = has_open_calls(&checkpoint.messages);
    let mut writer = Writer {
        store: config.store,
        key,
        ttl: config.ttl,
        lease: config.lease,
        // Not the run id, which a second process may have at the same time.
        name: uuid::Uuid::new_v4().to_string().into(),
        version,
        entries,
        since,
        resumes,
        run: context.run_id().into(),
        // A lost run is made again only if a journal had it.
        is_journaled: is_lost,
        is_lost,
        checkpoint,
        state,
    };
    // The compare-and-swap that decides between two runs which have loaded the same version.
    writer.claim().await?;
    Ok(Claimed {
        writer,
        request,
        loaded,
    })
}

fn has_open_calls(messages: &Messages) -> bool {
    messages.open_calls().next().is_some()
}

fn busy(key: &SessionKey) -> Error {
    let message = format!("session `{key}` has another run; wait until it ends");
    Error::new(ErrorKind::Conflict, message)
}

fn answered(key: &SessionKey, interrupt: &str) -> Error {
    let message = format!(
        "interrupt `{interrupt}` of session `{key}` is not open: it was answered before, or the \
         conversation has gone on"
    );
    Error::new(ErrorKind::Conflict, message)
}

fn expired(key: &SessionKey, interrupt: &str) -> Error {
    let message = format!(
        "interrupt `{interrupt}` of session `{key}` has expired: the next request goes on without the \
         answer"
    );
    Error::new(ErrorKind::Expired, message)
}

fn log(stored: Result<(), StoreError>) {
    if let Err(error) = stored {
        tracing::error!(error = %error.to_string().escape_debug(), "failed to store the progress of a run");
    }
}
