use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::sync::Arc;

use tower_agent::{Agent, Tool};

use super::handler::ServerInner;
use super::mcp_server::McpServer;
use super::seal::Seal;
use super::served::Served;

/// Builds an [`McpServer`].
#[derive(Debug)]
#[must_use]
pub struct McpServerBuilder {
    name: String,
    version: String,
    instructions: Option<String>,
    served: Vec<Served>,
    key: Option<[u8; 32]>,
    hosts: Option<Vec<String>>,
}

/// The error of [`McpServerBuilder::build`].
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ServerBuildError {
    /// Two tools have the same name.
    #[error("duplicate tool name `{0}`; rename the agent or the tool")]
    Duplicate(Arc<str>),
}

impl McpServer {
    /// Creates a builder of a server with a name and a version, which clients read.
    pub fn builder(name: impl Into<String>, version: impl Into<String>) -> McpServerBuilder {
        McpServerBuilder {
            name: name.into(),
            version: version.into(),
            instructions: None,
            served: Vec::new(),
            key: None,
            hosts: None,
        }
    }
}

impl McpServerBuilder {
    /// Sets the text that tells clients how to use the server. Defaults to none.
    pub fn instructions(mut self, instructions: impl Into<String>) -> Self {
        self.instructions = Some(instructions.into());
        self
    }

    /// Adds an agent: a tool with its name and its description.
    pub fn agent(mut self, agent: Agent) -> Self {
        self.served.push(Served::agent(agent));
        self
    }

    /// Adds a tool, with its layers.
    pub fn tool(mut self, tool: Tool) -> Self {
        self.served.push(Served::tool(tool));
        self
    }

    /// Adds tools, with their layers.
    pub fn tools(mut self, tools: impl IntoIterator<Item = Tool>) -> Self {
        self.served.extend(tools.into_iter().map(Served::tool));
        self
    }

    /// Sets the secret key that seals the checkpoints of interrupted runs: random bytes, the same in
    /// every process that continues them. Defaults to random bytes of this process.
    pub fn seal_key(mut self, key: [u8; 32]) -> Self {
        self.key = Some(key);
        self
    }

    /// Sets the host names that HTTP requests may be for, such as `mcp.example.com`. Other requests
    /// are rejected, so that no page in a browser reaches a server on its user's machine by another
    /// name. Defaults to `localhost`, `127.0.0.1` and `::1`.
    pub fn allowed_hosts(mut self, hosts: impl IntoIterator<Item = impl Into<String>>) -> Self {
        self.hosts = Some(hosts.into_iter().map(Into::into).collect());
        self
    }

    /// Builds the server.
    ///
    /// # Errors
    ///
    /// Fails if two tools have the same name.
    pub fn build(self) -> Result<McpServer, ServerBuildError> {
        // Sorted by name: the list that clients cache does not depend on the order of these calls.
        let mut served: BTreeMap<Arc<str>, Served> = BTreeMap::new();
        for tool in self.served {
            match served.entry(Arc::from(tool.declaration().name())) {
                Entry::Vacant(free) => {
                    free.insert(tool);
                }
                Entry::Occupied(taken) => {
                    return Err(ServerBuildError::Duplicate(taken.key().clone()));
                }
            }
        }
        Ok(McpServer::new(ServerInner {
            name: self.name,
            version: self.version,
            instructions: self.instructions,
            served,
            seal: Seal::new(self.key),
            hosts: self.hosts,
        }))
    }
}
