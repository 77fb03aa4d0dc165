use std::fmt;
use std::sync::Arc;

use futures_util::{FutureExt, StreamExt};
use serde_json::{Value, json};
use tokio::sync::mpsc;
use tower::ServiceExt;
use tower_agent::call::Request;
use tower_agent::message::ToolCall;
use tower_agent::stream::Event;
use tower_agent::tool::{BoxTool, ToolDeclaration};
use tower_agent::{
    Agent, AgentRequest, CancellationToken, Checkpoint, Error, ErrorKind, Resolution, Result,
    RunContext, Tool, ToolRequest, ToolResponse,
};

use super::caller::Sender;
use super::progress::Progress;
use super::saved::paused;

/// The capacity of the channel for a tool's events.
const EVENTS: usize = 16;

/// An agent or a tool, served as one tool.
#[derive(Clone)]
pub(super) struct Served {
    declaration: Arc<ToolDeclaration>,
    kind: Kind,
}

#[derive(Clone)]
enum Kind {
    Agent(Agent),
    Tool(BoxTool),
}

/// One part of a call: from its start, or from where the last part was interrupted.
pub(super) struct Part {
    pub(super) arguments: Value,
    /// `None` for the first part.
    pub(super) checkpoint: Option<Checkpoint>,
    pub(super) resolutions: Vec<Resolution>,
    pub(super) token: CancellationToken,
    /// The channel for progress, if the client asks for it.
    pub(super) progress: Option<mpsc::Sender<Progress>>,
    pub(super) sender: Sender,
}

/// The end of a part of a call.
pub(super) enum Ended {
    Completed(ToolResponse),
    Interrupted(Box<Checkpoint>),
    Failed(Error, RunContext),
}

impl Served {
    pub(super) fn agent(agent: Agent) -> Self {
        let parameters = json!({
            "type": "object",
            "properties": { "request": {
                "type": "string",
                "description": "The question, with all information that is needed to answer it.",
            } },
            "required": ["request"],
        });
        let declaration = ToolDeclaration::new(agent.name(), agent.description());
        let declaration = Arc::new(declaration.with_parameters(parameters));
        Self {
            declaration,
            kind: Kind::Agent(agent),
        }
    }

    pub(super) fn tool(tool: Tool) -> Self {
        let declaration = tool.declaration().clone();
        Self {
            declaration,
            kind: Kind::Tool(tool.into_service()),
        }
    }

    pub(super) fn declaration(&self) -> &ToolDeclaration {
        &self.declaration
    }

    /// Fails for arguments that do not match the declaration: a client may send anything, and no
    /// loop of an agent has checked it before.
    pub(super) fn check(&self, arguments: &Value) -> Result<()> {
        self.declaration.check_arguments(arguments)
    }

    /// Runs a part of a call, whose arguments were [checked](Self::check).
    pub(super) async fn run(&self, part: Part) -> Ended {
        let request = match &part.checkpoint {
            Some(checkpoint) => AgentRequest::resume(checkpoint.clone()),
            None => self.first_request(&part.arguments),
        };
        let request = part
            .sender
            .introduce(request)
            .with_resolutions(part.resolutions.clone())
            .with_cancellation(part.token.clone());
        let context = request.context().clone();
        let ended = match &self.kind {
            Kind::Agent(agent) => run_agent(agent, request, part.progress).await,
            Kind::Tool(tool) => run_tool(tool, &self.declaration, part, &context).await,
        };
        ended.unwrap_or_else(|error| Ended::Failed(error, context))
    }

    fn first_request(&self, arguments: &Value) -> AgentRequest {
        match &self.kind {
            Kind::Agent(_) => AgentRequest::new(arguments["request"].as_str().unwrap_or_default()),
            Kind::Tool(_) => AgentRequest::resume(Checkpoint::default()),
        }
    }
}

async fn run_agent(
    agent: &Agent,
    request: AgentRequest,
    progress: Option<mpsc::Sender<Progress>>,
) -> Result<Ended> {
    let response = match progress {
        // Without a reader of events, a stream would be work for nothing.
        None => agent.run(request).await,
        Some(client) => {
            let mut run = agent.stream(request);
            while let Some(event) = run.next().await {
                if let Some(progress) = Progress::of_agent(event.kind) {
                    // A client that reads no more progress still waits for the result.
                    drop(client.send(progress).await);
                }
            }
            run.response().await
        }
    }?;
    match response.interrupts() {
        [] => Ok(Ended::Completed(ToolResponse::new(response.text()))),
        _ => Ok(Ended::Interrupted(Box::new(response.checkpoint()))),
    }
}

/// Runs a tool alone, in a run of its own. An interrupt keeps the run's private state, and nothing
/// else.
async fn run_tool(
    tool: &BoxTool,
    declaration: &Arc<ToolDeclaration>,
    part: Part,
    context: &RunContext,
) -> Result<Ended> {
    let call = ToolCall::new("call", declaration.name(), part.arguments);
    let request = ToolRequest::new(call).with_declaration(Some(declaration.clone()));
    let response = match part.progress {
        None => {
            tool.clone()
                .oneshot(request.with_context(context.clone()))
                .await
        }
        Some(client) => {
            let (watched, mut events) = context.watched(declaration.name().into(), EVENTS);
            let mut call = tool.clone().oneshot(request.with_context(watched));
            let ended = loop {
                tokio::select! {
                    Some(event) = events.next() => send_progress(&client, &event).await,
                    ended = &mut call => break ended,
                }
            };
            // Events that the tool emitted just before it returned. Without waiting: a task that it
            // has left behind may hold the channel open.
            while let Some(Some(event)) = events.next().now_or_never() {
                send_progress(&client, &event).await;
            }
            ended
        }
    };
    match response {
        Ok(response) => Ok(Ended::Completed(response)),
        Err(error) if error.kind() == ErrorKind::Interrupted => {
            let interrupts = error.interrupts();
            let checkpoint = paused(interrupts, context.private_state().snapshot())?;
            Ok(Ended::Interrupted(Box::new(checkpoint)))
        }
        Err(error) => Err(error),
    }
}

async fn send_progress(client: &mpsc::Sender<Progress>, event: &Event) {
    if let Some(progress) = Progress::of_tool(&event.kind) {
        // A client that reads no more progress still waits for the result.
        drop(client.send(progress).await);
    }
}

impl fmt::Debug for Served {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Served")
            .field(&self.declaration.name())
            .finish()
    }
}
