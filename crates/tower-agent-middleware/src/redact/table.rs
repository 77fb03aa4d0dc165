//! A pattern as a table that also knows what may follow.

use std::collections::HashMap;

use regex_automata::dfa::{Automaton, StartError, StartKind, dense};
use regex_automata::nfa::thompson;
use regex_automata::util::primitives::StateID;
use regex_automata::util::start;
use regex_automata::{Anchored, MatchKind};

use super::detector::DetectorError;

/// The maximum size of an automaton in bytes: enough for some thousand words.
const MAX_BYTES: usize = 16 << 20;

/// Says for each position of a text that starts with a match, byte by byte, where a match ends and
/// whether a longer one may follow.
///
/// An automaton recognises a match one byte late, because a boundary depends on the byte after it.
/// The table looks ahead instead, so that no text waits for a byte that cannot matter.
pub(super) struct Table {
    classes: [u8; 256],
    stride: usize,
    next: Vec<u32>,
    facts: Vec<Facts>,
    /// Indexed by the preceding byte; the last entry is for the start of a text.
    starts: Vec<u32>,
}

/// The facts about one state.
#[derive(Clone, Copy)]
pub(super) struct Facts {
    /// A match ended before the byte that led here.
    pub(super) reveals: bool,
    /// A match ends here if the text does.
    pub(super) ends_text: bool,
    /// A match ends here.
    pub(super) ends: Ends,
    /// A longer match may follow.
    pub(super) goes_on: bool,
}

#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Ends {
    Never,
    Always,
    /// Depends on the next byte.
    Depends,
}

impl Facts {
    /// Returns whether no match can follow.
    pub(super) fn is_hopeless(self) -> bool {
        !self.goes_on && self.ends == Ends::Never
    }
}

impl Table {
    pub(super) fn new(kind: &str, pattern: &str) -> Result<Self, DetectorError> {
        let fails = |reason: String| DetectorError::Pattern {
            kind: kind.to_owned(),
            reason,
        };
        let hir = regex_syntax::parse(pattern).map_err(|error| fails(error.to_string()))?;
        // Refused here: an empty match would be found between any two bytes.
        if hir.properties().minimum_len() == Some(0) {
            return Err(DetectorError::MatchesEmpty {
                kind: kind.to_owned(),
            });
        }
        let config = dense::Config::new()
            // All matches, since a check may reject the longest one.
            .match_kind(MatchKind::All)
            // The scanner starts an automaton at each byte itself.
            .start_kind(StartKind::Anchored)
            .dfa_size_limit(Some(MAX_BYTES))
            .determinize_size_limit(Some(MAX_BYTES));
        let dfa = dense::Builder::new()
            .configure(config)
            .thompson(thompson::Config::new().nfa_size_limit(Some(MAX_BYTES)))
            .build(pattern);
        let dfa = dfa.map_err(|error| fails(with_causes(&error)))?;
        Self::of(&dfa).map_err(|error| fails(error.to_string()))
    }

    fn of(dfa: &dense::DFA<Vec<u32>>) -> Result<Self, StartError> {
        let mut states = FoundStates::default();
        let mut starts = Vec::with_capacity(257);
        for before in (0..=u8::MAX).map(Some).chain([None]) {
            let config = start::Config::new()
                .anchored(Anchored::Yes)
                .look_behind(before);
            starts.push(states.number(dfa.start_state(&config)?));
        }

        // One column for each class of bytes that no state tells apart: the table stays small.
        let mut classes = [0; 256];
        let mut representatives = Vec::new();
        for byte in 0..=u8::MAX {
            let class = dfa.byte_classes().get(byte);
            classes[usize::from(byte)] = class;
            if usize::from(class) == representatives.len() {
                representatives.push(byte);
            }
        }
        let stride = representatives.len();
        let mut next = Vec::new();
        let mut index = 0;
        while let Some(&state) = states.all.get(index) {
            next.extend(representatives.iter().map(|byte| {
                let to = dfa.next_state(state, *byte);
                states.number(to)
            }));
            index += 1;
        }
        let reveals: Vec<bool> = states
            .all
            .iter()
            .map(|state| dfa.is_match_state(*state))
            .collect();
        let ends_text: Vec<bool> = states
            .all
            .iter()
            .map(|state| dfa.is_match_state(dfa.next_eoi_state(*state)))
            .collect();
        let facts = facts(&next, stride, &reveals, &ends_text);
        Ok(Self {
            classes,
            stride,
            next,
            facts,
            starts,
        })
    }

    pub(super) fn start(&self, before: Option<u8>) -> u32 {
        self.starts[before.map_or(256, usize::from)]
    }

    /// Returns whether a match may start with this byte, whatever precedes it.
    pub(super) fn may_begin(&self, first: u8) -> bool {
        self.starts
            .iter()
            .any(|start| !self.facts(self.next(*start, first)).is_hopeless())
    }

    pub(super) fn next(&self, state: u32, byte: u8) -> u32 {
        self.next[state as usize * self.stride + self.class(byte)]
    }

    /// Returns the class of a byte. No state tells the bytes of one class apart.
    pub(super) fn class(&self, byte: u8) -> usize {
        usize::from(self.classes[usize::from(byte)])
    }

    pub(super) fn facts(&self, state: u32) -> Facts {
        self.facts[state as usize]
    }
}

/// The states met so far, in order of discovery.
#[derive(Default)]
struct FoundStates {
    all: Vec<StateID>,
    numbers: HashMap<StateID, u32>,
}

impl FoundStates {
    fn number(&mut self, state: StateID) -> u32 {
        *self.numbers.entry(state).or_insert_with(|| {
            self.all.push(state);
            // The size limit keeps it far below the maximum.
            u32::try_from(self.all.len() - 1).unwrap_or(u32::MAX)
        })
    }
}

fn facts(next: &[u32], stride: usize, reveals: &[bool], ends_text: &[bool]) -> Vec<Facts> {
    let rows = || next.chunks(stride).enumerate();
    // True where a match may end in a state or after it.
    let mut hopeful = ends_text.to_vec();
    let mut is_settled = false;
    while !is_settled {
        is_settled = true;
        // From the end: most transitions lead to later states, so few passes are needed.
        for (state, row) in rows().rev() {
            if hopeful[state] {
                continue;
            }
            if row
                .iter()
                .any(|to| reveals[*to as usize] || hopeful[*to as usize])
            {
                hopeful[state] = true;
                is_settled = false;
            }
        }
    }
    rows()
        .map(|(state, row)| {
            let revealing = row.iter().filter(|to| reveals[**to as usize]).count();
            let ends = match (revealing, ends_text[state]) {
                (0, false) => Ends::Never,
                (all, true) if all == stride => Ends::Always,
                _ => Ends::Depends,
            };
            Facts {
                reveals: reveals[state],
                ends_text: ends_text[state],
                ends,
                goes_on: row.iter().any(|to| hopeful[*to as usize]),
            }
        })
        .collect()
}

fn with_causes(error: &dyn std::error::Error) -> String {
    let mut words = error.to_string();
    let mut cause = error.source();
    while let Some(error) = cause {
        words = format!("{words}: {error}");
        cause = error.source();
    }
    words
}
