use schemars::{JsonSchema, Schema};
use serde::de::{DeserializeOwned, IgnoredAny};
use serde_json::Value;

use super::arguments::{InvalidArguments, parse_text};
use super::schema::{Parameters, closed};
use crate::message::Arguments;

/// The schema of an answer of one type. Its root is an object, as providers require: any other type
/// is wrapped in one, like the arguments of a tool.
#[derive(Clone, Debug)]
pub(crate) struct AnswerSchema {
    parameters: Parameters,
    /// The schema for the provider.
    pub(crate) schema: Value,
    /// Every object in it is closed.
    pub(crate) strict: bool,
}

impl AnswerSchema {
    pub(crate) fn of<T: JsonSchema>() -> Self {
        let parameters = Parameters::of::<T>();
        // Wrapped first: the root of a strict schema must be an object.
        let open = Schema::try_from(parameters.schema.clone()).unwrap_or_default();
        let (schema, strict) = closed(open);
        Self {
            parameters,
            schema,
            strict,
        }
    }

    pub(crate) fn parse<T: DeserializeOwned>(&self, text: &str) -> Result<T, InvalidArguments> {
        // Bare text is a valid argument of a tool, but not a valid answer: a sentence must be
        // refused even where the type is a string.
        if let Err(error) = serde_json::from_str::<IgnoredAny>(text) {
            return Err(InvalidArguments {
                field: String::new(),
                problem: format!("it is not JSON alone: {error}"),
                expected: None,
            });
        }
        parse_text(&Arguments::from_text(text), &self.parameters)
    }
}
