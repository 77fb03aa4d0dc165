//! Runs, agents and the audit, as JSON.

use http::{Response, StatusCode};
use serde::Serialize;
use serde_json::{Value, json};
use tower_agent::agent::Explanation;

use super::body::ResponseBody;
use super::reply::{self, Refusal};
use crate::console::Inner;
use crate::lock::lock;
use crate::operator::Operator;
use crate::record::{Entry, Status, Summary};
use crate::store::Query;

/// The number of runs on a page, by default and at most.
const RUNS: (usize, usize) = (50, 200);

/// The number of entries of a run in one response.
const ENTRIES: usize = 2_000;

/// The part of the console that one operator may read.
pub(super) struct Api<'a> {
    pub(super) console: &'a Inner,
    pub(super) operator: &'a Operator,
}

/// A run as an operator sees it.
#[derive(Serialize)]
pub(super) struct ShownRun<'a> {
    #[serde(flatten)]
    run: &'a Summary,
    /// In the clear, or as a hash.
    user: Option<String>,
}

/// The structure of an agent.
#[derive(Serialize)]
struct ShownAgent<'a> {
    #[serde(flatten)]
    explanation: &'a Explanation,
    /// The orders in it that never do what is intended, in words.
    warnings: Vec<String>,
}

/// An entry as an operator sees it.
#[derive(Serialize)]
pub(super) struct ShownEntry<'a> {
    #[serde(flatten)]
    entry: &'a Entry,
    /// The length of its texts, in bytes.
    #[serde(skip_serializing_if = "is_zero")]
    content: usize,
}

fn is_zero(len: &usize) -> bool {
    *len == 0
}

impl<'a> From<&'a Entry> for ShownEntry<'a> {
    fn from(entry: &'a Entry) -> Self {
        Self {
            entry,
            content: entry.content.len(),
        }
    }
}

/// A page of the list.
#[derive(Serialize)]
struct RunPage<'a> {
    runs: Vec<ShownRun<'a>>,
    /// The number from which the next page goes on; `None` for the last one.
    next: Option<u64>,
    cursor: String,
    gone: u64,
    left_out: u64,
}

/// A run with a page of its entries.
#[derive(Serialize)]
struct EntryPage<'a> {
    run: ShownRun<'a>,
    entries: Vec<ShownEntry<'a>>,
    next: Option<usize>,
    cursor: String,
}

impl Api<'_> {
    /// Returns a run as the operator may see it.
    pub(super) fn shown<'a>(&self, run: &'a Summary) -> ShownRun<'a> {
        let user = run.user.as_deref().map(|user| {
            if self.operator.sees_users {
                user.to_owned()
            } else {
                self.console.hash(user)
            }
        });
        ShownRun { run, user }
    }

    /// Returns the place in the changes of this console from which a live view goes on.
    pub(super) fn cursor(&self, version: u64) -> String {
        format!("{}.{version}", self.console.epoch)
    }

    pub(super) fn runs(&self, query: &str) -> Result<Response<ResponseBody>, Refusal> {
        let mut wanted = Query {
            limit: RUNS.0,
            ..Query::default()
        };
        for (name, value) in form_urlencoded::parse(query.as_bytes()) {
            let unreadable = || Refusal::parameter(&name);
            match &*name {
                // As a form sends what was not filled in.
                _ if value.is_empty() => {}
                "agent" => wanted.agent = Some(value.into_owned()),
                "status" => {
                    wanted.status = Some(Status::from_name(&value).ok_or_else(unreadable)?);
                }
                "before" => wanted.before = Some(value.parse().map_err(|_| unreadable())?),
                "limit" => {
                    let limit: usize = value.parse().map_err(|_| unreadable())?;
                    wanted.limit = limit.clamp(1, RUNS.1);
                }
                _ => {}
            }
        }
        self.console.collector.collect();
        let store = lock(&self.console.collector.store);
        let (runs, has_more) = store.list(&wanted);
        let next = runs.last().filter(|_| has_more).map(|run| run.number);
        Ok(reply::json(&RunPage {
            runs: runs.into_iter().map(|run| self.shown(run)).collect(),
            next,
            cursor: self.cursor(store.version),
            gone: store.gone,
            left_out: store.left_out,
        }))
    }

    pub(super) fn run(&self, id: &str, query: &str) -> Result<Response<ResponseBody>, Refusal> {
        let mut from = 0;
        for (name, value) in form_urlencoded::parse(query.as_bytes()) {
            if name == "from" {
                from = value.parse().map_err(|_| Refusal::parameter("from"))?;
            }
        }
        self.console.collector.collect();
        let store = lock(&self.console.collector.store);
        let run = store.run(id).ok_or_else(Refusal::not_found)?;
        let entries = run.entries.get(from..).unwrap_or_default();
        let page = &entries[..entries.len().min(ENTRIES)];
        let next = (page.len() < entries.len()).then_some(from + page.len());
        Ok(reply::json(&EntryPage {
            run: self.shown(&run.summary),
            entries: page.iter().map(ShownEntry::from).collect(),
            next,
            cursor: self.cursor(store.version),
        }))
    }

    pub(super) fn content(&self, id: &str, entry: &str) -> Result<Response<ResponseBody>, Refusal> {
        if !self.operator.sees_content {
            let why = "the operator does not see the texts of runs";
            return Err(Refusal::new(StatusCode::FORBIDDEN, "forbidden", why));
        }
        let entry: usize = entry.parse().map_err(|_| Refusal::not_found())?;
        let store = lock(&self.console.collector.store);
        let run = store.run(id).ok_or_else(Refusal::not_found)?;
        let entry = run.entries.get(entry).ok_or_else(Refusal::not_found)?;
        let text = |text: &Option<Box<str>>| {
            let value = text.as_deref().map(serde_json::from_str::<Value>);
            value.and_then(Result::ok)
        };
        Ok(reply::json(&json!({
            "input": text(&entry.content.input),
            "output": text(&entry.content.output),
        })))
    }

    pub(super) fn agents(&self) -> Response<ResponseBody> {
        let agents = lock(&self.console.agents);
        let shown = agents.iter().map(|explanation| ShownAgent {
            explanation,
            warnings: explanation
                .warnings()
                .iter()
                .map(ToString::to_string)
                .collect(),
        });
        reply::json(&shown.collect::<Vec<_>>())
    }

    #[cfg(feature = "inbox")]
    pub(super) fn audit(&self) -> Response<ResponseBody> {
        reply::json(&self.console.audit.rows())
    }
}
