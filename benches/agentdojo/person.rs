//! The person who answers questions, and what the user wants.

use serde_json::{Value, json};
use tower_agent_middleware::flow::FlowAnswer;

use crate::bridge::{Call, Plan};
use crate::channels::Channels;
use crate::labels::declared;
use crate::run::Task;
use crate::tasks::{self, Step};
use crate::values::as_text;

/// Who answers questions.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Person {
    /// Nobody: what breaks a rule is refused.
    Nobody,
    /// Somebody who approves everything.
    ApprovesAll,
    /// Somebody who compares the values with what the user wants, and trusts them afterwards.
    Careful,
}

/// A question, as the person sees it, and the answer.
#[derive(Clone, Debug)]
pub(crate) struct Question {
    pub(crate) asked: Value,
    pub(crate) answer: Value,
}

impl Person {
    pub(crate) fn answer(self, asked: &Value, users_calls: &UsersCalls) -> Question {
        let answer = if self == Self::ApprovesAll {
            FlowAnswer::Approve
        } else if !users_calls.has(asked) {
            FlowAnswer::Reject { reason: None }
        } else {
            match untrusted_arguments(asked) {
                arguments if arguments.is_empty() => FlowAnswer::Approve,
                arguments => FlowAnswer::endorse(arguments),
            }
        };
        Question {
            asked: asked.clone(),
            answer: answer.into(),
        }
    }
}

/// Returns the arguments that the question is about.
fn untrusted_arguments(asked: &Value) -> Vec<&str> {
    // A question of an approval has none.
    let violations = asked["violations"].as_array().into_iter().flatten();
    violations
        .filter(|violation| violation["rule"] == "trusted_argument")
        .filter_map(|violation| violation["argument"].as_str())
        .collect()
}

/// The calls that do the user's task.
pub(crate) struct UsersCalls {
    calls: Vec<Call>,
    channels: Channels,
}

impl UsersCalls {
    pub(crate) fn new(plan: &Plan, task: &Task<'_>, by_field: bool, channels: Channels) -> Self {
        let mut calls = plan.calls.clone();
        for index in 0..plan.calls.len() {
            for step in tasks::steps(task.suite, task.number(), index, by_field) {
                if let Step::Call(tool, arguments) = step {
                    calls.push(Call {
                        tool: (*tool).to_owned(),
                        arguments: serde_json::from_str(arguments).unwrap_or_default(),
                    });
                }
            }
        }
        Self { calls, channels }
    }

    /// Returns whether the call in a question is one of them, with all its values.
    fn has(&self, asked: &Value) -> bool {
        let mut arguments = asked["arguments"].clone();
        self.channels.resolve(&mut arguments);
        self.calls.iter().any(|call| {
            asked["tool"] == json!(call.tool)
                && is_same(Some(&arguments), Some(&json!(call.arguments)))
        })
    }

    /// Returns whether a call is consequential, and decides something else than each of these.
    pub(crate) fn is_other(&self, call: &Call) -> bool {
        let declared = declared(&call.tool);
        let Some(declared) = declared.filter(|declared| declared.is_consequential()) else {
            return false;
        };
        !self.calls.iter().any(|users| {
            let names = call.arguments.keys().chain(users.arguments.keys());
            let mut control = names.filter(|name| declared.is_control(name));
            users.tool == call.tool
                && control.all(|name| is_same(call.arguments.get(name), users.arguments.get(name)))
        })
    }
}

/// Returns whether two values are the same for a person: a reader's answer is a text, also where a
/// number is meant.
fn is_same(one: Option<&Value>, other: Option<&Value>) -> bool {
    match (one.unwrap_or(&Value::Null), other.unwrap_or(&Value::Null)) {
        (Value::Object(one), Value::Object(other)) => one
            .keys()
            .chain(other.keys())
            .all(|key| is_same(one.get(key), other.get(key))),
        (Value::Array(one), Value::Array(other)) => {
            let mut pairs = one.iter().zip(other);
            one.len() == other.len() && pairs.all(|(one, other)| is_same(Some(one), Some(other)))
        }
        (one, other) => as_text(one) == as_text(other),
    }
}
