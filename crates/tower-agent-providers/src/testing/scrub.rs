//! Redacts a body, whose texts may be cut into deltas.

use std::collections::BTreeMap;
use std::fmt::{self, Write};
use std::sync::Arc;

use serde_json::Value;

/// Redacts JSON with a function of the user's.
#[derive(Clone)]
pub(super) struct Scrub(Arc<dyn Fn(&Value) -> Value + Send + Sync>);

impl fmt::Debug for Scrub {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Scrub").finish_non_exhaustive()
    }
}

/// The strings at one place of a document, or of the events of a stream.
type Pieces<'v> = BTreeMap<String, Vec<&'v mut String>>;

/// A line of a body: JSON, such as an event, or something else.
struct Line<'b> {
    /// The bytes before and after the text, such as `data: `.
    around: (&'b str, &'b str),
    text: &'b str,
    document: Option<Value>,
    /// Set for a document that is cut off, and perhaps a match with it.
    is_cut: bool,
}

impl Scrub {
    pub(super) fn new(redact: impl Fn(&Value) -> Value + Send + Sync + 'static) -> Self {
        Self(Arc::new(redact))
    }

    /// Returns the redacted text, or `None` if nothing was found. A text that is JSON, such as a
    /// tool call's arguments, is redacted as such.
    pub(super) fn text(&self, text: &str) -> Option<String> {
        let json = text
            .trim_start()
            .starts_with(['{', '['])
            .then(|| serde_json::from_str::<Value>(text));
        if let Some(Ok(json)) = json {
            let hidden = (self.0)(&json);
            // Of a key that stands there twice only the last was looked at.
            return (hidden != json || self.finds(text)).then(|| hidden.to_string());
        }
        let hidden = self.plain(text);
        (hidden != text).then_some(hidden)
    }

    pub(super) fn document(&self, document: &mut Value) {
        self.documents(vec![document]);
    }

    /// Returns the redacted body in pieces of one event each, or `None` if nothing was found.
    pub(super) fn body(&self, body: &str) -> Option<Vec<String>> {
        let mut lines = match serde_json::from_str(body) {
            Ok(json) => {
                vec![Line {
                    around: ("", ""),
                    text: body,
                    document: Some(json),
                    is_cut: false,
                }]
            }
            Err(_) => body.split_inclusive('\n').map(Line::read).collect(),
        };
        let before: Vec<_> = lines.iter().map(|line| line.document.clone()).collect();
        self.documents(
            lines
                .iter_mut()
                .filter_map(|line| line.document.as_mut())
                .collect(),
        );
        let mut is_changed = false;
        let mut pieces: Vec<String> = Vec::new();
        for (line, before) in lines.iter().zip(before) {
            let hidden = self.line(line, before.as_ref());
            is_changed |= hidden.is_some();
            let (start, end) = line.around;
            let line = format!("{start}{}{end}", hidden.as_deref().unwrap_or(line.text));
            match pieces.last_mut() {
                Some(last) if line.trim().is_empty() => last.push_str(&line),
                _ => pieces.push(line),
            }
        }
        is_changed.then_some(pieces)
    }

    /// Returns the text of a line if it is another than before.
    fn line(&self, line: &Line<'_>, before: Option<&Value>) -> Option<String> {
        match &line.document {
            Some(json) => {
                let is_changed = Some(json) != before || self.finds(line.text);
                is_changed.then(|| json.to_string())
            }
            None if line.is_cut => Some(line.text[..1].to_owned()),
            None => self.text(line.text),
        }
    }

    fn documents(&self, mut documents: Vec<&mut Value>) {
        let mut pieces = Pieces::new();
        for document in &mut documents {
            collect(document, String::new(), &mut pieces);
        }
        pieces.into_values().for_each(|pieces| self.pieces(pieces));
        for document in documents {
            // Keys and numbers.
            *document = (self.0)(document);
        }
    }

    /// Redacts a text in pieces. If a match stands across two of them, the first piece becomes the
    /// whole text.
    fn pieces(&self, mut pieces: Vec<&mut String>) {
        let whole: String = pieces.iter().map(|piece| piece.as_str()).collect();
        let whole = self.hidden(&whole);
        let mut one_by_one: Vec<_> = pieces.iter().map(|piece| self.hidden(piece)).collect();
        // A secret that stands across two pieces is found only in the whole text.
        if one_by_one.concat() != whole {
            one_by_one.fill(String::new());
            one_by_one[0] = whole;
        }
        for (piece, hidden) in pieces.iter_mut().zip(one_by_one) {
            **piece = hidden;
        }
    }

    fn hidden(&self, text: &str) -> String {
        self.text(text).unwrap_or_else(|| text.to_owned())
    }

    /// Returns the redacted text, of a text that is not JSON.
    fn plain(&self, text: &str) -> String {
        match (self.0)(&text.into()) {
            Value::String(hidden) => hidden,
            other => other.to_string(),
        }
    }

    fn finds(&self, text: &str) -> bool {
        self.plain(text) != text
    }
}

impl<'b> Line<'b> {
    fn read(line: &'b str) -> Self {
        let plain = line.trim_ascii();
        let text = plain
            .strip_prefix("data:")
            .map_or(plain, str::trim_ascii_start);
        let around = line.split_once(text).unwrap_or(("", ""));
        let document = serde_json::from_str(text);
        let is_cut =
            text.starts_with(['{', '[']) && document.as_ref().is_err_and(serde_json::Error::is_eof);
        Self {
            around,
            text,
            document: document.ok(),
            is_cut,
        }
    }
}

/// Collects the strings by their path: the keys that lead there, and the numbers of the parts, tool
/// calls and choices that a stream tells apart.
fn collect<'v>(value: &'v mut Value, mut path: String, pieces: &mut Pieces<'v>) {
    match value {
        Value::String(text) => pieces.entry(path).or_default().push(text),
        Value::Array(items) => {
            for (at, item) in items.iter_mut().enumerate() {
                collect(item, format!("{path}/{at}"), pieces);
            }
        }
        Value::Object(entries) => {
            for (key, value) in entries.iter() {
                if key.ends_with("index") || key == "item_id" {
                    // Writing to a string does not fail.
                    let _ = write!(path, "/{key}={value}");
                }
            }
            for (key, value) in entries {
                collect(value, format!("{path}/{key}"), pieces);
            }
        }
        Value::Null | Value::Bool(_) | Value::Number(_) => {}
    }
}
