//! JSON Schemas in the form that providers accept.

use schemars::generate::SchemaSettings;
use schemars::transform::{ReplaceBoolSchemas, transform_subschemas};
use schemars::{JsonSchema, Schema};
use serde_json::{Map, Value, json};

/// The parameters of a tool with arguments of type `A`: an object's schema, as every provider
/// requires, and the form of the `A` in the object.
#[derive(Clone, Debug)]
pub(super) struct Parameters {
    pub(super) schema: Value,
    pub(super) form: ArgumentsForm,
}

/// The form of the arguments in the object that the model sends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ArgumentsForm {
    /// The object itself.
    Object,
    /// Any value that the model sends: the type, such as a [`Value`], has no schema.
    Anything,
    /// The object's one property, [`VALUE`].
    Property,
    /// No arguments.
    Nothing,
}

/// The property that holds arguments that are not an object.
pub(super) const VALUE: &str = "value";

#[derive(JsonSchema)]
#[expect(dead_code, reason = "a schema alone")]
struct Wrapped<A> {
    value: A,
}

impl Parameters {
    pub(super) fn of<A: JsonSchema>() -> Self {
        let mut schema = generate::<A>();
        let root = schema.ensure_object();
        let (schema, form) = if is_plain_object(root) {
            // Some providers require it even if it is empty.
            root.entry("properties").or_insert_with(|| json!({}));
            (schema.to_value(), ArgumentsForm::Object)
        } else if root.get("type") == Some(&json!("null")) {
            (
                json!({ "type": "object", "properties": {} }),
                ArgumentsForm::Nothing,
            )
        } else if root.keys().all(|keyword| keyword == "description") {
            // A schema that says nothing about the type: any object, as providers require one.
            root.insert("type".into(), json!("object"));
            root.insert("properties".into(), json!({}));
            root.insert("additionalProperties".into(), json!(true));
            (schema.to_value(), ArgumentsForm::Anything)
        } else {
            (generate::<Wrapped<A>>().to_value(), ArgumentsForm::Property)
        };
        Self { schema, form }
    }
}

/// Returns whether these parameters are, or look like, wrapped arguments: an object whose one
/// property is [`VALUE`].
pub(super) fn is_wrapped(schema: &Value) -> bool {
    let properties = schema.get("properties").and_then(Value::as_object);
    properties.is_some_and(|properties| properties.keys().eq([VALUE]))
}

/// Returns the schema of a response that deserialises into `T`, and whether a provider can
/// guarantee it, that is, whether every object in it can be closed.
pub(crate) fn answer<T: JsonSchema>() -> (Value, bool) {
    closed(generate::<T>())
}

/// Returns the schema with every object in it closed, or unchanged if one cannot be.
pub(super) fn closed(open: Schema) -> (Value, bool) {
    // A copy: closing stops half way where an object cannot be closed.
    let mut closed = open.clone();
    let is_strict = is_plain_object(closed.ensure_object()) && close(&mut closed);
    (if is_strict { closed } else { open }.to_value(), is_strict)
}

fn generate<T: JsonSchema>() -> Schema {
    // Providers reject `true` as a schema, but know it as `additionalProperties`.
    let mut no_bools = ReplaceBoolSchemas::default();
    no_bools.skip_additional_properties = true;
    let settings = SchemaSettings::draft2020_12().with(|settings| {
        // Many providers do not follow references; only recursive types keep them.
        settings.inline_subschemas = true;
        settings.meta_schema = None;
    });
    let mut schema = settings
        .with_transform(no_bools)
        .with_transform(lists_of_any)
        .into_generator()
        .into_root_schema_for::<T>();
    // The name of a Rust type, which tells the model nothing and costs tokens.
    schema.remove("title");
    schema
}

/// Returns whether it is a plain object rather than a choice, which providers reject at the root.
fn is_plain_object(schema: &Map<String, Value>) -> bool {
    let choices = [
        "$ref", "allOf", "anyOf", "const", "enum", "if", "not", "oneOf",
    ];
    schema.get("type") == Some(&json!("object"))
        && !choices.iter().any(|keyword| schema.contains_key(*keyword))
}

