use std::fmt;
use std::sync::Arc;

use serde::{Deserialize, Deserializer, Serialize};

use crate::call_kind::CallKind;

/// The call that failed: its kind, its name, and the agent it belongs to.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct CallSite {
    /// The kind of call.
    pub kind: CallKind,
    /// The tool's name, for a tool call.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub name: Option<Arc<str>>,
    /// The agent's path in its tree, outermost first, joined by `/`. Empty outside an agent.
    pub agent: Arc<str>,
}

impl CallSite {
    /// Reads a stored call; `None` if its kind is defined elsewhere: that name is `'static`.
    pub(super) fn read<'de, D: Deserializer<'de>>(
        deserializer: D,
    ) -> Result<Option<Self>, D::Error> {
        #[derive(Deserialize)]
        struct Stored {
            kind: String,
            #[serde(default)]
            name: Option<Arc<str>>,
            #[serde(default)]
            agent: Arc<str>,
        }

        let stored = Option::<Stored>::deserialize(deserializer)?;
        Ok(stored.and_then(|Stored { kind, name, agent }| {
            let mut kinds = [CallKind::Agent, CallKind::Model, CallKind::Tool].into_iter();
            let kind = kinds.find(|known| known.to_string() == kind)?;
            Some(Self { kind, name, agent })
        }))
    }
}

impl fmt::Display for CallSite {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} call", self.kind)?;
        if let Some(name) = &self.name {
            // The model may have made it up, for whoever reads the log.
            write!(f, " `{}`", name.escape_debug())?;
        }
        if !self.agent.is_empty() {
            write!(f, " of agent `{}`", self.agent)?;
        }
        Ok(())
    }
}
