//! Lists that a server sends in pages.

use std::collections::BTreeSet;
use std::time::Duration;

use rmcp::model::{
    ClientRequest, ListPromptsRequest, ListResourceTemplatesRequest, ListResourcesRequest,
    ListToolsRequest, PaginatedRequestParams,
};
use serde::de::DeserializeOwned;
use serde_json::Value;
use tower_agent::{Error, ErrorKind, Result};

use super::config::Config;
use super::connection::Connection;
use super::request::request;

/// The maximum number of pages of a list: a server could make up cursors without end.
const PAGES: usize = 1000;

/// A list of a server.
#[derive(Clone, Copy, Debug)]
pub(super) enum Listed {
    Tools,
    Resources,
    ResourceTemplates,
    Prompts,
}

/// One page of a list.
struct Page<T> {
    items: Vec<T>,
    ttl: Option<Duration>,
    next: Option<String>,
}

/// Reads all pages of a list. Returns its items, and how long they are valid if the server says so.
///
/// rmcp reads no item of a page with one that it cannot read, and keeps a list that may have
/// changed.
pub(super) async fn read_all<T: DeserializeOwned>(
    listed: Listed,
    connection: &Connection,
    config: &Config,
) -> Result<(Vec<T>, Option<Duration>)> {
    let what = listed.field();
    let server = &config.server;
    let mut items = Vec::new();
    let mut valid_for = None;
    let mut cursor = None;
    let mut seen_cursors = BTreeSet::new();
    let mut seen_items = BTreeSet::new();
    for _ in 0..PAGES {
        let page: Page<T> = page(listed, connection, config, cursor, &mut seen_items).await?;
        items.extend(page.items);
        if let Some(ttl) = page.ttl {
            // The list is as old as its oldest page.
            valid_for = Some(valid_for.map_or(ttl, |others: Duration| others.min(ttl)));
        }
        match page.next {
            Some(next) if seen_cursors.insert(next.clone()) => cursor = Some(next),
            Some(cursor) => {
                // One bad field must not take the whole server away.
                tracing::warn!(%server, list = what, ?cursor, "the list ends here: its cursor leads back");
                return Ok((items, valid_for));
            }
            None => return Ok((items, valid_for)),
        }
    }
    let message = format!("MCP server `{server}` has more than {PAGES} pages of {what}");
    Err(Error::new(ErrorKind::Protocol, message))
}

async fn page<T: DeserializeOwned>(
    listed: Listed,
    connection: &Connection,
    config: &Config,
    cursor: Option<String>,
    seen: &mut BTreeSet<String>,
) -> Result<Page<T>> {
    let operation = connection.operation(listed.method());
    let result = request(connection, config, operation, listed.request(cursor)).await?;
    let result = serde_json::to_value(result).map_err(tower::BoxError::from)?;
    readable(result, listed, &config.server, seen).ok_or_else(|| {
        let (server, what) = (&config.server, listed.field());
        let message = format!("MCP server `{server}` answered with something else than its {what}");
        Error::new(ErrorKind::Protocol, message)
    })
}

/// Returns the page with the items that can be read and are not among those seen before, or `None`
/// if it is no page.
fn readable<T: DeserializeOwned>(
    mut result: Value,
    listed: Listed,
    server: &str,
    seen: &mut BTreeSet<String>,
) -> Option<Page<T>> {
    let Value::Array(items) = result.get_mut(listed.field())?.take() else {
        return None;
    };
    let next = match &result["nextCursor"] {
        Value::Null => None,
        cursor => Some(cursor.as_str()?.to_owned()),
    };
    let mut page = Page {
        items: Vec::new(),
        ttl: result["ttlMs"].as_u64().map(Duration::from_millis),
        next,
    };
    for (at, item) in items.into_iter().enumerate() {
        // A server that ignores the cursor sends the same page again.
        if !seen.insert(item.to_string()) {
            continue;
        }
        let name = item["name"].as_str().unwrap_or("without a name").to_owned();
        match serde_json::from_value(item) {
            Ok(item) => page.items.push(item),
            // One bad declaration must not take the server's others away.
            Err(error) => {
                let reason = error.to_string();
                let list = listed.field();
                tracing::warn!(%server, list, position = at, name, reason, "left out of a list");
            }
        }
    }
    Some(page)
}

impl Listed {
    fn method(self) -> &'static str {
        match self {
            Self::Tools => "tools/list",
            Self::Resources => "resources/list",
            Self::ResourceTemplates => "resources/templates/list",
            Self::Prompts => "prompts/list",
        }
    }

    fn field(self) -> &'static str {
        match self {
            Self::Tools => "tools",
            Self::Resources => "resources",
            Self::ResourceTemplates => "resourceTemplates",
            Self::Prompts => "prompts",
        }
    }

    fn request(self, cursor: Option<String>) -> ClientRequest {
        let params = Some(PaginatedRequestParams::default().with_cursor(cursor));
        match self {
            Self::Tools => ClientRequest::ListToolsRequest(ListToolsRequest {
                method: Default::default(),
                params,
                extensions: Default::default(),
            }),
            Self::Resources => ClientRequest::ListResourcesRequest(ListResourcesRequest {
                method: Default::default(),
                params,
                extensions: Default::default(),
            }),
            Self::ResourceTemplates => {
                ClientRequest::ListResourceTemplatesRequest(ListResourceTemplatesRequest {
                    method: Default::default(),
                    params,
                    extensions: Default::default(),
                })
            }
            Self::Prompts => ClientRequest::ListPromptsRequest(ListPromptsRequest {
                method: Default::default(),
                params,
                extensions: Default::default(),
            }),
        }
    }
}
