//! Redaction: replaces personal data and secrets in model and tool calls by placeholders.
//!
//! ```text
//! Redact: Into<Bundle>
//! ```
//!
//! ```
//! use tower_agent_middleware::redact::{Detector, Redact};
//! # use tower_agent::{Agent, BoxError, ModelRequest, ModelResponse};
//!
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> Result<(), BoxError> {
//! # let model = tower::service_fn(|_: ModelRequest| async {
//! #     Ok::<_, BoxError>(ModelResponse::from_text("Ask jo@example.com."))
//! # });
//! let redact = Redact::new([Detector::email(), Detector::card(), Detector::secret()])?;
//! let agent = Agent::builder(model).global_callbacks(redact).build()?;
//!
//! assert_eq!(agent.run("Whom shall I ask?").await?.text(), "Ask [email].");
//! # Ok(())
//! # }
//! ```
//!
//! # What is redacted
//!
//! Redaction covers what leaves a call of the model, a tool or the agent, whoever wrote it: the
//! model's text and reasoning, the arguments of its tool calls, tool results, the words of a person
//! who edits or rejects a call, responses and errors of callbacks and layers, and the messages of
//! [`tool_result_messages`](tower_agent::AgentBuilder::tool_result_messages). Consumers, the
//! transcript, checkpoints and the model's later calls contain placeholders only. In JSON, every
//! string, number and key is a text of its own.
//!
//! With [`redact_input`](Redact::redact_input) it also covers the conversation sent to the model,
//! which includes the results of tools that a client runs. The transcript keeps what the caller
//! sent.
//!
//! The name of a tool that does not exist is redacted like a text. The metadata of an error is
//! redacted, and so are its causes, which then keep their text but not their types.
//!
//! These are not redacted: images, audio and documents except for a document's name, parts specific
//! to a provider, the instructions, the session's state, events that tools
//! [emit](tower_agent::RunContext::emit), the reason of an abort and the question of an interrupt.
//! Provider data of a redacted text or reasoning part, such as a signature, is dropped, since it
//! may repeat or sign the original; that of a tool call or of a whole message is kept. Placeholders
//! that the middleware inserted are left unchanged; the result of
//! [`replace_with`](Redact::replace_with) is redacted again if it contains a match.
//!
//! # Where to register it
//!
//! Pass it to [`global_callbacks`](tower_agent::AgentBuilder::global_callbacks), to
//! [`callbacks`](tower_agent::AgentBuilder::callbacks) for one agent, or for one run to
//! [`with_global_callbacks`](tower_agent::AgentRequest::with_global_callbacks). Wherever it is
//! registered, it acts in three places:
//!
//! | place | hides |
//! |---|---|
//! | [outside everything else](tower_agent::callback::Bundle::outermost_model) | what callbacks and layers wrote, and their errors |
//! | where it is registered | the model's input, from there inwards; what was written inside |
//! | [directly around](tower_agent::callback::Bundle::innermost_model) the model and the tools | their output, before any other callback or layer sees it; the model's input |
//!
//! Placeholders are restored directly before the tool, for which
//! [`restore_when`](Redact::restore_when) decides. Without it a call with a placeholder is not made
//! and fails with
//! [`UndecidedPlaceholder`]: a mail to `[email]` helps nobody, and a tool that received every text
//! could be made to give it away. Callbacks registered earlier see the
//! original input of the model. Redaction does not cover a retry, fallback or callback that is part
//! of the model or of one tool, since these are inside it; nor another agent, unless it is
//! registered for the tree.
//!
//! Several parts of it are around one call, and [`explain`](tower_agent::Agent::explain) names each
//! by what it hides: `Redact(answer)` and `Redact(result)` what leaves a call, `Redact(prompt)`
//! what enters one, or `Redact(response)` if the input is not hidden, `Redact(at model)` and
//! `Redact(at tool)` what is said there.
//!
//! A model or a tool without an agent takes [`around_model`](Redact::around_model) or
//! [`around_tool`](Redact::around_tool) as a layer, which hides what is inside it.
//!
//! # Streams
//!
//! While a response is streamed, text that may still be part of a match is held back; it is emitted
//! as soon as no continuation can change it. A text or reasoning part ends where another part
//! starts. A tool call is emitted at once, its arguments when the response is complete, because
//! only then they are valid JSON. The response equals what was streamed, so nothing has to be
//! replaced. A match is at most [`max_len`](Redact::max_len) bytes long, so no more than that is
//! held back.
//!
//! # Numbered placeholders
//!
//! With [`numbered`](Redact::numbered) the model can tell one address from another, and with
//! [`restore_when`](Redact::restore_when) tools receive the original texts. A call with a
//! placeholder that has no original fails with [`UnknownPlaceholder`], whatever the tool. The
//! originals are kept in the conversation's [private state](tower_agent::RunContext::private_state)
//! and therefore in its [`Checkpoint`](tower_agent::Checkpoint): numbers stay the same across runs,
//! and a call that waits for an approval can restore what was redacted before. All redactions and
//! agents of a run share them. People who approve a call see the originals with
//! [`reveal_to`](Redact::reveal_to).
//!
//! They are declared as [names](tower_agent::context::DeclaredNames::declare) of the conversation:
//! a [cache](crate::cache) replays no answer to somebody for whom a placeholder means another text.
//!
//! # Spellings
//!
//! The built-in detectors know the forms in which people write such texts. They are for what is
//! said by mistake: a model that wants to tell a text finds a spelling that no pattern has. To hold
//! back what it has read, see [`flow`](crate::flow). A [`pattern`](Detector::pattern) of your own
//! adds a form.
//!
//! | spelling | text | becomes |
//! |---|---|---|
//! | as it is written | `jo@example.com` | `[email]` |
//! | another case, a tag | `JO+bills@Example.COM` | `[email]` |
//! | letters of other alphabets | `jo@ex\u{430}mple.com` | `[email]` |
//! | in a URL | `https://example.com/?to=jo@example.com&a=1` | `https://example.com/?to=[email]&a=1` |
//! | spaces around the `@` | `jo @ example.com` | stays as it is |
//! | percent-encoded | `jo%40example.com` | stays as it is |
//! | full width | `jo\u{ff20}example.com` | stays as it is |
//! | zero width | `jo\u{200b}@example.com` | stays as it is |
//! | a soft hyphen | `jo@exam\u{ad}ple.com` | stays as it is |
//! | in words | `jo at example dot com` | stays as it is |
//! | in usual groups | `4111 1111 1111 1111` | `[card]` |
//! | hyphens, and spaces of other widths | `4111-1111\u{a0}1111\u{202f}1111` | `[card]` |
//! | dots | `4111.1111.1111.1111` | stays as it is |
//! | two spaces | `4111  1111  1111  1111` | stays as it is |
//! | other groups | `41111111 11111111` | stays as it is |
//! | full width | `\u{ff14}111111111111111` | stays as it is |
//! | zero width | `4111\u{200b}111111111111` | stays as it is |
//! | an address | `10.0.0.1` | `[ip]` |
//! | an address as a number | `167772161` | stays as it is |
//! | a key of a known form | `sk-abcdefghijklmnopqrstuvwx` | `[secret]` |
//! | a key with a zero width | `sk-abcdefghij\u{200b}klmnopqrstuvwx` | stays as it is |
//! | a key as base64 | `c2stYWJjZGVmZ2hpamtsbW5vcHFyc3R1dnd4` | stays as it is |
//! | a key in reverse | `xwvutsrqponmlkjihgfedcba-ks` | stays as it is |
//! | a password | `password=hunter2` | stays as it is |
//! | credentials in a URL | `postgres://app:hunter2@db/orders` | stays as it is |
//! | the same, by chance an address | `https://app:hunter2@example.com/` | `https://app:[email]/` |
//! | mixed | `Mail jo@example.com and 4111.1111.1111.1111 and jo%40example.com` | `Mail [email] and 4111.1111.1111.1111 and jo%40example.com` |
//!
//! # Cost
//!
//! A match is at most [`max_len`](Redact::max_len) bytes long, an address at most 320, and a match
//! with a [check](Detector::check) at most 512. Text in which a match may start at every byte,
//! such as a long word, is read about once.
//!
//! Text in which nothing looks like a match is read by one automaton for all detectors. It is left
//! out if it would take more than 4 MiB, as for many thousand [words](Detector::words); such a
//! redaction takes some ten times as long.

mod built_in;
mod callback;
mod detector;
mod faults;
mod hide;
mod mapper;
mod prefilter;
mod scanner;
mod shortened;
mod table;
mod vault;
mod walk;

use std::borrow::Cow;
use std::fmt;
use std::sync::Arc;

use serde_json::Value;

pub use self::detector::{Detector, DetectorError};
pub use self::shortened::{hash, mask};

use self::scanner::{IsPlaceholder, Rules, Scanner};
use self::vault::Vault;
use tower_agent::tool::{ToolDeclaration, ToolRequest};

/// Replaces what its detectors find in model and tool calls by placeholders.
///
/// See the [module](self) for what is covered. Cloning is cheap.
#[derive(Clone)]
#[must_use = "a guard does nothing until an agent has it"]
pub struct Redact {
    rules: Arc<Rules>,
    max_len: usize,
    has_input: bool,
    keeps_arguments: bool,
    replacement: Replacement,
    restore_when: Option<Arc<RestoreWhen>>,
    reveals_to: Vec<Arc<str>>,
}

/// A tool call contains a placeholder that has no original text. This is the cause of the call's
/// error, whose kind is [`InvalidArguments`](tower_agent::ErrorKind::InvalidArguments).
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "unknown placeholder `{placeholder}`; use placeholders exactly as they appear in the conversation"
)]
#[non_exhaustive]
pub struct UnknownPlaceholder {
    /// The placeholder.
    pub placeholder: String,
}

