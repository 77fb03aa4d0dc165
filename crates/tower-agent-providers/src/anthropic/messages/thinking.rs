use serde::Serialize;

use super::data::invalid;
use crate::protocol::unsupported;
use tower_agent::error::Result;
use tower_agent::model::{ReasoningEffort, Settings, ToolChoice};

/// The form in which a reasoning effort is sent, which depends on the model.
///
/// | effort | [`Adaptive`](Self::Adaptive) | [`Budget`](Self::Budget) |
/// |---|---|---|
/// | unset | nothing: the model's default | nothing |
/// | `None` | `thinking: {type: disabled}` | the same |
/// | `Minimal` | effort `low`, the least | 1024 tokens |
/// | `Low` | effort `low` | 4096 tokens |
/// | `Medium` | effort `medium` | 8192 tokens |
/// | `High` | effort `high` | 16384 tokens |
/// | `Other("xhigh")` | effort `xhigh`; so for any word | an error |
/// | `Other("12000")` | a budget of 12000 tokens | the same |
///
/// Anthropic requires more `max_tokens` than the budget, a temperature that is unset or 1, and a
/// `top_p` that is unset or at least 0.95; with a budget, no tool choice may force a call. Settings
/// that contradict this are an `InvalidRequest` error. Newer models accept no temperature at all.
///
/// A field `thinking` in [`extra`](tower_agent::Settings::extra) replaces the one here. Newer
/// models return reasoning without text; `{"type": "adaptive", "display": "summarized"}` asks for a
/// summary.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Thinking {
    /// `thinking: {type: adaptive}` and `output_config.effort`: the model decides how much to
    /// reason. For Claude 4.6 and later.
    #[default]
    Adaptive,
    /// `thinking: {type: enabled, budget_tokens}`. For Claude 4.5 and earlier; removed in Claude
    /// Opus 4.7.
    Budget,
}

/// The limit of output tokens if the settings have none: as many as every current model can send,
/// and not so many that an answer that is not streamed would time out.
const MAX_TOKENS: u32 = 16_384;

/// The least budget that is accepted.
const MIN_BUDGET: u32 = 1024;

/// The fields of a request that depend on the reasoning effort.
pub(super) struct Fields<'a> {
    pub(super) max_tokens: u32,
    pub(super) thinking: Option<Field>,
    pub(super) effort: Option<&'a str>,
}

/// The field `thinking`.
#[derive(Serialize)]
#[serde(tag = "type", rename_all = "snake_case")]
pub(super) enum Field {
    Disabled,
    Adaptive,
    Enabled { budget_tokens: u32 },
}

impl Thinking {
    pub(super) fn fields(self, settings: &Settings) -> Result<Fields<'_>> {
        let max_tokens = settings.max_tokens.unwrap_or(MAX_TOKENS);
        let Some(effort) = &settings.reasoning_effort else {
            return Ok(Fields {
                max_tokens,
                thinking: None,
                effort: None,
            });
        };
        let (budget, word) = match effort {
            ReasoningEffort::None => {
                return Ok(Fields {
                    max_tokens,
                    thinking: Some(Field::Disabled),
                    effort: None,
                });
            }
            ReasoningEffort::Minimal => (Some(MIN_BUDGET), "low"),
            ReasoningEffort::Low => (Some(4096), "low"),
            ReasoningEffort::Medium => (Some(8192), "medium"),
            ReasoningEffort::High => (Some(16_384), "high"),
            ReasoningEffort::Other(word) => (word.parse().ok(), &**word),
            _ => return Err(unsupported("reasoning effort")),
        };
        // A number is a budget for every model: the caller asks for exactly so many tokens.
        let is_number = matches!(effort, ReasoningEffort::Other(_)) && budget.is_some();
        let is_adaptive = self == Self::Adaptive && !is_number;
        if settings.extra.contains_key("thinking") {
            // The caller's field replaces ours, with its own rules.
            let effort = Some(word).filter(|_| is_adaptive);
            return Ok(Fields {
                max_tokens,
                thinking: None,
                effort,
            });
        }
        check_sampling(settings)?;
        if is_adaptive {
            return Ok(Fields {
                max_tokens,
                thinking: Some(Field::Adaptive),
                effort: Some(word),
            });
        }
        let Some(budget) = budget else {
            let message = format!(
                "the reasoning effort `{word}` has no budget: set a number of tokens, or \
                 `Thinking::Adaptive` for a model that takes an effort"
            );
            return Err(invalid(message));
        };
        let max_tokens = check_budget(budget, settings)?;
        let thinking = Some(Field::Enabled {
            budget_tokens: budget,
        });
        Ok(Fields {
            max_tokens,
            thinking,
            effort: None,
        })
    }
}

fn check_sampling(settings: &Settings) -> Result<()> {
    if let Some(other) = settings
        .temperature
        .filter(|temperature| *temperature != 1.0)
    {
        let message = format!("the temperature is {other}; with reasoning it must be 1 or unset");
        return Err(invalid(message));
    }
    if let Some(other) = settings.top_p.filter(|top_p| *top_p < 0.95) {
        let message =
            format!("`top_p` is {other}; with reasoning it must be at least 0.95 or unset");
        return Err(invalid(message));
    }
    Ok(())
}

/// Returns the limit of output tokens, those of the budget included.
fn check_budget(budget: u32, settings: &Settings) -> Result<u32> {
    if budget < MIN_BUDGET {
        let message = format!(
            "the reasoning budget is {budget} tokens; the protocol requires at least {MIN_BUDGET}"
        );
        return Err(invalid(message));
    }
    if let Some(ToolChoice::Required | ToolChoice::Tool(_)) = settings.tool_choice {
        let message = "a tool choice that forces a call does not work with a reasoning budget: \
                       use `ToolChoice::Auto`";
        return Err(invalid(message));
    }
    match settings.max_tokens {
        // The budget counts as output, so the default limit grows by it.
        None => Ok(MAX_TOKENS.saturating_add(budget)),
        Some(max_tokens) if max_tokens > budget => Ok(max_tokens),
        Some(max_tokens) => Err(invalid(format!(
            "`max_tokens` is {max_tokens}, but must be more than the reasoning budget of {budget} \
             tokens"
        ))),
    }
}
