//! Resuming a tree of agents with answers: what had finished is not done again.

mod teams;

use serde_json::{Value, json};
use tower_agent::callback::{after_tool, before_agent, before_tool, wrap_tool};
use tower_agent::{
    Agent, AgentRequest, AgentResponse, Checkpoint, Error, Interrupt, Message, Request, Resolution,
    Tool, ToolRequest, ToolResponse,
};
use tower_agent_middleware::approval::{Approval, Decision};
use tower_agent_test::{ScriptedModel, Turn};

use crate::guards::{assert_answered, names, results, saved, to_open};
use test_support::log::Log;

fn yes(id: &str) -> Resolution {
    Resolution::resolved(id, Decision::Approve)
}

async fn resume(agent: &Agent, paused: &AgentResponse, answers: &[Resolution]) -> AgentResponse {
    let request = AgentRequest::resume(saved(paused))
        .with_resolutions(to_open(paused, answers.iter().cloned()));
    agent.run(request).await.unwrap()
}

fn approval() -> Approval {
    Approval::of_tools(["wipe"])
}

fn worker(name: &str, log: &Log, model: &ScriptedModel) -> Agent {
    Agent::builder(model.clone())
        .name(name)
        .tools([log.tool("look"), log.tool("wipe")])
        .callbacks(approval())
        .build()
        .unwrap()
}

fn ask(agent: &str, request: &str) -> Turn {
    Turn::tool(agent, json!({ "request": request }))
}

/// Looks, then wipes `what`.
fn wiper(what: &str) -> ScriptedModel {
    ScriptedModel::new([
        Turn::tool("look", json!(what)),
        Turn::tool("wipe", json!(what)),
        Turn::from_text(format!("{what} wiped")),
    ])
}

#[tokio::test]
async fn an_agent_used_as_a_tool_continues_where_it_stopped() {
    let log = Log::default();
    let inner = wiper("disk");
    let outer = ScriptedModel::new([ask("manager", "wipe!"), Turn::from_text("done")]);
    let middle = ScriptedModel::new([ask("worker", "wipe the disk"), Turn::from_text("managed")]);
    let build = || {
        let worker = worker("worker", &log, &inner);
        let manager = Agent::builder(middle.clone())
            .name("manager")
            .tool(worker.into_tool(""));
        let manager = manager.build().unwrap();
        Agent::builder(outer.clone())
            .name("boss")
            .tool(manager.into_tool(""))
            .build()
            .unwrap()
    };

    let paused = build().run("?").await.unwrap();

    let id = "boss/m1.0/manager/m1.0/worker/m2.0";
    assert_eq!(names(&paused), [id]);
    assert_eq!(log.take(), ["look \"disk\""]);

    let again = resume(&build(), &paused, &[]).await;
    assert_eq!(names(&again), [id]);
    assert!(log.take().is_empty(), "nothing is done twice");

    let done = resume(&build(), &again, &[yes(id)]).await;
    [&inner, &middle, &outer]
        .into_iter()
        .for_each(ScriptedModel::assert_done);
    assert_eq!(log.take(), ["wipe \"disk\""]);
    assert_eq!(results(&done), ["managed"]);
    assert_answered(done.messages());
    let heard = inner.requests().last().unwrap().messages().clone();
    assert_eq!(heard.len(), 5);
    assert_answered(&heard);
}

