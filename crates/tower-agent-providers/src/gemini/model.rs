/// The value that Google documents in place of a signature, for a call of another model.
pub(super) const NO_SIGNATURE: &str = "skip_thought_signature_validator";

/// Returns whether it is a model before Gemini 3, by its name: those have a budget for reasoning
/// instead of levels, and do not require signatures.
pub(super) fn is_before_3(model: &str) -> bool {
    let name = model.rsplit('/').next().unwrap_or_default();
    ["gemini-1.", "gemini-2."]
        .iter()
        .any(|old| name.starts_with(old))
}
