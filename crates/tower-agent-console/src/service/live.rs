//! Live views: what has changed since the reader's last event, as server-sent events.
//!
//! A reader is told the state that things are in now, and not each change: one that is slow, or was
//! away, misses nothing, and nobody has a queue.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use futures_util::StreamExt;
use futures_util::stream::unfold;
use http::header::CONTENT_TYPE;
use http::request::Parts;
use http::{HeaderValue, Response, StatusCode};
use serde_json::{Value, json};
use tokio::sync::watch;
use tokio::time::{Instant, sleep_until, timeout};
use tower_agent::serve::{Place, Places, ReadTimeout};

use super::api::Api;
use super::body::ResponseBody;
use super::reply::Refusal;
use crate::collect::Change;
use crate::console::Inner;
use crate::lock::lock;
use crate::operator::Operator;
use crate::record::{ShownEntry, Summary};

/// The least time between two events.
const PACE: Duration = Duration::from_millis(100);

/// The time after which a silent connection is told that it is one.
const KEEP_ALIVE: Duration = Duration::from_secs(15);

/// The time after which a reader that takes nothing is let go.
const READ_TIME: Duration = Duration::from_secs(60);

/// The number of runs, and of entries, in one event.
const AT_ONCE: usize = 500;

/// Returns a view of what changes from now on, or since the reader's last event.
pub(super) fn live(
    console: Arc<Inner>,
    places: &Places,
    operator: Operator,
    parts: &Parts,
    query: &str,
) -> Result<Response<ResponseBody>, Refusal> {
    let mut since = None;
    let mut run = None;
    for (name, value) in form_urlencoded::parse(query.as_bytes()) {
        match &*name {
            "since" => since = Some(value.into_owned()),
            "run" => run = Some(value.into_owned()),
            _ => {}
        }
    }
    // A browser that connects anew says by itself what it has seen last.
    let last = parts.headers.get("last-event-id");
    let last = last.and_then(|last| last.to_str().ok()).map(str::to_owned);
    let since = last.or(since).unwrap_or_default();
    let since = match since.split_once('.') {
        Some((epoch, version)) if epoch == console.epoch => {
            let version = version.parse();
            Some(version.map_err(|_| Refusal::parameter("since"))?)
        }
        _ => None,
    };
    console.collector.collect();
    if let Some(id) = &run
        && lock(&console.collector.store).run(id).is_none()
    {
        if console.database.get().is_some() {
            // It may be there, where it does not change: with this a browser does not come again.
            let mut response = Response::new(ResponseBody::from(Bytes::new()));
            *response.status_mut() = StatusCode::NO_CONTENT;
            return Ok(response);
        }
        return Err(Refusal::not_found());
    }
    let place = places.take(operator.shared_name()).map_err(|no_place| {
        let status = StatusCode::TOO_MANY_REQUESTS;
        Refusal::new(status, "overloaded", no_place.to_string())
    })?;
    let live = Live {
        changed: console.collector.changed.subscribe(),
        console,
        operator,
        run,
        since: since.unwrap_or(0),
        is_other: since.is_none(),
        next: Instant::now(),
        _place: place,
    };
    let events = unfold(live, Live::next).boxed();
    let mut response = Response::new(ResponseBody::live(ReadTimeout::new(events, READ_TIME)));
    let headers = response.headers_mut();
    headers.insert(CONTENT_TYPE, HeaderValue::from_static("text/event-stream"));
    // Proxies of the nginx family would otherwise buffer events.
    headers.insert("x-accel-buffering", HeaderValue::from_static("no"));
    Ok(response)
}

/// One live view.
struct Live {
    console: Arc<Inner>,
    operator: Operator,
    changed: watch::Receiver<Change>,
    /// The run that is looked at; `None` for the list.
    run: Option<String>,
    /// The version that the reader has seen.
    since: u64,
    /// The reader has seen another console, such as that of the process before.
    is_other: bool,
    next: Instant,
    _place: Place,
}

impl Live {
    async fn next(mut self) -> Option<(Bytes, Self)> {
        sleep_until(self.next).await;
        loop {
            if self.changed.borrow_and_update().is_over {
                return None;
            }
            if let Some(event) = self.event() {
                self.next = Instant::now() + PACE;
                return Some((event, self));
            }
            match timeout(KEEP_ALIVE, self.changed.changed()).await {
                Ok(Ok(())) => {}
                Ok(Err(_)) => return None,
                Err(_) => return Some((Bytes::from_static(b": keep-alive\n\n"), self)),
            }
        }
    }

    /// Returns what has changed since the last event.
    fn event(&mut self) -> Option<Bytes> {
        let api = Api {
            console: &self.console,
            operator: &self.operator,
        };
        let store = lock(&self.console.collector.store);
        let is_reset = std::mem::take(&mut self.is_other) || store.has_forgotten(self.since);
        if !is_reset && store.version <= self.since {
            return None;
        }
        // In the order of their changes, so that the reader goes on behind the last one it got.
        let mut data = json!({
            "gone": store.gone,
            "left_out": store.left_out,
            "unstored": store.unstored,
        });
        let seen = if let Some(id) = &self.run {
            // It has gone to make room.
            let Some(run) = store.run(id) else {
                data["is_gone"] = true.into();
                self.since = u64::MAX;
                return Some(written("gone", &api.cursor(store.version), &data));
            };
            let mut entries: Vec<_> = run
                .entries
                .iter()
                .filter(|entry| entry.version > self.since)
                .collect();
            entries.sort_unstable_by_key(|entry| entry.version);
            let seen = cut(&mut entries, |entry| entry.version, store.version);
            let entries: Vec<_> = entries.into_iter().map(ShownEntry::from).collect();
            if !is_reset && entries.is_empty() && run.summary.version <= self.since {
                self.since = seen;
                return None;
            }
            data["run"] = api.shown(&run.summary);
            data["entries"] = json!(entries);
            seen
        } else {
            let mut runs: Vec<&Summary> = store
                .runs
                .values()
                .map(|run| &run.summary)
                .filter(|run| run.version > self.since)
                .collect();
            runs.sort_unstable_by_key(|run| run.version);
            let seen = cut(&mut runs, |run| run.version, store.version);
            let removed = store.removed.iter();
            let removed = removed.filter(|(version, _)| *version > self.since);
            data["removed"] = removed.map(|(_, id)| &**id).collect();
            data["runs"] = runs.into_iter().map(|run| api.shown(run)).collect();
            seen
        };
        self.since = seen;
        let name = if is_reset { "reset" } else { "change" };
        Some(written(name, &api.cursor(seen), &data))
    }
}

/// Cuts a list in the order of versions, and returns the version up to which the reader has seen
/// all. What has the same version as the last one that is kept is kept as well.
fn cut<T>(list: &mut Vec<T>, version: impl Fn(&T) -> u64, all: u64) -> u64 {
    if list.len() <= AT_ONCE {
        return all;
    }
    let last = version(&list[AT_ONCE - 1]);
    list.retain(|item| version(item) <= last);
    last
}

fn written(name: &str, id: &str, data: &Value) -> Bytes {
    // JSON has no line ends of its own.
    Bytes::from(format!("event: {name}\nid: {id}\ndata: {data}\n\n"))
}
