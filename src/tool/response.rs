use std::sync::Arc;

use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::seen::SeenToolResponse;
use crate::call::{Counted, Origin};
use crate::error::{Error, ErrorKind, Result};
use crate::message::Part;

/// The response of a tool call. Cloning is O(1).
///
/// It has a [`value`](Self::value), which callbacks see and change, and [`parts`](Self::parts),
/// which the model receives. By default the model receives the value. It serialises.
///
/// ```
/// use serde_json::json;
/// use tower_agent::{Part, ToolResponse};
///
/// let response = ToolResponse::new(json!({ "celsius": 21.5, "station": 4711 }))
///     .with_parts([Part::from_text("21.5 °C")]);
/// assert_eq!(response.value()["station"], 4711);
/// assert_eq!(response.parts(), [Part::from_text("21.5 °C")]);
/// ```
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ToolResponse {
    #[serde(serialize_with = "crate::depth::serialize")]
    value: Arc<Value>,
    #[serde(default, rename = "parts", skip_serializing_if = "Option::is_none")]
    // Not derived when it is created: an `after` may still change the value that the parts show.
    shown: Option<Arc<[Part]>>,
    is_error: bool,
    #[serde(default)]
    pub(super) origin: Origin,
    /// The arguments that the tool received, if a callback had changed them.
    #[serde(
        default,
        skip_serializing_if = "Option::is_none",
        serialize_with = "crate::depth::serialize"
    )]
    pub(super) arguments: Option<Arc<Value>>,
    /// The tool has given it, or the one that it replaces.
    #[serde(skip)]
    pub(super) counted: Counted,
}

impl ToolResponse {
    /// Creates a response with this value.
    #[must_use]
    pub fn new(value: impl Into<Value>) -> Self {
        Self {
            value: Arc::new(value.into()),
            shown: None,
            is_error: false,
            origin: Origin::default(),
            arguments: None,
            counted: Counted::default(),
        }
    }

    /// Creates a response from a value of any type that serialises, as [`Json`](super::Json) does.
    ///
    /// # Errors
    ///
    /// Fails with [`ErrorKind::Tool`] if the value does not serialise.
    pub fn json(value: impl Serialize) -> Result<Self> {
        serde_json::to_value(value).map(Self::new).map_err(|error| {
            let message = format!("cannot serialise the tool result: {error}");
            Error::new(ErrorKind::Tool, message).with_source(error)
        })
    }

    /// Creates an error response, which the model reads and can act on.
    #[must_use]
    pub fn error(message: impl Into<String>) -> Self {
        Self {
            is_error: true,
            ..Self::new(message.into())
        }
    }

    /// Sets the parts that the model receives instead of the value.
    #[must_use]
    pub fn with_parts(mut self, parts: impl IntoIterator<Item = Part>) -> Self {
        self.shown = Some(parts.into_iter().collect());
        self
    }

    /// Returns the value.
    #[must_use]
    pub fn value(&self) -> &Value {
        &self.value
    }

    /// Returns the value, to change it.
    pub fn value_mut(&mut self) -> &mut Value {
        Arc::make_mut(&mut self.value)
    }

    /// Returns the parts that the model receives.
    #[must_use]
    pub fn parts(&self) -> Vec<Part> {
        match &self.shown {
            Some(parts) => parts.to_vec(),
            None => vec![Part::from(&*self.value)],
        }
    }

    pub(crate) fn seen(&self) -> SeenToolResponse {
        SeenToolResponse {
            value: self.value.clone(),
            parts: self.shown.clone(),
            is_error: self.is_error,
        }
    }

    /// Returns whether this is an error response.
    #[must_use]
    pub fn is_error(&self) -> bool {
        self.is_error
    }

    /// Returns where the response came from.
    #[must_use]
    pub fn origin(&self) -> Origin {
        self.origin
    }

    /// Returns the arguments that the tool received, as callbacks have changed them, or `None` if
    /// it received the model's own.
    #[must_use]
    pub fn changed_arguments(&self) -> Option<&Value> {
        self.arguments.as_deref()
    }

    /// Marks it as counted; returns whether it was not before.
    pub(super) fn count(&mut self) -> bool {
        self.counted.set()
    }

    /// Returns whether the tool has answered, in this process.
    pub(crate) fn is_of_tool(&self) -> bool {
        self.counted.is_set()
    }

    /// Adds text to what the model receives.
    pub(crate) fn add_text(&mut self, text: &str) {
        let mut parts = self.parts();
        parts.push(Part::from_text(text));
        self.shown = Some(parts.into());
    }
}
