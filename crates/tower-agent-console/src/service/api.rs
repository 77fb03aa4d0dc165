//! Runs, agents and the audit, as JSON.

use std::collections::BTreeMap;

use http::Response;
use serde::Serialize;
use serde_json::value::RawValue;
use serde_json::{Value, json};
use tower_agent::Agent;
use tower_agent::agent::Explanation;

use super::body::ResponseBody;
use super::reply::{self, Refusal};
use crate::address::{address, key_of, without_nul};
use crate::console::{Found, Inner, parsed};
use crate::database::Database;
use crate::lock::lock;
use crate::operator::Operator;
use crate::record::{Content, ShownEntry, Status, Summary};
use crate::stored::{StoredHead, StoredKey, StoredPlace, StoredQuery};

/// The number of runs on a page, by default and at most.
const RUNS: (u32, u32) = (50, 200);

/// The number of entries of a run in one response, by default and at most.
const ENTRIES: usize = 2_000;

/// Their bytes. One that is longer comes alone.
const ENTRY_BYTES: usize = 512 << 10;

/// The part of the console that one operator may read.
pub(super) struct Api<'a> {
    pub(super) console: &'a Inner,
    pub(super) operator: &'a Operator,
}

/// The structure of an agent.
#[derive(Serialize)]
struct ShownAgent<'a> {
    #[serde(flatten)]
    explanation: &'a Explanation,
    /// The orders in it that never do what is intended, in words.
    warnings: Vec<String>,
}

/// A page of the list.
#[derive(Serialize)]
struct RunPage {
    runs: Vec<Value>,
    /// The place behind which the next page goes on; `None` for the last one.
    next: Option<String>,
    cursor: String,
    gone: u64,
    left_out: u64,
    /// Runs that have gone before they were in the database.
    unstored: u64,
    /// The database does not answer: the runs are those in memory alone.
    is_away: bool,
}

/// A run with a page of its entries.
#[derive(Serialize)]
struct EntryPage<'a> {
    run: &'a Value,
    entries: Vec<Box<RawValue>>,
    next: Option<usize>,
    /// `None` for a run in the database, which does not change.
    cursor: Option<String>,
}

