//! A client's side of a thread: the input that it sends, and the messages that it has.

use std::borrow::Cow;
use std::collections::HashSet;
use std::sync::Arc;

use tower_agent::error::{Interrupt, Resolution};
use tower_agent::message::{Message, Messages, Part};

use super::progress::RunProgress;
use super::shown::ShownForm;
use crate::refusal::Refusal;
use crate::roles::Roles;

/// One message in the input of a client, in the form of its protocol.
///
/// The rules look at ids and roles first. They read the content of a message only if they accept
/// it, so a message that the server knows costs nothing, whatever the client has made of it.
///
/// ```
/// use std::sync::Arc;
///
/// use tower_agent::message::Part;
/// use tower_agent_conversations::{ClientMessage, ClientRole, Refusal};
///
/// /// A message of a protocol in which clients send only text.
/// #[derive(Clone)]
/// struct Line {
///     id: Arc<str>,
///     text: String,
/// }
///
/// impl ClientMessage for Line {
///     type Error = Refusal;
///
///     fn id(&self) -> &Arc<str> {
///         &self.id
///     }
///
///     fn role(&self) -> ClientRole<'_> {
///         ClientRole::User
///     }
///
///     fn parts(&self, _: usize) -> Result<Vec<Part>, Refusal> {
///         Ok(vec![Part::from_text(&self.text)])
///     }
/// }
/// ```
pub trait ClientMessage: Clone {
    /// The protocol's error, for a content that no model can read. A refusal becomes one, too.
    type Error: From<Refusal>;

    /// Returns the message's id, unique in its thread.
    fn id(&self) -> &Arc<str>;

    /// Returns the role.
    fn role(&self) -> ClientRole<'_>;

    /// Returns the content of a message that a user, an application or a tool has written: text,
    /// images, audio and documents. `index` is its index in the input.
    ///
    /// # Errors
    ///
    /// Fails if a model call cannot contain it.
    fn parts(&self, index: usize) -> Result<Vec<Part>, Self::Error>;

    /// Returns whether the content is this one. Defaults to a comparison with the
    /// [parts](Self::parts).
    ///
    /// # Errors
    ///
    /// Fails if a model call cannot contain the content.
    fn has_parts(&self, parts: &[Part], index: usize) -> Result<bool, Self::Error> {
        Ok(self.parts(index)? == parts)
    }

    /// Returns the tool calls of the message. Defaults to none.
    fn calls(&self) -> Vec<ClientCall<'_>> {
        Vec::new()
    }
}

/// The role of a [`ClientMessage`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum ClientRole<'a> {
    /// Instructions of the application.
    System,
    /// The user.
    User,
    /// The agent, with this text. Empty for a message without text, such as reasoning.
    Assistant(&'a str),
    /// A tool.
    Tool {
        /// The id of the call, as the client has it.
        call: &'a str,
        /// The tool has failed.
        is_failed: bool,
    },
    /// None in this conversation: a message that no model reads, or one of a subagent, which keeps
    /// its own. Results of its calls are ignored, too.
    Outside,
}

/// A tool call in a [`ClientMessage`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ClientCall<'a> {
    /// The call's id, as the client has it.
    pub id: &'a str,
    /// The tool.
    pub name: &'a str,
    /// The arguments, as JSON text.
    pub arguments: &'a str,
}

