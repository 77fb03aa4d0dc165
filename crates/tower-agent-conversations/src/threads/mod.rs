//! `Threads: ThreadRequest -> ThreadRun`
//!
//! Conversations whose caller is a client: what the server knows counts, and a client adds only its
//! own data.

mod account;
mod allowed;
mod answers;
mod branch;
mod client;
mod entry_set;
mod interrupt_ids;
mod keeper;
mod layer;
mod list;
mod log;
mod log_entry;
mod progress;
mod reader;
mod repeat;
mod results;
mod rules;
mod run;
mod saving;
mod seal;
mod sent;
mod shown;
mod shown_thread;
mod stored;
mod thread;
mod urls;

use std::sync::Arc;
use std::time::{Duration, SystemTime};

use tower_agent::agent::AgentRequest;
use tower_agent::call::Request;
use tower_agent::context::State;
use tower_agent::error::Resolution;

use self::allowed::Allowed;
use self::client::NoMessage;
pub use self::client::{ClientCall, ClientInput, ClientMessage, ClientRole, ClientView};
pub use self::interrupt_ids::InterruptIds;
use self::keeper::{Device, Keeping};
pub use self::keeper::{Keeper, Save};
pub use self::layer::{ThreadRequest, ThreadService};
pub(crate) use self::log::LogItem;
pub use self::progress::RunProgress;
use self::reader::Mark;
use self::rules::AcceptedInput;
pub use self::run::ThreadRun;
pub use self::saving::Saving;
pub use self::seal::{SealKey, SealKeys};
use self::seal::{UsedAnswers, is_sealed};
pub use self::shown::{MissedMessage, ShownForm, ShownMessage};
pub use self::shown_thread::ShownThread;
use self::stored::{FORMAT, ThreadCache, ThreadLease, record, thread_of};
use self::thread::Asked;
pub use self::thread::Thread;
use self::urls::{UrlRule, Urls};
use crate::error::StoreError;
use crate::head::Claim;
use crate::key::ConversationKey;
use crate::lease::{LEASE, Lease, Stored, Terms};
use crate::memory::MemoryConversations;
use crate::policy::Policy;
use crate::query::{ConversationInfo, ConversationQuery};
use crate::question::{Question, QuestionPage};
use crate::refusal::{InputPart, Refusal, RefusalKind};
use crate::roles::Roles;
use crate::store::{BoxStore, ConversationStore};
use crate::time::now;

/// The threads of a server: in a store, or sealed with its clients. Cloning is O(1).
///
/// It is a layer around the outermost agent: a call takes a client's
/// [request](crate::ThreadRequest), and returns the run as a [stream](crate::ThreadRun) whose
/// events are saved before they come.
///
/// ```
/// use std::time::Duration;
///
/// use tower::Layer;
/// use tower_agent::Agent;
/// use tower_agent_conversations::{MemoryConversations, SealKey, Threads};
/// # use tower_agent_test::ScriptedModel;
///
/// # fn main() -> Result<(), tower_agent::BoxError> {
/// # let model = ScriptedModel::new([]);
/// let threads = Threads::new(MemoryConversations::new()).lease(Duration::from_secs(60));
/// let chat = threads.layer(Agent::builder(model).build()?);
/// let stateless = Threads::default().with_seal(SealKey::new([7; 32]));
/// # drop((chat, stateless));
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug)]
pub struct Threads {
    place: Place,
    terms: Terms,
    allowed: Allowed,
}

/// The place where a server keeps its threads.
#[derive(Clone, Debug)]
enum Place {
    Store(BoxStore, ThreadCache),
    /// With the client.
    Sealed(SealKeys, UsedAnswers),
}

/// A run that may start, and has its thread; created by [`Threads::begin`].
#[derive(Debug)]
#[non_exhaustive]
pub struct Begun {
    /// The conversation with the accepted input and answers. The [key](ConversationKey) of the
    /// thread is among its [extensions](AgentRequest::with_extension).
    pub request: AgentRequest,
    /// Saves the progress of the run.
    pub keeper: Keeper,
    /// The name of the run, for [`RunStream::named`](tower_agent::RunStream::named): the ids of its
    /// messages start with it.
    pub name: Arc<str>,
    /// The messages that the client has missed: another device of the user has gone on, or somebody
    /// else has [answered](Threads::answer). Send them first.
    pub missed: Vec<MissedMessage>,
}

impl Default for Threads {
    /// In memory.
    fn default() -> Self {
        Self::new(MemoryConversations::new())
    }
}

