//! Runs that are ended where a layer of ours waits, or works for them.

use std::ops::ControlFlow;

use test_support::ended::{Ends, MODEL, World, check, resume};
use tower_agent::model::BoxModel;
use tower_agent::{Agent, AgentRequest, Error, ErrorKind, Message, Resolution};
use tower_agent_middleware::approval::{Approval, Decision};
use tower_agent_middleware::context_window::ContextWindow;
use tower_agent_middleware::fallback::Fallback;
use tower_agent_middleware::hedge::HedgeLayer;
use tower_agent_middleware::retry::CallRetryLayer;

use super::watch::ms;

fn works(_: usize) -> ControlFlow<Error, u64> {
    ControlFlow::Continue(MODEL)
}

/// Every second call fails, from the first on.
fn fails(call: usize) -> ControlFlow<Error, u64> {
    if call % 2 == 1 {
        return works(call);
    }
    let busy = Error::new(ErrorKind::Overloaded, "busy");
    ControlFlow::Break(busy.with_retry_after(ms(100)))
}

fn go() -> AgentRequest {
    AgentRequest::new("go")
}

async fn check_agent(name: &str, build: impl Fn(&World) -> Agent) {
    let begin = async |world: &World| (build(world), go());
    check(name, &Ends::ALL, true, begin, resume).await;
}

#[tokio::test(start_paused = true)]
async fn in_the_wait_of_a_retry() {
    check_agent("retry", |world| {
        let agent = world.agent(world.model(fails));
        agent.model_layer(CallRetryLayer::new()).build().unwrap()
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn in_a_hedge() {
    check_agent("hedge", |world| {
        let slow = |call: usize| {
            ControlFlow::Continue(if call.is_multiple_of(2) {
                2 * MODEL
            } else {
                MODEL
            })
        };
        let agent = world.agent(world.model(slow));
        agent.model_layer(HedgeLayer::new(ms(50))).build().unwrap()
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn in_a_fallback() {
    check_agent("fallback", |world| {
        let fails = |_| ControlFlow::Break(Error::new(ErrorKind::Overloaded, "busy"));
        let model = Fallback::new(world.model(fails)).or(world.model(works));
        world.agent(BoxModel::new(model)).build().unwrap()
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn in_a_summary() {
    let history: Vec<_> = (0..20)
        .flat_map(|turn| {
            let text = "x".repeat(400);
            [
                Message::user(format!("{turn} {text}")),
                Message::assistant(text),
            ]
        })
        .collect();
    let begin = async |world: &World| {
        let window = ContextWindow::new(1_000)
            .cut_to(500)
            .summariser(world.model(works));
        let agent = world.agent(world.model(works)).on_model(window);
        let request = go().with_history(history.clone());
        (agent.build().unwrap(), request)
    };
    check("summary", &Ends::ALL, true, begin, resume).await;
}

/// An approval that was given holds, whenever the run that has it is ended.
#[tokio::test(start_paused = true)]
async fn in_a_run_that_goes_on_with_an_approval() {
    let begin = async |world: &World| {
        let agent = world.agent(world.model(works));
        let agent = agent.on_tool(Approval::of_tools(["pay"])).build().unwrap();
        let paused = agent.run(go()).await.unwrap();
        let yes = Resolution::resolved(&paused.interrupts()[0].id, Decision::Approve);
        let request = AgentRequest::resume(paused.checkpoint()).with_resolutions([yes]);
        (agent, request)
    };
    check("resumed", &Ends::ALL, true, begin, resume).await;
}
