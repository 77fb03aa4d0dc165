use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use rmcp::RoleClient;
use rmcp::ServiceError;
use rmcp::model::{
    ClientRequest, ListToolsRequest, ListToolsResult, PaginatedRequestParams, ServerResult,
};
use rmcp::service::Peer;
use tokio::time::{Instant, timeout};
use tower_agent::tool::ToolDeclaration;
use tower_agent::{Error, ErrorKind, Result};

use super::config::Config;
use super::connection::Connection;
use super::{declaration, error};
use crate::lock::lock;

/// How many pages a list may have.
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

    /// Returns whether the tools must be read again.
    pub(super) fn is_stale(&self, connection: &Arc<Connection>) -> bool {
        let mut read = self.lock();
        if connection.calls().take_tools_changed() {
            read.valid = None;
        }
        let Some(valid) = &read.valid else {
            return true;
        };
        std::ptr::addr_eq(valid.connection.as_ptr(), Arc::as_ptr(connection))
            .then_some(())
            .is_none_or(|()| valid.until.is_some_and(|until| until <= Instant::now()))
    }

    /// Reads the tools. The list stays as it was if that fails.
    pub(super) async fn read(&self, connection: &Arc<Connection>, config: &Config) -> Result<()> {
        let reading = read_all(connection.peer(), config);
        let read = timeout(config.call_timeout, reading)
            .await
            .unwrap_or_else(|_| {
                let (server, after) = (&config.server, config.call_timeout);
                let message =
                    format!("MCP server `{server}` did not list its tools within {after:?}");
                Err(Error::new(ErrorKind::Timeout, message))
            });
        let mut list = self.lock();
        match read {
            Ok((tools, valid_for)) => {
                let until = valid_for.and_then(|it| Instant::now().checked_add(it));
                let connection = Arc::downgrade(connection);
                *list = Read {
                    tools,
                    valid: Some(Valid { connection, until }),
                };
                Ok(())
            }
            Err(error) => {
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
    let (mut cursor, mut cursors) = (None, BTreeSet::new());
    for _ in 0..PAGES {
        let page = page(peer, cursor).await;
        let page = page.map_err(|failed| error::request(&config.server, failed))?;
        for tool in &page.tools {
            list(tool, config, &mut tools);
        }
        if let Some(ttl) = page.ttl_ms {
            let ttl = Duration::from_millis(ttl);
            valid_for = Some(valid_for.map_or(ttl, |others: Duration| others.min(ttl)));
        }
        match page.next_cursor {
            Some(next) if cursors.insert(next.clone()) => cursor = Some(next),
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

/// Asks for one page. The method of rmcp has a cache, which may not know yet that the tools changed.
async fn page(
    peer: &Peer<RoleClient>,
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
        _ => Err(ServiceError::UnexpectedResponse),
    }
}

/// Adds a tool, if the caller and the agents take it.
fn list(tool: &rmcp::model::Tool, config: &Config, tools: &mut BTreeMap<Arc<str>, ListedTool>) {
    let (server, own) = (&config.server, &*tool.name);
    let declared = declaration::declaration(tool);
    let named = declaration::name(&config.prefix, own);
    let (declared, name) = match (declared, named) {
        (Ok(declared), Ok(name)) => (declared, name),
        (Err(reason), _) | (_, Err(reason)) => {
            return tracing::warn!(%server, tool = own, reason, "tool left out");
        }
    };
    if !(config.filter)(&declared) {
        return;
    }
    let effect = (config.effect)(&declared);
    let declaration = ToolDeclaration::new(&*name, declared.description())
        .with_parameters(declared.parameters().clone())
        .with_effect(effect);
    let listed = ListedTool {
        declaration: Arc::new(declaration),
        name: own.into(),
    };
    let name: Arc<str> = name.into();
    // The same one whatever the server's order.
    let left_out = match tools.get(&name) {
        Some(other) if *other.name <= *own => Some(own.to_owned()),
        _ => tools
            .insert(name.clone(), listed)
            .map(|other| other.name.to_string()),
    };
    if let Some(tool) = left_out {
        let reason = format!("another tool has the same name `{name}` for the model");
        tracing::warn!(%server, tool, reason, "tool left out");
    }
}
