//! Finds matches in a text that arrives in pieces.

use std::sync::Arc;

use super::built_in;
use super::detector::{Begins, Detector, DetectorError, MatchCheck};
use super::prefilter::{Prefilter, PrefilterCursor};
use super::table::Table;
use super::walk::{Ground, Tracks, Walk};

/// Number of emitted bytes that are kept for look-behind.
const LOOK_BEHIND: usize = 8;
/// Number of emitted bytes that are dropped at once, since the text after them is moved each time.
const DROPPED_AT_ONCE: usize = 256;

/// The patterns of all detectors, and the pattern of the placeholders.
pub(super) struct Rules {
    kinds: Vec<String>,
    patterns: Vec<Pattern>,
    /// Indexed by the first byte of a match.
    by_first: Vec<Vec<usize>>,
    /// The shortest maximum length of a match.
    shortest_max: usize,
    prefilter: Option<Prefilter>,
}

struct Pattern {
    /// The number of kinds, for placeholders.
    kind: usize,
    table: Table,
    max: usize,
    begins: Option<Begins>,
    check: Option<MatchCheck>,
}

impl Rules {
    pub(super) fn new(
        detectors: impl IntoIterator<Item = Detector>,
    ) -> Result<Self, DetectorError> {
        let mut kinds = Vec::new();
        let mut patterns = Vec::new();
        for Detector { kind, sources } in detectors {
            if kind.is_empty() || kind.contains(['[', ']']) {
                return Err(DetectorError::Kind(kind.into_owned()));
            }
            for source in sources {
                let table = Table::new(&kind, &source.pattern)?;
                let max = source.max;
                let begins = source.begins;
                let check = source.check;
                patterns.push(Pattern {
                    kind: kinds.len(),
                    table,
                    max,
                    begins,
                    check,
                });
            }
            kinds.push(kind.into_owned());
        }
        if !kinds.is_empty() {
            let table = Table::new("placeholder", &built_in::placeholder(&kinds))?;
            let kind = kinds.len();
            let max = usize::MAX;
            let check = None;
            // The placeholders come last: their kind is the number of detectors, by which they are
            // told apart.
            patterns.push(Pattern {
                kind,
                table,
                max,
                begins: None,
                check,
            });
        }
        // Most bytes begin no match: looked up once here, they cost one comparison in a text.
        let mut by_first = Vec::with_capacity(256);
        let mut conditions = Box::new([const { Vec::new() }; 256]);
        for byte in 0..=u8::MAX {
            let mut begun = Vec::new();
            for (index, pattern) in patterns.iter().enumerate() {
                if pattern.table.may_begin(byte) {
                    begun.push(index);
                    conditions[usize::from(byte)].extend(pattern.begins);
                }
            }
            by_first.push(begun);
        }
        let tables: Vec<_> = patterns.iter().map(|pattern| &pattern.table).collect();
        let prefilter = Prefilter::new(&tables, conditions);
        let shortest_max = patterns.iter().map(|pattern| pattern.max).min();
        Ok(Self {
            kinds,
            patterns,
            by_first,
            shortest_max: shortest_max.unwrap_or(usize::MAX),
            prefilter,
        })
    }

    /// Returns whether it is certain that a text contains no match.
    pub(super) fn has_no_match(&self, text: &str) -> bool {
        self.skim(text, &mut 0, &mut PrefilterCursor::new())
    }

    /// Reads on as the [prefilter](Prefilter::read) does.
    fn skim(&self, text: &str, from: &mut usize, cursor: &mut PrefilterCursor) -> bool {
        let Some(prefilter) = &self.prefilter else {
            return false;
        };
        prefilter.read(text, from, cursor)
    }

    pub(super) fn kinds(&self) -> &[String] {
        &self.kinds
    }
}

/// Receives the kind and the text of a match, and appends the replacement.
pub(super) type Replace<'a> = &'a mut dyn FnMut(&str, &str, &mut String);

