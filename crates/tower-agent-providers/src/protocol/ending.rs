//! The ends of answers: one table for the words of all protocols.

use super::fault::Fault;
use tower_agent::error::ErrorKind;
use tower_agent::model::FinishReason;

/// The promise of the word at the end of an answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Promise {
    /// The answer is whole. Many servers say so beside calls as well.
    Whole,
    /// The model calls a tool.
    Call,
    /// The answer ends at a limit of its length or of the context.
    TooLong,
    /// A filter of the provider stopped the answer.
    Filtered,
    /// The server interrupted a turn of its own tools.
    Paused,
    /// The answer broke off, or the model wrote it wrongly: what there is of it is no answer.
    Broken(ErrorKind),
    /// A word that is not known promises nothing.
    Unknown,
}

/// Returns what a word promises, in the case of any protocol.
#[rustfmt::skip]
pub(crate) fn promise(word: &str) -> Promise {
    match &*word.to_ascii_lowercase() {
        "" | "stop" | "stop_sequence" | "end_turn" | "completed" => Promise::Whole,

        "tool_calls" | "tool_call" | "tool_use" | "function_call" | "requires_action" => Promise::Call,

        "length" | "model_length" | "max_tokens" | "max_output_tokens" | "incomplete"
        | "model_context_window_exceeded" | "budget_exceeded" | "requires_continuation" => {
            Promise::TooLong
        }

        "content_filter" | "content_filtered" | "guardrail_intervened" | "sensitive"
        // Of Anthropic: a classifier, and not the model, has refused.
        | "refusal"
        // Of Gemini.
        | "safety" | "recitation" | "blocklist" | "prohibited_content" | "content_blocked" | "spii"
        | "model_armor" | "image_safety" | "image_recitation" | "image_prohibited_content" => {
            Promise::Filtered
        }

        "pause_turn" => Promise::Paused,

        "error" | "server_error" | "internal_error" | "failed" | "abort" | "aborted" | "cancelled"
        | "canceled"
        // What the model wrote is no call.
        | "malformed_function_call" | "malformed_tool_call" | "malformed_tool_use"
        | "malformed_response" | "malformed_model_output" | "too_many_tool_calls"
        | "unexpected_tool_call" => Promise::Broken(ErrorKind::Provider),
        "insufficient_system_resource" | "overloaded" => Promise::Broken(ErrorKind::Overloaded),
        "network_error" | "connection_error" => Promise::Broken(ErrorKind::Connection),
        "timeout" | "time_limit" => Promise::Broken(ErrorKind::Timeout),
        // The request is to blame.
        "missing_thought_signature" | "failed_precondition" | "out_of_range"
        | "parameter_unknown" => Promise::Broken(ErrorKind::InvalidRequest),

        _ => Promise::Unknown,
    }
}

/// Compares what the word at the end of an answer promises with what has come.
///
/// # Errors
///
/// Fails for an answer that broke off, and for a promised call of which nothing can be read: the
/// text beside it is no answer. Both can be tried again, unless the word says otherwise.
pub(crate) fn check(word: Option<&str>, has_call: bool) -> Result<(), Fault> {
    let Some(word) = word else { return Ok(()) };
    match promise(word) {
        Promise::Call if !has_call => {
            let message = format!(
                "the server says that the model calls a tool (`{word}`), and sent no call that can be read"
            );
            Err(Fault::new(message).with_kind(ErrorKind::Provider))
        }
        Promise::Broken(kind) => {
            let message = format!("the answer broke off: its finish reason is `{word}`");
            Err(Fault::new(message).with_code(word).with_kind(kind))
        }
        _ => Ok(()),
    }
}

#[cfg(any(feature = "gemini", feature = "openai"))]
/// Returns whether a call may lack what it needs, as the answer was stopped: it is not made.
pub(crate) fn is_cut(word: Option<&str>) -> bool {
    let promise = word.map(promise);
    matches!(promise, Some(Promise::TooLong | Promise::Filtered))
}

/// Returns the finish reason, unless it follows from whether the message has calls.
pub(crate) fn reason(word: Option<&str>) -> Option<FinishReason> {
    let word = word?;
    Some(match promise(word) {
        Promise::Whole | Promise::Call => return None,
        Promise::TooLong => FinishReason::Length,
        Promise::Filtered => FinishReason::ContentFilter,
        Promise::Paused => FinishReason::PauseTurn,
        Promise::Broken(_) | Promise::Unknown => FinishReason::Other(word.to_owned().into()),
    })
}
