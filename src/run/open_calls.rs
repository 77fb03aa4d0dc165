//! Results of open tool calls that the caller has executed.

use serde_json::Value;

use crate::conversation::CallName;
use crate::error::{Error, ErrorKind, Result};
use crate::message::{Message, Messages, Part, ToolResult};

impl Messages {
    /// Adds the result of an [open call](Self::open_calls). A run that continues with these
    /// messages does not call the tool.
    ///
    /// # Errors
    ///
    /// Fails with [`InvalidRequest`](ErrorKind::InvalidRequest) if no call with this id is open.
    pub fn answer(&mut self, id: &str, value: impl Into<Value>) -> Result<()> {
        let Some(call) = self.open_calls().find(|call| &*call.id == id) else {
            let open: Vec<_> = self.open_calls().map(|call| &*call.id).collect();
            let message = match &open[..] {
                [] => format!("tool call `{id}` is not open; there are no open calls"),
                open => format!(
                    "tool call `{id}` is not open; open calls: {}",
                    open.join(", ")
                ),
            };
            return Err(Error::new(ErrorKind::InvalidRequest, message));
        };
        let mut answer = Message::tool(ToolResult::new(call, [Part::from(&value.into())]));
        let asking = self.last_turn().map(|turn| turn.calling);
        if let Some(message) = asking
            && let Some(message_id) = message.id()
            && let Some(index) = message.tool_calls().position(|call| *call.id == *id)
        {
            let name = CallName {
                message: message_id.clone(),
                index,
            };
            name.identify_result(&mut answer);
        }
        self.push(answer);
        Ok(())
    }
}
