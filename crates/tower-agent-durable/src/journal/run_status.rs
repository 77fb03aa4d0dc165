use std::fmt;

use super::error::JournalError;
use tower_agent_conversations::StoreError;

/// The status of a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum RunStatus {
    /// A process executes it, or has stopped while it did: [`is_alive`](super::RunInfo::is_alive)
    /// says which.
    Running,
    /// It waits for resolutions.
    Waiting,
    /// It has failed. Started again, it continues with the failed step.
    Failed,
    /// It has responded.
    Completed,
    /// It was cancelled.
    Cancelled,
    /// It cannot be read, as a rule because a later version of this crate has written it. It cannot
    /// continue in this process.
    Unreadable,
}

impl RunStatus {
    /// Returns the name.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Running => "running",
            Self::Waiting => "waiting",
            Self::Failed => "failed",
            Self::Completed => "completed",
            Self::Cancelled => "cancelled",
            Self::Unreadable => "unreadable",
        }
    }

    /// Returns the status of this name, or [`Unreadable`](Self::Unreadable) for a name of a later
    /// version.
    #[must_use]
    pub fn from_name(name: &str) -> Self {
        let all = [
            Self::Running,
            Self::Waiting,
            Self::Failed,
            Self::Completed,
            Self::Cancelled,
        ];
        all.into_iter()
            .find(|status| status.as_str() == name)
            .unwrap_or(Self::Unreadable)
    }

    /// Returns the status of this name, of a run that is to continue.
    ///
    /// # Errors
    ///
    /// Fails with [`Cancelled`](JournalError::Cancelled) if the run was cancelled, and with
    /// [`Store`](JournalError::Store) if a later version of this crate wrote the name.
    pub fn of_open_run(run: &str, name: &str) -> Result<Self, JournalError> {
        match Self::from_name(name) {
            Self::Cancelled => Err(JournalError::Cancelled { run: run.into() }),
            // A status that is not known could mean that the run must not continue.
            Self::Unreadable => {
                let why = format!(
                    "`{name}`, the status of run `{run}`, is of a later version of this crate"
                );
                Err(StoreError::data(why).into())
            }
            status => Ok(status),
        }
    }
}

impl fmt::Display for RunStatus {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}
