//! A model on a server, if the environment names one.

use std::env;

use tower_agent::BoxError;
use tower_agent::model::ModelService;
use tower_agent_providers::openai::OpenAi;

/// Returns the model `OPENAI_MODEL` on the server `OPENAI_BASE_URL`, or on OpenAI's, with the key
/// `OPENAI_API_KEY`; `None` if neither a server nor a key is set.
pub(crate) fn model() -> Result<Option<impl ModelService>, BoxError> {
    let variable = |name| env::var(name).ok().filter(|value| !value.is_empty());
    if variable("OPENAI_API_KEY").or_else(|| variable("OPENAI_BASE_URL")).is_none() {
        return Ok(None);
    }
    let name = variable("OPENAI_MODEL").unwrap_or_else(|| "gpt-4o-mini".to_owned());
    Ok(Some(OpenAi::from_env()?.with_model(name)))
}
