use serde::{Deserialize, Serialize};

use crate::context::Suspended;
use crate::error::Pending;
use crate::message::Messages;

/// Where an interrupted run stopped: all that another process needs to
/// [resume](super::AgentRequest::resume) it, but for the session's state.
///
/// It serialises. Keep it where the one who answers cannot change it.
///
/// ```
/// use serde_json::{Value, json};
/// use tower_agent::testing::{ScriptedModel, Turn};
/// use tower_agent::{Agent, AgentRequest, Checkpoint, Resolution, Tool};
/// use tower_agent::guard::approval::Approval;
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), tower_agent::BoxError> {
/// let model = ScriptedModel::new([Turn::tool("wipe", json!("disk")), Turn::text("Wiped.")]);
/// let agent = Agent::builder(model)
///     .tool(Tool::function("wipe", "Wipes.", |_: String| "done"))
///     .on_tool(Approval::of_tools(["wipe"]))
///     .build()?;
///
/// let paused = agent.run("Wipe the disk.").await?;
/// let Some(checkpoint) = paused.checkpoint() else { panic!("it waits") };
/// let saved = serde_json::to_string(&checkpoint)?;
///
/// let checkpoint: Checkpoint = serde_json::from_str(&saved)?;
/// let yes = checkpoint
///     .pending
///     .iter()
///     .map(|pending| Resolution::resolved(&pending.id, json!({ "approved": true })))
///     .collect::<Vec<_>>();
/// let response = agent.run(AgentRequest::resume(checkpoint).with_resolutions(yes)).await?;
/// assert_eq!(response.text(), "Wiped.");
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct Checkpoint {
    /// The whole conversation.
    pub messages: Messages,
    /// What the run waits for.
    pub pending: Vec<Pending>,
    /// The conversations that stand in no transcript but their own.
    #[serde(default, skip_serializing_if = "Suspended::is_empty")]
    pub(crate) suspended: Suspended,
}