#[tokio::test]
async fn one_agent_asked_twice_at_once_keeps_the_two_apart() {
    let log = Log::default();
    // Numbers its calls from nought in each conversation, as some providers do.
    let model = ScriptedModel::always(Turn::function(|request| {
        let said: Vec<String> = request.messages().iter().map(Message::text).collect();
        let call = tower_agent::message::ToolCall::new("call_0", "wipe", json!(said[0]));
        Ok(match said.len() {
            1 => tower_agent::ModelResponse::new(Message::new(
                tower_agent::Role::Assistant,
                [tower_agent::Part::ToolCall(call)],
            )),
            _ => tower_agent::ModelResponse::from_text(format!("{} seen to", said[0])),
        })
    }));
    let both = ask("worker", "disk").and_tool("worker", json!({ "request": "tape" }));
    let outer = ScriptedModel::new([both, Turn::from_text("done")]);
    let worker = worker("worker", &log, &model);
    let boss = Agent::builder(outer)
        .name("boss")
        .tool(worker.into_tool(""))
        .build()
        .unwrap();

    let paused = boss.run("?").await.unwrap();
    let [disk, tape] = ["m1.0", "m1.1"].map(|call| format!("boss/{call}/worker/m1.0"));
    assert_eq!(names(&paused), [&*disk, &*tape]);

    let no = Resolution::resolved(&disk, Decision::reject("no"));
    let done = resume(&boss, &paused, &[no, yes(&tape)]).await;
    assert_eq!(log.take(), ["wipe \"tape\""]);
    assert_eq!(results(&done), ["disk seen to", "tape seen to"]);
}

#[tokio::test]
async fn the_messages_alone_ask_an_agent_used_as_a_tool_again_from_the_start() {
    let log = Log::default();
    let inner = ScriptedModel::new([
        Turn::tool("look", json!(1)),
        Turn::tool("wipe", json!(1)),
        Turn::from_text("looked about"),
    ]);
    let outer = ScriptedModel::new([ask("worker", "?"), Turn::from_text("done")]);
    let worker = worker("worker", &log, &inner);
    let boss = Agent::builder(outer)
        .tool(worker.into_tool(""))
        .build()
        .unwrap();
    let paused = boss.run("?").await.unwrap();

    let done = boss.run(paused.messages().clone()).await.unwrap();

    assert_eq!(results(&done), ["looked about"]);
    assert_eq!(inner.requests()[2].messages().len(), 1);
}

#[tokio::test]
async fn an_agent_that_is_asked_something_else_begins_anew() {
    let log = Log::default();
    let inner = ScriptedModel::new([
        Turn::tool("look", json!(1)),
        Turn::tool("wipe", json!(1)),
        Turn::from_text("never mind"),
    ]);
    let outer = ScriptedModel::new([ask("worker", "wipe it"), Turn::from_text("done")]);
    let worker = worker("worker", &log, &inner).into_tool("");
    let boss = |request: &'static str| {
        Agent::builder(outer.clone())
            .tool(worker.clone())
            .on_tool(before_tool(move |call| {
                call.arguments_mut()["request"] = json!(request)
            }))
            .build()
            .unwrap()
    };
    let paused = boss("wipe it").run("?").await.unwrap();

    let done = resume(&boss("leave it"), &paused, &[]).await;

    assert_eq!(results(&done), ["never mind"]);
    assert_eq!(inner.requests()[2].messages().len(), 1);
}

#[tokio::test]
async fn an_interrupt_that_a_layer_answers_is_still_waited_for() {
    let log = Log::default();
    let model = ScriptedModel::new([Turn::tool("wipe", json!(1)), Turn::from_text("done")]);
    let agent = Agent::builder(model)
        .tool(log.tool("wipe"))
        .tool_layer(wrap_tool(|request: ToolRequest, mut next| async move {
            Ok(next
                .run(request)
                .await
                .unwrap_or_else(|_| ToolResponse::new("made up")))
        }))
        .callbacks(approval())
        .build()
        .unwrap();

    let paused = agent.run("?").await.unwrap();
    assert_eq!(
        results(&paused),
        Vec::<String>::new(),
        "the call stays open"
    );
    let done = resume(&agent, &paused, &[yes("agent/m1.0")]).await;

    assert_eq!(log.take(), ["wipe 1"]);
    assert_eq!(results(&done), ["wipe done"]);
}

