//! Writes and reads the JSON of protocols.
//!
//! A body is written field by field into its bytes, so that serialised messages can be copied into
//! it. The values are plain serde types.
//!
//! ```
//! use serde::Serialize;
//! use serde_json::json;
//! use tower_agent_providers::json::{self, Object};
//!
//! #[derive(Serialize)]
//! struct Tool<'a> {
//!     name: &'a str,
//! }
//!
//! let extra = json!({ "stream": false, "user": null });
//! let mut body = Vec::new();
//! let mut object = Object::with_extra(&mut body, extra.as_object().unwrap());
//! object.field("stream", true)?;
//! object.optional("temperature", None::<f64>)?;
//! object.field_with("tools", |out| {
//!     json::array(out, ["add", "now"], |name, out| json::write(out, Tool { name }))
//! })?;
//! object.end()?;
//! assert_eq!(body, br#"{"tools":[{"name":"add"},{"name":"now"}],"stream":false}"#);
//! # Ok::<_, tower_agent::Error>(())
//! ```

mod arguments;
pub mod lenient;
mod object;
mod read;

use serde::Serialize;

pub use self::arguments::arguments;
pub use self::object::Object;
pub use self::read::read;
use tower_agent::error::Result;

/// Appends a value.
///
/// # Errors
///
/// Fails if the value cannot be serialised.
pub fn write(out: &mut Vec<u8>, value: impl Serialize) -> Result<()> {
    Ok(serde_json::to_writer(out, &value)?)
}

/// Appends an array, each item of which is appended by `write`.
///
/// # Errors
///
/// Returns the error of `write`.
pub fn array<T>(
    out: &mut Vec<u8>,
    items: impl IntoIterator<Item = T>,
    write: impl Fn(T, &mut Vec<u8>) -> Result<()>,
) -> Result<()> {
    out.push(b'[');
    for item in items {
        write(item, out)?;
        out.push(b',');
    }
    end_array(out);
    Ok(())
}

/// Ends an array whose items each end with a comma, as messages do that are appended by
/// [`write_messages`](tower_agent::ModelRequest::write_messages).
pub fn end_array(out: &mut Vec<u8>) {
    close(out, b']');
}

fn close(out: &mut Vec<u8>, with: u8) {
    if out.last() == Some(&b',') {
        out.pop();
    }
    out.push(with);
}
