//! The model of a provider, if the environment names one.

use std::env;

use tower_agent::BoxError;
use tower_agent::model::BoxModel;
use tower_agent_providers::Providers;

/// Returns the model that `MODEL` names, such as `openai:gpt-4o-mini`; `None` if it is not set.
pub(crate) fn model() -> Result<Option<BoxModel>, BoxError> {
    match env::var("MODEL").ok().filter(|name| !name.is_empty()) {
        Some(name) => Ok(Some(Providers::from_env().model(&name)?)),
        None => Ok(None),
    }
}