impl Api<'_> {
    /// Returns a run as the operator may see it.
    pub(super) fn shown(&self, run: &Summary) -> Value {
        let mut shown = json!(run);
        shown["user"] = self.shown_user(run.user.as_deref());
        shown
    }

    /// The same for one in the database.
    fn shown_head(&self, head: &StoredHead) -> Result<Value, Refusal> {
        let unreadable = |error| {
            tracing::warn!(%error, "a run in the database of the console is unreadable");
            Refusal::unavailable("a run in the database is unreadable")
        };
        let mut shown: Value = serde_json::from_str(&head.summary).map_err(unreadable)?;
        shown["id"] = address(head).into();
        shown["user"] = self.shown_user(head.user.as_deref());
        Ok(shown)
    }

    /// Returns a user in the clear, or as a hash.
    pub(super) fn shown_user(&self, user: Option<&str>) -> Value {
        match user {
            Some(user) if self.operator.sees_users => user.into(),
            Some(user) => self.console.hash(user).into(),
            None => Value::Null,
        }
    }

    /// Returns the place in the changes of this console from which a live view goes on.
    pub(super) fn cursor(&self, version: u64) -> String {
        format!("{}.{version}", self.console.epoch)
    }

    pub(super) async fn runs(&self, query: &str) -> Result<Response<ResponseBody>, Refusal> {
        let wanted = wanted(query)?;
        let limit = wanted.limit as usize;
        self.console.collector.collect();
        let stored = match self.console.database.get() {
            Some(database) => Some(self.stored(database, &wanted).await),
            None => None,
        };
        let is_away = matches!(stored, Some(Err(_)));
        let stored = stored.and_then(Result::ok).unwrap_or_default();
        // Behind this one there are others that were not asked for.
        let end = stored.get(limit).map(StoredHead::place);

        let store = lock(&self.console.collector.store);
        let recent = store.list(&wanted);
        let mut runs = Vec::with_capacity(recent.len() + stored.len());
        for (place, run) in recent {
            runs.push((place, self.shown(run)));
        }
        for head in &stored {
            // What is in memory as well is as new there, or newer.
            if store.number_of(&head.key).is_none() {
                runs.push((head.place(), self.shown_head(head)?));
            }
        }
        if let Some(end) = &end {
            runs.retain(|(place, _)| place >= end);
        }
        runs.sort_unstable_by(|(one, _), (other, _)| other.cmp(one));
        let has_more = runs.len() > limit;
        runs.truncate(limit);
        let last = runs.last().filter(|_| has_more);
        let next = last.map(|(place, _)| place.clone()).or(end);
        Ok(reply::json(&RunPage {
            runs: runs.into_iter().map(|(_, run)| run).collect(),
            next: next.as_ref().map(written_place),
            cursor: self.cursor(store.version),
            gone: store.gone,
            left_out: store.left_out,
            unstored: store.unstored,
            is_away,
        }))
    }

    /// Returns the runs in the database, and one more than was asked for if there are more.
    async fn stored(
        &self,
        database: &Database,
        wanted: &StoredQuery,
    ) -> tower_agent::error::Result<Vec<StoredHead>> {
        database.forget_removed(&self.console.collector).await?;
        let query = StoredQuery {
            limit: wanted.limit + 1,
            ..wanted.clone()
        };
        database.look(database.store.list(&query)).await
    }

    pub(super) async fn run(
        &self,
        id: &str,
        query: &str,
    ) -> Result<Response<ResponseBody>, Refusal> {
        let mut from = 0;
        let mut limit = ENTRIES;
        for (name, value) in form_urlencoded::parse(query.as_bytes()) {
            let number = || value.parse().map_err(|_| Refusal::parameter(&name));
            match &*name {
                _ if value.is_empty() => {}
                "from" => from = number()?,
                "limit" => limit = number()?.clamp(1, ENTRIES),
                _ => {}
            }
        }
        match self.console.find(id).await? {
            Found::Recent(number) => self.recent_run(number, from, limit),
            Found::Stored(database, head) => self.stored_run(&database, &head, from, limit).await,
            Found::Nowhere => Err(Refusal::not_found()),
        }
    }

    fn recent_run(
        &self,
        number: u64,
        from: usize,
        limit: usize,
    ) -> Result<Response<ResponseBody>, Refusal> {
        let store = lock(&self.console.collector.store);
        let run = store.runs.get(&number).ok_or_else(Refusal::not_found)?;
        let entries = run.entries.get(from..).unwrap_or_default();
        let shown = entries.iter().map(ShownEntry::from);
        let page = page(shown.map(|entry| json!(entry).to_string()).take(limit));
        Ok(reply::json(&EntryPage {
            run: &self.shown(&run.summary),
            next: (page.len() < entries.len()).then_some(from + page.len()),
            entries: page,
            cursor: Some(self.cursor(store.version)),
        }))
    }

    async fn stored_run(
        &self,
        database: &Database,
        head: &StoredHead,
        from: usize,
        limit: usize,
    ) -> Result<Response<ResponseBody>, Refusal> {
        let first = u32::try_from(from).unwrap_or(u32::MAX);
        let more = limit as u32 + 1;
        let read = database.store.entries(&head.key, first, more, false);
        let entries = database.look(read).await?;
        let all = entries.len();
        let page = page(entries.into_iter().map(|entry| entry.entry).take(limit));
        Ok(reply::json(&EntryPage {
            run: &self.shown_head(head)?,
            next: (page.len() < all).then_some(from + page.len()),
            entries: page,
            cursor: None,
        }))
    }

    pub(super) async fn content(
        &self,
        id: &str,
        entry: &str,
    ) -> Result<Response<ResponseBody>, Refusal> {
        if !self.operator.sees_content {
            return Err(Refusal::content());
        }
        let entry: u32 = entry.parse().map_err(|_| Refusal::not_found())?;
        match self.console.find(id).await? {
            Found::Recent(number) => {
                let store = lock(&self.console.collector.store);
                let run = store.runs.get(&number).ok_or_else(Refusal::not_found)?;
                let entry = run.entries.get(entry as usize);
                let entry = entry.ok_or_else(Refusal::not_found)?;
                Ok(reply::json(&entry.content.json()))
            }
            Found::Stored(database, head) => {
                let read = database.store.entries(&head.key, entry, 1, true);
                let entry = database.look(read).await?.pop();
                let entry = entry.ok_or_else(Refusal::not_found)?;
                let none = || Content::default().json();
                let texts = entry.texts.as_deref().map_or_else(none, parsed);
                Ok(reply::json(&texts))
            }
            Found::Nowhere => Err(Refusal::not_found()),
        }
    }

    pub(super) fn agents(&self) -> Response<ResponseBody> {
        let agents = lock(&self.console.agents);
        let explanations = agents.iter().map(Agent::explain);
        let shown = explanations.map(|explanation| ShownAgent {
            explanation,
            warnings: explanation
                .warnings()
                .iter()
                .map(ToString::to_string)
                .collect(),
        });
        reply::json(&shown.collect::<Vec<_>>())
    }

    /// Returns the guards as they stand, of which each key is somebody.
    pub(super) async fn limits(&self) -> Response<ResponseBody> {
        let mut gauges = self.console.gauges.read().await;
        let readings = gauges.iter_mut().flat_map(|gauge| &mut gauge.readings);
        for reading in readings {
            if !self.operator.sees_users {
                let key = reading.of.take();
                reading.of = key.map(|key| self.console.hash(&key).into());
            }
        }
        reply::json(&gauges)
    }

    pub(super) async fn audit(&self, query: &str) -> Result<Response<ResponseBody>, Refusal> {
        let StoredQuery { before, limit, .. } = wanted(query)?;
        let audit = &self.console.audit;
        // First: what is written meanwhile is in both.
        let recent = audit.rows(before.as_ref());
        let stored = match self.console.database.get() {
            Some(database) => {
                let read = database.store.audited(before.as_ref(), limit + 1);
                Some(database.look(read).await)
            }
            None => None,
        };
        let is_away = matches!(stored, Some(Err(_)));
        let stored = stored.and_then(Result::ok).unwrap_or_default();
        let limit = limit as usize;
        // Behind this one there are others that were not asked for.
        let end = stored.get(limit).map(|row| row.place.clone());
        let all = recent.into_iter().chain(stored);
        let all: BTreeMap<_, _> = all.map(|row| (row.place.clone(), row)).collect();
        let mut rows: Vec<_> = all.into_values().rev().collect();
        if let Some(end) = &end {
            rows.retain(|row| row.place >= *end);
        }
        let has_more = rows.len() > limit;
        rows.truncate(limit);
        let last = rows.last().filter(|_| has_more);
        let next = last.map(|row| row.place.clone()).or(end);
        let shown = rows.iter().map(|row| {
            json!({
                "at": row.place.begun,
                "operator": row.operator,
                "action": row.action,
                "about": row.about,
                "status": row.status,
            })
        });
        Ok(reply::json(&json!({
            "rows": shown.collect::<Vec<_>>(),
            "next": next.as_ref().map(written_place),
            "unstored": audit.unstored(),
            "is_away": is_away,
        })))
    }
}

