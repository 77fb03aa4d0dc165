use std::fmt;

use schemars::JsonSchema;
use serde::Deserialize;
use serde::de::{DeserializeOwned, IgnoredAny};
use serde_json::{Value, json};

use super::schema::{ArgumentsForm, Parameters, VALUE, is_wrapped};
use crate::error::{Error, ErrorKind, Result};
use crate::json_types::misfit;
use crate::message::Arguments;

/// Argument types of a tool function: any type that is `Deserialize` and [`JsonSchema`].
///
/// Implemented for every such type; do not implement it by hand.
#[diagnostic::on_unimplemented(
    message = "`{Self}` cannot be the arguments of a tool",
    label = "not both `Deserialize` and `JsonSchema`, or borrows",
    note = "derive both: `#[derive(serde::Deserialize, schemars::JsonSchema)]`",
    note = "for untyped arguments, take a `serde_json::Value`"
)]
pub trait ToolArguments: DeserializeOwned + JsonSchema + 'static {}

#[diagnostic::do_not_recommend]
impl<A: DeserializeOwned + JsonSchema + 'static> ToolArguments for A {}

/// The model's arguments do not match the tool: the field, the problem, and what was expected.
///
/// [`Error::downcast_ref`] finds it in an error of kind
/// [`InvalidArguments`](ErrorKind::InvalidArguments); the model reads its text.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct InvalidArguments {
    /// The field, such as `filter.dates[1]`; empty for the arguments as a whole.
    pub field: String,
    /// The problem.
    pub problem: String,
    /// The field's schema, if the tool's declaration has one.
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

impl From<InvalidArguments> for Error {
    fn from(invalid: InvalidArguments) -> Self {
        Self::from_source(ErrorKind::InvalidArguments, invalid)
    }
}

/// Parses the model's text as an `A`, without loss. Text that does not match is parsed as a value,
/// to find the problem.
pub(super) fn parse_text<A: DeserializeOwned>(
    arguments: &Arguments,
    tool: &Parameters,
) -> Result<A, InvalidArguments> {
    let text = arguments.as_str();
    let parsed = match tool.form {
        ArgumentsForm::Anything => arguments.parse().ok(),
        // Serde would read a struct from a list, too: only text of an object is parsed directly.
        ArgumentsForm::Object if looks_like_object(text) => arguments.parse().ok(),
        ArgumentsForm::Property if looks_like_object(text) => {
            arguments.parse().ok().map(|Property { value }| value)
        }
        _ => None,
    };
    let Some(parsed) = parsed else {
        // The slow path names the field that does not match, and wraps bare arguments.
        return parse(arguments.value(), tool).map_err(|invalid| {
            // In a value, text that is not JSON is a string like any other.
            let is_string = invalid.field.is_empty() && arguments.value().is_string();
            if is_string && !arguments.is_json() {
                let problem = format!("the arguments are not JSON: {text}");
                return InvalidArguments { problem, ..invalid };
            }
            invalid
        });
    };
    // Serde reads a nested struct from a list as well, which the schema does not allow.
    if tool.form != ArgumentsForm::Anything && is_nested(text) {
        check_types(arguments.value(), &tool.schema)?;
    }
    Ok(parsed)
}

/// Returns whether the text of an object may have a list or another object in it. In one without,
/// serde reads no value as another JSON type.
fn is_nested(text: &str) -> bool {
    text.bytes()
        .filter(|byte| matches!(byte, b'[' | b'{'))
        .count()
        > 1
}

/// The object around arguments that are not an object.
#[derive(Deserialize)]
struct Property<A> {
    value: A,
}

/// Returns whether a text is an object, or a truncated one.
pub(super) fn looks_like_object(text: &str) -> bool {
    text.trim_ascii_start().starts_with('{')
}

