//! LangChain's middleware, at the version that `Semantics::langchain` names.

mod middleware;
mod program;
mod ready;
mod seen;

use std::collections::BTreeMap;
use std::path::Path;

use serde_json::Value;
use test_support::process::is_installed;

use self::program::Case;
use self::seen::Seen;
use super::comparison::{Program, compare};

/// The table of differences, whose rows the cases name.
const PAGE: &str = include_str!("../../../../../src/guide/conformance/langchain.md");

impl Program for Case {
    type Seen = Seen;

    fn name(&self) -> &str {
        &self.name
    }

    fn differs(&self) -> &BTreeMap<String, String> {
        &self.differs
    }

    async fn run(&self) -> Seen {
        self.run_here().await
    }

    fn beside(ours: &Seen, original: &Seen) -> Vec<(&'static str, Value, Value)> {
        ours.beside(original)
    }
}

#[tokio::test]
async fn programs_do_what_they_do_on_the_original() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/originals/langchain");
    let python = folder.join(".venv/bin/python");
    if is_installed("langchain for Python", &python, ".ci/servers") {
        compare::<Case>(&python, &folder, PAGE).await;
    }
}