/// The arguments of a tool call have a placeholder, and nobody has decided whether the tool
/// receives the text that it stands for: [`Redact::restore_when`] is not set. This is the cause of
/// the call's error, whose kind is [`Denied`](tower_agent::ErrorKind::Denied).
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "tool `{tool}` was not called: its arguments have a placeholder in place of a text that was \
     redacted; decide with `Redact::restore_when` which tools receive the text"
)]
#[non_exhaustive]
pub struct UndecidedPlaceholder {
    /// The name of the tool.
    pub tool: String,
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
    /// Creates a redaction with these detectors. If two find the same text, the first wins.
    ///
    /// # Errors
    ///
    /// Fails if a pattern is invalid.
    pub fn new(detectors: impl IntoIterator<Item = Detector>) -> Result<Self, DetectorError> {
        Ok(Self {
            rules: Arc::new(Rules::new(detectors)?),
            max_len: 8192,
            has_input: false,
            keeps_arguments: false,
            replacement: Replacement::Kind,
            restore_when: None,
            reveals_to: Vec::new(),
        })
    }

    /// Also redacts the conversation before it is sent to the model. Instructions and transcript
    /// stay unchanged.
    pub fn redact_input(mut self) -> Self {
        self.has_input = true;
        self
    }

    /// Leaves the arguments of tool calls as the model has written them, so that tools receive what
    /// they need. Consumers of the stream, the transcript and people who approve the calls see them
    /// as well; [`restore_when`](Self::restore_when) gives them to tools alone.
    ///
    /// ```
    /// use serde_json::json;
    /// use tower_agent::{Agent, Tool};
    /// use tower_agent_middleware::redact::{Detector, Redact};
    /// use tower_agent_test::{ScriptedModel, Turn};
    ///
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), tower_agent::BoxError> {
    /// let send = Tool::function("send", "Sends a letter.", |to: String| {
    ///     assert_eq!(to, "jo@example.com");
    ///     "sent to jo@example.com"
    /// });
    /// let model = ScriptedModel::new([
    ///     Turn::tool("send", json!({ "value": "jo@example.com" })),
    ///     Turn::from_text("I wrote to jo@example.com."),
    /// ]);
    /// let agent = Agent::builder(model)
    ///     .tool(send)
    ///     .callbacks(Redact::new([Detector::email()])?.keep_arguments())
    ///     .build()?;
    /// assert_eq!(agent.run("Write to Jo.").await?.text(), "I wrote to [email].");
    /// # Ok(())
    /// # }
    /// ```
    pub fn keep_arguments(mut self) -> Self {
        self.keeps_arguments = true;
        self
    }

    /// Numbers the placeholders, such as `[email-2]`: the same text has the same placeholder
    /// throughout a run. Placeholders that already occur in the conversation are not assigned
    /// again.
    pub fn numbered(mut self) -> Self {
        self.replacement = Replacement::Numbered;
        self
    }

    /// Replaces matches by the result of `replace`, which receives the kind and the text, such as
    /// [`mask`] or that of [`hash`]. It must return the same result for the same text. Tools
    /// receive the result.
    ///
    /// ```
    /// use tower_agent_middleware::redact::{Detector, Redact};
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

    /// [Numbers](Self::numbered) the placeholders and restores the original texts before a tool
    /// runs for which `when` returns `true`. A call with a placeholder that has no original fails
    /// with an [`UnknownPlaceholder`] as its cause.
    ///
    /// Tools for which it returns `false` receive the placeholders. If it is not set, a call with a
    /// placeholder fails with an [`UndecidedPlaceholder`] as its cause, and no tool receives one
    /// that nobody has thought of.
    ///
    /// An attacker who can make the model call such a tool can pass it any placeholder, so enable
    /// this for as few tools as possible. Callbacks inside this one see the originals. A redacted
    /// number is restored as a string.
    ///
    /// ```
    /// use tower_agent_middleware::redact::{Detector, Redact};
    ///
    /// # fn main() -> Result<(), tower_agent::BoxError> {
    /// let redact = Redact::new([Detector::email()])?
    ///     .redact_input()
    ///     .restore_when(|call| call.name() == "send_mail");
    /// # drop(redact);
    /// # Ok(())
    /// # }
    /// ```
    pub fn restore_when(self, when: impl Fn(&ToolRequest) -> bool + Send + Sync + 'static) -> Self {
        Self {
            restore_when: Some(Arc::new(when)),
            ..self.numbered()
        }
    }

    /// [Numbers](Self::numbered) the placeholders and shows their original texts to people with
    /// this role who [approve](crate::approval::Approval::by_role) a call: in the arguments of the
    /// question, and nowhere else. Can be called for several roles. Texts that another redaction
    /// has hidden stay hidden.
    ///
    /// The question has the original texts wherever it goes: in the checkpoint, and in the events
    /// of the run. AG-UI servers show it only to clients with the role. An approval that changes
    /// nothing leaves the placeholders in the call, which a tool receives or not as
    /// [`restore_when`](Self::restore_when) says; an edit with original texts gives them to the
    /// tool.
    ///
    /// ```
    /// use tower_agent_middleware::redact::{Detector, Redact};
    ///
    /// # fn main() -> Result<(), tower_agent::BoxError> {
    /// let redact = Redact::new([Detector::email()])?
    ///     .redact_input()
    ///     .restore_when(|call| call.name() == "send_mail")
    ///     .reveal_to("support");
    /// # drop(redact);
    /// # Ok(())
    /// # }
    /// ```
    pub fn reveal_to(self, role: impl Into<Arc<str>>) -> Self {
        let mut redact = self.numbered();
        redact.reveals_to.push(role.into());
        redact
    }

    /// Sets the maximum length of a match. Longer matches are ignored, or shortened where the
    /// pattern allows it. Defaults to 8192 bytes.
    pub fn with_max_len(mut self, bytes: usize) -> Self {
        self.max_len = bytes;
        self
    }

    /// Returns the maximum length of a match, which is also the most text held back.
    #[must_use]
    pub fn max_len(&self) -> usize {
        self.max_len
    }

    /// Redacts one text; numbered placeholders start at 1 each time.
    ///
    /// Use it for texts that do not pass through an agent, such as log lines.
    #[must_use]
    pub fn text<'t>(&self, text: &'t str) -> Cow<'t, str> {
        self.new_hider()
            .text(text)
            .map_or(Cow::Borrowed(text), Cow::Owned)
    }

    /// Redacts JSON: every string, number and key is a text of its own. Numbered placeholders start
    /// at 1 each time.
    #[must_use]
    pub fn json<'v>(&self, value: &'v Value) -> Cow<'v, Value> {
        let hider = self.new_hider();
        hide::value(value, &|text| hider.text(text)).map_or(Cow::Borrowed(value), Cow::Owned)
    }

    fn new_hider(&self) -> Hider {
        Hider {
            redact: self.clone(),
            vault: self.new_vault(),
        }
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
            .field("keeps_arguments", &self.keeps_arguments)
            .field("restores", &self.restore_when.is_some())
            .field("reveals_to", &self.reveals_to)
            .finish_non_exhaustive()
    }
}

