use crate::protocol::{Call, push_segment};
use tower_agent::error::Result;

/// Returns the path of a call: that of its model, and of the `operation`. An ARN is one segment.
pub(super) fn model_path(call: &Call<'_>, operation: &str) -> Result<String> {
    let mut path = String::from("/model");
    push_segment(&mut path, call.require_model()?)?;
    path.push('/');
    path.push_str(operation);
    Ok(path)
}
