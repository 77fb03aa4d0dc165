//! A server made of a function, and clients of it.
#![allow(deprecated)]

use std::borrow::Cow;
use std::io;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use futures::future::BoxFuture;
use rmcp::model::*;
use rmcp::service::{RequestContext, RoleServer, SubscriptionContext};
use rmcp::{ServerHandler, ServiceExt};
use serde_json::{Value, json};
use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader, DuplexStream};
use tokio::sync::{Notify, oneshot};
use tokio::time::Instant;
use tower::ServiceExt as _;
use tower_agent::message::{ToolCall, ToolResult};
use tower_agent::{Agent, AgentResponse, Error, Message, ToolRequest, ToolResponse};
use tower_agent_mcp::client::{Lifecycle, McpClient, McpClientBuilder};
use tower_agent_mcp::server::McpServer;
use tower_agent_test::ScriptedModel;

/// How long a test waits for what must come, and then fails rather than hangs: far less than the
/// time that a call may take, and far more than one takes here.
pub(crate) const SOON: Duration = Duration::from_secs(20);

pub(crate) type Answer = Result<CallToolResponse, ErrorData>;

type OnCall = dyn Fn(CallToolRequestParams, RequestContext<RoleServer>) -> BoxFuture<'static, Answer>
    + Send
    + Sync;

type OnTask = dyn Fn(TaskRequest) -> Result<Option<DetailedTask>, ErrorData> + Send + Sync;

/// A request about a task.
pub(crate) enum TaskRequest {
    Get,
    Update(InputResponses),
    Cancel,
}

/// The state of a server that a test reads and changes while it runs.
#[derive(Default)]
pub(crate) struct World {
    pub(crate) tools: Mutex<Vec<Tool>>,
    pub(crate) ttl: Mutex<Option<u64>>,
    pub(crate) refuses_lists: AtomicBool,
    pub(crate) lists: AtomicUsize,
    pub(crate) connections: AtomicUsize,
    pub(crate) changed: Notify,
    /// How often a change is reported beyond once.
    pub(crate) repeats: AtomicUsize,
    /// Ends the reports of changes.
    pub(crate) silenced: Notify,
    /// Ends each subscription to changes at once.
    pub(crate) is_silent: AtomicBool,
    /// The times at which the client subscribed.
    pub(crate) subscriptions: Mutex<Vec<Instant>>,
    /// Kills the connections that there are.
    pub(crate) kill: Notify,
    /// Refuses the next connections.
    pub(crate) refuses: AtomicUsize,
}

#[derive(Clone)]
pub(crate) struct Server {
    pub(crate) world: Arc<World>,
    on_call: Arc<OnCall>,
    on_task: Option<Arc<OnTask>>,
    versions: Cow<'static, [ProtocolVersion]>,
    hangs_up: bool,
}

impl Server {
    pub(crate) fn new<F, A>(on_call: F) -> Self
    where
        F: Fn(CallToolRequestParams, RequestContext<RoleServer>) -> A + Send + Sync + 'static,
        A: Future<Output = Answer> + Send + 'static,
    {
        let world = World::default();
        world.tools.lock().unwrap().push(tool("echo"));
        Self {
            world: Arc::new(world),
            on_call: Arc::new(move |params, context| Box::pin(on_call(params, context))),
            on_task: None,
            versions: ProtocolVersion::KNOWN_VERSIONS.into(),
            hangs_up: false,
        }
    }

    /// Answers every call with its arguments.
    pub(crate) fn echo() -> Self {
        Self::new(async |params, _| Ok(said(&json!(params.arguments).to_string())))
    }

    pub(crate) fn with_tools(self, tools: impl IntoIterator<Item = Tool>) -> Self {
        *self.world.tools.lock().unwrap() = tools.into_iter().collect();
        self
    }

    pub(crate) fn on_task(
        mut self,
        on_task: impl Fn(TaskRequest) -> Result<Option<DetailedTask>, ErrorData> + Send + Sync + 'static,
    ) -> Self {
        self.on_task = Some(Arc::new(on_task));
        self
    }

    /// Speaks only protocol versions with `initialize`.
    pub(crate) fn only_initialize(mut self) -> Self {
        self.versions = vec![ProtocolVersion::V_2025_11_25].into();
        self
    }

    /// Closes a connection that does not begin with `initialize`.
    pub(crate) fn hanging_up(mut self) -> Self {
        self.hangs_up = true;
        self
    }

    /// Returns a builder of a client that connects to this server in memory.
    pub(crate) fn client(&self) -> McpClientBuilder {
        let server = self.clone();
        McpClient::stream(move || {
            let server = server.clone();
            async move { server.accept() }
        })
        .name("test")
    }

    /// Connects a client to this server in memory.
    pub(crate) async fn connect(&self, lifecycle: Lifecycle) -> McpClient {
        connected(self.client().lifecycle(lifecycle)).await
    }

