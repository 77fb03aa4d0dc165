use std::fmt;

use serde::de::value::MapAccessDeserializer;
use serde::de::{Error as _, MapAccess, Visitor};
use serde::{Deserialize, Deserializer, Serialize};
use serde_json::{Value, json};

use tower_agent::error::{Error, ErrorKind, Result};

/// A person's decision about a tool call: the payload of its
/// [`Resolution`](tower_agent::Resolution).
///
/// As JSON it is an object with `approved`, plus `editedArgs`, `reason` or `result` where they
/// apply. Anything else is rejected, including unknown fields and lists, so that neither a misspelt
/// edit nor a bare `true` counts as an approval.
///
/// ```
/// use serde_json::json;
/// use tower_agent_middleware::approval::Decision;
///
/// let decisions = [
///     (Decision::Approve, json!({ "approved": true })),
///     (Decision::Edit(json!({ "to": "bin" })), json!({ "approved": true, "editedArgs": { "to": "bin" } })),
///     (Decision::reject("too dear"), json!({ "approved": false, "reason": "too dear" })),
///     (Decision::Respond(json!("paid by hand")), json!({ "approved": false, "result": "paid by hand" })),
/// ];
/// for (decision, payload) in decisions {
///     assert_eq!(serde_json::to_value(&decision).unwrap(), payload);
///     assert_eq!(Decision::from_payload(&payload).unwrap(), decision);
/// }
///
/// let error = Decision::from_payload(&json!({ "approved": true, "edited_args": {} })).unwrap_err();
/// assert!(error.message().contains("unknown field `edited_args`"));
/// ```
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(into = "Payload")]
#[non_exhaustive]
pub enum Decision {
    /// Run the call.
    Approve,
    /// Run the call with these arguments, which replace all of the model's. Only where
    /// [edits are allowed](super::Approval::allow_edits).
    Edit(Value),
    /// Do not run the call.
    Reject {
        /// The reason, for the model to read.
        reason: Option<String>,
    },
    /// Do not run the call; this is its result, as if the tool had returned it. Only where [answers
    /// are allowed](super::Approval::allow_answers).
    Respond(Value),
}

#[derive(Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct Payload {
    approved: bool,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    edited_args: Option<Value>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    reason: Option<String>,
    // A result may be `null`.
    #[serde(
        default,
        skip_serializing_if = "Option::is_none",
        deserialize_with = "present"
    )]
    result: Option<Value>,
}

fn present<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<Value>, D::Error> {
    Value::deserialize(deserializer).map(Some)
}

impl Decision {
    /// Creates a rejection whose reason the model reads.
    #[must_use]
    pub fn reject(reason: impl Into<String>) -> Self {
        Self::Reject {
            reason: Some(reason.into()),
        }
    }

    /// Reads the payload of a [`Resolution`](tower_agent::Resolution).
    ///
    /// # Errors
    ///
    /// Fails with kind [`InvalidRequest`](ErrorKind::InvalidRequest) if the payload is not a
    /// decision.
    pub fn from_payload(payload: &Value) -> Result<Self> {
        Self::deserialize(payload).map_err(|error| {
            let message = format!("the resolution's payload is not an approval decision: {error}");
            Error::new(ErrorKind::InvalidRequest, message).with_source(error)
        })
    }

    /// Returns the JSON Schema of a decision about a tool with these `parameters`.
    pub(super) fn schema_for(
        parameters: Option<&Value>,
        allows_edits: bool,
        allows_answers: bool,
    ) -> Value {
        let mut schema = json!({
            "type": "object",
            "properties": {
                "approved": { "type": "boolean" },
                "reason": { "type": "string" },
            },
            "required": ["approved"],
            "additionalProperties": false,
        });
        if allows_edits {
            // A front end builds its form from this: without the field it offers no edit.
            schema["properties"]["editedArgs"] = parameters.cloned().unwrap_or(Value::Bool(true));
        }
        if allows_answers {
            schema["properties"]["result"] = Value::Bool(true);
        }
        schema
    }
}

/// Accepts objects only: a derived implementation would accept lists too.
impl<'de> Deserialize<'de> for Decision {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_map(Object)
    }
}

struct Object;

impl<'de> Visitor<'de> for Object {
    type Value = Decision;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an object with `approved`")
    }

    fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<Decision, A::Error> {
        let payload = Payload::deserialize(MapAccessDeserializer::new(map))?;
        payload.try_into().map_err(A::Error::custom)
    }
}

impl From<Decision> for Value {
    fn from(decision: Decision) -> Self {
        let Payload {
            approved,
            edited_args,
            reason,
            result,
        } = decision.into();
        let mut payload = json!({ "approved": approved });
        if let Some(arguments) = edited_args {
            payload["editedArgs"] = arguments;
        }
        if let Some(reason) = reason {
            payload["reason"] = reason.into();
        }
        if let Some(result) = result {
            payload["result"] = result;
        }
        payload
    }
}

impl TryFrom<Payload> for Decision {
    type Error = &'static str;

    fn try_from(payload: Payload) -> Result<Self, Self::Error> {
        match payload {
            Payload {
                approved: false,
                edited_args: None,
                reason,
                result: None,
            } => Ok(Self::Reject { reason }),
            Payload {
                approved: false,
                edited_args: None,
                reason: None,
                result: Some(result),
            } => Ok(Self::Respond(result)),
            Payload {
                approved: false,
                edited_args: None,
                ..
            } => Err("`result` stands in for a call, and has no `reason` beside it"),
            Payload {
                approved: false, ..
            } => Err("`editedArgs` goes with an approval"),
            Payload {
                result: Some(_), ..
            } => Err("`result` stands in for a call that is not approved"),
            Payload {
                edited_args: Some(arguments),
                ..
            } => Ok(Self::Edit(arguments)),
            Payload { .. } => Ok(Self::Approve),
        }
    }
}

impl From<Decision> for Payload {
    fn from(decision: Decision) -> Self {
        match decision {
            Decision::Approve => Self {
                approved: true,
                ..Self::default()
            },
            Decision::Edit(arguments) => Self {
                approved: true,
                edited_args: Some(arguments),
                ..Self::default()
            },
            Decision::Reject { reason } => Self {
                reason,
                ..Self::default()
            },
            Decision::Respond(result) => Self {
                result: Some(result),
                ..Self::default()
            },
        }
    }
}
