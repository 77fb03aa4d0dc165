use std::future::Future;
use std::io;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::process::Command;
use tower::Service;
use tower_agent::BoxError;
use tower_agent::model::{BoxModel, ModelService};
use tower_agent::tool::ToolDeclaration;
use tower_agent::{Effect, Result};
#[cfg(feature = "oauth")]
use tower_agent::{Error, ErrorKind};

use super::config::Config;
use super::environment;
use super::lifecycle::Lifecycle;
use super::log::{LogLevel, LogMessage};
use super::mcp_client::McpClient;
#[cfg(feature = "oauth")]
use super::oauth::OAuth;
use super::transport::{Endpoint, HttpEndpoint};
use crate::trace::Network;

/// Builds an [`McpClient`].
#[derive(Debug)]
#[must_use]
pub struct McpClientBuilder {
    endpoint: Endpoint,
    config: Config,
    #[cfg(feature = "oauth")]
    oauth: Option<OAuth>,
}

impl McpClient {
    /// Creates a builder of a client of a child process that speaks MCP on its standard input and
    /// output. Its standard error is that of this process, unless the command sets it.
    ///
    /// The process is started when the client connects, and again if it dies. When the client is
    /// dropped, its standard input is closed, and it is killed if it does not exit within 3 s.
    ///
    /// Of the environment of this process it is given `HOME`, `LANG`, `LOGNAME`, `PATH`, `SHELL`,
    /// `TERM`, `TMPDIR` and `USER` (on Windows those that programs need there), and nothing else: a
    /// server is code of others, and the environment has keys. Give it more by name:
    ///
    /// ```
    /// use tokio::process::Command;
    /// use tower_agent_mcp::client::McpClient;
    ///
    /// let mut command = Command::new("github-mcp-server");
    /// command.arg("stdio").env("GITHUB_TOKEN", "..");
    /// let builder = McpClient::child_process(command);
    /// # drop(builder);
    /// ```
    pub fn child_process(mut command: Command) -> McpClientBuilder {
        environment::restrict(&mut command);
        let program = command
            .as_std()
            .get_program()
            .to_string_lossy()
            .into_owned();
        let mut builder = McpClientBuilder::new(Endpoint::child_process(command), program);
        builder.config.network.transport = Some("pipe");
        builder
    }

    /// Creates a builder of a client of a server at a URL, over streamable HTTP.
    ///
    /// `service` is any HTTP service, such as the `HttpClient` of `tower-agent-providers`, and
    /// layers around it, for example one that authenticates:
    ///
    /// ```
    /// use http::HeaderValue;
    /// use http::header::AUTHORIZATION;
    /// use tower::ServiceBuilder;
    /// use tower_agent::BoxError;
    /// use tower_agent_mcp::client::McpClient;
    /// use tower_agent_providers::{HttpClient, RequestBody};
    ///
    /// # async fn connect(token: &str) -> Result<McpClient, BoxError> {
    /// let mut token = HeaderValue::try_from(format!("Bearer {token}"))?;
    /// token.set_sensitive(true);
    /// let http = ServiceBuilder::new()
    ///     .map_request(move |mut request: http::Request<RequestBody>| {
    ///         request.headers_mut().insert(AUTHORIZATION, token.clone());
    ///         request
    ///     })
    ///     .service(HttpClient::shared()?);
    /// let client = McpClient::http("https://mcp.example.com/mcp", http).connect().await?;
    /// # Ok(client)
    /// # }
    /// ```
    pub fn http<S, Q, B>(url: impl Into<Arc<str>>, service: S) -> McpClientBuilder
    where
        S: Service<http::Request<Q>, Response = http::Response<B>> + Clone + Send + Sync + 'static,
        S::Error: Into<BoxError>,
        S::Future: Send,
        Q: From<Bytes> + Send + 'static,
        B: http_body::Body<Data: Send, Error: Into<BoxError>> + Send + 'static,
    {
        let url = url.into();
        let server = url.split(['?', '#']).next().unwrap_or_default().to_owned();
        let address = url.parse::<http::Uri>().unwrap_or_default();
        let endpoint = Endpoint::Http(HttpEndpoint::new(url, service));
        let mut builder = McpClientBuilder::new(endpoint, server);
        builder.config.network = Network {
            transport: Some("tcp"),
            address: address.host().map(str::to_owned),
            port: address.port_u16(),
        };
        builder
    }

