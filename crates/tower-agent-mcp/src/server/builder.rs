use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::sync::Arc;
use std::time::Duration;

use tower_agent::{Agent, Error, RunContext, Tool};

use super::bounds;
use super::failure::FailureMessage;
use super::handler::ServerInner;
use super::http_settings::HttpSettings;
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
    failure_message: FailureMessage,
    run_time: Duration,
    http: HttpSettings,
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
            failure_message: FailureMessage::default(),
            run_time: bounds::RUN_TIME,
            http: HttpSettings::default(),
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

    /// Sets the secret key that seals the checkpoints of interrupted runs: random bytes, the same
    /// in every process that continues them. Defaults to random bytes of this process.
    pub fn seal_key(mut self, key: [u8; 32]) -> Self {
        self.key = Some(key);
        self
    }

    /// Sets the host names that HTTP requests may be for, such as `mcp.example.com`. Other requests
    /// are rejected, so that no page in a browser reaches a server on its user's machine by another
    /// name. Defaults to `localhost`, `127.0.0.1` and `::1`.
    pub fn allowed_hosts(mut self, hosts: impl IntoIterator<Item = impl Into<String>>) -> Self {
        self.http.hosts = Some(hosts.into_iter().map(Into::into).collect());
        self
    }

    /// Sets the origins whose pages may call the server from a browser, such as
    /// `https://app.example.com:443`; `:*` stands for any port. A request of a page of another
    /// origin is rejected with 403, and so is `Origin: null`. A request without `Origin` comes from
    /// no page.
    ///
    /// Defaults to pages of the [allowed hosts](Self::allowed_hosts), by HTTP and HTTPS.
    pub fn allowed_origins(mut self, origins: impl IntoIterator<Item = impl Into<String>>) -> Self {
        self.http.origins = Some(origins.into_iter().map(Into::into).collect());
        self
    }

    /// Sets the function that identifies the sender of an HTTP request, for example from what an
    /// authentication layer has put into the extensions. Tools and callbacks read it from the
    /// [`Caller`](super::Caller).
    ///
    /// A question that waits, and a session, belongs to the principal whose call it came from: they
    /// are unknown to all others. If the function returns `None`, the request is rejected with 401.
    /// Clients that are connected in another way have no principal.
    ///
    /// ```
    /// use tower_agent_mcp::server::McpServer;
    /// # use tower_agent::Agent;
    /// # use tower_agent_test::ScriptedModel;
    ///
    /// /// Inserted by a layer that has verified a token.
    /// #[derive(Clone)]
    /// struct User(String);
    ///
    /// # fn main() -> Result<(), tower_agent::BoxError> {
    /// # let agent = Agent::builder(ScriptedModel::new([])).build()?;
    /// let server = McpServer::builder("support", "1.0.0")
    ///     .agent(agent)
    ///     .principal(|parts| Some(parts.extensions.get::<User>()?.0.clone()))
    ///     .build()?;
    /// # drop(server);
    /// # Ok(())
    /// # }
    /// ```
    pub fn principal<P: Into<Arc<str>>>(
        mut self,
        of: impl Fn(&http::request::Parts) -> Option<P> + Send + Sync + 'static,
    ) -> Self {
        self.http.principal = Some(Arc::new(move |parts| of(parts).map(Into::into)));
        self
    }

    /// Sets the function that chooses what a client reads of an error of an agent or a tool. `None`
    /// stands for the default: the error's [text for models](tower_agent::Error::model_message), or
    /// else a general text with the id of the run.
    ///
    /// An error may quote a database or a secret, so its own text is not sent unless this function
    /// returns it. The whole error goes to the log, as a `tracing` warning with the same id. The
    /// words of a [`ToolResponse::error`](tower_agent::ToolResponse::error), and what is wrong with
    /// a call's arguments, are always sent.
    ///
    /// ```
    /// use tower_agent_mcp::server::McpServer;
    ///
    /// // A server for the user of this machine alone, who may read everything.
    /// let server = McpServer::builder("files", "1.0.0")
    ///     .failure_message(|error, _| Some(error.to_string()));
    /// # drop(server);
    /// ```
    pub fn failure_message(
        mut self,
        message: impl Fn(&Error, &RunContext) -> Option<String> + Send + Sync + 'static,
    ) -> Self {
        self.failure_message = FailureMessage::new(message);
        self
    }

    /// Sets how large the body of an HTTP request may be, in bytes. A larger one is rejected
    /// with 413. Defaults to 4 MiB. One that begins a session may have 64 KiB, since what a client
    /// says of itself is kept with the session.
    pub fn max_request(mut self, bytes: usize) -> Self {
        self.http.max_request = bytes;
        self
    }

    /// Sets the time in which the body of an HTTP request has to arrive. A slower one is rejected
    /// with 408. Defaults to 30 seconds.
    pub fn body_timeout(mut self, time: Duration) -> Self {
        self.http.body_time = time;
        self
    }

    /// Sets how many HTTP requests are answered at once, from the time that one is accepted until
    /// its response has ended or is dropped. Others are rejected, with 503. Defaults to 1,000.
    ///
    /// Nearly all that takes longer than a moment is a call, which is a run.
    pub fn max_runs(mut self, runs: usize) -> Self {
        self.http.max_runs = runs;
        self
    }

    /// Sets how many HTTP requests of one [principal](Self::principal) are answered at once, among
    /// those of [all](Self::max_runs). Others are rejected, with 429. Defaults to 100; has no
    /// effect without a principal.
    pub fn max_runs_per_principal(mut self, runs: usize) -> Self {
        self.http.max_runs_per_principal = runs;
        self
    }

    /// Sets how long a call may take, with the questions that are asked during it. Then it is
    /// dropped, and its result is an error. Defaults to an hour; `Duration::MAX` stands for no
    /// limit. A call that ends with a question has ended: the next one has the time anew.
    ///
    /// ```
    /// use std::time::Duration;
    ///
    /// use tower_agent_mcp::server::McpServer;
    ///
    /// let server = McpServer::builder("files", "1.0.0").max_run_time(Duration::from_secs(600));
    /// # drop(server);
    /// ```
    pub fn max_run_time(mut self, time: Duration) -> Self {
        self.run_time = time;
        self
    }

    /// Sets how long a client may take nothing of an HTTP response, although there is something for
    /// it. Then, or after up to twice that time, it is let go as if it had closed the connection:
    /// its call is dropped. Defaults to a minute.
    ///
    /// The time in which a client waits for the answer does not count. The connection itself is the
    /// HTTP server's to close.
    pub fn read_timeout(mut self, time: Duration) -> Self {
        self.http.read_time = time;
        self
    }

    /// Sets how many sessions there can be at once, of clients of protocol versions before
    /// 2026-07-28: each takes memory, and everybody who reaches the server can begin one. A client
    /// that would begin one more is rejected with 503 and `Retry-After`. Defaults to 10,000.
    pub fn max_sessions(mut self, sessions: usize) -> Self {
        self.http.max_sessions = sessions;
        self
    }

    /// Sets the time without a message after which a session ends. Defaults to 5 minutes.
    pub fn session_timeout(mut self, idle: Duration) -> Self {
        self.http.session_timeout = idle;
        self
    }

    /// Sets whether a call over HTTP is answered with JSON in place of a stream of events, whenever
    /// nothing comes before the answer. Defaults to `false`: only large answers are JSON, and those
    /// in a session.
    pub fn answer_with_json(mut self, json: bool) -> Self {
        self.http.answers_with_json = json;
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
            failure_message: self.failure_message,
            run_time: self.run_time,
            http: self.http,
        }))
    }
}