impl Threads {
    /// Creates the threads of a server that keeps them in a store.
    #[must_use]
    pub fn new(store: impl ConversationStore) -> Self {
        Self {
            place: Place::Store(BoxStore::new(store), ThreadCache::default()),
            terms: Terms {
                format: FORMAT,
                lease: LEASE,
                ttl: None,
            },
            allowed: Allowed::default(),
        }
    }

    /// Sets the store.
    #[must_use]
    pub fn with_store(mut self, store: impl ConversationStore) -> Self {
        self.place = Place::Store(BoxStore::new(store), ThreadCache::default());
        self
    }

    /// Keeps no threads on the server: each client keeps its own, sealed with these keys.
    ///
    /// The client can neither read nor change a sealed thread, nor use it under another
    /// [key](ConversationKey). It can return to an earlier version of it, and use an answer again
    /// in another process, or in this one after a restart or after 100,000 later answers.
    #[must_use]
    pub fn with_seal(mut self, keys: impl Into<SealKeys>) -> Self {
        self.place = Place::Sealed(keys.into(), UsedAnswers::default());
        self
    }

    /// Sets how long the thread of a process that has died is not available. Defaults to 30
    /// seconds.
    ///
    /// A run has its thread until it ends, however long that takes: a task of the Tokio runtime
    /// renews its lease in half this time. Other runs of the thread are refused meanwhile. If the
    /// process dies or is paused, or the store fails until the lease has ended, another run may
    /// take over: the first run starts no more calls, and its late results are not saved. The
    /// clocks of all machines have to agree much better than that. Outside a runtime with timers
    /// nothing renews the lease.
    #[must_use]
    pub fn lease(mut self, lease: Duration) -> Self {
        self.terms.lease = lease;
        self
    }

    /// Sets after which time without a run a thread expires. Defaults to never.
    #[must_use]
    pub fn ttl(mut self, ttl: Duration) -> Self {
        self.terms.ttl = Some(ttl);
        self
    }

    /// Lets a client send only what is new: an input without any message that the server knows
    /// continues the thread. By default it replaces the conversation, as any message that the
    /// client omits is dropped.
    #[must_use]
    pub fn allow_partial_history(mut self) -> Self {
        self.allowed.partial_history = true;
        self
    }

    /// Lets clients send messages of the application: instructions, which a model follows before
    /// what the user says. By default they are refused, as whoever can send a request could change
    /// what the agent was told.
    #[must_use]
    pub fn allow_system_messages(mut self) -> Self {
        self.allowed.system_messages = true;
        self
    }

    /// Sets which URLs a client may put into a message, for images, audio and documents. Defaults
    /// to public ones: `https`, and a host that is neither an address, nor a local name, nor one at
    /// which a provider keeps files.
    ///
    /// A provider fetches a URL with the key that all users of the server share, or, if the model
    /// is your own, from your network. The function decides alone: the default rule does not apply
    /// to what it accepts.
    ///
    /// ```
    /// use tower_agent_conversations::Threads;
    ///
    /// // Each user has a folder of uploads.
    /// let threads = Threads::default().allow_urls(|key, url| {
    ///     let folder = url.strip_prefix("gs://shop-uploads/");
    ///     let of_user = |(user, _): &(&str, &str)| *key.user == **user;
    ///     let folder = folder.and_then(|path| path.split_once('/'));
    ///     folder.filter(of_user).is_some()
    /// });
    /// # drop(threads);
    /// ```
    #[must_use]
    pub fn allow_urls(
        mut self,
        accept: impl Fn(&ConversationKey, &str) -> bool + Send + Sync + 'static,
    ) -> Self {
        self.allowed.urls = UrlRule::Chosen(Arc::new(accept));
        self
    }

    /// Returns whether a value is a sealed thread, for a server whose clients keep them: pass it
    /// with the [input](ClientInput::sealed), and nowhere else.
    #[must_use]
    pub fn is_sealed(&self, value: &str) -> bool {
        matches!(self.place, Place::Sealed(..)) && is_sealed(value)
    }

