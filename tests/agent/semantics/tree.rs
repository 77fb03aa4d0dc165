//! Semantics of an agent inside another one.

use futures::StreamExt;
use serde_json::{Value, json};
use tower_agent::callback::{Bundle, after_agent, after_model};
use tower_agent::compat::Semantics;
use tower_agent::{
    Action, Agent, AgentBuilder, AgentRequest, AgentResponse, Error, Message, ModelResponse,
    Request, Tool, ToolRequest,
};
use tower_agent_test::{ScriptedModel, Turn};

fn says(text: &str) -> ModelResponse {
    ModelResponse::new(Message::assistant(text))
}

/// Callbacks by which one can tell the semantics that they follow: `one` under Google's ADK for
/// Python, where the first answer wins, and `two` by default, where the last one stands.
fn telling() -> Bundle {
    let answers = |text: &'static str| after_model(move |_, _| Action::Respond(says(text)));
    Bundle::new()
        .on_model(answers("one"))
        .on_model(answers("two"))
}

fn inner() -> AgentBuilder {
    Agent::builder(ScriptedModel::always(Turn::from_text("hi")))
        .name("inner")
        .callbacks(telling())
}

/// A custom tool that runs an agent in its caller's run.
fn by_hand(agent: Agent) -> Tool {
    Tool::function_with("inner", "Asks.", move |_: Value, call: ToolRequest| {
        let agent = agent.clone();
        async move {
            let request = AgentRequest::new("?").with_context(call.context().clone());
            agent.run(request).await.map(|response| response.text())
        }
    })
}

/// An agent that asks another one once.
fn caller(arguments: Value) -> AgentBuilder {
    let asks = arguments
        .get("agent_name")
        .map_or("inner", |_| "transfer_to_agent");
    Agent::builder(ScriptedModel::new([
        Turn::tool(asks, arguments),
        Turn::from_text("done"),
    ]))
}

/// Every way for an agent to be inside another one that has these semantics, if any.
fn ways(inner: &Agent, semantics: Option<Semantics>) -> Vec<(&'static str, Agent)> {
    let teams = [
        ("sequence", Agent::sequential("team")),
        ("parallel", Agent::parallel("team")),
        ("loop", Agent::repeat("team", 1)),
        ("team of teams", Agent::sequential("outer")),
    ];
    let teams = teams.map(|(way, team)| {
        let team = match way {
            "team of teams" => {
                let team = Agent::sequential("team")
                    .agent(inner.clone())
                    .build()
                    .unwrap();
                Agent::sequential("outer").agent(team)
            }
            _ => team.agent(inner.clone()),
        };
        let team = if let Some(semantics) = semantics {
            team.semantics(semantics)
        } else {
            team
        };
        (way, team.build().unwrap())
    });
    let agents = [
        (
            "sub-agent",
            caller(json!({ "agent_name": "inner" })).sub_agent(inner.clone()),
        ),
        (
            "tool",
            caller(json!({ "request": "?" })).tool(inner.clone().into_tool("Answers.")),
        ),
        (
            "tool by hand",
            caller(json!({})).tool(by_hand(inner.clone())),
        ),
    ];
    let agents = agents.map(|(way, agent)| {
        let agent = agent.name("caller");
        let agent = if let Some(semantics) = semantics {
            agent.semantics(semantics)
        } else {
            agent
        };
        (way, agent.build().unwrap())
    });
    teams.into_iter().chain(agents).collect()
}

/// The inner agent's text, as a message or as a tool's answer.
fn inner_said(response: &AgentResponse) -> String {
    let mut all = response.new_messages().flat_map(|message| {
        let told = message.tool_results().map(|result| result.text());
        told.chain([message.text()]).collect::<Vec<_>>()
    });
    all.find(|text| text == "one" || text == "two")
        .unwrap_or_default()
}

#[tokio::test]
async fn an_agent_inside_another_takes_its_semantics_unless_it_has_its_own() {
    let adk = Semantics::adk_python();
    let cases = [
        (inner().build().unwrap(), Some(adk), "one"),
        (inner().build().unwrap(), None, "two"),
        (
            inner().semantics(Semantics::default()).build().unwrap(),
            Some(adk),
            "two",
        ),
        (inner().semantics(adk).build().unwrap(), None, "one"),
        (
            inner().semantics(adk).build().unwrap(),
            Some(Semantics::default()),
            "one",
        ),
    ];
    for (index, (inner, outer, said)) in cases.iter().enumerate() {
        for (way, agent) in ways(inner, *outer) {
            let response = agent.run("?").await.unwrap();
            assert_eq!(inner_said(&response), *said, "case {index}, {way}");
        }
        for (way, agent) in ways(inner, *outer) {
            let mut run = agent.stream("?");
            while run.next().await.is_some() {}
            let response = run.response().await.unwrap();
            assert_eq!(
                inner_said(&response),
                *said,
                "case {index}, {way}, streamed"
            );
        }
    }
}

#[tokio::test]
async fn semantics_go_down_from_the_nearest_agent_that_has_any() {
    let wrap = |name: &str, inner: Agent| Agent::sequential(name).agent(inner);
    let deep = wrap("b", wrap("a", inner().build().unwrap()).build().unwrap())
        .semantics(Semantics::adk_python())
        .build()
        .unwrap();
    let beside = inner().name("beside").build().unwrap();
    let team = Agent::sequential("team")
        .agent(deep)
        .agent(beside)
        .build()
        .unwrap();

    let response = team.run("?").await.unwrap();

    let said: Vec<_> = response.new_messages().map(Message::text).collect();
    assert_eq!(said, ["one", "two"]);
}

