//! Google's ADK for Python, at the version that `Semantics::adk_python` names.

mod program;
mod seen;

use std::collections::BTreeMap;
use std::path::Path;

use serde::Deserialize;
use serde_json::{Map, Value};
use test_support::process::is_installed;

use self::program::{Agents, Do};
use self::seen::Seen;
use super::comparison::{Program, compare};

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
    turns: Vec<Says>,
    /// What differs, each with its row among the deliberate differences of the framework's page.
    #[serde(default)]
    differs: BTreeMap<String, String>,
}

/// What the user says.
#[derive(Deserialize)]
#[serde(untagged)]
enum Says {
    Text(String),
    /// An answer to the call that waits.
    Answer {
        answer: Value,
    },
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Plugin {
    name: String,
    hooks: BTreeMap<String, Option<Do>>,
}

/// The table of differences, whose rows the cases name.
const PAGE: &str = include_str!("../../../../../src/guide/conformance/adk_python.md");

impl Program for Case {
    type Seen = Seen;

    fn name(&self) -> &str {
        &self.name
    }

    fn differs(&self) -> &BTreeMap<String, String> {
        &self.differs
    }

    /// Runs a program here, one turn of the user after another.
    async fn run(&self) -> Seen {
        let mut agents = Agents::default();
        let root = agents.root(&self.root, &self.plugins);
        let state = self.state.clone().into();
        let mut seen = Seen::default();
        let mut checkpoint = None;
        for says in &self.turns {
            checkpoint = Some(seen.turn(&root, checkpoint, says, &state).await);
        }
        seen.requests = agents.requests();
        seen.hooks = agents.log.take();
        seen.state = state.snapshot();
        seen
    }

    fn beside(ours: &Seen, original: &Seen) -> Vec<(&'static str, Value, Value)> {
        ours.beside(original)
    }
}

#[tokio::test]
async fn programs_do_what_they_do_on_the_original() {
    let tests = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests");
    let python = tests.join("servers/.venv/bin/python");
    if is_installed("google-adk for Python", &python, ".ci/servers") {
        compare::<Case>(&python, &tests.join("originals/adk"), PAGE).await;
    }
}
