use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use tokio::time::Instant;
use tower_agent::tool::ToolDeclaration;
use tower_agent::{Error, ErrorKind, Result};

use super::config::Config;
use super::connection::Connection;
use super::declaration;
use super::pages::{Listed, read_all};
use crate::lock::lock;

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
pub(super) struct List {
    last: Mutex<Read>,
    /// Held while the list is read: runs that begin at once share it.
    reading: tokio::sync::Mutex<()>,
}

#[derive(Debug, Default)]
struct Read {
    tools: Tools,
    /// The number of times that it was read, or was tried to.
    attempts: u64,
    /// The error of the last attempt.
    failure: Option<Error>,
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

    /// Reads the tools if they may have changed. The list stays as it was if that fails.
    pub(super) async fn refresh(
        &self,
        connection: &Arc<Connection>,
        config: &Config,
    ) -> Result<()> {
        if !self.is_stale(connection) {
            return Ok(());
        }
        let attempts = self.lock().attempts;
        let _reading = self.reading.lock().await;
        // A block, so that this lock is not held across the reading.
        {
            let last = self.lock();
            // Somebody else has tried meanwhile: one after the other would wait for a silent
            // server.
            if last.attempts != attempts
                && let Some(failure) = &last.failure
            {
                return Err(failure.clone());
            }
        }
        if self.is_stale(connection) {
            self.read(connection, config).await?;
        }
        Ok(())
    }

    /// Returns `true` if the tools must be read again.
    fn is_stale(&self, connection: &Arc<Connection>) -> bool {
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

    async fn read(&self, connection: &Arc<Connection>, config: &Config) -> Result<()> {
        let reading = read_tools(connection, config);
        let read = config
            .logins
            .timeout(config.call_timeout, reading)
            .await
            .unwrap_or_else(|_| {
                let message = format!(
                    "MCP server `{}` did not list its tools within {:?}",
                    config.server, config.call_timeout,
                );
                Err(Error::new(ErrorKind::Timeout, message))
            });
        let mut last = self.lock();
        last.attempts += 1;
        match read {
            Ok((tools, valid_for)) => {
                // No time at all is what servers send that say nothing of it: then a report of a
                // change counts. A time beyond the clock's range counts as no limit.
                let valid_for = valid_for.filter(|time| !time.is_zero());
                let until = valid_for.and_then(|time| Instant::now().checked_add(time));
                let connection = Arc::downgrade(connection);
                last.tools = tools;
                last.valid = Some(Valid { connection, until });
                last.failure = None;
                Ok(())
            }
            Err(error) => {
                // The tools stay, and the next call tries to read them again.
                last.valid = None;
                last.failure = Some(error.clone());
                Err(error)
            }
        }
    }

    fn lock(&self) -> MutexGuard<'_, Read> {
        lock(&self.last)
    }
}

async fn read_tools(connection: &Connection, config: &Config) -> Result<(Tools, Option<Duration>)> {
    let (listed, valid_for) = read_all(Listed::Tools, connection, config).await?;
    let mut tools = BTreeMap::new();
    for tool in &listed {
        list(tool, config, &mut tools);
    }
    Ok((Arc::new(tools), valid_for))
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
