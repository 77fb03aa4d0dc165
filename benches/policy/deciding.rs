//! The cost of a decision: 20 rules about a tool, alone and among 10,000 others; a run with and
//! without a rulebook.
//!
//! ```sh
//! cargo bench --package benches-policy                # in time
//! cargo bench --package benches-policy -- --check     # counted; fails where a count of counts.json grew
//! cargo bench --package benches-policy -- --write     # renews that file
//! ```
//!
//! `--row <name> <runs>` makes so many runs of a row, for callgrind or a profiler.

#[path = "../support/callgrind.rs"]
#[allow(dead_code, reason = "shared")]
mod callgrind;
#[path = "../support/recorded.rs"]
#[allow(dead_code, unreachable_pub, reason = "shared")]
mod recorded;

use std::hint::black_box;
use std::process::ExitCode;
use std::time::{Duration, Instant};

use futures::FutureExt;
use serde_json::json;
use tower_agent::tool::ToolDeclaration;
use tower_agent::{Agent, AgentRequest, BoxError, Tool};
use tower_agent_policy::{Case, Principal, Rulebook};
use tower_agent_test::{ScriptedModel, Turn};

use self::callgrind::{Program, in_parallel};
use self::recorded::{Counts, exit_code, rounded};

/// The rows that are counted: no rules, those about the tool, and others beside them. Under
/// callgrind, to load 10,000 rules takes a minute.
const ROWS: [(&str, Option<usize>); 3] = [
    ("a run with one tool call", None),
    ("a run with one tool call, 20 rules", Some(0)),
    (
        "a run with one tool call, 20 rules and 1,000 about others",
        Some(1_000),
    ),
];

/// The number of times that the instructions of a decision by 20 rules one may cost with others
/// beside them. They were 1.04 times; Cedar hashes with random keys, and each process counts up to
/// 2 % more or less.
const TIMES_ALONE: f64 = 1.15;

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
fn work_for(row: &str, runs: &str) -> Result<(), BoxError> {
    let row = ROWS.iter().find(|(name, _)| *name == row);
    let (_, others) = row.ok_or("there is no such row")?;
    let rules = others.map(rulebook);
    let agent = agent(rules.as_ref());
    for _ in 0..=runs.parse()? {
        run_of(&agent);
    }
    Ok(())
}

/// Counts all rows, and compares them with the file or writes it. Returns whether a count is too
/// great.
fn counted(writes: bool) -> Result<bool, BoxError> {
    let program = Program::new()?;
    let counted = in_parallel(&ROWS, |(name, _)| Ok(rounded(program.each(name, 1)?)))?;
    let names = ROWS.map(|(name, _)| name);
    let counts: Counts = names.into_iter().zip(counted).collect();
    let grew = if writes {
        recorded::write(&counts, names)?;
        false
    } else {
        recorded::compare(&counts, names)
    };
    let [without, alone, among] = names.map(|name| counts[name].instructions);
    let times = (among - without) / (alone - without);
    let is_dear = times > TIMES_ALONE;
    if is_dear {
        println!("\nrules about other tools: {times:.2} times the instructions of a decision");
    }
    Ok(grew | is_dear)
}

fn run_of(agent: &Agent) {
    let run = agent.run(AgentRequest::new("?")).now_or_never().unwrap();
    assert_eq!(black_box(run.unwrap()).text(), "done");
}

fn main() -> Result<ExitCode, BoxError> {
    let arguments: Vec<_> = std::env::args().skip(1).collect();
    if let [flag, row, runs] = &arguments[..]
        && flag == "--row"
    {
        work_for(row, runs)?;
        return Ok(ExitCode::SUCCESS);
    }
    let asked = |flag| arguments.iter().any(|argument| argument == flag);
    let writes = asked("--write");
    if writes || asked("--check") {
        return Ok(exit_code(counted(writes)?));
    }
    in_time();
    Ok(ExitCode::SUCCESS)
}

/// Prints how long it takes.
fn in_time() {
    let case = || {
        let ann = Principal::new("User", "ann").within("Role", "r7");
        Case::new(ann, "refund", json!({ "order": "o-1", "cents": 5 }))
    };
    let books = [None, Some(0), Some(10_000)].map(|others| others.map(rulebook));
    let mut runs = Vec::new();
    for book in &books {
        let agent = agent(book.as_ref());
        let taken = time(|| run_of(&agent));
        let rules = book.as_ref().map_or(0, Rulebook::count);
        println!("a run by {rules} rules: {taken:?}");
        runs.push(taken);
    }
    for book in books.iter().flatten() {
        let taken = time(|| assert!(black_box(book.decide(&case())).is_allowed()));
        let rules = book.count();
        println!("a case by {rules} rules, with entities from JSON: {taken:?}");
    }
    let [without, few, many] = runs[..] else {
        unreachable!()
    };
    let (few, many) = (few - without, many - without);
    println!("a decision: {few:?} by 20 rules, {many:?} by 10,020");
    assert!(many <= few * 2, "rules about other tools cost something");
    assert!(many <= Duration::from_micros(100), "{many:?}");
}
