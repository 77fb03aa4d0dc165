//! Parts of a budget for agents that work for another.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use futures::StreamExt;
use serde_json::json;
use test_support::log::Log;
use tower_agent::{Agent, AgentRequest, ErrorKind, Resolution, Tool, Usage};
use tower_agent_middleware::approval::Approval;
use tower_agent_middleware::budget::{Account, Budget, Limit, Limits};
use tower_agent_test::{ScriptedModel, Turn};

use super::{busy, exceeded};
use crate::guards::{ids, results, saved};

fn ask() -> serde_json::Value {
    json!({ "request": "Go." })
}

/// An agent that would look for ever, with a part of a budget.
fn searcher(log: &Log, budget: &Budget, limits: &[Limit]) -> Tool {
    let model = ScriptedModel::always(Turn::tool("look", json!(1)).usage(Usage::new(90, 10)));
    let agent = Agent::builder(model)
        .name("searcher")
        .tool(log.tool("look"))
        .max_iterations(1000)
        .callbacks(budget.carve(limits.iter().copied()));
    agent.build().unwrap().into_tool("Searches.")
}

#[tokio::test]
async fn an_agent_has_its_part_and_no_more_and_the_others_go_on() {
    let log = Log::default();
    let account = Account::new(Limits::new().model_calls(20).tokens(100_000));
    let budget = Budget::of(account.clone());
    let model = ScriptedModel::new([
        Turn::tool("searcher", ask()),
        Turn::tool("searcher", ask()),
        Turn::from_text("Nothing."),
    ]);
    let agent = Agent::builder(model.clone())
        .tool(searcher(&log, &budget, &[Limit::ModelCalls(4)]))
        .global_callbacks(budget)
        .build()
        .unwrap();
    let done = agent.run("Find it.").await.unwrap();
    assert_eq!(done.text(), "Nothing.");
    // Each call of the agent has the part anew, and reads what has ended it.
    for result in results(&done) {
        assert!(result.contains("the limit: 4 model calls"), "{result}");
    }
    assert_eq!(account.used().model_calls, 3 + 2 * 4);
    assert_eq!(account.used().tokens, 2 * 4 * 100 + 3 * 4096);
    assert_eq!(account.reserved().model_calls, 0);
    assert_eq!(account.reserved().tokens, 0);
}

/// Nobody uses up what is set aside, and what is left of it is there for others afterwards.
#[tokio::test(start_paused = true)]
async fn what_is_set_aside_is_given_back_when_the_agent_ends() {
    let account = Account::new(Limits::new().model_calls(10));
    let budget = Budget::of(account.clone());
    let seen = Arc::new(AtomicBool::new(false));
    let (looks_at, saw) = (account.clone(), seen.clone());
    let model = ScriptedModel::new([Turn::function(move |_| {
        // One of its three is running, two are set aside, and one is the caller's.
        assert_eq!(looks_at.reserved().model_calls, 3);
        assert_eq!(looks_at.left(), [Limit::ModelCalls(6)]);
        saw.store(true, Ordering::SeqCst);
        Ok(tower_agent::ModelResponse::from_text("Found."))
    })]);
    let worker = Agent::builder(model)
        .name("worker")
        .callbacks(budget.carve([Limit::ModelCalls(3)]))
        .build()
        .unwrap();
    let boss = ScriptedModel::new([Turn::tool("worker", ask()), Turn::from_text("Done.")]);
    let boss = Agent::builder(boss)
        .tool(worker.into_tool("Works."))
        .global_callbacks(budget)
        .build()
        .unwrap();
    boss.run("Go.").await.unwrap();
    assert!(seen.load(Ordering::SeqCst));
    assert_eq!(account.used().model_calls, 3);
    assert_eq!(account.left(), [Limit::ModelCalls(7)]);
}

#[tokio::test]
async fn agents_side_by_side_get_no_more_together_than_there_is() {
    let log = Log::default();
    let account = Account::new(Limits::new().model_calls(10));
    let budget = Budget::of(account.clone());
    let model = ScriptedModel::new([
        Turn::tool("searcher", ask())
            .and_tool("searcher", ask())
            .and_tool("searcher", ask()),
        Turn::from_text("Nothing."),
    ]);
    let agent = Agent::builder(model)
        .tool(searcher(&log, &budget, &[Limit::ModelCalls(4)]))
        .global_callbacks(budget)
        .build()
        .unwrap();
    let done = agent.run("Find it.").await.unwrap();
    let ended = |text: &str| {
        results(&done)
            .iter()
            .filter(|result| result.contains(text))
            .count()
    };
    // After the first call of the run there is room for two parts of four.
    assert_eq!(ended("the limit: 4 model calls"), 2);
    assert_eq!(ended("the limit: 10 model calls"), 1);
    assert_eq!(account.used().model_calls, 2 + 2 * 4);
    assert_eq!(account.left(), [Limit::ModelCalls(0)]);
}

