//! The most that a client may say, and the longest that it may keep what a server has.
//!
//! Whoever reaches the server can send anything, and may never read what it answers. What the
//! [builder](crate::AgUiBuilder) can change is here as its default; the docs of the
//! [server](crate::server#limits) have the list.

use std::time::Duration;

use tower_agent::message::CallIds;

use crate::wire::InputError;

/// The size of a body, in bytes.
pub(crate) const BODY: usize = 4 << 20;

/// The time in which a body has to arrive.
pub(crate) const BODY_TIME: Duration = Duration::from_secs(30);

/// The levels of arrays and objects in a body.
pub(crate) const NESTING: usize = 64;

/// The values of JSON in a body.
pub(crate) const VALUES: usize = 1 << 15;

/// The number of values that an object counts as. With one key it takes as much memory as with ten.
pub(crate) const VALUES_OF_AN_OBJECT: usize = 5;

/// The runs at once.
pub(crate) const RUNS: usize = 1000;

/// The runs at once, of one principal.
pub(crate) const RUNS_PER_PRINCIPAL: usize = 100;

/// The time of a run. An answer that somebody waits for takes minutes.
pub(crate) const RUN_TIME: Duration = Duration::from_secs(3_600);

/// The time for which a client may take nothing of what there is.
pub(crate) const READ_TIME: Duration = Duration::from_secs(60);

/// The length of an id that a client has chosen, in bytes. Every event contains ids, so a long one
/// multiplies.
pub(crate) const ID: usize = 1024;

/// The length of an id that may come from the server or a model, in bytes: of a message, a call, a
/// subagent. Those of messages have the path of an agent in them, which may be nested, and some
/// hosts keep more than a name in that of a call.
pub(crate) const SERVER_ID: usize = CallIds::MAX_LEN;

/// Fails for an id that is longer than `most` bytes.
pub(crate) fn check_length(
    path: impl Into<String>,
    id: &str,
    most: usize,
) -> Result<(), InputError> {
    if id.len() > most {
        let why = format!("the id is longer than {most} bytes");
        return Err(InputError::new(path, why));
    }
    Ok(())
}

/// Fails for an id that is longer than `most` bytes, that would be more than one line in a log, or
/// would hide a part of it.
pub(crate) fn check_id(path: impl Into<String>, id: &str, most: usize) -> Result<(), InputError> {
    let path = path.into();
    if id.contains(char::is_control) {
        return Err(InputError::new(path, "the id contains a control character"));
    }
    check_length(path, id, most)
}
