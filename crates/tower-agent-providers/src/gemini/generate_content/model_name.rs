use std::fmt::Write;

use tower_agent::error::{Error, ErrorKind, Result};

/// Returns the path of a model: `/models/..`, or its resource name, such as `tunedModels/..`.
pub(super) fn path(model: &str) -> Result<String> {
    let model = model.trim_start_matches('/');
    let mut path = String::from(if model.contains('/') { "" } else { "/models" });
    for segment in model.split('/') {
        if matches!(segment, "" | "." | "..") {
            let message = format!("the model name `{model}` cannot be part of a URL");
            return Err(Error::new(ErrorKind::InvalidRequest, message));
        }
        path.push('/');
        for byte in segment.bytes() {
            match byte {
                b'-' | b'.' | b'_' | b'~' | b'@' => path.push(byte.into()),
                byte if byte.is_ascii_alphanumeric() => path.push(byte.into()),
                // A `String` accepts everything.
                byte => write!(path, "%{byte:02X}").unwrap_or_default(),
            }
        }
    }
    Ok(path)
}