/// Redacts the texts of one run.
#[derive(Clone)]
struct Hider {
    redact: Redact,
    /// Set if placeholders are numbered.
    vault: Option<Vault>,
}

impl Hider {
    fn placeholder(&self, kind: &str, text: &str) -> String {
        match (&self.redact.replacement, &self.vault) {
            (Replacement::Function(replace), _) => replace(kind, text),
            (Replacement::Numbered, Some(vault)) => vault.placeholder(kind, text),
            (Replacement::Kind, _) | (Replacement::Numbered, None) => format!("[{kind}]"),
        }
    }

    fn scanner(&self) -> Scanner {
        let rules = self.redact.rules.clone();
        let vault = self.vault.clone();
        let is_placeholder: IsPlaceholder = match (&self.redact.replacement, vault) {
            (Replacement::Numbered, Some(vault)) => Arc::new(move |text| vault.has(text)),
            // Any placeholder of a known kind is as good as one that was inserted: it names no
            // text.
            (Replacement::Kind, _) => {
                let rules = rules.clone();
                Arc::new(move |text| {
                    let kind = text.get(1..text.len() - 1);
                    rules
                        .kinds()
                        .iter()
                        .any(|known| Some(known.as_str()) == kind)
                })
            }
            // Nobody knows what a function returns, and without a vault no placeholder was
            // inserted.
            (Replacement::Numbered, None) | (Replacement::Function(_), _) => Arc::new(|_| false),
        };
        Scanner::new(rules, self.redact.max_len, is_placeholder)
    }

