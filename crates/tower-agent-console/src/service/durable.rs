//! Durable runs: a page of the list, and going on with one whose process has died.

use std::future::Future;
use std::sync::Arc;

use http::request::Parts;
use http::{Response, StatusCode};
use serde::{Deserialize, Serialize};
use serde_json::json;
use tokio::time::timeout;
use tower_agent::error::Result as AgentResult;
use tower_agent::{Agent, BoxError};

use super::api::Api;
use super::body::ResponseBody;
use super::input;
use super::reply::{self, Refusal};
use crate::address::without_nul;
use crate::database::LOOK;
use crate::durable::{DurableKey, DurableQuery, DurableRun, DurableRuns};
use crate::lock::lock;
use crate::stored::StoredQuery;

/// The number of runs on a page, by default and at most.
const RUNS: (u32, u32) = (50, 200);

/// The number of runs that begin at one time, of which one is found by its place.
const AT_ONCE: u32 = 1_000;

/// The states that a run may be asked for by.
const STATES: [&str; 7] = [
    "running",
    "lost",
    "waiting",
    "failed",
    "completed",
    "cancelled",
    "unreadable",
];

/// A durable run as an operator sees it.
#[derive(Serialize)]
struct ShownRun<'a> {
    /// The name of it in addresses and requests, in which nobody is named.
    place: String,
    id: &'a str,
    agent: &'a str,
    version: Option<&'a str>,
    conversation: Option<&'a str>,
    user: serde_json::Value,
    status: &'a str,
    waits_for: &'a [String],
    error: Option<&'a str>,
    begun: u64,
    updated: u64,
    /// The id of what this console has watched of it.
    run: Option<String>,
    may_resume: bool,
}

/// A page of the list.
#[derive(Serialize)]
struct DurablePage<'a> {
    runs: Vec<ShownRun<'a>>,
    /// The place behind which the next page goes on; `None` for the last one.
    next: Option<String>,
}

/// A request to go on with a run.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Resume {
    place: String,
}

/// A place in the list, as an address has it.
struct DurablePlace<'a> {
    begun: u64,
    /// The hash of the user; empty for nobody.
    user: &'a str,
    id: &'a str,
}

impl<'a> DurablePlace<'a> {
    fn read(place: &'a str) -> Option<Self> {
        let (begun, rest) = place.split_once('~')?;
        let (user, id) = rest.split_once('~')?;
        Some(Self {
            begun: begun.parse().ok()?,
            user,
            id,
        })
    }
}

