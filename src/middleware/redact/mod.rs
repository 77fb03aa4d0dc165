//! Redaction: nobody reads what is nobody's business.
//!
//! ```text
//! Redact: Callback<AgentRequest> + Callback<ModelRequest> + Callback<ToolRequest>
//! ```
//!
//! ```
//! use tower_agent::middleware::redact::{Detector, Redact};
//! # use tower_agent::{Agent, BoxError, ModelRequest, ModelResponse};
//!
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> Result<(), BoxError> {
//! # let model = tower::service_fn(|_: ModelRequest| async {
//! #     Ok::<_, BoxError>(ModelResponse::from_text("Ask jo@example.com."))
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
//! The name of a tool that does not exist is a text as well, and so are an error's causes, which
//! then keep their words and not their types, and its metadata.
//!
//! Left alone are images, parts that only a provider knows, the instructions, the session's state,
//! what tools [emit](crate::RunContext::emit), and what ends a run: the reason of an abort and the
//! question of an interrupt.
//! What a provider added to a text or a thought that is redacted, such as a signature, is dropped
//! with it, for it may repeat or vouch for the words; that of a tool call or a whole message stays.
//! Placeholders of its own it leaves as they are; what
//! [a function](Redact::replace_with) makes is redacted once more where it holds a match itself.
//!
//! # Where it stands
//!
//! Give it to [`global`](crate::AgentBuilder::global), or to
//! [`bundle`](crate::AgentBuilder::bundle) for one agent, before everything else. It then stands in
//! two places: where it is registered, and around the model and the tools themselves. What they
//! say is hidden before any other callback or layer sees it, what they are sent is hidden from
//! where it is registered inwards, and placeholders are put back right before the tool.
//! Callbacks registered before it see what the model is sent as it was. A retry, a fallback or a
//! callback that is part of the model or of one tool is inside of it.
//!
//! Registered as one callback, by [`on_model`](crate::AgentBuilder::on_model) or
//! [`on_tool`](crate::AgentBuilder::on_tool), it hides from what is outside of it alone, and
//! [`build`](crate::AgentBuilder::build) warns of what is inside.
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
//! placeholder. A call with a placeholder that nothing stands behind fails as
//! [`UnknownPlaceholder`], whatever the tool. What stands behind each is kept in the conversation's
//! [private state](crate::RunContext::private_state): it goes with the
//! [`Checkpoint`](crate::Checkpoint), so that numbers stay the same from run to run, and one that
//! waits for an approval can put back what was redacted before. All redactions and all agents of a
//! run share it.
//!
//! # What it costs
//!
//! A match has [`max_len`](Redact::max_len) bytes at most, whatever the pattern, one of an address
//! 320, and one with a [check](Detector::with_check) 512. What may begin at every byte, such as a
//! long word, is read about once.

mod built_in;
mod callback;
mod detector;
mod faults;
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
use crate::tool::{ToolDeclaration, ToolRequest};

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

/// A tool call has a placeholder that nothing stands behind: the cause of the error that it fails
/// with, of kind [`InvalidArguments`](crate::ErrorKind::InvalidArguments).
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("there is nothing behind `{placeholder}`; use placeholders as the conversation has them")]
#[non_exhaustive]
pub struct UnknownPlaceholder {
    /// The placeholder.
    pub placeholder: String,
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
    /// again; for runs that resume with a tool call, register it as a [`Bundle`](crate::callback::Bundle),
    /// since that is before any model call.
    pub fn numbered(mut self) -> Self {
        self.replacement = Replacement::Numbered;
        self
    }

    /// The same guard, which puts what `replace` makes of a kind and a text in the text's place.
    /// It must make the same of the same text.
    ///
    /// ```
    /// use tower_agent::middleware::redact::{Detector, Redact};
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
    /// stands behind them before a tool runs for which `when` says so. A call with a placeholder
    /// that nothing stands behind fails, with an [`UnknownPlaceholder`] as its cause.
    ///
    /// Whoever can make the model call such a tool can make it use any placeholder, so say so for
    /// as few tools as will do. Callbacks inside of this one see what is put back. A number that
    /// was redacted comes back as a string.
    ///
    /// ```
    /// use tower_agent::middleware::redact::{Detector, Redact};
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

    /// The name of a tool as it may be seen, where it is none of these: one that a model has made
    /// up may have any text in it. It stays a name that providers take.
    fn tool_name(&self, tools: &[Arc<ToolDeclaration>], name: &str) -> Option<String> {
        if tools.iter().any(|tool| tool.name() == name) {
            return None;
        }
        let is_plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '_' | '-');
        let plain = |c: char| if is_plain(c) { c } else { '_' };
        self.text(name).map(|hidden| hidden.chars().map(plain).collect())
    }

    /// Whether there is something to hide in a text.
    fn finds(&self, text: &str) -> bool {
        let (mut hidden, mut has_found) = (String::new(), false);
        let mut scanner = self.scanner();
        let found = &mut |_: &str, _: &str, _: &mut String| has_found = true;
        scanner.push(text, found, &mut hidden);
        scanner.finish(found, &mut hidden);
        has_found
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