    /// Takes the accepted parts of the input, and claims the thread for one run.
    ///
    /// # Errors
    ///
    /// Fails before anything has run if the input is not accepted by the [rules](crate#rules), or a
    /// message that is accepted has a content that no model can read.
    pub async fn begin<M: ClientMessage>(
        &self,
        key: ConversationKey,
        mut input: ClientInput<'_, M>,
    ) -> Result<Begun, M::Error> {
        // The client's own answers are the user's, if the conversation is somebody's.
        if !input.is_away && input.roles.name().is_none() && !key.user.is_empty() {
            input.roles = input.roles.named(key.user.clone());
        }
        let known = match &self.place {
            Place::Store(store, threads) => {
                // A run that was dropped just now may still be saving its progress.
                store.busy().wait_for(&key).await;
                let known = threads.load(store, &key, FORMAT).await;
                known.map_err(|error| broken(&error))?
            }
            Place::Sealed(..) => None,
        };
        let stored = Stored::of(known.as_ref());
        let known = match &self.place {
            Place::Store(..) => known.map(thread_of),
            Place::Sealed(keys, _) => {
                let opened = input
                    .sealed
                    .iter()
                    .filter_map(|value| keys.open(&key, value));
                opened.max_by_key(|thread| thread.version)
            }
        };
        let claim = known.as_ref().and_then(|thread| thread.claim.clone());
        let is_lost = match claim {
            None => false,
            Some(claim) if claim.until > now() => return Err(busy(claim.until).into()),
            Some(_) => true,
        };
        let earlier = known.as_ref().map(Asked::of);
        // Nobody but its client reads a sealed thread.
        let reader = input.reader.as_deref().filter(|_| self.has_store());
        let mark = Mark::read(reader);
        let urls = Urls {
            rule: &self.allowed.urls,
            key: &key,
        };
        let AcceptedInput {
            mut thread,
            mut request,
            missed,
        } = match known {
            None if input.is_away => {
                let why = "the thread is not known";
                let refusal = Refusal::new(RefusalKind::NotOpen, InputPart::Thread, why);
                return Err(refusal.into());
            }
            None => rules::begin(&input, &self.allowed, urls)?,
            Some(thread) => rules::go_on(thread, &input, &mark, is_lost, &self.allowed, urls)?,
        };
        let is_behind = !missed.is_empty();
        if !input.is_away {
            let received = if is_behind {
                thread.readers.received(&mark)
            } else {
                thread.log.len()
            };
            thread.readers.set(&mark, received);
        }
        if input.is_away {
            request = request.with_state(State::from(thread.state.clone()));
        }
        // From here on the thread is this run's.
        let name = name(&input, &thread);
        thread.log.begin_run(name.clone());
        thread.run_from = thread.log.len();
        let keeping = match &self.place {
            Place::Store(store, threads) => {
                thread.claim = None;
                thread.updated_at = now();
                // As a thread whose run was given up before it began.
                thread.is_cut = true;
                let record = record(&thread, stored.length).map_err(|error| broken(&error))?;
                let claim = Claim {
                    until: 0,
                    run: name.clone(),
                    since: now(),
                    resumes: false,
                    is_journaled: false,
                };
                // Saved before anything runs: the compare-and-swap that decides between two
                // requests.
                let claimed = Lease::claim(
                    store.clone(),
                    key.clone(),
                    self.terms,
                    stored,
                    claim,
                    record,
                    request.context().lease().clone(),
                );
                let until = self.terms.until();
                let lease = match claimed.await {
                    Ok(claimed) => claimed.begin(),
                    Err(error) if error.is_conflict() => return Err(busy(until).into()),
                    Err(error) => return Err(broken(&error).into()),
                };
                Keeping::Store(ThreadLease::new(lease, threads.clone(), &thread))
            }
            Place::Sealed(keys, used) => {
                // An answer repeated after a run that broke off counts once for what that run has
                // left.
                let mut answers = Vec::new();
                for answered in &thread.answered {
                    let earlier = earlier.as_ref().filter(|earlier| earlier.has(&answered.id));
                    answers.push(match earlier {
                        Some(earlier) => format!("{} {}", answered.id, earlier.version).into(),
                        None => answered.id.clone(),
                    });
                }
                if !used.claim(&answers) {
                    let why = "the interrupt was answered before";
                    let refusal = Refusal::new(RefusalKind::NotOpen, InputPart::Answers, why);
                    return Err(refusal.into());
                }
                Keeping::Sealed(keys.clone())
            }
        };
        thread.is_cut = false;
        request = Policy::Thread.request(key.request(request));
        let keeper = Keeper::new(
            keeping,
            key,
            name.clone(),
            thread,
            earlier,
            input.tools,
            (!input.is_away).then_some(Device { mark, is_behind }),
        );
        Ok(Begun {
            request,
            keeper,
            name,
            missed,
        })
    }

    /// Begins a run that continues a thread with the answer of somebody else than its client: of an
    /// approver with one of these roles, to a question [for it](tower_agent::Interrupt::for_role).
    ///
    /// The client need not be connected. It receives the messages of the run with its next one, in
    /// [`Begun::missed`]. Its tools and what else it sends with an input are not available.
    ///
    /// # Errors
    ///
    /// Fails if the question is not open, has expired or is not for one of the roles, if another
    /// run is active in the thread, or the server keeps no threads.
    pub async fn answer(
        &self,
        key: ConversationKey,
        roles: Roles,
        answer: Resolution,
    ) -> Result<Begun, Refusal> {
        self.go_on(key, roles, vec![answer]).await
    }

