//! The types of arguments: from a JSON Schema to Cedar's types, and from JSON to Cedar's values.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;

use cedar_policy::RestrictedExpression;
use serde_json::{Map, Value};

/// The deepest that a schema may be, so that one which contains itself ends.
const MAX_DEPTH: usize = 32;

/// A type of Cedar.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum CedarType {
    String,
    Long,
    Bool,
    /// A number with at most four digits after the point.
    Decimal,
    Set(Box<CedarType>),
    Record(RecordType),
}

/// The type of an object.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct RecordType {
    fields: BTreeMap<String, FieldType>,
    /// Fields that rules do not see.
    hidden: BTreeSet<String>,
    /// Rules see no field at all.
    is_hidden: bool,
}

#[derive(Clone, Debug, PartialEq, Eq)]
struct FieldType {
    of: CedarType,
    is_required: bool,
}

/// A part of a JSON Schema that Cedar cannot express.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Inexpressible {
    /// The place, as a JSON pointer into the arguments.
    pub(crate) at: String,
    pub(crate) why: String,
}

/// A value that is not of the type.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Misfit {
    /// The place, as a JSON pointer.
    pub(crate) at: String,
    /// The problem, without the value.
    pub(crate) why: &'static str,
}

/// Reads a JSON Schema.
struct Reader<'a> {
    root: &'a Value,
    found: Vec<Inexpressible>,
}

impl RecordType {
    /// Returns the type of the arguments with this schema, without those that rules do not see.
    pub(crate) fn of_schema(
        schema: &Value,
        hidden: BTreeSet<String>,
    ) -> Result<Self, Vec<Inexpressible>> {
        let mut reader = Reader {
            root: schema,
            found: Vec::new(),
        };
        let read = reader.record(schema, hidden, "", 0);
        if reader.found.is_empty() {
            Ok(read)
        } else {
            Err(reader.found)
        }
    }

    /// Returns the type of arguments of which rules see nothing.
    pub(crate) fn hidden() -> Self {
        Self {
            is_hidden: true,
            ..Self::default()
        }
    }

    /// Writes the type in Cedar's language.
    pub(crate) fn write(&self, text: &mut String) {
        text.push('{');
        for (at, (name, field)) in self.fields.iter().enumerate() {
            let comma = if at == 0 { "" } else { ", " };
            let mark = if field.is_required { "" } else { "?" };
            // A name of JSON in the form that Cedar reads: both escape alike what names have.
            let _ = write!(text, "{comma}{}{mark}: ", quoted(name));
            field.of.write(text);
        }
        text.push('}');
    }

    /// Returns the value as Cedar has it.
    pub(crate) fn convert(&self, value: &Value) -> Result<RestrictedExpression, Misfit> {
        let mut path = String::new();
        self.read(value, &mut path)
            .map_err(|why| Misfit { at: path, why })
    }

    fn read(&self, value: &Value, path: &mut String) -> Result<RestrictedExpression, &'static str> {
        let Value::Object(entries) = value else {
            return Err("it is not an object");
        };
        let mut fields = Vec::with_capacity(entries.len());
        for (name, value) in entries {
            if self.is_hidden || self.hidden.contains(name) {
                continue;
            }
            let length = path.len();
            path.push('/');
            path.push_str(name);
            let Some(field) = self.fields.get(name) else {
                // The tool may know the field by this other name, of which no rule has heard.
                return Err("the tool does not declare it, so no rule can be about it");
            };
            // Left out and `null` are the same to the tool.
            if !value.is_null() || field.is_required {
                fields.push((name.clone(), field.of.read(value, path)?));
            }
            path.truncate(length);
        }
        if let Some((name, _)) = self
            .fields
            .iter()
            .find(|(name, field)| field.is_required && !entries.contains_key(*name))
        {
            path.push('/');
            path.push_str(name);
            return Err("it is required and left out");
        }
        RestrictedExpression::new_record(fields).map_err(|_| "a field stands twice")
    }
}

/// Returns a text as Cedar writes it.
pub(crate) fn quoted(text: &str) -> String {
    format!("\"{}\"", text.escape_debug())
}

impl CedarType {
    fn write(&self, text: &mut String) {
        match self {
            Self::String => text.push_str("String"),
            Self::Long => text.push_str("Long"),
            Self::Bool => text.push_str("Bool"),
            Self::Decimal => text.push_str("decimal"),
            Self::Set(of) => {
                text.push_str("Set<");
                of.write(text);
                text.push('>');
            }
            Self::Record(record) => record.write(text),
        }
    }