/// Replaces schemas for single positions of a list, which providers do not support: each position
/// may then be any of them.
fn lists_of_any(schema: &mut Schema) {
    if let Some(Value::Array(schemas)) = schema.remove("prefixItems") {
        let mut kinds: Vec<Value> = Vec::new();
        for item in schemas {
            if !kinds.contains(&item) {
                kinds.push(item);
            }
        }
        let items = if kinds.len() == 1 {
            kinds.remove(0)
        } else {
            json!({ "anyOf": kinds })
        };
        schema.insert("items".into(), items);
    }
    transform_subschemas(&mut lists_of_any, schema);
}

/// The keywords that strict mode supports.
const SUPPORTED: [&str; 19] = [
    "$defs",
    "$ref",
    "additionalProperties",
    "anyOf",
    "const",
    "description",
    "enum",
    "exclusiveMaximum",
    "exclusiveMinimum",
    "format",
    "items",
    "maxItems",
    "maximum",
    "minItems",
    "minimum",
    "multipleOf",
    "pattern",
    "properties",
    "required",
];

/// Keywords that strict mode rejects and that parsing the response does not need.
const NOT_NEEDED: [&str; 8] = [
    "default",
    "deprecated",
    "examples",
    "maxLength",
    "minLength",
    "readOnly",
    "title",
    "writeOnly",
];

/// The formats that strict mode supports. It has none for the sizes of integers.
const FORMATS: [&str; 9] = [
    "date",
    "date-time",
    "duration",
    "email",
    "hostname",
    "ipv4",
    "ipv6",
    "time",
    "uuid",
];

/// Closes every object and requires all its properties; returns `false` if that would change the
/// meaning of the schema. A property of an `Option` may already be null. A property with a default
/// becomes required, but not null, which its type may not allow.
fn close(schema: &mut Schema) -> bool {
    // `true` cannot be closed. `false` allows nothing, so it is closed already.
    if let Some(anything) = schema.as_bool() {
        return !anything;
    }
    let root = schema.ensure_object();
    if root.contains_key("$ref") {
        // Strict mode allows no other keyword beside a reference.
        root.retain(|keyword, _| keyword == "$ref" || keyword == "$defs");
    }
    root.retain(|keyword, _| !NOT_NEEDED.contains(&keyword.as_str()));
    if let Some(format) = root.get("format")
        && !FORMATS.iter().any(|known| format == known)
    {
        root.remove("format");
    }
    // Strict mode has `anyOf` alone, and schemars writes `oneOf` for choices that exclude one
    // another anyway.
    if let Some(choices) = root.remove("oneOf")
        && root.insert("anyOf".into(), choices).is_some()
    {
        return false;
    }
    let is_any = !["$ref", "anyOf", "const", "enum", "type"]
        .into_iter()
        .any(|keyword| root.contains_key(keyword));
    // Closed, the object would forbid the properties of the choices.
    let is_mixed = root.contains_key("anyOf") && root.contains_key("properties");
    let is_supported = root
        .keys()
        .all(|keyword| keyword == "type" || SUPPORTED.contains(&keyword.as_str()));
    if is_any || is_mixed || !is_supported || !close_object(root) {
        return false;
    }
    let mut closed = true;
    transform_subschemas(&mut |part: &mut Schema| closed &= close(part), schema);
    closed
}

fn close_object(schema: &mut Map<String, Value>) -> bool {
    let is_object = match schema.get("type") {
        Some(Value::Array(types)) => types.contains(&json!("object")),
        other => other == Some(&json!("object")),
    };
    if !is_object {
        return true;
    }
    let Some(Value::Object(properties)) = schema.get("properties") else {
        return false;
    };
    let required = properties.keys().cloned().collect::<Vec<_>>();
    schema.insert("required".into(), required.into());
    // A map has a schema here: closed, it could have no entries.
    let earlier = schema.insert("additionalProperties".into(), Value::Bool(false));
    earlier.is_none_or(|earlier| earlier == Value::Bool(false))
}