    fn accept(&self) -> io::Result<DuplexStream> {
        let world = &self.world;
        if world
            .refuses
            .fetch_update(Ordering::SeqCst, Ordering::SeqCst, |left| {
                left.checked_sub(1)
            })
            .is_ok()
        {
            return Err(io::ErrorKind::ConnectionRefused.into());
        }
        world.connections.fetch_add(1, Ordering::SeqCst);
        let (ours, theirs) = tokio::io::duplex(1 << 16);
        let server = self.clone();
        tokio::spawn(async move {
            let world = server.world.clone();
            let killed = world.kill.notified();
            let served = async {
                let (ours, answers) = tokio::io::split(ours);
                let mut ours = BufReader::new(ours);
                let mut first = String::new();
                if server.hangs_up {
                    ours.read_line(&mut first).await.unwrap();
                    if !first.contains("\"initialize\"") {
                        return;
                    }
                }
                let ours = io::Cursor::new(first).chain(ours);
                if let Ok(running) = server.serve((ours, answers)).await {
                    let _ = running.waiting().await;
                }
            };
            tokio::select! {
                () = killed => {}
                () = served => {}
            }
        });
        Ok(theirs)
    }
}

impl ServerHandler for Server {
    fn get_info(&self) -> ServerConfig {
        let capabilities = ServerCapabilities::builder()
            .enable_tools()
            .enable_tool_list_changed()
            .enable_tasks();
        ServerConfig::new(capabilities.build())
    }

    fn supported_protocol_versions(&self) -> Cow<'static, [ProtocolVersion]> {
        self.versions.clone()
    }

    async fn list_tools(
        &self,
        _: Option<PaginatedRequestParams>,
        _: RequestContext<RoleServer>,
    ) -> Result<ListToolsResult, ErrorData> {
        self.world.lists.fetch_add(1, Ordering::SeqCst);
        if self.world.refuses_lists.load(Ordering::SeqCst) {
            return Err(ErrorData::internal_error("no list today", None));
        }
        let mut result = ListToolsResult::with_all_items(self.world.tools.lock().unwrap().clone());
        result.ttl_ms = Some(self.world.ttl.lock().unwrap().unwrap_or(3_600_000));
        result.cache_scope = Some(CacheScope::Private);
        Ok(result)
    }

    async fn call_tool(
        &self,
        params: CallToolRequestParams,
        context: RequestContext<RoleServer>,
    ) -> Answer {
        (self.on_call)(params, context).await
    }

    fn accepted_subscription_filter(
        &self,
        asked: &SubscriptionFilter,
    ) -> Option<SubscriptionFilter> {
        Some(asked.clone())
    }

    async fn listen(&self, context: SubscriptionContext) -> Result<(), ErrorData> {
        self.world
            .subscriptions
            .lock()
            .unwrap()
            .push(Instant::now());
        if self.world.is_silent.load(Ordering::SeqCst) {
            return Ok(());
        }
        loop {
            tokio::select! {
                () = context.cancelled() => return Ok(()),
                () = self.world.silenced.notified() => return Ok(()),
                () = self.world.changed.notified() => {
                    for _ in 0..=self.world.repeats.load(Ordering::SeqCst) {
                        let _ = context.sink().notify_tool_list_changed().await;
                    }
                }
            }
        }
    }

    async fn get_task(
        &self,
        _: GetTaskParams,
        _: RequestContext<RoleServer>,
    ) -> Result<GetTaskResult, ErrorData> {
        let task = self.on_task.as_ref().unwrap()(TaskRequest::Get)?;
        Ok(GetTaskResult::new(task.unwrap()))
    }

    async fn update_task(
        &self,
        params: UpdateTaskParams,
        _: RequestContext<RoleServer>,
    ) -> Result<(), ErrorData> {
        self.on_task.as_ref().unwrap()(TaskRequest::Update(params.input_responses)).map(drop)
    }

    async fn cancel_task(
        &self,
        _: CancelTaskParams,
        _: RequestContext<RoleServer>,
    ) -> Result<(), ErrorData> {
        self.on_task.as_ref().unwrap()(TaskRequest::Cancel).map(drop)
    }
}