/// What a part sets no limit for comes from the whole budget, whose limits hold inside as well.
#[tokio::test]
async fn the_limits_of_the_whole_budget_hold_inside_a_part() {
    let log = Log::default();
    let account = Account::new(Limits::new().model_calls(100).tool_calls(5).tokens(50_000));
    let budget = Budget::of(account.clone());
    let model = ScriptedModel::new([Turn::tool("searcher", ask()), Turn::from_text("Done.")]);
    let agent = Agent::builder(model)
        .tool(searcher(&log, &budget, &[Limit::ModelCalls(50)]))
        .global_callbacks(budget)
        .build()
        .unwrap();
    let error = agent.run("Find it.").await.unwrap_err();
    // A tool call that the whole budget refuses ends the run.
    assert_eq!(exceeded(&error), Limit::ToolCalls(5));
    assert_eq!(account.used().tool_calls, 5);
    assert_eq!(account.reserved().model_calls, 0);
}

/// A cancelled parent stops its agents, and is charged for what they have used.
#[tokio::test(start_paused = true)]
async fn a_parent_that_is_cancelled_stops_its_agents_and_pays_for_them() {
    for streams in [false, true] {
        let log = Log::default();
        let account = Account::new(Limits::new().model_calls(100));
        let budget = Budget::of(account.clone());
        let slow = Turn::tool("look", json!(1))
            .usage(Usage::new(90, 10))
            .latency(Duration::from_secs(10));
        let worker = Agent::builder(ScriptedModel::always(slow))
            .name("worker")
            .tool(log.tool("look"))
            .max_iterations(1000)
            .callbacks(budget.carve([Limit::ModelCalls(50)]))
            .build()
            .unwrap();
        let boss = ScriptedModel::new([Turn::tool("worker", ask()).and_tool("worker", ask())]);
        let boss = Agent::builder(boss)
            .tool(worker.into_tool("Works."))
            .global_callbacks(budget)
            .build()
            .unwrap();
        let time = Duration::from_secs(35);
        if streams {
            let mut run = boss.stream("Go.");
            let read = async { while run.next().await.is_some() {} };
            assert!(tokio::time::timeout(time, read).await.is_err());
            drop(run);
        } else {
            assert!(tokio::time::timeout(time, boss.run("Go.")).await.is_err());
        }
        // Three calls of the first agent have ended, and one was cut; for the second there was no
        // room.
        let used = account.used().model_calls;
        assert_eq!(used, 1 + 4, "{streams}");
        assert_eq!(account.reserved().model_calls, 0);
        let looked = log.take().len();
        tokio::time::sleep(Duration::from_secs(1000)).await;
        assert_eq!((account.used().model_calls, log.take().len()), (used, 0));
        assert_eq!(looked, 3);
    }
}

/// A run that pauses in the agent gives it no second part when it goes on.
#[tokio::test]
async fn a_part_goes_on_where_the_run_paused() {
    let log = Log::default();
    let budget = Budget::new(Limits::new().model_calls(100));
    let worker = |turns: Vec<Turn>| {
        Agent::builder(ScriptedModel::new(turns))
            .name("worker")
            .tool(log.tool("look"))
            .tool(log.tool("pay"))
            .max_iterations(1000)
            .on_tool(Approval::of_tools(["pay"]))
            .callbacks(budget.carve([Limit::ModelCalls(5)]))
            .build()
            .unwrap()
    };
    let boss = |turns: Vec<Turn>, worker: Agent| {
        Agent::builder(ScriptedModel::new(turns))
            .tool(worker.into_tool("Works."))
            .global_callbacks(budget.clone())
            .build()
            .unwrap()
    };
    let mut turns = busy(3);
    turns.push(Turn::tool("pay", json!(1)));
    let paused = boss(vec![Turn::tool("worker", ask())], worker(turns));
    let paused = paused.run("Go.").await.unwrap();
    let yes = Resolution::resolved(&ids(&paused)[0], json!({ "approved": true }));
    let request = AgentRequest::resume(saved(&paused)).with_resolutions([yes]);
    let done = boss(vec![Turn::from_text("Done.")], worker(busy(3)));
    let done = done.run(request).await.unwrap();
    // Four before the pause, and one after it.
    let result = results(&done).last().unwrap().clone();
    assert!(result.contains("the limit: 5 model calls"), "{result}");
    let state = json!(done.checkpoint())["head"]["private_state"].to_string();
    assert!(!state.contains("worker"), "{state}");
}

