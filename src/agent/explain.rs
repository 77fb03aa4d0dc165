use std::fmt;

use crate::tool::Tool;

/// The structure of an agent, from the outside in.
///
/// Its `Display` lists the callbacks and layers around each call in order, indented by one step for
/// each wrapper: the names of a band's callbacks on one line, the type of a layer in brackets. Agents inside it
/// are listed in place, with the callbacks of the whole tree.
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

    /// Adds lines for a stack; returns the depth inside it.
    pub(super) fn stack(&mut self, depth: usize, parts: Vec<Vec<String>>) -> usize {
        let inside = depth + parts.len();
        for (level, names) in parts.into_iter().enumerate() {
            self.line(depth + level, names.join(", "));
        }
        inside
    }
}

impl Explanation {
    /// Adds lines for a tool inside its layers.
    pub(super) fn tool(&mut self, depth: usize, tool: &Tool) {
        let names = tool
            .layers()
            .iter()
            .map(|layer| layer.names.clone())
            .collect();
        let inside = self.stack(depth, names);
        self.line(inside, tool.declaration().name());
    }

    /// Adds the lines of an inner agent.
    pub(super) fn nest(&mut self, depth: usize, inside: &Self) {
        let lines = inside.lines.iter();
        self.lines
            .extend(lines.map(|(level, text)| (depth + level, text.clone())));
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