    /// Creates a builder of a client of a server at the other end of a stream, such as a socket.
    ///
    /// `open` opens a stream whenever the client connects. The messages on it are those of a child
    /// process: JSON, one a line.
    pub fn stream<F, O, S>(open: F) -> McpClientBuilder
    where
        F: Fn() -> O + Send + Sync + 'static,
        O: Future<Output = io::Result<S>> + Send + 'static,
        S: AsyncRead + AsyncWrite + Send + 'static,
    {
        McpClientBuilder::new(Endpoint::stream(open), "stream")
    }
}

impl McpClientBuilder {
    fn new(endpoint: Endpoint, server: impl Into<Arc<str>>) -> Self {
        Self {
            endpoint,
            config: Config::new(server),
            #[cfg(feature = "oauth")]
            oauth: None,
        }
    }

    /// Sets the server's name in errors and interrupts. Defaults to the program or the URL.
    pub fn name(mut self, name: impl Into<Arc<str>>) -> Self {
        self.config.server = name.into();
        self
    }

    /// Sets the text before every tool's name, such as `github_`. Defaults to none.
    pub fn prefix(mut self, prefix: impl Into<Arc<str>>) -> Self {
        self.config.prefix = prefix.into();
        self
    }

    /// Sets which tools are used, by the server's own declaration: the name has no prefix. Defaults
    /// to all.
    pub fn filter(
        mut self,
        filter: impl Fn(&ToolDeclaration) -> bool + Send + Sync + 'static,
    ) -> Self {
        self.config.filter = Arc::new(filter);
        self
    }

    /// Sets the side effects of tools, by the server's own declaration: the name has no prefix, and
    /// the effect is what the server's annotations say. Defaults to [`Effect::Mutating`] for all.
    ///
    /// Annotations are hints of the server, which can say anything and change them at any time.
    /// Effects decide what is [retried](Effect), and what
    /// [`Approval::of_effects`](https://docs.rs/tower-agent-middleware/latest/tower_agent_middleware/approval/struct.Approval.html#method.of_effects)
    /// lets pass. Use the annotations of servers that you trust like your own tools:
    ///
    /// ```
    /// # use tower_agent::Effect;
    /// # use tower_agent::tool::ToolDeclaration;
    /// # use tower_agent_mcp::client::McpClientBuilder;
    /// # fn trusted(builder: McpClientBuilder) -> McpClientBuilder {
    /// builder.effect(ToolDeclaration::effect)
    /// # }
    /// # fn known(builder: McpClientBuilder) -> McpClientBuilder {
    /// builder.effect(|tool| match tool.name() {
    ///     "search" => Effect::Pure,
    ///     _ => Effect::Mutating,
    /// })
    /// # }
    /// ```
    pub fn effect(
        mut self,
        effect: impl Fn(&ToolDeclaration) -> Effect + Send + Sync + 'static,
    ) -> Self {
        self.config.effect = Arc::new(effect);
        self
    }

    /// Sets the model that answers when the server asks for a completion (sampling). Guards around
    /// it apply, and its use counts for the run whose call it is. Defaults to none: the server is
    /// refused.
    ///
    /// The server is refused also while it has no call to work on, and while it works for several
    /// runs without saying for which one it asks.
    pub fn sampling(mut self, model: impl ModelService) -> Self {
        self.config.sampling = Some(BoxModel::within_runs(model));
        self
    }

    /// Authorizes the client by [OAuth](super::oauth). Only for servers [over
    /// HTTP](McpClient::http). Defaults to none: a layer around the HTTP service may send a token
    /// of its own.
    #[cfg(feature = "oauth")]
    #[cfg_attr(docsrs, doc(cfg(feature = "oauth")))]
    pub fn oauth(mut self, oauth: OAuth) -> Self {
        self.oauth = Some(oauth);
        self
    }

