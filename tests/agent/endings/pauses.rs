//! A run that pauses for answers and goes on is the same run: whatever counts in it counts on.

use serde_json::{Value, json};
use tower_agent::callback::{before_model, before_tool};
use tower_agent::compat::Semantics;
use tower_agent::message::ToolCall;
use tower_agent::{
    Agent, AgentBuilder, AgentRequest, AgentResponse, Checkpoint, EndReason, Error, ErrorKind,
    Interrupt, ModelRequest, ModelResponse, Request, Resolution, Result, Tool,
};
use tower_agent_middleware::approval::{Approval, Decision};
use tower_agent_middleware::budget::{Budget, Limits};
use tower_agent_test::{ScriptedModel, Turn};

fn work() -> Tool {
    Tool::function("work", "Works.", |_: Value| "done")
}

/// Turns with a text and a call of `work`.
fn steps(count: usize) -> Vec<Turn> {
    let step = |number| {
        let step = ModelResponse::from_text(format!("step {number}"));
        Turn::response(step.with_tool_call(ToolCall::new("", "work", json!({}))))
    };
    (0..count).map(step).collect()
}

/// Goes on with what another process has saved.
fn approved(paused: &AgentResponse) -> AgentRequest {
    let saved = serde_json::to_string(&paused.checkpoint()).unwrap();
    let checkpoint: Checkpoint = serde_json::from_str(&saved).unwrap();
    let interrupts = checkpoint.head.interrupts.clone();
    let yes = interrupts
        .iter()
        .map(|interrupt| Resolution::resolved(&interrupt.id, Decision::Approve));
    AgentRequest::resume(checkpoint).with_resolutions(yes.collect::<Vec<_>>())
}

/// Runs an agent to its end, with every call approved.
async fn run(agent: &Agent) -> Result<AgentResponse> {
    let mut request = AgentRequest::new("?");
    loop {
        let response = agent.run(request).await?;
        if response.interrupts().is_empty() {
            return Ok(response);
        }
        request = approved(&response);
    }
}

