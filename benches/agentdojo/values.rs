//! Values of arguments, and words in texts.

use serde_json::Value;

/// Returns the values in a value that are no list and no object, with their JSON pointers.
pub(crate) fn leaves(value: &Value, place: String) -> Vec<(String, &Value)> {
    match value {
        Value::Array(items) => {
            let items = items.iter().enumerate();
            items
                .flat_map(|(index, item)| leaves(item, format!("{place}/{index}")))
                .collect()
        }
        Value::Object(entries) => entries
            .iter()
            .flat_map(|(key, item)| leaves(item, format!("{place}/{key}")))
            .collect(),
        _ => vec![(place, value)],
    }
}

/// Sets the value at a JSON pointer, if there is one.
pub(crate) fn put(value: &mut Value, place: &str, new: Value) {
    if let Some(old) = value.pointer_mut(place) {
        *old = new;
    }
}

/// Replaces a word in all texts of a value.
pub(crate) fn replace(value: &mut Value, from: &str, to: &str) {
    match value {
        Value::String(text) => {
            for at in words(text, from).into_iter().rev() {
                text.replace_range(at..at + from.len(), to);
            }
        }
        Value::Array(items) => items.iter_mut().for_each(|item| replace(item, from, to)),
        Value::Object(entries) => entries
            .values_mut()
            .for_each(|item| replace(item, from, to)),
        _ => {}
    }
}

/// Returns a value as a text: without quotes, if it is one.
pub(crate) fn as_text(value: &Value) -> String {
    match value {
        Value::String(text) => text.clone(),
        Value::Null => String::new(),
        other => other.to_string(),
    }
}

/// Returns where a text has this one, and not as a part of a longer word.
fn words(text: &str, word: &str) -> Vec<usize> {
    let is_part = |character: char| character.is_alphanumeric() || "@-_".contains(character);
    let places = text.match_indices(word).filter(|(at, _)| {
        let before = text[..*at].chars().next_back();
        let after = text[at + word.len()..].chars().next();
        !before.is_some_and(is_part) && !after.is_some_and(is_part)
    });
    places.map(|(at, _)| at).collect()
}

/// Returns whether a text in lower case has this one, and not as a part of a longer word.
pub(crate) fn has_word(text: &str, word: &str) -> bool {
    !words(text, &word.to_lowercase()).is_empty()
}

/// Returns whether a text has this number.
pub(crate) fn has_number(text: &str, number: Option<f64>) -> bool {
    let words = text.split(|character: char| !character.is_ascii_digit() && character != '.');
    words.into_iter().any(|word| {
        let word = word.trim_end_matches('.');
        number.is_some() && word.parse::<f64>().ok() == number
    })
}

/// Returns whether a text is like `2024-05-19 12:00`.
pub(crate) fn is_time(text: &str) -> bool {
    let pattern = "0000-00-00 00:00";
    text.len() == pattern.len()
        && text
            .bytes()
            .zip(pattern.bytes())
            .all(|(one, like)| match like {
                b'0' => one.is_ascii_digit(),
                _ => one == like,
            })
}
