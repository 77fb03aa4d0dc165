use crate::protocol::unsupported;
use tower_agent::error::Result;
use tower_agent::model::{CacheRetention, ReasoningEffort};

pub(super) fn effort(effort: &ReasoningEffort) -> Result<&str> {
    Ok(match effort {
        ReasoningEffort::None => "none",
        ReasoningEffort::Minimal => "minimal",
        ReasoningEffort::Low => "low",
        ReasoningEffort::Medium => "medium",
        ReasoningEffort::High => "high",
        ReasoningEffort::Other(word) => word,
        _ => return Err(unsupported("reasoning effort")),
    })
}

pub(super) fn retention(retention: CacheRetention) -> Result<&'static str> {
    Ok(match retention {
        CacheRetention::Short => "in_memory",
        CacheRetention::Long => "24h",
        _ => return Err(unsupported("cache retention")),
    })
}
