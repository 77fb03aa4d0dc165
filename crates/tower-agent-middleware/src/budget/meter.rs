//! Computes what attempts at a model call have used.

use std::iter::repeat_n;

use tower_agent::call::Origin;
use tower_agent::error::{Error, ErrorKind};
use tower_agent::message::Metadata;
use tower_agent::model::{ModelRequest, ModelResponse};
use tower_agent::stream::Unfinished;

use super::account::Amounts;
use super::limits::Limits;
use crate::estimate::{prompt_tokens, tokens};

/// Returns what an attempt with a response has used of what the call holds.
pub(super) fn used(
    limits: &Limits,
    request: &ModelRequest,
    response: &ModelResponse,
    held: Amounts,
) -> Amounts {
    let usage = response.usage();
    let is_given = matches!(
        response.origin(),
        Origin::Before | Origin::Fallback | Origin::Replay
    );
    if usage.total() == 0 && !is_given {
        return held.without_calls();
    }
    let cost = limits.cost_of(request, response.metadata(), usage);
    Amounts {
        tokens: usage.total(),
        cost: cost.billionths.unwrap_or(held.cost),
        // A response of a callback names no model and costs nothing.
        unpriced_calls: u64::from(!cost.is_priced && !is_given),
        ..Amounts::default()
    }
}

/// Returns what attempts have used that did not end. `attempts` is the number of those that reached
/// the model, and `unfinished` what was received of those that were streamed.
pub(super) fn cut(
    limits: &Limits,
    request: &ModelRequest,
    attempts: u32,
    unfinished: &[Unfinished],
    held: Amounts,
) -> Amounts {
    // Of an attempt that had received nothing, the stream does not know why it ended.
    let nothing = Unfinished::default();
    let begun = unfinished.iter().filter(|attempt| **attempt != nothing);
    // One whose connection broke has ended with an error, and is known to the stream alone.
    let silent = (attempts as usize).saturating_sub(begun.clone().count());
    let all: Vec<_> = begun.copied().chain(repeat_n(nothing, silent)).collect();
    // Most calls have none: the prompt is not measured for them.
    if all.is_empty() {
        return Amounts::default();
    }
    let prompt = prompt_tokens(request);
    let mut used = Amounts::default();
    for attempt in all {
        used += cut_attempt(limits, request, prompt, attempt, held);
    }
    used
}

fn cut_attempt(
    limits: &Limits,
    request: &ModelRequest,
    prompt: u64,
    received: Unfinished,
    held: Amounts,
) -> Amounts {
    let mut usage = received.usage;
    if usage.input_tokens == 0 {
        usage.input_tokens = prompt;
    }
    // Providers tell the output at the end: until then, their number may be that of the first
    // piece.
    usage.output_tokens = usage.output_tokens.max(tokens(received.text_len));
    let cost = limits.cost_of(request, &Metadata::default(), usage);
    Amounts {
        tokens: usage.total(),
        cost: cost.billionths.unwrap_or(held.cost),
        unpriced_calls: u64::from(!cost.is_priced),
        ..Amounts::default()
    }
}

/// Returns whether an attempt that failed so may have been cut while the model worked for it.
pub(crate) fn is_cut(error: &Error) -> bool {
    matches!(error.kind(), ErrorKind::Timeout | ErrorKind::Cancelled)
}
