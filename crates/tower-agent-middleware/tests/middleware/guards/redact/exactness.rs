//! The part of a text that is held back is no more than must be.

use std::sync::LazyLock;

use proptest::prelude::*;
use tower_agent_middleware::redact::{Detector, Redact};

use super::Writing;
use test_support::property::cases;

/// Shows where matches are.
fn marking(detectors: impl IntoIterator<Item = Detector>) -> Redact {
    Redact::new(detectors)
        .unwrap()
        .replace_with(|_, found| format!("<{found}>"))
}

/// Calls `f` with every text of these letters, up to a length.
fn every(letters: &[&str], length: usize, text: &mut String, f: &mut dyn FnMut(&str)) {
    f(text);
    if length > 0 {
        for letter in letters {
            let before = text.len();
            text.push_str(letter);
            every(letters, length - 1, text, f);
            text.truncate(before);
        }
    }
}

/// Returns the part that no continuation can change: the beginning that a text has in common with
/// itself, however it continues, without a match that is not over.
fn settled(redact: &Redact, letters: &[&str], length: usize, text: &str) -> String {
    let mut common: Option<String> = None;
    every(letters, length, &mut text.to_owned(), &mut |longer| {
        let hidden = redact.text(longer);
        let common = common.get_or_insert_with(|| hidden.clone().into_owned());
        let same = common
            .chars()
            .zip(hidden.chars())
            .take_while(|(one, other)| one == other);
        let same: usize = same.map(|(c, _)| c.len_utf8()).sum();
        common.truncate(same);
    });
    let mut common = common.unwrap();
    match (common.rfind('<'), common.rfind('>')) {
        (Some(open), close) if close.is_none_or(|close| close < open) => common.truncate(open),
        _ => {}
    }
    common
}

/// Writes a text in pieces: after each exactly what is settled was seen, and at last the whole.
fn check_exact(redact: &Redact, letters: &[&str], length: usize, pieces: &[String]) {
    let mut writing = Writing::through(redact);
    let mut text = String::new();
    for piece in pieces {
        text.push_str(piece);
        writing.send_text(piece);
        let expected = settled(redact, letters, length, &text);
        assert_eq!(
            writing.text, expected,
            "of {text:?}, in the pieces {pieces:?}"
        );
    }
    assert_eq!(
        writing.finish().0,
        redact.text(&text),
        "of {text:?} at last"
    );
}

/// Some pieces of a text of these letters.
fn pieces(letters: &'static [&'static str]) -> impl Strategy<Value = Vec<String>> {
    let piece = prop::collection::vec(prop::sample::select(letters), 0..4);
    prop::collection::vec(piece.prop_map(|letters| letters.concat()), 0..7)
}

const LETTERS: &[&str] = &["a", "b", "c", "é", "\n"];
const MAIL: &[&str] = &["a", "@", ".", " "];
const MACHINE: &[&str] = &["5", ".", ":", "x"];
const EVEN: &[&str] = &["x", " ", "-"];

proptest! {
    #![proptest_config(cases(150))]

    #[test]
    fn possible_matches_of_patterns_are_held_back_exactly(pieces in pieces(LETTERS)) {
        let redact = marking([
            Detector::pattern("long", "ab+c|bcéa"),
            Detector::pattern("boundary", r"(?-u:\b)ca(?-u:\b)"),
            Detector::pattern("line", "(?m)^aa$"),
            Detector::words("word", ["éc", "b"]),
        ]);
        check_exact(&redact, LETTERS, 4, &pieces);
    }

    #[test]
    fn possible_matches_of_checked_patterns_are_held_back_exactly(pieces in pieces(EVEN)) {
        let even = Detector::pattern("even", r"x[x-]*(?-u:\b)");
        let redact = marking([even.check(|found| found.len() % 2 == 0)]);
        check_exact(&redact, EVEN, 5, &pieces);
    }

    #[test]
    fn a_longest_length_is_held_back_exactly(pieces in pieces(EVEN)) {
        let redact = marking([
            Detector::pattern("bounded", r"(?-u:\b)x+(?-u:\b)"),
            Detector::pattern("free", " -+"),
        ]);
        check_exact(&redact.with_max_len(3), EVEN, 5, &pieces);
    }
}

