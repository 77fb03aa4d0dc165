//! Sequential, parallel and loop agents, and what callbacks make of them.

use std::sync::Arc;

use serde_json::{Value, json};
use tokio::sync::Notify;
use tower_agent::agent::TeamBuilder;
use tower_agent::callback::{
    Bundle, Outcome, after_agent, after_model, after_tool, before_agent, before_model, before_tool,
};
use tower_agent::compat::Semantics;
use tower_agent::{
    Action, Agent, AgentBuilder, AgentRequest, AgentResponse, Callback, EndReason, Error, Request,
    Result, Tool,
};
use tower_agent_test::{ScriptedModel, Turn};

use super::{adk, agent_says, said, work};
use test_support::log::Log;

/// A member that always says its name.
fn member(name: &'static str) -> AgentBuilder {
    adk(&ScriptedModel::always(Turn::from_text(name))).name(name)
}

/// A member that must not be asked.
fn unreached(name: &'static str) -> Agent {
    member(name)
        .on_agent(before_agent(|_| Err::<(), _>("must not run".into())))
        .build()
        .unwrap()
}

fn of(team: TeamBuilder, members: impl IntoIterator<Item = AgentBuilder>) -> TeamBuilder {
    let members = members.into_iter().map(|member| member.build().unwrap());
    team.semantics(Semantics::adk_python()).agents(members)
}

fn sequential(members: impl IntoIterator<Item = AgentBuilder>) -> TeamBuilder {
    of(Agent::sequential("sequence"), members)
}

#[tokio::test]
async fn a_sequence_speaks_in_its_members_order_and_hands_the_state_on() {
    let reader = ScriptedModel::new([Turn::from_text("edited")]);
    let team = sequential([
        member("writer").on_agent(after_agent(|request, response| {
            request.context().state().set("draft", response.text());
        })),
        adk(&reader)
            .name("editor")
            .on_model(before_model(|request| {
                let draft = request.context().state().get("draft");
                request.add_instructions(&format!("Edit this: {}", draft.unwrap_or_default()));
            })),
    ]);

    let response = team.build().unwrap().run("?").await.unwrap();

    assert_eq!(said(&response), ["writer", "edited"]);
    assert_eq!(
        reader.requests()[0].instructions(),
        Some(r#"Edit this: "writer""#)
    );
}

#[tokio::test]
async fn a_loop_repeats_its_members_so_many_times_and_callbacks_with_them() {
    let log = Log::default();
    let [before, after] = ["before", "after"].map(|name| log.line(name));
    let team = of(
        Agent::repeat("loop", 2),
        [member("a")
            .on_agent(before_agent(move |_| before()))
            .on_agent(after_agent(move |_, _| after()))],
    );

    let response = team.build().unwrap().run("?").await.unwrap();

    assert_eq!(said(&response), ["a", "a"]);
    assert_eq!(log.take(), ["before", "after", "before", "after"]);
}

#[tokio::test]
async fn an_escalation_in_any_hook_ends_the_loop_once_its_member_is_done() {
    for hook in [
        "before_agent",
        "before_model",
        "before_tool",
        "after_tool",
        "after_agent",
    ] {
        let escalates = move |here: &str, context: &tower_agent::RunContext| {
            if here == hook {
                context.escalate();
            }
        };
        let model = ScriptedModel::new([Turn::tool("work", json!({})), Turn::from_text("b")]);
        let escalator = adk(&model)
            .name("b")
            .tool(work(&Log::default()))
            .on_agent(before_agent(move |r| {
                escalates("before_agent", r.context())
            }))
            .on_agent(after_agent(move |r, _| {
                escalates("after_agent", r.context())
            }))
            .on_model(before_model(move |r| {
                escalates("before_model", r.context())
            }))
            .on_tool(before_tool(move |r| escalates("before_tool", r.context())))
            .on_tool(after_tool(move |r, _| escalates("after_tool", r.context())));
        let team = of(Agent::repeat("loop", 9), [member("a"), escalator]).agent(unreached("c"));

        let response = team.build().unwrap().run("?").await.unwrap();

        assert_eq!(said(&response).last().unwrap(), "b", "{hook}");
        assert_eq!(said(&response)[0], "a", "{hook}");
        assert_eq!(response.end_reason(), &EndReason::StopCondition, "{hook}");
        model.assert_done();
    }
}

#[tokio::test]
async fn an_escalation_ends_the_inner_loop_and_the_outer_one_continues() {
    let escalator = member("inner").on_model(after_model(|r, _| r.context().escalate()));
    let inner = of(Agent::repeat("inner loop", 9), [escalator])
        .build()
        .unwrap();
    let outer = of(Agent::repeat("outer loop", 2), [])
        .agent(inner)
        .agent(member("outer").build().unwrap());

    let response = outer.build().unwrap().run("?").await.unwrap();

    assert_eq!(said(&response), ["inner", "outer", "inner", "outer"]);
}

#[tokio::test]
async fn members_side_by_side_have_paths_of_their_own_and_answer_in_the_members_order() {
    let log = Log::default();
    let fast_is_done = Arc::new(Notify::new());
    let path = |name: &'static str| {
        let log = log.clone();
        before_agent(move |request| log.note(format!("{name} is {}", request.context().path())))
    };
    let slow = member("slow").on_agent(path("slow")).on_agent(after_agent({
        let (log, fast_is_done) = (log.clone(), fast_is_done.clone());
        move |_, _| {
            let (log, fast_is_done) = (log.clone(), fast_is_done.clone());
            async move {
                fast_is_done.notified().await;
                log.note("slow is done");
            }
        }
    }));
    let fast = sequential([
        member("a").on_agent(path("a")),
        member("b").on_agent(path("b")).on_agent(after_agent({
            let log = log.clone();
            move |_, _| {
                log.note("b is done");
                fast_is_done.notify_one();
            }
        })),
    ]);
    let team = of(Agent::parallel("par"), [slow]).agent(fast.build().unwrap());

    let response = team.build().unwrap().run("?").await.unwrap();

    let lines = log.take();
    for line in [
        "slow is par/slow",
        "a is par/sequence/a",
        "b is par/sequence/b",
    ] {
        assert!(lines.iter().any(|other| other == line), "{lines:?}");
    }
    assert_eq!(lines[lines.len() - 2..], ["b is done", "slow is done"]);
    assert_eq!(said(&response), ["slow", "a", "b"]);
}

