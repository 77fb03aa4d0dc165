use std::fmt;
use std::sync::Arc;
use std::task::{Context, Poll};

use futures_util::FutureExt;
use futures_util::future::BoxFuture;
use tower::Service;
use tower_agent::callback::{Action, Callback};
use tower_agent::{
    AgentRequest, AgentResponse, Error, ErrorKind, Result, Tool, ToolRequest, ToolResponse,
};

use super::config::Config;
use super::connection::Connection;
use super::link::Link;
use super::list::{List, ListedTool};
use super::remote_tool::RemoteTool;
use super::transport::Endpoint;

/// A client of one MCP server: a service that makes the calls of the server's tools, and a source
/// of [tools](Self::tools). See the [module](super).
///
/// Clones share the connection, which is closed when the last clone and the last tool are dropped.
/// As a callback of an agent it adds the server's current tools to every run.
#[derive(Clone)]
pub struct McpClient(Arc<ClientInner>);

struct ClientInner {
    link: Arc<Link>,
    list: List,
}

impl McpClient {
    pub(super) async fn connect(endpoint: Endpoint, config: Config) -> Result<Self> {
        let link = Link::open(endpoint, config).await?;
        let client = Self(Arc::new(ClientInner {
            link,
            list: List::default(),
        }));
        // Here, so that a wrong address or a broken server is an error of `connect`.
        client.refresh().await?;
        Ok(client)
    }

    /// Returns the server's tools, sorted by name.
    ///
    /// Reads them again if the server has reported a change, if the time that it gave them is over
    /// (`ttlMs`; 0 is none), or after connecting again. If that fails, returns those that were read
    /// last.
    pub async fn tools(&self) -> Vec<Tool> {
        if let Err(error) = self.refresh().await {
            let server = &self.0.link.config().server;
            tracing::warn!(
                server = ?server,
                error = %error.to_string().escape_debug(), "keeping the old list of tools");
        }
        self.0
            .list
            .tools()
            .values()
            .map(|listed| self.tool(listed))
            .collect()
    }

    /// Closes the connection for good, and waits until the server has been told. Later calls fail.
    ///
    /// Dropping the client closes the connection too, without waiting.
    pub async fn close(&self) {
        self.0.link.close().await;
    }

    pub(super) fn link(&self) -> &Arc<Link> {
        &self.0.link
    }

    async fn refresh(&self) -> Result<()> {
        let inner = &*self.0;
        let read = |connection: Arc<Connection>| async move {
            inner.list.refresh(&connection, inner.link.config()).await
        };
        inner.link.ask(read).await
    }

    fn listed(&self, name: &str) -> Option<ListedTool> {
        self.0.list.tools().get(name).cloned()
    }

    fn tool(&self, listed: &ListedTool) -> Tool {
        let declaration = Arc::unwrap_or_clone(listed.declaration.clone());
        Tool::service(declaration, self.remote(listed))
    }

    fn remote(&self, listed: &ListedTool) -> RemoteTool {
        RemoteTool::new(self.0.link.clone(), listed)
    }

    fn unknown(&self, name: &str) -> Error {
        let server = &self.0.link.config().server;
        let tools = self.0.list.tools();
        let known: Vec<_> = tools.keys().map(|name| &**name).collect();
        let known = known.join(", ");
        let message = format!("MCP server `{server}` has no tool `{name}`; it has: {known}");
        Error::new(ErrorKind::UnknownTool, message)
    }
}

impl Service<ToolRequest> for McpClient {
    type Response = ToolResponse;
    type Error = Error;
    type Future = BoxFuture<'static, Result<ToolResponse>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<()>> {
        // Readiness of one moment says nothing about the connection at the time of the call.
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: ToolRequest) -> Self::Future {
        let client = self.clone();
        async move {
            let mut listed = client.listed(request.name());
            // Not before every call: a known tool can be called while the list cannot be read, and
            // the server rejects it if it is gone.
            if listed.is_none() {
                client.refresh().await?;
                listed = client.listed(request.name());
            }
            match listed {
                Some(listed) => client.remote(&listed).call(request).await,
                None => Err(client.unknown(request.name())),
            }
        }
        .boxed()
    }
}

impl Callback<AgentRequest> for McpClient {
    async fn before(&self, request: &mut AgentRequest) -> Result<Action<AgentResponse>> {
        // A copy: all runs of the agent share its own set.
        let mut tools = request.tools().clone();
        for tool in self.tools().await {
            tools
                .insert(tool)
                .map_err(|error| Error::from_source(ErrorKind::InvalidRequest, error))?;
        }
        *request = request.clone().with_tools(tools);
        Ok(Action::Continue)
    }
}

impl fmt::Debug for McpClient {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("McpClient")
            .field("server", &self.0.link.config().server)
            .finish_non_exhaustive()
    }
}
