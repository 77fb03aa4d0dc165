use serde::{Deserialize, Serialize};

/// Asks a provider to cache the start of a prompt, which the next calls repeat.
///
/// It never changes the answer, only its price and delay. Without it, a provider does what it does
/// by default.
///
/// | protocol | default | with it |
/// |---|---|---|
/// | OpenAI | caches on its own | `key` and `retention` are sent as `prompt_cache_key` and `prompt_cache_retention` (`in_memory`, `24h`) |
/// | Anthropic | does not cache | caches the whole prompt: one `cache_control` for the request, with the `ttl` of `retention` (`5m`, `1h`); the key is not sent |
/// | Gemini, Ollama | caches on its own | the same: nothing is sent |
///
/// ```
/// use tower_agent::Settings;
/// use tower_agent::model::{CacheRetention, PromptCache};
///
/// let mut settings = Settings::default();
/// settings.prompt_cache = Some(PromptCache::new().with_retention(CacheRetention::Long));
/// ```
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(default)]
#[non_exhaustive]
#[must_use]
pub struct PromptCache {
    /// A name shared by requests that start with the same prompt. A provider routes them to the
    /// same cache.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub key: Option<String>,
    /// The time for which the prompt stays cached.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub retention: Option<CacheRetention>,
}

/// The time for which a provider keeps a cached prompt.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum CacheRetention {
    /// Some minutes.
    Short,
    /// An hour or longer. May cost more.
    Long,
}

impl PromptCache {
    /// Creates a cache without a key, with the provider's default retention.
    pub fn new() -> Self {
        Self::default()
    }

    /// Sets the key.
    pub fn with_key(mut self, key: impl Into<String>) -> Self {
        self.key = Some(key.into());
        self
    }

    /// Sets the retention.
    pub fn with_retention(mut self, retention: CacheRetention) -> Self {
        self.retention = Some(retention);
        self
    }
}
