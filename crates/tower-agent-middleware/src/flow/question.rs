//! Questions about calls that break a rule, and their answers.

use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use tower_agent::call::Request;
use tower_agent::error::{Answerer, Error, ErrorKind, Interrupt, Result};
use tower_agent::tool::ToolRequest;

use super::book::KEY;
use super::rules::Violation;
use crate::asked;
use crate::reveal::Reveals;

/// A person's answer about a call that breaks a rule: the payload of its
/// [`Resolution`](tower_agent::Resolution).
///
/// As JSON it is an object with `approved`, and perhaps `endorse` or `reason`. Anything else is
/// asked again.
///
/// ```
/// use serde_json::json;
/// use tower_agent_middleware::flow::FlowAnswer;
///
/// let answers = [
///     (FlowAnswer::Approve, json!({ "approved": true })),
///     (FlowAnswer::endorse(["/to"]), json!({ "approved": true, "endorse": ["/to"] })),
///     (FlowAnswer::Reject { reason: None }, json!({ "approved": false })),
/// ];
/// for (answer, payload) in answers {
///     assert_eq!(serde_json::Value::from(answer.clone()), payload);
///     assert_eq!(FlowAnswer::from_payload(&payload).unwrap(), answer);
/// }
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum FlowAnswer {
    /// Make this call, and no other.
    Approve,
    /// Make this call, and trust the values in these arguments from now on, in all calls of the
    /// conversation. The arguments are named as in the question.
    Endorse(Vec<String>),
    /// Do not make the call.
    Reject {
        /// The reason, for the model to read.
        reason: Option<String>,
    },
}

#[derive(Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct AnswerPayload {
    approved: bool,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    endorse: Vec<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    reason: Option<String>,
}

impl FlowAnswer {
    /// Creates an approval that also endorses the values in these arguments.
    #[must_use]
    pub fn endorse(arguments: impl IntoIterator<Item = impl Into<String>>) -> Self {
        Self::Endorse(arguments.into_iter().map(Into::into).collect())
    }

    /// Reads the payload of a [`Resolution`](tower_agent::Resolution).
    ///
    /// # Errors
    ///
    /// Fails with kind [`InvalidRequest`](ErrorKind::InvalidRequest) if the payload is no answer.
    pub fn from_payload(payload: &Value) -> Result<Self> {
        let invalid = |problem: &str| {
            let message = format!("the resolution's payload is no answer about a flow: {problem}");
            Error::new(ErrorKind::InvalidRequest, message)
        };
        // A list could be read as the fields in their order.
        if !payload.is_object() {
            return Err(invalid("it is not an object with `approved`"));
        }
        let payload =
            AnswerPayload::deserialize(payload).map_err(|error| invalid(&error.to_string()))?;
        match payload {
            AnswerPayload {
                approved: false,
                reason,
                endorse,
            } if endorse.is_empty() => Ok(Self::Reject { reason }),
            AnswerPayload {
                approved: false, ..
            } => Err(invalid("`endorse` goes with an approval")),
            AnswerPayload {
                reason: Some(_), ..
            } => Err(invalid("`reason` goes with a rejection")),
            AnswerPayload { endorse, .. } if endorse.is_empty() => Ok(Self::Approve),
            AnswerPayload { endorse, .. } => Ok(Self::Endorse(endorse)),
        }
    }

    fn schema(arguments: &[&str]) -> Value {
        json!({
            "type": "object",
            "properties": {
                "approved": { "type": "boolean" },
                "endorse": {
                    "type": "array",
                    "items": { "type": "string", "enum": arguments },
                },
                "reason": { "type": "string" },
            },
            "required": ["approved"],
            "additionalProperties": false,
        })
    }
}

impl From<FlowAnswer> for Value {
    fn from(answer: FlowAnswer) -> Self {
        let payload = match answer {
            FlowAnswer::Approve => AnswerPayload {
                approved: true,
                ..AnswerPayload::default()
            },
            FlowAnswer::Endorse(endorse) => AnswerPayload {
                approved: true,
                endorse,
                ..AnswerPayload::default()
            },
            FlowAnswer::Reject { reason } => AnswerPayload {
                reason,
                ..AnswerPayload::default()
            },
        };
        json!(payload)
    }
}

