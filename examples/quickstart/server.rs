//! The same agent with a model on a server, where the environment names one.

use std::env;

use tower_agent::provider::openai::OpenAi;
use tower_agent::{BoxError, ModelService};

/// The model on the server of `OPENAI_BASE_URL`, or OpenAI's, for the key in `OPENAI_API_KEY`.
/// `None` where neither is set.
pub(crate) fn model() -> Result<Option<impl ModelService>, BoxError> {
    if env::var_os("OPENAI_API_KEY").is_none() && env::var_os("OPENAI_BASE_URL").is_none() {
        return Ok(None);
    }
    Ok(Some(OpenAi::from_env()?))
}
