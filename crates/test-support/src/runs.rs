//! Runs of agents, streamed and not, whose streams must match the responses.

use std::time::Duration;

use futures::StreamExt;
use tower::ServiceExt;
use tower_agent::agent::BoxAgent;
use tower_agent::model::BoxModel;
use tower_agent::stream::{Event, EventKind};
use tower_agent::{Agent, AgentRequest, AgentResponse, Result, RunStream};

use crate::transcript::{Answer, left, said};

/// Streamed or not.
pub const WAYS: [bool; 2] = [false, true];

pub fn secs(seconds: u64) -> Duration {
    Duration::from_secs(seconds)
}

pub fn of_model(model: BoxModel) -> BoxAgent {
    BoxAgent::new(Agent::builder(model).build().unwrap())
}

/// Runs the agent. If streamed, the messages that the consumer ends up with must equal the
/// response, and those of an agent used as a tool must equal the tool's result.
pub async fn run(agent: &BoxAgent, streamed: bool) -> Result<AgentResponse> {
    let request = AgentRequest::new("?");
    if !streamed {
        return agent.clone().oneshot(request).await;
    }
    read(RunStream::new(agent.clone(), request)).await
}

/// Reads the stream to its end, and checks the events.
pub async fn read(mut stream: RunStream) -> Result<AgentResponse> {
    let events: Vec<_> = stream.by_ref().collect().await;
    check(&events, stream.response().await)
}

pub fn check(events: &[Event], response: Result<AgentResponse>) -> Result<AgentResponse> {
    let in_tool = |event: &&Event| event.invocation.tool_call.is_some();
    let main: Vec<_> = events.iter().filter(|event| !in_tool(event)).collect();
    let from_tool = left(events.iter().filter(in_tool));
    let entered = events
        .iter()
        .filter(|event| matches!(event.kind, EventKind::AgentStarted));
    let gone = events
        .iter()
        .filter(|event| matches!(event.kind, EventKind::AgentFinished { .. }));
    assert_eq!(
        entered.count(),
        gone.count(),
        "every agent that came has left"
    );
    match &response {
        Ok(response) => {
            assert_eq!(left(main), said(response.new_messages()));
            assert!(from_tool.len() <= 1, "{from_tool:?}");
            assert!(matches!(
                events.last().unwrap().kind,
                EventKind::RunFinished
            ));
        }
        Err(error) => {
            // Every response that breaks off in these tests starts with `half`.
            let half = |answer: &Answer| answer.0.starts_with("ha");
            assert!(
                !left(main).iter().chain(&from_tool).any(half),
                "half an answer is left"
            );
            let EventKind::RunFailed { error: told } = &events.last().unwrap().kind else {
                panic!("a run that fails says so last");
            };
            assert_eq!(told.kind(), error.kind());
        }
    }
    response
}
