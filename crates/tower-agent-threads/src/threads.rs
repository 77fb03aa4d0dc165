use std::sync::Arc;
use std::time::Duration;

use tower_agent::agent::AgentRequest;

use crate::claim::Claim;
use crate::client::{ClientInput, ClientMessage};
use crate::keeper::{Keeper, Keeping};
use crate::memory::MemoryThreads;
use crate::refusal::{InputPart, Refusal, RefusalKind};
use crate::rules::{self, Accepted, Allowed};
use crate::seal::{SealKeys, UsedAnswers, is_sealed};
use crate::store::{BoxStore, ThreadKey, ThreadStore};
use crate::thread::Thread;
use crate::time::now;
use crate::urls::{UrlRule, Urls};

/// The threads of a server: in a store, or sealed with its clients. Cloning is O(1).
///
/// ```
/// use std::time::Duration;
///
/// use tower_agent_threads::{MemoryThreads, SealKey, Threads};
///
/// let threads = Threads::new(MemoryThreads::new()).abandoned_after(Duration::from_secs(60));
/// let stateless = Threads::default().with_seal(SealKey::new([7; 32]));
/// # drop((threads, stateless));
/// ```
#[derive(Clone, Debug)]
pub struct Threads {
    keeping: Keeping,
    abandoned_after: Duration,
    allowed: Allowed,
}

/// A run that may start, and has its thread; created by [`Threads::begin`].
#[derive(Debug)]
#[non_exhaustive]
pub struct Begun {
    /// The conversation with the accepted input and answers.
    pub request: AgentRequest,
    /// Saves the progress of the run.
    pub keeper: Keeper,
    /// The name of the run, for [`RunStream::named`](tower_agent::RunStream::named): the ids of its
    /// messages start with it.
    pub name: Arc<str>,
}

impl Default for Threads {
    /// In memory.
    fn default() -> Self {
        Self::new(MemoryThreads::new())
    }
}

impl Threads {
    /// Creates the threads of a server that keeps them in a store.
    #[must_use]
    pub fn new(store: impl ThreadStore) -> Self {
        Self {
            keeping: Keeping::Store(BoxStore::new(store)),
            abandoned_after: Duration::from_secs(15 * 60),
            allowed: Allowed::default(),
        }
    }

    /// Sets the store.
    #[must_use]
    pub fn with_store(mut self, store: impl ThreadStore) -> Self {
        self.keeping = Keeping::Store(BoxStore::new(store));
        self
    }

    /// Keeps no threads on the server: each client keeps its own, sealed with these keys.
    ///
    /// The client can neither read nor change a sealed thread, nor use it under another
    /// [key](ThreadKey). It can return to an earlier version of it, and use an answer again in another
    /// process, or in this one after a restart or after 100,000 later answers.
    #[must_use]
    pub fn with_seal(mut self, keys: impl Into<SealKeys>) -> Self {
        self.keeping = Keeping::Sealed(keys.into(), UsedAnswers::default());
        self
    }

    /// Sets when a run counts as abandoned, as the time since it last saved its progress: its
    /// process was killed, or its store failed twice in a row. Defaults to 15 minutes.
    ///
    /// Until then, other runs of its thread are refused. Afterwards another run may take over: open
    /// calls do not run, and late results of the first run are not saved.
    #[must_use]
    pub fn abandoned_after(mut self, time: Duration) -> Self {
        self.abandoned_after = time;
        self
    }

    /// Lets a client send only what is new: an input without any message that the server knows
    /// continues the thread. By default it replaces the conversation, as any message that the client
    /// omits is dropped.
    #[must_use]
    pub fn allow_partial_history(mut self) -> Self {
        self.allowed.partial_history = true;
        self
    }

    /// Lets clients answer interrupts that are [for an operator](tower_agent::Interrupt::for_operator).
    /// By default they can only cancel them.
    #[must_use]
    pub fn allow_operator_answers(mut self) -> Self {
        self.allowed.operator_answers = true;
        self
    }

    /// Sets which URLs a client may put into a message, for images, audio and documents. Defaults to
    /// public ones: `https`, and a host that is neither an address, nor a local name, nor one at which
    /// a provider keeps files.
    ///
    /// A provider fetches a URL with the key that all users of the server share, or, if the model is
    /// your own, from your network. The function decides alone: the default rule does not apply to what
    /// it accepts.
    ///
    /// ```
    /// use tower_agent_threads::Threads;
    ///
    /// // Each user has a folder of uploads.
    /// let threads = Threads::default().allow_urls(|key, url| {
    ///     let folder = url.strip_prefix("gs://shop-uploads/");
    ///     let of_user = |(user, _): &(&str, &str)| key.principal.as_deref() == Some(*user);
    ///     let folder = folder.and_then(|path| path.split_once('/'));
    ///     folder.filter(of_user).is_some()
    /// });
    /// # drop(threads);
    /// ```
    #[must_use]
    pub fn allow_urls(
        mut self,
        accept: impl Fn(&ThreadKey, &str) -> bool + Send + Sync + 'static,
    ) -> Self {
        self.allowed.urls = UrlRule::Chosen(Arc::new(accept));
        self
    }

