use std::fmt;
use std::sync::{Arc, Mutex, OnceLock};
use std::time::{Duration, SystemTime};

use http::StatusCode;
use serde_json::{Map, Value, json};
use sha2::{Digest, Sha256};
use tower_agent::callback::Bundle;
use tower_agent::error::Result;
use tower_agent::gauge::Gauge;
use tower_agent::{Agent, RunContext};
#[cfg(feature = "inbox")]
use tower_agent_conversations::{Inbox, Inboxes};

use crate::address::{address, key_of, without_nul};
use crate::audit::{Audit, AuditRow};
use crate::collect::Collector;
use crate::database::Database;
use crate::durable::DurableRuns;
#[cfg(feature = "inbox")]
use crate::forks::Forks;
use crate::gauges::Gauges;
use crate::lock::lock;
use crate::operator::Operator;
use crate::record::{Run, ShownEntry, micros};
use crate::store::Store;
use crate::stored::{RunStore, StoredHead, StoredQuery};
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
    pub(crate) inbox: crate::inbox::InboxOf,
}

/// The number of entries, with their texts, that an export reads at once.
const EXPORTED: u32 = 500;

/// A place where a run was found.
pub(crate) enum Found {
    /// In memory, under this number.
    Recent(u64),
    /// In the database.
    Stored(Arc<Database>, StoredHead),
    /// Nowhere.
    Nowhere,
}

/// The state that all clones share.
pub(crate) struct Inner {
    pub(crate) collector: Arc<Collector>,
    pub(crate) database: OnceLock<Arc<Database>>,
    /// Tells the versions of this console from those of another, such as that of a process before.
    pub(crate) epoch: String,
    /// The key of the hashes of users.
    key: [u8; 16],
    pub(crate) agents: Mutex<Vec<Agent>>,
    pub(crate) gauges: Gauges,
    pub(crate) durable: OnceLock<Arc<dyn DurableRuns>>,
    #[cfg(feature = "inbox")]
    pub(crate) forks: Forks,
    pub(crate) audit: Arc<Audit>,
}

impl Console {
    /// Creates a console that keeps 1,000 runs in at most 64 MiB of memory. It needs no runtime.
    #[must_use]
    pub fn new() -> Self {
        let epoch = uuid::Uuid::new_v4().simple().to_string();
        // It is part of the names of runs in the database, which people see.
        let name = epoch[..12].to_owned();
        let audit = Arc::new(Audit::new(name.clone()));
        let store = Store::new(name);
        #[cfg(feature = "inbox")]
        let forks = Forks::default();
        Self {
            #[cfg(feature = "inbox")]
            inbox: crate::inbox::inbox_of(forks.clone()),
            inner: Arc::new(Inner {
                collector: Collector::new(store),
                database: OnceLock::new(),
                epoch,
                key: *uuid::Uuid::new_v4().as_bytes(),
                agents: Mutex::default(),
                gauges: Gauges::default(),
                durable: OnceLock::new(),
                #[cfg(feature = "inbox")]
                forks,
                audit,
            }),
            has_content: false,
            user: None,
        }
    }

    /// Also keeps the runs in a database, where they outlive the process, and shows those of other
    /// processes that have the same one. The first database of a console stays.
    ///
    /// The bounds of this console are those of the database then. In memory are the latest runs, at
    /// most 1,000 in 64 MiB. A task of the Tokio runtime in which this is called writes behind the
    /// runs: as they begin, then every 2 seconds or 500 entries, and as they end. What cannot be
    /// written is tried again for as long as it is in memory, and then counted, and shown. A run
    /// whose process was killed is there as it was written last, as `unfinished`; so is one that
    /// another process is at.
    ///
    /// ```
    /// use tower_agent_console::{Console, RunStore};
    ///
    /// /// Keeps the runs of the last week.
    /// fn console(database: impl RunStore) -> Console {
    ///     let week = std::time::Duration::from_secs(7 * 24 * 60 * 60);
    ///     Console::new()
    ///         .stored_in(database)
    ///         .max_runs(100_000)
    ///         .max_bytes(10 << 30)
    ///         .max_age(week)
    /// }
    /// ```
    #[must_use]
    pub fn stored_in(self, store: impl RunStore) -> Self {
        let database = Database::new(Arc::new(store), self.inner.audit.clone());
        if self.inner.database.set(database).is_ok() {
            lock(&self.inner.collector.store).has_database = true;
            self.inner.start();
        }
        self
    }

