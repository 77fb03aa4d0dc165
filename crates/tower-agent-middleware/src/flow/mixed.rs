//! Messages that are none of the conversation's own.
//!
//! Whoever chooses the ids of runs can choose one for two conversations, and put the messages of
//! one into the other. A label is that of a message that the conversation was saved with.

use tower_agent::AgentRequest;
use tower_agent::call::Request;
use tower_agent::error::Result;
use tower_agent::message::{Message, Role};

use super::book::Book;
use super::history::has_result;
use super::label::Label;
use super::place::Place;
use super::run::FlowRun;
use super::turn::{Brought, Turn};

/// Leaves labels to the messages of a request with which the conversation was saved or that the run
/// has answered before, and to those to which the program has given one. Of another message with
/// the id of one of these, nothing is known.
pub(super) fn begin_labels(request: &AgentRequest) -> Result<()> {
    let context = request.context();
    let run = FlowRun::of(context)?;
    let book = Book::of(context);
    let messages = request.messages();
    let own = request.count_saved().max(run.count_answered(messages));
    for message in messages.range(own) {
        let id = match message.id().map(Place::of) {
            Some(Place::Brought { by, call }) => {
                if book.turn(&by).is_some() {
                    book.set_result(&by, call, Brought::shown(Label::unknown()));
                }
                continue;
            }
            // What has the user's role is the user's, whatever else has its id. A result without a
            // call gets that role only later.
            Some(Place::Message(_)) if is_of_user(message) => continue,
            Some(Place::Message(id) | Place::Quote(id) | Place::Written(id)) => id,
            None => continue,
        };
        if book.turn(&id).is_some() {
            book.set_turn(&id, &Turn::new(Label::unknown(), Vec::new()));
        }
    }
    // Only now: a session that was put before the request since has labels of its own.
    for (id, label) in run.declared() {
        book.set_turn(&id, &Turn::new(label, Vec::new()));
    }
    Ok(())
}

fn is_of_user(message: &Message) -> bool {
    matches!(message.role(), Role::User | Role::System) && !has_result(message)
}
