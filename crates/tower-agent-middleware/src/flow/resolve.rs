//! References to variables in the arguments of a call.

use serde_json::Value;
use tower_agent::context::{Names, RunContext};

use super::book::{Book, existed_before};
use super::label::Label;
use super::place::TurnId;
use super::pointer::steps;
use super::steps::is_of_name;

/// The value of a reference, where it was put into the arguments.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Substitution {
    /// The place in the arguments.
    pub(super) path: Vec<String>,
    /// The variable.
    pub(super) name: String,
    /// The tools whose results the value is made of.
    pub(super) from: Vec<String>,
    pub(super) value: Value,
    pub(super) label: Label,
}

/// A reference that has no value. Its text is constant: whoever guesses names learns nothing from
/// it.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct UnknownReference;

impl UnknownReference {
    pub(super) const TEXT: &str = "refused: a reference in the arguments has no value. A reference is `{\"$ref\": \"@m1.0\"}`, \
         or `{{@m1.0}}` inside a text, with a name from the result of an earlier turn, and perhaps \
         a JSON pointer into it: `@m1.0#/0/id`";
}

/// Replaces the references in the arguments of a call. Each is replaced once: a reference in the
/// text of a value is text.
pub(super) struct Resolver<'a> {
    book: &'a Book<'a>,
    /// The message with the call.
    message: TurnId<'a>,
    pub(super) substitutions: Vec<Substitution>,
}

impl<'a> Resolver<'a> {
    pub(super) fn new(book: &'a Book<'a>, message: TurnId<'a>) -> Self {
        Self {
            book,
            message,
            substitutions: Vec::new(),
        }
    }

    /// Returns the arguments with the values of the references, or `None` if there are none.
    pub(super) fn resolve(&mut self, arguments: &Value) -> Result<Option<Value>, UnknownReference> {
        if !may_refer(arguments) {
            return Ok(None);
        }
        let mut resolved = arguments.clone();
        self.replace(&mut resolved, &mut Vec::new())?;
        Ok((!self.substitutions.is_empty()).then_some(resolved))
    }

    fn replace(
        &mut self,
        value: &mut Value,
        path: &mut Vec<String>,
    ) -> Result<(), UnknownReference> {
        if let Some(reference) = as_reference(value) {
            *value = self.look_up(&reference, path)?;
            return Ok(());
        }
        match value {
            Value::String(text) => {
                if let Some(filled) = self.fill(text, path)? {
                    *text = filled;
                }
            }
            Value::Array(items) => {
                for (index, item) in items.iter_mut().enumerate() {
                    path.push(index.to_string());
                    self.replace(item, path)?;
                    path.pop();
                }
            }
            Value::Object(entries) => {
                for (key, item) in entries.iter_mut() {
                    path.push(key.clone());
                    self.replace(item, path)?;
                    path.pop();
                }
            }
            _ => {}
        }
        Ok(())
    }

    /// Returns the text with the values of the references in it.
    fn fill(&mut self, text: &str, path: &[String]) -> Result<Option<String>, UnknownReference> {
        let mut filled = String::new();
        let mut left = text;
        while let Some(at) = left.find(OPEN) {
            let inside = &left[at + OPEN.len() - 1..];
            let Some(end) = inside.find("}}") else { break };
            filled.push_str(&left[..at]);
            match self.look_up(&inside[..end], path)? {
                Value::String(text) => filled.push_str(&text),
                other => filled.push_str(&other.to_string()),
            }
            left = &inside[end + 2..];
        }
        if left.len() == text.len() {
            return Ok(None);
        }
        filled.push_str(left);
        Ok(Some(filled))
    }

    fn look_up(&mut self, reference: &str, path: &[String]) -> Result<Value, UnknownReference> {
        let (name, inside) = reference.split_once('#').unwrap_or((reference, ""));
        let variable = self.book.variable(name).ok_or(UnknownReference)?;
        if !existed_before(&variable, &self.message) {
            return Err(UnknownReference);
        }
        let value = variable.value.pointer(inside).ok_or(UnknownReference)?;
        self.substitutions.push(Substitution {
            path: path.to_vec(),
            name: reference.to_owned(),
            from: variable.from.clone(),
            value: value.clone(),
            label: variable.label_at(&steps(inside)),
        });
        Ok(value.clone())
    }
}

/// The beginning of a reference in a text.
const OPEN: &str = "{{@";

/// Returns the reference that a value is.
fn as_reference(value: &Value) -> Option<String> {
    let entries = value.as_object().filter(|entries| entries.len() == 1)?;
    let name = entries.get("$ref")?.as_str()?;
    // Others are of somebody else's, such as those in a JSON Schema.
    name.starts_with('@').then(|| name.to_owned())
}

/// Returns the references in a text, with the value of each variable. A value of an object that is
/// a reference is such a text.
pub(super) fn references(context: &RunContext, text: &str) -> Names {
    let book = Book::of(context);
    let mut found = Names::new();
    for (at, _) in text.match_indices('@') {
        let end = text[at + 1..].find(|c| !is_of_name(c));
        let name = end.map_or(&text[at..], |end| &text[at..=at + end]);
        // The stop of a sentence is not a part of it.
        let name = name.trim_end_matches('.');
        let variable = book.variable(name);
        // Of what has no value, only what stands where the guard looks for references.
        if variable.is_some() || at == 0 || text[..at].ends_with("{{") {
            let value = variable.map(|variable| variable.value.to_string());
            found.insert(name.to_owned(), value.unwrap_or_default());
        }
    }
    found
}

/// Returns whether a value may contain a reference.
fn may_refer(value: &Value) -> bool {
    match value {
        Value::String(text) => text.contains(OPEN),
        Value::Array(items) => items.iter().any(may_refer),
        Value::Object(entries) => as_reference(value).is_some() || entries.values().any(may_refer),
        _ => false,
    }
}
