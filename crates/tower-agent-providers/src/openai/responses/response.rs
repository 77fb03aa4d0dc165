use std::borrow::Cow;

use serde::Deserialize;
use serde::de::{IgnoredAny, MapAccess};
use serde_json::{Map, Value};

use crate::json::lenient::{
    count, exact_json_text, object, object_or_default, optional_list, or_default,
};
use crate::json::{Number, ReadFields, Word};
use tower_agent::message;

/// A response, or the snapshot of one in an event.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct Response {
    #[serde(deserialize_with = "or_default")]
    pub(super) id: Option<String>,
    #[serde(deserialize_with = "or_default")]
    pub(super) model: Option<String>,
    #[serde(deserialize_with = "or_default")]
    pub(super) status: Option<String>,
    #[serde(deserialize_with = "optional_list")]
    pub(super) output: Option<Vec<Map<String, Value>>>,
    pub(super) error: Option<Value>,
    #[serde(deserialize_with = "or_default")]
    pub(super) incomplete_details: IncompleteDetails,
    #[serde(deserialize_with = "object")]
    pub(super) usage: Option<ResponseUsage>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct IncompleteDetails {
    #[serde(deserialize_with = "or_default")]
    pub(super) reason: Option<String>,
}

#[derive(Clone, Copy, Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct ResponseUsage {
    #[serde(deserialize_with = "count")]
    input_tokens: u64,
    /// The names of chat completions, which some servers have instead.
    #[serde(deserialize_with = "count")]
    prompt_tokens: u64,
    #[serde(deserialize_with = "count")]
    completion_tokens: u64,
    #[serde(deserialize_with = "count")]
    output_tokens: u64,
    #[serde(deserialize_with = "object_or_default")]
    input_tokens_details: InputDetails,
    #[serde(deserialize_with = "object_or_default")]
    output_tokens_details: OutputDetails,
}

#[derive(Clone, Copy, Debug, Default, Deserialize)]
#[serde(default)]
struct InputDetails {
    #[serde(deserialize_with = "count")]
    cached_tokens: u64,
    #[serde(deserialize_with = "count")]
    cache_write_tokens: u64,
}

#[derive(Clone, Copy, Debug, Default, Deserialize)]
#[serde(default)]
struct OutputDetails {
    // A part of the output, which is counted there: a server that does not know it may write -1.
    #[serde(deserialize_with = "or_default")]
    reasoning_tokens: u64,
}

impl From<ResponseUsage> for message::Usage {
    fn from(usage: ResponseUsage) -> Self {
        let mut ours = Self::new(
            usage.input_tokens.max(usage.prompt_tokens),
            usage.output_tokens.max(usage.completion_tokens),
        );
        ours.cached_input_tokens = usage.input_tokens_details.cached_tokens;
        ours.cache_write_tokens = usage.input_tokens_details.cache_write_tokens;
        ours.reasoning_tokens = usage.output_tokens_details.reasoning_tokens;
        ours
    }
}

impl Response {
    /// Returns the token usage, if it is included.
    pub(super) fn usage(&self) -> Option<message::Usage> {
        self.usage.map(message::Usage::from)
    }
}

/// An object; anything else is one without fields.
#[derive(Debug, Deserialize)]
#[serde(transparent)]
struct ObjectField {
    #[serde(deserialize_with = "or_default")]
    fields: Map<String, Value>,
}

#[derive(Debug, Deserialize)]
#[serde(transparent)]
struct BesideUsage {
    #[serde(deserialize_with = "object")]
    usage: Option<ResponseUsage>,
}

#[derive(Debug, Deserialize)]
#[serde(transparent)]
struct ArgumentsField<'a> {
    #[serde(borrow, deserialize_with = "exact_json_text")]
    json: Cow<'a, str>,
}

/// An event of a streamed response: its type and the fields of all types that are read. It is read
/// in place, as a response may be thousands of events.
#[derive(Debug, Default)]
pub(super) struct ResponseEvent<'a> {
    pub(super) kind: Cow<'a, str>,
    pub(super) response: Response,
    pub(super) output_index: Option<u64>,
    pub(super) item_id: Cow<'a, str>,
    pub(super) content_index: u64,
    pub(super) summary_index: u64,
    pub(super) delta: Cow<'a, str>,
    pub(super) item: Map<String, Value>,
    /// The whole text, refusal or arguments at the end of one, and the whole content part.
    pub(super) whole: Cow<'a, str>,
    pub(super) part: Map<String, Value>,
    /// The name of the tool, beside its whole arguments.
    pub(super) name: Cow<'a, str>,
}

impl<'de> ReadFields<'de> for ResponseEvent<'de> {
    fn field<A: MapAccess<'de>>(&mut self, name: &str, map: &mut A) -> Result<(), A::Error> {
        match name {
            "type" => self.kind = map.next_value::<Word<'_>>()?.word.unwrap_or_default(),
            "response" => {
                let response: Option<Response> = map.next_value()?;
                let response = response.unwrap_or_default();
                let usage = response.usage.or(self.response.usage);
                self.response = Response { usage, ..response };
            }
            "output_index" => self.output_index = map.next_value::<Number>()?.number,
            "item_id" => self.item_id = map.next_value::<Word<'_>>()?.word.unwrap_or_default(),
            "content_index" => {
                self.content_index = map.next_value::<Number>()?.number.unwrap_or_default();
            }
            "summary_index" => {
                self.summary_index = map.next_value::<Number>()?.number.unwrap_or_default();
            }
            "delta" => self.delta = map.next_value::<Word<'_>>()?.word.unwrap_or_default(),
            "item" => self.item = map.next_value::<ObjectField>()?.fields,
            // Some servers put it beside the response.
            "usage" => {
                let usage = map.next_value::<BesideUsage>()?.usage;
                self.response.usage = self.response.usage.or(usage);
            }
            "part" => self.part = map.next_value::<ObjectField>()?.fields,
            "text" | "refusal" => {
                self.whole = map.next_value::<Word<'_>>()?.word.unwrap_or_default();
            }
            "arguments" => self.whole = map.next_value::<ArgumentsField<'_>>()?.json,
            "name" => self.name = map.next_value::<Word<'_>>()?.word.unwrap_or_default(),
            _ => drop(map.next_value::<IgnoredAny>()?),
        }
        Ok(())
    }
}