/// Returns whether a text is a placeholder that was inserted; such a text is left unchanged.
pub(super) type IsPlaceholder = Arc<dyn Fn(&str) -> bool + Send + Sync>;

/// The text so far: the end of the emitted part, and the part held back.
///
/// Matches are found from left to right; the longest match from one position wins. The part held
/// back starts at the first position from which a match may still start or grow.
pub(super) struct Scanner {
    rules: Arc<Rules>,
    max: usize,
    is_placeholder: IsPlaceholder,
    text: String,
    /// Number of bytes dropped so far.
    gone: usize,
    /// The place where the part held back starts.
    from: usize,
    cursor: PrefilterCursor,
    has_begun: bool,
    /// Patterns that may still match from there.
    open: Vec<Walk>,
    /// Lengths and patterns of the matches from there.
    ends: Vec<(usize, usize)>,
    /// One for each pattern.
    tracks: Vec<Tracks>,
    /// Number of bytes that walks have read, counting every read.
    steps: u64,
}

impl Scanner {
    /// Creates a scanner that ignores matches longer than `max` bytes.
    pub(super) fn new(rules: Arc<Rules>, max: usize, is_placeholder: IsPlaceholder) -> Self {
        let tracks = rules.patterns.iter().map(|_| Tracks::default()).collect();
        Self {
            rules,
            max,
            is_placeholder,
            text: String::new(),
            gone: 0,
            from: 0,
            cursor: PrefilterCursor::new(),
            has_begun: false,
            open: Vec::new(),
            ends: Vec::new(),
            tracks,
            steps: 0,
        }
    }

    /// Takes the text and puts in its place what further text can no longer change.
    pub(super) fn push(&mut self, text: &mut String, replace: Replace<'_>) {
        self.text.push_str(text);
        text.clear();
        self.advance(false, replace, text);
        // A few emitted bytes stay, since a match may depend on the text before it.
        let mut seen = self.from.saturating_sub(LOOK_BEHIND);
        if seen < DROPPED_AT_ONCE {
            return;
        }
        while !self.text.is_char_boundary(seen) {
            seen -= 1;
        }
        self.text.drain(..seen);
        self.from -= seen;
        self.cursor.shift(seen);
        self.gone += seen;
    }

    /// Ends the text and appends the rest to `out`. What follows is another text.
    pub(super) fn finish(&mut self, replace: Replace<'_>, out: &mut String) {
        self.advance(true, replace, out);
        self.text.clear();
        // Tracks are positions in the text that has ended.
        self.tracks.iter_mut().for_each(Tracks::clear);
        self.from = 0;
        self.cursor.restart();
        self.gone = 0;
    }

    fn advance(&mut self, is_over: bool, replace: Replace<'_>, out: &mut String) {
        let mut plain = self.from;
        while self.from < self.text.len() {
            if self.skim() {
                if is_over {
                    self.from = self.text.len();
                }
                break;
            }
            if !self.read(is_over) {
                break;
            }
            match self.longest() {
                Some((end, kind)) => {
                    let end = self.from + end;
                    // A placeholder has no kind here: it is skipped as a whole, and stays as it is.
                    if let Some(kind) = self.rules.kinds.get(kind) {
                        out.push_str(&self.text[plain..self.from]);
                        replace(kind, &self.text[self.from..end], out);
                        plain = end;
                    }
                    self.from = end;
                }
                None => {
                    let first = self.text[self.from..].chars().next();
                    self.from += first.map_or(1, char::len_utf8);
                }
            }
            self.has_begun = false;
        }
        out.push_str(&self.text[plain..self.from]);
    }

    /// Moves on to where a match may start; returns whether all text after it may be part of that
    /// match.
    fn skim(&mut self) -> bool {
        if !self
            .rules
            .skim(&self.text, &mut self.from, &mut self.cursor)
        {
            return false;
        }
        if self.text.len() - self.from >= self.rules.shortest_max.min(self.max) {
            // The prefilter does not know how long a match may be.
            self.cursor.give_up();
            return false;
        }
        true
    }

