use std::fmt;
use std::path::PathBuf;
use std::sync::{Arc, Mutex};

use serde::Serialize;
use serde_json::{Map, Value, json};
use tower_agent::call::CallKind;
use tower_agent::error::Result as CallResult;
use tower_agent::message::Usage;

use super::call::{RecordedCall, Site};
use super::difference::Difference;
use super::error::RecordingError;
use super::file::{self, RecordingEntry};
use crate::lock::lock;

/// Calls in a file: recorded, or replayed in the place of the service.
///
/// It is a [`Layer`](tower_layer::Layer) around models and tools, and around any
/// [`Recordable`](super::Recordable) call. Clones share the file; two runs at once may share one.
/// See the [module](super).
#[derive(Clone)]
pub struct Recording {
    shared: Arc<Shared>,
}

struct Shared {
    path: PathBuf,
    is_replay: bool,
    state: Mutex<RecordingState>,
}

#[derive(Default)]
struct RecordingState {
    calls: Vec<RecordingEntry>,
    fault: Option<RecordingError>,
}

impl RecordingState {
    /// Returns some of the calls, with their numbers.
    fn numbered(&self, is_meant: impl Fn(&RecordingEntry) -> bool) -> Vec<(usize, Site)> {
        let entries = self.calls.iter().enumerate();
        let meant = entries.filter(|(_, entry)| is_meant(entry));
        meant
            .map(|(at, entry)| (at + 1, entry.call.site.clone()))
            .collect()
    }

    /// Nothing inside a replayed tool call is called: not the agent that the tool may be.
    fn leave_out_calls_in(&mut self, call: &RecordedCall) {
        let tool = CallKind::Tool.to_string();
        if call.site.kind != tool || call.site.path.is_empty() {
            return;
        }
        for entry in &mut self.calls {
            let below = entry.call.site.path.strip_prefix(&*call.site.path);
            // The name must end there: the call `m1.1` does not contain those of `m1.10`.
            if below.is_some_and(|below| below.starts_with('/')) {
                entry.is_used = true;
            }
        }
    }
}

/// The start of a call of a [`Recording`].
#[derive(Debug)]
#[non_exhaustive]
pub enum CallStart {
    /// The call is made and recorded.
    Record(OpenCall),
    /// The call is not made: this is its recorded outcome.
    Replay(Value),
}

/// A call that is being recorded. If it is dropped before its [`end`](Self::end), the outcome is
/// that the call was dropped.
pub struct OpenCall {
    recording: Option<Recording>,
    index: usize,
}

impl Recording {
    /// Creates an empty recording, which [`finish`](Self::finish) writes to this file.
    #[must_use]
    pub fn record(path: impl Into<PathBuf>) -> Self {
        Self::new(path.into(), false, Vec::new())
    }

    /// Reads a recording, to answer calls from it.
    ///
    /// # Errors
    ///
    /// Fails if the file cannot be read, is not a recording or has another version.
    pub fn replay(path: impl Into<PathBuf>) -> Result<Self, RecordingError> {
        let path = path.into();
        let calls = file::read(&path)?;
        Ok(Self::new(path, true, calls))
    }

    fn new(path: PathBuf, is_replay: bool, calls: Vec<RecordingEntry>) -> Self {
        let state = Mutex::new(RecordingState { calls, fault: None });
        Self {
            shared: Arc::new(Shared {
                path,
                is_replay,
                state,
            }),
        }
    }

    /// Returns whether calls are answered from the file.
    #[must_use]
    pub fn is_replay(&self) -> bool {
        self.shared.is_replay
    }

    /// Returns the calls, in the order in which they began: for what looks at them without making
    /// them again.
    #[must_use]
    pub fn calls(&self) -> Vec<RecordedCall> {
        let state = lock(&self.shared.state);
        state.calls.iter().map(|entry| entry.call.clone()).collect()
    }

    /// Ends the recording: writes the file, or checks that the run was the recorded one.
    ///
    /// Call it at the end of every test. A recorded call that was dropped may be left out, since it
    /// depends on timing whether such a call begins.
    ///
    /// # Errors
    ///
    /// When recording, fails if a call is still running or the file cannot be written. When
    /// replaying, fails with the first call that differed, even if the run went on, or else with
    /// the recorded calls that were not made.
    pub fn finish(&self) -> Result<(), RecordingError> {
        let state = lock(&self.shared.state);
        if let Some(fault) = &state.fault {
            return Err(fault.clone());
        }
        let path = self.shared.path.clone();
        if self.is_replay() {
            let calls = state.numbered(|entry| !entry.is_used && !entry.is_dropped());
            return if calls.is_empty() {
                Ok(())
            } else {
                Err(RecordingError::Unused { path, calls })
            };
        }
        // Not held while a file is written.
        drop(state);
        file::write(&path, self.ended()?)
    }