#[tokio::test]
async fn a_part_without_its_budget_around_it_fails() {
    let log = Log::default();
    let budget = Budget::new(Limits::new().model_calls(100));
    let model = ScriptedModel::new([Turn::tool("searcher", ask()), Turn::from_text("Done.")]);
    let agent = Agent::builder(model)
        .tool(searcher(&log, &budget, &[Limit::ModelCalls(4)]))
        .build()
        .unwrap();
    let done = agent.run("Find it.").await.unwrap();
    assert!(results(&done)[0].contains("register it with `global_callbacks`"));
    assert!(log.take().is_empty());

    // Nor is a cost limited of which nobody knows the prices.
    let costs = Agent::builder(ScriptedModel::always(Turn::from_text("Done.")))
        .callbacks(budget.carve([Limit::Cost(1.0)]))
        .global_callbacks(budget)
        .build()
        .unwrap();
    let error = costs.run("Go.").await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::InvalidRequest);
}

/// A part of a part comes from it, and a cost is charged at the prices of the whole.
#[tokio::test]
async fn a_part_of_a_part_is_charged_to_both() {
    let log = Log::default();
    let prices = |_: &str, usage: Usage| usage.total() as f64 / 1000.0;
    let account = Account::new(Limits::new().model_calls(100).cost(1000.0, prices));
    let budget = Budget::of(account.clone());
    let limits = [Limit::ModelCalls(4), Limit::Cost(500.0)];
    let middle = ScriptedModel::new([
        Turn::tool("searcher", ask()).usage(Usage::new(90, 10)),
        Turn::tool("searcher", ask()).usage(Usage::new(90, 10)),
        Turn::from_text("Nothing.").usage(Usage::new(90, 10)),
    ]);
    let middle = Agent::builder(middle)
        .name("middle")
        .tool(searcher(&log, &budget, &limits))
        .callbacks(budget.carve([Limit::ModelCalls(8), Limit::Cost(900.0)]))
        .build()
        .unwrap();
    let boss = ScriptedModel::new([
        Turn::tool("middle", ask()).usage(Usage::new(90, 10)),
        Turn::from_text("Done.").usage(Usage::new(90, 10)),
    ]);
    let boss = Agent::builder(boss)
        .tool(middle.into_tool("Asks."))
        .global_callbacks(budget)
        .build()
        .unwrap();
    let done = boss.run("Go.").await.unwrap();
    assert_eq!(done.text(), "Done.");
    // The second search has no room: two of eight are used, and four more for the first.
    let used = account.used();
    assert_eq!(used.model_calls, 2 + 3 + 4);
    assert!((used.cost - 0.9).abs() < 1e-9, "{}", used.cost);
    assert_eq!(account.reserved().model_calls, 0);
    assert_eq!(account.reserved().cost, 0.0);
    assert_eq!(results(&done), ["Nothing."]);
}

#[tokio::test]
async fn two_parts_of_one_budget_on_one_agent_are_refused() {
    let budget = Budget::new(Limits::new().model_calls(20));
    let model = ScriptedModel::always(Turn::from_text("Done."));
    let searcher = Agent::builder(model)
        .name("searcher")
        .callbacks(budget.carve([Limit::ModelCalls(3)]))
        .callbacks(budget.carve([Limit::Tokens(10_000)]))
        .build()
        .unwrap();
    let model = ScriptedModel::new([Turn::tool("searcher", ask()), Turn::from_text("Done.")]);
    let agent = Agent::builder(model)
        .tool(searcher.into_tool("Searches."))
        .global_callbacks(budget)
        .build()
        .unwrap();
    let done = agent.run("Find it.").await.unwrap();
    let result = &results(&done)[0];
    assert!(result.contains("two parts of one budget"), "{result}");
}
