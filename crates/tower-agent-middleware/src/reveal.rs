//! The original arguments of a call, for those who approve it.

use std::sync::Arc;

use serde_json::Value;
use tower_agent::error::Answerer;
use tower_agent::tool::ToolRequest;

/// Returns these arguments with the texts that a redaction has hidden, if this party may read them
/// and there are any.
type Reveal = dyn Fn(&ToolRequest, &Answerer, &Value) -> Option<Value> + Send + Sync;

/// The redactions of a tool call that reveal something to its approvers: an extension of the
/// request.
#[derive(Clone, Default)]
pub(crate) struct Reveals(Vec<Arc<Reveal>>);

impl Reveals {
    /// Adds a redaction.
    #[cfg(feature = "redact")]
    pub(crate) fn add(
        request: &mut ToolRequest,
        reveal: impl Fn(&ToolRequest, &Answerer, &Value) -> Option<Value> + Send + Sync + 'static,
    ) {
        let mut all = request
            .extensions()
            .get::<Self>()
            .cloned()
            .unwrap_or_default();
        all.0.push(Arc::new(reveal));
        request.extensions_mut().insert(all);
    }

    /// Returns the arguments of a call as this party may read them.
    pub(crate) fn arguments(request: &ToolRequest, to: &Answerer) -> Value {
        let mut arguments = request.arguments().clone();
        let reveals = request.extensions().get::<Self>();
        for reveal in reveals.into_iter().flat_map(|Self(all)| all) {
            if let Some(revealed) = reveal(request, to, &arguments) {
                arguments = revealed;
            }
        }
        arguments
    }
}
