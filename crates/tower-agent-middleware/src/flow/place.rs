//! Where a message stands in its conversation, by its id.

use tower_agent::message::MessageId;

/// A message in its conversation, as labels know it: the same for all attempts at a response and for a
/// response whose text a callback has changed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Place {
    /// A message of its own.
    Message(String),
    /// A message that the run has made of this one: it asks for a repair of an answer, or is a task of a
    /// team.
    Quote(String),
    /// One of the messages that a tool call has brought.
    Brought {
        /// The message with the call.
        by: String,
        /// The place of the call there.
        call: usize,
    },
}

impl Place {
    pub(super) fn of(id: &MessageId) -> Self {
        Self::of_text(&id.to_shared())
    }

    fn of_text(id: &str) -> Self {
        let brought = id.rsplit_once("-result").and_then(|(call, number)| {
            let is_number = number.bytes().all(|byte| byte.is_ascii_digit());
            is_number.then(|| of_call(call)).flatten()
        });
        match brought {
            Some((by, call)) => Self::Brought { by, call },
            None => match quoted(id).map(Self::of_text) {
                Some(Self::Message(quoted)) => Self::Quote(quoted),
                Some(other) => other,
                None => Self::Message(original(id).to_owned()),
            },
        }
    }
}

/// Returns the id of the message that the message with this id was made of.
fn quoted(id: &str) -> Option<&str> {
    id.strip_suffix("-repair").or_else(|| {
        let (quoted, number) = id.rsplit_once("-task")?;
        let is_number =
            |text: &str| !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
        let (team, task) = number.split_once('.')?;
        (is_number(team) && is_number(task)).then_some(quoted)
    })
}

/// Returns the message and the place of the call that has this id in a stream.
pub(super) fn of_call(id: &str) -> Option<(String, usize)> {
    let (message, call) = id.rsplit_once("-t")?;
    Some((original(message).to_owned(), call.parse().ok()?))
}

/// Returns the id without the number of the attempt and of the revision.
fn original(id: &str) -> &str {
    let Some((_, suffix)) = id.rsplit_once("-m") else {
        return id;
    };
    let digits = leading_digits(suffix);
    let mut left = &suffix[digits..];
    if digits == 0 {
        return id;
    }
    if let Some(attempt) = left.strip_prefix('.') {
        match leading_digits(attempt) {
            0 => return id,
            digits => left = &attempt[digits..],
        }
    }
    while let Some(revision) = left.strip_prefix('r') {
        match leading_digits(revision) {
            0 => return id,
            digits => left = &revision[digits..],
        }
    }
    if left.is_empty() {
        &id[..id.len() - suffix.len() + digits]
    } else {
        id
    }
}

fn leading_digits(text: &str) -> usize {
    text.bytes().take_while(u8::is_ascii_digit).count()
}

/// Returns the number of a message in its conversation, if the run has given it its id.
pub(super) fn number(message: &str) -> Option<u64> {
    message.rsplit_once("-m")?.1.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_id_says_which_message_or_call_it_belongs_to() {
        let message = |id: &str| Place::Message(id.to_owned());
        let brought = |by: &str, call| Place::Brought {
            by: by.to_owned(),
            call,
        };
        for (id, place) in [
            ("run-m3", message("run-m3")),
            ("run-m3.2", message("run-m3")),
            ("run-m3r1", message("run-m3")),
            ("run-m3.2r1r1", message("run-m3")),
            ("run-m3.2-t1-result", brought("run-m3", 1)),
            ("run-m3-t1-result4", brought("run-m3", 1)),
            ("run-m3.2-repair", Place::Quote("run-m3".to_owned())),
            ("run-m3-task12.0", Place::Quote("run-m3".to_owned())),
            ("run-m3-t1-result-task7.12", brought("run-m3", 1)),
            ("my-task", message("my-task")),
            ("mine", message("mine")),
            ("my-m3x", message("my-m3x")),
            ("a-t1-result", brought("a", 1)),
            ("a-result", message("a-result")),
            ("a-t1-resultx", message("a-t1-resultx")),
        ] {
            assert_eq!(Place::of_text(id), place, "{id}");
        }
        assert_eq!(of_call("run-m3.2-t1"), Some(("run-m3".to_owned(), 1)));
        assert_eq!(number("run-m3"), Some(3));
    }
}
