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
#[cfg(any(feature = "gemini", feature = "openai"))]
mod fields;
mod items;
pub mod lenient;
#[cfg(any(feature = "gemini", feature = "openai"))]
mod lists;
mod merge;
mod object;
mod read;
mod write;

pub use self::arguments::arguments;
#[cfg(feature = "openai")]
pub(crate) use self::fields::LenientText;
#[cfg(any(feature = "gemini", feature = "openai"))]
pub(crate) use self::fields::{Choice, Choices, Fill, Number, Presence, ReadFields, Word};
pub use self::items::{Items, array};
#[cfg(any(feature = "gemini", feature = "openai"))]
pub(crate) use self::lists::{append, append_lists};
pub use self::object::Object;
pub use self::read::read;
#[cfg(feature = "openai")]
pub(crate) use self::read::read_into;
#[cfg(any(feature = "anthropic", feature = "gemini", feature = "ollama"))]
pub(crate) use self::read::read_text;
#[cfg(any(feature = "gemini", feature = "openai"))]
pub(crate) use self::read::read_text_into;
pub use self::write::write;
