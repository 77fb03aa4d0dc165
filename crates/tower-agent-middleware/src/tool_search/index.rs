//! A search in declarations of tools.

use std::cmp::Reverse;
use std::collections::HashSet;
use std::sync::Arc;

use tower_agent::tool::ToolDeclaration;

/// The most tools that one search returns.
const MAX_FOUND: usize = 10;

/// The declarations that can be found.
pub(super) struct Index {
    declarations: Vec<Arc<ToolDeclaration>>,
    names: HashSet<String>,
}

impl Index {
    pub(super) fn new(declarations: Vec<Arc<ToolDeclaration>>) -> Self {
        let names = declarations.iter().map(|tool| tool.name().to_owned());
        Self {
            names: names.collect(),
            declarations,
        }
    }

    /// Returns whether a tool with this name can be found.
    pub(super) fn contains(&self, name: &str) -> bool {
        self.names.contains(name)
    }

    /// Returns the names of the tools that are not among these.
    pub(super) fn not_in(&self, others: &[Arc<ToolDeclaration>]) -> Vec<String> {
        let others: HashSet<&str> = others.iter().map(|tool| tool.name()).collect();
        let all = self.declarations.iter().map(|tool| tool.name());
        all.filter(|name| !others.contains(name))
            .map(str::to_owned)
            .collect()
    }

    /// Returns the tools that match the words of a query, the best first, of those that are there.
    pub(super) fn search(
        &self,
        query: &str,
        is_there: impl Fn(&&ToolDeclaration) -> bool,
    ) -> Vec<&ToolDeclaration> {
        let query = words(query);
        let scored = self
            .declarations
            .iter()
            .map(|tool| &**tool)
            .filter(is_there)
            .map(|tool| (score(tool, &query), tool));
        let mut found: Vec<_> = scored.filter(|(score, _)| *score > 0).collect();
        // Equal ones stay in the order in which they were registered.
        found.sort_by_key(|(score, _)| Reverse(*score));
        found.truncate(MAX_FOUND);
        found.into_iter().map(|(_, tool)| tool).collect()
    }
}

/// Returns how well a tool matches: a word of its name counts as much as three of its description.
fn score(tool: &ToolDeclaration, query: &[String]) -> usize {
    let name = words(tool.name());
    let description = words(tool.description());
    let of_word = |word: &String| {
        let in_name = usize::from(name.contains(word));
        let in_description = usize::from(description.contains(word));
        3 * in_name + in_description
    };
    query.iter().map(of_word).sum()
}

/// Returns the words of a text in lower case, also those of a name such as `sendMail` or
/// `send_mail`.
fn words(text: &str) -> Vec<String> {
    let mut words = Vec::new();
    let mut word = String::new();
    let mut was_lower = false;
    for character in text.chars() {
        let begins = !character.is_alphanumeric() || (was_lower && character.is_uppercase());
        if begins && !word.is_empty() {
            words.push(std::mem::take(&mut word));
        }
        if character.is_alphanumeric() {
            word.extend(character.to_lowercase());
        }
        was_lower = character.is_lowercase();
    }
    if !word.is_empty() {
        words.push(word);
    }
    words
}
