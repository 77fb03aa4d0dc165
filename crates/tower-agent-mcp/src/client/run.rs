use std::time::Duration;

use rmcp::model::CallToolResponse;
use tokio::time::sleep;
use tower_agent::{Result, ToolResponse};

use super::questions::Questions;
use super::remote_call::RemoteCall;
use super::send::send;
use super::{content, task};

/// How often in a row a server may ask for input without asking the user.
const ROUNDS: u32 = 10;

/// Makes a call, with all requests that it takes.
pub(super) async fn run(call: RemoteCall<'_>) -> Result<ToolResponse> {
    let mut questions = Questions::of(&call);
    questions.resolve(&call)?;
    let connection = call.link.connection().await?;
    if let Some(id) = questions.task() {
        return task::follow(&call, connection, id, &mut questions).await;
    }
    for round in 0..ROUNDS {
        match send(&call, &connection, &mut questions).await? {
            CallToolResponse::Complete(result) => return Ok(content::response(result)),
            CallToolResponse::InputRequired(asked) => {
                let requests = asked.input_requests.unwrap_or_default();
                // The server only wants to be asked again later.
                if requests.is_empty() {
                    let wait = Duration::from_millis(50 << round.min(3));
                    sleep(wait).await;
                }
                questions
                    .ask_inputs(&call, requests, asked.request_state)
                    .await?;
            }
            CallToolResponse::Task(created) => {
                let id = created.task.task_id;
                return task::follow(&call, connection, id, &mut questions).await;
            }
            _ => return Err(call.protocol_error("sent an unexpected response")),
        }
    }
    Err(call.protocol_error(&format!("asked for input more than {ROUNDS} times")))
}
