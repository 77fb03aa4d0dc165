//! Finds where the matches of one pattern end that start at one position.
//!
//! Two walks through a pattern's table that are in the same state at the same position continue
//! identically. A walk therefore records its track, and a later walk that meets the track jumps to
//! its end: a long run of letters is read once, not once for each of them.

use super::table::{Ends, Table};

/// Shorter tracks are not worth keeping.
const WORTH_KEEPING: usize = 4;
/// Number of earlier tracks for each pattern: those that lead furthest.
const MAX_EARLIER: usize = 4;

/// The states of a walk, and where it met ends of matches. Positions are counted in bytes from the
/// start of the text.
#[derive(Default)]
struct Track {
    /// The position of the first state.
    first: usize,
    states: Vec<u32>,
    ends: Vec<usize>,
}

impl Track {
    /// Returns the position after the last state.
    fn end(&self) -> usize {
        self.first + self.states.len()
    }

    fn at(&self, position: usize) -> Option<u32> {
        self.states.get(position.checked_sub(self.first)?).copied()
    }

    /// Drops what no later walk can use.
    fn trim(&mut self, max: usize) {
        if self.states.len() > max.saturating_mul(2).max(1024) {
            let gone = self.states.len() - max;
            self.states.drain(..gone);
            self.first += gone;
            self.ends.retain(|end| *end >= self.first);
        }
    }
}

/// The tracks of one pattern.
#[derive(Default)]
pub(super) struct Tracks {
    earlier: Vec<Track>,
    own: Track,
}

impl Tracks {
    pub(super) fn clear(&mut self) {
        self.earlier.clear();
    }
}

/// A walk that has not ended.
pub(super) struct Walk {
    pattern: usize,
    state: u32,
    /// The place where it started.
    from: usize,
    /// The next byte to read.
    at: usize,
    /// The track that it follows, if not its own.
    follows: Option<usize>,
}

/// The data that a walk reads.
pub(super) struct Ground<'a> {
    pub(super) table: &'a Table,
    pub(super) tracks: &'a mut Tracks,
    /// The maximum length of a match.
    pub(super) max: usize,
    /// The available text, and the position of its first byte.
    pub(super) bytes: &'a [u8],
    pub(super) begins_at: usize,
    /// Counts the bytes read.
    pub(super) steps: &'a mut u64,
}

impl Walk {
    pub(super) fn begin(pattern: usize, state: u32, from: usize, tracks: &mut Tracks) -> Self {
        // A track that ends before this walk starts cannot be met any more.
        tracks.earlier.retain(|track| track.end() > from);
        tracks.own.first = from + 1;
        tracks.own.states.clear();
        tracks.own.ends.clear();
        Self {
            pattern,
            state,
            from,
            at: from,
            follows: None,
        }
    }

    /// Returns the index of its pattern.
    pub(super) fn pattern(&self) -> usize {
        self.pattern
    }

    /// Reads on and calls `found` with the length of each match. Returns whether more text may
    /// matter. `may_count` returns whether a match of a given length counts, as far as that is
    /// known.
    pub(super) fn read(
        &mut self,
        ground: &mut Ground<'_>,
        found: &mut dyn FnMut(usize),
        may_count: &dyn Fn(usize) -> bool,
    ) -> bool {
        while let Some(byte) = ground.bytes.get(self.at - ground.begins_at) {
            *ground.steps += 1;
            self.state = ground.table.next(self.state, *byte);
            let facts = ground.table.facts(self.state);
            let ends = facts.ends == Ends::Always && self.at + 1 - self.from <= ground.max;
            for end in [
                facts.reveals.then_some(self.at),
                ends.then_some(self.at + 1),
            ] {
                let Some(end) = end else { continue };
                let ends = &mut self.track(ground.tracks).ends;
                // One end can be seen twice: by its state, and by the byte after it.
                if ends.last() != Some(&end) {
                    ends.push(end);
                }
                found(end - self.from);
            }
            self.at += 1;
            if !self.goes_on(ground, may_count) {
                return self.close(ground.tracks);
            }
            let track = self.track(ground.tracks);
            track.states.push(self.state);
            track.trim(ground.max);
            // In the same state at the same byte, both would read the same from here: the rest is
            // not read again. It keeps the time linear.
            if self.follows.is_none() && self.meets(ground.tracks, found) {
                *ground.steps += 1;
                if !self.goes_on(ground, may_count) {
                    return self.close(ground.tracks);
                }
            }
        }
        true
    }

    /// Ends the text; returns the length of the match that ends there, if there is one.
    pub(super) fn finish(&self, table: &Table, max: usize) -> Option<usize> {
        let length = self.at - self.from;
        (length <= max && table.facts(self.state).ends_text).then_some(length)
    }

    fn track<'a>(&self, tracks: &'a mut Tracks) -> &'a mut Track {
        match self.follows.and_then(|index| tracks.earlier.get_mut(index)) {
            Some(track) => track,
            None => &mut tracks.own,
        }
    }

    fn goes_on(&self, ground: &Ground<'_>, may_count: &dyn Fn(usize) -> bool) -> bool {
        let facts = ground.table.facts(self.state);
        let length = self.at - self.from;
        let goes_on = facts.goes_on && length < ground.max;
        match facts.ends {
            _ if length > ground.max => false,
            Ends::Never | Ends::Always => goes_on,
            Ends::Depends => goes_on || may_count(length),
        }
    }

    /// Jumps to the end of a track that it has met.
    fn meets(&mut self, tracks: &Tracks, found: &mut dyn FnMut(usize)) -> bool {
        let at = self.at;
        let state = self.state;
        let Some(index) = tracks
            .earlier
            .iter()
            .position(|track| track.at(at) == Some(state))
        else {
            return false;
        };
        let track = &tracks.earlier[index];
        if let Some(last) = track.states.last() {
            self.state = *last;
        }
        self.at = track.end() - 1;
        self.follows = Some(index);
        track
            .ends
            .iter()
            .filter(|end| **end > at)
            .for_each(|end| found(end - self.from));
        true
    }

    /// Ends the walk and records its track.
    fn close(&self, tracks: &mut Tracks) -> bool {
        if self.follows.is_none() && tracks.own.states.len() >= WORTH_KEEPING {
            if tracks.earlier.len() == MAX_EARLIER {
                // The track that ends first is of use to the fewest walks.
                let shortest = (0..MAX_EARLIER).min_by_key(|index| tracks.earlier[*index].end());
                shortest.map(|index| tracks.earlier.swap_remove(index));
            }
            tracks.earlier.push(std::mem::take(&mut tracks.own));
        }
        false
    }
}
