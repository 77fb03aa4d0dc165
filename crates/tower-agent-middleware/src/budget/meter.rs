//! Computes what the attempts at a model call have used.

use tower_agent::call::{AttemptEnd, Attempted, Attempts};
use tower_agent::message::{Metadata, Usage};
use tower_agent::model::{ModelRequest, ModelResponse, Settings};
use tower_agent::stream::Unfinished;

use super::account::Amounts;
use super::limits::Limits;
use crate::estimate::tokens;

/// Says what a call costs.
pub(super) struct Meter<'a> {
    pub(super) limits: &'a Limits,
    /// The amounts that are reserved for the call.
    pub(super) held: Amounts,
}

impl Meter<'_> {
    /// Returns what attempts have used. `prompt` counts the tokens of the request.
    pub(super) fn used(&self, attempts: &Attempts, prompt: impl Fn() -> u64) -> Amounts {
        let mut used = Amounts::default();
        // Counted once, and only for a call that was cut.
        let mut prompt_tokens = None;
        attempts.for_each(|attempt| {
            // Those of tools have none, and use no tokens of their own.
            let Some(settings) = attempt.request::<Settings>() else {
                return;
            };
            used += match (attempt.end, attempt.unfinished()) {
                (AttemptEnd::Answered, _) => self.answer(settings, attempt),
                // It had used nothing that is known.
                (AttemptEnd::Failed(_), None) => Amounts::default(),
                // An end that is newer than this crate is not known to have cost nothing.
                (_, received) => {
                    let prompt = *prompt_tokens.get_or_insert_with(&prompt);
                    self.cut(settings, prompt, received.unwrap_or_default())
                }
            };
        });
        used
    }

    fn answer(&self, settings: &Settings, attempt: &Attempted) -> Amounts {
        let Some(usage) = attempt.usage.known() else {
            return self.held.assumed();
        };
        self.priced(settings, &attempt.metadata, usage, usage)
    }

    /// Returns what a response has used that is of no attempt.
    pub(super) fn given(&self, request: &ModelRequest, response: &ModelResponse) -> Amounts {
        // A callback has asked nobody, whatever the response says that it gives.
        if response.is_given() {
            return Amounts::default();
        }
        // Of what a layer has asked, nobody knows but itself.
        let Some(usage) = response.usage().known() else {
            return self.held.assumed();
        };
        let told = Usage::default();
        self.priced(request.settings(), response.metadata(), usage, told)
    }

    fn cut(&self, settings: &Settings, prompt: u64, received: Unfinished) -> Amounts {
        let told = received.usage;
        let mut usage = told;
        if usage.input_tokens == 0 {
            usage.input_tokens = prompt;
        }
        // Providers tell the output at the end: until then, their number may be that of the first
        // piece.
        usage.output_tokens = usage.output_tokens.max(tokens(received.text_len));
        self.priced(settings, &Metadata::default(), usage, told)
    }

    /// Returns a usage of which the provider has told this much.
    fn priced(
        &self,
        settings: &Settings,
        metadata: &Metadata,
        usage: Usage,
        told: Usage,
    ) -> Amounts {
        let cost = self.limits.cost_of(settings, metadata, usage);
        Amounts {
            tokens: usage.total(),
            estimated_tokens: usage.total() - told.total(),
            cost: cost.billionths.unwrap_or(self.held.cost),
            unpriced_calls: u64::from(!cost.is_priced),
            ..Amounts::default()
        }
    }
}
