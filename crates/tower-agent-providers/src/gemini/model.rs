use crate::protocol::{Call, schema_of, takes_answer_tool};

/// The value that Google documents in place of a signature, for a call of another model.
pub(super) const NO_SIGNATURE: &str = "skip_thought_signature_validator";

/// Returns why the schema of a call stands in the instructions, if it does.
pub(super) fn describes_schema(call: &Call<'_>) -> Option<&'static str> {
    let is_by_tool = answer_tool(call).is_some();
    rejects_schema(call).filter(|_| !is_by_tool)
}

/// Returns why a tool gives the answer of a call, if it does. The models that need it take no
/// function beside tools of the server.
pub(super) fn answer_tool(call: &Call<'_>) -> Option<&'static str> {
    let can_be_forced = !has_server_tools(call) && takes_answer_tool(call);
    rejects_schema(call).filter(|_| can_be_forced)
}

/// Returns why a call cannot have the schema of its answer as the response format, if it cannot.
fn rejects_schema(call: &Call<'_>) -> Option<&'static str> {
    schema_of(call)?;
    let has_tools = !call.request().tools().is_empty() || has_server_tools(call);
    let is_rejected = has_tools && call.model().is_some_and(is_before_3);
    is_rejected.then_some("models before Gemini 3 take no schema beside tools")
}

fn has_server_tools(call: &Call<'_>) -> bool {
    let settings = call.request().settings();
    !settings.server_tools.is_empty() || settings.extra.contains_key("tools")
}

/// Returns whether it is a model before Gemini 3, by its name: those have a budget for reasoning
/// instead of levels, and do not require signatures.
pub(super) fn is_before_3(model: &str) -> bool {
    let name = model.rsplit('/').next().unwrap_or_default();
    ["gemini-1.", "gemini-2."]
        .iter()
        .any(|old| name.starts_with(old))
}
