//! Writes the conversation.

use super::block;
use super::data::{at, breakpoint, invalid};
use super::provider::{CALL_IDS, PROTOCOL};
use crate::json::Items;
use crate::turns::{self, Blocks, Place, TurnRole};
use tower_agent::error::Result;
use tower_agent::message::{Messages, Part};
use tower_agent::model::ModelRequest;

/// Writes the messages as an array.
pub(super) fn write(request: &ModelRequest, out: &mut Vec<u8>) -> Result<()> {
    turns::write::<MessagesBlocks>(request, None, out)
}

/// Writes the blocks of the system messages before all others.
pub(super) fn write_leading(messages: &Messages, items: &mut Items<'_>) -> Result<()> {
    for (index, message) in turns::leading(messages).enumerate() {
        for (number, sent) in message.parts().iter().enumerate() {
            if block::is_sent(sent) {
                let place = Place {
                    messages,
                    turn: TurnRole::System,
                    index,
                    number,
                };
                items.item_with(|out| MessagesBlocks::write(place, out))?;
            }
        }
    }
    Ok(())
}

/// The blocks of this protocol.
struct MessagesBlocks;

impl Blocks for MessagesBlocks {
    const PROTOCOL: &'static str = PROTOCOL;
    const HAS_SYSTEM_TURNS: bool = true;

    fn is_sent(part: &Part) -> bool {
        block::is_sent(part)
    }

    fn write(place: Place<'_>, out: &mut Vec<u8>) -> Result<()> {
        let Place {
            messages,
            turn,
            index,
            number,
        } = place;
        let message = &messages[index];
        let part = &message.parts()[number];
        let path = format_args!("messages[{index}].parts[{number}]");
        if turn == TurnRole::System && !matches!(part, Part::Text(_) | Part::Provider(_)) {
            return Err(at(&path, invalid("a system message contains only text")));
        }
        // The breakpoint of a message covers all of it, so it goes to its last block.
        let breakpoint = breakpoint(message.provider())
            .filter(|_| !message.parts()[number + 1..].iter().any(block::is_sent));
        match part {
            Part::ToolResult(result) => {
                let id = CALL_IDS.of_result(result, messages, index);
                block::tool_result(result, &id, &path, breakpoint, out)
            }
            part => block::write(part, &path, breakpoint, out),
        }
    }
}
