use crate::error::{Error, ErrorKind, Result};

/// How deep agents may stand inside one another unless one says otherwise. A stack of 2 MiB holds
/// twice as many in a build without optimisation, with guards around each.
pub(crate) const MAX_NESTING: u32 = 10;

/// How deep a call stands in a tree of agents.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Nesting {
    /// The agents around it.
    depth: u32,
    /// How many there may be; no agent has said so yet.
    most: Option<u32>,
}

impl Nesting {
    /// Inside one more agent, which allows so many inside it. What those around it allow holds, too.
    pub(super) fn inside(self, allowed: Option<u32>) -> Self {
        let depth = self.depth.saturating_add(1);
        let own = allowed.map(|allowed| depth.saturating_add(allowed));
        let most = match (self.most, own) {
            (Some(most), Some(own)) => most.min(own),
            (None, None) => depth.saturating_add(MAX_NESTING),
            (most, own) => most.or(own).unwrap_or(depth),
        };
        Self { depth, most: Some(most) }
    }

    /// Fails where no agent may be called any more.
    pub(crate) fn check(self) -> Result<()> {
        match self.most {
            Some(most) if self.depth >= most => {
                let message = format!("{} agents are at work inside one another", self.depth);
                Err(Error::new(ErrorKind::MaxNesting, message))
            }
            _ => Ok(()),
        }
    }
}
