use std::fmt;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use dbos::sysdb::types::{WorkflowFilter, WorkflowStatus};
use dbos::sysdb::{INTERNAL_QUEUE, SystemDatabase, postgres};
use dbos::{
    Children, Client, ClientConfig, EnqueueOptions, QueueConflict, QueueOptions, ResumeOptions,
    WorkflowHandle,
};
use tower_agent::{AgentRequest, Error, Request, Resolution};

use crate::error::DbosError;
use crate::run_handle::RunHandle;
use crate::submission::{Label, Submission, answers};
use tower_agent_durable::journal::{
    Input, JournalError, RunEnd, RunKey, RunStatus, Runs, check_answers,
};

/// The application name of these workflows in DBOS.
pub(crate) const APPLICATION: &str = "tower-agent";

/// The version of the requests and ends that workers exchange. Not that of the program: the journal
/// finds out whether a program still does what it did before.
pub(crate) const VERSION: &str = "tower-agent 1";

/// The time between two looks into the database.
pub(crate) const INTERVAL: Duration = Duration::from_millis(100);

/// The runs of agents on several machines: starts, resumes and cancels them, in any process.
///
/// A [`Worker`](super::Worker) makes them. Clones share the connections.
#[derive(Clone)]
pub struct Engine {
    client: Client,
    runs: Runs,
    url: Arc<str>,
}

impl Engine {
    /// Connects to a PostgreSQL database, such as `postgres://user:password@host/name`, and creates
    /// the tables of DBOS if they do not exist, in a schema of their own.
    ///
    /// `runs` are those in the journal of the agents, which all processes share.
    ///
    /// # Errors
    ///
    /// Fails if the database cannot be reached, or its tables cannot be created.
    pub async fn connect(url: &str, runs: Runs) -> Result<Self, DbosError> {
        // A client does not create the tables, so this connection does.
        system(url, true).await?.close().await;
        let config = ClientConfig {
            app_name: Some(APPLICATION.to_owned()),
            use_listen_notify: false,
            outcome_poll_interval: Some(INTERVAL),
            ..ClientConfig::new(url)
        };
        let client = Client::connect(config).await.map_err(DbosError::engine)?;
        Ok(Self {
            client,
            runs,
            url: url.into(),
        })
    }

    /// Starts a run, which the next free worker with this agent executes.
    ///
    /// The same request of the same [run](AgentRequest::with_run_id) is one run: started again, it
    /// returns that run. If it has failed, it continues with the call that failed. The run belongs
    /// to the user of the [key](RunKey::request) that made the request, if one did.
    ///
    /// # Errors
    ///
    /// Fails with [`NotSaved`](DbosError::NotSaved) for a request with tools, callbacks or an
    /// answer format, with [`OtherRequest`](DbosError::OtherRequest) if the run was started with
    /// another one, and with [`Cancelled`](JournalError::Cancelled) if it was cancelled.
    pub async fn start(
        &self,
        agent: &str,
        request: impl Into<AgentRequest>,
    ) -> Result<RunHandle, DbosError> {
        let input = saved(&request.into())?;
        let key = input.key();
        let earlier = self.submissions(&key).await?;
        self.check_not_cancelled(&key, &earlier).await?;
        let Some(last) = earlier.last() else {
            return self.submit(agent, &input, 1).await;
        };
        let same = earlier
            .iter()
            .rfind(|submission| submission.label.request == input.fingerprint);
        match same {
            None => Err(other_request(&key)),
            // A failed workflow of DBOS is over, so another try is a new one. An earlier request
            // than the last is not tried again, since the run has gone on from it.
            Some(same) if same.label.number == last.label.number && same.has_failed() => {
                self.submit(agent, &input, next(last)).await
            }
            Some(same) => Ok(self.handle(&same.label)),
        }
    }

