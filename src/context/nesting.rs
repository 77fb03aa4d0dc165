use crate::error::{Error, ErrorKind, Result};

/// The default limit of nested agents: a stack of 2 MiB holds twice as many without optimisation.
pub(crate) const MAX_NESTING: u32 = 10;

#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Nesting {
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
