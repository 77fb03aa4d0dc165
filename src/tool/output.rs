use std::collections::{BTreeMap, HashMap};
use std::hash::BuildHasher;

use serde::Serialize;
use serde_json::Value;

use super::response::ToolResponse;
use crate::error::{BoxError, Error, Result};

/// Return types of a tool function.
///
/// These are numbers, text, `bool`, `()`, JSON values, lists, maps and options of those; your own
/// types in [`Json`]; a [`ToolResponse`]; and a `Result` of any of these, whose error becomes the
/// tool's error.
#[diagnostic::on_unimplemented(
    message = "a tool function cannot return `{Self}`",
    label = "not a tool result",
    note = "wrap a type that implements `Serialize` in `tower_agent::Json`, or return a `ToolResponse` or a `Result` of one"
)]
pub trait IntoToolResponse {
    /// Converts the returned value to a response.
    ///
    /// # Errors
    ///
    /// Fails if the function failed, or its result does not serialise.
    fn into_tool_response(self) -> Result<ToolResponse>;
}

/// A tool result of any type that serialises.
///
/// ```
/// use serde::Serialize;
/// use serde_json::{Value, json};
/// use tower_agent::Json;
/// use tower_agent::tool::IntoToolResponse;
///
/// #[derive(Serialize)]
/// struct Weather {
///     celsius: f64,
/// }
///
/// # fn main() -> tower_agent::Result<()> {
/// let response = Json(Weather { celsius: 21.5 }).into_tool_response()?;
/// assert_eq!(response.value(), &json!({ "celsius": 21.5 }));
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Json<T>(pub T);

impl<T: Serialize> IntoToolResponse for Json<T> {
    fn into_tool_response(self) -> Result<ToolResponse> {
        ToolResponse::json(self.0)
    }
}

impl IntoToolResponse for ToolResponse {
    fn into_tool_response(self) -> Result<ToolResponse> {
        Ok(self)
    }
}

impl<T: IntoToolResponse, E: Into<BoxError>> IntoToolResponse for Result<T, E> {
    fn into_tool_response(self) -> Result<ToolResponse> {
        match self {
            Ok(answer) => answer.into_tool_response(),
            Err(error) => Err(Error::from(error.into())),
        }
    }
}

macro_rules! values {
    ($($answer:ty),* $(,)?) => {$(
        impl IntoToolResponse for $answer {
            fn into_tool_response(self) -> Result<ToolResponse> {
                Ok(ToolResponse::new(self))
            }
        }
    )*};
}

values! {
    (), bool, String, &'static str, Value,
    i8, i16, i32, i64, isize, u8, u16, u32, u64, usize, f32, f64,
}

impl<T: Serialize> IntoToolResponse for Vec<T> {
    fn into_tool_response(self) -> Result<ToolResponse> {
        Json(self).into_tool_response()
    }
}

impl<T: Serialize> IntoToolResponse for Option<T> {
    fn into_tool_response(self) -> Result<ToolResponse> {
        Json(self).into_tool_response()
    }
}

impl<K: Serialize + Ord, V: Serialize> IntoToolResponse for BTreeMap<K, V> {
    fn into_tool_response(self) -> Result<ToolResponse> {
        Json(self).into_tool_response()
    }
}

impl<K: Serialize, V: Serialize, S: BuildHasher> IntoToolResponse for HashMap<K, V, S> {
    fn into_tool_response(self) -> Result<ToolResponse> {
        Json(self).into_tool_response()
    }
}