    /// Also shows the durable runs of the program, of this process and of others: those that run,
    /// wait, are lost or have ended, and which of them this console has watched. The first ones of
    /// a console stay.
    ///
    /// Operators who [may](crate::Operator::resumes_runs) go on with one whose process has died,
    /// with the [agent](Self::agent) of its name that the console was given.
    ///
    /// ```
    /// use tower_agent_console::{Console, DurableRuns};
    ///
    /// fn console(runs: impl DurableRuns) -> Console {
    ///     Console::new().durable_runs(runs)
    /// }
    /// ```
    #[must_use]
    pub fn durable_runs(self, runs: impl DurableRuns) -> Self {
        // The first ones stay.
        let _ = self.inner.durable.set(Arc::new(runs));
        self
    }

    /// Sets the number of runs that are kept; the oldest go first. Defaults to 1,000.
    #[must_use]
    pub fn max_runs(self, runs: usize) -> Self {
        lock(&self.inner.collector.store).limits.runs = runs;
        self
    }

    /// Sets the bytes that runs may take, as they are estimated; the oldest go first. A run that
    /// needs more alone keeps its rows, and loses in memory its texts, and before them what a fork
    /// and a recording are made of. Defaults to 64 MiB.
    #[must_use]
    pub fn max_bytes(self, bytes: usize) -> Self {
        lock(&self.inner.collector.store).limits.bytes = bytes;
        self
    }

    /// Sets how long a run is kept after its end. By default it goes when there is no room for it.
    /// It goes when the next thing is told, or somebody looks; from a database within a minute.
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
        let forks = self.inner.forks.clone();
        let all = Inboxes::default().with(inbox).with(forks);
        self.inbox = crate::inbox::inbox_of(all);
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
    /// use tower_agent_console::Console;
    /// use tower_agent_test::{ScriptedModel, Turn};
    ///
    /// # fn main() -> Result<(), tower_agent::BoxError> {
    /// let console = Console::new();
    /// let agent = Agent::builder(ScriptedModel::always(Turn::from_text("hi")))
    ///     .global_callbacks(console.watch())
    ///     .build()?;
    /// console.agent(&agent);
    /// # Ok(())
    /// # }
    /// ```
    #[must_use]
    pub fn watch(&self) -> Bundle {
        let collector = &self.inner.collector;
        collector.read();
        self.inner.start();
        let layer = ConsoleLayer(Arc::new(Watch {
            tap: collector.tap.clone(),
            has_content: self.has_content,
            user: self.user.clone(),
            nowhere: RunContext::default(),
        }));
        let mut observer = collector.observer.clone().with_wrappers();
        if self.has_content {
            observer = observer.with_texts();
        }
        Bundle::new()
            .agent_layer(layer.clone())
            .model_layer(layer.clone())
            .tool_layer(layer)
            .observer(observer)
    }

    /// Gives the console an agent: its [structure](Agent::explain) is shown, also if it has never
    /// run, and operators who [may](crate::Fork::ROLE) fork its runs from the page let it run.
    /// Another agent with the same name takes its place.
    ///
    /// A fork from the page has neither the state of the run nor what the application gives a run
    /// [for its tools](tower_agent::AgentRequest::with_extension): give the console an agent that
    /// does without, or brings it along in a layer.
    pub fn agent(&self, agent: &Agent) {
        let mut agents = lock(&self.inner.agents);
        let mut all = agents.iter_mut();
        match all.find(|known| known.name() == agent.name()) {
            Some(known) => *known = agent.clone(),
            None => agents.push(agent.clone()),
        }
    }

    /// Gives the console a guard, such as a limit or a budget, whose state is shown under this name
    /// as it is when somebody looks. Another one with the same name takes its place.
    ///
    /// Of one with a part for each key, such as each user, the 50 that matter most are shown, with
    /// their keys as hashes to those who do not [see users](crate::Operator::sees_users). One that
    /// fails, or does not answer within a second, is shown as such.
    ///
    /// ```
    /// use std::time::Duration;
    ///
    /// use tower_agent::Agent;
    /// use tower_agent_console::Console;
    /// use tower_agent_middleware::budget::{Account, Budget, Limits};
    /// use tower_agent_middleware::rate_limit::RateLimitLayer;
    /// use tower_agent_test::{ScriptedModel, Turn};
    ///
    /// # fn main() -> Result<(), tower_agent::BoxError> {
    /// let console = Console::new();
    /// let day = Account::new(Limits::new().tokens(2_000_000));
    /// let rate = RateLimitLayer::new().requests(500, Duration::from_secs(60));
    /// console.show("daily budget", day.clone());
    /// console.show("our key", rate.clone());
    /// let agent = Agent::builder(ScriptedModel::always(Turn::from_text("hi")))
    ///     .model_layer(rate)
    ///     .global_callbacks(console.watch())
    ///     .global_callbacks(Budget::of(day))
    ///     .build()?;
    /// # drop(agent);
    /// # Ok(())
    /// # }
    /// ```
    pub fn show(&self, name: impl Into<Arc<str>>, gauge: impl Gauge) {
        self.inner.gauges.set(name.into(), gauge);
    }