/// Returns as many of these entries, each as JSON, as one response has.
fn page(entries: impl Iterator<Item = String>) -> Vec<Box<RawValue>> {
    let mut page = Vec::new();
    let mut bytes = 0;
    for entry in entries {
        bytes += entry.len();
        if bytes > ENTRY_BYTES && !page.is_empty() {
            break;
        }
        page.push(RawValue::from_string(entry).unwrap_or_default());
    }
    page
}

/// Returns the query for a list that the parameters of an address ask for.
fn wanted(query: &str) -> Result<StoredQuery, Refusal> {
    let mut wanted = StoredQuery {
        limit: RUNS.0,
        ..StoredQuery::default()
    };
    for (name, value) in form_urlencoded::parse(query.as_bytes()) {
        let unreadable = || Refusal::parameter(&name);
        match &*name {
            // As a form sends what was not filled in.
            _ if value.is_empty() => {}
            "agent" => wanted.agent = Some(without_nul(&value)),
            "status" => {
                let status = Status::from_name(&value).ok_or_else(unreadable)?;
                wanted.status = Some(status.name().to_owned());
            }
            "before" => wanted.before = Some(read_place(&value).ok_or_else(unreadable)?),
            "limit" => {
                let limit: u32 = value.parse().map_err(|_| unreadable())?;
                wanted.limit = limit.clamp(1, RUNS.1);
            }
            _ => {}
        }
    }
    Ok(wanted)
}

/// Returns a place in the list as an address has it.
fn written_place(place: &StoredPlace) -> String {
    let StoredKey { console, number } = &place.key;
    format!("{}~{console}.{number}", place.begun)
}

fn read_place(place: &str) -> Option<StoredPlace> {
    let key = key_of(place)?;
    let (begun, _) = place.split_once('~')?;
    Some(StoredPlace {
        begun: begun.parse().ok()?,
        key,
    })
}