/// Writes down how an agent ended.
struct Ends(Log);

impl Callback<AgentRequest> for Ends {
    fn on_end(&self, request: &AgentRequest, outcome: Outcome<'_, AgentResponse>) {
        let how = match outcome {
            Outcome::Done(_) => "done",
            Outcome::Failed(_) => "failed",
            _ => "dropped",
        };
        self.0.note(format!("{} {how}", request.context().agent()));
    }
}

#[tokio::test]
async fn an_escalation_or_a_failure_drops_the_members_side_by_side() {
    for fails in [false, true] {
        let log = Log::default();
        let endless = adk(&ScriptedModel::new([Turn::pending()])).name("endless");
        let ends = member("ends").on_agent(after_agent(move |request, _| -> Result<()> {
            request.context().escalate();
            if fails {
                Err("out of paper".into())
            } else {
                Ok(())
            }
        }));
        let members = [endless, ends].map(|member| member.on_agent(Ends(log.clone())));
        let team = of(Agent::parallel("par"), members).build().unwrap();

        match team.run("?").await {
            Ok(response) => assert_eq!((fails, said(&response)), (false, vec!["ends".into()])),
            Err(error) => assert_eq!((fails, error.message()), (true, "out of paper")),
        }
        let how = if fails { "ends failed" } else { "ends done" };
        assert_eq!(log.take(), [how, "endless dropped"]);
    }
}

#[tokio::test]
async fn a_member_that_is_skipped_does_not_skip_its_siblings() {
    let log = Log::default();
    let [member_after, team_after] = ["member", "team"].map(|name| log.line(name));
    let skip = || before_agent(|_| Action::Respond(agent_says("skipped")));
    let skipped = member("a")
        .on_agent(skip())
        .on_agent(after_agent(move |_, _| member_after()));
    let team = sequential([skipped, member("b")]).on_agent(after_agent(move |_, _| team_after()));

    let response = team.build().unwrap().run("?").await.unwrap();

    assert_eq!(said(&response), ["skipped", "b"]);
    assert_eq!(log.take(), ["team"]);

    let after = log.line("team");
    let team = sequential([])
        .agent(unreached("a"))
        .on_agent(skip())
        .on_agent(after_agent(move |_, _| after()));
    let response = team.build().unwrap().run("?").await.unwrap();
    assert_eq!(said(&response), ["skipped"]);
    assert!(log.take().is_empty());
}

#[tokio::test]
async fn callbacks_stand_around_agents_of_every_kind() {
    for team in [
        Agent::sequential("team"),
        Agent::parallel("team"),
        Agent::repeat("team", 1),
    ] {
        let log = Log::default();
        let before = log.line("before");
        let team = of(team, [member("a")])
            .on_agent(before_agent(move |_| before()))
            .on_agent(after_agent({
                let log = log.clone();
                move |_, response| {
                    log.note(format!("after {}", response.text()));
                    Action::Respond(agent_says("concluded"))
                }
            }));

        let response = team.build().unwrap().run("?").await.unwrap();

        assert_eq!(said(&response), ["concluded"]);
        assert_eq!(log.take(), ["before", "after a"]);
    }
}

#[tokio::test]
async fn an_invocation_that_ends_is_the_members_alone() {
    let ended = member("a").on_model(before_model(|_| Err::<(), _>(Error::end_invocation())));

    let response = sequential([ended, member("b")])
        .build()
        .unwrap()
        .run("?")
        .await
        .unwrap();

    assert_eq!(said(&response), ["b"]);
    assert_eq!(response.end_reason(), &EndReason::Completed);
}

#[tokio::test]
async fn a_plugin_of_a_team_wraps_the_calls_of_all_members() {
    let log = Log::default();
    let note = |kind: &'static str| {
        let log = log.clone();
        move |context: &tower_agent::RunContext| log.note(format!("{kind} {}", context.agent()))
    };
    let (agent, model, tool) = (note("agent"), note("model"), note("tool"));
    let plugin = Bundle::new()
        .on_agent(before_agent(move |request| agent(request.context())))
        .on_model(before_model(move |request| model(request.context())))
        .on_tool(before_tool(move |request| tool(request.context())));
    let works = ScriptedModel::new([Turn::tool("work", json!({})), Turn::from_text("a")]);
    let works = adk(&works)
        .name("a")
        .tool(Tool::function("work", "", |_: Value| "worked"));

    sequential([works, member("b")])
        .global_callbacks(plugin)
        .build()
        .unwrap()
        .run("?")
        .await
        .unwrap();

    let calls = [
        "agent sequence",
        "agent a",
        "model a",
        "tool a",
        "model a",
        "agent b",
        "model b",
    ];
    assert_eq!(log.take(), calls);
}
