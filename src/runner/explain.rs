use std::fmt;

use super::Agent;

/// The composed agent, as an onion read from the outside in.
///
/// Its `Display` lists what each call passes through, in order, indented by one step for each
/// thing that wraps the next: the names of a band's callbacks on one line, a layer in brackets.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Explanation {
    /// Depth and text.
    lines: Vec<(usize, String)>,
}

impl Explanation {
    pub(super) fn new() -> Self {
        Self { lines: Vec::new() }
    }

    pub(super) fn line(&mut self, depth: usize, text: impl Into<String>) {
        self.lines.push((depth, text.into()));
    }

    /// Lines for a stack; returns the depth inside it.
    pub(super) fn stack(&mut self, depth: usize, parts: Vec<Vec<String>>) -> usize {
        let inside = depth + parts.len();
        for (level, names) in parts.into_iter().enumerate() {
            self.line(depth + level, names.join(", "));
        }
        inside
    }
}

impl Explanation {
    /// Lines for agents inside this one.
    pub(super) fn members(&mut self, depth: usize, members: &[Agent]) {
        for member in members {
            let lines = member.explain().lines.iter();
            self.lines.extend(lines.map(|(level, text)| (depth + level, text.clone())));
        }
    }
}

impl fmt::Display for Explanation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (depth, text) in &self.lines {
            writeln!(f, "{:1$}{text}", "", depth * 2)?;
        }
        Ok(())
    }
}