#[tokio::test]
async fn an_agent_in_two_trees_at_once_follows_each_in_each_run() {
    let inner = inner().build().unwrap();
    let tree = |semantics| {
        let team = Agent::sequential("team")
            .agent(inner.clone())
            .semantics(semantics);
        team.build().unwrap()
    };
    let (one, two) = (tree(Semantics::adk_python()), tree(Semantics::default()));
    let (again, alone) = (one.clone(), inner.clone());

    let (one, two, again, alone) =
        futures::join!(one.run("?"), two.run("?"), again.run("?"), alone.run("?"));

    let text = |result: Result<AgentResponse, Error>| result.unwrap().text();
    assert_eq!(
        [text(one), text(two), text(again), text(alone)],
        ["one", "two", "one", "two"]
    );
}

#[tokio::test]
async fn semantics_of_the_loop_go_down_the_tree_as_well() {
    let fails = || Tool::function("fail", "Fails.", |_: Value| Err::<(), _>("broken"));
    let inner = |semantics: Option<Semantics>| {
        let turns = [Turn::tool("fail", json!({})), Turn::from_text("told")];
        let inner = Agent::builder(ScriptedModel::new(turns))
            .name("inner")
            .tool(fails());
        let inner = if let Some(own) = semantics {
            inner.semantics(own)
        } else {
            inner
        };
        inner.build().unwrap()
    };
    let team = |inner| {
        let team = Agent::sequential("team").semantics(Semantics::adk_python());
        team.agent(inner).build().unwrap()
    };

    let fails = team(inner(None)).run("?").await.unwrap_err();
    let told = team(inner(Some(Semantics::default())))
        .run("?")
        .await
        .unwrap();

    assert_eq!((fails.message(), told.text().as_str()), ("broken", "told"));
    assert_eq!(inner(None).run("?").await.unwrap().text(), "told");
}

#[tokio::test]
async fn semantics_of_after_agent_go_down_the_tree_as_well() {
    let note = || AgentResponse::new([Message::assistant("note")]);
    let look = Tool::function("look", "Looks.", |_: Value| "nothing");
    let turns = [Turn::tool("look", json!({})), Turn::from_text("told")];
    for (semantics, said) in [(Semantics::adk_elixir(), 1), (Semantics::default(), 3)] {
        let inner = Agent::builder(ScriptedModel::new(turns.clone()))
            .name("inner")
            .tool(look.clone())
            .on_agent(after_agent(move |_, _| Action::Respond(note())))
            .build()
            .unwrap();
        let team = Agent::sequential("team")
            .semantics(semantics)
            .agent(inner)
            .build()
            .unwrap();

        let response = team.run("?").await.unwrap();

        assert_eq!(
            (response.text().as_str(), response.new_messages().len()),
            ("note", said)
        );
    }
}

/// Callbacks that travel, in an agent of its own semantics inside another.
#[tokio::test]
async fn callbacks_that_travel_keep_the_semantics_of_where_they_were_given() {
    let (adk, default) = (Semantics::adk_python(), Semantics::default());
    let plain = || Agent::builder(ScriptedModel::always(Turn::from_text("hi"))).name("inner");
    let team = |inner: AgentBuilder| Agent::sequential("team").agent(inner.build().unwrap());
    for (outer, own, said) in [(adk, default, "one"), (default, adk, "two")] {
        // Callbacks of the tree belong to the agent that they are registered with.
        let tree = team(plain().semantics(own))
            .semantics(outer)
            .global_callbacks(telling());
        assert_eq!(tree.build().unwrap().run("?").await.unwrap().text(), said);

        // Callbacks of a run belong to the agent that is called.
        let called = team(plain().semantics(own))
            .semantics(outer)
            .build()
            .unwrap();
        let request = AgentRequest::new("?").with_callbacks(telling());
        assert_eq!(called.run(request).await.unwrap().text(), said);

        // A bundle's own semantics win over both.
        let bundle = || telling().semantics(own.band);
        let tree = team(plain())
            .semantics(outer)
            .global_callbacks(bundle())
            .build()
            .unwrap();
        let other = if said == "one" { "two" } else { "one" };
        assert_eq!(tree.run("?").await.unwrap().text(), other);
        let called = team(plain()).semantics(outer).build().unwrap();
        let request = AgentRequest::new("?").with_callbacks(bundle());
        assert_eq!(called.run(request).await.unwrap().text(), other);
    }
}

#[tokio::test]
async fn callbacks_of_a_tree_that_has_no_semantics_follow_those_of_the_tree_around_it() {
    let inner = Agent::builder(ScriptedModel::always(Turn::from_text("hi")))
        .name("inner")
        .build();
    let middle = Agent::sequential("middle")
        .agent(inner.unwrap())
        .global_callbacks(telling());
    let middle = middle.build().unwrap();
    let outer = Agent::sequential("outer").semantics(Semantics::adk_python());
    let outer = outer.agent(middle.clone()).build().unwrap();

    assert_eq!(outer.run("?").await.unwrap().text(), "one");
    assert_eq!(middle.run("?").await.unwrap().text(), "two");

    let request = || AgentRequest::new("?").with_callbacks(telling());
    assert_eq!(outer.run(request()).await.unwrap().text(), "one");
}
