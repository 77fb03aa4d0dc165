use serde::Serialize;
use serde_json::value::RawValue;

use tower_agent::error::Result;
use tower_agent::message;

/// Appends the arguments of a tool call as an object: the model's own text, byte for byte.
///
/// Some protocols accept nothing but an object. Text that is not one, which only the model of
/// another provider writes, becomes the object's one field, `arguments`.
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
/// assert_eq!(out, br#"{"arguments":"no object"}"#);
/// # Ok::<_, tower_agent::Error>(())
/// ```
///
/// # Errors
///
/// Never fails for arguments; the signature is that of [`write`](super::write).
pub fn arguments(out: &mut Vec<u8>, arguments: &message::Arguments) -> Result<()> {
    let text = arguments.as_str();
    let json: Option<&RawValue> = serde_json::from_str(text).ok();
    match json.filter(|json| json.get().starts_with('{')) {
        Some(object) => super::write(out, object),
        None => super::write(out, Text { arguments: text }),
    }
}

#[derive(Serialize)]
struct Text<'a> {
    arguments: &'a str,
}
