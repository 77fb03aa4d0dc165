use schemars::JsonSchema;
use serde::Deserialize;

use super::agent::Agent;
use crate::call::Request;
use crate::error::{Error, Result};
use crate::message::Message;
use crate::run::{AgentRequest, AgentResponse};
use crate::tool::{Tool, ToolRequest, ToolResponse};

/// The arguments of an agent as a tool.
#[derive(Deserialize, JsonSchema)]
struct AgentToolArguments {
    /// The question, with all information that is needed to answer it.
    request: String,
}

impl Agent {
    /// Converts this agent to a tool for another agent, with this agent's name. The text of its
    /// final message is the tool's value. If that is [no answer](AgentResponse::no_answer), the
    /// value says why after the text.
    ///
    /// It runs within the caller's run, on its own conversation, which starts with the tool's one
    /// argument, `request`. Its own callbacks run, and then the caller's `after_tool`. An error
    /// becomes the tool's error, with the same kind. An abort inside ends the whole run and keeps
    /// its type and the path to its origin. If it is interrupted, the caller is interrupted too,
    /// with all its interrupts.
    ///
    /// The caller's [`Checkpoint`](crate::Checkpoint) contains its conversation, also after a
    /// failed or dropped run, and a resumed run continues it. A run with only the caller's messages
    /// starts it over.
    ///
    /// ```
    /// use serde_json::json;
    /// use tower_agent::Agent;
    /// use tower_agent_test::{ScriptedModel, Turn};
    ///
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), tower_agent::BoxError> {
    /// let geographer = ScriptedModel::new([Turn::from_text("Oslo")]);
    /// let geographer = Agent::builder(geographer).name("geographer").build()?;
    ///
    /// let model = ScriptedModel::new([
    ///     Turn::tool("geographer", json!({ "request": "The capital of Norway?" })),
    ///     Turn::from_text("It is Oslo."),
    /// ]);
    /// let agent = Agent::builder(model)
    ///     .tool(geographer.into_tool("Knows every capital."))
    ///     .build()?;
    /// assert_eq!(agent.run("What is the capital of Norway?").await?.text(), "It is Oslo.");
    /// # Ok(())
    /// # }
    /// ```
    pub fn into_tool(self, description: impl Into<String>) -> Tool {
        let name = self.name().to_owned();
        let inner_tools = self.known_tools().clone();
        let outline = self.outline();
        let tool = Tool::function_with(name, description, move |arguments, call| {
            answer(self.clone(), arguments, call)
        });
        tool.of_agent(inner_tools, outline)
    }
}

/// Runs the agent for one tool call, or continues the run that an earlier call of the same id
/// began.
async fn answer(
    agent: Agent,
    arguments: AgentToolArguments,
    call: ToolRequest,
) -> Result<ToolResponse> {
    let context = call.context();
    let question = Message::user(arguments.request);
    let record = context
        .place()
        .working(context.own_tool_call(), agent.name(), &question);
    // The agent finished before the run was interrupted: it must not answer twice.
    if let Some(answer) = record.take_answer() {
        return Ok(told(&AgentResponse::new(answer)));
    }
    let mut request = record.request();
    if request.is_empty() {
        request = [question].into();
    }
    let request = AgentRequest::conversation(request).with_context(context.clone());
    // The record is part of the caller's, whose checkpoint then has this progress as well.
    let result = agent.run(request.with_record(record)).await;
    // The caller's checkpoint contains this conversation; this one alone could not be resumed.
    let response = result.map_err(Error::without_checkpoint)?;
    match response.interrupts() {
        [] => Ok(told(&response)),
        interrupts => Err(Error::interrupt_all(interrupts.iter().cloned())),
    }
}

/// Returns what the caller's model reads. It cannot see how the model's turn ended otherwise.
fn told(response: &AgentResponse) -> ToolResponse {
    let text = response.text();
    ToolResponse::new(match response.no_answer() {
        None => text,
        Some(why) if text.trim().is_empty() => format!("({why})"),
        Some(why) => format!("{text}\n\n({why})"),
    })
}
