use std::fmt;

#[cfg(any(feature = "postgres", feature = "restate", feature = "sqlite"))]
use super::error::JournalError;
#[cfg(any(feature = "postgres", feature = "restate", feature = "sqlite"))]
use super::run_end::RunEnd;
#[cfg(any(feature = "postgres", feature = "restate", feature = "sqlite"))]
use crate::error::StoreError;

/// Where a run is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum RunStatus {
    /// A process executes it, or has stopped while it did.
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

    /// Returns the status of this name.
    #[cfg(any(feature = "postgres", feature = "restate", feature = "sqlite"))]
    pub(crate) fn from_name(name: &str) -> Self {
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

    /// Returns the status of this name, or why its run cannot continue.
    #[cfg(any(feature = "postgres", feature = "restate", feature = "sqlite"))]
    pub(crate) fn of_open(run: &str, name: &str) -> Result<Self, JournalError> {
        match Self::from_name(name) {
            Self::Cancelled => Err(JournalError::Cancelled { run: run.into() }),
            Self::Unreadable => {
                let why = format!(
                    "`{name}`, the status of run `{run}`, is of a later version of this crate"
                );
                Err(StoreError::data(why).into())
            }
            status => Ok(status),
        }
    }

    /// Returns that of a run that has ended so.
    #[cfg(any(feature = "postgres", feature = "restate", feature = "sqlite"))]
    pub(crate) const fn of(end: &RunEnd) -> Self {
        match end {
            RunEnd::Completed { .. } => Self::Completed,
            RunEnd::Waiting { .. } => Self::Waiting,
            RunEnd::Failed(_) => Self::Failed,
        }
    }
}

impl fmt::Display for RunStatus {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}
