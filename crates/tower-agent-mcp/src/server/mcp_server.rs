use std::sync::Arc;

use rmcp::RoleServer;
use rmcp::service::ServiceExt;
use rmcp::transport::async_rw::AsyncRwTransport;
use tokio::io::{AsyncRead, AsyncWrite};
use tower_agent::{Error, ErrorKind, Result};

use super::handler::{McpServerHandler, ServerInner};
use super::mcp_http::McpHttp;

/// Agents and tools as an MCP server. See the [module](super).
///
/// Clones share what was served: a checkpoint is accepted once.
#[derive(Clone, Debug)]
pub struct McpServer(Arc<ServerInner>);

impl McpServer {
    pub(super) fn new(inner: ServerInner) -> Self {
        Self(Arc::new(inner))
    }

    /// Serves one client on standard input and output, until it closes them.
    ///
    /// Nothing else may write to the standard output.
    ///
    /// # Errors
    ///
    /// Fails if the client does not speak MCP.
    pub async fn serve_stdio(&self) -> Result<()> {
        let (input, output) = rmcp::transport::stdio();
        self.serve(tokio::io::join(input, output)).await
    }

    /// Serves one client on a stream, such as a socket, until it closes it. Messages are JSON, one
    /// a line.
    ///
    /// # Errors
    ///
    /// Fails if the client does not speak MCP.
    pub async fn serve(&self, stream: impl AsyncRead + AsyncWrite + Send + 'static) -> Result<()> {
        let (read, write) = tokio::io::split(stream);
        let transport = AsyncRwTransport::<RoleServer, _, _>::new(read, write);
        let handler = McpServerHandler(self.0.clone());
        let running = handler.serve(transport).await.map_err(|error| {
            let message = format!("the MCP client could not be served: {error}");
            Error::new(ErrorKind::Protocol, message).with_source(error)
        })?;
        // Not retryable: the stream is used up, and the client would have to open another.
        running.waiting().await.map(drop).map_err(|error| {
            Error::new(ErrorKind::Other, "serving an MCP client broke off")
                .with_source(error)
                .with_retryable(false)
        })
    }

    /// Converts the server to an HTTP service.
    #[must_use]
    pub fn into_http(self) -> McpHttp {
        McpHttp::new(McpServerHandler(self.0))
    }
}