    /// Begins a run that continues a thread whose questions have
    /// [expired](tower_agent::Interrupt::with_expiry), with the outcomes that they name. It is like
    /// that of [`answer`](Self::answer).
    ///
    /// # Errors
    ///
    /// Fails if no question of the thread has expired, if another run is active in the thread, or
    /// the server keeps no threads.
    pub async fn answer_expired(&self, key: ConversationKey) -> Result<Begun, Refusal> {
        self.go_on(key, Roles::default(), Vec::new()).await
    }

    /// Begins a run without the client.
    async fn go_on(
        &self,
        key: ConversationKey,
        roles: Roles,
        answers: Vec<Resolution>,
    ) -> Result<Begun, Refusal> {
        let run_id = uuid::Uuid::new_v4().to_string();
        let mut input = ClientInput::<NoMessage>::new(run_id, &[]);
        input.roles = roles;
        input.answers = answers;
        input.is_away = true;
        self.begin(key, input).await
    }

    /// Waits until the progress of runs whose stream was dropped is saved: the saves that were
    /// [detached](crate::Saving::detach) or are made [in a task](crate::Saving::in_task). Wait for
    /// it before a program ends.
    ///
    /// ```
    /// # async fn end(threads: tower_agent_conversations::Threads) {
    /// threads.finish().await;
    /// # }
    /// ```
    pub async fn finish(&self) {
        if let Place::Store(store, _) = &self.place {
            store.busy().wait().await;
        }
    }

    /// Returns a thread as its client has it, for another device of its user or after a reload;
    /// `None` if it is not known.
    ///
    /// The messages are those that the client has received or sent, in the form in which it
    /// [has](crate::ClientView::shown) them. A run of another device may be active in the thread:
    /// then its messages are those that were saved.
    ///
    /// ```
    /// use tower_agent_conversations::{ConversationKey, Threads};
    ///
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), tower_agent::BoxError> {
    /// let threads = Threads::default();
    /// let key = ConversationKey::new("shop", "ada", "thread 1");
    /// if let Some(thread) = threads.show(&key).await? {
    ///     println!("{} messages", thread.messages.len());
    /// }
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    ///
    /// Fails if the store cannot be read, or the server keeps no threads.
    pub async fn show(&self, key: &ConversationKey) -> Result<Option<ShownThread>, Refusal> {
        let Some(thread) = self.load(key).await? else {
            return Ok(None);
        };
        let messages = thread.shown();
        // The calls of a run whose server has stopped are closed by the next one.
        let is_lost = thread.claim.is_some() && !thread.is_running();
        let interrupts = thread.interrupts().filter(|_| !is_lost);
        Ok(Some(ShownThread {
            messages: messages.into_iter().map(|(.., message)| message).collect(),
            interrupts: interrupts.map(|(_, interrupt)| interrupt.clone()).collect(),
            interrupt_ids: InterruptIds::of_open(&thread.open),
            run_id: thread.log.latest_run().cloned().unwrap_or_default(),
            reader: Mark::make(thread.log.len()),
            state: thread.state,
        }))
    }

    /// Returns whether the server keeps threads: otherwise its clients do.
    #[must_use]
    pub fn has_store(&self) -> bool {
        matches!(self.place, Place::Store(..))
    }

    async fn load(&self, key: &ConversationKey) -> Result<Option<Thread>, Refusal> {
        let (store, threads) = self.store()?;
        let known = threads.load(store, key, FORMAT).await;
        Ok(known.map_err(|error| broken(&error))?.map(thread_of))
    }

    fn store(&self) -> Result<(&BoxStore, &ThreadCache), Refusal> {
        match &self.place {
            Place::Store(store, threads) => Ok((store, threads)),
            Place::Sealed(..) => {
                let why = "the clients of this server keep its threads";
                Err(Refusal::new(RefusalKind::Store, InputPart::Thread, why))
            }
        }
    }

    /// Returns the threads with [expired](tower_agent::Interrupt::with_expiry) questions on one
    /// page of a list, for [`answer_expired`](Self::answer_expired), and the query for the next
    /// page.
    ///
    /// # Errors
    ///
    /// Fails if the store cannot be read, or the server keeps no threads.
    pub async fn expired(
        &self,
        query: &ConversationQuery,
    ) -> Result<(Vec<ConversationKey>, Option<ConversationQuery>), Refusal> {
        let now = SystemTime::now();
        let (waiting, next) = self.waiting(query).await?;
        let mut expired = Vec::new();
        for (ConversationInfo { key, .. }, thread) in waiting {
            let mut open = thread.interrupts();
            if open.any(|(_, interrupt)| interrupt.answer_at(now).is_some()) {
                expired.push(key);
            }
        }
        Ok((expired, next))
    }

    /// Returns the threads on one page of a list that wait, and the query for the next page.
    async fn waiting(
        &self,
        query: &ConversationQuery,
    ) -> Result<(Vec<(ConversationInfo, Thread)>, Option<ConversationQuery>), Refusal> {
        let (store, _) = self.store()?;
        let query = query.clone().kind(Policy::Thread.kind()).waiting();
        let listed = store.list(&query).await.map_err(|error| broken(&error))?;
        // A shorter page is the last one.
        let is_full = listed.len() >= usize::try_from(query.limit).unwrap_or(usize::MAX);
        let last = listed.last().filter(|_| is_full);
        let next = last.map(|last| query.clone().after(last));
        let mut waiting = Vec::with_capacity(listed.len());
        for info in listed {
            // Answered or deleted since.
            if let Some(thread) = self.load(&info.key).await? {
                waiting.push((info, thread));
            }
        }
        Ok((waiting, next))
    }

    /// Returns the open questions that somebody with these roles can [answer](Self::answer), in the
    /// threads on one page of a list. A page with threads may have no questions: continue after its
    /// last thread.
    ///
    /// # Errors
    ///
    /// Fails if the store cannot be read, or the server keeps no threads.
    pub async fn questions(
        &self,
        query: &ConversationQuery,
        roles: &Roles,
    ) -> Result<QuestionPage, Refusal> {
        let (waiting, next) = self.waiting(query).await?;
        let mut questions = Vec::new();
        for (info, thread) in waiting {
            for (id, interrupt) in thread.interrupts() {
                let is_for_role = interrupt.answerer.role().is_some();
                if is_for_role && roles.may_answer(&interrupt.answerer) {
                    questions.push(Question {
                        key: info.key.clone(),
                        id: id.clone(),
                        // The time by which the list is ordered.
                        asked_at: info.updated_at,
                        interrupt: interrupt.clone(),
                    });
                }
            }
        }
        Ok(QuestionPage { questions, next })
    }
}

