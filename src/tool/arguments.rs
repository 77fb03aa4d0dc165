use std::fmt;

use schemars::JsonSchema;
use serde::de::DeserializeOwned;
use serde_json::Value;

use super::ToolRequest;
use crate::error::{Error, ErrorKind, Result};

/// What a tool function may take: any type that is `Deserialize` and [`JsonSchema`].
///
/// It is implemented for every such type; nothing implements it by hand.
#[diagnostic::on_unimplemented(
    message = "`{Self}` cannot be the arguments of a tool",
    label = "not both `Deserialize` and `JsonSchema`, or borrows",
    note = "derive both: `#[derive(serde::Deserialize, schemars::JsonSchema)]`",
    note = "a tool whose arguments have no type takes a `serde_json::Value`"
)]
pub trait ToolArguments: DeserializeOwned + JsonSchema + 'static {}

#[diagnostic::do_not_recommend]
impl<A: DeserializeOwned + JsonSchema + 'static> ToolArguments for A {}

/// The model's arguments do not fit the tool: which field, what is wrong, what was expected.
///
/// [`Error::downcast_ref`] finds it in an error of kind
/// [`InvalidArguments`](ErrorKind::InvalidArguments); its text is what the model reads.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct InvalidArguments {
    /// The field, such as `filter.dates[1]`; empty for the arguments as a whole.
    pub field: String,
    /// What is wrong with it.
    pub problem: String,
    /// The field's schema, where the tool's declaration has one.
    pub expected: Option<Value>,
}

impl fmt::Display for InvalidArguments {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &*self.field {
            "" => f.write_str(&self.problem)?,
            field => write!(f, "field `{field}`: {}", self.problem)?,
        }
        match &self.expected {
            Some(schema) => write!(f, "; expected {schema}"),
            None => Ok(()),
        }
    }
}

impl std::error::Error for InvalidArguments {}

/// The request's arguments as an `A`.
pub(super) fn parse<A: DeserializeOwned>(request: &ToolRequest, schema: &Value) -> Result<A> {
    let arguments = request.arguments();
    serde_path_to_error::deserialize(arguments).map_err(|error| {
        let path = error.path().to_string();
        let path = if path == "." { String::new() } else { path };
        let invalid = match (arguments, missing(arguments, schema)) {
            (Value::String(text), _) => InvalidArguments {
                field: path,
                problem: format!("the arguments are not JSON: {text}"),
                expected: Some(schema.clone()),
            },
            (_, Some(field)) if path.is_empty() => InvalidArguments {
                problem: "is missing".to_owned(),
                expected: at(schema, &field).cloned(),
                field,
            },
            _ => InvalidArguments {
                problem: error.inner().to_string(),
                expected: at(schema, &path).cloned(),
                field: path,
            },
        };
        Error::standing_for(ErrorKind::InvalidArguments, invalid)
    })
}

/// The first field of the arguments that the schema requires and that is not there.
fn missing(arguments: &Value, schema: &Value) -> Option<String> {
    let required = schema.get("required")?.as_array()?;
    let mut names = required.iter().filter_map(Value::as_str);
    names.find(|name| arguments.get(*name).is_none()).map(str::to_owned)
}

/// The part of a schema that describes the value at a path such as `filter.dates[1]`.
fn at<'a>(schema: &'a Value, path: &str) -> Option<&'a Value> {
    let steps = path.split(['.', '[']).filter(|step| !step.is_empty());
    let mut schema = schema;
    for step in steps {
        schema = match step.strip_suffix(']') {
            Some(_) => schema.get("items")?,
            None => schema.get("properties")?.get(step)?,
        };
    }
    Some(schema)
}