    /// Returns whether a value is a sealed thread, for a server whose clients keep them: pass it with
    /// the [input](ClientInput::sealed), and nowhere else.
    #[must_use]
    pub fn is_sealed(&self, value: &str) -> bool {
        matches!(self.keeping, Keeping::Sealed(..)) && is_sealed(value)
    }

    /// Takes the accepted parts of the input, and claims the thread for one run.
    ///
    /// # Errors
    ///
    /// Fails before anything has run if the input is not accepted by the [rules](crate#rules), or a
    /// message that is accepted has a content that no model can read.
    pub async fn begin<M: ClientMessage>(
        &self,
        key: ThreadKey,
        input: ClientInput<'_, M>,
    ) -> Result<Begun, M::Error> {
        let known = match &self.keeping {
            Keeping::Store(store) => store.load(&key).await.map_err(|error| broken(&*error))?,
            Keeping::Sealed(keys, _) => {
                let opened = input
                    .sealed
                    .iter()
                    .filter_map(|value| keys.open(&key, value));
                opened.max_by_key(|thread| thread.version)
            }
        };
        let is_lost = match known.as_ref().and_then(|thread| thread.running) {
            None => false,
            Some(since) if now().saturating_sub(since) < self.abandoned_after.as_secs() => {
                return Err(busy().into());
            }
            Some(_) => true,
        };
        let earlier = known
            .as_ref()
            .map(|thread| (thread.version, thread.answered.clone()));
        let urls = Urls {
            rule: &self.allowed.urls,
            key: &key,
        };
        let Accepted {
            mut thread,
            request,
        } = match known {
            None => rules::begin(&input, urls)?,
            Some(thread) => rules::go_on(thread, &input, is_lost, &self.allowed, urls)?,
        };
        // From here on the thread is this run's.
        let name = name(&input, &thread);
        thread.runs.push(name.clone());
        thread.run_from = thread.log.len();
        thread.is_cut = false;
        match &self.keeping {
            Keeping::Store(store) => {
                thread.running = Some(now());
                // Saved before anything runs: the compare-and-swap that decides between two requests.
                let claim = Claim::new(store.clone(), key.clone(), thread.clone());
                if !claim.save().await.map_err(|error| broken(&*error))? {
                    return Err(busy().into());
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
                    let refusal = Refusal::new(RefusalKind::NotOpen, InputPart::Answers, why);
                    return Err(refusal.into());
                }
            }
        }
        let keeper = Keeper::new(self.keeping.clone(), key, name.clone(), thread, input.tools);
        Ok(Begun {
            request,
            keeper,
            name,
        })
    }
}

/// Returns the prefix of a run's message ids: the run's id, made unique if the thread already has
/// messages with that prefix, since the run would append to those.
fn name<M: ClientMessage>(input: &ClientInput<'_, M>, thread: &Thread) -> Arc<str> {
    let run = &input.run_id;
    let sent = input.messages.iter().map(|message| &**message.id());
    let known = thread.log.iter().filter_map(|entry| entry.id.as_deref());
    let runs = thread.runs.iter().map(|run| &**run);
    let ids = sent.chain(known).chain(runs);
    match ids.filter_map(|id| run_number(id, run)).max() {
        None => run.clone(),
        Some(number) => format!("{run}.{}", number.saturating_add(1)).into(),
    }
}

/// Returns the number of the run with this id that a message id belongs to: 0 for the first one.
fn run_number(id: &str, run: &str) -> Option<u64> {
    let after = id.strip_prefix(run)?;
    match after.strip_prefix('.') {
        Some(number) => number.split('-').next()?.parse().ok(),
        None => (after.is_empty() || after.starts_with(['-', '+', '/'])).then_some(0),
    }
}

fn busy() -> Refusal {
    let why = "another run is active in this thread; wait until it ends";
    Refusal::new(RefusalKind::Busy, InputPart::Thread, why)
}

fn broken(error: &(dyn std::error::Error + 'static)) -> Refusal {
    tracing::error!(error = %error.to_string().escape_debug(), "the thread store failed");
    let why = "the thread could not be loaded or saved; try again";
    Refusal::new(RefusalKind::Store, InputPart::Thread, why)
}
