//! Tool calls without a result.

use std::collections::HashSet;

use crate::message::{Message, Messages, Role, ToolCall, ToolResult};

impl Messages {
    /// Returns the tool calls of the last turn that have no result, in the model's order. A later
    /// user message closes them.
    ///
    /// ```
    /// use serde_json::json;
    /// use tower_agent::{Message, Part, Role};
    /// use tower_agent::message::{Messages, ToolCall};
    ///
    /// let call = ToolCall::new("call_1", "ask_user", json!({ "question": "Which city?" }));
    /// let asks = Message::new(Role::Assistant, [Part::from(call)]);
    /// let mut messages = Messages::from([Message::user("The weather?"), asks]);
    ///
    /// let open: Vec<_> = messages.open_calls().map(|call| call.id.clone()).collect();
    /// for id in open {
    ///     messages.answer(&id, "Oslo")?;
    /// }
    /// assert_eq!(messages.open_calls().count(), 0);
    /// # Ok::<_, tower_agent::Error>(())
    /// ```
    pub fn open_calls(&self) -> impl Iterator<Item = &ToolCall> {
        self.last_turn().into_iter().flat_map(LastTurn::open_calls)
    }

    /// Returns the last turn, unless a message of the user follows it.
    pub(crate) fn last_turn(&self) -> Option<LastTurn<'_>> {
        let mut earlier = self.iter();
        let calling = earlier.rfind(|message| message.role() != Role::Tool)?;
        let turn = LastTurn {
            calling,
            messages: self,
            results_from: earlier.len() + 1,
        };
        (calling.role() == Role::Assistant).then_some(turn)
    }
}

/// The last message of the model, and the tool messages after it.
pub(crate) struct LastTurn<'a> {
    pub(crate) calling: &'a Message,
    messages: &'a Messages,
    /// The index of the first tool message.
    results_from: usize,
}

impl<'a> LastTurn<'a> {
    pub(crate) fn has_results(&self) -> bool {
        self.results_from < self.messages.len()
    }

    pub(crate) fn results(&self) -> impl Iterator<Item = &'a ToolResult> + Clone + use<'a> {
        let answers = self.messages.range(self.results_from);
        answers.flat_map(Message::tool_results)
    }

    pub(crate) fn open_calls(self) -> Vec<&'a ToolCall> {
        let answered: HashSet<_> = self.results().map(|result| &*result.call_id).collect();
        self.calling
            .tool_calls()
            .filter(|call| !answered.contains(&*call.id))
            .collect()
    }
}
