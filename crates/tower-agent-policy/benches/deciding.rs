//! What a decision costs: 20 rules about a tool, alone and among 10 000 others; a run with and
//! without a rulebook.
//!
//! `cargo bench -p tower-agent-policy`
//!
//! `--row <rules> <runs>` makes so many runs with so many rules, at least 20, or with 0 without a
//! rulebook: for callgrind, or a profiler. These are no rows of `benches/counts.json`, since Cedar
//! turns on `preserve_order` of `serde_json`, which would change all others there.

use std::hint::black_box;
use std::time::{Duration, Instant};

use futures::FutureExt;
use serde_json::json;
use tower_agent::testing::{ScriptedModel, Turn};
use tower_agent::tool::ToolDeclaration;
use tower_agent::{Agent, AgentRequest, Tool};
use tower_agent_policy::{Case, Principal, Rulebook};

#[derive(serde::Deserialize, schemars::JsonSchema)]
#[allow(dead_code)]
struct Refund {
    order: String,
    cents: u32,
}

#[derive(serde::Deserialize, schemars::JsonSchema)]
struct Nothing {}

fn refund() -> Tool {
    Tool::function("refund", "", |refund: Refund| refund.cents)
}

/// Twenty rules about refunds, and so many about another tool.
fn rulebook(others: usize) -> Rulebook {
    let mut rules = String::new();
    for number in 0..20 {
        rules.push_str(&format!(
            "permit(principal in Role::\"r{number}\", action == Action::\"refund\", resource)\n\
             when {{ context.input.cents <= {number}00 && context.session.calls < 5 }};\n"
        ));
    }
    for number in 0..others {
        rules.push_str(&format!(
            "permit(principal == User::\"u{number}\", action == Action::\"look\", resource);\n"
        ));
    }
    let look = ToolDeclaration::new("look", "").with_arguments::<Nothing>();
    Rulebook::builder()
        .schema("users", "entity Role; entity User in [Role];")
        .tools([refund().declaration(), &look.into()])
        .principals(["User"], |_| {
            Some(Principal::new("User", "ann").within("Role", "r7"))
        })
        .rules("rules", rules)
        .build()
        .unwrap()
}

/// Returns the shortest of some times, each of one call among many.
fn time(mut call: impl FnMut()) -> Duration {
    const CALLS: u32 = 500;
    let mut best = Duration::MAX;
    for _ in 0..20 {
        let start = Instant::now();
        for _ in 0..CALLS {
            call();
        }
        best = best.min(start.elapsed() / CALLS);
    }
    best
}

fn agent(rules: Option<&Rulebook>) -> Agent {
    let model = ScriptedModel::always(Turn::function(|request| {
        let is_done = request.messages().len() > 1;
        Ok(if is_done {
            tower_agent::ModelResponse::from_text("done")
        } else {
            let arguments = json!({ "order": "o-1", "cents": 5 });
            let call = tower_agent::message::ToolCall::new("call_1", "refund", arguments);
            tower_agent::ModelResponse::from_tool_calls([call])
        })
    }));
    let agent = Agent::builder(model).tool(refund());
    let agent = match rules {
        Some(rules) => agent.global_callbacks(rules.enforce()),
        None => agent,
    };
    agent.build().unwrap()
}

/// Makes a number of runs, after one to warm up.
fn work_for(rules: &str, runs: &str) {
    let rules: usize = rules.parse().unwrap();
    let rules = rules.checked_sub(20).map(rulebook);
    let agent = agent(rules.as_ref());
    for _ in 0..=runs.parse().unwrap() {
        run_of(&agent);
    }
}

fn run_of(agent: &Agent) {
    let run = agent.run(AgentRequest::new("?")).now_or_never().unwrap();
    assert_eq!(black_box(run.unwrap()).text(), "done");
}

fn main() {
    let arguments: Vec<_> = std::env::args().skip(1).collect();
    if let [flag, rules, runs] = &arguments[..]
        && flag == "--row"
    {
        return work_for(rules, runs);
    }
    let case = || {
        let ann = Principal::new("User", "ann").within("Role", "r7");
        Case::new(ann, "refund", json!({ "order": "o-1", "cents": 5 }))
    };
    let (few, many) = (rulebook(0), rulebook(10_000));
    let mut runs = Vec::new();
    for (name, rules) in [
        ("a run without rules", None),
        ("a run with 20 rules about its tool", Some(&few)),
        ("a run with 10 000 others beside them", Some(&many)),
    ] {
        let agent = agent(rules);
        let taken = time(|| run_of(&agent));
        println!("{name}: {taken:?}");
        runs.push(taken);
    }
    for (name, rules) in [("20 rules", &few), ("10 020 rules", &many)] {
        let taken = time(|| assert!(black_box(rules.decide(&case())).is_allowed()));
        println!("a case by {name}, with entities from JSON: {taken:?}");
    }
    let [without, few, many] = runs[..] else {
        unreachable!()
    };
    let (few, many) = (few - without, many - without);
    println!("a decision: {few:?} by 20 rules, {many:?} by 10 020");
    assert!(many <= few * 2, "rules about other tools cost something");
    assert!(many <= Duration::from_micros(100), "{many:?}");
}