    /// Returns the text of the file, for what keeps it elsewhere.
    ///
    /// # Errors
    ///
    /// Fails if a call is still running, or has failed to be recorded.
    pub fn text(&self) -> Result<String, RecordingError> {
        if let Some(fault) = &lock(&self.shared.state).fault {
            return Err(fault.clone());
        }
        let path = self.shared.path.clone();
        file::text(self.ended()?).map_err(|error| RecordingError::Format {
            path,
            reason: error.to_string(),
        })
    }

    /// Returns all calls, which have ended.
    fn ended(&self) -> Result<Vec<RecordingEntry>, RecordingError> {
        let state = lock(&self.shared.state);
        let calls = state.numbered(|entry| entry.is_running);
        if !calls.is_empty() {
            let path = self.shared.path.clone();
            return Err(RecordingError::Running { path, calls });
        }
        Ok(state.calls.clone())
    }

    /// Starts a call, for a layer of your own around calls that are not a
    /// [`Request`](tower_agent::Request).
    ///
    /// ```
    /// use serde_json::json;
    /// use tower_agent_test::recording::{CallStart, RecordedCall, Recording, RecordingError};
    ///
    /// fn fetch(recording: &Recording, url: &str) -> Result<String, RecordingError> {
    ///     let call = RecordedCall::new("fetch", json!({ "url": url }));
    ///     Ok(match recording.begin(call)? {
    ///         CallStart::Replay(outcome) => outcome["page"].as_str().unwrap_or_default().to_owned(),
    ///         CallStart::Record(open) => {
    ///             let page = format!("the page at {url}");
    ///             open.end(json!({ "page": page }));
    ///             page
    ///         }
    ///         _ => unreachable!(),
    ///     })
    /// }
    ///
    /// let path = std::env::temp_dir().join(format!("fetch-{}.json", std::process::id()));
    /// let recording = Recording::record(&path);
    /// fetch(&recording, "/a")?;
    /// recording.finish()?;
    ///
    /// let recording = Recording::replay(&path)?;
    /// assert_eq!(fetch(&recording, "/a")?, "the page at /a");
    /// assert!(fetch(&recording, "/b").is_err());
    /// # std::fs::remove_file(path).unwrap();
    /// # Ok::<_, RecordingError>(())
    /// ```
    ///
    /// # Errors
    ///
    /// When replaying, fails if the call differs from the recorded one, or is not recorded.
    pub fn begin(&self, mut call: RecordedCall) -> Result<CallStart, RecordingError> {
        // Written and read once, like the recorded calls: a comparison must not fail for what a
        // file cannot hold.
        call.request = as_read(&call)?;
        let mut state = lock(&self.shared.state);
        if !self.is_replay() {
            let index = state.calls.len();
            state.calls.push(RecordingEntry {
                call,
                outcome: Value::Null,
                is_running: true,
                is_used: true,
            });
            return Ok(CallStart::Record(OpenCall {
                recording: Some(self.clone()),
                index,
            }));
        }
        // Not by order alone: parallel calls begin in any order.
        if let Some(entry) = state.calls.iter_mut().find(|entry| entry.is_left(&call)) {
            entry.is_used = true;
            let outcome = entry.outcome.clone();
            state.leave_out_calls_in(&call);
            return Ok(CallStart::Replay(outcome));
        }
        let error = self.mismatch(&state.calls, &call);
        drop(state);
        // The code under test may swallow the error, so `finish` reports it again.
        Err(self.fail(error))
    }

    /// Returns why no recorded call answers this one.
    fn mismatch(&self, calls: &[RecordingEntry], call: &RecordedCall) -> RecordingError {
        let path = self.shared.path.clone();
        let site = call.site.clone();
        let mut left = calls.iter().enumerate().filter(|(_, entry)| !entry.is_used);
        let found = left.clone().find_map(|(at, entry)| {
            let difference = Difference::first(&entry.call.request, &call.request)?;
            entry.is_at(call).then_some((at + 1, difference))
        });
        match found {
            Some((number, difference)) => RecordingError::Differs {
                path,
                call: site,
                number,
                difference: Box::new(difference),
            },
            None => {
                let next = left
                    .next()
                    .map(|(_, entry)| Box::new(entry.call.site.clone()));
                RecordingError::Unexpected {
                    path,
                    call: site,
                    next,
                }
            }
        }
    }

