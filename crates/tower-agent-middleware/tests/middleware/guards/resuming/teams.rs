//! Whose turn it is in a team, or after a transfer, when the run resumes.

use serde_json::json;
use tower_agent::callback::before_model;
use tower_agent::{Agent, AgentResponse, EndReason, Interrupt, Message, Request, Resolution};
use tower_agent_test::{ScriptedModel, Turn};

use super::{ask, resume, wiper, worker, yes};
use crate::guards::{assert_answered, names};
use test_support::log::Log;

#[tokio::test]
async fn parallel_members_that_wait_are_resumed_in_any_order() {
    for order in ["abc", "acb", "bac", "bca", "cab", "cba"] {
        resumed_side_by_side(order).await;
    }
}

async fn resumed_side_by_side(order: &str) {
    let log = Log::default();
    let models = ["a", "b", "c"].map(wiper);
    let quick = ScriptedModel::new([Turn::from_text("d is done")]);
    let last = ScriptedModel::new([Turn::from_text("end")]);
    let build = || {
        let mut fan = Agent::parallel("fan");
        for (name, model) in ["a", "b", "c"].into_iter().zip(&models) {
            fan = fan.agent(worker(name, &log, model));
        }
        // It offers the same tools, and has nothing to do with it.
        let fan = fan.agent(worker("d", &log, &quick)).build().unwrap();
        let end = Agent::builder(last.clone()).name("end").build().unwrap();
        Agent::sequential("team")
            .agents([fan, end])
            .build()
            .unwrap()
    };
    let id = |name: char| format!("team/fan/{name}/m1.0");
    let said = |response: &AgentResponse| -> Vec<String> {
        response
            .messages()
            .iter()
            .map(Message::text)
            .filter(|text| !text.is_empty())
            .collect()
    };

    let mut paused = build().run("?").await.unwrap();
    assert_eq!(names(&paused), [id('a'), id('b'), id('c')]);
    let mut looked = log.take();
    looked.sort();
    assert_eq!(looked, ["look \"a\"", "look \"b\"", "look \"c\""]);
    // The first member waits, and what stands after it follows once it has finished.
    assert_eq!(said(&paused), ["?"]);

    for (step, name) in order.chars().enumerate() {
        assert!(last.requests().is_empty());
        paused = resume(&build(), &paused, &[yes(&id(name))]).await;
        assert_eq!(log.take(), [format!("wipe \"{name}\"")], "{order}");
        let mut waits = names(&paused);
        waits.sort();
        let mut rest: Vec<_> = order.chars().skip(step + 1).map(id).collect();
        rest.sort();
        assert_eq!(waits, rest, "{order}");
    }

    models
        .iter()
        .chain([&quick, &last])
        .for_each(ScriptedModel::assert_done);
    assert_eq!(paused.end_reason(), &EndReason::Completed);
    let mut said = said(&paused);
    assert_eq!(said.remove(5), "end");
    said.sort();
    assert_eq!(said, ["?", "a wiped", "b wiped", "c wiped", "d is done"]);
    for model in &models {
        // Each goes on with its own conversation: the question, and what it has done itself.
        let heard = model.requests()[2].messages().clone();
        assert_eq!(heard.len(), 5);
        assert_answered(&heard);
    }
    assert_answered(last.requests()[0].messages());
}

#[tokio::test]
async fn members_that_wait_inside_a_tool_are_resumed_there() {
    let log = Log::default();
    let models = ["a", "b"].map(wiper);
    let outer = ScriptedModel::new([ask("fan", "go"), Turn::from_text("done")]);
    let members = ["a", "b"].into_iter().zip(&models);
    let fan = Agent::parallel("fan").agents(members.map(|(name, model)| worker(name, &log, model)));
    let fan = fan.build().unwrap();
    let boss = Agent::builder(outer.clone())
        .name("boss")
        .tool(fan.into_tool(""))
        .build()
        .unwrap();

    let paused = boss.run("?").await.unwrap();
    let ids = names(&paused);
    assert_eq!(ids, ["boss/m1.0/fan/a/m1.0", "boss/m1.0/fan/b/m1.0"]);
    log.take();
    let done = resume(&boss, &paused, &[yes(&ids[0]), yes(&ids[1])]).await;

    assert_eq!(done.text(), "done");
    let mut wiped = log.take();
    wiped.sort();
    assert_eq!(wiped, ["wipe \"a\"", "wipe \"b\""]);
    models
        .iter()
        .chain([&outer])
        .for_each(ScriptedModel::assert_done);
}

/// An agent that looks and wipes as the one before it does.
fn namesake(log: &Log) -> (Agent, ScriptedModel) {
    let model = ScriptedModel::new([Turn::from_text("begin")]);
    (worker("first", log, &model), model)
}

#[tokio::test]
async fn the_waiting_member_is_resumed_among_members_with_the_same_tools() {
    let log = Log::default();
    let (first, before) = namesake(&log);
    let model = wiper("disk");
    let team = Agent::sequential("team").agents([first, worker("second", &log, &model)]);
    let team = team.build().unwrap();

    let mut paused = team.run("?").await.unwrap();
    for answers in [vec![], vec![yes("team/second/m3.0")]] {
        assert_eq!(names(&paused), ["team/second/m3.0"]);
        paused = resume(&team, &paused, &answers).await;
    }

    [before, model].iter().for_each(ScriptedModel::assert_done);
    assert_eq!(log.take(), ["look \"disk\"", "wipe \"disk\""]);
    assert_eq!(paused.text(), "disk wiped");
}

#[tokio::test]
async fn a_sub_agent_with_its_parents_tools_is_resumed_itself() {
    let log = Log::default();
    let inner = wiper("disk");
    let outer = ScriptedModel::new([Turn::tool(
        "transfer_to_agent",
        json!({ "agent_name": "billing" }),
    )]);
    let desk = Agent::builder(outer.clone())
        .name("desk")
        .tool(log.tool("wipe"))
        .sub_agent(worker("billing", &log, &inner))
        .build()
        .unwrap();

    let mut paused = desk.run("?").await.unwrap();
    for answers in [vec![], vec![yes("desk/billing/m3.0")]] {
        assert_eq!(names(&paused), ["desk/billing/m3.0"]);
        paused = resume(&desk, &paused, &answers).await;
    }

    [outer, inner].iter().for_each(ScriptedModel::assert_done);
    assert_eq!(log.take(), ["look \"disk\"", "wipe \"disk\""]);
    assert_eq!(paused.text(), "disk wiped");
}

#[tokio::test]
async fn a_member_that_waits_with_no_call_open_is_resumed_all_the_same() {
    let log = Log::default();
    let (first, before) = namesake(&log);
    let model = ScriptedModel::new([Turn::from_text("thank you")]);
    let second = Agent::builder(model.clone())
        .name("second")
        .on_model(before_model(|request| {
            let question = Interrupt::new("name", "input_required");
            request.context().ask(question).map(drop)
        }));
    let team = Agent::sequential("team")
        .agents([first, second.build().unwrap()])
        .build()
        .unwrap();

    let paused = team.run("?").await.unwrap();
    assert_eq!(names(&paused), ["name"]);
    let done = resume(&team, &paused, &[Resolution::resolved("name", "Ada")]).await;

    [before, model].iter().for_each(ScriptedModel::assert_done);
    assert_eq!(done.text(), "thank you");
}
