use std::collections::BTreeMap;
use std::sync::Arc;

use serde::{Deserialize, Serialize};

/// The messages that only repeat an answer, by their ids.
pub(crate) type Repeats = BTreeMap<Arc<str>, Repeat>;

/// A message that only repeats an answer. Its client keeps it, also where the call goes on to wait
/// for something else.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Repeat {
    /// The client's id of the call.
    call: Arc<str>,
    /// The client executes the call.
    is_client: bool,
}

impl Repeat {
    pub(crate) fn new(call: &str, is_client: bool) -> Self {
        Self {
            call: call.into(),
            is_client,
        }
    }

    pub(crate) fn is_of(&self, call: &str) -> bool {
        *self.call == *call
    }

    /// Returns whether the message could be taken for a result when questions about these
    /// calls are open. The
    /// server's own result counts, whatever the client says; of the client's results, the last one.
    pub(crate) fn matters<'a>(&self, mut open: impl Iterator<Item = Option<&'a str>>) -> bool {
        self.is_client || open.any(|call| call == Some(&self.call))
    }
}