/// The input of a client for one run of a thread.
///
/// ```
/// # use tower_agent::message::Part;
/// # use tower_agent_conversations::{ClientMessage, ClientRole, Refusal};
/// # #[derive(Clone)]
/// # struct Line(std::sync::Arc<str>);
/// # impl ClientMessage for Line {
/// #     type Error = Refusal;
/// #     fn id(&self) -> &std::sync::Arc<str> { &self.0 }
/// #     fn role(&self) -> ClientRole<'_> { ClientRole::User }
/// #     fn parts(&self, _: usize) -> Result<Vec<Part>, Refusal> { Ok(Vec::new()) }
/// # }
/// use serde_json::json;
/// use tower_agent::Resolution;
/// use tower_agent_conversations::ClientInput;
///
/// # let lines = [Line("m1".into())];
/// let mut input = ClientInput::new("run 1", &lines);
/// input.answers = vec![Resolution::resolved("the interrupt's id", json!({ "approved": true }))];
/// ```
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct ClientInput<'a, M: Clone> {
    /// The id of the run, from which the ids of its messages are made.
    pub run_id: Arc<str>,
    /// The client's messages, oldest first: all that it has, or only the new ones.
    pub messages: Cow<'a, [M]>,
    /// Answers to open interrupts, by the [ids](crate::InterruptIds) that the client has received.
    pub answers: Vec<Resolution>,
    /// The names of the tools that the client executes itself.
    pub tools: HashSet<Arc<str>>,
    /// The roles of the sender.
    pub roles: Roles,
    /// The [mark](crate::ShownThread::reader) of the sender's device, if it has read the thread
    /// from the server. Devices that have marks are told apart: messages that one of them has not
    /// received are not dropped because it omits them.
    pub reader: Option<String>,
    /// Somebody else than the client answers, who has no messages and receives none.
    pub(crate) is_away: bool,
    /// The sealed threads that the client has sent, if the server [keeps
    /// none](crate::Threads::with_seal).
    pub sealed: Vec<String>,
}

impl<'a, M: ClientMessage> ClientInput<'a, M> {
    /// Creates an input with these messages.
    #[must_use]
    pub fn new(run_id: impl Into<Arc<str>>, messages: impl Into<Cow<'a, [M]>>) -> Self {
        Self {
            run_id: run_id.into(),
            messages: messages.into(),
            answers: Vec::new(),
            tools: HashSet::new(),
            roles: Roles::default(),
            reader: None,
            is_away: false,
            sealed: Vec::new(),
        }
    }

    /// Returns whether the sender is the party that answers this question.
    pub(super) fn may_answer(&self, question: &Interrupt) -> bool {
        let is_user = !self.is_away;
        let answerer = &question.answerer;
        (is_user || answerer.role().is_some()) && self.roles.may_answer(answerer)
    }
}

/// The messages that a client has at a moment of its run. After a run, only those count as known to
/// the client.
pub trait ClientView {
    /// Returns whether the client has a message with this id.
    fn has_message(&self, id: &str) -> bool;

    /// Returns the texts of the agent's messages, each with the id of its message, oldest first.
    /// Those of subagents are left out.
    fn texts(&self) -> impl Iterator<Item = (&str, &str)>;

    /// Returns the form in which the client has the message of the transcript with this id: other
    /// devices of the user receive it in this form. Defaults to [`Hidden`](ShownForm::Hidden).
    fn shown(&self, _id: &str, _message: &Message, _progress: RunProgress) -> ShownForm {
        ShownForm::Hidden
    }
}

/// The input of somebody who has no messages.
#[derive(Clone, Copy, Debug)]
pub(crate) enum NoMessage {}

impl ClientMessage for NoMessage {
    type Error = Refusal;

    fn id(&self) -> &Arc<str> {
        match *self {}
    }

    fn role(&self) -> ClientRole<'_> {
        match *self {}
    }

    fn parts(&self, _: usize) -> Result<Vec<Part>, Refusal> {
        match *self {}
    }
}

/// A client that has these messages, each whole.
impl ClientView for Messages {
    fn has_message(&self, id: &str) -> bool {
        let mut ids = self.iter().filter_map(Message::id);
        ids.any(|own| *own == *id)
    }

    fn texts(&self) -> impl Iterator<Item = (&str, &str)> {
        // Only the texts of messages that the transcript does not have matter.
        std::iter::empty()
    }

    fn shown(&self, _: &str, _: &Message, _: RunProgress) -> ShownForm {
        ShownForm::Whole
    }
}
