use crate::protocol::unsupported;
use tower_agent::error::Result;
use tower_agent::message::{Part, Role};
use tower_agent::model::ModelRequest;

/// Returns the instructions, and the texts of system messages.
pub(super) fn instructions(request: &ModelRequest) -> Result<Vec<&str>> {
    let mut all: Vec<_> = request.instructions().into_iter().collect();
    for message in request
        .messages()
        .iter()
        .filter(|message| message.role() == Role::System)
    {
        for part in message.parts() {
            let Part::Text(text) = part else {
                return Err(unsupported("part of a system message: only text"));
            };
            all.push(&text.text);
        }
    }
    all.retain(|text| !text.is_empty());
    Ok(all)
}
