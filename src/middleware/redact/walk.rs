//! Where the matches of one pattern end that begin at one place.
//!
//! Two walks through a pattern's table that are in one state at one place go the same way from
//! there on. So a walk leaves its track, and a later one that comes upon a track goes on at its
//! end: a long run of letters is read once, and not once from each of them.

use super::table::{Ends, Table};

/// A track that is shorter helps nobody.
const WORTH_KEEPING: usize = 4;
/// So many are kept of one pattern: those that lead furthest.
const KEPT: usize = 4;

/// The states of a walk, and where it has met ends of matches. Places are counted in bytes from
/// where the text began.
#[derive(Default)]
struct Track {
    /// The place of the first state.
    first: usize,
    states: Vec<u32>,
    ends: Vec<usize>,
}

impl Track {
    /// The place behind the last state.
    fn end(&self) -> usize {
        self.first + self.states.len()
    }

    fn at(&self, place: usize) -> Option<u32> {
        self.states.get(place.checked_sub(self.first)?).copied()
    }

    /// Forgets what nobody comes back to.
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
    kept: Vec<Track>,
    own: Track,
}

impl Tracks {
    pub(super) fn clear(&mut self) {
        self.kept.clear();
    }
}

/// A walk that has not come to its end.
pub(super) struct Walk {
    pattern: usize,
    state: u32,
    /// Where it began.
    from: usize,
    /// The next byte to read.
    at: usize,
    /// The track that it follows; its own unless there is one.
    follows: Option<usize>,
}

/// What a walk is done on.
pub(super) struct Ground<'a> {
    pub(super) table: &'a Table,
    pub(super) tracks: &'a mut Tracks,
    /// Matches are no longer than that.
    pub(super) max: usize,
    /// What there is to read, and the place of its first byte.
    pub(super) bytes: &'a [u8],
    pub(super) begins_at: usize,
    /// Counts the bytes that were looked at.
    pub(super) steps: &'a mut u64,
}

impl Walk {
    pub(super) fn begin(pattern: usize, state: u32, from: usize, tracks: &mut Tracks) -> Self {
        tracks.kept.retain(|track| track.end() > from);
        tracks.own.first = from + 1;
        tracks.own.states.clear();
        tracks.own.ends.clear();
        Self { pattern, state, from, at: from, follows: None }
    }

    /// Which pattern it is of.
    pub(super) fn pattern(&self) -> usize {
        self.pattern
    }

    /// Reads on; `found` is told how long each match is. Says whether more of the text may matter.
    /// `may_count` says of a match's length whether it counts, as far as can be told.
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
            for end in [facts.reveals.then_some(self.at), ends.then_some(self.at + 1)] {
                let Some(end) = end else { continue };
                let ends = &mut self.track(ground.tracks).ends;
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
            if self.follows.is_none() && self.meets(ground.tracks, found) {
                *ground.steps += 1;
                if !self.goes_on(ground, may_count) {
                    return self.close(ground.tracks);
                }
            }
        }
        true
    }

    /// The text is over: the length of the match that ends there, if one does.
    pub(super) fn finish(&self, table: &Table, max: usize) -> Option<usize> {
        let length = self.at - self.from;
        (length <= max && table.facts(self.state).ends_text).then_some(length)
    }

    fn track<'a>(&self, tracks: &'a mut Tracks) -> &'a mut Track {
        match self.follows.and_then(|index| tracks.kept.get_mut(index)) {
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

    /// Goes to the end of a track that it has come upon.
    fn meets(&mut self, tracks: &Tracks, found: &mut dyn FnMut(usize)) -> bool {
        let (at, state) = (self.at, self.state);
        let Some(index) = tracks.kept.iter().position(|track| track.at(at) == Some(state)) else {
            return false;
        };
        let track = &tracks.kept[index];
        if let Some(last) = track.states.last() {
            self.state = *last;
        }
        self.at = track.end() - 1;
        self.follows = Some(index);
        track.ends.iter().filter(|end| **end > at).for_each(|end| found(end - self.from));
        true
    }

    /// It has come to its end, and leaves its track.
    fn close(&self, tracks: &mut Tracks) -> bool {
        if self.follows.is_none() && tracks.own.states.len() >= WORTH_KEEPING {
            if tracks.kept.len() == KEPT {
                let shortest = (0..KEPT).min_by_key(|index| tracks.kept[*index].end());
                shortest.map(|index| tracks.kept.swap_remove(index));
            }
            tracks.kept.push(std::mem::take(&mut tracks.own));
        }
        false
    }
}
