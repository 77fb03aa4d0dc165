//! Redaction: nobody reads what is nobody's business.
//!
//! ```text
//! Redact: Callback<AgentRequest> + Callback<ModelRequest> + Callback<ToolRequest>
//! ```
//!
//! ```
//! use tower_agent::guard::redact::{Detector, Redact};
//! # use tower_agent::{Agent, BoxError, ModelRequest, ModelResponse};
//!
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> Result<(), BoxError> {
//! # let model = tower::service_fn(|_: ModelRequest| async {
//! #     Ok::<_, BoxError>(ModelResponse::text("Ask jo@example.com."))
//! # });
//! let redact = Redact::new([Detector::email(), Detector::card(), Detector::secret()])?;
//! let agent = Agent::builder(model).global(redact).build()?;
//!
//! assert_eq!(agent.run("Whom shall I ask?").await?.text(), "Ask [email].");
//! # Ok(())
//! # }
//! ```
//!
//! # What is redacted
//!
//! What the model says and thinks, the arguments of the tools that it calls, what tools answer,
//! and what either fails with; with [`with_input`](Redact::with_input) also the conversation that
//! the model is sent. Whoever watches, the transcript and the callbacks outside see placeholders
//! only. In JSON every string, number and key is a text of its own.
//!
//! Left alone are images, parts that only a provider knows, the instructions, the session's state,
//! what tools [emit](crate::RunContext::emit), the errors that another error has as its cause, and
//! what ends a run: the reason of an abort and the question of an interrupt.
//! What a provider added to a text or a thought that is redacted, such as a signature, is dropped
//! with it, for it may repeat or vouch for the words; that of a tool call or a whole message stays.
//!
//! # Where it stands
//!
//! Callbacks outside see placeholders, those inside see all. So it belongs around whatever writes
//! down or passes on what it sees: given to [`global`](crate::AgentBuilder::global) it is around
//! everything. In a band of several callbacks let it be the first: those before it see what goes in,
//! and those behind it may put in what they like. Where the [semantics](crate::RunSemantics) say that a response from
//! `after_model` ends the run, one that is redacted does so too.
//!
//! # Streams
//!
//! While an answer is written, the words that may still belong to a match are held back, and no
//! others: as soon as no continuation can change them they are let through. A text and a thought
//! end where something else begins. A tool call is seen at once, its arguments when the answer is
//! complete, since only then its JSON is. The response is what was let through, so that
//! nothing has to be replaced. No match is longer than [`max_len`](Redact::max_len), and so
//! no more than that is held back of a text.
//!
//! # Numbered placeholders
//!
//! With [`numbered`](Redact::numbered) the model can tell one address from another, and with
//! [`restore_when`](Redact::restore_when) it can use them: a tool is given what stands behind a
//! placeholder. What that is lives in the run's [values](crate::RunContext::values) and nowhere
//! else, and ends with the run: one that is interrupted and resumed later cannot put back what was
//! redacted before.

mod built_in;
mod callback;
mod detector;
mod hide;
mod mapper;
mod scanner;
mod table;
mod vault;
mod walk;

use std::borrow::Cow;
use std::fmt;
use std::sync::Arc;

pub use self::detector::{Detector, DetectorError};

use self::scanner::{IsPlaceholder, Rules, Scanner};
use self::vault::Vault;
use crate::tool::ToolRequest;

/// Puts placeholders in the place of what its detectors find, in model and tool calls.
///
/// See the [module](self) for what it covers. Cloning is cheap.
#[derive(Clone)]
#[must_use = "a guard does nothing until an agent has it"]
pub struct Redact {
    rules: Arc<Rules>,
    max_len: usize,
    has_input: bool,
    replacement: Replacement,
    restore_when: Option<Arc<RestoreWhen>>,
}

type ReplaceWith = dyn Fn(&str, &str) -> String + Send + Sync;
type RestoreWhen = dyn Fn(&ToolRequest) -> bool + Send + Sync;

#[derive(Clone)]
enum Replacement {
    Kind,
    Numbered,
    Function(Arc<ReplaceWith>),
}

impl Redact {
    /// Looks for what these detectors find. Of two that find the same the first counts.
    ///
    /// # Errors
    ///
    /// When a pattern cannot be used.
    pub fn new(detectors: impl IntoIterator<Item = Detector>) -> Result<Self, DetectorError> {
        Ok(Self {
            rules: Arc::new(Rules::new(detectors)?),
            max_len: 8192,
            has_input: false,
            replacement: Replacement::Kind,
            restore_when: None,
        })
    }

    /// The same guard, which redacts the conversation too before the model is sent it; the
    /// instructions and the transcript stay as they are.
    pub fn with_input(mut self) -> Self {
        self.has_input = true;
        self
    }

    /// The same guard with numbered placeholders, such as `[email-2]`: the same text has the same
    /// one throughout a run. Those that stand in the conversation as an agent begins are not used
    /// again; for runs that resume with a tool call, register it as a [`Bundle`](crate::Bundle),
    /// since that is before any model call.
    pub fn numbered(mut self) -> Self {
        self.replacement = Replacement::Numbered;
        self
    }

    /// The same guard, which puts what `replace` makes of a kind and a text in the text's place.
    /// It must make the same of the same text.
    ///
    /// ```
    /// use tower_agent::guard::redact::{Detector, Redact};
    ///
    /// # fn main() -> Result<(), tower_agent::BoxError> {
    /// let redact = Redact::new([Detector::card()])?
    ///     .replace_with(|kind, text| format!("{kind} ..{}", &text[text.len() - 4..]));
    /// assert_eq!(redact.text("4111 1111 1111 1111"), "card ..1111");
    /// # Ok(())
    /// # }
    /// ```
    pub fn replace_with(
        mut self,
        replace: impl Fn(&str, &str) -> String + Send + Sync + 'static,
    ) -> Self {
        self.replacement = Replacement::Function(Arc::new(replace));
        self
    }

    /// The same guard with [numbered](Self::numbered) placeholders, which are put back to what
    /// stands behind them before a tool runs for which `when` says so.
    ///
    /// Whoever can make the model call such a tool can make it use any placeholder, so say so for
    /// as few tools as will do. Callbacks inside of this one see what is put back. A number that
    /// was redacted comes back as a string.
    ///
    /// ```
    /// use tower_agent::guard::redact::{Detector, Redact};
    ///
    /// # fn main() -> Result<(), tower_agent::BoxError> {
    /// let redact = Redact::new([Detector::email()])?
    ///     .with_input()
    ///     .restore_when(|call| call.name() == "send_mail");
    /// # drop(redact);
    /// # Ok(())
    /// # }
    /// ```
    pub fn restore_when(self, when: impl Fn(&ToolRequest) -> bool + Send + Sync + 'static) -> Self {
        Self { restore_when: Some(Arc::new(when)), ..self.numbered() }
    }

    /// The same guard, which looks for matches of so many bytes at most: 8192 unless told. What
    /// is longer is no match, or a shorter one where the pattern allows it.
    pub fn with_max_len(mut self, bytes: usize) -> Self {
        self.max_len = bytes;
        self
    }

    /// How many bytes the longest match has, and how many are held back of a text at most.
    #[must_use]
    pub fn max_len(&self) -> usize {
        self.max_len
    }

    /// A text as the guard lets it through; numbered placeholders begin at 1 each time.
    ///
    /// For what does not pass an agent, such as a line of a log.
    #[must_use]
    pub fn text<'t>(&self, text: &'t str) -> Cow<'t, str> {
        let hidden = Hider { redact: self.clone(), vault: self.new_vault() }.text(text);
        hidden.map_or(Cow::Borrowed(text), Cow::Owned)
    }

    fn new_vault(&self) -> Option<Vault> {
        self.is_numbered().then(Vault::default)
    }

    fn is_numbered(&self) -> bool {
        matches!(self.replacement, Replacement::Numbered)
    }
}

