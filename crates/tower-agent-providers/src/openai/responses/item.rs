use serde_json::{Map, Value};

/// An item of the output, as far as it has arrived.
#[derive(Debug)]
pub(super) struct Item {
    pub(super) kind: ItemKind,
    /// The place at which the server counts it, and its id there, if it says so.
    pub(super) index: Option<u64>,
    pub(super) id: String,
    /// The fields of the item, once it is complete.
    pub(super) fields: Map<String, Value>,
    pub(super) is_done: bool,
    /// The pieces of its text that have been passed on: their positions in its lists.
    pub(super) shown: Vec<TextPosition>,
}

/// The kind of an item.
#[derive(Debug)]
pub(super) enum ItemKind {
    Message,
    Reasoning,
    /// A call, with its number among the calls once it has been passed on.
    Call {
        number: Option<usize>,
        /// The arguments so far, and how many bytes of them have been passed on.
        arguments: String,
        sent: usize,
    },
    Other,
}

/// The position of a text in an item.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum TextPosition {
    Content(u64),
    Summary(u64),
}

impl ItemKind {
    pub(super) fn of(item: &Map<String, Value>) -> Self {
        match item.get("type").and_then(Value::as_str) {
            Some("message") => Self::Message,
            Some("reasoning") => Self::Reasoning,
            Some("function_call") => Self::CALL,
            _ => Self::Other,
        }
    }

    /// A call that has not been passed on.
    pub(super) const CALL: Self = Self::Call {
        number: None,
        arguments: String::new(),
        sent: 0,
    };

    pub(super) fn is(&self, other: &Self) -> bool {
        std::mem::discriminant(self) == std::mem::discriminant(other)
    }
}

impl Item {
    /// Returns whether more of an item of this kind can come under this one.
    pub(super) fn can_be(&self, kind: &ItemKind) -> bool {
        !self.is_done && self.kind.is(kind)
    }

    /// Returns whether the item is the one with these fields, which can add to it.
    pub(super) fn is_same(&self, kind: &ItemKind, fields: &Map<String, Value>, id: &str) -> bool {
        let call_id = fields.get("call_id").and_then(Value::as_str);
        let is_same_call = call_id.is_some_and(|id| !id.is_empty() && id == self.text("call_id"));
        let is_named = is_same_call || !id.is_empty() && id == self.id;
        // An item of another kind has been passed on as it is.
        is_named && self.kind.is(kind) && !matches!(kind, ItemKind::Other)
    }

    pub(super) fn new(kind: ItemKind, index: Option<u64>, id: String) -> Self {
        Self {
            kind,
            index,
            id,
            fields: Map::new(),
            is_done: false,
            shown: Vec::new(),
        }
    }

    /// Marks a position as one whose text has been passed on. Returns whether it is a new one.
    pub(super) fn show(&mut self, position: TextPosition) -> bool {
        // Texts arrive one after the other, so that it is the last one if any.
        let is_new = self.shown.last() != Some(&position) && !self.shown.contains(&position);
        if is_new {
            self.shown.push(position);
        }
        is_new
    }

    /// Returns the texts of the item in order, with their positions. The content of reasoning
    /// counts only if there is no summary.
    pub(super) fn texts(&self) -> Vec<(TextPosition, String)> {
        let summary = self.texts_of("summary", TextPosition::Summary);
        if summary.is_empty() {
            self.texts_of("content", TextPosition::Content)
        } else {
            summary
        }
    }

    /// Returns the texts of one list of the item.
    fn texts_of(
        &self,
        name: &str,
        position: fn(u64) -> TextPosition,
    ) -> Vec<(TextPosition, String)> {
        let mut texts = Vec::new();
        let parts = self.fields.get(name).and_then(Value::as_array);
        for (part, at) in parts.into_iter().flatten().zip(0..) {
            // A refusal is the answer's text under another name.
            let text = ["text", "refusal"]
                .iter()
                .find_map(|key| part.get(*key)?.as_str());
            if let Some(text) = text.filter(|text| !text.is_empty()) {
                texts.push((position(at), text.to_owned()));
            }
        }
        texts
    }

    /// Sets the fields of the item as it ended. What only its start said is kept: some servers end
    /// an item without repeating it. An end that comes again adds what the first one left out.
    pub(super) fn end(&mut self, mut fields: Map<String, Value>) {
        let mut earlier = std::mem::take(&mut self.fields);
        if self.is_done {
            std::mem::swap(&mut fields, &mut earlier);
        } else {
            // It is not in progress any more.
            earlier.remove("status");
        }
        for (name, value) in earlier {
            let known = fields.entry(name).or_insert(Value::Null);
            let is_said = match known {
                Value::Null => false,
                Value::String(text) => !text.is_empty(),
                Value::Array(list) => !list.is_empty(),
                _ => true,
            };
            if !is_said {
                *known = value;
            }
        }
        self.fields = fields;
        self.is_done = true;
    }

    pub(super) fn text(&self, name: &str) -> &str {
        self.fields
            .get(name)
            .and_then(Value::as_str)
            .unwrap_or_default()
    }

    /// Returns the fields without these and without those that are null, which some servers reject.
    pub(super) fn fields_without(&self, names: &[&str]) -> Map<String, Value> {
        let mut fields = Map::new();
        for (name, value) in &self.fields {
            let is_sent = match name.as_str() {
                // An item that did not end is not in progress any more.
                "status" => self.is_done,
                name => !names.contains(&name),
            };
            if is_sent && !value.is_null() {
                fields.insert(name.clone(), value.clone());
            }
        }
        fields
    }

    fn content_part(&self, at: u64) -> Option<&Map<String, Value>> {
        let parts = self.fields.get("content")?.as_array()?;
        parts.get(usize::try_from(at).ok()?)?.as_object()
    }

    /// Returns the log probabilities of a content part, if there are any.
    pub(super) fn logprobs(&self, at: u64) -> Option<&Value> {
        let logprobs = self.content_part(at)?.get("logprobs")?;
        logprobs.as_array().filter(|list| !list.is_empty())?;
        Some(logprobs)
    }

    /// Returns the fields of a content part other than its text that are sent back.
    pub(super) fn content_fields(&self, at: u64) -> Map<String, Value> {
        let part = self.content_part(at);
        let is_refusal =
            part.is_some_and(|part| part.get("type").is_some_and(|kind| kind == "refusal"));
        let mut fields = Map::new();
        for (name, value) in part.into_iter().flatten() {
            let is_sent = match (name.as_str(), value) {
                // Any other text goes back as `output_text`, so only a refusal needs its type.
                ("type", _) => is_refusal,
                // Log probabilities are long and tell the model nothing.
                ("text" | "refusal" | "logprobs", _) | (_, Value::Null) => false,
                (_, Value::Array(list)) => !list.is_empty(),
                _ => true,
            };
            if is_sent {
                fields.insert(name.clone(), value.clone());
            }
        }
        fields
    }
}
