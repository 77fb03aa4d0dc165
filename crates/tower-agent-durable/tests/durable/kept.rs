//! The keepers of a run: a session, a thread, a journal, and a journal inside of each.

use tower_agent_conversations::ConversationKey;

/// The keepers of a run.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Kept {
    Session,
    Thread,
    Journal,
    SessionAndJournal,
    ThreadAndJournal,
}

impl Kept {
    pub(crate) const ALL: [Self; 5] = [
        Self::Session,
        Self::Thread,
        Self::Journal,
        Self::SessionAndJournal,
        Self::ThreadAndJournal,
    ];

    pub(crate) fn in_thread(self) -> bool {
        matches!(self, Self::Thread | Self::ThreadAndJournal)
    }

    pub(crate) fn in_session(self) -> bool {
        matches!(self, Self::Session | Self::SessionAndJournal)
    }

    pub(crate) fn in_journal(self) -> bool {
        !matches!(self, Self::Session | Self::Thread)
    }
}

pub(crate) fn key() -> ConversationKey {
    ConversationKey::new("shop", "ada", "1")
}
