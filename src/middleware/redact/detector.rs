use std::borrow::Cow;
use std::fmt;
use std::ops::Range;
use std::sync::Arc;

use super::built_in;

/// How long a match is at most that a caller's function looks at, of which there may be as many
/// as it has bytes.
const CHECKED_LEN: usize = 512;

/// What to look for: a kind of text, and the patterns that it has.
///
/// ```
/// use tower_agent::middleware::redact::{Detector, Redact};
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

/// A pattern, and what it cannot say.
#[derive(Clone)]
pub(super) struct Source {
    pub(super) pattern: Cow<'static, str>,
    /// How many bytes a match has at most.
    pub(super) max: usize,
    /// Whether a match may begin behind this text, of which a few characters are sure to be there.
    pub(super) begins: fn(&str) -> bool,
    /// Whether a match counts. Of the text behind it only what the pattern has read may matter.
    pub(super) check: Option<Check>,
}

pub(super) type Check = Arc<dyn Fn(&str, Range<usize>) -> bool + Send + Sync>;

impl Detector {
    /// `email`: addresses such as `jo@example.com`, with letters of the Latin, Greek and Cyrillic
    /// alphabets. Scripts that are written without spaces end an address.
    pub fn email() -> Self {
        Self::of("email", vec![Source::new(built_in::EMAIL).at_most(built_in::EMAIL_LEN)])
    }

    /// `card`: numbers of payment cards, together or in their usual groups, of which the last
    /// digit is right by the Luhn check.
    pub fn card() -> Self {
        let source = Source::new(built_in::CARD)
            .beginning(|before| !built_in::ends_in_digit_and(before, '.'))
            .checked(|text, found| built_in::luhn(&text[found]));
        Self::of("card", vec![source])
    }

    /// `ip`: IPv4 and IPv6 addresses. Four numbers below 256 with dots between are one; three or
    /// five, or those of `v1.2.3.4`, are a version.
    pub fn ip_address() -> Self {
        let v4 = Source::new(built_in::IPV4)
            .beginning(|before| !built_in::ends_in_digit_and(before, '.'))
            .checked(built_in::is_ipv4);
        let v6 = Source::new(built_in::ipv6())
            .beginning(|before| !built_in::ends_in_group(before))
            .checked(built_in::is_ipv6);
        Self::of("ip", vec![v4, v6])
    }

    /// `secret`: keys and tokens that can be told by their shape: those of OpenAI, Anthropic, AWS,
    /// GitHub, GitLab, Google, Hugging Face, npm, Slack and Stripe, JSON web tokens, and private
    /// keys in PEM.
    pub fn secret() -> Self {
        Self::of("secret", built_in::SECRETS.iter().map(|pattern| Source::new(*pattern)).collect())
    }

    /// Whatever matches a regular expression, in the syntax of the
    /// [`regex`](https://docs.rs/regex/latest/regex/#syntax) crate. Of several matches from one
    /// place on the longest counts, be it lazy or not. A boundary of words is `(?-u:\b)`; that of
    /// all scripts is not supported.
    pub fn pattern(kind: impl Into<Cow<'static, str>>, regex: impl Into<String>) -> Self {
        Self::of(kind, vec![Source::new(regex.into())])
    }

    /// Words and names, in capitals or not. A word that begins or ends with a letter from `a` to
    /// `z` or a digit is not found inside a longer one.
    pub fn words<W: AsRef<str>>(
        kind: impl Into<Cow<'static, str>>,
        words: impl IntoIterator<Item = W>,
    ) -> Self {
        let words: Vec<_> = words.into_iter().map(|word| built_in::word(word.as_ref())).collect();
        let all = (!words.is_empty()).then(|| Source::new(format!("(?i:{})", words.join("|"))));
        Self::of(kind, all.into_iter().collect())
    }

    /// The same detector, for which only those matches count that pass `check`. Where it refuses
    /// the longest match from one place on, shorter ones are tried. Matches have 512 bytes at most.
    ///
    /// ```
    /// use tower_agent::middleware::redact::{Detector, Redact};
    ///
    /// # fn main() -> Result<(), tower_agent::BoxError> {
    /// let even = Detector::pattern("even", "(?-u:\\b)[0-9]+(?-u:\\b)")
    ///     .with_check(|number| number.ends_with(['0', '2', '4', '6', '8']));
    /// assert_eq!(Redact::new([even])?.text("12 and 13"), "[even] and 13");
    /// # Ok(())
    /// # }
    /// ```
    pub fn with_check(mut self, check: impl Fn(&str) -> bool + Send + Sync + 'static) -> Self {
        let check = Arc::new(check);
        for source in &mut self.sources {
            source.max = source.max.min(CHECKED_LEN);
            let (also, check) = (source.check.take(), check.clone());
            source.check = Some(Arc::new(move |text: &str, found: Range<usize>| {
                also.as_ref().is_none_or(|also| also(text, found.clone())) && check(&text[found])
            }));
        }
        self
    }

    /// What it finds, in a word: placeholders say it.
    #[must_use]
    pub fn kind(&self) -> &str {
        &self.kind
    }

    fn of(kind: impl Into<Cow<'static, str>>, sources: Vec<Source>) -> Self {
        Self { kind: kind.into(), sources }
    }
}

impl Source {
    fn new(pattern: impl Into<Cow<'static, str>>) -> Self {
        Self { pattern: pattern.into(), max: usize::MAX, begins: |_| true, check: None }
    }

    fn at_most(self, max: usize) -> Self {
        Self { max, ..self }
    }

    fn beginning(self, begins: fn(&str) -> bool) -> Self {
        Self { begins, ..self }
    }

    fn checked(self, check: fn(&str, Range<usize>) -> bool) -> Self {
        Self { check: Some(Arc::new(check)), ..self }
    }
}

impl fmt::Debug for Detector {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let patterns: Vec<_> = self.sources.iter().map(|source| &*source.pattern).collect();
        f.debug_struct("Detector").field("kind", &self.kind).field("patterns", &patterns).finish()
    }
}

/// A detector cannot be used.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum DetectorError {
    /// The pattern does not parse, or is too large.
    #[error("a pattern of the detector `{kind}` cannot be used: {reason}")]
    Pattern {
        /// What the detector finds.
        kind: String,
        /// What is wrong.
        reason: String,
    },
    /// The pattern matches the empty text, which is everywhere.
    #[error("a pattern of the detector `{kind}` matches the empty text; let it need a character")]
    MatchesEmpty {
        /// What the detector finds.
        kind: String,
    },
    /// The kind cannot stand in a placeholder.
    #[error("a detector cannot be for `{0}`: a kind is not empty and has no brackets")]
    Kind(String),
}
