//! Observers: a bounded queue beside the run, for somebody who only watches.

use std::collections::VecDeque;
use std::fmt;
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll, Waker};

use futures_util::Stream;

use super::event::Event;
use crate::lock::lock;

/// Tells somebody else what happens in runs, streamed or not; created by [`observer`].
///
/// Give it to an agent with a [`Bundle`](crate::callback::Bundle::observer). Clones tell the same
/// [`Observations`].
#[derive(Clone)]
pub struct Observer {
    sender: Arc<Sender>,
    pub(super) wrappers: Wrappers,
    /// It asks for the texts of what they changed.
    pub(super) texts: bool,
}

/// The wrappers that an observer is told about.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Wrappers {
    #[default]
    None,
    /// The wrappers that did something to a call.
    Active,
    All,
}

/// A stream of [`Observation`]s: the events of the runs of all agents that have the [`Observer`].
///
/// It ends when every clone of the observer is dropped. Once it is dropped itself, runs tell
/// nothing.
pub struct Observations(Arc<Queue>);

/// An event, and the run in which it happened.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Observation {
    /// The run's id.
    pub run: Arc<str>,
    /// The event. Its number counts what the run has told its observers: where one is missing, it
    /// was told to others alone, or [dropped](Observations::dropped).
    pub event: Event,
}

/// Creates an observer of runs, and the stream of what it observes.
///
/// At most `capacity` events wait to be read. A run never waits for the reader: an event for which
/// there is no room is dropped, and [counted](Observations::dropped). The reader's code runs in the
/// reader's task, where it cannot delay a run or fail it.
///
/// An observer is told of agents, turns, results of tools, decisions of callbacks, attempts that
/// failed, tokens and [custom events](crate::RunContext::emit), in every agent of the tree. It is
/// not told of deltas, messages or state, and not of the start and the end of a stream: a run
/// starts and ends with the agent that has no [caller](super::Invocation::caller). It is told what
/// each callback and layer did to each call if it [asks](Observer::with_wrappers).
///
/// ```
/// use futures::StreamExt;
/// use tower_agent::callback::Bundle;
/// use tower_agent::stream::{self, EventKind};
/// use tower_agent::{Agent, BoxError};
/// use tower_agent_test::{ScriptedModel, Turn};
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), BoxError> {
/// let (observer, mut observations) = stream::observer(1024);
/// let agent = Agent::builder(ScriptedModel::new([Turn::from_text("It rains.")]))
///     .global_callbacks(Bundle::new().observer(observer))
///     .build()?;
///
/// agent.run("How is the weather?").await?;
/// let first = observations.next().await.unwrap();
/// assert_eq!(first.event.number, 0);
/// assert!(matches!(first.event.kind, EventKind::AgentStarted));
/// # Ok(())
/// # }
/// ```
#[must_use]
pub fn observer(capacity: usize) -> (Observer, Observations) {
    let queue = Arc::new(Queue {
        capacity: capacity.max(1),
        ..Queue::default()
    });
    let observer = Observer {
        sender: Arc::new(Sender(queue.clone())),
        wrappers: Wrappers::None,
        texts: false,
    };
    (observer, Observations(queue))
}

/// Shared by all clones of an observer: the last of them ends the stream.
struct Sender(Arc<Queue>);

#[derive(Default)]
struct Queue {
    capacity: usize,
    state: Mutex<QueueState>,
    dropped: AtomicU64,
    is_closed: AtomicBool,
}

#[derive(Default)]
struct QueueState {
    events: VecDeque<Observation>,
    reader: Option<Waker>,
    is_over: bool,
}

impl Observer {
    /// Asks as well what each wrapper, a band of callbacks or a layer, did to each call: see
    /// [`WrapperNote`](super::WrapperNote). Wrappers that passed a call on as it was are left out.
    /// And it asks which of them make a model call begin with something else than the one before:
    /// see [`PrefixNote`](super::PrefixNote).
    ///
    /// It shows the stacks of agents: callbacks and layers of theirs, of bundles and of the run.
    /// What is inside a model or a tool, such as [a tool's own layers](crate::Tool::layer), is a
    /// part of it. Calls that are not watched by such an observer pay nothing for it.
    ///
    /// ```
    /// use futures::StreamExt;
    /// use tower_agent::callback::{Bundle, before_model};
    /// use tower_agent::stream::{self, EventKind};
    /// use tower_agent::{Agent, BoxError};
    /// use tower_agent_test::{ScriptedModel, Turn};
    ///
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), BoxError> {
    /// let (observer, mut observations) = stream::observer(1024);
    /// let brief = before_model(|request| request.add_instructions("Be brief."));
    /// let agent = Agent::builder(ScriptedModel::new([Turn::from_text("It rains.")]))
    ///     .on_model(brief.named("brief"))
    ///     .global_callbacks(Bundle::new().observer(observer.with_wrappers()))
    ///     .build()?;
    ///
    /// agent.run("How is the weather?").await?;
    /// drop(agent);
    /// while let Some(told) = observations.next().await {
    ///     if let EventKind::Wrapper(note) = told.event.kind {
    ///         assert_eq!(note.to_string(), "brief: changed the request's instructions");
    ///     }
    /// }
    /// # Ok(())
    /// # }
    /// ```
    #[must_use]
    pub fn with_wrappers(mut self) -> Self {
        self.wrappers = self.wrappers.max(Wrappers::Active);
        self
    }

    /// Asks the same about every wrapper, whether it did something or not: how often a call passed
    /// it, and how long that took.
    #[must_use]
    pub fn with_all_wrappers(mut self) -> Self {
        self.wrappers = Wrappers::All;
        self
    }

    /// Asks as well for the [texts](super::FieldChange::texts) of what wrappers changed in calls,
    /// for an observer [with wrappers](Self::with_wrappers).
    ///
    /// A wrapper with a [redaction](crate::call::Extensions::note_hiding) in it or outside of it is
    /// told about without texts: what such a one hides is in what it is given.
    ///
    /// ```
    /// use futures::StreamExt;
    /// use tower_agent::callback::{Bundle, before_model};
    /// use tower_agent::stream::{self, EventKind};
    /// use tower_agent::{Agent, BoxError};
    /// use tower_agent_test::{ScriptedModel, Turn};
    ///
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), BoxError> {
    /// let (observer, observations) = stream::observer(1024);
    /// let agent = Agent::builder(ScriptedModel::new([Turn::from_text("It rains.")]))
    ///     .instructions("Answer.")
    ///     .on_model(before_model(|request| request.add_instructions("Be brief.")))
    ///     .global_callbacks(Bundle::new().observer(observer.with_wrappers().with_texts()))
    ///     .build()?;
    ///
    /// agent.run("How is the weather?").await?;
    /// drop(agent);
    /// let events: Vec<_> = observations.collect().await;
    /// let texts = events.iter().find_map(|told| match &told.event.kind {
    ///     EventKind::Wrapper(note) => note.request.first()?.texts.clone(),
    ///     _ => None,
    /// });
    /// let [before, after] = texts.unwrap();
    /// assert_eq!((&*before, &*after), ("Answer.", "Answer.\n\nBe brief."));
    /// # Ok(())
    /// # }
    /// ```
    #[must_use]
    pub fn with_texts(mut self) -> Self {
        self.texts = true;
        self
    }

    /// Adds what another clone, which tells the same reader, has asked for.
    pub(super) fn join(&mut self, other: &Self) {
        self.wrappers = self.wrappers.max(other.wrappers);
        self.texts |= other.texts;
    }

    pub(crate) fn is_read(&self) -> bool {
        !self.sender.0.is_closed.load(Ordering::Relaxed)
    }

    pub(crate) fn is_clone_of(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.sender, &other.sender)
    }

    /// Adds an event if there is room for it. Never waits.
    pub(super) fn tell(&self, observation: Observation) {
        let queue = &*self.sender.0;
        let mut state = lock(&queue.state);
        if !self.is_read() || state.events.len() >= queue.capacity {
            drop(state);
            queue.dropped.fetch_add(1, Ordering::Relaxed);
            return;
        }
        state.events.push_back(observation);
        let reader = state.reader.take();
        // Woken without the lock: a waker may run the reader at once, which takes it.
        drop(state);
        if let Some(reader) = reader {
            reader.wake();
        }
    }
}