fn presets() -> [(&'static str, Semantics); 5] {
    [
        ("default", Semantics::default()),
        ("potato", Semantics::potato()),
        ("adk_elixir", Semantics::adk_elixir()),
        ("adk_python", Semantics::adk_python()),
        ("trpc", Semantics::trpc()),
    ]
}

/// Aborts when it is reached.
fn reached(is_reached: bool) -> Result<()> {
    if is_reached {
        Err(Error::abort("reached"))
    } else {
        Ok(())
    }
}

#[tokio::test]
async fn a_limit_of_two_calls_allows_two_with_and_without_pauses() {
    type Build = fn(AgentBuilder) -> AgentBuilder;
    let limits: [(&str, Build); 6] = [
        ("max_iterations", |agent| agent.max_iterations(2)),
        ("iteration", |agent| {
            agent.on_model(before_model(|request: &mut ModelRequest| {
                reached(request.context().iteration() >= 2)
            }))
        }),
        ("texts", |agent| {
            agent.on_model(before_model(|request: &mut ModelRequest| {
                reached(request.context().texts().len() >= 2)
            }))
        }),
        ("stop_when, iterations", |agent| {
            agent.stop_when(|turn| turn.iterations() >= 2)
        }),
        ("stop_when, messages", |agent| {
            agent.stop_when(|turn| turn.new_messages().count() >= 4)
        }),
        ("a budget", |agent| {
            agent.global_callbacks(Budget::new(Limits::new().model_calls(2)))
        }),
    ];
    for (limit, build) in limits {
        for (preset, semantics) in presets() {
            for is_asked in [false, true] {
                let model = ScriptedModel::new(steps(6));
                let agent = Agent::builder(model.clone())
                    .semantics(semantics)
                    .tool(work());
                let agent = build(agent);
                let agent = if is_asked {
                    agent.on_tool(Approval::of_tools(["work"]))
                } else {
                    agent
                };

                drop(run(&agent.build().unwrap()).await);

                let calls = model.requests().len();
                assert_eq!(calls, 2, "{limit}, {preset}, asked: {is_asked}");
            }
        }
    }
}

#[tokio::test]
async fn a_condition_on_a_tool_stops_the_run_that_goes_on_after_its_approval() {
    for (preset, semantics) in presets() {
        for asked in ["submit", "work"] {
            let turn = Turn::tool("submit", json!({})).and_tool("work", json!({}));
            let model = ScriptedModel::new([turn, Turn::from_text("once more")]);
            let submit = Tool::function("submit", "Submits.", |_: Value| "submitted");
            let agent = Agent::builder(model.clone())
                .semantics(semantics)
                .tools([submit, work()])
                .stop_when(|turn| turn.has_called("submit"))
                .on_tool(Approval::of_tools([asked]))
                .build()
                .unwrap();

            let response = run(&agent).await.unwrap();

            assert_eq!(*response.end_reason(), EndReason::StopCondition, "{preset}");
            assert_eq!(model.requests().len(), 1, "{preset}, {asked}");
        }
    }
}

#[tokio::test]
async fn the_turn_that_goes_on_is_the_one_that_paused() {
    let model = ScriptedModel::new(steps(2).into_iter().chain([Turn::from_text("Done.")]));
    let seen = test_support::trace::Trace::default();
    let notes = seen.clone();
    let also = seen.clone();
    let agent = Agent::builder(model)
        .tool(work())
        .on_model(before_model(move |request: &mut ModelRequest| {
            let context = request.context();
            notes.push(format!(
                "model {} {}",
                context.iteration(),
                context.texts().len()
            ));
        }))
        .on_tool(Approval::of_tools(["work"]))
        .on_tool(before_tool(move |request| {
            let context = request.context();
            also.push(format!(
                "tool {} {}",
                context.iteration(),
                context.texts().len()
            ));
        }))
        .build()
        .unwrap();

    run(&agent).await.unwrap();

    assert_eq!(
        seen.take(),
        "model 0 0 tool 0 0 model 1 1 tool 1 1 model 2 2"
    );
}

#[tokio::test]
async fn another_message_of_the_user_begins_another_run() {
    let model = ScriptedModel::new(steps(3).into_iter().chain([Turn::from_text("Done.")]));
    let agent = Agent::builder(model.clone())
        .tool(work())
        .max_iterations(2)
        .global_callbacks(Budget::new(Limits::new().model_calls(2)))
        .on_tool(Approval::of_tools(["work"]))
        .build()
        .unwrap();
    let paused = agent.run("?").await.unwrap();
    let paused = agent.run(approved(&paused)).await.unwrap();
    assert_eq!(model.requests().len(), 2);

    let next = AgentRequest::resume(paused.checkpoint()).with_message("Something else.");
    let paused = agent.run(next).await.unwrap();
    let response = agent.run(approved(&paused)).await.unwrap();

    assert_eq!(response.text(), "Done.");
}

#[tokio::test]
async fn a_run_that_is_resumed_after_its_limit_counts_anew() {
    let model = ScriptedModel::new(steps(3).into_iter().chain([Turn::from_text("Done.")]));
    let agent = Agent::builder(model)
        .tool(work())
        .max_iterations(2)
        .on_tool(Approval::of_tools(["work"]))
        .build()
        .unwrap();
    let failed = run(&agent).await.unwrap_err();
    assert_eq!(failed.kind(), ErrorKind::MaxIterations);

    let again = AgentRequest::resume(failed.checkpoint().unwrap().clone());
    let paused = agent.run(again).await.unwrap();
    let response = agent.run(approved(&paused)).await.unwrap();

    assert_eq!(response.text(), "Done.");
}

#[tokio::test]
async fn an_agent_in_a_tool_counts_over_a_pause_and_its_caller_counts_its_own() {
    let model = ScriptedModel::new(steps(5));
    let worker = Agent::builder(model.clone())
        .name("worker")
        .tool(work())
        .max_iterations(3)
        .on_tool(Approval::of_tools(["work"]))
        .build()
        .unwrap();
    let boss = ScriptedModel::new([
        Turn::tool("worker", json!({ "request": "?" })),
        Turn::from_text("Done."),
    ]);
    let agent = Agent::builder(boss.clone())
        .tool(worker.into_tool("Works."))
        .max_iterations(2)
        .build()
        .unwrap();

    let response = run(&agent).await.unwrap();

    assert_eq!((model.requests().len(), boss.requests().len()), (3, 2));
    assert_eq!(response.text(), "Done.");
}

#[tokio::test]
async fn an_agent_that_has_taken_over_counts_its_own_calls_over_a_pause() {
    let model = ScriptedModel::new(steps(5));
    let clerk = Agent::builder(model.clone())
        .name("clerk")
        .tool(work())
        .max_iterations(3)
        .on_tool(Approval::of_tools(["work"]))
        .build()
        .unwrap();
    let desk = ScriptedModel::new([Turn::tool(
        "transfer_to_agent",
        json!({ "agent_name": "clerk" }),
    )]);
    let agent = Agent::builder(desk)
        .sub_agent(clerk)
        .max_iterations(1)
        .build()
        .unwrap();

    let error = run(&agent).await.unwrap_err();

    assert_eq!(error.kind(), ErrorKind::MaxIterations);
    assert_eq!(model.requests().len(), 3);
}

#[tokio::test]
async fn members_of_a_team_count_over_a_pause() {
    let member = |name: &str, model: &ScriptedModel| {
        Agent::builder(model.clone())
            .name(name)
            .tool(work())
            .stop_when(|turn| turn.iterations() >= 2)
            .on_tool(Approval::of_tools(["work"]))
            .build()
            .unwrap()
    };
    for is_parallel in [false, true] {
        let models = [ScriptedModel::new(steps(5)), ScriptedModel::new(steps(5))];
        let team = if is_parallel {
            Agent::parallel("team")
        } else {
            Agent::sequential("team")
        };
        let team = team
            .agent(member("left", &models[0]))
            .agent(member("right", &models[1]))
            .build()
            .unwrap();

        run(&team).await.unwrap();

        let calls = models.map(|model| model.requests().len());
        assert_eq!(calls, [2, 2], "in parallel: {is_parallel}");
    }
}

#[tokio::test]
async fn a_team_has_its_rounds_whatever_pauses_and_a_member_begins_anew_in_each() {
    let model = ScriptedModel::new(steps(4));
    let member = Agent::builder(model.clone())
        .name("member")
        .tool(work())
        .stop_when(|turn| turn.iterations() >= 2)
        .on_tool(Approval::of_tools(["work"]))
        .build()
        .unwrap();
    let team = Agent::repeat("team", 2).agent(member).build().unwrap();

    run(&team).await.unwrap();

    assert_eq!(model.requests().len(), 4);
}

#[tokio::test]
async fn a_model_call_that_waits_is_counted_once() {
    let model = ScriptedModel::new([Turn::from_text("Done.")]);
    let agent = Agent::builder(model)
        .max_iterations(1)
        .on_model(before_model(|request: &mut ModelRequest| {
            let question = Interrupt::new("1", "confirm");
            request.context().ask(question).map(drop)
        }))
        .build()
        .unwrap();

    assert_eq!(run(&agent).await.unwrap().text(), "Done.");
}
