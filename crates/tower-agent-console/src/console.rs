use std::fmt;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use serde_json::{Value, json};
use sha2::{Digest, Sha256};
use tower_agent::agent::Explanation;
use tower_agent::callback::Bundle;
use tower_agent::{Agent, RunContext};
#[cfg(feature = "inbox")]
use tower_agent_conversations::Inbox;

use crate::collect::Collector;
use crate::lock::lock;
use crate::record::Run;
use crate::store::Limits;
use crate::watch::{ConsoleLayer, UserOf, Watch};

/// Keeps what watched agents do, and shows it on a page. Clones are the same console.
///
/// See the [crate](crate) for what it keeps and who sees what.
#[derive(Clone)]
pub struct Console {
    pub(crate) inner: Arc<Inner>,
    has_content: bool,
    user: Option<Arc<UserOf>>,
    #[cfg(feature = "inbox")]
    pub(crate) inbox: Option<crate::inbox::InboxOf>,
}

/// The state that all clones share.
pub(crate) struct Inner {
    pub(crate) collector: Arc<Collector>,
    /// Tells the versions of this console from those of another, such as that of a process before.
    pub(crate) epoch: String,
    /// The key of the hashes of users.
    key: [u8; 16],
    pub(crate) agents: Mutex<Vec<Explanation>>,
    #[cfg(feature = "inbox")]
    pub(crate) audit: crate::audit::Audit,
}

impl Console {
    /// Creates a console that keeps 1,000 runs in at most 64 MiB of memory. It needs no runtime.
    #[must_use]
    pub fn new() -> Self {
        let limits = Limits {
            runs: 1_000,
            bytes: 64 << 20,
            age: None,
        };
        Self {
            inner: Arc::new(Inner {
                collector: Collector::new(limits),
                epoch: uuid::Uuid::new_v4().simple().to_string(),
                key: *uuid::Uuid::new_v4().as_bytes(),
                agents: Mutex::default(),
                #[cfg(feature = "inbox")]
                audit: Default::default(),
            }),
            has_content: false,
            user: None,
            #[cfg(feature = "inbox")]
            inbox: None,
        }
    }

    /// Sets the number of runs that are kept; the oldest go first. Defaults to 1,000.
    #[must_use]
    pub fn max_runs(self, runs: usize) -> Self {
        lock(&self.inner.collector.store).limits.runs = runs;
        self
    }

    /// Sets the memory that runs may take, in bytes, as it is estimated; the oldest go first. A run
    /// that needs more alone keeps its rows, and loses its texts. Defaults to 64 MiB.
    #[must_use]
    pub fn max_bytes(self, bytes: usize) -> Self {
        lock(&self.inner.collector.store).limits.bytes = bytes;
        self
    }

    /// Sets how long a run is kept after its end. By default it goes when there is no room for it.
    /// It goes when the next thing is told, or somebody looks.
    #[must_use]
    pub fn max_age(self, age: Duration) -> Self {
        lock(&self.inner.collector.store).limits.age = Some(age);
        self
    }

    /// Also keeps content: the messages, arguments and results of calls, the values of events of
    /// the application's own and the texts of errors, of agents that are [watched](Self::watch)
    /// from now on. By default none of it is kept.
    #[must_use]
    pub fn record_content(mut self) -> Self {
        self.has_content = true;
        lock(&self.inner.collector.store).has_content = true;
        self
    }

    /// Sets the function that returns the id of a run's user, of agents that are
    /// [watched](Self::watch) from now on. It is called once a run. By default nobody's runs have
    /// one.
    ///
    /// The user of a stored conversation is in its
    /// [`ConversationKey`](https://docs.rs/tower-agent-conversations/latest/tower_agent_conversations/struct.ConversationKey.html).
    #[must_use]
    pub fn user_id(
        mut self,
        id: impl Fn(&RunContext) -> Option<String> + Send + Sync + 'static,
    ) -> Self {
        self.user = Some(Arc::new(id));
        self
    }

    /// Sets where the questions that wait are found and answered: a server of agents, such as
    /// `AgUi`, or several of them as
    /// [`Inboxes`](tower_agent_conversations::Inboxes). Only those with a
    /// [role](crate::Operator::answers_as) see it.
    #[cfg(feature = "inbox")]
    #[cfg_attr(docsrs, doc(cfg(feature = "inbox")))]
    #[must_use]
    pub fn inbox(mut self, inbox: impl Inbox) -> Self {
        self.inbox = Some(crate::inbox::inbox_of(inbox));
        self
    }

