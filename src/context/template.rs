//! Texts with placeholders for values of the state.

use serde_json::Value;

use crate::error::{Error, ErrorKind, Result};
use crate::state::State;

impl State {
    /// Returns the text with the state's values in place of its placeholders.
    ///
    /// | in the text | becomes |
    /// |---|---|
    /// | `{city}`, `{ city }` | the value under the key `city`: a text as it is, `null` as nothing, any other value as JSON |
    /// | `{city?}` | the same, or nothing if there is no such key |
    /// | `{user:city}`, `{artifact.city}` | the value under that whole key; `app:`, `user:`, `temp:` and `artifact.` may begin a key |
    /// | `{{city}}` | `{city}`: it is no placeholder |
    /// | `${city}`, `\{city}`, `{"k": 1}`, `{a.b}`, `{}` | the same: what is no key in braces, or has a `$` or a `\` before it, stays |
    ///
    /// A key consists of letters, digits and `_`, and does not begin with a digit. Values are put
    /// in once: braces in a value are text.
    ///
    /// ```
    /// use serde_json::json;
    /// use tower_agent::State;
    ///
    /// let state = State::from_iter([("city".to_owned(), json!("Oslo"))]);
    /// assert_eq!(state.fill("From {city}. {mood?}")?, "From Oslo. ");
    /// assert!(state.fill("Be {mood}.").is_err());
    /// # Ok::<(), tower_agent::Error>(())
    /// ```
    ///
    /// # Errors
    ///
    /// Fails with [`InvalidRequest`](ErrorKind::InvalidRequest) if the state has no value for a
    /// placeholder without `?`.
    pub fn fill(&self, template: &str) -> Result<String> {
        self.fill_with(template, &mut Vec::new())
    }

    pub(crate) fn fill_with(&self, template: &str, keys: &mut Vec<String>) -> Result<String> {
        let mut filled = String::with_capacity(template.len());
        let mut rest = template;
        while let Some(open) = rest.find('{') {
            let (before, from) = rest.split_at(open);
            filled.push_str(before);
            let Some((key, is_optional, after)) = placeholder(from) else {
                filled.push('{');
                rest = &from[1..];
                continue;
            };
            rest = after;
            if filled.ends_with(['$', '\\']) {
                filled.push_str(&from[..from.len() - after.len()]);
            } else if let (Some(outer), Some(after)) =
                (filled.strip_suffix('{'), after.strip_prefix('}'))
            {
                // The outer pair of braces says that the inner one is text.
                filled.truncate(outer.len());
                filled.push_str(&from[..from.len() - after.len() - 1]);
                rest = after;
            } else {
                if self.push_value(key, is_optional, &mut filled)? {
                    keys.push(key.to_owned());
                }
            }
        }
        filled.push_str(rest);
        Ok(filled)
    }

    /// Appends the value of a placeholder. Returns whether there is one.
    fn push_value(&self, key: &str, is_optional: bool, filled: &mut String) -> Result<bool> {
        self.read(key, |value| match value {
            Some(Value::Null) => Ok(true),
            Some(Value::String(text)) => {
                filled.push_str(text);
                Ok(true)
            }
            Some(other) => {
                filled.push_str(&other.to_string());
                Ok(true)
            }
            None if is_optional => Ok(false),
            None => {
                let message = format!(
                    "the state has no `{key}`, which a text asks for with `{{{key}}}`: set it \
                     before the run, or write `{{{key}?}}` if it may be missing"
                );
                Err(Error::new(ErrorKind::InvalidRequest, message))
            }
        })
    }
}

/// Reads a key in braces from the beginning of a text: the key, whether nothing stands in its place
/// if there is no value, and what follows.
fn placeholder(text: &str) -> Option<(&str, bool, &str)> {
    let (inside, after) = text.strip_prefix('{')?.split_once('}')?;
    let inside = inside.trim();
    let (key, is_optional) = match inside.strip_suffix('?') {
        Some(key) => (key, true),
        None => (inside, false),
    };
    let scopes = ["app:", "user:", "temp:", "artifact."];
    let name = scopes.iter().find_map(|scope| key.strip_prefix(scope));
    is_name(name.unwrap_or(key)).then_some((key, is_optional, after))
}

fn is_name(text: &str) -> bool {
    let is_part = |c: char| c.is_alphanumeric() || c == '_';
    text.chars().all(is_part) && !text.starts_with(|c: char| c.is_numeric()) && !text.is_empty()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn what_is_a_key_in_braces_is_replaced_and_everything_else_stays() {
        let state = State::from_iter([
            ("n".to_owned(), json!(5)),
            ("none".to_owned(), json!(null)),
            ("app:a".to_owned(), json!("A")),
            ("artifact.page".to_owned(), json!("{n}")),
        ]);
        for (template, filled) in [
            ("{n}{ n }{n}", "555"),
            ("{none}{gone?}{ gone? }{artifact.gone?}", ""),
            ("{app:a} {artifact.page}", "A {n}"),
            ("{{n}} {{{n}}} {{gone}}", "{n} {{n}} {gone}"),
            (r#"{"j": {n}} {"k": 1}"#, r#"{"j": 5} {"k": 1}"#),
            (r"${n} \{n}", r"${n} \{n}"),
            ("{x:y} {a.b} {a-b} {1} {} {", "{x:y} {a.b} {a-b} {1} {} {"),
            ("} {n", "} {n"),
            ("{ä?}{é", "{é"),
        ] {
            assert_eq!(state.fill(template).unwrap(), filled, "{template}");
        }
        let error = state.fill("{n} {gone}").unwrap_err();
        assert_eq!(error.kind(), ErrorKind::InvalidRequest);
        assert!(error.message().contains("`gone`"), "{error}");
    }
}
