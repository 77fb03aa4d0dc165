// Roots and log messages are deprecated; servers still use them.
#![allow(deprecated)]

use std::fmt;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use rmcp::model::{
    ClientCapabilities, ClientConfig, ElicitationCapability, FormElicitationCapability,
    Implementation, ListRootsResult, ProtocolVersion, RequestMetaObject, TASKS_EXTENSION_ID,
    UrlElicitationCapability,
};
use tower_agent::model::BoxModel;
use tower_agent::tool::ToolDeclaration;
use tower_agent::{Effect, Result};

use super::lifecycle::Lifecycle;
use super::log::{self, LogLevel, OnLog};
use super::logins::Logins;
use super::roots;
use crate::trace::Network;

/// The options of a client.
#[derive(Clone)]
pub(super) struct Config {
    /// The server's name in errors and interrupts.
    pub(super) server: Arc<str>,
    pub(super) prefix: Arc<str>,
    pub(super) filter: Arc<dyn Fn(&ToolDeclaration) -> bool + Send + Sync>,
    pub(super) effect: Arc<dyn Fn(&ToolDeclaration) -> Effect + Send + Sync>,
    pub(super) sampling: Option<BoxModel>,
    pub(super) lifecycle: Lifecycle,
    pub(super) connect_timeout: Duration,
    pub(super) discover_timeout: Duration,
    pub(super) call_timeout: Duration,
    pub(super) max_message_size: usize,
    pub(super) roots: Vec<PathBuf>,
    pub(super) log_level: Option<LogLevel>,
    pub(super) on_log: OnLog,
    pub(super) logins: Logins,
    /// The way to the server, for spans.
    pub(super) network: Network,
}

impl Config {
    pub(super) fn new(server: impl Into<Arc<str>>) -> Self {
        Self {
            server: server.into(),
            prefix: Arc::from(""),
            filter: Arc::new(|_| true),
            // Annotations are the server's own word, and an approval or a retry relies on the
            // effect.
            effect: Arc::new(|_| Effect::Mutating),
            sampling: None,
            lifecycle: Lifecycle::default(),
            connect_timeout: Duration::from_secs(30),
            discover_timeout: Duration::from_secs(10),
            call_timeout: Duration::from_secs(60),
            max_message_size: 64 * 1024 * 1024,
            roots: Vec::new(),
            log_level: None,
            on_log: Arc::new(log::forward),
            logins: Logins::default(),
            network: Network::default(),
        }
    }

    /// Asks a server since protocol version 2026-07-28, which has no `logging/setLevel`, for log
    /// messages.
    pub(super) fn set_log_level(&self, meta: &mut RequestMetaObject) {
        if let Some(level) = self.log_level {
            meta.set_log_level(level.to_protocol());
        }
    }

    /// Returns the directories that the server may work in.
    pub(super) fn list_roots(&self) -> Result<ListRootsResult> {
        let roots = self.roots.iter().map(|directory| roots::root(directory));
        Ok(ListRootsResult::new(roots.collect::<Result<_>>()?))
    }

    /// Returns the client's description of itself for the server.
    pub(super) fn info(&self) -> ClientConfig {
        let elicitation = ElicitationCapability::new()
            .with_form(FormElicitationCapability::new())
            .with_url(UrlElicitationCapability::new());
        let mut capabilities = ClientCapabilities::default();
        capabilities.elicitation = Some(elicitation);
        // Announced only with a model: a server that reads this does not try in vain.
        capabilities.sampling = self.sampling.is_some().then(Default::default);
        capabilities.roots = (!self.roots.is_empty()).then(Default::default);
        // A server may answer with a task only if the client says that it can poll one.
        let tasks = (TASKS_EXTENSION_ID.to_owned(), Default::default());
        capabilities.extensions = Some([tasks].into());
        let client = Implementation::new(env!("CARGO_PKG_NAME"), env!("CARGO_PKG_VERSION"));
        // Later versions have no `initialize`, where this version is read.
        let version = ProtocolVersion::LATEST_WITH_INITIALIZE;
        ClientConfig::new(capabilities, client).with_protocol_version(version)
    }
}

impl fmt::Debug for Config {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Config")
            .field("server", &self.server)
            .field("prefix", &self.prefix)
            .field("sampling", &self.sampling.is_some())
            .field("lifecycle", &self.lifecycle)
            .field("connect_timeout", &self.connect_timeout)
            .field("call_timeout", &self.call_timeout)
            .field("max_message_size", &self.max_message_size)
            .finish_non_exhaustive()
    }
}