pub(super) fn parse<A: DeserializeOwned>(
    sent: &Value,
    tool: &Parameters,
) -> Result<A, InvalidArguments> {
    // Models send a single argument without the object around it.
    let bare = (tool.form == ArgumentsForm::Property)
        .then(|| wrapped(sent, &tool.schema))
        .flatten();
    let arguments = bare.as_ref().unwrap_or(sent);
    let (prefix, inside) = match tool.form {
        ArgumentsForm::Property if !arguments.is_object() => {
            return Err(no_object(arguments, tool));
        }
        ArgumentsForm::Property => (VALUE, &arguments[VALUE]),
        // `()` deserialises from null, and the model sends an object.
        ArgumentsForm::Nothing if arguments.is_object() => ("", &Value::Null),
        _ => ("", arguments),
    };
    // Parsed without paths first: tracking them costs every call, and only failures need them.
    if let Ok(parsed) = A::deserialize(inside) {
        if tool.form != ArgumentsForm::Anything {
            check_types(arguments, &tool.schema)?;
        }
        return Ok(parsed);
    }
    serde_path_to_error::deserialize(inside).map_err(|error| {
        let path = match (prefix, error.path().to_string()) {
            (prefix, path) if path == "." => prefix.to_owned(),
            ("", path) => path,
            (prefix, path) if path.starts_with('[') => format!("{prefix}{path}"),
            (prefix, path) => format!("{prefix}.{path}"),
        };
        if arguments.is_string() {
            return no_object(arguments, tool);
        }
        // Serde reports the object that lacks a field; the model needs the field itself.
        let (field, problem) = match (arguments, missing(arguments, &tool.schema, &path)) {
            (_, Some(field)) => (field, "is missing".to_owned()),
            (Value::Object(object), _) if prefix == VALUE && !object.contains_key(VALUE) => {
                (path, "is missing".to_owned())
            }
            (_, None) => {
                let inner = error.inner().to_string();
                let problem = match value_at(arguments, &path) {
                    Some(Value::String(text)) if holds_json(text) => {
                        format!("{inner}: it is a string that holds JSON; write the JSON itself")
                    }
                    _ => inner,
                };
                (path, problem)
            }
        };
        let expected = schema_at(&tool.schema, &field).cloned();
        InvalidArguments {
            field,
            problem,
            expected,
        }
    })
}

fn check_types(arguments: &Value, schema: &Value) -> Result<(), InvalidArguments> {
    match misfit(arguments, schema) {
        Some(misfit) => Err(InvalidArguments {
            field: misfit.field,
            problem: misfit.problem,
            expected: Some(misfit.expected.clone()),
        }),
        None => Ok(()),
    }
}

/// Checks that the value is an object with all fields that the schema requires, of the JSON types
/// that it allows.
pub(super) fn check(arguments: &Value, schema: &Value) -> Result<(), InvalidArguments> {
    let bare = wrapped(arguments, schema);
    let arguments = bare.as_ref().unwrap_or(arguments);
    let (field, problem) = if !arguments.is_object() {
        (String::new(), "the arguments are not an object")
    } else if let Some(field) = missing(arguments, schema, "") {
        (field, "is missing")
    } else {
        return check_types(arguments, schema);
    };
    let expected = schema_at(schema, &field).cloned();
    Err(InvalidArguments {
        field,
        problem: problem.to_owned(),
        expected,
    })
}

/// Returns the error for a string where an object belongs.
fn no_object(arguments: &Value, tool: &Parameters) -> InvalidArguments {
    let text = arguments.as_str().unwrap_or_default();
    let problem = if holds_json(text) {
        "a string that holds JSON where an object belongs"
    } else if looks_like_object(text) {
        "not JSON"
    } else {
        "a string where an object belongs"
    };
    InvalidArguments {
        field: String::new(),
        problem: format!("the arguments are {problem}: {text}"),
        expected: Some(tool.schema.clone()),
    }
}

/// Returns whether a string is the text of an object or of a list.
fn holds_json(text: &str) -> bool {
    text.trim_ascii_start().starts_with(['{', '['])
        && serde_json::from_str::<IgnoredAny>(text).is_ok()
}

/// Wraps arguments that a model sent without the object around them: a number or a list for a tool
/// that takes an object with one property, `value`.
///
/// Text that starts like an object is left unchanged: it is a truncated object.
pub(super) fn wrapped(arguments: &Value, schema: &Value) -> Option<Value> {
    let is_bare = match arguments {
        Value::Object(_) => false,
        Value::String(text) => !looks_like_object(text),
        _ => true,
    };
    (is_bare && is_wrapped(schema)).then(|| json!({ VALUE: arguments }))
}

/// Returns the first required field that is missing in the object at `path`.
fn missing(arguments: &Value, schema: &Value, path: &str) -> Option<String> {
    let object = value_at(arguments, path)?.as_object()?;
    let required = schema_at(schema, path)?.get("required")?.as_array()?;
    let mut names = required.iter().filter_map(Value::as_str);
    let name = names.find(|name| !object.contains_key(*name))?;
    Some(if path.is_empty() {
        name.to_owned()
    } else {
        format!("{path}.{name}")
    })
}

/// Returns the steps of a path such as `filter.dates[1]`.
fn steps(path: &str) -> impl Iterator<Item = &str> {
    path.split(['.', '[', ']']).filter(|step| !step.is_empty())
}

fn value_at<'a>(value: &'a Value, path: &str) -> Option<&'a Value> {
    steps(path).try_fold(value, |value, step| match value {
        Value::Array(items) => items.get(step.parse::<usize>().ok()?),
        other => other.get(step),
    })
}

/// Returns the part of a schema that describes the value at a path.
fn schema_at<'a>(schema: &'a Value, path: &str) -> Option<&'a Value> {
    steps(path).try_fold(schema, |schema, step| {
        let field = schema.get("properties").and_then(|fields| fields.get(step));
        field.or_else(|| schema.get("items"))
    })
}