/// The call as the person sees it, and the answer.
#[derive(Clone, Serialize, Deserialize)]
struct FlowQuestion {
    /// The id of its interrupt, once it is asked.
    #[serde(default)]
    id: String,
    tool: String,
    arguments: Value,
    violations: Vec<Violation>,
    approver: Answerer,
    /// The payload of the answer.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    answer: Option<Value>,
}

impl FlowQuestion {
    fn of(request: &ToolRequest, violations: &[Violation], approver: &Answerer) -> Self {
        Self {
            id: String::new(),
            tool: request.name().to_owned(),
            arguments: request.arguments().clone(),
            violations: violations.to_vec(),
            approver: approver.clone(),
            answer: None,
        }
    }

    /// Returns whether both are about the same call, with the same values from the same tools.
    fn is_about_same(&self, other: &Self) -> bool {
        self.tool == other.tool
            && self.arguments == other.arguments
            && self.violations == other.violations
            && self.approver == other.approver
    }
}

/// The reason of the guard's interrupts.
pub(super) const REASON: &str = "flow";

fn key(request: &ToolRequest) -> String {
    request.context().call_key(&format!("{KEY} question"))
}

fn name(request: &ToolRequest) -> String {
    // Not the call's own path: that is the name of an approval's question.
    format!("{} {REASON}", request.context().call_path())
}

/// Returns the answer about this call, or the error that asks for it. The request has its resolved
/// arguments.
pub(super) fn answer(
    request: &ToolRequest,
    violations: &[Violation],
    approver: &Answerer,
) -> Result<FlowAnswer> {
    let context = request.context();
    let state = context.private_state();
    let key = key(request);
    let stored: Option<FlowQuestion> =
        state.read(&key, |stored| FlowQuestion::deserialize(stored?).ok());
    let mut question = FlowQuestion::of(request, violations, approver);
    let stored = stored.filter(|stored| stored.is_about_same(&question));
    let mut why = None;
    if let Some(stored) = stored {
        // Another attempt at this call, or a run that goes on with it.
        if let Some(payload) = &stored.answer {
            return FlowAnswer::from_payload(payload);
        }
        match given(request, &stored.id) {
            None => {}
            Some(Ok(answer)) => {
                let payload = Value::from(answer.clone());
                let answered = FlowQuestion {
                    answer: Some(payload),
                    ..stored
                };
                state.set(key, json!(answered));
                return Ok(answer);
            }
            Some(Err(error)) => why = Some(error.message().to_owned()),
        }
    }
    let arguments: Vec<_> = violations
        .iter()
        .filter_map(|violation| violation.argument.as_deref())
        .collect();
    let payload = json!({
        "tool": question.tool,
        // Shows hidden data to an approver who may read it.
        "arguments": Reveals::arguments(request, approver),
        "violations": violations,
    });
    let message = why.unwrap_or_else(|| {
        format!(
            "`{}` needs your approval: it breaks a rule about the flow of data",
            question.tool
        )
    });
    let interrupt = Interrupt::new(name(request), REASON)
        .with_message(message)
        .with_response_schema(FlowAnswer::schema(&arguments))
        .with_payload(payload)
        .for_answerer(approver.clone());
    question.id.clone_from(&interrupt.id);
    state.set(key, json!(question));
    Err(Error::interrupt(interrupt))
}

/// Returns the answer that the run was resumed with, if there is one to the question with this id.
fn given(request: &ToolRequest, id: &str) -> Option<Result<FlowAnswer>> {
    let resolution = request.context().resolution(id)?;
    let rejection = FlowAnswer::Reject { reason: None };
    let answer = asked::answer(&resolution, FlowAnswer::from_payload, rejection);
    if answer.is_ok() {
        request.context().note_answer(&resolution);
    }
    Some(answer)
}
