use std::borrow::Cow;
use std::fmt;
use std::ops::Range;
use std::sync::Arc;

use super::built_in;

/// The maximum length of a match that is passed to a caller's check. There may be as many such
/// matches as there are bytes.
const CHECKED_LEN: usize = 512;

/// Finds one kind of text by its patterns.
///
/// ```
/// use tower_agent_middleware::redact::{Detector, Redact};
///
/// # fn main() -> Result<(), tower_agent::BoxError> {
/// let redact = Redact::new([
///     Detector::email(),
///     Detector::pattern("order", r"ORD-[0-9]{6}"),
///     Detector::words("customer", ["Müller", "Söhne"]),
/// ])?;
/// assert_eq!(redact.text("ORD-123456 for müller"), "[order] for [customer]");
/// # Ok(())
/// # }
/// ```
#[derive(Clone)]
#[must_use = "a detector does nothing until a `Redact` has it"]
pub struct Detector {
    pub(super) kind: Cow<'static, str>,
    pub(super) sources: Vec<Source>,
}

/// A pattern, and the conditions that it cannot express.
#[derive(Clone)]
pub(super) struct Source {
    pub(super) pattern: Cow<'static, str>,
    /// The maximum length of a match in bytes.
    pub(super) max: usize,
    pub(super) begins: Option<Begins>,
    /// Returns whether a match counts. It may depend on following text only as far as the pattern
    /// has read it.
    pub(super) check: Option<MatchCheck>,
}

/// Returns whether a match may start after this text, of which at least a few characters are given.
pub(super) type Begins = fn(&str) -> bool;

pub(super) type MatchCheck = Arc<dyn Fn(&str, Range<usize>) -> bool + Send + Sync>;

impl Detector {
    /// `email`: addresses such as `jo@example.com`, with Latin, Greek and Cyrillic letters. Scripts
    /// written without spaces end an address.
    pub fn email() -> Self {
        Self::of(
            "email",
            vec![Source::new(built_in::EMAIL).at_most(built_in::EMAIL_LEN)],
        )
    }

    /// `card`: payment card numbers, ungrouped or in their usual groups, whose last digit passes
    /// the Luhn check.
    pub fn card() -> Self {
        let source = Source::new(built_in::CARD)
            .beginning(|before| !built_in::ends_in_digit_and(before, '.'))
            .checked(|text, found| built_in::luhn(&text[found]));
        Self::of("card", vec![source])
    }

    /// `ip`: IPv4 and IPv6 addresses. Four numbers below 256 separated by dots are an address;
    /// three or five, or those of `v1.2.3.4`, are a version.
    pub fn ip_address() -> Self {
        let v4 = Source::new(built_in::IPV4)
            .beginning(|before| !built_in::ends_in_digit_and(before, '.'))
            .checked(built_in::is_ipv4);
        let v6 = Source::new(built_in::ipv6())
            .beginning(|before| !built_in::ends_in_group(before))
            .checked(built_in::is_ipv6);
        Self::of("ip", vec![v4, v6])
    }

    /// `secret`: keys and tokens with a known format: those of OpenAI, Anthropic, AWS, GitHub,
    /// GitLab, Google, Hugging Face, npm, Slack and Stripe, JSON web tokens, and PEM private keys.
    pub fn secret() -> Self {
        Self::of(
            "secret",
            built_in::SECRETS
                .iter()
                .map(|pattern| Source::new(*pattern))
                .collect(),
        )
    }

    /// Creates a detector for a regular expression, in the syntax of the
    /// [`regex`](https://docs.rs/regex/latest/regex/#syntax) crate. The longest match from one
    /// position wins, even if the pattern is lazy. Use `(?-u:\b)` for a word boundary; the Unicode
    /// boundary is not supported.
    pub fn pattern(kind: impl Into<Cow<'static, str>>, regex: impl Into<String>) -> Self {
        Self::of(kind, vec![Source::new(regex.into())])
    }

    /// Creates a detector for words and names, ignoring case. A word that starts or ends with `a`
    /// to `z` or a digit is not found inside a longer word.
    pub fn words<W: AsRef<str>>(
        kind: impl Into<Cow<'static, str>>,
        words: impl IntoIterator<Item = W>,
    ) -> Self {
        let words: Vec<_> = words
            .into_iter()
            .map(|word| built_in::word(word.as_ref()))
            .collect();
        let all = (!words.is_empty()).then(|| Source::new(format!("(?i:{})", words.join("|"))));
        Self::of(kind, all.into_iter().collect())
    }

    /// Counts only matches that pass `check`. If it rejects the longest match from a position,
    /// shorter ones are tried. Matches are then at most 512 bytes long.
    ///
    /// ```
    /// use tower_agent_middleware::redact::{Detector, Redact};
    ///
    /// # fn main() -> Result<(), tower_agent::BoxError> {
    /// let even = Detector::pattern("even", "(?-u:\\b)[0-9]+(?-u:\\b)")
    ///     .check(|number| number.ends_with(['0', '2', '4', '6', '8']));
    /// assert_eq!(Redact::new([even])?.text("12 and 13"), "[even] and 13");
    /// # Ok(())
    /// # }
    /// ```
    pub fn check(mut self, check: impl Fn(&str) -> bool + Send + Sync + 'static) -> Self {
        let check = Arc::new(check);
        for source in &mut self.sources {
            // A caller's check may take long, and is called for each possible end of a match.
            source.max = source.max.min(CHECKED_LEN);
            let also = source.check.take();
            let check = check.clone();
            source.check = Some(Arc::new(move |text: &str, found: Range<usize>| {
                // The built-in check first: it is cheap, and rejects most of what the caller would
                // be asked about.
                also.as_ref().is_none_or(|also| also(text, found.clone())) && check(&text[found])
            }));
        }
        self
    }

    /// Returns the kind, which placeholders contain.
    #[must_use]
    pub fn kind(&self) -> &str {
        &self.kind
    }

    fn of(kind: impl Into<Cow<'static, str>>, sources: Vec<Source>) -> Self {
        Self {
            kind: kind.into(),
            sources,
        }
    }
}

impl Source {
    fn new(pattern: impl Into<Cow<'static, str>>) -> Self {
        Self {
            pattern: pattern.into(),
            max: usize::MAX,
            begins: None,
            check: None,
        }
    }

    fn at_most(self, max: usize) -> Self {
        Self { max, ..self }
    }

    fn beginning(self, begins: Begins) -> Self {
        Self {
            begins: Some(begins),
            ..self
        }
    }

    fn checked(self, check: fn(&str, Range<usize>) -> bool) -> Self {
        Self {
            check: Some(Arc::new(check)),
            ..self
        }
    }
}

impl fmt::Debug for Detector {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let patterns: Vec<_> = self.sources.iter().map(|source| &*source.pattern).collect();
        f.debug_struct("Detector")
            .field("kind", &self.kind)
            .field("patterns", &patterns)
            .finish()
    }
}

/// A detector is invalid.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum DetectorError {
    /// The pattern does not parse, or is too large.
    #[error("invalid pattern in detector `{kind}`: {reason}")]
    Pattern {
        /// The detector's kind.
        kind: String,
        /// The reason.
        reason: String,
    },
    /// The pattern matches the empty text, which occurs everywhere.
    #[error(
        "a pattern of detector `{kind}` matches the empty text; make it require at least one character"
    )]
    MatchesEmpty {
        /// The detector's kind.
        kind: String,
    },
    /// The kind cannot be part of a placeholder.
    #[error("invalid detector kind `{0}`: a kind must not be empty or contain brackets")]
    Kind(String),
}
