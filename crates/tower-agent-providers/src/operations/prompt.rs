//! Prompts of calls that are counted, and the counts in responses.

use serde_json::{Map, Value};

use super::count_tokens::TokenCount;
use crate::json::{self, lenient};
use crate::protocol::{Call, Fault, Protocol, required};
use tower_agent::error::Result;
use tower_agent::message::Metadata;

/// Returns the body of a call.
pub(crate) fn body_of(protocol: &impl Protocol, call: &Call<'_>) -> Result<Map<String, Value>> {
    let mut body = Vec::new();
    protocol.encode(call, &mut body)?;
    Ok(serde_json::from_slice(&body)?)
}

/// Returns the prompt of a call: the fields of its body that a count accepts.
pub(crate) fn prompt_of(
    protocol: &impl Protocol,
    call: &Call<'_>,
    accepted: &[&str],
) -> Result<Map<String, Value>> {
    let mut prompt = body_of(protocol, call)?;
    prompt.retain(|name, _| accepted.contains(&&**name));
    Ok(prompt)
}

/// Reads the count in this field of a response.
pub(crate) fn count_of(
    field: &str,
    protocol: &impl Protocol,
    body: &[u8],
    metadata: Metadata,
) -> Result<TokenCount, Fault> {
    let mut answer: Map<String, Value> = json::read(body, "the response")?;
    let count = answer.remove(field).unwrap_or_default();
    let count: Option<u64> =
        lenient::count(count).map_err(|error| Fault::protocol(error.to_string()))?;
    let tokens = required(count, "count", protocol, body)?;
    Ok(TokenCount::new(tokens, metadata))
}
