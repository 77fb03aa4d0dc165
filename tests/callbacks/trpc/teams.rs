//! Callbacks of agents that are made of agents.

use serde_json::json;
use tower_agent::agent::TeamBuilder;
use tower_agent::callback::{after_agent, before_agent, before_model, on_agent_error};
use tower_agent::compat::Semantics;
use tower_agent::{Action, Agent, AgentResponse, Error, ErrorKind, Message, Part, Recovery};
use tower_agent_test::{ScriptedModel, Turn};

use super::agent;
use test_support::log::Log;

type Kind = fn(&'static str) -> TeamBuilder;

/// Every kind of agent that is made of others.
const KINDS: [(&str, Kind); 3] = [
    ("sequential", |name| Agent::sequential(name)),
    ("parallel", |name| Agent::parallel(name)),
    ("repeat", |name| Agent::repeat(name, 1)),
];

fn member(name: &'static str, turn: Turn) -> (Agent, ScriptedModel) {
    let model = ScriptedModel::new([turn]);
    (agent(model.clone()).name(name).build().unwrap(), model)
}

fn says(text: &str) -> AgentResponse {
    AgentResponse::new([Message::assistant(text)])
}

#[tokio::test]
async fn a_team_answered_before_it_begins_asks_no_member_and_no_after_agent() {
    for (kind, team) in KINDS {
        let (one, model) = member("one", Turn::from_text("hello"));
        let seen = Log::default();
        let noted = seen.clone();
        let team = team("team")
            .semantics(Semantics::trpc())
            .agent(one)
            .on_agent(before_agent(|_| Action::Respond(says("closed"))))
            .on_agent(after_agent(move |_, _| noted.push("after")))
            .build()
            .unwrap();

        assert_eq!(team.run("?").await.unwrap().text(), "closed", "{kind}");
        assert_eq!(
            (model.requests().len(), seen.take().len()),
            (0, 0),
            "{kind}"
        );
    }
}

#[tokio::test]
async fn a_teams_after_agent_sees_the_last_answer_and_may_replace_it() {
    for (kind, team) in KINDS {
        let seen = Log::default();
        let noted = seen.clone();
        let team = team("team")
            .semantics(Semantics::trpc())
            .agents([
                member("one", Turn::from_text("1")).0,
                member("two", Turn::from_text("2")).0,
            ])
            .on_agent(after_agent(move |_, response| {
                noted.push(response.text());
                let said = response
                    .message()
                    .unwrap()
                    .clone()
                    .with_part(Part::from_text("!"));
                Action::Respond(response.clone().with_message(said))
            }))
            .build()
            .unwrap();

        assert_eq!(team.run("?").await.unwrap().text(), "2!", "{kind}");
        assert_eq!(seen.take(), ["2"], "{kind}");
    }
}

#[tokio::test]
async fn a_members_failure_is_seen_by_the_teams_error_half_whatever_the_kind_of_team() {
    for (kind, team) in KINDS {
        let broken = Error::new(ErrorKind::Provider, "broken");
        let seen = Log::default();
        let noted = seen.clone();
        let team = team("team")
            .semantics(Semantics::trpc())
            .agents([member("one", Turn::error(broken)).0])
            .on_agent(on_agent_error(move |_, error| {
                let path = error.call().map(|call| call.agent.to_string());
                noted.push((error.message().to_owned(), path));
                Recovery::Fallback(says("sorry"))
            }))
            .build()
            .unwrap();

        assert_eq!(team.run("?").await.unwrap().text(), "sorry", "{kind}");
        assert_eq!(
            seen.take(),
            [("broken".to_owned(), Some("team/one".to_owned()))],
            "{kind}"
        );
    }
}

#[tokio::test]
async fn a_stop_of_a_member_or_of_the_team_ends_the_whole_with_its_kind() {
    for (kind, team) in KINDS {
        for place in ["before_team", "after_team", "member"] {
            let stops = move |here: &str| {
                if here == place {
                    Err(Error::abort("enough"))
                } else {
                    Ok(())
                }
            };
            let model = ScriptedModel::new([Turn::from_text("1")]);
            let one = agent(model)
                .name("one")
                .on_model(before_model(move |_| stops("member")))
                .build()
                .unwrap();
            let team = team("team")
                .semantics(Semantics::trpc())
                .agent(one)
                .on_agent(before_agent(move |_| stops("before_team")))
                .on_agent(after_agent(move |_, _| stops("after_team")))
                .on_agent(on_agent_error(|_, _| {
                    Recovery::Fallback(says("all is well"))
                }))
                .build()
                .unwrap();

            let error = team.run("?").await.unwrap_err();

            let found = (error.kind(), error.message());
            assert_eq!(found, (ErrorKind::Aborted, "enough"), "{kind}, {place}");
        }
    }
}

#[tokio::test]
async fn an_agent_as_a_tool_has_its_own_callbacks_and_its_stop_is_no_tool_error() {
    for stops in [false, true] {
        let inner = agent(ScriptedModel::new([Turn::from_text("42")]))
            .name("act")
            .on_agent(before_agent(move |_| {
                if stops {
                    Err(Error::abort("enough"))
                } else {
                    Ok(())
                }
            }))
            .on_agent(after_agent(|_, response| {
                Action::Respond(says(&format!("{}, it says", response.text())))
            }))
            .build()
            .unwrap();
        let call = Turn::tool("act", json!({ "request": "?" }));
        let model = if stops {
            ScriptedModel::new([call])
        } else {
            ScriptedModel::new([call, Turn::from_text("done")])
        };
        let outer = agent(model.clone())
            .tool(inner.into_tool("Knows the answer."))
            .build()
            .unwrap();

        let result = outer.run("?").await;

        model.assert_done();
        match (stops, result) {
            (true, Err(error)) => assert_eq!(error.kind(), ErrorKind::Aborted),
            (false, Ok(response)) => {
                assert_eq!(super::texts(&super::told(&response)), ["42, it says"]);
            }
            (_, other) => panic!("{other:?}"),
        }
    }
}
