use super::urls::UrlRule;
use crate::refusal::{InputPart, Refusal};

/// The exceptions that a server allows its clients.
#[derive(Clone, Debug, Default)]
pub(crate) struct Allowed {
    /// An input without known messages continues the conversation.
    pub(crate) partial_history: bool,
    /// Messages of the application.
    pub(crate) system_messages: bool,
    pub(crate) urls: UrlRule,
}

impl Allowed {
    /// Fails if the client may not send the message at this index, which is of the application.
    pub(crate) fn check_system(&self, index: usize) -> Result<(), Refusal> {
        if self.system_messages {
            return Ok(());
        }
        let why = "only the server may give the agent instructions: a client speaks as the user";
        Err(Refusal::forbidden(InputPart::Message(index), why))
    }
}
