//! The deltas of a streamed call.

use std::collections::HashMap;
use std::sync::{Arc, Mutex};

use serde::{Deserialize, Serialize};
use tower_agent::error::Result;
use tower_agent::model::ModelRequest;
use tower_agent::stream::{Attempt, Delta, DeltaSender, Mapper};

use crate::lock::lock;

/// The output that the attempts of one call have streamed.
#[derive(Clone, Default)]
pub(super) struct Tape(Arc<Mutex<Vec<Track>>>);

/// The output of one attempt.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub(super) struct Track {
    deltas: Vec<Delta>,
    /// The attempt was complete.
    #[serde(default)]
    finished: bool,
}

impl Tape {
    /// Tapes what passes where this is called, and not what callbacks outside make of it.
    pub(super) fn of(request: &mut ModelRequest) -> Option<Self> {
        request.delta_sender()?;
        let tape = Self::default();
        let tracks = tape.clone();
        // In a band of its own: the mappers of callbacks outside act after it.
        tower_agent::call::Request::enter_band(request);
        request.map_deltas(move || {
            let mut all = lock(&tracks.0);
            all.push(Track::default());
            let index = all.len() - 1;
            drop(all);
            Recorder {
                tape: tracks.clone(),
                index,
                calls: HashMap::new(),
            }
        });
        Some(tape)
    }

    pub(super) fn tracks(&self) -> Vec<Track> {
        lock(&self.0).clone()
    }
}

struct Recorder {
    tape: Tape,
    index: usize,
    /// Providers number the tool calls of a response as they like; the file numbers them from 0.
    calls: HashMap<usize, usize>,
}

impl Recorder {
    fn track(&self, write: impl FnOnce(&mut Track)) {
        if let Some(track) = lock(&self.tape.0).get_mut(self.index) {
            write(track);
        }
    }
}

impl Mapper for Recorder {
    fn map(&mut self, delta: Delta, out: &mut Vec<Delta>) -> Result<()> {
        // The consumer receives the delta as it came.
        let mut taped = delta.clone();
        match &mut taped {
            Delta::ToolCall { index, .. } => {
                let next = self.calls.len();
                self.calls.insert(*index, next);
                *index = next;
            }
            Delta::Arguments { index, .. } => {
                *index = self.calls.get(index).copied().unwrap_or(*index);
            }
            _ => {}
        }
        self.track(|track| track.deltas.push(taped));
        out.push(delta);
        Ok(())
    }

    fn flush(&mut self, _: &mut Vec<Delta>) -> Result<()> {
        self.track(|track| track.finished = true);
        Ok(())
    }
}

/// Streams recorded attempts. Returns the number of the last that was complete, and the attempt
/// that broke off at the end, if it did.
pub(super) async fn play(
    sink: &DeltaSender,
    tracks: Vec<Track>,
) -> Result<(Option<u32>, Option<Attempt>)> {
    let mut number = None;
    let mut open = None;
    for track in tracks {
        // An attempt that broke off is over before the next begins.
        drop(open.take());
        let mut attempt = sink.open();
        for delta in track.deltas {
            attempt.send(delta).await?;
        }
        if track.finished {
            number = attempt.finish().await?.attempt
        } else {
            open = Some(attempt)
        }
    }
    Ok((number, open))
}