    /// Reads on from where a match may start; returns whether it is known which pattern matches.
    fn read(&mut self, is_over: bool) -> bool {
        if !self.has_begun {
            self.begin();
        }
        let Self {
            rules,
            max,
            is_placeholder,
            text,
            gone,
            from,
            open,
            ends,
            tracks,
            steps,
            ..
        } = self;
        open.retain_mut(|walk| {
            let index = walk.pattern();
            let pattern = &rules.patterns[index];
            let mut ground = Ground {
                table: &pattern.table,
                tracks: &mut tracks[index],
                max: pattern.max.min(*max),
                bytes: text.as_bytes(),
                begins_at: *gone,
                steps,
            };
            walk.read(
                &mut ground,
                &mut |length| note(ends, pattern, length, index),
                &|length| accepts(pattern, rules, is_placeholder, text, *from, length),
            )
        });
        // A boundary may depend on the byte after it, and the end of the text is one.
        if is_over {
            for walk in open.drain(..) {
                let pattern = &rules.patterns[walk.pattern()];
                if let Some(length) = walk.finish(&pattern.table, pattern.max.min(*max)) {
                    note(ends, pattern, length, walk.pattern());
                }
            }
        }
        open.is_empty()
    }

    fn begin(&mut self) {
        let Self {
            rules,
            text,
            gone,
            from,
            open,
            ends,
            tracks,
            ..
        } = self;
        let (before, after) = text.split_at(*from);
        self.has_begun = true;
        ends.clear();
        open.clear();
        let Some(first) = after.bytes().next() else {
            return;
        };
        let last = before.bytes().next_back();
        for index in &rules.by_first[usize::from(first)] {
            let pattern = &rules.patterns[*index];
            let state = pattern.table.start(last);
            let second = pattern.table.next(state, first);
            // The cheap test first: `begins` may look at several characters.
            if !pattern.table.facts(second).is_hopeless()
                && pattern.begins.is_none_or(|begins| begins(before))
            {
                open.push(Walk::begin(
                    *index,
                    state,
                    *gone + *from,
                    &mut tracks[*index],
                ));
            }
        }
    }

    /// Returns the longest match that counts and its kind; on a tie, the first detector wins.
    fn longest(&mut self) -> Option<(usize, usize)> {
        let Self {
            rules,
            is_placeholder,
            text,
            from,
            ends,
            ..
        } = self;
        // Longest first, and then in the order of the detectors.
        ends.sort_by_key(|(end, index)| (std::cmp::Reverse(*end), *index));
        let mut found = ends
            .iter()
            .map(|(end, index)| (*end, &rules.patterns[*index]));
        let (end, pattern) = found
            .find(|(end, pattern)| accepts(pattern, rules, is_placeholder, text, *from, *end))?;
        Some((end, pattern.kind))
    }
}

/// Returns whether a match of this length counts.
fn accepts(
    pattern: &Pattern,
    rules: &Rules,
    is_placeholder: &IsPlaceholder,
    text: &str,
    from: usize,
    length: usize,
) -> bool {
    if pattern.kind == rules.kinds.len() {
        return is_placeholder(&text[from..from + length]);
    }
    pattern
        .check
        .as_ref()
        .is_none_or(|check| check(text, from..from + length))
}

/// Records a match. Without a check only the longest can count.
fn note(ends: &mut Vec<(usize, usize)>, pattern: &Pattern, end: usize, index: usize) {
    match ends.iter_mut().rfind(|(_, other)| *other == index) {
        Some((longest, _)) if pattern.check.is_none() => *longest = end.max(*longest),
        Some((longest, _)) if *longest == end => {}
        _ => ends.push((end, index)),
    }
}

#[cfg(test)]
mod tests {
    use std::sync::LazyLock;

    use proptest::prelude::*;

    use super::*;

