//! The file of a recording.

use std::fs;
use std::io::{self, Write};
use std::path::Path;
use std::sync::Arc;

use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::call::RecordedCall;
use super::error::{RecordingError, VERSION};

/// The field that makes a file a recording; its value is the version.
const MARK: &str = "tower_agent_recording";

#[derive(Serialize, Deserialize)]
struct RecordingFile {
    tower_agent_recording: u64,
    calls: Vec<RecordingEntry>,
}

/// A call and its outcome.
#[derive(Clone, Serialize, Deserialize)]
pub(super) struct RecordingEntry {
    #[serde(flatten)]
    pub(super) call: RecordedCall,
    pub(super) outcome: Value,
    #[serde(skip)]
    pub(super) is_running: bool,
    #[serde(skip)]
    pub(super) is_used: bool,
}

pub(super) fn read(path: &Path) -> Result<Vec<RecordingEntry>, RecordingError> {
    let text = fs::read_to_string(path).map_err(|error| RecordingError::Read {
        path: path.to_owned(),
        source: Arc::new(error),
    })?;
    let format = |reason: String| RecordingError::Format {
        path: path.to_owned(),
        reason,
    };
    // The version is read first: a file of another one is named as such, whatever its calls look
    // like.
    let json: Value = serde_json::from_str(&text).map_err(|error| format(error.to_string()))?;
    match json.get(MARK).and_then(Value::as_u64) {
        Some(VERSION) => {}
        Some(found) => {
            return Err(RecordingError::Version {
                path: path.to_owned(),
                found,
            });
        }
        None => {
            return Err(format(format!(
                "the field `{MARK}` with its version is missing"
            )));
        }
    }
    let file = serde_json::from_value::<RecordingFile>(json);
    Ok(file.map_err(|error| format(error.to_string()))?.calls)
}

/// Writes the file beside its place and then moves it there, so that it is never half written.
pub(super) fn write(path: &Path, calls: Vec<RecordingEntry>) -> Result<(), RecordingError> {
    let text = text(calls).map_err(io::Error::from);
    let written = text.and_then(|text| replace(path, &text));
    written.map_err(|error| RecordingError::Write {
        path: path.to_owned(),
        source: Arc::new(error),
    })
}

/// Returns the text of the file.
pub(super) fn text(calls: Vec<RecordingEntry>) -> serde_json::Result<String> {
    let file = RecordingFile {
        tower_agent_recording: VERSION,
        calls,
    };
    let mut text = serde_json::to_string_pretty(&file)?;
    // A recording is committed beside its test, where editors and diffs expect a last line break.
    text.push('\n');
    Ok(text)
}

fn replace(path: &Path, text: &str) -> io::Result<()> {
    let folder = path
        .parent()
        .filter(|folder| !folder.as_os_str().is_empty());
    if let Some(folder) = folder {
        fs::create_dir_all(folder)?;
    }
    let mut beside = path.as_os_str().to_owned();
    beside.push(format!(".{}.tmp", uuid::Uuid::new_v4()));
    let done = put(beside.as_ref(), text.as_bytes()).and_then(|()| fs::rename(&beside, path));
    if done.is_err() {
        // The first error is the one to report.
        drop(fs::remove_file(&beside));
    }
    done
}

fn put(path: &Path, text: &[u8]) -> io::Result<()> {
    let mut file = fs::File::create_new(path)?;
    file.write_all(text)?;
    // Before the rename: after a crash, the file has either the old calls or the new ones.
    file.sync_all()
}
