//! Messages as texts.

use tower_agent::message::{Message, Part, Role};

use crate::flow::short_name;

/// Returns a message as a text, with its name and role.
pub(super) fn rendered(message: &Message) -> String {
    let id = message.id();
    let name = id.map_or_else(String::new, |id| format!("[{}] ", short_name(id)));
    let mut lines = Vec::new();
    for part in message.parts() {
        let line = match part {
            Part::Text(text) => format!("{}: {}", role(message), text.text),
            Part::ToolCall(call) => format!("call of `{}`: {}", call.name, call.arguments.as_str()),
            Part::ToolResult(result) => format!("result of `{}`: {}", result.name, result.text()),
            Part::Image(_) => format!("{}: (an image)", role(message)),
            Part::Audio(_) => format!("{}: (audio)", role(message)),
            Part::Document(_) => format!("{}: (a document)", role(message)),
            // Reasoning and data of a provider are of no use to another model.
            _ => continue,
        };
        lines.push(format!("{name}{line}"));
    }
    lines.join("\n")
}

fn role(message: &Message) -> &'static str {
    match message.role() {
        Role::System => "instructions",
        Role::User => "user",
        Role::Assistant => "assistant",
        Role::Tool => "tool",
        _ => "message",
    }
}
