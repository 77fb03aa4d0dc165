//! Compares the JSON types of a value with those that a schema allows.
//!
//! Serde reads more than a schema describes: a struct from a list, a unit variant from an object. A
//! guard that reads the value would not find there what the tool gets.

use serde_json::{Map, Value};

/// The limits of a check. A model could write arguments that take forever with a schema of many
/// choices; beyond these they are refused, not passed unchecked.
const MAX_DEPTH: usize = 512;
const MAX_STEPS: usize = 1_000_000;

/// A value of a JSON type that its schema does not allow.
pub(crate) struct Misfit<'a> {
    /// The field, such as `filter.dates[1]`; empty for the value as a whole.
    pub(crate) field: String,
    pub(crate) problem: String,
    pub(crate) expected: &'a Value,
}

/// Finds a value whose JSON type `schema` does not allow at its place. `null` fits everywhere: it
/// hides nothing. Keywords that are not about types are ignored.
pub(crate) fn misfit<'a>(value: &Value, schema: &'a Value) -> Option<Misfit<'a>> {
    find(value, schema, false)
}

/// Finds a value that `schema` does not allow at its place, also by the fields that it requires or
/// does not know, and by the values that it lists. For a value that no other reader checks.
pub(crate) fn strict_misfit<'a>(value: &Value, schema: &'a Value) -> Option<Misfit<'a>> {
    find(value, schema, true)
}

fn find<'a>(value: &Value, schema: &'a Value, is_strict: bool) -> Option<Misfit<'a>> {
    let mut check = TypeCheck {
        root: schema,
        steps: 0,
        is_strict,
    };
    let found = check.fits(value, schema, 0).err();
    // A path begins with a dot while it is put together from the inside out.
    found.map(|misfit| Misfit {
        field: misfit.field.trim_start_matches('.').to_owned(),
        ..misfit
    })
}

struct TypeCheck<'a> {
    root: &'a Value,
    steps: usize,
    is_strict: bool,
}

impl<'a> TypeCheck<'a> {
    fn fits(&mut self, value: &Value, schema: &'a Value, depth: usize) -> Result<(), Misfit<'a>> {
        let misfit = |problem| Misfit {
            field: String::new(),
            problem,
            expected: schema,
        };
        self.steps += 1;
        if depth > MAX_DEPTH || self.steps > MAX_STEPS {
            return Err(misfit("is too deeply nested to be checked".to_owned()));
        }
        // A schema of `true` or `false` names no type.
        let Value::Object(keywords) = schema else {
            return Ok(());
        };
        if !allows(keywords, value) {
            return Err(misfit(format!("invalid type: {}", type_of(value))));
        }
        if self.is_strict
            && let Some(problem) = strict_problem(keywords, value)
        {
            return Err(misfit(problem));
        }
        // Keywords beside a reference apply as well, so it is not followed instead of them.
        if let Some(target) = self.target(keywords) {
            self.fits(value, target, depth + 1)?;
        }
        for part in list(keywords, "allOf") {
            self.fits(value, part, depth + 1)?;
        }
        for choice in ["anyOf", "oneOf"] {
            let all = list(keywords, choice);
            let mut first = None;
            let mut fits = all.is_empty();
            for one in self.meant(value, all) {
                match self.fits(value, one, depth + 1) {
                    Ok(()) => fits = true,
                    Err(misfit) => first = first.or(Some(misfit)),
                }
                if fits {
                    break;
                }
            }
            if !fits {
                return Err(
                    first.unwrap_or_else(|| misfit(format!("invalid type: {}", type_of(value))))
                );
            }
        }
        self.inside(value, keywords, depth + 1)
    }

    /// Compares what is in an object or a list.
    fn inside(
        &mut self,
        value: &Value,
        keywords: &'a Map<String, Value>,
        depth: usize,
    ) -> Result<(), Misfit<'a>> {
        match value {
            Value::Object(fields) => {
                for (name, field) in fields {
                    for schema in of_field(keywords, name) {
                        let found = self.fits(field, schema, depth);
                        found.map_err(|misfit| misfit.inside(&format!(".{name}")))?;
                    }
                }
            }
            Value::Array(items) => {
                let schemas = list(keywords, "prefixItems");
                for (index, item) in items.iter().enumerate() {
                    let Some(schema) = schemas.get(index).or_else(|| keywords.get("items")) else {
                        continue;
                    };
                    let found = self.fits(item, schema, depth);
                    found.map_err(|misfit| misfit.inside(&format!("[{index}]")))?;
                }
            }
            _ => {}
        }
        Ok(())
    }

    /// Returns the choices that a value can be meant for: the choices that it names by its fields
    /// and tags, or else all that do not exclude it.
    fn meant(&self, value: &Value, all: &'a [Value]) -> Vec<&'a Value> {
        // Serde picks a variant by its tag and its fields. Were any choice of the right type
        // enough, a value could pass as one variant and be read as another.
        let mut named = Vec::new();
        let mut possible = Vec::new();
        for choice in all {
            let Some(keywords) = self.followed(choice).as_object() else {
                named.push(choice);
                possible.push(choice);
                continue;
            };
            if !allows(keywords, value) || !is_closed_for(keywords, value) {
                continue;
            }
            possible.push(choice);
            if is_named(keywords, value) {
                named.push(choice);
            }
        }
        if named.is_empty() { possible } else { named }
    }

    /// Follows the references of a schema that is nothing else.
    fn followed(&self, schema: &'a Value) -> &'a Value {
        let mut at = schema;
        // References may go in a circle.
        for _ in 0..MAX_DEPTH {
            match at.as_object().and_then(|keywords| self.target(keywords)) {
                Some(target) => at = target,
                None => break,
            }
        }
        at
    }

    fn target(&self, keywords: &Map<String, Value>) -> Option<&'a Value> {
        self.root
            .pointer(keywords.get("$ref")?.as_str()?.strip_prefix('#')?)
    }
}

impl Misfit<'_> {
    fn inside(self, step: &str) -> Self {
        Self {
            field: format!("{step}{}", self.field),
            ..self
        }
    }
}

