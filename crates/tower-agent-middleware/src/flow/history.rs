//! The labels of messages in a conversation.

use tower_agent::AgentRequest;
use tower_agent::call::Request;
use tower_agent::context::RunContext;
use tower_agent::error::{Error, ErrorKind, Result};
use tower_agent::message::{IdPart, Message, MessageId, Part, Role};

use super::book::Book;
use super::label::Label;
use super::place::{Place, TurnId};
use super::run::FlowRun;
use super::settings::FlowSettings;
use super::state::label_of_all;
use super::steps::own_steps;
use super::sum::Sum;
use super::turn::{Brought, Turn};

/// A turn that was read last, with its message: the results of its calls come next.
pub(super) type LastTurn<'a> = Option<(TurnId<'a>, Turn)>;

/// Returns the label of a message of the conversation.
pub(super) fn label_of<'a>(
    book: &Book<'_>,
    origin: &MessageOrigin<'_>,
    message: &'a Message,
    last: &mut LastTurn<'a>,
) -> Sum {
    let place = message.id().map(Place::of);
    match (message.role(), place) {
        (_, Some(Place::Brought { by, call })) => {
            if last.as_ref().is_none_or(|(id, _)| *id != by) {
                *last = book.turn(&by).map(|turn| (by, turn));
            }
            let turn = last.as_ref().map(|(_, turn)| turn);
            let brought = turn.and_then(|turn| turn.result(call));
            match (brought, turn) {
                (Some(brought), _) => of_brought(&brought, message),
                // The call was not made. Whoever chose to write a constant text has chosen no text.
                (None, Some(turn)) if is_of_run(message) => Sum::of(turn.label.clone()),
                _ => unknown(message),
            }
        }
        (_, Some(Place::Written(id))) => {
            let written = book
                .turn(&id)
                .or_else(|| book.turn(&named_by_program(&id)?));
            let label = match written {
                Some(turn) => turn.label,
                // A function that makes tasks may read all of the state.
                None if is_task(&id) => origin.written.join(&label_of_all(book.state())),
                None => origin.written.clone(),
            };
            Sum {
                label: label.join(&origin.base),
                sources: names(message),
            }
        }
        (_, Some(Place::Quote(id))) => {
            // A callback may have changed what the run has written.
            let whole = message.id().map(MessageId::to_shared);
            let changed = whole.and_then(|whole| book.turn(&TurnId::Other(whole)));
            of_turn(changed.or_else(|| book.turn(&id)).as_ref(), message)
        }
        (Role::Assistant, Some(Place::Message(id))) => {
            let turn = book.turn(&id);
            let sum = of_turn(turn.as_ref(), message);
            if let Some(turn) = turn {
                *last = Some((id, turn));
            }
            sum
        }
        (Role::User | Role::System, Some(Place::Message(id))) if !has_result(message) => {
            // The program may have said that it is not the user's own.
            let declared = book.turn(&id).map(|turn| turn.label);
            Sum::of(match declared {
                Some(declared) => declared.join(&origin.base),
                // Without the guard around that agent, it has no label yet.
                None if origin.is_made_here(&id) => Label::unknown(),
                None => origin.base.clone(),
            })
        }
        _ => unknown(message),
    }
}

/// Returns whether this is the id of a task.
fn is_task(id: &TurnId<'_>) -> bool {
    match id {
        TurnId::Other(id) => matches!(IdPart::split(id), Some((_, IdPart::Task { .. }))),
        TurnId::OfRun { .. } => false,
    }
}