    /// Keeps the first fault, which [`finish`](Self::finish) returns whatever the run does with it.
    pub(super) fn fail(&self, fault: RecordingError) -> RecordingError {
        lock(&self.shared.state)
            .fault
            .get_or_insert_with(|| fault.clone());
        fault
    }
}

/// Returns the part of an outcome that says which tokens a replay adds to the run.
pub(super) fn used(usage: Usage) -> serde_json::Result<Map<String, Value>> {
    let usage = serde_json::to_value(usage)?;
    Ok(Map::from_iter([("usage".to_owned(), usage)]))
}

/// Returns a response without the id of its message: the run that replays it mints one, and a file
/// that is recorded again stays the same.
fn without_id(mut response: Value) -> Value {
    if let Some(Value::Object(message)) = response.get_mut("message") {
        message.remove("id");
    }
    response
}

/// Returns the request as a reader of the file sees it.
fn as_read(call: &RecordedCall) -> Result<Value, RecordingError> {
    let text = serde_json::to_string(&call.request);
    text.and_then(|text| serde_json::from_str(&text))
        .map_err(|error| RecordingError::data(&call.site, &error))
}

impl RecordingEntry {
    /// Returns whether the calls are of the same kind and at the same place in the run.
    fn is_at(&self, call: &RecordedCall) -> bool {
        self.call.site.kind == call.site.kind && self.call.site.path == call.site.path
    }

    fn is_left(&self, call: &RecordedCall) -> bool {
        !self.is_used && self.is_at(call) && self.call.request == call.request
    }

    fn is_dropped(&self) -> bool {
        self.outcome["dropped"] == true
    }
}

impl OpenCall {
    /// Ends the call with its outcome.
    pub fn end(mut self, outcome: Value) {
        self.close(outcome);
    }

    /// Ends a model or tool call with its result, as the layer does. `used` are the tokens that
    /// were used inside the call beside those that the response has itself, such as those of
    /// attempts that failed.
    ///
    /// # Errors
    ///
    /// Fails if the result cannot be serialised. The call is then recorded as dropped.
    pub fn end_with<T: Serialize>(
        self,
        result: &CallResult<T>,
        used: Usage,
    ) -> Result<(), RecordingError> {
        let so_far = if used == Usage::default() {
            Ok(Map::new())
        } else {
            self::used(used)
        };
        let so_far = so_far.map_err(|error| RecordingError::data(&self.site(), &error))?;
        self.end_after(so_far, result)
    }

    /// Ends the call with its result, after what there is however it ends.
    pub(super) fn end_after<T: Serialize>(
        self,
        mut outcome: Map<String, Value>,
        result: &CallResult<T>,
    ) -> Result<(), RecordingError> {
        let ended = match result {
            Ok(response) => serde_json::to_value(response).map(|response| ("response", response)),
            Err(error) => serde_json::to_value(error).map(|error| ("error", error)),
        };
        let (end, value) = ended.map_err(|error| RecordingError::data(&self.site(), &error))?;
        outcome.insert(end.into(), without_id(value));
        self.end(outcome.into());
        Ok(())
    }

    /// Returns which call it is.
    fn site(&self) -> Site {
        let state = self.recording.as_ref();
        let state = state.map(|recording| lock(&recording.shared.state));
        let entry = state.as_ref().and_then(|state| state.calls.get(self.index));
        entry.map_or_else(Site::default, |entry| entry.call.site.clone())
    }

    /// Ends the call without a response, after output that it may have shown.
    pub fn end_dropped(mut self, mut outcome: Map<String, Value>) {
        outcome.insert("dropped".into(), true.into());
        self.close(outcome.into());
    }

    fn close(&mut self, outcome: Value) {
        // Taken, so that the drop after an `end` does not overwrite the outcome.
        let Some(recording) = self.recording.take() else {
            return;
        };
        if let Some(entry) = lock(&recording.shared.state).calls.get_mut(self.index) {
            entry.outcome = outcome;
            entry.is_running = false;
        }
    }
}

impl Drop for OpenCall {
    fn drop(&mut self) {
        self.close(json!({ "dropped": true }));
    }
}

impl fmt::Debug for OpenCall {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("OpenCall")
            .field("index", &self.index)
            .finish_non_exhaustive()
    }
}

impl fmt::Debug for Recording {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Recording")
            .field("path", &self.shared.path)
            .field("is_replay", &self.shared.is_replay)
            .finish_non_exhaustive()
    }
}
