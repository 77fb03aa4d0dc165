//! Requests that would not be durable are refused.

use tower_agent::callback::Bundle;
use tower_agent::tool::ToolSet;
use tower_agent::{Agent, AgentRequest, Effect};
use tower_agent_dbos::{DbosError, Worker};
use tower_agent_durable::Sqlite;
use tower_agent_durable::journal::{Durable, JournalError, RunEnd};
use tower_agent_test::{ScriptedModel, Turn};

use super::{Cluster, journal_error};
use crate::support::{Count, calling, counting};

#[tokio::test(flavor = "multi_thread")]
async fn requests_that_would_not_be_durable_are_refused() {
    let Some(cluster) = Cluster::start().await else {
        return;
    };
    let (engine, models) = (&cluster.engine, Count::default());
    let journal = || Durable::new(cluster.journal.clone());
    let build = |bundle: Bundle| {
        let agent = Agent::builder(calling(&[], &models)).name("clerk");
        agent.global_callbacks(bundle).build().unwrap()
    };

    // No journal; one of an inner agent alone.
    let inner = Agent::builder(calling(&[], &models))
        .name("inner")
        .global_callbacks(journal());
    let outer = Agent::builder(ScriptedModel::always(Turn::from_text("Hi.")))
        .name("outer")
        .tool(inner.build().unwrap().into_tool("Works."))
        .build()
        .unwrap();
    for agent in [build(Bundle::new()), outer] {
        let name = agent.name().to_owned();
        let refused = Worker::builder(engine, "one")
            .agent(agent)
            .start()
            .await
            .unwrap_err();
        assert!(
            matches!(&refused, DbosError::NotDurable { agent } if *agent == name),
            "{refused}"
        );
    }

    // A journal that is not the engine's: before the model is called.
    let other = Sqlite::in_memory().await.unwrap();
    let worker = Worker::builder(engine, "one").agent(build(Durable::new(other).into()));
    let worker = worker.start().await.unwrap();
    let run = engine.start("clerk", "Hi.").await.unwrap();
    let RunEnd::Failed(error) = run.end().await.unwrap() else {
        panic!()
    };
    assert!(
        error.to_string().contains("is not in the engine's journal"),
        "{error}"
    );
    worker.stop().await.unwrap();

    // Data that another process would not get.
    let mut tools = ToolSet::new();
    tools
        .insert(counting("look", Effect::Pure, &Count::default()))
        .unwrap();
    for (request, what) in [
        (AgentRequest::new("Hi.").with_tools(tools), "the tools"),
        (
            AgentRequest::new("Hi.").with_callbacks(journal()),
            "the callbacks",
        ),
    ] {
        let refused = engine.start("clerk", request).await.unwrap_err();
        assert!(refused.to_string().starts_with(what), "{refused}");
    }

    // Another request while the first is open, and a run that was not started.
    let request = |text: &str| AgentRequest::new(text).with_run_id("run 1");
    engine.start("clerk", request("Hi.")).await.unwrap();
    let refused = engine.start("clerk", request("Ho.")).await.unwrap_err();
    assert!(
        matches!(refused, DbosError::OtherRequest { .. }),
        "{refused}"
    );
    for refused in [engine.get("run 2").await, engine.resume("run 2", []).await] {
        let refused = refused.unwrap_err();
        assert!(
            matches!(journal_error(&refused), JournalError::UnknownRun { .. }),
            "{refused}"
        );
    }
    assert_eq!(models.get(), 0);
}
