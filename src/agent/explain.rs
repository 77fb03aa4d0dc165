use std::fmt;

use crate::callback::made_of;
use crate::tool::{Tool, ToolRequest};
use crate::type_name::{services_inside, shorten};

/// The structure of an agent, from the outside in.
///
/// Its `Display` lists the callbacks and layers around each call in order, indented by one step for
/// each wrapper: the names of a band's callbacks on one line, a layer in brackets. Agents inside it
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
    /// Adds lines for a service by its type: the layers around it, and the models of a fallback.
    pub(super) fn service(&mut self, depth: usize, type_name: &'static str) {
        let name = shorten(type_name);
        match services_inside(type_name)[..] {
            [] => self.line(depth, name),
            [inner] if name != "Fallback" => {
                self.line(depth, format!("[{name}]"));
                self.service(depth + 1, inner);
            }
            ref several => {
                self.line(depth, name);
                for inner in several {
                    self.service(depth + 1, inner);
                }
            }
        }
    }

    /// Adds lines for a tool inside its layers.
    pub(super) fn tool(&mut self, depth: usize, tool: &Tool) {
        let layers = tool.layers().iter();
        let names = layers.flat_map(|it| made_of::<ToolRequest>(&*it.layer, it.type_name).1);
        let inside = self.stack(depth, names.collect());
        self.line(inside, tool.declaration().name());
    }

    /// Adds the lines of an inner agent.
    pub(super) fn nest(&mut self, depth: usize, inside: &Self) {
        let lines = inside.lines.iter();
        self.lines.extend(lines.map(|(level, text)| (depth + level, text.clone())));
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
