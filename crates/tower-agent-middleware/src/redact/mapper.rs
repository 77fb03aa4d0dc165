//! Redacts a response while it is streamed.

use std::sync::Arc;

use super::Hider;
use super::hide;
use super::scanner::Scanner;
use tower_agent::error::{Error, ErrorKind, Result};
use tower_agent::message::Arguments;
use tower_agent::stream::{Delta, Mapper};
use tower_agent::tool::ToolDeclaration;

/// Redacts one attempt.
pub(super) struct RedactMapper {
    hider: Hider,
    tools: Arc<[Arc<ToolDeclaration>]>,
    scanner: Scanner,
    /// The part that the scanner reads.
    open: Open,
    calls: Vec<Call>,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Open {
    Nothing,
    Text,
    Reasoning,
}

/// A tool call and its arguments so far.
struct Call {
    index: usize,
    json: String,
}

impl RedactMapper {
    /// Creates the mapper of a response that may call these tools.
    pub(super) fn new(hider: Hider, tools: Arc<[Arc<ToolDeclaration>]>) -> Self {
        let scanner = hider.scanner();
        Self {
            hider,
            tools,
            scanner,
            open: Open::Nothing,
            calls: Vec::new(),
        }
    }

    /// Scans more of a text or reasoning part and emits it as deltas.
    fn say(&mut self, what: Open, mut text: String, out: &mut Vec<Delta>) {
        self.turn_to(what, out);
        let hider = &self.hider;
        let replace = &mut |kind: &str, found: &str, out: &mut String| {
            out.push_str(&hider.placeholder(kind, found));
        };
        self.scanner.push(&mut text, replace);
        out.extend(what.delta(text));
    }

    /// Switches to another part; a match ends with the part.
    fn turn_to(&mut self, what: Open, out: &mut Vec<Delta>) {
        let before = std::mem::replace(&mut self.open, what);
        if before == what {
            return;
        }
        let mut text = String::new();
        let hider = &self.hider;
        let replace = &mut |kind: &str, found: &str, out: &mut String| {
            out.push_str(&hider.placeholder(kind, found));
        };
        self.scanner.finish(replace, &mut text);
        out.extend(before.delta(text));
    }
}

impl Open {
    fn delta(self, text: String) -> Option<Delta> {
        match self {
            _ if text.is_empty() => None,
            Self::Nothing => None,
            Self::Text => Some(Delta::Text(text)),
            Self::Reasoning => Some(Delta::Reasoning(text)),
        }
    }
}

impl Mapper for RedactMapper {
    fn map(&mut self, delta: Delta, out: &mut Vec<Delta>) -> Result<()> {
        match delta {
            Delta::Text(more) => self.say(Open::Text, more, out),
            Delta::Reasoning(more) => self.say(Open::Reasoning, more, out),
            Delta::ToolCall { index, id, name } => {
                // A match does not go on in another part, so that what is held back of the text
                // comes first.
                self.turn_to(Open::Nothing, out);
                self.calls.push(Call {
                    index,
                    json: String::new(),
                });
                let name = self
                    .hider
                    .tool_name(&self.tools, &name)
                    .map_or(name, Into::into);
                out.push(Delta::ToolCall { index, id, name });
            }
            Delta::Arguments { index, json } if self.hider.redact.keeps_arguments => {
                out.push(Delta::Arguments { index, json });
            }
            Delta::Arguments { index, json } => {
                if let Some(call) = self.calls.iter_mut().find(|call| call.index == index) {
                    // Held back to the end: only the whole text can be read as JSON, whose strings
                    // are looked at one by one.
                    call.json.push_str(&json);
                }
            }
            // A kind of delta that is newer than this crate may contain text, and what is
            // streamed cannot be taken back.
            _ => {
                let message = "cannot redact this kind of delta";
                return Err(Error::new(ErrorKind::Callback, message));
            }
        }
        Ok(())
    }

    fn flush(&mut self, out: &mut Vec<Delta>) -> Result<()> {
        self.turn_to(Open::Nothing, out);
        if self.hider.redact.keeps_arguments {
            return Ok(());
        }
        for Call { index, json } in self.calls.drain(..) {
            let sent = Arguments::from_text(&*json);
            let hidden = hide::arguments(&sent, &|text| self.hider.text(text));
            let json = hidden.map_or(json, |hidden| hidden.as_str().to_owned());
            out.push(Delta::Arguments { index, json });
        }
        Ok(())
    }
}