impl Drop for Sender {
    fn drop(&mut self) {
        let mut state = lock(&self.0.state);
        state.is_over = true;
        let reader = state.reader.take();
        drop(state);
        if let Some(reader) = reader {
            reader.wake();
        }
    }
}

impl Observations {
    /// Returns the number of events that were dropped because the queue was full.
    #[must_use]
    pub fn dropped(&self) -> u64 {
        self.0.dropped.load(Ordering::Relaxed)
    }
}

impl Stream for Observations {
    type Item = Observation;

    fn poll_next(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Observation>> {
        let mut state = lock(&self.0.state);
        let mut earlier = None;
        let poll = match state.events.pop_front() {
            None if !state.is_over => {
                earlier = state.reader.replace(cx.waker().clone());
                Poll::Pending
            }
            next => Poll::Ready(next),
        };
        drop(state);
        // Dropping a waker may drop its task, which may own an observer of this stream.
        drop(earlier);
        poll
    }
}

impl Drop for Observations {
    fn drop(&mut self) {
        self.0.is_closed.store(true, Ordering::Relaxed);
        let events = std::mem::take(&mut lock(&self.0.state).events);
        // Without the lock: an event may own values with a `Drop` of their own.
        drop(events);
    }
}

impl fmt::Debug for Observer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Observer")
            .field("is_read", &self.is_read())
            .finish_non_exhaustive()
    }
}

impl fmt::Debug for Observations {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Observations")
            .field("dropped", &self.dropped())
            .finish_non_exhaustive()
    }
}
