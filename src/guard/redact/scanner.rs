//! Finds matches in a text that comes in pieces.

use std::sync::Arc;

use super::detector::Check;
use super::table::{Ends, Table};
use super::{Detector, DetectorError};

/// So much of what was let through is kept, for what looks back.
const LOOK_BEHIND: usize = 8;

/// All patterns of all detectors.
pub(super) struct Rules {
    kinds: Vec<String>,
    patterns: Vec<Pattern>,
}

struct Pattern {
    kind: usize,
    table: Table,
    begins: fn(&str) -> bool,
    check: Option<Check>,
}

impl Rules {
    pub(super) fn new(
        detectors: impl IntoIterator<Item = Detector>,
    ) -> Result<Self, DetectorError> {
        let (mut kinds, mut patterns) = (Vec::new(), Vec::new());
        for Detector { kind, sources } in detectors {
            if kind.is_empty() || kind.contains(['[', ']']) {
                return Err(DetectorError::Kind(kind.into_owned()));
            }
            for source in sources {
                let table = Table::new(&kind, &source.pattern)?;
                let (begins, check) = (source.begins, source.check);
                patterns.push(Pattern { kind: kinds.len(), table, begins, check });
            }
            kinds.push(kind.into_owned());
        }
        Ok(Self { kinds, patterns })
    }

    pub(super) fn kinds(&self) -> &[String] {
        &self.kinds
    }
}

/// Takes what was found of a kind, and appends what is to be seen of it.
pub(super) type Replace<'a> = &'a mut dyn FnMut(&str, &str, &mut String);

/// A text so far: the end of what was let through, and what is held back.
///
/// Matches are found from left to right, and of those from one place on the longest counts. What
/// is held back begins at the first place from which a match may still come, or become longer.
pub(super) struct Scanner {
    rules: Arc<Rules>,
    max: usize,
    text: String,
    /// Where what is held back begins.
    from: usize,
    walk: Walk,
}

/// What is known of the matches that begin at one place.
#[derive(Default)]
struct Walk {
    has_begun: bool,
    /// How many bytes were read.
    at: usize,
    /// Patterns that may still match, and their states.
    open: Vec<(usize, u32)>,
    /// Where matches of which patterns end.
    ends: Vec<(usize, usize)>,
}

impl Scanner {
    /// Matches longer than `max` bytes are not looked for.
    pub(super) fn new(rules: Arc<Rules>, max: usize) -> Self {
        Self { rules, max, text: String::new(), from: 0, walk: Walk::default() }
    }

    /// The text goes on; appends to `out` what no more of it can change.
    pub(super) fn push(&mut self, more: &str, replace: Replace<'_>, out: &mut String) {
        self.text.push_str(more);
        self.advance(false, replace, out);
        let mut seen = self.from.saturating_sub(LOOK_BEHIND);
        while !self.text.is_char_boundary(seen) {
            seen -= 1;
        }
        self.text.drain(..seen);
        self.from -= seen;
    }

    /// The text is over; appends the rest to `out`. What comes next is another text.
    pub(super) fn finish(&mut self, replace: Replace<'_>, out: &mut String) {
        self.advance(true, replace, out);
        self.text.clear();
        self.from = 0;
    }

    fn advance(&mut self, is_over: bool, replace: Replace<'_>, out: &mut String) {
        let mut plain = self.from;
        while self.from < self.text.len() && self.read(is_over) {
            match self.longest() {
                Some((end, kind)) => {
                    let end = self.from + end;
                    out.push_str(&self.text[plain..self.from]);
                    replace(&self.rules.kinds[kind], &self.text[self.from..end], out);
                    (self.from, plain) = (end, end);
                }
                None => {
                    let first = self.text[self.from..].chars().next();
                    self.from += first.map_or(1, char::len_utf8);
                }
            }
            self.walk.has_begun = false;
        }
        out.push_str(&self.text[plain..self.from]);
    }

    /// Reads on from where a match may begin; says whether it is known which one does.
    fn read(&mut self, is_over: bool) -> bool {
        let Self { rules, max, text, from, walk } = self;
        let (from, max) = (*from, *max);
        if !walk.has_begun {
            walk.begin(rules, text, from);
        }
        for byte in &text.as_bytes()[from + walk.at..] {
            if walk.open.is_empty() {
                return true;
            }
            let Walk { at, open, ends, .. } = walk;
            open.retain_mut(|(index, state)| {
                let pattern = &rules.patterns[*index];
                *state = pattern.table.next(*state, *byte);
                let facts = pattern.table.facts(*state);
                if facts.reveals {
                    note(ends, pattern, *at, *index);
                }
                let end = *at + 1;
                let goes_on = facts.goes_on && end < max;
                match facts.ends {
                    _ if end > max => false,
                    Ends::Never => goes_on,
                    Ends::Always => {
                        note(ends, pattern, end, *index);
                        goes_on
                    }
                    Ends::Depends => goes_on || pattern.accepts(text, from, end),
                }
            });
            *at += 1;
        }
        if is_over {
            for (index, state) in walk.open.drain(..) {
                let pattern = &rules.patterns[index];
                if walk.at <= max && pattern.table.facts(state).ends_text {
                    note(&mut walk.ends, pattern, walk.at, index);
                }
            }
        }
        walk.open.is_empty()
    }

    /// The longest match that counts, and its kind; of equals the first that was asked for.
    fn longest(&mut self) -> Option<(usize, usize)> {
        let Self { rules, text, from, walk, .. } = self;
        walk.ends.sort_by_key(|(end, index)| (std::cmp::Reverse(*end), *index));
        let mut accepted = walk.ends.iter().map(|(end, index)| (*end, &rules.patterns[*index]));
        let (end, pattern) = accepted.find(|(end, pattern)| pattern.accepts(text, *from, *end))?;
        Some((end, pattern.kind))
    }
}

impl Walk {
    fn begin(&mut self, rules: &Rules, text: &str, from: usize) {
        let (before, rest) = text.split_at(from);
        let last = before.bytes().next_back();
        self.has_begun = true;
        self.at = 0;
        self.ends.clear();
        self.open.clear();
        let Some(first) = rest.bytes().next() else { return };
        for (index, pattern) in rules.patterns.iter().enumerate() {
            let state = pattern.table.start(last);
            let second = pattern.table.next(state, first);
            if !pattern.table.facts(second).is_hopeless() && (pattern.begins)(before) {
                self.open.push((index, state));
            }
        }
    }
}

impl Pattern {
    fn accepts(&self, text: &str, from: usize, end: usize) -> bool {
        self.check.as_ref().is_none_or(|check| check(text, from..from + end))
    }
}

/// Notes a match. Without a check only the longest can count.
fn note(ends: &mut Vec<(usize, usize)>, pattern: &Pattern, end: usize, index: usize) {
    match ends.iter_mut().rfind(|(_, other)| *other == index) {
        Some((longest, _)) if pattern.check.is_none() || *longest == end => *longest = end,
        _ => ends.push((end, index)),
    }
}