    fn read(&self, value: &Value, path: &mut String) -> Result<RestrictedExpression, &'static str> {
        match (self, value) {
            (Self::String, Value::String(text)) => {
                Ok(RestrictedExpression::new_string(text.clone()))
            }
            (Self::Bool, Value::Bool(is)) => Ok(RestrictedExpression::new_bool(*is)),
            (Self::Long, Value::Number(number)) => match number.as_i64() {
                Some(number) => Ok(RestrictedExpression::new_long(number)),
                None => Err("it is not a whole number that rules can compare"),
            },
            (Self::Decimal, Value::Number(number)) => {
                let text = decimal(&number.to_string())
                    .ok_or("it has more than four digits after the point, or is too large")?;
                Ok(RestrictedExpression::new_decimal(text))
            }
            (Self::Set(of), Value::Array(items)) => {
                let mut all = Vec::with_capacity(items.len());
                for (at, item) in items.iter().enumerate() {
                    let length = path.len();
                    let _ = write!(path, "/{at}");
                    all.push(of.read(item, path)?);
                    path.truncate(length);
                }
                Ok(RestrictedExpression::new_set(all))
            }
            (Self::Record(record), value) => record.read(value, path),
            (Self::String, _) => Err("it is not a text"),
            (Self::Bool, _) => Err("it is neither true nor false"),
            (Self::Long | Self::Decimal, _) => Err("it is not a number"),
            (Self::Set(_), _) => Err("it is not a list"),
        }
    }
}

/// Returns a number of JSON as Cedar reads it, if it is one of those that it has.
fn decimal(number: &str) -> Option<String> {
    let (whole, fraction) = number.split_once('.').unwrap_or((number, "0"));
    let digits = whole.strip_prefix('-').unwrap_or(whole);
    let is_plain = |text: &str| !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    if !is_plain(digits) || !is_plain(fraction) || fraction.len() > 4 {
        return None;
    }
    // Cedar has them as a count of ten thousandths.
    let scaled = format!("{whole}{fraction:0<4}").parse::<i64>().ok();
    scaled.map(|_| format!("{whole}.{fraction}"))
}

