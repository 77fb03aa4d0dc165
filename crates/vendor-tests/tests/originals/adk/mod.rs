//! Google's ADK for Python, at the version that `Semantics::adk_python` names.

mod program;
mod seen;

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::process::{Command, Stdio};

use serde::Deserialize;
use serde_json::{Map, Value};
use test_support::process::is_installed;

use self::program::{Agents, Do};
use self::seen::Seen;

/// A program, and how it differs from the original.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Case {
    name: String,
    root: program::Spec,
    #[serde(default)]
    plugins: Vec<Plugin>,
    #[serde(default)]
    state: Map<String, Value>,
    /// What the user says.
    turns: Vec<String>,
    /// What differs, each with its row among the deliberate differences of the framework's page.
    #[serde(default)]
    differs: BTreeMap<String, String>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Plugin {
    name: String,
    hooks: BTreeMap<String, Option<Do>>,
}

const CASES: &str = include_str!("cases.json");

/// The table of differences, whose rows the cases name.
const PAGE: &str = include_str!("../../../../../src/guide/conformance/adk_python.md");

#[tokio::test]
async fn programs_do_what_they_do_on_the_original() {
    let tests = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests");
    let python = tests.join("servers/.venv/bin/python");
    if !is_installed("google-adk for Python", &python, ".ci/servers") {
        return;
    }
    let cases: Vec<Case> = serde_json::from_str(CASES).unwrap();
    let names: BTreeSet<_> = cases.iter().map(|case| &case.name).collect();
    assert_eq!(names.len(), cases.len(), "each case has a name of its own");

    let output = Command::new(python)
        .arg(tests.join("originals/adk/original.py"))
        .arg(tests.join("originals/adk/cases.json"))
        .stdin(Stdio::null())
        .output()
        .unwrap();
    let complained = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{complained}");
    let originals: BTreeMap<String, Seen> = serde_json::from_slice(&output.stdout).unwrap();

    let mut wrong = Vec::new();
    for case in &cases {
        let ours = run(case).await;
        let original = &originals[&case.name];
        for (what, ours, original) in ours.beside(original) {
            let row = case.differs.get(what);
            let is_right = match row {
                None => ours == original,
                Some(row) => ours != original && PAGE.contains(&format!("\n| {row} |")),
            };
            if !is_right {
                let name = &case.name;
                wrong.push(format!(
                    "{name}: {what} {row:?}\n  original {original}\n  here     {ours}"
                ));
            }
        }
    }
    assert!(
        wrong.is_empty(),
        "{} of {} differ:\n{}",
        wrong.len(),
        cases.len(),
        wrong.join("\n")
    );
}

/// Runs a program here, one turn of the user after another.
async fn run(case: &Case) -> Seen {
    let mut agents = Agents::default();
    let root = agents.root(&case.root, &case.plugins);
    let state = case.state.clone().into();
    let mut seen = Seen::default();
    let mut checkpoint = None;
    for text in &case.turns {
        checkpoint = Some(seen.turn(&root, checkpoint, text, &state).await);
    }
    seen.requests = agents.requests();
    seen.hooks = agents.log.take();
    seen.state = state.snapshot();
    seen
}