    /// Adds a directory that the server may work in (a root), relative to that of this process.
    /// Defaults to none: the server is told that the client has no roots.
    ///
    /// A root is a wish. It keeps a server from nothing: limit what its process can read and write.
    pub fn root(mut self, directory: impl Into<PathBuf>) -> Self {
        self.config.roots.push(directory.into());
        self
    }

    /// Sets the least severe log messages that the server is asked for. Defaults to what the server
    /// sends without being asked: since protocol version 2026-07-28 nothing.
    pub fn log_level(mut self, level: LogLevel) -> Self {
        self.config.log_level = Some(level);
        self
    }

    /// Sets the function that takes the server's log messages, in their order. It must not block:
    /// no message of the server is read while it runs.
    ///
    /// Defaults to a `tracing` event of the target `tower_agent_mcp::server_log`, of the same
    /// level, with the beginning of the message.
    pub fn on_log(mut self, on_log: impl Fn(LogMessage) + Send + Sync + 'static) -> Self {
        self.config.on_log = Arc::new(on_log);
        self
    }

    /// Sets how client and server agree on a protocol version. Defaults to [`Lifecycle::Auto`].
    pub fn lifecycle(mut self, lifecycle: Lifecycle) -> Self {
        self.config.lifecycle = lifecycle;
        self
    }

    /// Sets the maximum time for connecting once. Defaults to 30 s.
    pub fn connect_timeout(mut self, timeout: Duration) -> Self {
        self.config.connect_timeout = timeout;
        self
    }

    /// Sets how long a server may take for an answer to `server/discover` before the client
    /// connects again with `initialize`: servers of earlier versions may be silent at a request
    /// that they do not know. Only for [`Lifecycle::Auto`]. Defaults to 10 s.
    pub fn discover_timeout(mut self, timeout: Duration) -> Self {
        self.config.discover_timeout = timeout;
        self
    }

    /// Sets the maximum time in which a call must be answered or make progress. Defaults to 60 s.
    ///
    /// A server that reports progress, or works on a task, can take as long as it likes. Limit the
    /// whole call with a
    /// [timeout](https://docs.rs/tower-agent-middleware/latest/tower_agent_middleware/timeout/)
    /// around the tools.
    pub fn call_timeout(mut self, timeout: Duration) -> Self {
        self.config.call_timeout = timeout;
        self
    }

    /// Sets the maximum size of one message of the server, in bytes. Defaults to 64 MiB.
    ///
    /// Over HTTP, a call with a larger answer fails at once. From a child process or a stream, the
    /// answer is dropped, and its call fails when its time is over.
    pub fn max_message_size(mut self, bytes: usize) -> Self {
        self.config.max_message_size = bytes;
        self
    }

    /// Connects to the server and reads its tools.
    ///
    /// # Errors
    ///
    /// Fails if the server cannot be reached or speaks no common protocol version, or if a root is
    /// no path.
    #[cfg_attr(not(feature = "oauth"), expect(unused_mut))]
    pub async fn connect(mut self) -> Result<McpClient> {
        self.config.list_roots()?;
        #[cfg(feature = "oauth")]
        self.authorize()?;
        McpClient::connect(self.endpoint, self.config).await
    }

    #[cfg(feature = "oauth")]
    fn authorize(&mut self) -> Result<()> {
        let Some(oauth) = self.oauth.take() else {
            return Ok(());
        };
        let server = self.config.server.clone();
        match &mut self.endpoint {
            Endpoint::Http(endpoint) => {
                endpoint.authorize(oauth, server, self.config.logins.clone())
            }
            Endpoint::Child(_) | Endpoint::Stream(_) => {
                let message =
                    format!("MCP server `{server}` is not reached over HTTP: OAuth does not apply");
                Err(Error::new(ErrorKind::InvalidRequest, message))
            }
        }
    }
}
