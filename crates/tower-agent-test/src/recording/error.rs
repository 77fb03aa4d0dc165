use std::fmt;
use std::io;
use std::path::PathBuf;
use std::sync::Arc;

use tower_agent::error::{Error, ErrorKind};

use super::call::Site;
use super::difference::Difference;

/// The version of the files that this crate writes and reads.
pub(super) const VERSION: u64 = 1;

/// A [`Recording`](super::Recording) cannot be read or written, or a run differs from it.
#[derive(Clone, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum RecordingError {
    /// The file cannot be read.
    #[error("cannot read the recording `{}`: {source}", .path.display())]
    Read {
        /// The file.
        path: PathBuf,
        /// The error of the file system.
        source: Arc<io::Error>,
    },
    /// The file cannot be written.
    #[error("cannot write the recording `{}`: {source}", .path.display())]
    Write {
        /// The file.
        path: PathBuf,
        /// The error of the file system.
        source: Arc<io::Error>,
    },
    /// The file is not a recording.
    #[error("`{}` is not a recording: {reason}", .path.display())]
    Format {
        /// The file.
        path: PathBuf,
        /// The reason.
        reason: String,
    },
    /// The file is a recording of another version.
    #[error(
        "the recording `{}` has version {found}, and this crate reads version {}; record it again",
        .path.display(), VERSION
    )]
    Version {
        /// The file.
        path: PathBuf,
        /// The version of the file.
        found: u64,
    },
    /// A call differs from the recorded one.
    #[error("{call} differs from call {number} of the recording `{}`\n{difference}", .path.display())]
    Differs {
        /// The file.
        path: PathBuf,
        /// The call that was made.
        call: Site,
        /// The number of the recorded call, from 1.
        number: usize,
        /// The first difference.
        difference: Box<Difference>,
    },
    /// A call was made that is not recorded, or more often than it is recorded.
    #[error(
        "{call} is not in the recording `{}`, or was made before{}", .path.display(), NextCall(.next)
    )]
    Unexpected {
        /// The file.
        path: PathBuf,
        /// The call that was made.
        call: Site,
        /// The first recorded call that was not made yet.
        next: Option<Box<Site>>,
    },
    /// Recorded calls were not made.
    #[error("the run did not make {}", Listed(.path, .calls))]
    Unused {
        /// The file.
        path: PathBuf,
        /// The numbers of the calls in the recording, from 1, and the calls.
        calls: Vec<(usize, Site)>,
    },
    /// Calls are still running, so that the recording is not complete.
    #[error("still running: {}", Listed(.path, .calls))]
    Running {
        /// The file.
        path: PathBuf,
        /// The numbers of the calls in the recording, from 1, and the calls.
        calls: Vec<(usize, Site)>,
    },
    /// A call or its response cannot be serialised, or a recorded one cannot be read.
    #[error("cannot record or replay {call}: {reason}")]
    Data {
        /// The call.
        call: Site,
        /// The reason.
        reason: String,
    },
    /// The recording stands where it would contain what a redaction hides.
    #[error(
        "the recording of {call} would contain what `Redact` hides; pass the redaction to \
         `global_callbacks` or `callbacks` first, and then the recording to `model_layer` and \
         `tool_layer`"
    )]
    Unredacted {
        /// The call.
        call: Site,
    },
}

impl RecordingError {
    pub(super) fn data(call: &Site, error: &serde_json::Error) -> Self {
        Self::Data {
            call: call.clone(),
            reason: error.to_string(),
        }
    }
}

struct NextCall<'a>(&'a Option<Box<Site>>);

impl fmt::Display for NextCall<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            Some(next) => write!(f, "; the next recorded call is {next}"),
            None => f.write_str("; every recorded call was made"),
        }
    }
}

struct Listed<'a>(&'a PathBuf, &'a [(usize, Site)]);

impl fmt::Display for Listed<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (at, (number, call)) in self.1.iter().enumerate() {
            let comma = if at == 0 { "" } else { ", " };
            write!(f, "{comma}call {number} ({call})")?;
        }
        write!(f, " of the recording `{}`", self.0.display())
    }
}

/// Aborts the run: no retry, fallback or callback continues it, and no model reads it.
impl From<RecordingError> for Error {
    fn from(error: RecordingError) -> Self {
        Self::from_source(ErrorKind::Aborted, error)
    }
}
