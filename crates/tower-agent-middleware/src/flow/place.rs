//! Where a message stands in its conversation, by its id.

/// A message in its conversation, as labels know it: the same for all attempts at a response and for a
/// response whose text a callback has changed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Place<'a> {
    /// A message of its own.
    Message(&'a str),
    /// A message that the run has made of this one: it asks for a repair of an answer, or is a task of a
    /// team.
    Quote(&'a str),
    /// One of the messages that a tool call has brought.
    Brought {
        /// The message with the call.
        by: &'a str,
        /// The place of the call there.
        call: usize,
    },
}

impl<'a> Place<'a> {
    /// Reads the id of a message.
    pub(super) fn of(id: &'a str) -> Self {
        if let Some((call, number)) = split_at_last(id, "-result")
            && number.bytes().all(|byte| byte.is_ascii_digit())
            && let Some((by, call)) = of_call(call)
        {
            return Self::Brought { by, call };
        }
        match quoted(id).map(Self::of) {
            Some(Self::Message(quoted)) => Self::Quote(quoted),
            Some(other) => other,
            None => Self::Message(original(id)),
        }
    }
}

/// Splits an id at its last part, if this is how the part begins. Nothing that is looked for in an id has
/// another `-` after it, and a search for a whole text takes several times as long.
fn split_at_last<'a>(id: &'a str, mark: &str) -> Option<(&'a str, &'a str)> {
    let at = id.bytes().rposition(|byte| byte == b'-')?;
    Some((&id[..at], id[at..].strip_prefix(mark)?))
}

/// Returns the id of the message that the message with this id was made of.
fn quoted(id: &str) -> Option<&str> {
    id.strip_suffix("-repair").or_else(|| {
        let (quoted, number) = split_at_last(id, "-task")?;
        let is_number =
            |text: &str| !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
        let (team, task) = number.split_once('.')?;
        (is_number(team) && is_number(task)).then_some(quoted)
    })
}

/// Returns the message and the place of the call that has this id in a stream.
pub(super) fn of_call(id: &str) -> Option<(&str, usize)> {
    let (message, call) = split_at_last(id, "-t")?;
    Some((original(message), call.parse().ok()?))
}

/// Returns the id without the number of the attempt and of the revision.
fn original(id: &str) -> &str {
    let Some((_, suffix)) = split_at_last(id, "-m") else {
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
    split_at_last(message, "-m")?.1.parse().ok()
}

/// Returns the name by which a model can name a message, such as `m3`, or what the call at a place in it has
/// brought, such as `m3.1`. A message whose id the run has not given it has its id as its name.
pub(crate) fn short_name(id: &str) -> String {
    let named = match Place::of(id) {
        Place::Message(message) => number(message).map(|number| format!("m{number}")),
        Place::Brought { by, call } => number(by).map(|number| format!("m{number}.{call}")),
        Place::Quote(_) => None,
    };
    named.unwrap_or_else(|| id.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_id_says_which_message_or_call_it_belongs_to() {
        let message = Place::Message;
        let brought = |by, call| Place::Brought { by, call };
        for (id, place) in [
            ("run-m3", message("run-m3")),
            ("run-m3.2", message("run-m3")),
            ("run-m3r1", message("run-m3")),
            ("run-m3.2r1r1", message("run-m3")),
            ("run-m3.2-t1-result", brought("run-m3", 1)),
            ("run-m3-t1-result4", brought("run-m3", 1)),
            ("run-m3.2-repair", Place::Quote("run-m3")),
            ("run-m3-task12.0", Place::Quote("run-m3")),
            ("run-m3-t1-result-task7.12", brought("run-m3", 1)),
            ("my-task", message("my-task")),
            ("mine", message("mine")),
            ("my-m3x", message("my-m3x")),
            ("a-t1-result", brought("a", 1)),
            ("a-result", message("a-result")),
            ("a-t1-resultx", message("a-t1-resultx")),
        ] {
            assert_eq!(Place::of(id), place, "{id}");
        }
        assert_eq!(of_call("run-m3.2-t1"), Some(("run-m3", 1)));
        assert_eq!(number("run-m3"), Some(3));
        for (id, name) in [
            ("run-m3.2", "m3"),
            ("run-m3-t1-result", "m3.1"),
            ("run-m3-repair", "run-m3-repair"),
            ("mine", "mine"),
        ] {
            assert_eq!(short_name(id), name);
        }
    }
}
