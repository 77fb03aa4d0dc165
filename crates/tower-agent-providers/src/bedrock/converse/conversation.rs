//! Writes the conversation.

use super::block;
use super::provider::{CALL_IDS, PROTOCOL, invalid};
use crate::turns::{self, Blocks, Place};
use tower_agent::error::Result;
use tower_agent::message::{Part, Role};
use tower_agent::model::ModelRequest;

/// Writes the messages as an array. `last` is a block that ends the last message.
pub(super) fn write(request: &ModelRequest, last: Option<&str>, out: &mut Vec<u8>) -> Result<()> {
    turns::write::<ConverseBlocks>(request, last, out)
}

/// Returns the texts of the system messages, which are sent apart.
pub(super) fn system(request: &ModelRequest) -> Result<Vec<&str>> {
    let mut texts = Vec::new();
    for (index, message) in request.messages().iter().enumerate() {
        if message.role() != Role::System {
            continue;
        }
        for part in message.parts().iter().filter(|part| block::is_sent(part)) {
            let Part::Text(text) = part else {
                let message = format!("messages[{index}]: a system message contains only text");
                return Err(invalid(message));
            };
            texts.push(&*text.text);
        }
    }
    Ok(texts)
}

/// The blocks of this protocol.
struct ConverseBlocks;

impl Blocks for ConverseBlocks {
    const PROTOCOL: &'static str = PROTOCOL;
    const HAS_SYSTEM_TURNS: bool = false;

    fn is_sent(part: &Part) -> bool {
        block::is_sent(part)
    }

    fn write(place: Place<'_>, out: &mut Vec<u8>) -> Result<()> {
        let Place {
            messages,
            index,
            number,
            ..
        } = place;
        let part = &messages[index].parts()[number];
        let written = match part {
            Part::ToolResult(result) => {
                let id = CALL_IDS.of_result(result, messages, index);
                block::tool_result(result, &id, out)
            }
            part => block::write(part, out),
        };
        written.map_err(|error| {
            let message = format!("messages[{index}].parts[{number}]: {}", error.message());
            error.with_message(message)
        })
    }
}