/// Returns the prefix of a run's message ids: the run's id, made unique if the thread already has
/// messages with that prefix, since the run would append to those.
fn name<M: ClientMessage>(input: &ClientInput<'_, M>, thread: &Thread) -> Arc<str> {
    let run = &input.run_id;
    let sent = input.messages.iter().map(|message| &**message.id());
    let sent = sent.filter_map(|id| run_number(id, run)).max();
    if sent.is_none() && !thread.log.is_taken(run) {
        return run.clone();
    }
    // If all runs of the thread had this id, the next number is free.
    let runs = u64::try_from(thread.log.run_count()).unwrap_or(u64::MAX);
    let first = sent.map_or(1, |number| number.saturating_add(1)).max(runs);
    let mut numbered = (first..=u64::MAX).map(|number| format!("{run}.{number}"));
    let free = numbered.find(|name| !thread.log.is_taken(name));
    free.map_or_else(|| run.clone(), Into::into)
}

/// Returns the number of the run with this id that a message id belongs to: 0 for the first one.
fn run_number(id: &str, run: &str) -> Option<u64> {
    let after = id.strip_prefix(run)?;
    match after.strip_prefix('.') {
        Some(number) => number.split('-').next()?.parse().ok(),
        None => (after.is_empty() || after.starts_with(['-', '+', '/'])).then_some(0),
    }
}

/// Returns the refusal of a thread that another run has.
fn busy(until: i64) -> Refusal {
    let left = u64::try_from(until.saturating_sub(now())).unwrap_or(0);
    let left = Duration::from_millis(left);
    // In whole seconds, and never at once.
    let seconds = left.as_secs().saturating_add(1);
    let why = format!(
        "another run has this thread: try again when it has ended. If its server has stopped, the \
         thread is free in at most {seconds} s"
    );
    Refusal::new(RefusalKind::Busy, InputPart::Thread, why)
        .retry_after(Duration::from_secs(seconds))
}

fn broken(error: &StoreError) -> Refusal {
    tracing::error!(error = %error.to_string().escape_debug(), "the thread store failed");
    let why = "the thread could not be loaded or saved; try again";
    Refusal::new(RefusalKind::Store, InputPart::Thread, why)
}