    /// Returns how many times each byte of a text is read, on average.
    fn steps(detectors: impl IntoIterator<Item = Detector>, text: &str) -> f64 {
        let rules = Arc::new(Rules::new(detectors).unwrap());
        let mut scanner = Scanner::new(rules, 8192, Arc::new(|_| false));
        let mut hidden = text.to_owned();
        scanner.push(&mut hidden, &mut |_, _, _| {});
        scanner.finish(&mut |_, _, _| {}, &mut hidden);
        assert!(hidden == text, "nothing is found");
        (scanner.steps + scanner.cursor.steps as u64) as f64 / text.len() as f64
    }

    fn all() -> [Detector; 4] {
        [
            Detector::email(),
            Detector::card(),
            Detector::ip_address(),
            Detector::secret(),
        ]
    }

    #[test]
    fn what_begins_at_every_byte_is_not_read_anew_from_every_byte() {
        let long = |word: &str| word.repeat((64 << 10) / word.len());
        for pattern in [
            "[a-z]+!",
            "[a-z]+(?:[a-z]x)+!",
            "a|a[a-z]+!",
            "[a-z]{3}[a-z]*[0-9]",
        ] {
            let steps = steps([Detector::pattern("x", pattern)], &long("bcd"));
            assert!(steps < 8.0, "`{pattern}` takes {steps} steps a byte");
        }
        for text in [
            "a", "word ", "1", "jo.jo", "a:", "f0:", "sk ", "1.", "\u{e9}",
        ] {
            let steps = steps(all(), &long(text));
            assert!(steps < 24.0, "{text:?} takes {steps} steps a byte");
        }
    }

    /// Returns the output of each push, and of the end.
    fn outputs(rules: &Arc<Rules>, max: usize, pieces: &[String]) -> Vec<String> {
        let mut scanner = Scanner::new(rules.clone(), max, Arc::new(|text| text == "[card]"));
        let replace = &mut |kind: &str, found: &str, out: &mut String| {
            out.push_str(&format!("<{kind}:{found}>"));
        };
        let mut outputs = Vec::new();
        for piece in pieces {
            let mut hidden = piece.clone();
            scanner.push(&mut hidden, replace);
            outputs.push(hidden);
        }
        let mut hidden = String::new();
        scanner.finish(replace, &mut hidden);
        outputs.push(hidden);
        outputs
    }

    /// Some rules with and without a prefilter.
    static RULES: LazyLock<Vec<(Arc<Rules>, Arc<Rules>)>> = LazyLock::new(|| {
        let patterns = ["[a-z]+!", "a|a[a-z]+!", "(?m:^word|[0-9]$)", "b{2,}"];
        let rules = patterns.map(|pattern| {
            let rules = || {
                let detectors = all().into_iter().chain([Detector::pattern("x", pattern)]);
                Rules::new(detectors).unwrap()
            };
            let mut without = rules();
            without.prefilter.take().unwrap();
            (Arc::new(rules()), Arc::new(without))
        });
        rules.into()
    });

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(1_000))]

        #[test]
        fn the_prefilter_changes_neither_what_is_emitted_nor_when(
            pieces in prop::collection::vec(
                prop_oneof![
                    "[a-z0-9 .,:@_é€\\[\\]-]{0,8}",
                    prop::sample::select(vec![
                        "jo@example.com", "jo@", ".com", "4111 1111 1111 1111", "4111", " 1111",
                        "10.0.0.1", "fe80::1", "::", "sk-abcdefghijklmnopqrstuvwx", "sk-", "[card]",
                        "[email-1]", "[", "AKIA", "ABCDEFGH", "-----BEGIN PRIVATE KEY-----", "abab!", "word ",
                    ]).prop_map(str::to_owned),
                ],
                0..60,
            ),
            max in prop::sample::select(vec![8192, 24, 5]),
            rules in 0..RULES.len(),
        ) {
            let (with, without) = &RULES[rules];
            prop_assert_eq!(outputs(with, max, &pieces), outputs(without, max, &pieces));
        }
    }
}
