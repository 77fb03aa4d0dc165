use crate::protocol::Call;

/// The value that Google documents in place of a signature, for a call of another model.
pub(super) const NO_SIGNATURE: &str = "skip_thought_signature_validator";

/// Returns why a call cannot have the schema of its answer as the response format.
pub(super) fn describes_schema(call: &Call<'_>) -> Option<&'static str> {
    let request = call.request();
    let settings = request.settings();
    let has_tools = !request.tools().is_empty()
        || !settings.server_tools.is_empty()
        || settings.extra.contains_key("tools");
    let is_rejected = has_tools && call.model().is_some_and(is_before_3);
    is_rejected.then_some("models before Gemini 3 take no schema beside tools")
}

/// Returns whether it is a model before Gemini 3, by its name: those have a budget for reasoning
/// instead of levels, and do not require signatures.
pub(super) fn is_before_3(model: &str) -> bool {
    let name = model.rsplit('/').next().unwrap_or_default();
    ["gemini-1.", "gemini-2."]
        .iter()
        .any(|old| name.starts_with(old))
}