    /// Resumes a run that waits, with the resolutions of its interrupts. Without any, a run that
    /// has failed continues with the call that failed.
    ///
    /// The same resolutions resume a run once: delivered again, they return that run.
    ///
    /// # Errors
    ///
    /// Fails with [`NotAsked`](DbosError::NotAsked) if the run waits for something else, with
    /// [`Unfit`](JournalError::Unfit) if a resolution comes too late, also if no worker starts in
    /// time, does not fit, or is not this person's to give, with
    /// [`OtherRequest`](DbosError::OtherRequest) if it was resumed with another resolution, with
    /// [`UnknownRun`](JournalError::UnknownRun) if it was not started, and with
    /// [`Cancelled`](JournalError::Cancelled) if it was cancelled.
    pub async fn resume(
        &self,
        run: impl Into<RunKey>,
        resolutions: impl IntoIterator<Item = Resolution>,
    ) -> Result<RunHandle, DbosError> {
        let key = run.into();
        let resolutions = Vec::from_iter(resolutions);
        let answers = answers(&resolutions)?;
        let earlier = self.submissions(&key).await?;
        self.check_not_cancelled(&key, &earlier).await?;
        let last = earlier.last().ok_or_else(|| unknown(&key))?;
        if last.is_open() {
            // The latest request is not done. It is this one, delivered again, or the run has to
            // end first.
            if last.answers(&answers) {
                return Ok(self.handle(&last.label));
            }
            return Err(other_request(&key));
        }
        let interrupts = self.runs.get(&key).await?.interrupts;
        let not_asked = resolutions
            .iter()
            .find(|resolution| interrupts.iter().all(|open| open.id != resolution.id));
        check_answers(&key.run, &interrupts, &resolutions, SystemTime::now())?;
        // Either all resolutions are of open interrupts, or this is the request that failed, whose
        // interrupts are closed.
        let is_answer = not_asked.is_none() && !resolutions.is_empty();
        if is_answer || last.has_failed() && last.answers(&answers) {
            let request = self.runs.request(&key).await?.with_resolutions(resolutions);
            let input = Input::new(&request)?;
            return self.submit(&last.agent, &input, next(last)).await;
        }
        // The resolutions may have resumed the run before: the same delivery has the same outcome.
        let delivered = earlier
            .iter()
            .rfind(|submission| submission.answers(&answers));
        if let Some(delivered) = delivered {
            return Ok(self.handle(&delivered.label));
        }
        Err(DbosError::NotAsked {
            run: key.run,
            interrupt: not_asked
                .map(|resolution| resolution.id.clone())
                .unwrap_or_default(),
        })
    }

    /// Returns the latest request of a run.
    ///
    /// # Errors
    ///
    /// Fails with [`UnknownRun`](JournalError::UnknownRun) if the run was not started.
    pub async fn get(&self, run: impl Into<RunKey>) -> Result<RunHandle, DbosError> {
        let key = run.into();
        let submissions = self.submissions(&key).await?;
        let last = submissions.last().ok_or_else(|| unknown(&key))?;
        Ok(self.handle(&last.label))
    }

    /// Cancels a run: its worker stops before its next step, and the run cannot continue. A run
    /// that has completed stays completed.
    ///
    /// # Errors
    ///
    /// Fails with [`UnknownRun`](JournalError::UnknownRun) if the run was not started.
    pub async fn cancel(&self, run: impl Into<RunKey>) -> Result<(), DbosError> {
        let key = run.into();
        let submissions = self.submissions(&key).await?;
        // In this order: a worker that begins in between sees one of them.
        self.cancel_open(&submissions).await?;
        match self.runs.cancel(&key).await {
            // No worker has begun.
            Err(JournalError::UnknownRun { .. }) if !submissions.is_empty() => Ok(()),
            cancelled => Ok(cancelled?),
        }
    }

    /// Deletes a run with its requests and steps, here and in the journal. Its worker stops before
    /// its next step. The id can be used again.
    ///
    /// # Errors
    ///
    /// Fails with [`UnknownRun`](JournalError::UnknownRun) if the run was not started.
    pub async fn delete(&self, run: impl Into<RunKey>) -> Result<(), DbosError> {
        let key = run.into();
        let submissions = self.submissions(&key).await?;
        self.cancel_open(&submissions).await?;
        match self.runs.delete(&key).await {
            // No worker has begun.
            Err(JournalError::UnknownRun { .. }) if !submissions.is_empty() => {}
            deleted => deleted?,
        }
        self.delete_submissions(&submissions).await
    }

    /// Deletes everything of a user: the runs with their requests and steps, and what the database
    /// of the journal has besides, such as sessions and threads. Workers that make one of the runs
    /// stop before their next step. Returns the number of runs, sessions and threads in the
    /// journal's database.
    ///
    /// # Errors
    ///
    /// Fails if the database does, and if the user is an empty text.
    pub async fn delete_user(&self, user: &str) -> Result<u64, DbosError> {
        let submissions = self.matching(&Label::pattern_of_user(user)).await?;
        self.cancel_open(&submissions).await?;
        let deleted = self.runs.delete_user(user).await?;
        self.delete_submissions(&submissions).await?;
        Ok(deleted)
    }

    /// Cancels the requests that are open: another worker could make them again before they are
    /// deleted.
    async fn cancel_open(&self, submissions: &[Submission]) -> Result<(), DbosError> {
        for submission in submissions {
            if submission.is_open() {
                self.cancel_workflow(&submission.label.workflow()).await?;
            }
        }
        Ok(())
    }

