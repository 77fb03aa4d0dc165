use std::fmt;

#[cfg(any(feature = "postgres", feature = "restate", feature = "sqlite"))]
use super::RunEnd;

/// Where a run is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum RunStatus {
    /// A process works on it, or has stopped while it did.
    Running,
    /// It waits for resolutions.
    Waiting,
    /// It has failed, and goes on with the failed step when it is made again.
    Failed,
    /// It has responded.
    Completed,
    /// It was cancelled.
    Cancelled,
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
        }
    }

    /// A name of a later version is that of a run which this one leaves alone.
    #[cfg(any(feature = "postgres", feature = "restate", feature = "sqlite"))]
    pub(crate) fn from_name(name: &str) -> Self {
        let all = [Self::Running, Self::Waiting, Self::Failed, Self::Completed];
        all.into_iter().find(|status| status.as_str() == name).unwrap_or(Self::Cancelled)
    }

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
