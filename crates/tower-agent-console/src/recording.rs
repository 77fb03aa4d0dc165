//! Runs that were watched, as recordings for tests.

use tower_agent::testing::Recording;
use tower_agent::testing::recording::{CallStart, Recordable, RecordedCall, RecordingError, Site};

use crate::console::Console;
use crate::kept::{Kept, KeptCall};
use crate::not_recorded::{self, NotRecorded};
use crate::record::{Entry, EntryKind, Run};

impl Console {
    /// Returns a run, by the id that the page shows, as the text of a file that
    /// [`Recording::replay`] reads: what went wrong once becomes a test. It has all that a replay
    /// compares: also settings, the declarations of tools, media and what is a provider's own.
    ///
    /// A replay answers the calls where the console stood, outside everything of the agents' own:
    ///
    /// ```
    /// use tower_agent::callback::Bundle;
    /// use tower_agent::testing::{Recording, ScriptedModel, Turn};
    /// use tower_agent::{Agent, AgentRequest};
    /// use tower_agent_console::Console;
    ///
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), tower_agent::BoxError> {
    /// let console = Console::new().record_content();
    /// let agent = Agent::builder(ScriptedModel::new([Turn::from_text("hi")]))
    ///     .global_callbacks(console.watch())
    ///     .build()?;
    /// agent.run(AgentRequest::new("Hello.").with_run_id("r1")).await?;
    /// let path = std::env::temp_dir().join(format!("hello-{}.json", std::process::id()));
    /// std::fs::write(&path, console.recording("r1")?)?;
    ///
    /// // In the test:
    /// let recording = Recording::replay(&path)?;
    /// let replay = Bundle::new()
    ///     .model_layer(recording.clone())
    ///     .tool_layer(recording.clone());
    /// let agent = Agent::builder(ScriptedModel::new([])).global_callbacks(replay).build()?;
    /// assert_eq!(agent.run("Hello.").await?.text(), "hi");
    /// recording.finish()?;
    /// # std::fs::remove_file(path)?;
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// What holds for every [recording](tower_agent::testing::recording) holds for it: the state
    /// that a tool has set is not in it. Deltas are not either; a streamed replay streams each
    /// answer whole.
    ///
    /// # Errors
    ///
    /// Fails if a part of it is not there, not over or hidden by a redaction: there is no recording
    /// of half a run.
    #[cfg_attr(docsrs, doc(cfg(feature = "recording")))]
    pub fn recording(&self, run: &str) -> Result<String, NotRecorded> {
        let recording = self.with_run(run, |store, run| {
            // What was never told of it cannot be missed by looking at the rest.
            let is_whole = run.summary.left_out == 0 && run.left_out_before == store.left_out;
            record(run, is_whole)
        })?;
        recording.text().map_err(|error| NotRecorded::Unwritten {
            run: run.to_owned(),
            call: "a call".to_owned(),
            reason: error.to_string(),
        })
    }
}

fn record(run: &Run, is_whole: bool) -> Result<Recording, NotRecorded> {
    let id = || run.summary.id.to_string();
    let is_kept = run.entries.iter().any(|entry| entry.content.kept.is_some());
    if !is_kept {
        return Err(NotRecorded::NoContent { run: id() });
    }
    let recording = Recording::record(format!("{}.json", run.summary.id));
    for entry in &run.entries {
        let name = || not_recorded::call(run, entry);
        let is_given = match &entry.kind {
            EntryKind::Model { is_given, .. } | EntryKind::Tool { is_given, .. } => *is_given,
            _ => continue,
        };
        if entry.end.is_none() {
            return Err(NotRecorded::Running {
                run: id(),
                call: name(),
            });
        }
        match entry.content.kept.as_deref() {
            Some(Kept::Model { call, .. }) => add(&recording, run, entry, call)?,
            Some(Kept::Tool { call, .. }) => add(&recording, run, entry, call)?,
            // It was answered outside the console, and will be in a replay.
            _ if is_given && is_whole => {}
            _ => {
                return Err(NotRecorded::LeftOut {
                    run: id(),
                    call: name(),
                });
            }
        }
    }
    if !is_whole {
        return Err(NotRecorded::LeftOut {
            run: id(),
            call: "something".to_owned(),
        });
    }
    Ok(recording)
}

fn add<R: Recordable>(
    recording: &Recording,
    run: &Run,
    entry: &Entry,
    kept: &KeptCall<R>,
) -> Result<(), NotRecorded> {
    let id = || run.summary.id.to_string();
    let name = || not_recorded::call(run, entry);
    let unwritten = |reason: String| NotRecorded::Unwritten {
        run: id(),
        call: name(),
        reason,
    };
    if kept.is_hidden {
        return Err(NotRecorded::Hidden {
            run: id(),
            call: name(),
        });
    }
    let data = kept.request.data();
    let data = data.map_err(|error| unwritten(error.to_string()))?;
    let mut site = Site::of(&kept.request);
    site.path.clone_from(&kept.path);
    let mut call = RecordedCall::new(site.kind.clone(), data);
    call.site = site;
    let unrecorded = |error: RecordingError| unwritten(error.to_string());
    let open = match recording.begin(call).map_err(unrecorded)? {
        CallStart::Record(open) => open,
        // It is no replay.
        _ => return Ok(()),
    };
    match &kept.result {
        Some(result) => open.end_with(result, kept.used).map_err(unrecorded),
        // Dropped, it says that the call was.
        None => {
            drop(open);
            Ok(())
        }
    }
}
