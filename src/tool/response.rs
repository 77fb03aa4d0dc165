use std::sync::Arc;

use serde::Serialize;
use serde_json::Value;

use crate::call::Origin;
use crate::error::{Error, ErrorKind, Result};
use crate::message::Part;

/// What a tool answers. Cloning is O(1).
///
/// It has two faces: the [`value`](Self::value), which callbacks see and change, and the
/// [`parts`](Self::parts), which the model is shown. Unless told otherwise the model is shown the
/// value.
///
/// ```
/// use serde_json::json;
/// use tower_agent::{Part, ToolResponse};
///
/// let response = ToolResponse::new(json!({ "celsius": 21.5, "station": 4711 }))
///     .shown([Part::from_text("21.5 °C")]);
/// assert_eq!(response.value()["station"], 4711);
/// assert_eq!(response.parts(), [Part::from_text("21.5 °C")]);
/// ```
#[derive(Clone, Debug, PartialEq)]
pub struct ToolResponse {
    value: Arc<Value>,
    shown: Option<Arc<[Part]>>,
    is_error: bool,
    origin: Origin,
    /// What the tool was given, where a callback had changed it.
    arguments: Option<Arc<Value>>,
}

impl ToolResponse {
    /// An answer.
    #[must_use]
    pub fn new(value: impl Into<Value>) -> Self {
        Self {
            value: Arc::new(value.into()),
            shown: None,
            is_error: false,
            origin: Origin::default(),
            arguments: None,
        }
    }

    /// An answer made of a value of any type that serialises.
    ///
    /// ```
    /// use serde::Serialize;
    /// use serde_json::json;
    /// use tower_agent::ToolResponse;
    ///
    /// #[derive(Serialize)]
    /// struct Weather {
    ///     celsius: f64,
    /// }
    ///
    /// # fn main() -> tower_agent::Result<()> {
    /// let response = ToolResponse::json(Weather { celsius: 21.5 })?;
    /// assert_eq!(response.value(), &json!({ "celsius": 21.5 }));
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    ///
    /// [`ErrorKind::Tool`] when the value does not serialise.
    pub fn json(value: impl Serialize) -> Result<Self> {
        serde_json::to_value(value).map(Self::new).map_err(|error| {
            let message = format!("the answer does not serialise: {error}");
            Error::new(ErrorKind::Tool, message).with_source(error)
        })
    }

    /// A refusal or a failure that the model may read and act on.
    #[must_use]
    pub fn error(message: impl Into<String>) -> Self {
        Self { is_error: true, ..Self::new(message.into()) }
    }

    /// The same answer, of which the model is shown these parts.
    #[must_use]
    pub fn shown(mut self, parts: impl IntoIterator<Item = Part>) -> Self {
        self.shown = Some(parts.into_iter().collect());
        self
    }

    /// The answer itself.
    #[must_use]
    pub fn value(&self) -> &Value {
        &self.value
    }

    /// The answer itself, to change.
    pub fn value_mut(&mut self) -> &mut Value {
        Arc::make_mut(&mut self.value)
    }

    /// What the model is shown.
    #[must_use]
    pub fn parts(&self) -> Vec<Part> {
        match &self.shown {
            Some(parts) => parts.to_vec(),
            None => vec![Part::from(&*self.value)],
        }
    }

    /// Whether the tool refused or failed.
    #[must_use]
    pub fn is_error(&self) -> bool {
        self.is_error
    }

    /// Where the answer came from.
    #[must_use]
    pub fn origin(&self) -> Origin {
        self.origin
    }

    /// The arguments as callbacks changed them. `None` where the model's own were used.
    pub(crate) fn changed_arguments(&self) -> Option<&Arc<Value>> {
        self.arguments.as_ref()
    }

    /// The band nearest to the tool knows best.
    pub(super) fn note_arguments(&mut self, arguments: Option<Arc<Value>>) {
        self.arguments = self.arguments.take().or(arguments);
    }

    pub(super) fn set_origin(&mut self, origin: Origin) {
        self.origin = origin;
    }
}