    /// Returns what an agent has for its runs to be kept. Register it for the whole tree, with
    /// [`global_callbacks`](tower_agent::AgentBuilder::global_callbacks), before everything else.
    ///
    /// It changes no call and delays none: what it has no room for is left out, and counted. The
    /// first one starts a thread that takes in what runs tell, which ends with the console.
    ///
    /// ```
    /// use tower_agent::Agent;
    /// use tower_agent::testing::{ScriptedModel, Turn};
    /// use tower_agent_console::Console;
    ///
    /// # fn main() -> Result<(), tower_agent::BoxError> {
    /// let console = Console::new();
    /// let agent = Agent::builder(ScriptedModel::always(Turn::from_text("hi")))
    ///     .global_callbacks(console.watch())
    ///     .build()?;
    /// console.explain(&agent);
    /// # Ok(())
    /// # }
    /// ```
    #[must_use]
    pub fn watch(&self) -> Bundle {
        let collector = &self.inner.collector;
        collector.read();
        let layer = ConsoleLayer(Arc::new(Watch {
            tap: collector.tap.clone(),
            has_content: self.has_content,
            user: self.user.clone(),
        }));
        Bundle::new()
            .agent_layer(layer.clone())
            .model_layer(layer.clone())
            .tool_layer(layer)
            .observer(collector.observer.clone().with_wrappers())
    }

    /// Shows the [structure](Agent::explain) of an agent, also if it has never run. Another agent
    /// with the same name takes its place.
    pub fn explain(&self, agent: &Agent) {
        let explanation = agent.explain().clone();
        let mut agents = lock(&self.inner.agents);
        match agents
            .iter_mut()
            .find(|known| known.agent == explanation.agent)
        {
            Some(known) => *known = explanation,
            None => agents.push(explanation),
        }
    }

    /// Removes a run, by the id that the page shows. Returns whether it was there. What is told of
    /// it later is not kept.
    pub fn delete_run(&self, id: &str) -> bool {
        self.inner.collector.collect();
        let mut store = lock(&self.inner.collector.store);
        let number = store.number(id);
        number.map(|number| store.remove(number)).is_some()
    }

    /// Removes the runs of a [user](Self::user_id), and returns how many there were: a part of
    /// removing a person's data. The questions that wait, and who has answered which, are not here.
    pub fn delete_user(&self, user: &str) -> usize {
        self.inner.collector.collect();
        let mut store = lock(&self.inner.collector.store);
        let runs = store.of_user(user);
        let count = runs.len();
        runs.into_iter().for_each(|number| store.remove(number));
        count
    }

    /// Returns all that is kept of the runs of a [user](Self::user_id), texts included: a part of
    /// what a person may ask for. Each is an object with the `run` and its `entries`.
    #[must_use]
    pub fn export_user(&self, user: &str) -> Vec<Value> {
        self.inner.collector.collect();
        let store = lock(&self.inner.collector.store);
        let runs = store.of_user(user).into_iter();
        let runs = runs.filter_map(|number| store.runs.get(&number));
        runs.map(exported).collect()
    }

    /// Ends the live views, which otherwise stay open for as long as somebody looks, so that a
    /// server can shut down.
    pub fn close(&self) {
        self.inner.collector.close();
    }
}

/// Returns all that is kept of a run.
fn exported(run: &Run) -> Value {
    let text = |text: &Option<Box<str>>| -> Option<Value> {
        text.as_deref()
            .and_then(|text| serde_json::from_str(text).ok())
    };
    let entries = run.entries.iter().map(|entry| {
        let mut shown = json!(entry);
        shown["input"] = text(&entry.content.input).into();
        shown["output"] = text(&entry.content.output).into();
        shown
    });
    let mut shown = json!(run.summary);
    shown["user"] = run.summary.user.as_deref().into();
    json!({ "run": shown, "entries": entries.collect::<Vec<_>>() })
}

impl Inner {
    /// Returns a user as a hash that is the same for all runs of this console.
    pub(crate) fn hash(&self, user: &str) -> String {
        let mut hash = Sha256::new();
        hash.update(self.key);
        hash.update(user);
        let hash = hash.finalize();
        hash[..8]
            .iter()
            .fold("#".to_owned(), |text, byte| format!("{text}{byte:02x}"))
    }
}

impl Default for Console {
    fn default() -> Self {
        Self::new()
    }
}

impl fmt::Debug for Console {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Console")
            .field("has_content", &self.has_content)
            .finish_non_exhaustive()
    }
}