impl Reader<'_> {
    fn refuse(&mut self, at: &str, why: impl Into<String>) {
        self.found.push(Inexpressible {
            at: at.to_owned(),
            why: why.into(),
        });
    }

    fn record(
        &mut self,
        schema: &Value,
        hidden: BTreeSet<String>,
        at: &str,
        depth: usize,
    ) -> RecordType {
        let schema = self.referred(schema);
        let Value::Object(schema) = schema else {
            self.refuse(at, "it may be anything");
            return RecordType::default();
        };
        self.keywords(schema, at);
        if schema.contains_key("anyOf") || schema.contains_key("oneOf") {
            self.refuse(at, "it is one of several types");
        }
        match schema.get("additionalProperties") {
            None | Some(Value::Bool(false)) => {}
            Some(_) => self.refuse(at, "it may have any names"),
        }
        let required: BTreeSet<&str> = schema
            .get("required")
            .and_then(Value::as_array)
            .into_iter()
            .flatten()
            .filter_map(Value::as_str)
            .collect();
        let mut record = RecordType {
            hidden,
            ..RecordType::default()
        };
        let properties = schema.get("properties").and_then(Value::as_object);
        for (name, property) in properties.into_iter().flatten() {
            if record.hidden.contains(name) {
                continue;
            }
            let at = format!("{at}/{name}");
            // Cedar's own names in JSON; and what its language cannot have as a name.
            if name.starts_with("__") || name.chars().any(char::is_control) {
                self.refuse(&at, "a name of rules cannot be like this");
                continue;
            }
            let is_null = self.may_be_null(property);
            if let Some(of) = self.value(property, &at, depth + 1) {
                let field = FieldType {
                    of,
                    is_required: required.contains(&**name) && !is_null,
                };
                record.fields.insert(name.clone(), field);
            }
        }
        record
    }

    /// Refuses what a type of Cedar cannot say.
    fn keywords(&mut self, schema: &Map<String, Value>, at: &str) {
        for keyword in [
            "allOf",
            "not",
            "if",
            "patternProperties",
            "propertyNames",
            "prefixItems",
            "unevaluatedProperties",
            "dependentSchemas",
            "$dynamicRef",
        ] {
            if schema.contains_key(keyword) {
                self.refuse(at, format!("`{keyword}` has no counterpart in rules"));
            }
        }
    }

    /// Returns the schema that a reference names.
    fn referred<'s>(&self, schema: &'s Value) -> &'s Value
    where
        Self: 's,
    {
        let mut schema = schema;
        for _ in 0..MAX_DEPTH {
            let Some(name) = schema.get("$ref").and_then(Value::as_str) else {
                return schema;
            };
            let Some(referred) = name.strip_prefix('#').and_then(|at| self.root.pointer(at)) else {
                return schema;
            };
            schema = referred;
        }
        schema
    }

    /// Returns the alternatives of a schema, without `null`.
    fn alternatives<'s>(&self, schema: &'s Value) -> Option<Vec<&'s Value>>
    where
        Self: 's,
    {
        let all = schema.get("anyOf").or_else(|| schema.get("oneOf"))?;
        let all = all.as_array()?.iter();
        Some(all.filter(|one| !is_null(self.referred(one))).collect())
    }

    fn may_be_null(&self, schema: &Value) -> bool {
        let schema = self.referred(schema);
        if is_null(schema) {
            return true;
        }
        let types = schema.get("type").and_then(Value::as_array);
        if types.is_some_and(|types| types.iter().any(|one| one == "null")) {
            return true;
        }
        let all = schema.get("anyOf").or_else(|| schema.get("oneOf"));
        let all = all.and_then(Value::as_array).into_iter().flatten();
        all.into_iter().any(|one| is_null(self.referred(one)))
    }

    fn value(&mut self, schema: &Value, at: &str, depth: usize) -> Option<CedarType> {
        if depth > MAX_DEPTH {
            self.refuse(at, "it contains itself");
            return None;
        }
        let schema = self.referred(schema);
        let Value::Object(object) = schema else {
            self.refuse(at, "it may be anything");
            return None;
        };
        if object.contains_key("$ref") {
            self.refuse(at, "its `$ref` leads nowhere");
            return None;
        }
        self.keywords(object, at);
        if let Some(alternatives) = self.alternatives(schema) {
            return match &alternatives[..] {
                [one] => self.value(one, at, depth + 1),
                several => self.one_of(several, at, depth + 1),
            };
        }
        if let Some(text) = object.get("const") {
            return self.constants(std::slice::from_ref(text), at);
        }
        if let Some(values) = object.get("enum").and_then(Value::as_array) {
            return self.constants(values, at);
        }
        let named = match object.get("type") {
            Some(Value::String(name)) => vec![&**name],
            Some(Value::Array(names)) => names
                .iter()
                .filter_map(Value::as_str)
                .filter(|name| *name != "null")
                .collect(),
            _ => Vec::new(),
        };
        match &named[..] {
            ["string"] => Some(CedarType::String),
            ["boolean"] => Some(CedarType::Bool),
            ["integer"] => Some(CedarType::Long),
            ["number"] => Some(CedarType::Decimal),
            ["object"] => {
                let record = self.record(schema, BTreeSet::new(), at, depth);
                Some(CedarType::Record(record))
            }
            ["array"] => match object.get("items") {
                Some(items) if self.may_be_null(items) => {
                    self.refuse(at, "its items may be `null`");
                    None
                }
                Some(items) => {
                    let of = self.value(items, &format!("{at}/*"), depth + 1)?;
                    Some(CedarType::Set(Box::new(of)))
                }
                None => {
                    self.refuse(at, "its items may be anything");
                    None
                }
            },
            [] => {
                self.refuse(at, "it may be anything");
                None
            }
            _ => {
                self.refuse(at, "it is one of several types");
                None
            }
        }
    }

    /// Returns the type of several alternatives, if all are of one type.
    fn one_of(&mut self, all: &[&Value], at: &str, depth: usize) -> Option<CedarType> {
        let mut types = Vec::new();
        for one in all {
            types.push(self.value(one, at, depth)?);
        }
        let first = types.first()?.clone();
        // Objects with other fields each are told apart by a field: rules could not know which.
        if matches!(first, CedarType::Record(_)) || types.iter().any(|other| *other != first) {
            self.refuse(at, "it is one of several types");
            return None;
        }
        Some(first)
    }

    fn constants(&mut self, values: &[Value], at: &str) -> Option<CedarType> {
        let mut values = values.iter().filter(|value| !value.is_null()).peekable();
        let of = match values.peek() {
            Some(Value::String(_)) => CedarType::String,
            Some(Value::Bool(_)) => CedarType::Bool,
            Some(Value::Number(number)) if number.is_i64() => CedarType::Long,
            _ => {
                self.refuse(at, "its constants are of a type that rules do not have");
                return None;
            }
        };
        let is_of = |value: &Value| match &of {
            CedarType::String => value.is_string(),
            CedarType::Bool => value.is_boolean(),
            _ => value.is_i64(),
        };
        if !values.all(is_of) {
            self.refuse(at, "its constants are of several types");
            return None;
        }
        Some(of)
    }
}

fn is_null(schema: &Value) -> bool {
    schema.get("type").is_some_and(|name| name == "null")
        || schema.get("const").is_some_and(Value::is_null)
}
