use serde_json::{Map, Value, json};

use tower_agent::message::{MediaSource, Part, ProviderData};

use super::super::media;
use super::provider::PROVIDER;

/// A step of the output, as far as it has arrived.
#[derive(Debug)]
pub(super) struct Step {
    pub(super) kind: StepKind,
    /// The place at which the server counts it, if it says so.
    index: Option<u64>,
    /// The fields that are not passed on otherwise.
    pub(super) fields: Map<String, Value>,
    /// The annotations of the text.
    pub(super) annotations: Vec<Value>,
    summary: Vec<Value>,
    pub(super) is_done: bool,
}

/// The kind of a step.
#[derive(Debug)]
pub(super) enum StepKind {
    /// Text and media of the model.
    Output,
    Thought,
    /// A call, with its number among the calls once it has been passed on, and the arguments that
    /// it began with.
    Call {
        number: Option<usize>,
        arguments: String,
    },
    /// A step of the request, which some servers repeat.
    Input,
    Other,
}

impl StepKind {
    pub(super) fn of(kind: &str, arguments: String) -> Self {
        match kind {
            "model_output" => Self::Output,
            "thought" => Self::Thought,
            "function_call" => Self::Call {
                number: None,
                arguments,
            },
            "user_input" | "function_result" => Self::Input,
            _ => Self::Other,
        }
    }

    pub(super) fn is(&self, other: &Self) -> bool {
        std::mem::discriminant(self) == std::mem::discriminant(other)
    }
}

impl Step {
    pub(super) fn new(kind: StepKind, index: Option<u64>, fields: Map<String, Value>) -> Self {
        Self {
            kind,
            index,
            fields,
            annotations: Vec::new(),
            summary: Vec::new(),
            is_done: false,
        }
    }

    /// Returns whether an event with this index, or without one, can be about the step.
    pub(super) fn is_open_at(&self, index: Option<u64>) -> bool {
        !self.is_done && (index.is_none() || self.index.is_none() || self.index == index)
    }

    pub(super) fn take_list(&mut self, name: &str) -> Vec<Value> {
        match self.fields.remove(name) {
            Some(Value::Array(items)) => items,
            _ => Vec::new(),
        }
    }

    pub(super) fn sign(&mut self, signature: String) {
        if !signature.is_empty() {
            self.fields.insert("signature".into(), signature.into());
        }
    }

    /// Adds an item to the summary. Text that continues the previous one is joined with it.
    pub(super) fn summarise(&mut self, item: Value, continues: bool) {
        match (self.summary.last_mut().and_then(text_mut), text(&item)) {
            (Some(before), Some(text)) if continues => before.push_str(text),
            _ => self.summary.push(item),
        }
    }

    /// Returns the fields that must be sent back.
    pub(super) fn take_data(&mut self) -> ProviderData {
        let mut fields = std::mem::take(&mut self.fields);
        fields.remove("type");
        let summary = std::mem::take(&mut self.summary);
        // One text is that of the reasoning itself.
        if !summary.iter().all(|item| text(item).is_some()) || summary.len() > 1 {
            fields.insert("summary".into(), summary.into());
        }
        data(fields)
    }
}

/// Returns the text of a content that is nothing else.
fn text(content: &Value) -> Option<&String> {
    let fields = content.as_object().filter(|fields| fields.len() == 2)?;
    match (fields.get("type")?.as_str()?, fields.get("text")?) {
        ("text", Value::String(text)) => Some(text),
        _ => None,
    }
}

fn text_mut(content: &mut Value) -> Option<&mut String> {
    text(content)?;
    match content.get_mut("text") {
        Some(Value::String(text)) => Some(text),
        _ => None,
    }
}

/// Returns fields as provider data, without those that are null or empty.
pub(super) fn data(mut fields: Map<String, Value>) -> ProviderData {
    fields.retain(|_, value| match value {
        Value::Null => false,
        Value::String(text) => !text.is_empty(),
        Value::Array(items) => !items.is_empty(),
        _ => true,
    });
    let mut data = ProviderData::default();
    if !fields.is_empty() {
        data.set(PROVIDER, Value::Object(fields));
    }
    data
}

/// Returns an image, audio or a document that the model made, or else the content as a step.
pub(super) fn media(mut fields: Map<String, Value>) -> Part {
    let [kind, media_type, base64, uri] = ["type", "mime_type", "data", "uri"].map(|name| {
        fields
            .get(name)
            .and_then(Value::as_str)
            .unwrap_or_default()
            .to_owned()
    });
    // A content that has neither bytes with their type nor an address goes back as it came.
    let source = match (base64.is_empty(), uri.is_empty(), media_type.is_empty()) {
        (false, _, false) => MediaSource::base64(media_type, base64),
        (true, false, true) => MediaSource::url(uri),
        (true, false, false) => MediaSource::url(uri).with_media_type(media_type),
        _ => return as_step(fields),
    };
    if !matches!(&*kind, "image" | "audio" | "document") {
        return as_step(fields);
    }
    // The rest is data of the part, since a later request must contain it again.
    fields.retain(|name, _| !["type", "mime_type", "data", "uri"].contains(&&**name));
    media::media(&kind, source, data(fields))
}

/// A part of the provider's own is sent back as a step.
fn as_step(content: Map<String, Value>) -> Part {
    let mut data = ProviderData::default();
    data.set(
        PROVIDER,
        json!({ "type": "model_output", "content": [content] }),
    );
    Part::Provider(data)
}
