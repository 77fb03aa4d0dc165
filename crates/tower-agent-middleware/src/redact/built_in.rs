//! The built-in patterns, and the conditions that patterns cannot express.

use std::net::Ipv6Addr;
use std::ops::Range;

/// `\u{C0}-\u{52F}` covers Latin, Greek and Cyrillic letters and their marks.
pub(super) const EMAIL: &str = concat!(
    r"[a-zA-Z0-9\u{C0}-\u{52F}._%+'-]+@",
    r"(?:[a-zA-Z0-9\u{C0}-\u{52F}-]+\.)+[a-zA-Z\u{C0}-\u{52F}]{2,}",
);

/// The maximum length of an address in bytes: 64 before the `@`, 255 after it.
pub(super) const EMAIL_LEN: usize = 320;

/// The lengths and groups that card issuers use. Groups are separated by a space or hyphen of any
/// kind.
pub(super) const CARD: &str = concat!(
    r"(?-u:\b)(?:",
    r"4[0-9]{12}(?:[0-9]{3}){0,2}|3[0689][0-9]{12}|3[47][0-9]{13}",
    r"|(?:2[2-7]|35|5[0-9]|6[0-9])[0-9]{14}|(?:5[0-9]|6[0-9])[0-9]{15,17}",
    r"|[2-6][0-9]{3}(?:[\ \u{A0}\u{2009}-\u{2011}\u{202F}-][0-9]{4}){3}",
    r"|3[0-9]{3}[\ \u{A0}\u{2009}-\u{2011}\u{202F}-][0-9]{6}",
    r"[\ \u{A0}\u{2009}-\u{2011}\u{202F}-][0-9]{4,5}",
    r")(?-u:\b)",
);

/// Matches a fifth number too, so that `is_ipv4` sees it.
pub(super) const IPV4: &str = concat!(
    r"(?-u:\b)(?:25[0-5]|2[0-4][0-9]|[01]?[0-9]{1,2})",
    r"(?:\.(?:25[0-5]|2[0-4][0-9]|[01]?[0-9]{1,2})){3}",
    r"(?:(?-u:\b)|\.[0-9])",
);

/// One line for each issuer, in the order of [`Detector::secret`](super::Detector::secret).
pub(super) const SECRETS: [&str; 3] = [
    concat!(
        r"(?-u:\b)(?:sk-[A-Za-z0-9_-]{20,}|(?:AKIA|ASIA)[A-Z0-9]{16}",
        r"|gh[oprsu]_[A-Za-z0-9]{36,}|github_pat_[A-Za-z0-9_]{22,}|glpat-[A-Za-z0-9_-]{20,}",
        r"|AIza[A-Za-z0-9_-]{35}|hf_[A-Za-z0-9]{30,}|npm_[A-Za-z0-9]{36}",
        r"|xox[abeoprs]-[A-Za-z0-9-]{10,}|[rs]k_(?:live|test)_[A-Za-z0-9]{16,}",
        r"|whsec_[A-Za-z0-9+/=]{24,})",
    ),
    r"(?-u:\b)eyJ[A-Za-z0-9_-]{8,}\.eyJ[A-Za-z0-9_-]{8,}\.[A-Za-z0-9_-]{8,}",
    concat!(
        r"-----BEGIN (?:[A-Z]+ )*PRIVATE KEY-----(?:-?[^-])+",
        r"-----END (?:[A-Z]+ )*PRIVATE KEY-----",
    ),
];

/// Every notation of an IPv6 address. Matches another group too, so that `is_ipv6` sees it.
pub(super) fn ipv6() -> String {
    let group = "[0-9a-fA-F]{1,4}";
    let v4 = r"(?:25[0-5]|2[0-4][0-9]|1?[0-9]{1,2})(?:\.(?:25[0-5]|2[0-4][0-9]|1?[0-9]{1,2})){3}";
    let mut forms = vec![
        format!("(?:{group}:){{7}}{group}"),
        format!("(?:{group}:){{6}}{v4}"),
        format!("::{group}(?::{group}){{0,6}}"),
        format!("::(?:{group}:){{0,5}}{v4}"),
    ];
    for front in 1..=7 {
        let back = 7 - front;
        let head = format!("{group}(?::{group}){{{}}}::", front - 1);
        forms.push(head.clone());
        if back > 0 {
            forms.push(format!("{head}{group}(?::{group}){{0,{}}}", back - 1));
        }
        if back > 1 {
            forms.push(format!("{head}(?:{group}:){{0,{}}}{v4}", back - 2));
        }
    }
    let forms = forms.join("|");
    format!(r"(?-u:\b{{start-half}})(?:{forms})(?:(?-u:\b{{end-half}})|:[0-9a-fA-F])")
}

/// Returns the pattern of placeholders for these kinds.
pub(super) fn placeholder(kinds: &[String]) -> String {
    let kinds: Vec<_> = kinds
        .iter()
        .map(|kind| regex_syntax::escape(kind))
        .collect();
    format!(r"\[(?:{})(?:-[1-9][0-9]{{0,9}})?\]", kinds.join("|"))
}

/// Returns the pattern of one word. Letters of other alphabets have no boundary that an automaton
/// can see.
pub(super) fn word(word: &str) -> String {
    let edge = |edge: Option<char>| match edge {
        Some(c) if c.is_ascii_alphanumeric() || c == '_' => r"(?-u:\b)",
        _ => "",
    };
    let front = edge(word.chars().next());
    let back = edge(word.chars().next_back());
    format!("{front}{}{back}", regex_syntax::escape(word))
}

/// Checks the check digit of card numbers.
pub(super) fn luhn(card: &str) -> bool {
    let digits = card.chars().rev().filter_map(|c| c.to_digit(10));
    let sum: u32 = digits
        .enumerate()
        .map(|(index, digit)| match index % 2 {
            0 => digit,
            _ => digit * 2 / 10 + digit * 2 % 10,
        })
        .sum();
    sum.is_multiple_of(10)
}

pub(super) fn ends_in_digit_and(before: &str, last: char) -> bool {
    before
        .strip_suffix(last)
        .is_some_and(|before| before.ends_with(|c: char| c.is_ascii_digit()))
}

/// Returns whether a text ends within colons and numbers that may be part of a longer address.
pub(super) fn ends_in_group(before: &str) -> bool {
    let before = before.strip_suffix(':');
    before.is_some_and(|before| before.ends_with(|c: char| c.is_ascii_hexdigit()))
}

pub(super) fn is_ipv4(text: &str, found: Range<usize>) -> bool {
    let mut behind = text[found.end..].chars();
    let is_longer = behind.next() == Some('.') && behind.next().is_some_and(|c| c.is_ascii_digit());
    !is_longer && text[found].matches('.').count() == 3
}

pub(super) fn is_ipv6(text: &str, found: Range<usize>) -> bool {
    let mut behind = text[found.end..].chars();
    let is_longer =
        behind.next() == Some(':') && behind.next().is_some_and(|c| c.is_ascii_hexdigit());
    let address = &text[found];
    // Without a digit it is more likely a path in a program, such as `a::b`.
    !is_longer
        && address.contains(|c: char| c.is_ascii_digit())
        && address.parse::<Ipv6Addr>().is_ok()
}