    /// Returns the redacted name of a tool that is not among `tools`, since a model may make up a
    /// name that contains any text. The result is a name that providers accept.
    fn tool_name(&self, tools: &[Arc<ToolDeclaration>], name: &str) -> Option<String> {
        // The program has chosen the names of its own tools, and the call must find its tool.
        if tools.iter().any(|tool| tool.name() == name) {
            return None;
        }
        let hidden = self.text(name)?;
        let accepted = hidden.chars().map(|character| match character {
            '_' | '-' => character,
            _ if character.is_ascii_alphanumeric() => character,
            _ => '_',
        });
        Some(accepted.collect())
    }

    /// Returns whether a text contains a match.
    fn finds(&self, text: &str) -> bool {
        if self.redact.rules.has_no_match(text) {
            return false;
        }
        let mut hidden = text.to_owned();
        let mut has_found = false;
        let mut scanner = self.scanner();
        let found = &mut |_: &str, _: &str, _: &mut String| has_found = true;
        scanner.push(&mut hidden, found);
        scanner.finish(found, &mut hidden);
        has_found
    }

    /// Returns the redacted text, or `None` if it contains no match.
    fn text(&self, text: &str) -> Option<String> {
        if self.redact.rules.has_no_match(text) {
            return None;
        }
        let mut hidden = text.to_owned();
        let mut has_found = false;
        let mut scanner = self.scanner();
        let replace = &mut |kind: &str, found: &str, out: &mut String| {
            has_found = true;
            out.push_str(&self.placeholder(kind, found));
        };
        scanner.push(&mut hidden, replace);
        scanner.finish(replace, &mut hidden);
        has_found.then_some(hidden)
    }
}