    async fn delete_submissions(&self, submissions: &[Submission]) -> Result<(), DbosError> {
        let workflows: Vec<_> = submissions
            .iter()
            .map(|submission| submission.label.workflow())
            .collect();
        let workflows: Vec<_> = workflows.iter().map(String::as_str).collect();
        let deleted = self.client.delete_all(&workflows, Children::Skip).await;
        deleted.map(drop).map_err(DbosError::engine)
    }

    /// Gives the runs of a worker that has stopped to the others, and returns which.
    ///
    /// Call it when an orchestrator, a health check or a person reports that the worker's machine
    /// or process is gone. Neither DBOS nor this crate detects it. A worker that starts again under
    /// the same id takes its own runs itself, and one that was [stopped](super::Worker::stop) has
    /// given them away.
    ///
    /// If the worker has not stopped, the journal refuses what it still writes, and it gives up the
    /// run at its next step: no step counts twice. What it was doing at that moment may be done
    /// twice, except by a mutating tool, about which the run asks: that it is to [run
    /// again](tower_agent_durable::journal::UnfinishedStep::RunAgain) can only be said once the
    /// worker has stopped.
    ///
    /// # Errors
    ///
    /// Fails if the database does.
    pub async fn take_over(&self, worker: &str) -> Result<Vec<RunKey>, DbosError> {
        let system = system(&self.url, false).await?;
        let moved = system
            .reenqueue_for_recovery(&[worker], VERSION, INTERNAL_QUEUE)
            .await;
        system.close().await;
        let moved = moved.map_err(DbosError::engine)?;
        Ok(moved.iter().map(|workflow| run_of(workflow)).collect())
    }

    pub(crate) fn url(&self) -> &str {
        &self.url
    }

    pub(crate) fn runs(&self) -> &Runs {
        &self.runs
    }

    /// Creates the queue of an agent, or changes how many of its runs a worker makes at once.
    pub(crate) async fn open_queue(&self, agent: &str, runs: usize) -> Result<(), DbosError> {
        let options = QueueOptions {
            worker_concurrency: Some(i32::try_from(runs).unwrap_or(i32::MAX)),
            polling_interval: INTERVAL,
            ..QueueOptions::default()
        };
        // The queue may be there with the setting of an earlier program: the worker that started
        // last decides.
        let name = queue(agent);
        let opened = self
            .client
            .register_queue(&name, options, QueueConflict::AlwaysUpdate)
            .await;
        opened.map(drop).map_err(DbosError::engine)
    }

    pub(crate) async fn is_cancelled(&self, workflow: &str) -> Result<bool, DbosError> {
        let status = self
            .client
            .workflow_status(workflow)
            .await
            .map_err(DbosError::engine)?;
        // None for a request whose run was deleted.
        Ok(status.is_none_or(|status| status == WorkflowStatus::Cancelled))
    }

    /// Marks a run that was cancelled in the journal alone, or in DBOS alone, in both.
    pub(crate) async fn cancel_both(&self, workflow: &str) -> Result<(), DbosError> {
        self.cancel_workflow(workflow).await?;
        Ok(self.runs.cancel(run_of(workflow)).await?)
    }

    /// Puts a request that a worker could not finish back into the queue, unless another worker has
    /// it.
    pub(crate) async fn give_back(
        &self,
        agent: &str,
        worker: &str,
        workflow: &str,
    ) -> Result<(), DbosError> {
        let filter = WorkflowFilter {
            workflow_ids: vec![workflow],
            executor_ids: vec![worker],
            status: vec![WorkflowStatus::Pending],
            ..without_payload()
        };
        let own = self
            .client
            .list_workflows(&filter)
            .await
            .map_err(DbosError::engine)?;
        // Another worker has taken it over, and may be in the middle of it.
        if own.is_empty() {
            return Ok(());
        }
        let queue = queue(agent);
        let options = ResumeOptions {
            queue: Some(&queue),
        };
        let given = self
            .client
            .resume_with::<RunEnd, Error>(workflow, options)
            .await;
        given.map(drop).map_err(DbosError::engine)
    }

    async fn cancel_workflow(&self, workflow: &str) -> Result<(), DbosError> {
        self.client
            .cancel(workflow)
            .await
            .map_err(DbosError::engine)
    }

    fn handle(&self, label: &Label) -> RunHandle {
        RunHandle::new(self.client.clone(), label.key(), label.workflow())
    }

    /// Returns the requests of a run, in order.
    async fn submissions(&self, run: &RunKey) -> Result<Vec<Submission>, DbosError> {
        self.matching(&Label::pattern(run)).await
    }

