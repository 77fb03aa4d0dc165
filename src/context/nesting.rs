use crate::error::{Error, ErrorKind, Result};

/// The default limit of nested agents. A stack of 2 MiB is sufficient for twice as many in an
/// unoptimised build, with guards around each.
pub(crate) const MAX_NESTING: u32 = 10;

/// The depth of a call in a tree of agents.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Nesting {
    /// The number of agents around it.
    depth: u32,
    /// The maximum depth, if an agent has set one.
    most: Option<u32>,
}

impl Nesting {
    /// Enters another agent, which allows this many inside it. Outer limits also apply.
    pub(super) fn inside(self, allowed: Option<u32>) -> Self {
        let depth = self.depth.saturating_add(1);
        let own = allowed.map(|allowed| depth.saturating_add(allowed));
        let most = self.most.into_iter().chain(own).min();
        Self {
            depth,
            most: Some(most.unwrap_or_else(|| depth.saturating_add(MAX_NESTING))),
        }
    }

    /// Fails if no further agent may be called.
    pub(crate) fn check(self) -> Result<()> {
        match self.most {
            Some(most) if self.depth >= most => {
                let message = format!("depth {}", self.depth);
                Err(Error::new(ErrorKind::MaxNesting, message))
            }
            _ => Ok(()),
        }
    }
}
