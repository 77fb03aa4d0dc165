//! Guards that name a tool: the tool must exist.

use std::sync::Arc;

use serde_json::Value;
use tower_agent::agent::BuildError;
use tower_agent::compat::Hooks;
use tower_agent::{Agent, AgentBuilder, AgentRequest, Callbacks, ErrorKind, Result, Tool, ToolSet};
use tower_agent_middleware::approval::Approval;
use tower_agent_test::{ScriptedModel, Turn};

fn pay() -> Tool {
    Tool::function("pay", "Pays.", |amount: u32| amount)
}

fn agent(name: &'static str) -> AgentBuilder {
    Agent::builder(ScriptedModel::new([Turn::from_text("done")])).name(name)
}

/// A guard for a tool of this name, as an object with hooks for every call.
struct Named(&'static str);

impl Hooks for Named {
    fn named_tools(&self) -> Vec<Arc<str>> {
        vec![self.0.into()]
    }
}

fn unknown(built: Result<Agent, BuildError>) -> (String, String, String) {
    let error = built.unwrap_err();
    let said = error.to_string();
    let BuildError::UnknownTool { by, tool, known } = error else {
        panic!("{error}")
    };
    assert!(
        said.contains(&format!("`{by}`")) && said.contains(&format!("`{tool}`")),
        "{said}"
    );
    assert!(said.contains(&known.join(", ")), "{said}");
    (by.into_owned(), tool.to_string(), known.join(" "))
}

#[test]
fn a_guard_that_names_an_unknown_tool_fails_the_build() {
    let typo = |by: &str| (by.to_owned(), "typo".to_owned(), "pay".to_owned());
    let own = agent("a")
        .tool(pay())
        .on_tool(Approval::of_tools(["pay", "typo"]));
    assert_eq!(unknown(own.build()), typo("Approval"));
    let global = agent("a")
        .tool(pay())
        .global_callbacks(Approval::of_tools(["typo"]));
    assert_eq!(unknown(global.build()), typo("Approval"));
    let hooks = agent("a").tool(pay()).callbacks(Arc::new(Named("typo")));
    assert_eq!(unknown(hooks.build()), typo("Named"));
    let list = || Callbacks::new().with(Approval::of_tools(["typo"]));
    assert_eq!(
        unknown(agent("a").tool(pay()).tool_layer(list()).build()),
        typo("Approval")
    );
    let fits = agent("a")
        .tool(pay())
        .tool_layer(Callbacks::new().with(Approval::of_tools(["pay"])))
        .on_tool(Approval::of_tools(["pay"]));
    fits.callbacks(Named("pay"))
        .global_callbacks(Named("pay"))
        .build()
        .unwrap();
}

#[test]
fn a_guard_around_a_tree_may_name_the_tools_of_all_that_work_in_it() {
    let member = || agent("member").tool(pay()).build().unwrap();
    let guard = || Approval::of_tools(["pay"]);
    agent("boss")
        .tool(member().into_tool("Pays."))
        .global_callbacks(guard())
        .build()
        .unwrap();
    agent("boss")
        .sub_agent(member())
        .global_callbacks(guard())
        .build()
        .unwrap();
    let team = || Agent::sequential("team").agent(member());
    team().global_callbacks(guard()).build().unwrap();
    agent("boss")
        .sub_agent(team().build().unwrap())
        .global_callbacks(guard())
        .build()
        .unwrap();

    let own = agent("boss").sub_agent(member()).on_tool(guard());
    assert_eq!(
        unknown(own.build()).2,
        "transfer_to_agent",
        "its own calls alone"
    );
    assert_eq!(
        unknown(
            team()
                .global_callbacks(Approval::of_tools(["typo"]))
                .build()
        )
        .2,
        "pay"
    );
}

#[tokio::test]
async fn a_tool_that_comes_with_the_run_is_looked_for_when_the_run_begins() {
    let guarded = || {
        agent("a")
            .tools_of_runs(["confirm"])
            .on_tool(Approval::of_tools(["confirm"]))
            .build()
    };
    let mut tools = ToolSet::new();
    tools
        .insert(Tool::function("confirm", "Asks.", |_: Value| "yes"))
        .unwrap();
    let with_tools = || AgentRequest::new("?").with_tools(tools.clone());
    assert_eq!(
        guarded().unwrap().run(with_tools()).await.unwrap().text(),
        "done"
    );
    let error = guarded().unwrap().run("?").await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::InvalidRequest);
    assert!(error.message().contains("`Approval`"), "{error}");
    assert!(error.message().contains("`confirm`"), "{error}");

    let with_guard =
        |request: AgentRequest| request.with_callbacks(Approval::of_tools(["confirm"]));
    let bare = || agent("a").build().unwrap();
    assert_eq!(
        bare().run(with_guard(with_tools())).await.unwrap().text(),
        "done"
    );
    let error = bare()
        .run(with_guard(AgentRequest::new("?")))
        .await
        .unwrap_err();
    assert_eq!(error.kind(), ErrorKind::InvalidRequest);
    let team = Agent::sequential("team").agent(bare()).build().unwrap();
    assert_eq!(
        team.run(with_guard(with_tools())).await.unwrap().text(),
        "done"
    );
}
