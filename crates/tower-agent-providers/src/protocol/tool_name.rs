use std::borrow::Cow;

use crate::word::is_word;

/// The maximum length of a name.
const MAX: usize = 64;

/// Returns a tool's name as all providers accept it: 1 to 64 letters, digits, `_` and `-`.
///
/// A model may call a tool by a name that it has invented. What providers reject in it becomes `_`,
/// since they would reject each further request of the conversation.
///
/// ```
/// use tower_agent_providers::protocol::tool_name;
///
/// assert_eq!(tool_name("get_weather"), "get_weather");
/// assert_eq!(tool_name("functions.get weather"), "functions_get_weather");
/// ```
#[must_use]
pub fn tool_name(name: &str) -> Cow<'_, str> {
    if (1..=MAX).contains(&name.len()) && name.bytes().all(is_word) {
        return Cow::Borrowed(name);
    }
    let accepted = name
        .chars()
        .take(MAX)
        .map(|letter| match u8::try_from(letter) {
            Ok(byte) if is_word(byte) => letter,
            _ => '_',
        });
    match accepted.collect::<String>() {
        empty if empty.is_empty() => Cow::Borrowed("_"),
        accepted => Cow::Owned(accepted),
    }
}