    /// Removes a run, by the id that the page shows. Returns whether it was there. What is told of
    /// it later is not kept.
    ///
    /// # Errors
    ///
    /// Fails with [`Store`](tower_agent::ErrorKind::Store) if the database does, or does not answer
    /// within 10 seconds: the run may still be there.
    pub async fn delete_run(&self, id: &str) -> Result<bool> {
        let collector = &self.inner.collector;
        collector.collect();
        #[cfg(feature = "inbox")]
        self.inner.forks.forget(|fork| fork.run_id() == id);
        let recent = {
            let mut store = lock(&collector.store);
            let number = store.number(id);
            let number = number.filter(|number| store.remove(*number).is_some());
            number.map(|number| store.key(number))
        };
        let Some(database) = self.inner.database.get() else {
            return Ok(recent.is_some());
        };
        database.not_writing(collector).await?;
        let key = match recent {
            Some(key) => key,
            None => match self.inner.find(id).await? {
                Found::Stored(_, head) => head.key,
                _ => return Ok(false),
            },
        };
        database.insist(database.store.remove(key)).await?;
        Ok(true)
    }

    /// Removes the runs of a [user](Self::user_id), and returns how many there were: a part of
    /// removing a person's data. The questions that wait, and who has answered which, are not here;
    /// a run that another process is at goes once it writes it again, and one that it has not
    /// written yet is not among them.
    ///
    /// # Errors
    ///
    /// Fails with [`Store`](tower_agent::ErrorKind::Store) if the database does, or does not answer
    /// within 10 seconds: the runs may still be there.
    pub async fn delete_user(&self, user: &str) -> Result<u64> {
        self.inner.collector.collect();
        #[cfg(feature = "inbox")]
        self.inner.forks.forget(|fork| fork.user() == Some(user));
        let (numbers, unwritten) = {
            let mut store = lock(&self.inner.collector.store);
            let numbers = store.of_user(user);
            let mut unwritten = 0;
            for number in &numbers {
                let run = store.remove(*number);
                unwritten += usize::from(run.is_some_and(|run| run.stored.is_none()));
            }
            (numbers.len(), unwritten)
        };
        let Some(database) = self.inner.database.get() else {
            return Ok(numbers as u64);
        };
        database.not_writing(&self.inner.collector).await?;
        let user = without_nul(user);
        let stored = database.insist(database.store.remove_user(user)).await?;
        Ok(stored + unwritten as u64)
    }

    /// Returns all that is kept of a run, texts included, by the id that the page shows: an object
    /// with the `run` and its `entries`. `None` if it is not there.
    ///
    /// # Errors
    ///
    /// Fails with [`Store`](tower_agent::ErrorKind::Store) if the database does, or does not
    /// answer.
    pub async fn export_run(&self, id: &str) -> Result<Option<Value>> {
        self.inner.collector.collect();
        match self.inner.find(id).await? {
            Found::Nowhere => Ok(None),
            Found::Recent(number) => {
                let store = lock(&self.inner.collector.store);
                Ok(store.runs.get(&number).map(exported))
            }
            Found::Stored(database, head) => exported_from(&database, &head).await.map(Some),
        }
    }

    /// Returns all that is kept of the runs of a [user](Self::user_id), texts included: a part of
    /// what a person may ask for. Each is an object with the `run` and its `entries`.
    ///
    /// # Errors
    ///
    /// Fails with [`Store`](tower_agent::ErrorKind::Store) if the database does, or does not
    /// answer.
    pub async fn export_user(&self, user: &str) -> Result<Vec<Value>> {
        self.inner.collector.collect();
        let mut all = {
            let store = lock(&self.inner.collector.store);
            let own = store.of_user(user).into_iter();
            let own = own.filter_map(|number| store.runs.get(&number));
            own.map(exported).collect::<Vec<_>>()
        };
        let Some(database) = self.inner.database.get() else {
            return Ok(all);
        };
        let mut query = StoredQuery {
            user: Some(without_nul(user)),
            limit: EXPORTED,
            ..StoredQuery::default()
        };
        loop {
            let heads = database.insist(database.store.list(&query)).await?;
            let Some(last) = heads.last() else {
                return Ok(all);
            };
            query.before = Some(last.place());
            for head in &heads {
                let is_recent = lock(&self.inner.collector.store)
                    .number_of(&head.key)
                    .is_some();
                if !is_recent {
                    all.push(exported_from(database, head).await?);
                }
            }
        }
    }