fn list<'a>(keywords: &'a Map<String, Value>, name: &str) -> &'a [Value] {
    keywords
        .get(name)
        .and_then(Value::as_array)
        .map_or(&[], Vec::as_slice)
}

fn of_field<'a>(keywords: &'a Map<String, Value>, name: &str) -> Vec<&'a Value> {
    let known = keywords
        .get("properties")
        .and_then(|properties| properties.get(name));
    match (
        known,
        keywords.get("patternProperties").and_then(Value::as_object),
    ) {
        (Some(known), _) => vec![known],
        // With several patterns, none is compared: that would take a matcher for regular
        // expressions.
        (None, Some(patterns)) if patterns.len() == 1 => patterns.values().collect(),
        (None, Some(_)) => Vec::new(),
        (None, None) => keywords.get("additionalProperties").into_iter().collect(),
    }
}

/// Returns whether the keywords themselves allow the JSON type of a value.
fn allows(keywords: &Map<String, Value>, value: &Value) -> bool {
    let found = type_of(value);
    let by_type = match keywords.get("type") {
        None => true,
        Some(Value::Array(names)) => names.iter().any(|name| is_type(name, found)),
        Some(name) => is_type(name, found),
    };
    let by_const = keywords
        .get("const")
        .is_none_or(|one| type_of(one) == found);
    let by_enum = match keywords.get("enum") {
        Some(Value::Array(all)) => all.iter().any(|one| type_of(one) == found),
        _ => true,
    };
    value.is_null() || by_type && by_const && by_enum
}

/// Returns whether the type that a schema names is the found one.
fn is_type(name: &Value, found: &str) -> bool {
    match name.as_str() {
        // A float for an integer is serde's to refuse: both are numbers of JSON.
        Some("integer") => found == "number",
        Some(name @ ("array" | "boolean" | "null" | "number" | "object" | "string")) => {
            found == name
        }
        // An unknown type says nothing.
        _ => true,
    }
}

/// Returns whether an object has all fields that the keywords require, and the tags.
fn is_named(keywords: &Map<String, Value>, value: &Value) -> bool {
    let Value::Object(fields) = value else {
        return true;
    };
    let mut required = list(keywords, "required").iter().filter_map(Value::as_str);
    required.all(|name| fields.contains_key(name))
        && properties(keywords).all(|(name, schema)| match schema.get("const") {
            Some(tag) => fields.get(name) == Some(tag),
            None => true,
        })
}

/// Returns what is wrong with a value beside its type and what is in it.
fn strict_problem(keywords: &Map<String, Value>, value: &Value) -> Option<String> {
    if let Value::Object(fields) = value {
        let mut required = list(keywords, "required").iter().filter_map(Value::as_str);
        if let Some(missing) = required.find(|name| !fields.contains_key(*name)) {
            return Some(format!("missing field `{missing}`"));
        }
        if !is_closed_for(keywords, value) {
            let is_listed = |name: &String| properties(keywords).any(|(listed, _)| listed == name);
            let unknown = fields.keys().find(|name| !is_listed(name))?;
            return Some(format!("unknown field `{unknown}`"));
        }
    }
    if let Some(number) = value.as_f64() {
        let bound = |name| keywords.get(name).and_then(Value::as_f64);
        let is_low = bound("minimum").is_some_and(|least| number < least);
        let is_high = bound("maximum").is_some_and(|most| number > most);
        let is_broken = keywords.get("type").and_then(Value::as_str) == Some("integer")
            && number.fract() != 0.0;
        if is_low || is_high || is_broken {
            return Some(format!("{value} is not a number that it takes"));
        }
    }
    let is_listed = match (keywords.get("const"), keywords.get("enum")) {
        (Some(one), _) => one == value,
        (None, Some(Value::Array(all))) => all.contains(value),
        (None, _) => true,
    };
    (!is_listed && !value.is_null()).then(|| format!("{value} is not one of the choices"))
}

/// Returns whether an object has no field that closed keywords do not list.
fn is_closed_for(keywords: &Map<String, Value>, value: &Value) -> bool {
    let Value::Object(fields) = value else {
        return true;
    };
    let is_open = keywords.get("additionalProperties") != Some(&Value::Bool(false))
        || keywords.contains_key("patternProperties");
    is_open
        || fields
            .keys()
            .all(|name| properties(keywords).any(|(listed, _)| listed == name))
}

fn properties(keywords: &Map<String, Value>) -> impl Iterator<Item = (&String, &Value)> {
    keywords
        .get("properties")
        .and_then(Value::as_object)
        .into_iter()
        .flatten()
}

fn type_of(value: &Value) -> &'static str {
    match value {
        Value::Null => "null",
        Value::Bool(_) => "boolean",
        Value::Number(_) => "number",
        Value::String(_) => "string",
        Value::Array(_) => "array",
        Value::Object(_) => "object",
    }
}
