use crate::protocol::push_segments;
use tower_agent::error::Result;

/// Returns the path of a model: `/models/..`, or its resource name, such as `tunedModels/..`.
pub(super) fn path(model: &str) -> Result<String> {
    let model = model.trim_start_matches('/');
    let mut path = String::from(if model.contains('/') { "" } else { "/models" });
    push_segments(&mut path, model)?;
    Ok(path)
}