/// Returns the id that the program has given a message that is a task.
fn named_by_program(task: &TurnId<'_>) -> Option<TurnId<'static>> {
    let TurnId::Other(task) = task else {
        return None;
    };
    let (own, IdPart::Task { .. }) = IdPart::split(task)? else {
        return None;
    };
    // Others are of the message that a task was made of.
    let own = MessageId::from(own);
    match Place::of(&own) {
        Place::Message(TurnId::Other(own)) => Some(TurnId::Other(own)),
        _ => None,
    }
}

fn of_turn(turn: Option<&Turn>, message: &Message) -> Sum {
    match turn {
        Some(turn) => Sum {
            label: turn.label.clone(),
            sources: turn.sources.clone(),
        },
        None => unknown(message),
    }
}

fn of_brought(brought: &Brought, message: &Message) -> Sum {
    let mut sum = Sum::of(brought.label.clone());
    if sum.label.is_trusted() {
        return sum;
    }
    if brought.from.is_empty() {
        sum.sources = names(message);
    } else {
        sum.sources.extend(brought.from.iter().cloned());
    }
    sum
}

fn unknown(message: &Message) -> Sum {
    Sum {
        label: Label::unknown(),
        sources: names(message),
    }
}

/// Returns the tools whose results a message has.
fn names(message: &Message) -> Vec<String> {
    let results = message.tool_results();
    results.map(|result| result.name.to_string()).collect()
}

/// Returns whether a message is a result that the run itself has written.
fn is_of_run(message: &Message) -> bool {
    let mut parts = message.parts().iter();
    parts.all(|part| matches!(part, Part::ToolResult(result) if result.is_of_run()))
}

/// Returns whether a message has a result of a tool: one that came too late is a part of a user
/// message.
pub(super) fn has_result(message: &Message) -> bool {
    let mut parts = message.parts().iter();
    parts.any(|part| matches!(part, Part::ToolResult(_)))
}

/// Gives a label to a message of a request that a program makes: to a document that it attaches, a
/// prompt of a server, a history without labels. It is kept with the conversation.
///
/// Without it, messages of the user are trusted, and messages of a model that the guard was not
/// around are [`unknown`](Label::unknown). The message must have an [id](Message::with_id).
///
/// ```
/// use tower_agent::{AgentRequest, Message};
/// use tower_agent_middleware::flow::{Label, label_history};
///
/// let page = Message::user("A page that I have found: ..").with_id("page-1");
/// let request = AgentRequest::conversation([page.clone()]).with_message("Summarise it.");
/// label_history(&request, &page, Label::untrusted())?;
/// # Ok::<_, tower_agent::Error>(())
/// ```
///
/// # Errors
///
/// Fails with [`InvalidRequest`](ErrorKind::InvalidRequest) if the message has no id.
pub fn label_history(request: &AgentRequest, message: &Message, label: Label) -> Result<()> {
    let id = match message.id().map(Place::of) {
        Some(Place::Message(id) | Place::Written(id)) => id,
        _ => {
            let problem = "a label needs a message with an id of its own: add one with `with_id`";
            return Err(Error::new(ErrorKind::InvalidRequest, problem));
        }
    };
    let turn = Turn::new(label.clone(), Vec::new());
    Book::of(request.context()).set_turn(&id, &turn);
    let run = FlowRun::of(request.context())?;
    run.forget_read();
    run.declare(id, label);
    Ok(())
}

/// The origin of the messages of the user in a request.
pub(super) struct MessageOrigin<'s> {
    /// The label of the call that this agent works in, which has written them.
    pub(super) base: Label,
    /// The label of what callbacks and functions of the program write.
    pub(super) written: &'s Label,
    /// The end of the conversation of messages that somebody inside the run has written: a callback
    /// that calls an agent, or a team that makes conversations for its members.
    made_here: Option<String>,
}

impl<'s> MessageOrigin<'s> {
    pub(super) fn of(context: &RunContext, run: &FlowRun, settings: &'s FlowSettings) -> Self {
        let base = if context.outer_call_key("").is_none() {
            Label::trusted()
        } else {
            // Without the guard around that call, nobody knows.
            run.call_around(context).unwrap_or_else(Label::unknown)
        };
        let is_inner =
            context.path().contains('/') && !own_steps(&context.call_path(), false).is_empty();
        let made_here = is_inner.then(|| format!("/{}", context.step_path()));
        Self {
            base,
            written: &settings.callbacks,
            made_here,
        }
    }

    /// Returns the origin of the messages of a run that has ended.
    pub(super) fn of_ended(settings: &'s FlowSettings) -> Self {
        Self {
            base: Label::trusted(),
            written: &settings.callbacks,
            made_here: None,
        }
    }

    /// Returns whether an agent works for another one, and not as the only one in a tool call.
    pub(super) fn is_inner(&self) -> bool {
        self.made_here.is_some()
    }

    /// Returns whether somebody inside the run has written the message with this id.
    pub(super) fn is_made_here(&self, id: &TurnId<'_>) -> bool {
        match (&self.made_here, id) {
            (Some(made_here), TurnId::OfRun { conversation, .. }) => {
                conversation.ends_with(&**made_here)
            }
            _ => false,
        }
    }
}
