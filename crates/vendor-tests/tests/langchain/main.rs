//! LangChain's middleware beside ours, at the version that `Semantics::langchain` names.
//!
//! A program is an agent with middleware whose model says what a case file tells it. A driver in
//! Python runs it on the original, a test runs it here, and what happened must be the same, unless
//! the case says with which row of the page it differs.
#![allow(
    clippy::panic,
    clippy::unwrap_used,
    unreachable_pub,
    reason = "a test fails by panicking"
)]

mod middleware;
mod program;
mod ready;
mod seen;

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::process::{Command, Stdio};

use test_support::process::is_installed;

use self::program::Case;
use self::seen::Seen;

const CASES: &str = include_str!("cases.json");

/// The table of differences, whose rows the cases name.
const PAGE: &str = include_str!("../../../../src/guide/conformance/langchain.md");

#[tokio::test]
async fn programs_do_what_they_do_on_the_original() {
    let tests = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/langchain");
    let python = tests.join(".venv/bin/python");
    if !is_installed("langchain for Python", &python, ".ci/servers") {
        return;
    }
    let cases: Vec<Case> = serde_json::from_str(CASES).unwrap();
    let names: BTreeSet<_> = cases.iter().map(|case| &case.name).collect();
    assert_eq!(names.len(), cases.len(), "each case has a name of its own");

    let output = Command::new(python)
        .args([tests.join("original.py"), tests.join("cases.json")])
        .stdin(Stdio::null())
        .output()
        .unwrap();
    let complained = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{complained}");
    let originals: BTreeMap<String, Seen> = serde_json::from_slice(&output.stdout).unwrap();

    let mut wrong = Vec::new();
    for case in &cases {
        let ours = case.run().await;
        for (what, ours, original) in ours.beside(&originals[&case.name]) {
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
    let (count, of) = (wrong.len(), cases.len());
    assert!(
        wrong.is_empty(),
        "{count} in {of} programs differ:\n{}",
        wrong.join("\n")
    );
}