proptest! {
    #![proptest_config(cases(25))]

    #[test]
    fn possible_matches_of_mail_addresses_are_held_back_exactly(pieces in pieces(MAIL)) {
        check_exact(&marking([Detector::email()]), MAIL, 5, &pieces);
    }

    #[test]
    fn possible_matches_of_ip_addresses_are_held_back_exactly(
        pieces in pieces(MACHINE),
    ) {
        check_exact(&marking([Detector::ip_address()]), MACHINE, 6, &pieces);
    }
}

/// The letters and words of a text.
const FRAGMENTS: &[&str] = &[
    "jo@example.com",
    "a@b.co",
    "@",
    ".",
    "4111 1111 1111 1111",
    "378282246310005",
    "4111111111111112",
    "12",
    "10.0.0.1",
    "1.2.3.4.5",
    "2001:db8::1",
    "a::b",
    "::",
    "sk-aaaaaaaaaaaaaaaaaaaaaaaa",
    "eyJhbGciOiJI",
    ".eyJzdWIiOiIx",
    "Paul",
    "é",
    "。",
    "🙂",
    " ",
    "-",
    "x",
];

proptest! {
    #![proptest_config(cases(1000))]

    #[test]
    fn every_split_of_a_text_gives_the_same_whole_and_takes_nothing_back(
        fragments in prop::collection::vec(prop::sample::select(FRAGMENTS), 0..12),
        lengths in prop::collection::vec(0_usize..6, 1..20),
    ) {
        let redact = &*ALL;
        let text = fragments.concat();
        let whole = redact.text(&text).into_owned();
        let mut writing = Writing::through(redact);
        let mut letters = text.chars();
        for length in lengths.iter().cycle() {
            let piece: String = letters.by_ref().take(*length).collect();
            writing.send_text(&piece);
            prop_assert!(whole.starts_with(&writing.text), "{:?} of {whole:?}", writing.text);
            if letters.as_str().is_empty() || lengths.iter().all(|length| *length == 0) {
                break;
            }
        }
        writing.send_text(letters.as_str());
        prop_assert_eq!(writing.finish().0, whole);
    }
}

/// Built once: the tables take a while.
static ALL: LazyLock<Redact> = LazyLock::new(|| {
    let name = Detector::words("name", ["Paul"]);
    let known = [
        Detector::email(),
        Detector::card(),
        Detector::ip_address(),
        Detector::secret(),
    ];
    Redact::new(known.into_iter().chain([name])).unwrap()
});

#[test]
fn a_match_is_let_through_as_soon_as_nothing_can_change_it() {
    for (text, seen) in [
        ("Hello, wor", "Hello, "),
        ("Hello, world ", "Hello, world "),
        ("jo@example.com", ""),
        ("jo@example.com,", "[email],"),
        ("jo@example.com.", ""),
        ("jo@example.com. ", "[email]. "),
        // Three more digits may follow.
        ("a 4111 1111 1111 1111", "a "),
        ("a 4111 1111 1111 1111 ", "a [card] "),
        ("10.0.0.1.", ""),
        ("10.0.0.1. ", "[ip]. "),
        ("AKIAIOSFODNN7EXAMPLE ", "[secret] "),
        ("!AKIAIOSFODNN7EXAMPL!", "!AKIAIOSFODNN7EXAMPL!"),
        ("(Paul", "("),
        ("(Paul)", "([name])"),
    ] {
        let mut writing = Writing::through(&ALL);
        writing.send_text(text);
        assert_eq!(writing.text, seen, "of {text:?}");
    }
}

#[test]
fn the_longest_card_is_held_back_only_if_its_check_digit_is_right() {
    let redact = Redact::new([Detector::card()]).unwrap();
    for (digit, seen) in [("0", ""), ("1", "5511111111111111111")] {
        let mut writing = Writing::through(&redact);
        writing.send_text("551111111111111111");
        assert_eq!(writing.text, "");
        writing.send_text(digit);
        assert_eq!(writing.text, seen);
    }
}

#[test]
fn the_text_held_back_is_bounded() {
    let redact = Redact::new([Detector::pattern("open", "<[^>]+>")])
        .unwrap()
        .with_max_len(100);
    let mut writing = Writing::through(&redact);
    let mut sent = 0;
    for _ in 0..50 {
        writing.send_text("<<<<<<<<<<");
        sent += 10;
        assert!(
            sent - writing.text.len() <= 100,
            "{} of {sent}",
            writing.text.len()
        );
    }
    assert!(!writing.text.is_empty());
}
