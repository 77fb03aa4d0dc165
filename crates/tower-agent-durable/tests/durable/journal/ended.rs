//! A journaled run that is ended: it goes on from its journal, in another process or in this one.

use std::cell::RefCell;
use std::ops::ControlFlow;

use serde_json::json;
use test_support::ended::{Ends, MODEL, World, check};
use tower_agent::{Agent, AgentResponse, Error, Resolution, Result};
use tower_agent_durable::Sqlite;
use tower_agent_durable::journal::{Durable, UnfinishedStep};

use crate::support::request;

/// Goes on with the run. Of a payment that the journal cannot know of, somebody says whether it was
/// made.
async fn go_on(agent: &Agent, database: &Sqlite, has_paid: bool) -> Result<AgentResponse> {
    let next = || async { database.runs().request("run 1").await.map_err(Error::from) };
    let response = agent.run(next().await?).await?;
    let open = response.interrupts().iter();
    let answer = || {
        if has_paid {
            UnfinishedStep::Done(json!("done"))
        } else {
            UnfinishedStep::RunAgain
        }
    };
    let made: Vec<_> = open
        .map(|asked| Resolution::resolved(&asked.id, answer()))
        .collect();
    if made.is_empty() {
        return Ok(response);
    }
    agent.run(next().await?.with_resolutions(made)).await
}

#[tokio::test]
async fn in_a_journal() {
    let place = RefCell::new(None);
    let begin = async |world: &World| {
        let database = Sqlite::in_memory().await.unwrap();
        let model = world.model(|_| ControlFlow::Continue(MODEL));
        let agent = world
            .agent(model)
            .global_callbacks(Durable::new(database.clone()));
        place.replace(Some((database, world.clone())));
        (agent.build().unwrap(), request())
    };
    let again = async |agent: &Agent, _| {
        let (database, world) = place.borrow().clone().unwrap();
        Some(go_on(agent, &database, world.paid() > 0).await)
    };
    let ways = [Ends::Token, Ends::Lease, Ends::Deadline, Ends::Drop];
    check("journal", &ways, false, begin, again).await;
}
