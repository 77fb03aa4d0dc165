//! Hides what a recording must not contain.

use bytes::Bytes;
use http::Request;
use serde_json::Value;

use super::scrub::Scrub;
use super::text::{Text, body};
use crate::transport::{RequestBody, Secrets};

/// The secrets and the redaction of a call.
pub(super) struct Hiding {
    secrets: Secrets,
    scrub: Option<Scrub>,
}

impl Hiding {
    pub(super) fn of(request: &Request<RequestBody>, scrub: Option<Scrub>) -> Self {
        let query = request.uri().query().unwrap_or_default();
        let mut secrets = Secrets::new(None, request.headers(), query);
        add_secrets(&body(request), &mut secrets);
        Self { secrets, scrub }
    }

    pub(super) fn text(&self, text: &str) -> String {
        // Secrets first, whole, before a redaction can change a part of one.
        let hidden = self.secrets.hide(text);
        match &self.scrub {
            Some(scrub) => scrub.text(&hidden).unwrap_or(hidden),
            None => hidden,
        }
    }

    /// Hides in every text.
    pub(super) fn value(&self, value: &mut Value) {
        hide(value, &self.secrets);
        if let Some(scrub) = &self.scrub {
            scrub.document(value);
        }
    }

    /// Returns the pieces of a body, which stay as they came unless something stands across two of
    /// them. Returns `None` if there is a redaction and the body is not text.
    pub(super) fn frames(&self, frames: &[Bytes]) -> Option<Vec<Text>> {
        let whole = frames.concat();
        let Some(scrub) = &self.scrub else {
            return Some(self.without_secrets(frames, &whole));
        };
        // Secrets first: a redaction could cut one in two, and a part of a secret is not found.
        let text = self.secrets.hide(std::str::from_utf8(&whole).ok()?);
        Some(match scrub.body(&text) {
            Some(pieces) => pieces.into_iter().map(Text::Plain).collect(),
            None => self.without_secrets(frames, &whole),
        })
    }

    fn without_secrets(&self, frames: &[Bytes], whole: &[u8]) -> Vec<Text> {
        let text = String::from_utf8_lossy(whole);
        let hidden = self.secrets.hide(&text);
        if hidden == text {
            return frames.iter().map(|frame| Text::new(frame)).collect();
        }
        let one_by_one = frames
            .iter()
            .map(|frame| self.secrets.hide(&String::from_utf8_lossy(frame)));
        let one_by_one: Vec<_> = one_by_one.collect();
        // A secret that stands across two pieces is found only in the whole.
        if one_by_one.concat() == hidden {
            one_by_one.into_iter().map(Text::Plain).collect()
        } else {
            vec![Text::Plain(hidden)]
        }
    }
}

/// Adds the values of fields that are named as secrets: a hosted tool's key is sent in the body.
fn add_secrets(value: &Value, secrets: &mut Secrets) {
    match value {
        Value::Array(items) => items.iter().for_each(|item| add_secrets(item, secrets)),
        Value::Object(fields) => {
            for (name, value) in fields {
                match value {
                    Value::String(text) if is_secret(name) => secrets.add(text),
                    other => add_secrets(other, secrets),
                }
            }
        }
        _ => {}
    }
}

fn is_secret(field: &str) -> bool {
    const SECRET: [&str; 5] = ["apikey", "authorization", "password", "secret", "token"];
    let name = field.replace(['-', '_'], "").to_ascii_lowercase();
    SECRET.iter().any(|word| name.ends_with(word))
}

fn hide(value: &mut Value, secrets: &Secrets) {
    match value {
        Value::String(text) => *text = secrets.hide(text),
        Value::Array(items) => items.iter_mut().for_each(|item| hide(item, secrets)),
        Value::Object(entries) => {
            entries.values_mut().for_each(|entry| hide(entry, secrets));
        }
        Value::Null | Value::Bool(_) | Value::Number(_) => {}
    }
}