    /// Waits until runs are in the [database](Self::stored_in) as they are now, and who has done
    /// what, for at most 10 seconds, and returns how many runs and writes are not: for a program
    /// that ends. It is 0 at once without a database.
    pub async fn flush(&self) -> usize {
        let collector = &self.inner.collector;
        collector.collect();
        if let Some(database) = self.inner.database.get() {
            database.start(collector);
            {
                let mut store = lock(&collector.store);
                store.urgent = store.version;
            }
            collector.wake();
            database.all_written(collector).await;
        }
        let rows = match self.inner.database.get() {
            Some(_) => self.inner.audit.count_unwritten(),
            None => 0,
        };
        lock(&collector.store).count_unwritten() + rows
    }

    /// Ends the live views, which otherwise stay open for as long as somebody looks, so that a
    /// server can shut down.
    pub fn close(&self) {
        self.inner.collector.close();
    }
}

/// Returns all that is kept of a run in memory.
fn exported(run: &Run) -> Value {
    let entries = run.entries.iter().map(|entry| {
        let shown = json!(ShownEntry::from(entry));
        with_texts(shown, entry.content.json())
    });
    let mut shown = json!(run.summary);
    shown["user"] = run.summary.user.as_deref().into();
    json!({ "run": shown, "entries": entries.collect::<Vec<_>>() })
}

/// The same of one in the database.
async fn exported_from(database: &Database, head: &StoredHead) -> Result<Value> {
    let mut entries = Vec::new();
    loop {
        let from = u32::try_from(entries.len()).unwrap_or(u32::MAX);
        let read = database.store.entries(&head.key, from, EXPORTED, true);
        let page = database.insist(read).await?;
        if page.is_empty() {
            break;
        }
        for entry in page {
            let texts = entry.texts.as_deref().map(parsed).unwrap_or_default();
            entries.push(with_texts(parsed(&entry.entry), texts));
        }
    }
    let mut shown = parsed(&head.summary);
    if let Value::Object(shown) = &mut shown {
        shown.insert("id".to_owned(), address(head).into());
        shown.insert("user".to_owned(), head.user.clone().into());
    }
    Ok(json!({ "run": shown, "entries": entries }))
}

/// Returns an entry with its texts.
fn with_texts(entry: Value, texts: Value) -> Value {
    let mut all: Map<String, Value> = entry.as_object().cloned().unwrap_or_default();
    all.extend(texts.as_object().cloned().unwrap_or_default());
    Value::Object(all)
}

/// Returns a value that this crate has written, or `null` for what is none.
pub(crate) fn parsed(text: &str) -> Value {
    serde_json::from_str(text).unwrap_or_default()
}

impl Inner {
    /// Returns the agent with this name that the console was given.
    pub(crate) fn agent_named(&self, name: &str) -> Option<Agent> {
        let agents = lock(&self.agents);
        agents.iter().find(|known| known.name() == name).cloned()
    }

    /// Starts what writes into the database, if there is one.
    pub(crate) fn start(&self) {
        if let Some(database) = self.database.get() {
            database.start(&self.collector);
        }
    }

    /// Writes down that an operator has done something now, to what, and the status of the
    /// response.
    pub(crate) fn audited(
        &self,
        operator: &Operator,
        action: &'static str,
        about: String,
        status: StatusCode,
    ) {
        let row = AuditRow {
            at: micros(SystemTime::now()),
            operator: operator.shared_name().clone(),
            action,
            about,
            status: status.as_u16(),
        };
        self.audit.add(row, self.database.get().is_some());
        self.collector.wake();
    }

    /// Finds a run by the id that the page shows: that of the run itself, or with the name of its
    /// console behind it.
    pub(crate) async fn find(&self, id: &str) -> Result<Found> {
        // It shows all that was told before.
        self.collector.collect();
        let database = self.database.get();
        if let Some(database) = database {
            // So that nobody is shown here what was removed elsewhere; what is in memory is shown
            // also if the database does not answer.
            let _ = database.forget_removed(&self.collector).await;
        }
        let key = key_of(id);
        {
            let store = lock(&self.collector.store);
            if let Some(number) = store.number(id) {
                return Ok(Found::Recent(number));
            }
        }
        let Some(database) = database else {
            return Ok(Found::Nowhere);
        };
        let by_key = key.map(|key| StoredQuery {
            key: Some(key),
            limit: 1,
            ..StoredQuery::default()
        });
        let by_id = StoredQuery {
            id: Some(without_nul(id)),
            limit: 1,
            ..StoredQuery::default()
        };
        for query in by_key.into_iter().chain([by_id]) {
            let found = database.look(database.store.list(&query)).await?;
            if let Some(head) = found.into_iter().next() {
                return Ok(Found::Stored(database.clone(), head));
            }
        }
        Ok(Found::Nowhere)
    }

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
