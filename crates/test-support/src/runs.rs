//! Runs of agents, streamed and not, whose streams must match the responses.

use std::time::Duration;

use futures::StreamExt;
use tower::ServiceExt;
use tower_agent::agent::BoxAgent;
use tower_agent::model::BoxModel;
use tower_agent::stream::{Event, EventKind};
use tower_agent::{Agent, AgentRequest, AgentResponse, Result, RunStream};

use crate::transcript::{left, said};

/// The values of `streamed` for [`run`].
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
    // The run's own messages become the response; those of an agent in a tool become its result.
    let (in_tool, main): (Vec<_>, Vec<_>) = events
        .iter()
        .partition(|event| event.invocation.tool_call.is_some());
    let from_tool = left(in_tool);
    let started = events
        .iter()
        .filter(|event| matches!(event.kind, EventKind::AgentStarted));
    let finished = events
        .iter()
        .filter(|event| matches!(event.kind, EventKind::AgentFinished { .. }));
    assert_eq!(
        started.count(),
        finished.count(),
        "every agent that came has left"
    );
    match &response {
        Ok(response) => {
            assert_eq!(left(main), said(response.new_messages()));
            assert!(from_tool.len() <= 1, "{from_tool:?}");
            assert!(matches!(
                events.last().unwrap().kind,
                EventKind::RunFinished { .. }
            ));
        }
        Err(error) => {
            // Every response that breaks off in these tests starts with `half`.
            for answer in left(main).iter().chain(&from_tool) {
                let text: &str = &answer.0;
                assert!(!text.starts_with("ha"), "half an answer is left");
            }
            let EventKind::RunFailed { error: reported } = &events.last().unwrap().kind else {
                panic!("a run that fails says so last");
            };
            assert_eq!(reported.kind(), error.kind());
        }
    }
    response
}
