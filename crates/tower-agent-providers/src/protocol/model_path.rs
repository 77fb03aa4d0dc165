use std::fmt::Write;

use tower_agent::error::{Error, ErrorKind, Result};

/// Appends the segments of a model's name to a path, each after a `/`.
#[cfg(any(feature = "anthropic", feature = "gemini"))]
pub(crate) fn push_segments(path: &mut String, model: &str) -> Result<()> {
    for segment in model.split('/') {
        if matches!(segment, "" | "." | "..") {
            return Err(impossible(model));
        }
        path.push('/');
        push_escaped(path, segment, "@");
    }
    Ok(())
}

/// Appends a model's name to a path as one segment after a `/`.
#[cfg(feature = "bedrock")]
pub(crate) fn push_segment(path: &mut String, model: &str) -> Result<()> {
    if matches!(model, "" | "." | "..") {
        return Err(impossible(model));
    }
    path.push('/');
    push_escaped(path, model, "");
    Ok(())
}

/// Returns a text as a value in a query.
#[cfg(any(feature = "anthropic", feature = "gemini"))]
pub(crate) fn escaped(text: &str) -> String {
    let mut value = String::new();
    push_escaped(&mut value, text, "");
    value
}

fn impossible(model: &str) -> Error {
    let message = format!("the model name `{model}` cannot be part of a URL");
    Error::new(ErrorKind::InvalidRequest, message)
}

/// Appends a text with every other byte escaped than letters, digits, `-._~` and these.
fn push_escaped(path: &mut String, text: &str, plain: &str) {
    for byte in text.bytes() {
        let is_plain = byte.is_ascii_alphanumeric()
            || b"-._~".contains(&byte)
            || plain.as_bytes().contains(&byte);
        if is_plain {
            path.push(byte.into());
        } else {
            // A `String` accepts everything.
            write!(path, "%{byte:02X}").unwrap_or_default();
        }
    }
}