impl Api<'_> {
    fn durable_runs(&self) -> Result<Arc<dyn DurableRuns>, Refusal> {
        let runs = self.console.durable.get();
        runs.cloned().ok_or_else(Refusal::not_found)
    }

    /// Returns the place of a run. A user is there as the hash that everybody may see.
    fn place(&self, key: &DurableKey) -> String {
        let user = key.user.as_deref().map(|user| self.console.hash(user));
        format!("{}~{}~{}", key.begun, user.unwrap_or_default(), key.id)
    }

    /// Returns the run at a place, if it is there.
    async fn at(
        &self,
        runs: &dyn DurableRuns,
        place: &DurablePlace<'_>,
    ) -> Result<Option<DurableRun>, Refusal> {
        let query = DurableQuery {
            begun: Some(place.begun),
            limit: AT_ONCE,
            ..DurableQuery::default()
        };
        let mut found = look(runs.list(&query)).await?.into_iter();
        Ok(found.find(|run| {
            let user = run.key.user.as_deref().map(|user| self.console.hash(user));
            run.key.id == place.id && user.as_deref().unwrap_or_default() == place.user
        }))
    }

    pub(super) async fn durable(&self, query: &str) -> Result<Response<ResponseBody>, Refusal> {
        let runs = self.durable_runs()?;
        let mut wanted = DurableQuery {
            limit: RUNS.0,
            ..DurableQuery::default()
        };
        for (name, value) in form_urlencoded::parse(query.as_bytes()) {
            let unreadable = || Refusal::parameter(&name);
            match &*name {
                // As a form sends what was not filled in.
                _ if value.is_empty() => {}
                "agent" => wanted.agent = Some(without_nul(&value)),
                "status" if STATES.contains(&&*value) => wanted.status = Some(value.into_owned()),
                "status" => return Err(unreadable()),
                "before" => {
                    let place = DurablePlace::read(&value).ok_or_else(unreadable)?;
                    let last = self.at(&*runs, &place).await?;
                    // One that is gone by now: those of others with its id go with it.
                    let gone = || DurableKey {
                        begun: place.begun,
                        id: without_nul(place.id),
                        user: None,
                    };
                    wanted.after = Some(last.map_or_else(gone, |run| run.key));
                }
                "limit" => {
                    let limit: u32 = value.parse().map_err(|_| unreadable())?;
                    wanted.limit = limit.clamp(1, RUNS.1);
                }
                _ => {}
            }
        }
        let limit = wanted.limit as usize;
        // One more, to know whether there are more.
        wanted.limit += 1;
        let mut listed = look(runs.list(&wanted)).await?;
        let has_more = listed.len() > limit;
        listed.truncate(limit);
        let last = listed.last().filter(|_| has_more);
        let next = last.map(|run| self.place(&run.key));
        let watched = self.watched(&listed).await;
        let shown = listed.iter().zip(watched).map(|(run, watched)| ShownRun {
            place: self.place(&run.key),
            id: &run.key.id,
            agent: &run.agent,
            version: run.version.as_deref(),
            conversation: run.conversation.as_deref(),
            user: self.shown_user(run.key.user.as_deref()),
            status: &run.status,
            waits_for: &run.waits_for,
            error: run.error.as_deref(),
            begun: run.key.begun,
            updated: run.updated,
            run: watched,
            may_resume: run.may_resume && self.operator.resumes_runs,
        });
        Ok(reply::json(&DurablePage {
            runs: shown.collect(),
            next,
        }))
    }

    /// Returns the ids under which the console shows what it has watched of runs.
    async fn watched(&self, runs: &[DurableRun]) -> Vec<Option<String>> {
        self.console.collector.collect();
        let mut watched: Vec<Option<String>> = {
            let store = lock(&self.console.collector.store);
            let shown = runs.iter().map(|DurableRun { key, .. }| {
                let run = store.latest(&key.id)?;
                is_of(run.user.as_deref(), key).then(|| run.id.to_string())
            });
            shown.collect()
        };
        let Some(database) = self.console.database.get() else {
            return watched;
        };
        for (run, watched) in runs.iter().zip(&mut watched) {
            if watched.is_some() {
                continue;
            }
            let by_id = StoredQuery {
                id: Some(without_nul(&run.key.id)),
                limit: 1,
                ..StoredQuery::default()
            };
            // It does not answer: the list is there without links.
            let Ok(found) = database.look(database.store.list(&by_id)).await else {
                break;
            };
            let found = found
                .first()
                .filter(|head| is_of(head.user.as_deref(), &run.key));
            *watched = found.map(crate::address::address);
        }
        watched
    }

    /// Goes on with a run whose process has died, and writes down who has.
    pub(super) async fn resume<B>(
        &self,
        parts: &Parts,
        body: B,
    ) -> Result<Response<ResponseBody>, Refusal>
    where
        B: http_body::Body<Error: Into<BoxError>>,
    {
        let mut about = "?".to_owned();
        let begun = self.begin(parts, body, &mut about).await;
        let status = begun
            .as_ref()
            .map_or_else(Refusal::status, |()| StatusCode::ACCEPTED);
        self.console.audited(self.operator, "resume", about, status);
        begun?;
        let mut response = reply::json(&json!({}));
        *response.status_mut() = status;
        Ok(response)
    }

    async fn begin<B>(&self, parts: &Parts, body: B, about: &mut String) -> Result<(), Refusal>
    where
        B: http_body::Body<Error: Into<BoxError>>,
    {
        if !self.operator.resumes_runs {
            let why = "the operator does not resume runs";
            return Err(Refusal::new(StatusCode::FORBIDDEN, "forbidden", why));
        }
        let runs = self.durable_runs()?;
        let Resume { place } = input::json(parts, body, input::NAMES).await?;
        let place = DurablePlace::read(&place).ok_or_else(|| Refusal::parameter("place"))?;
        let id: String = place.id.chars().take(200).collect();
        *about = match place.user {
            "" => format!("run {id}"),
            user => format!("run {id} of {}", user.chars().take(20).collect::<String>()),
        };
        let run = self.at(&*runs, &place).await?;
        let run = run.ok_or_else(Refusal::not_found)?;
        if !run.may_resume {
            let why = "this run is not lost, or goes on with its conversation alone";
            return Err(Refusal::new(StatusCode::CONFLICT, "not_lost", why));
        }
        let agent = self.console.agent_named(&run.agent);
        let agent = agent.ok_or_else(|| {
            let why = "the console was not given the agent of this run: see `Console::agent`";
            Refusal::new(StatusCode::CONFLICT, "unknown_agent", why)
        })?;
        // It goes on, whether the operator stays or not.
        tokio::spawn(go_on(runs, run.key, agent));
        Ok(())
    }
}

async fn go_on(runs: Arc<dyn DurableRuns>, key: DurableKey, agent: Agent) {
    let id = key.id.clone();
    match runs.resume(key, agent).await {
        Ok(true) => {}
        Ok(false) => tracing::info!(run_id = id, "a durable run goes on elsewhere already"),
        Err(error) => tracing::warn!(run_id = id, %error, "a durable run was resumed, and failed"),
    }
}

/// Returns whether what the console has watched, of a run of this user, may be that of a durable
/// run: another user may have one with the same id.
fn is_of(watched: Option<&str>, run: &DurableKey) -> bool {
    watched.is_none() || watched == run.user.as_deref()
}

async fn look<T>(answer: impl Future<Output = AgentResult<T>>) -> Result<T, Refusal> {
    let silent = || Refusal::unavailable("the durable runs cannot be read; try again later");
    match timeout(LOOK, answer).await {
        Ok(Ok(answer)) => Ok(answer),
        Ok(Err(error)) => {
            tracing::warn!(%error, "the durable runs of the console cannot be read");
            Err(silent())
        }
        Err(_) => Err(silent()),
    }
}
