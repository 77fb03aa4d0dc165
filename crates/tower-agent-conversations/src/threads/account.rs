//! Reads a thread that the server does not know: as text for the model, without any effects.

use std::collections::HashMap;
use std::fmt::Write;

use tower_agent::message::{IdPart, MediaSource, Message, MessageId, Part, Role};

use super::allowed::Allowed;
use super::client::{ClientCall, ClientMessage, ClientRole};
use super::log_entry::{Entry, Speaker};
use super::shown::ShownForm;
use super::thread::Thread;
use super::urls::Urls;
use crate::refusal::{InputPart, Refusal, RefusalKind};

/// Reads the client's messages. Tool calls and results become notes for the model, in the user's
/// name.
pub(crate) fn read<M: ClientMessage>(
    messages: &[M],
    allowed: &Allowed,
    urls: Urls<'_>,
    thread: &mut Thread,
) -> Result<(), M::Error> {
    let mut calls: HashMap<&str, ClientCall<'_>> = HashMap::new();
    for (index, message) in messages.iter().enumerate() {
        let id = Some(message.id().clone());
        let is_taken = thread.has_id(message.id());
        let entry = match message.role() {
            ClientRole::System => {
                allowed.check_system(index)?;
                let words = words(message, Role::System, index, urls, is_taken)?;
                Entry::new(id, Speaker::System, words).shown_as(ShownForm::Whole)
            }
            ClientRole::User => {
                let words = words(message, Role::User, index, urls, is_taken)?;
                Entry::new(id, Speaker::User, words).shown_as(ShownForm::Whole)
            }
            ClientRole::Assistant(text) => {
                calls.extend(message.calls().into_iter().map(|call| (call.id, call)));
                // Without a text it may be reasoning. The server cannot know that a model produced
                // that.
                let reply = (!text.is_empty())
                    .then(|| with_id_of(message, is_taken, Message::assistant(text)));
                Entry::new(id, Speaker::Assistant, reply).shown_as(ShownForm::Whole)
            }
            ClientRole::Tool { call, is_failed } => {
                let call = calls.get(call).ok_or_else(|| {
                    let why = format!("no earlier message contains the call `{call}`");
                    Refusal::new(RefusalKind::Invalid, InputPart::Call(index), why)
                })?;
                let parts = parts(message, index, urls)?;
                let note_id = note_id(message.id(), thread);
                let note = note(call, parts, is_failed).with_id(note_id);
                Entry::new(id, Speaker::Tool, note)
            }
            ClientRole::Outside => continue,
        };
        thread.push(entry);
    }
    Ok(())
}

/// Returns an id for a note that says what it is: something that a call has brought, of a message
/// that nobody knows. Without it, a guard that goes by who has written a message would take it for
/// the user's own words.
fn note_id(of: &str, thread: &Thread) -> MessageId {
    let note = MessageId::from(format!("{of}-note"));
    let mut call = 0;
    loop {
        let id = note.part(IdPart::Result { call, number: 0 });
        if !thread.has_id(&id.to_shared()) {
            return id;
        }
        call += 1;
    }
}

fn note(call: &ClientCall<'_>, parts: Vec<Part>, is_failed: bool) -> Message {
    let mut text = String::from("Note, as reported by the client: ");
    let how = if is_failed { "failed with" } else { "answered" };
    // Writing to a string does not fail.
    let _ = write!(
        text,
        "the tool `{}` was called earlier with `{}`, and {how}: ",
        call.name, call.arguments
    );
    // In the user's name: in its own, a model would read that it has made the call.
    let parts = std::iter::once(Part::from_text(text)).chain(parts);
    Message::new(Role::User, parts)
}

/// Returns a message of the user or the application. `is_taken` if its id could be that of another
/// message.
pub(crate) fn words<M: ClientMessage>(
    client: &M,
    role: Role,
    index: usize,
    urls: Urls<'_>,
    is_taken: bool,
) -> Result<Message, M::Error> {
    let message = Message::new(role, parts(client, index, urls)?);
    Ok(with_id_of(client, is_taken, message))
}

/// Returns the content of a message.
pub(crate) fn parts<M: ClientMessage>(
    client: &M,
    index: usize,
    urls: Urls<'_>,
) -> Result<Vec<Part>, M::Error> {
    let parts = client.parts(index)?;
    for part in &parts {
        if let Err(why) = check(part, urls) {
            return Err(Refusal::forbidden(InputPart::Content(index), why).into());
        }
    }
    Ok(parts)
}

/// Fails with the reason if a client may not send a part.
fn check(part: &Part, urls: Urls<'_>) -> Result<(), &'static str> {
    let source = match part {
        Part::Text(_) => return Ok(()),
        Part::Image(image) => &image.source,
        Part::Audio(audio) => &audio.source,
        Part::Document(document) => &document.source,
        // A protocol that passes on what a client sends must not let it make calls.
        _ => return Err("only the server may set such a part of a message"),
    };
    match source {
        MediaSource::Base64 { .. } => Ok(()),
        MediaSource::Url { url, .. } if urls.accept(url) => Ok(()),
        MediaSource::Url { .. } => {
            Err("a client cannot name this URL: send the data, or a public `https` URL")
        }
        // All users of the server share the account with the files.
        _ => Err("a client cannot name a provider's file: send the data, or a public `https` URL"),
    }
}

/// Gives a message the id that the client has chosen, unless it `is_taken`, as it could be that of
/// another message: then it gets one that only the server knows.
pub(crate) fn with_id_of<M: ClientMessage>(
    client: &M,
    is_taken: bool,
    message: Message,
) -> Message {
    let id = client.id();
    if id.is_empty() || is_taken {
        message
    } else {
        message.with_id(id.clone())
    }
}
