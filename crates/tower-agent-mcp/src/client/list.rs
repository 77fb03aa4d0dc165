use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use rmcp::RoleClient;
use rmcp::ServiceError;
use rmcp::model::{
    ClientRequest, CustomResult, ListToolsRequest, ListToolsResult, PaginatedRequestParams,
    ServerResult,
};
use rmcp::service::Peer;
use serde_json::Value;
use tokio::time::{Instant, timeout};
use tower_agent::tool::ToolDeclaration;
use tower_agent::{Error, ErrorKind, Result};

use super::config::Config;
use super::connection::Connection;
use super::{declaration, error};
use crate::lock::lock;

/// The maximum number of pages of a list: a server could make up cursors without end.
const PAGES: usize = 1000;

/// A tool of the server.
#[derive(Clone, Debug)]
pub(super) struct ListedTool {
    /// With the name for the model.
    pub(super) declaration: Arc<ToolDeclaration>,
    /// The server's own name.
    pub(super) name: Arc<str>,
}

/// The server's tools, by their names for the model.
pub(super) type Tools = Arc<BTreeMap<Arc<str>, ListedTool>>;

/// The list of a server's tools, as it was last read.
#[derive(Debug, Default)]
pub(super) struct List(Mutex<Read>);

#[derive(Debug, Default)]
struct Read {
    tools: Tools,
    /// `None` before the first time, and if the server has reported a change.
    valid: Option<Valid>,
}

#[derive(Debug)]
struct Valid {
    /// The connection that it was read on: a server that was started again may have other tools.
    connection: std::sync::Weak<Connection>,
    until: Option<Instant>,
}

impl List {
    /// Returns the tools as they were last read.
    pub(super) fn tools(&self) -> Tools {
        self.lock().tools.clone()
    }

    /// Returns `true` if the tools must be read again.
    pub(super) fn is_stale(&self, connection: &Arc<Connection>) -> bool {
        let mut read = self.lock();
        if connection.calls().take_tools_changed() {
            read.valid = None;
        }
        let Some(valid) = &read.valid else {
            return true;
        };
        // By address, which is unique: the weak reference keeps the allocation from being reused.
        if !std::ptr::addr_eq(valid.connection.as_ptr(), Arc::as_ptr(connection)) {
            return true;
        }
        valid.until.is_some_and(|until| until <= Instant::now())
    }

    /// Reads the tools. The list stays as it was if that fails.
    pub(super) async fn read(&self, connection: &Arc<Connection>, config: &Config) -> Result<()> {
        let reading = read_all(connection.peer(), config);
        let read = timeout(config.call_timeout, reading)
            .await
            .unwrap_or_else(|_| {
                let message = format!(
                    "MCP server `{}` did not list its tools within {:?}",
                    config.server, config.call_timeout,
                );
                Err(Error::new(ErrorKind::Timeout, message))
            });
        let mut list = self.lock();
        match read {
            Ok((tools, valid_for)) => {
                // A time beyond the clock's range counts as no limit.
                let until = valid_for.and_then(|time| Instant::now().checked_add(time));
                let connection = Arc::downgrade(connection);
                *list = Read {
                    tools,
                    valid: Some(Valid { connection, until }),
                };
                Ok(())
            }
            Err(error) => {
                // The tools stay, and the next call tries to read them again.
                list.valid = None;
                Err(error)
            }
        }
    }

    fn lock(&self) -> MutexGuard<'_, Read> {
        lock(&self.0)
    }
}

