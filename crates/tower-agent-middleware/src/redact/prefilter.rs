//! Tells where in a text no pattern can match, for a few instructions a byte.

use std::collections::HashMap;
use std::mem;

use super::detector::Begins;
use super::table::{Ends, Table};

/// The maximum size of a prefilter in bytes.
const MAX_BYTES: usize = 4 << 20;

/// The state after a byte with which a pattern may match, or may have begun without the others.
const UNSURE: u32 = u32::MAX;

/// All patterns as one automaton that starts them at each byte.
///
/// It reads each byte once, where the [walks](super::walk) of several patterns from several
/// positions read it several times. It says where nothing can match, and not where something does:
/// as soon as something may, it is unsure.
pub(super) struct Prefilter {
    classes: [u8; 256],
    /// The state after a byte of each class, for one state after another. The number of a state is
    /// where its row starts.
    next: Vec<u32>,
    /// The states in which no pattern has begun, indexed by the preceding byte; the last entry is
    /// for the start of a text.
    idle: Vec<u32>,
    /// The first state in which one has. The idle states come before it.
    first_busy: u32,
    /// The conditions on which patterns begin with a byte, indexed by the byte.
    conditions: Box<[Vec<Begins>; 256]>,
}

/// The place up to which a prefilter has read a text.
pub(super) struct PrefilterCursor {
    state: u32,
    /// The next byte.
    at: usize,
    /// Number of bytes read, counting every read.
    pub(super) steps: usize,
}

/// The patterns that have begun at one position and may still match, and their states.
#[derive(Clone, PartialEq, Eq, Hash)]
struct Begun {
    patterns: Vec<(usize, u32)>,
    /// The group of the last byte. What may begin next depends on it.
    behind: usize,
}

impl Prefilter {
    /// Returns `None` if the automaton is too large, as that of many thousand words may be.
    pub(super) fn new(tables: &[&Table], conditions: Box<[Vec<Begins>; 256]>) -> Option<Self> {
        // One group for all bytes after which each pattern starts in the same state.
        let mut starts: Vec<Vec<u32>> = Vec::new();
        let mut behind = Vec::with_capacity(257);
        for byte in (0..=u8::MAX).map(Some).chain([None]) {
            let start = tables.iter().map(|table| table.start(byte)).collect();
            behind.push(position_or_push(&mut starts, start));
        }
        // One class for all bytes that no pattern tells apart.
        let mut columns: Vec<Vec<usize>> = Vec::new();
        let mut classes = [0; 256];
        let mut representatives = Vec::new();
        for byte in 0..=u8::MAX {
            let mut column: Vec<usize> = tables.iter().map(|table| table.class(byte)).collect();
            column.push(behind[usize::from(byte)]);
            let class = position_or_push(&mut columns, column);
            if class == representatives.len() {
                representatives.push(byte);
            }
            classes[usize::from(byte)] = u8::try_from(class).ok()?;
        }

        let stride = representatives.len();
        let mut states = BegunStates::new(stride);
        let mut idle = Vec::with_capacity(257);
        for group in &behind {
            let nothing = Begun {
                patterns: Vec::new(),
                behind: *group,
            };
            idle.push(states.number(nothing)?);
        }
        let first_busy = states.next_number()?;
        let mut next = Vec::new();
        let mut index = 0;
        while let Some(state) = states.all.get(index).cloned() {
            for byte in &representatives {
                let group = behind[usize::from(*byte)];
                let to = match state.after(*byte, group, &starts[state.behind], tables) {
                    Some(to) => states.number(to)?,
                    None => UNSURE,
                };
                next.push(to);
            }
            if mem::size_of_val(&*next) > MAX_BYTES {
                return None;
            }
            index += 1;
        }
        Some(Self {
            classes,
            next,
            idle,
            first_busy,
            conditions,
        })
    }