impl fmt::Debug for Redact {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Redact")
            .field("kinds", &self.rules.kinds())
            .field("max_len", &self.max_len)
            .field("has_input", &self.has_input)
            .field("restores", &self.restore_when.is_some())
            .finish_non_exhaustive()
    }
}

/// Redacts the texts of one run.
#[derive(Clone)]
struct Hider {
    redact: Redact,
    /// For numbered placeholders.
    vault: Option<Vault>,
}

impl Hider {
    fn placeholder(&self, kind: &str, text: &str) -> String {
        match (&self.redact.replacement, &self.vault) {
            (Replacement::Function(replace), _) => replace(kind, text),
            (Replacement::Numbered, Some(vault)) => vault.placeholder(kind, text),
            _ => format!("[{kind}]"),
        }
    }

    fn scanner(&self) -> Scanner {
        let (rules, vault) = (self.redact.rules.clone(), self.vault.clone());
        let is_placeholder: IsPlaceholder = match (&self.redact.replacement, vault) {
            (Replacement::Numbered, Some(vault)) => Arc::new(move |text| vault.has(text)),
            (Replacement::Kind, _) => {
                let rules = rules.clone();
                Arc::new(move |text| {
                    let kind = text.get(1..text.len() - 1);
                    rules.kinds().iter().any(|known| Some(known.as_str()) == kind)
                })
            }
            _ => Arc::new(|_| false),
        };
        Scanner::new(rules, self.redact.max_len, is_placeholder)
    }

    /// The text as it may be seen; `None` if that is as it is.
    fn text(&self, text: &str) -> Option<String> {
        let (mut hidden, mut has_found) = (String::new(), false);
        let mut scanner = self.scanner();
        let replace = &mut |kind: &str, found: &str, out: &mut String| {
            has_found = true;
            out.push_str(&self.placeholder(kind, found));
        };
        scanner.push(text, replace, &mut hidden);
        scanner.finish(replace, &mut hidden);
        has_found.then_some(hidden)
    }
}
