use std::fmt;

use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use serde_json::value::RawValue;

/// Data of the client for the application, as JSON text. The server reads none of it.
///
/// ```
/// use serde::Deserialize;
/// use tower_agent_agui::RunAgentInput;
///
/// #[derive(Deserialize)]
/// struct Forwarded {
///     theme: String,
/// }
///
/// let input = RunAgentInput::from_json(
///     br#"{ "threadId": "t1", "runId": "r1", "messages": [], "forwardedProps": { "theme": "dark" } }"#,
/// )?;
/// let forwarded = input.forwarded_props.as_ref().map(|props| props.parse::<Forwarded>());
/// assert_eq!(forwarded.transpose()?.unwrap().theme, "dark");
/// # Ok::<_, tower_agent::BoxError>(())
/// ```
#[derive(Clone, Serialize, Deserialize)]
#[serde(transparent)]
pub struct ForwardedProps(Box<RawValue>);

impl ForwardedProps {
    /// Parses the data.
    ///
    /// # Errors
    ///
    /// Fails if the data is not that of the type.
    pub fn parse<T: DeserializeOwned>(&self) -> serde_json::Result<T> {
        serde_json::from_str(self.as_str())
    }

    /// Returns the JSON text.
    #[must_use]
    pub fn as_str(&self) -> &str {
        self.0.get()
    }
}

impl From<Value> for ForwardedProps {
    fn from(value: Value) -> Self {
        // The text of a value is always JSON.
        Self(RawValue::from_string(value.to_string()).unwrap_or_default())
    }
}

/// Compares the texts.
impl PartialEq for ForwardedProps {
    fn eq(&self, other: &Self) -> bool {
        self.as_str() == other.as_str()
    }
}

impl Eq for ForwardedProps {}

impl fmt::Debug for ForwardedProps {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}
