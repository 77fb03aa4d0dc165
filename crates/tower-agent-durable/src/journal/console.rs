//! `Runs: DurableRuns`, with the feature `console`.

use std::time::{Duration, SystemTime};

use futures_util::future::BoxFuture;
use tower_agent::Agent;
use tower_agent::error::{Error, ErrorKind, Result};
use tower_agent_console::{DurableKey, DurableQuery, DurableRun, DurableRuns};

use super::error::JournalError;
use super::run_info::RunInfo;
use super::run_key::RunKey;
use super::run_query::RunQuery;
use super::run_status::RunStatus;
use super::runs::Runs;
use crate::time::millis;

/// The word of a console for a run that ran when its process ended.
const LOST: &str = "lost";

/// Only runs that nobody works on are gone on with, and none that is part of a stored conversation:
/// its session or its client goes on with it.
impl DurableRuns for Runs {
    fn list<'a>(&'a self, query: &'a DurableQuery) -> BoxFuture<'a, Result<Vec<DurableRun>>> {
        Box::pin(async move { Ok(listed(self, query).await?) })
    }

    fn resume(&self, run: DurableKey, agent: Agent) -> BoxFuture<'_, Result<bool>> {
        Box::pin(async move {
            let key = RunKey::new(&*run.id).with_user(run.user.as_deref().map(Into::into));
            let info = self.get(key).await?;
            // One that has the same id as another, which was deleted.
            let is_same = micros(info.started_at) == run.begun;
            if !is_same || !may_resume(&info, SystemTime::now()) {
                let why = "not resumed: the run is not lost, or goes on with its conversation";
                return Err(Error::new(ErrorKind::Conflict, why));
            }
            Ok(self.resume(&info, agent).await?.is_some())
        })
    }
}

async fn listed(runs: &Runs, query: &DurableQuery) -> Result<Vec<DurableRun>, JournalError> {
    let wanted = query.limit as usize;
    let mut page = RunQuery::new().limit(query.limit);
    page.agent = query.agent.as_deref().map(Into::into);
    page.status = match query.status.as_deref() {
        // In the database it is one that runs.
        Some(LOST) => Some(RunStatus::Running),
        Some(status) => Some(RunStatus::from_name(status)),
        None => None,
    };
    page.after = query.after.as_ref().map(place);
    if let Some(begun) = query.begun {
        let begun = time(begun);
        page = page.since(begun).before(begun + Duration::from_millis(1));
    }
    let mut selected = Vec::new();
    loop {
        let found = runs.list(&page).await?;
        let is_last = found.len() < wanted;
        let now = SystemTime::now();
        if let Some(last) = found.last() {
            page = page.after(last);
        }
        let found = found.iter().map(|run| shown(run, now));
        let is_status = |run: &DurableRun| query.status.as_ref().is_none_or(|s| *s == run.status);
        selected.extend(found.filter(is_status));
        if is_last || selected.len() >= wanted {
            selected.truncate(wanted);
            return Ok(selected);
        }
    }
}

/// Returns a run of which the list knows the place alone.
fn place(key: &DurableKey) -> RunInfo {
    let at = time(key.begun);
    let mut run = RunInfo::new(&*key.id, "", RunStatus::Running, None, at);
    run.user = key.user.as_deref().map(Into::into);
    run
}

fn may_resume(run: &RunInfo, now: SystemTime) -> bool {
    run.status == RunStatus::Running && !run.is_alive(now) && run.policy.is_none()
}

fn shown(run: &RunInfo, now: SystemTime) -> DurableRun {
    let is_lost = run.status == RunStatus::Running && !run.is_alive(now);
    let status = if is_lost { LOST } else { run.status.as_str() };
    let parties = run.interrupts.iter();
    let mut waits_for: Vec<String> = parties
        .map(|interrupt| interrupt.answerer.role().unwrap_or("user").to_owned())
        .collect();
    waits_for.sort();
    waits_for.dedup();
    let conversation = run.conversation.as_ref();
    DurableRun {
        key: DurableKey {
            begun: micros(run.started_at),
            id: run.id.to_string(),
            user: run.user.as_deref().map(str::to_owned),
        },
        agent: run.agent.to_string(),
        version: run.version.as_deref().map(str::to_owned),
        conversation: conversation.map(|conversation| conversation.id.to_string()),
        status: status.to_owned(),
        waits_for,
        error: run
            .error
            .as_ref()
            .map(|error| error.kind().code().to_owned()),
        updated: micros(run.updated_at),
        may_resume: may_resume(run, now),
    }
}

/// Returns a time as a console has it, of whole milliseconds.
fn micros(at: SystemTime) -> u64 {
    u64::try_from(millis(at)).unwrap_or(0).saturating_mul(1_000)
}

fn time(micros: u64) -> SystemTime {
    SystemTime::UNIX_EPOCH + Duration::from_millis(micros / 1_000)
}
