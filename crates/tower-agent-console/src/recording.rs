//! Runs that were watched, as recordings for tests.

use tower_agent_test::Recording;
use tower_agent_test::recording::{CallStart, Recordable, RecordedCall, RecordingError, Site};

use crate::console::Console;
use crate::kept::{Kept, KeptCall};
use crate::not_recorded::NotRecorded;
use crate::past::{Known, Past, PastEntry, PastKind};

impl Console {
    /// Returns a run, by the id that the page shows, as the text of a file that
    /// [`Recording::replay`] reads: what went wrong once becomes a test. It has all that a replay
    /// compares: also settings, the declarations of tools, media and what is a provider's own.
    ///
    /// A replay answers the calls where the console stood, outside everything of the agents' own:
    ///
    /// ```
    /// use tower_agent::callback::Bundle;
    /// use tower_agent::{Agent, AgentRequest};
    /// use tower_agent_console::Console;
    /// use tower_agent_test::{Recording, ScriptedModel, Turn};
    ///
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), tower_agent::BoxError> {
    /// let console = Console::new().record_content();
    /// let agent = Agent::builder(ScriptedModel::new([Turn::from_text("hi")]))
    ///     .global_callbacks(console.watch())
    ///     .build()?;
    /// agent.run(AgentRequest::new("Hello.").with_run_id("r1")).await?;
    /// let path = std::env::temp_dir().join(format!("hello-{}.json", std::process::id()));
    /// std::fs::write(&path, console.recording("r1").await?)?;
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
    /// As with every [recording](tower_agent_test::recording), the state that a tool has set is not
    /// in it. Deltas are not either; a streamed replay streams each answer whole.
    ///
    /// # Errors
    ///
    /// Fails if a part of it is not there, not over or hidden by a redaction: there is no recording
    /// of half a run.
    #[cfg_attr(docsrs, doc(cfg(feature = "recording")))]
    pub async fn recording(&self, run: &str) -> Result<String, NotRecorded> {
        let past = self.past(run).await?;
        record(&past)?
            .text()
            .map_err(|error| NotRecorded::Unwritten {
                run: run.to_owned(),
                call: "a call".to_owned(),
                reason: error.to_string(),
            })
    }
}

fn record(past: &Past) -> Result<Recording, NotRecorded> {
    let id = || past.id.to_string();
    if !past.is_kept() {
        return Err(NotRecorded::NoContent { run: id() });
    }
    let recording = Recording::record(format!("{}.json", past.name));
    for entry in &past.entries {
        let is_given = match &entry.kind {
            PastKind::Model { is_given } | PastKind::Tool { is_given, .. } => *is_given,
            _ => continue,
        };
        if entry.end.is_none() {
            return Err(NotRecorded::Running {
                run: id(),
                call: past.words(entry),
            });
        }
        let known = past.known(entry)?;
        match &known {
            Known::Kept(kept) => match &**kept {
                Kept::Model { call, .. } => add(&recording, past, entry, call)?,
                Kept::Tool { call, .. } => add(&recording, past, entry, call)?,
                Kept::Run(_) => {}
            },
            Known::Hidden(_) => return Err(hidden(past, entry)),
            // It was answered outside the console, and will be in a replay.
            Known::Nothing if is_given && past.is_whole => {}
            Known::Nothing => {
                return Err(NotRecorded::LeftOut {
                    run: id(),
                    call: past.words(entry),
                });
            }
        }
    }
    if !past.is_whole {
        return Err(NotRecorded::LeftOut {
            run: id(),
            call: "something".to_owned(),
        });
    }
    Ok(recording)
}

fn hidden(past: &Past, entry: &PastEntry) -> NotRecorded {
    NotRecorded::Hidden {
        run: past.id.to_string(),
        call: past.words(entry),
    }
}

fn add<R: Recordable>(
    recording: &Recording,
    past: &Past,
    entry: &PastEntry,
    kept: &KeptCall<R>,
) -> Result<(), NotRecorded> {
    let unwritten = |reason: String| NotRecorded::Unwritten {
        run: past.id.to_string(),
        call: past.words(entry),
        reason,
    };
    if kept.is_hidden {
        return Err(hidden(past, entry));
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