    /// Returns the requests with these attributes, in order.
    async fn matching(&self, pattern: &str) -> Result<Vec<Submission>, DbosError> {
        let filter = WorkflowFilter {
            attributes: Some(pattern),
            ..without_payload()
        };
        let found = self
            .client
            .list_workflows(&filter)
            .await
            .map_err(DbosError::engine)?;
        let mut found: Vec<_> = found.into_iter().filter_map(Submission::read).collect();
        // Not by time: two processes may submit at once, and only the number says which comes
        // first.
        found.sort_by_key(|submission| submission.label.number);
        Ok(found)
    }

    async fn check_not_cancelled(
        &self,
        run: &RunKey,
        earlier: &[Submission],
    ) -> Result<(), DbosError> {
        let is_cancelled = match self.runs.get(run).await {
            Ok(info) => info.status == RunStatus::Cancelled,
            // No worker has begun it, so only DBOS can have it as cancelled.
            Err(JournalError::UnknownRun { .. }) => false,
            Err(error) => return Err(error.into()),
        };
        let is_cancelled = is_cancelled
            || earlier
                .iter()
                .any(|submission| submission.status == WorkflowStatus::Cancelled);
        if is_cancelled {
            let run = run.run.clone();
            return Err(JournalError::Cancelled { run }.into());
        }
        Ok(())
    }

    /// Submits a request to the workers. If another process has submitted this number, it must be
    /// the same request.
    async fn submit(
        &self,
        agent: &str,
        input: &Input,
        number: u32,
    ) -> Result<RunHandle, DbosError> {
        let label = Label::new(input, number)?;
        let workflow = label.workflow();
        let queue = queue(agent);
        let attributes = label.attributes()?;
        let options = EnqueueOptions {
            workflow_id: Some(&workflow),
            app_version: Some(VERSION),
            attributes: Some(&attributes),
            ..EnqueueOptions::new(&queue)
        };
        let submitted = self
            .client
            .enqueue_with(agent, &input.request, options)
            .await;
        let _: WorkflowHandle<RunEnd, Error> = submitted.map_err(DbosError::engine)?;
        // DBOS keeps the first workflow of an id and does not say whose it is: read it back.
        let filter = WorkflowFilter {
            workflow_ids: vec![&workflow],
            ..without_payload()
        };
        let stored = self
            .client
            .list_workflows(&filter)
            .await
            .map_err(DbosError::engine)?;
        let stored = stored.into_iter().find_map(Submission::read);
        if stored.is_some_and(|stored| stored.label.request == label.request) {
            return Ok(self.handle(&label));
        }
        Err(other_request(&input.key()))
    }
}

/// Returns the run of a workflow.
pub(crate) fn run_of(workflow: &str) -> RunKey {
    let key = workflow.rsplit_once('/').map_or(workflow, |(key, _)| key);
    RunKey::from_text(key)
}

/// Returns the name of an agent's queue.
pub(crate) fn queue(agent: &str) -> String {
    format!("tower_agent {agent}")
}

async fn system(url: &str, migrate: bool) -> Result<postgres::PostgresSystemDatabase, DbosError> {
    let mut config = postgres::Config::new(url);
    config.migrate = migrate;
    // The migration installs the triggers for notifications, which other programs that share the
    // tables may use. This crate does not: listening occupies a connection.
    config.use_listen_notify = migrate;
    config.max_connections = 2;
    config.settings.application_name = Some(APPLICATION);
    postgres::PostgresSystemDatabase::connect(&config)
        .await
        .map_err(DbosError::engine)
}

fn without_payload<'a>() -> WorkflowFilter<'a> {
    WorkflowFilter {
        load_input: false,
        load_output: false,
        ..WorkflowFilter::default()
    }
}

/// Fails for a request that another process would get without some of its parts.
fn saved(request: &AgentRequest) -> Result<Input, DbosError> {
    // The key is in the workflow's id.
    let mut extensions = request.extensions().clone();
    extensions.remove::<RunKey>();
    let mut of_run = request.context().extensions().clone();
    of_run.remove::<RunKey>();
    let what = if !request.tools().is_empty() {
        "the tools"
    } else if request.answer_format().is_some() {
        "the answer format"
    } else if request.has_callbacks() {
        "the callbacks"
    } else if !extensions.is_empty() || !of_run.is_empty() {
        "the extensions"
    } else {
        return Ok(Input::new(request)?);
    };
    Err(DbosError::NotSaved { what })
}

fn next(last: &Submission) -> u32 {
    last.label.number.saturating_add(1)
}

fn unknown(key: &RunKey) -> DbosError {
    let run = key.run.clone();
    JournalError::UnknownRun { run }.into()
}

fn other_request(key: &RunKey) -> DbosError {
    let run = key.run.clone();
    DbosError::OtherRequest { run }
}

impl fmt::Debug for Engine {
    /// Omits the URL, which has the password.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Engine").finish_non_exhaustive()
    }
}
