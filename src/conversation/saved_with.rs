//! The messages that a conversation's private state was saved with.
//!
//! Whoever chooses the ids of runs can choose one twice, so that two messages of two conversations
//! have one id. What is known about a message by its id is therefore known about a message that the
//! private state was saved with, and about no other. The private state has a digest of the messages
//! for each length that they had when it was saved: a user who edits a message goes back to one of
//! these.

use serde_json::{Map, Value, json};

use crate::chance;
use crate::message::{Message, Messages};
use crate::state::State;

const KEY: &str = "tower_agent.saved_with";

/// The number of the first messages of a conversation, and a digest of them.
type Beginning = (usize, String);

/// Returns how many of these messages, from the first on, are those that the private state was
/// saved with.
pub(crate) fn count(private: &State, messages: &Messages) -> usize {
    let saved = private.read(KEY, beginnings);
    // What comes after the longest of them is none of it.
    let longest = saved.last().map_or(0, |(length, _)| *length);
    let (same, _) = compare(saved, messages.iter().take(longest));
    same.last().map_or(0, |(length, _)| *length)
}

/// Records that the private state is saved with these messages.
pub(crate) fn note(private: &mut Map<String, Value>, messages: &Messages) {
    let (mut same, digest) = compare(beginnings(private.get(KEY)), messages.iter());
    if same
        .last()
        .is_none_or(|(length, _)| *length < messages.len())
    {
        same.push((messages.len(), digest));
    }
    private.insert(KEY.to_owned(), json!(same));
}

fn beginnings(entry: Option<&Value>) -> Vec<Beginning> {
    let read = entry.and_then(|entry| serde_json::from_value(entry.clone()).ok());
    read.unwrap_or_default()
}

/// Returns those of the beginnings that these messages have, and the digest of them all.
fn compare<'m>(
    saved: Vec<Beginning>,
    messages: impl Iterator<Item = &'m Message>,
) -> (Vec<Beginning>, String) {
    let mut saved = saved.into_iter().peekable();
    let mut same = Vec::new();
    let mut digest = String::new();
    for (index, message) in messages.enumerate() {
        digest = digest_after(&digest, message);
        if let Some(beginning) = saved.next_if(|(length, _)| *length == index + 1)
            && beginning.1 == digest
        {
            same.push(beginning);
        }
    }
    (same, digest)
}

/// Returns the digest of messages of which this is the last.
fn digest_after(earlier: &str, message: &Message) -> String {
    // One that cannot be written cannot be saved.
    let mut written = serde_json::to_value(message).unwrap_or_default();
    // A store may keep objects in another order.
    written.sort_all_objects();
    chance::name(&["saved with", earlier, &written.to_string()]).to_string()
}