async fn read_all(peer: &Peer<RoleClient>, config: &Config) -> Result<(Tools, Option<Duration>)> {
    let mut tools = BTreeMap::new();
    let mut valid_for = None;
    let mut cursor = None;
    let mut seen_cursors = BTreeSet::new();
    for _ in 0..PAGES {
        let page = page(peer, &config.server, cursor)
            .await
            .map_err(|failed| error::request(&config.server, failed))?;
        for tool in &page.tools {
            list(tool, config, &mut tools);
        }
        if let Some(ttl) = page.ttl_ms {
            let ttl = Duration::from_millis(ttl);
            // The list is as old as its oldest page.
            valid_for = Some(valid_for.map_or(ttl, |others: Duration| others.min(ttl)));
        }
        match page.next_cursor {
            Some(next) if seen_cursors.insert(next.clone()) => cursor = Some(next),
            Some(_) => {
                let message = format!("MCP server `{}` repeats pages of its tools", config.server);
                return Err(Error::new(ErrorKind::Protocol, message));
            }
            None => return Ok((Arc::new(tools), valid_for)),
        }
    }
    let message = format!(
        "MCP server `{}` has more than {PAGES} pages of tools",
        config.server
    );
    Err(Error::new(ErrorKind::Protocol, message))
}

/// Requests one page. The method of rmcp has a cache, which may not know yet that the tools changed.
async fn page(
    peer: &Peer<RoleClient>,
    server: &str,
    cursor: Option<String>,
) -> Result<ListToolsResult, ServiceError> {
    let request = ListToolsRequest {
        method: Default::default(),
        params: Some(PaginatedRequestParams::default().with_cursor(cursor)),
        extensions: Default::default(),
    };
    match peer
        .send_request(ClientRequest::ListToolsRequest(request))
        .await?
    {
        ServerResult::ListToolsResult(page) => Ok(page),
        // One declaration that cannot be read makes rmcp read none.
        ServerResult::CustomResult(CustomResult(result)) => {
            readable(result, server).ok_or(ServiceError::UnexpectedResponse)
        }
        _ => Err(ServiceError::UnexpectedResponse),
    }
}

/// Returns the page with the declarations that can be read, or `None` if it is no page.
fn readable(mut result: Value, server: &str) -> Option<ListToolsResult> {
    let listed = match result.get_mut("tools")?.take() {
        Value::Array(listed) => listed,
        _ => return None,
    };
    result["tools"] = Value::Array(Vec::new());
    let mut page: ListToolsResult = serde_json::from_value(result).ok()?;
    for (at, tool) in listed.into_iter().enumerate() {
        let name = tool["name"].as_str().unwrap_or("without a name").to_owned();
        match serde_json::from_value(tool) {
            Ok(tool) => page.tools.push(tool),
            Err(error) => {
                let reason = error.to_string();
                tracing::warn!(%server, position = at, tool = name, reason, "tool left out");
            }
        }
    }
    Some(page)
}

/// Adds a tool, if the caller and the agents take it.
fn list(tool: &rmcp::model::Tool, config: &Config, tools: &mut BTreeMap<Arc<str>, ListedTool>) {
    let server = &config.server;
    let own_name = &*tool.name;
    let declared = declaration::declaration(tool);
    let named = declaration::name(&config.prefix, own_name);
    let (declared, name) = match (declared, named) {
        (Ok(declared), Ok(name)) => (declared, name),
        // One bad declaration must not take the server's other tools away.
        (Err(reason), _) | (_, Err(reason)) => {
            return tracing::warn!(%server, tool = own_name, reason, "tool left out");
        }
    };
    if !(config.filter)(&declared) {
        return;
    }
    let effect = (config.effect)(&declared);
    let declaration = ToolDeclaration::new(&*name, declared.description())
        .with_parameters(declared.parameters().clone())
        .with_effect(effect)
        .described_by_others();
    let listed = ListedTool {
        declaration: Arc::new(declaration),
        name: own_name.into(),
    };
    let name: Arc<str> = name.into();
    // Two names can become the same one. The first in the alphabet wins, so that the order of the
    // server's list does not decide which tool a model calls.
    let left_out = match tools.get(&name) {
        Some(other) if *other.name <= *own_name => Some(own_name.to_owned()),
        _ => tools
            .insert(name.clone(), listed)
            .map(|other| other.name.to_string()),
    };
    if let Some(tool) = left_out {
        let reason = format!("another tool has the same name `{name}` for the model");
        tracing::warn!(%server, tool, reason, "tool left out");
    }
}