#[tokio::test]
async fn an_interrupt_after_the_call_leaves_it_answered() {
    let log = Log::default();
    let model = ScriptedModel::new([Turn::tool("look", json!(1)), Turn::from_text("done")]);
    let agent = Agent::builder(model)
        .tool(log.tool("look"))
        .tool_layer(wrap_tool(|request: ToolRequest, mut next| async move {
            next.run(request).await
        }))
        .on_tool(after_tool(|_, _| {
            Err::<(), _>(Error::interrupt(Interrupt::new("1", "confirmation")))
        }))
        .build()
        .unwrap();

    let paused = agent.run("?").await.unwrap();
    assert_eq!(results(&paused), ["look done"]);
    assert_eq!(resume(&agent, &paused, &[]).await.text(), "done");
    assert_eq!(log.take(), ["look 1"]);
}

#[tokio::test]
async fn every_agent_of_the_tree_sees_the_answers_and_a_later_one_stands() {
    let log = Log::default();
    let look = |log: &Log| {
        let log = log.clone();
        before_agent(move |request| {
            let context = request.context();
            let found = serde_json::to_value(context.resolution("q")).unwrap();
            log.note(format!("{} {}", context.path(), found["payload"]));
        })
    };
    let inner = Agent::builder(ScriptedModel::new([Turn::from_text("in")])).name("worker");
    let inner = inner.on_agent(look(&log)).build().unwrap();
    let outer = ScriptedModel::new([
        ask("worker", "?"),
        Turn::from_text("done"),
        Turn::from_text("done"),
    ]);
    let boss = Agent::builder(outer).name("boss").on_agent(look(&log));
    let boss = boss.tool(inner.into_tool("")).build().unwrap();
    let request = AgentRequest::new("?")
        .with_resolutions([Resolution::resolved("q", 1), Resolution::resolved("r", 1)])
        .with_resolutions([Resolution::resolved("q", 2)])
        .with_state(Default::default())
        .with_cancellation(Default::default());

    boss.run(request).await.unwrap();
    boss.run("?").await.unwrap();

    assert_eq!(log.take(), ["boss 2", "boss/worker 2", "boss null"]);
}

#[tokio::test]
async fn a_checkpoint_keeps_its_conversations_through_a_state() {
    let log = Log::default();
    let inner = wiper("disk");
    let outer = ScriptedModel::new([ask("worker", "?"), Turn::from_text("done")]);
    let worker = worker("worker", &log, &inner);
    let boss = Agent::builder(outer)
        .name("boss")
        .tool(worker.into_tool(""))
        .build()
        .unwrap();
    let paused = boss.run("?").await.unwrap();
    let checkpoint: Checkpoint = saved(&paused);
    assert_eq!(checkpoint, paused.checkpoint());

    let request = AgentRequest::resume(checkpoint)
        .with_state(paused.state().clone())
        .with_resolutions(to_open(&paused, [yes("boss/m1.0/worker/m2.0")]));
    boss.run(request).await.unwrap();

    inner.assert_done();
    assert_eq!(log.take(), ["look \"disk\"", "wipe \"disk\""]);
}

#[tokio::test]
async fn a_call_has_one_path_in_and_out_of_its_tools() {
    let paths = Log::default();
    let note = |log: &Log| {
        let log = log.clone();
        Tool::function_with("path", "", move |_: Value, request: ToolRequest| {
            log.note(request.context().call_path());
        })
    };
    let model = ScriptedModel::new([Turn::tool("path", json!(1)), Turn::from_text("in")]);
    let member = Agent::builder(model)
        .name("member")
        .tool(note(&paths))
        .build()
        .unwrap();
    let team = Agent::sequential("team")
        .agent(member)
        .on_agent(before_agent({
            let paths = paths.clone();
            move |request| paths.note(request.context().call_path())
        }));
    let team = team.build().unwrap();
    let outer = ScriptedModel::new([ask("team", "?"), Turn::from_text("done")]);
    let boss = Agent::builder(outer)
        .name("boss")
        .tool(team.into_tool(""))
        .build()
        .unwrap();

    boss.run("?").await.unwrap();

    assert_eq!(
        paths.take(),
        ["boss/m1.0/team", "boss/m1.0/team/member/m1.0"]
    );
}
