use std::borrow::Cow;

use tower_agent::message::Part;

/// Returns the texts of these parts, joined.
pub(crate) fn joined<'a>(parts: &'a [Part], between: &str) -> Cow<'a, str> {
    let mut texts = parts
        .iter()
        .filter_map(Part::as_text)
        .filter(|text| !text.is_empty());
    let first = texts.next().unwrap_or_default();
    match texts.next() {
        None => first.into(),
        Some(second) => {
            let all: Vec<_> = [first, second].into_iter().chain(texts).collect();
            all.join(between).into()
        }
    }
}
