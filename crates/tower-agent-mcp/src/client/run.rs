use std::time::Duration;

use rmcp::model::CallToolResponse;
use tokio::time::sleep;
use tower_agent::{Result, ToolResponse};

use super::questions::Questions;
use super::remote_call::RemoteCall;
use super::send::send;
use super::transport::Refused;
use super::{content, task};

/// The maximum number of requests in a row that the server answers by asking for input that needs
/// no user. Each may cost a completion.
const ROUNDS: u32 = 10;

/// Makes a call, with all requests that it takes.
pub(super) async fn run(call: RemoteCall<'_>) -> Result<ToolResponse> {
    let mut questions = Questions::of(&call);
    // Before connecting: a question that is still open needs no server to be asked again.
    questions.resolve(&call)?;
    let mut connection = call.link.connection().await?;
    // The call of the run before was answered with a task, which still runs at the server: calling
    // the tool again would do its work twice.
    if let Some(id) = questions.task() {
        return task::follow(&call, connection, id, &mut questions).await;
    }
    for round in 0..ROUNDS {
        let mut sent = send(&call, &connection, &mut questions).await;
        // Once: a server that refuses every session says so to the caller.
        if let Err(error) = &sent
            && Refused::of(error) == Some(Refused::Session)
        {
            connection = call.link.connection().await?;
            sent = send(&call, &connection, &mut questions).await;
        }
        match sent? {
            CallToolResponse::Complete(result) => return Ok(content::response(result)),
            CallToolResponse::InputRequired(required) => {
                let requests = required.input_requests.unwrap_or_default();
                // The server only wants the request again later.
                if requests.is_empty() {
                    let wait = Duration::from_millis(50 << round.min(3));
                    sleep(wait).await;
                }
                questions
                    .ask_inputs(&call, requests, required.request_state)
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