/// Returns a builder of a client of a server that speaks the earlier lifecycle and says whatever
/// `answers` returns to a message, after the list of one tool.
pub(crate) fn scripted(
    answers: impl Fn(&Value) -> Vec<Value> + Send + Sync + 'static,
) -> McpClientBuilder {
    let answers = Arc::new(answers);
    let builder = McpClient::stream(move || {
        let (ours, theirs) = tokio::io::duplex(1 << 16);
        let answers = answers.clone();
        tokio::spawn(async move {
            let (read, mut write) = tokio::io::split(ours);
            let mut lines = BufReader::new(read).lines();
            while let Ok(Some(line)) = lines.next_line().await {
                let message: Value = serde_json::from_str(&line).unwrap();
                let result = |result: Value| {
                    vec![json!({ "jsonrpc": "2.0", "id": message["id"], "result": result })]
                };
                let said = match message["method"].as_str() {
                    Some("initialize") => result(json!({
                        "protocolVersion": "2025-11-25",
                        "capabilities": { "tools": {} },
                        "serverInfo": { "name": "scripted", "version": "1" },
                    })),
                    Some("tools/list") if message["params"]["cursor"].is_null() => {
                        let mut said = answers(&message);
                        if said.is_empty() {
                            said = result(json!({ "tools": [tool("echo")] }));
                        }
                        said
                    }
                    _ => answers(&message),
                };
                for line in said {
                    if write
                        .write_all(format!("{line}\n").as_bytes())
                        .await
                        .is_err()
                    {
                        return;
                    }
                }
            }
        });
        async { Ok(theirs) }
    });
    builder.name("scripted").lifecycle(Lifecycle::Initialize)
}

/// Both ways to agree on a protocol version.
pub(crate) const LIFECYCLES: [Lifecycle; 2] = [Lifecycle::Initialize, Lifecycle::Discover];

pub(crate) fn tool(name: &'static str) -> Tool {
    let schema = json!({ "type": "object", "properties": { "text": { "type": "string" } } });
    let Value::Object(schema) = schema else {
        unreachable!()
    };
    Tool::new(name, format!("Does {name}."), schema)
}

pub(crate) fn said(text: &str) -> CallToolResponse {
    CallToolResult::success(vec![ContentBlock::text(text)]).into()
}

pub(crate) fn call(tool: &str, arguments: Value) -> ToolRequest {
    ToolRequest::new(ToolCall::new("call_1", tool, arguments))
}

/// Connects a client, which must succeed.
pub(crate) async fn connected(client: McpClientBuilder) -> McpClient {
    client.connect().await.unwrap()
}

/// Returns a server of this agent alone.
pub(crate) fn serving(agent: Agent) -> McpServer {
    McpServer::builder("test", "1.0.0")
        .agent(agent)
        .build()
        .unwrap()
}

/// Returns an agent with the tools of the client's server.
pub(crate) async fn agent_with_tools_of(client: &McpClient, model: ScriptedModel) -> Agent {
    Agent::builder(model)
        .tools(client.tools().await)
        .build()
        .unwrap()
}

/// Returns the first result of a tool in the conversation.
pub(crate) fn first_result(response: &AgentResponse) -> ToolResult {
    let mut results = response.messages().iter().flat_map(Message::tool_results);
    results.next().unwrap().clone()
}

pub(crate) async fn ask(
    client: &McpClient,
    tool: &str,
    arguments: Value,
) -> Result<ToolResponse, Error> {
    client.clone().oneshot(call(tool, arguments)).await
}

pub(crate) async fn names(client: &McpClient) -> Vec<String> {
    let tools = client.tools().await;
    tools
        .iter()
        .map(|tool| tool.declaration().name().to_owned())
        .collect()
}

/// Asks the user during a call.
pub(crate) async fn elicit(
    context: &RequestContext<RoleServer>,
    question: ElicitRequestParams,
) -> Result<ElicitResult, rmcp::ServiceError> {
    let request = ServerRequest::ElicitRequest(ElicitRequest::new(question));
    match context.peer.send_request(request).await? {
        ClientResult::ElicitResult(answer) => Ok(answer),
        _ => Err(rmcp::ServiceError::UnexpectedResponse),
    }
}

/// A server that answers when fifty calls are there, the last first.
pub(crate) fn server_of_fifty() -> Server {
    let waiting: Arc<Mutex<Vec<oneshot::Sender<()>>>> = Arc::default();
    Server::new(move |params, _| {
        let waiting = waiting.clone();
        async move {
            let (go, goes) = oneshot::channel();
            let all = {
                let mut waiting = waiting.lock().unwrap();
                waiting.push(go);
                (waiting.len() == 50).then(|| std::mem::take(&mut *waiting))
            };
            all.into_iter()
                .flatten()
                .rev()
                .for_each(|go| go.send(()).unwrap());
            goes.await.unwrap();
            Ok(said(&json!(params.arguments).to_string()))
        }
    })
}

/// Makes fifty calls of that server, and asserts that each gets its own answer.
pub(crate) async fn fifty_at_once(client: &McpClient) {
    let calls = (0..50).map(|n| async move { (n, ask(client, "echo", json!({ "n": n })).await) });
    for (n, answer) in futures::future::join_all(calls).await {
        assert_eq!(answer.unwrap().value(), &json!(format!(r#"{{"n":{n}}}"#)));
    }
}
