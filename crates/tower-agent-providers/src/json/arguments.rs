use serde::Serialize;
use serde::de::IgnoredAny;

use super::write::write;
use tower_agent::error::Result;
use tower_agent::message::{self, whole_characters};

/// Appends the arguments of a tool call as an object: the model's own text, byte for byte.
///
/// Some protocols accept nothing but an object. Text that is not one becomes the object's one
/// field, `INVALID_JSON`, so that the model sees what it wrote.
///
/// ```
/// use tower_agent::message::Arguments;
/// use tower_agent_providers::json;
///
/// let mut out = Vec::new();
/// json::arguments(&mut out, &Arguments::from_text(r#"{ "b": 1.10 }"#))?;
/// assert_eq!(out, br#"{ "b": 1.10 }"#);
///
/// out.clear();
/// json::arguments(&mut out, &Arguments::from_text("no object"))?;
/// assert_eq!(out, br#"{"INVALID_JSON":"no object"}"#);
/// # Ok::<_, tower_agent::Error>(())
/// ```
///
/// # Errors
///
/// Never fails for arguments; the signature is that of [`write`](super::write).
pub fn arguments(out: &mut Vec<u8>, arguments: &message::Arguments) -> Result<()> {
    let text = arguments.as_str().trim();
    // Half a character is valid JSON for the fast check, and no text for a provider.
    let mended = if text.contains("\\u") {
        whole_characters(text)
    } else {
        None
    };
    let text = mended.as_deref().unwrap_or(text);
    if text.starts_with('{') && serde_json::from_str::<IgnoredAny>(text).is_ok() {
        out.extend_from_slice(text.as_bytes());
        return Ok(());
    }
    write(
        out,
        Invalid {
            text: arguments.as_str(),
        },
    )
}

#[derive(Serialize)]
struct Invalid<'a> {
    #[serde(rename = "INVALID_JSON")]
    text: &'a str,
}