    /// Reads on to the end of a text and moves `from` to the first position from which a pattern
    /// may match. Returns `false` if something before the cursor may be a match; then everything up
    /// to it must be looked at in another way.
    pub(super) fn read(&self, text: &str, from: &mut usize, cursor: &mut PrefilterCursor) -> bool {
        if cursor.state == UNSURE {
            if *from < cursor.at {
                return false;
            }
            let last = text.as_bytes()[..*from].last();
            cursor.state = self.idle[last.map_or(256, |last| usize::from(*last))];
            cursor.at = *from;
        }
        let mut state = cursor.state;
        let mut at = cursor.at;
        for byte in &text.as_bytes()[cursor.at..] {
            let was_idle = state < self.first_busy;
            let class = usize::from(self.classes[usize::from(*byte)]);
            state = self.next[state as usize + class];
            if state < self.first_busy {
                *from = at + 1;
            } else if was_idle {
                // The automaton begins every pattern, and one of them may not begin here.
                let conditions = &self.conditions[usize::from(*byte)];
                if !conditions.is_empty() && !are_met(conditions, &text[..at]) {
                    state = UNSURE;
                }
            }
            at += 1;
            if state == UNSURE {
                break;
            }
        }
        cursor.steps += at - cursor.at;
        cursor.at = at;
        cursor.state = state;
        state != UNSURE
    }
}

/// Returns whether patterns may begin after a text. Out of line: it would slow down the loop around
/// it, which rarely calls it.
#[inline(never)]
fn are_met(conditions: &[Begins], before: &str) -> bool {
    conditions.iter().all(|begins| begins(before))
}

impl PrefilterCursor {
    /// The start of a text.
    pub(super) fn new() -> Self {
        Self {
            state: UNSURE,
            at: 0,
            steps: 0,
        }
    }

    /// Begins another text.
    pub(super) fn restart(&mut self) {
        self.state = UNSURE;
        self.at = 0;
    }

    /// Leaves everything that has been read of a text to another way.
    pub(super) fn give_up(&mut self) {
        self.state = UNSURE;
    }

    /// Follows a text that loses bytes at its start.
    pub(super) fn shift(&mut self, bytes: usize) {
        // Where it was unsure, it may be behind what has been looked at in another way.
        self.at = self.at.saturating_sub(bytes);
    }
}

impl Begun {
    /// Returns what has begun one byte later. Returns `None` if a pattern may match then, or has
    /// begun at this byte and is not in the state of one that began earlier: where it began is then
    /// unknown. Patterns in the same state have the same future.
    fn after(&self, byte: u8, group: usize, starts: &[u32], tables: &[&Table]) -> Option<Self> {
        let starts = starts.iter().copied().enumerate();
        let mut begun = advance(starts, byte, tables)?;
        if !self.patterns.is_empty() {
            let earlier = advance(self.patterns.iter().copied(), byte, tables)?;
            if begun.iter().any(|pattern| !earlier.contains(pattern)) {
                return None;
            }
            begun = earlier;
        }
        Some(Self {
            patterns: begun,
            behind: group,
        })
    }
}

/// Returns the patterns that still may match after another byte, or `None` if one does.
fn advance(
    begun: impl Iterator<Item = (usize, u32)>,
    byte: u8,
    tables: &[&Table],
) -> Option<Vec<(usize, u32)>> {
    let mut after = Vec::new();
    for (index, state) in begun {
        let state = tables[index].next(state, byte);
        let facts = tables[index].facts(state);
        if facts.ends != Ends::Never {
            return None;
        }
        if facts.goes_on {
            after.push((index, state));
        }
    }
    Some(after)
}

/// The states met so far, in order of discovery.
struct BegunStates {
    stride: usize,
    all: Vec<Begun>,
    numbers: HashMap<Begun, u32>,
}

impl BegunStates {
    fn new(stride: usize) -> Self {
        Self {
            stride,
            all: Vec::new(),
            numbers: HashMap::new(),
        }
    }

    fn next_number(&self) -> Option<u32> {
        u32::try_from(self.all.len() * self.stride).ok()
    }

    fn number(&mut self, state: Begun) -> Option<u32> {
        if let Some(number) = self.numbers.get(&state) {
            return Some(*number);
        }
        let number = self.next_number()?;
        self.all.push(state.clone());
        self.numbers.insert(state, number);
        Some(number)
    }
}

/// Returns the index of an item, which is appended if it is new.
fn position_or_push<T: PartialEq>(all: &mut Vec<T>, item: T) -> usize {
    let known = all.iter().position(|known| *known == item);
    known.unwrap_or_else(|| {
        all.push(item);
        all.len() - 1
    })
}
