//! The label of what agents have read that work in a tool call, or of what it returns.

use serde::Deserialize;
use serde_json::json;
use tower_agent::call::Request;
use tower_agent::context::{Names, RunContext};
use tower_agent::error::{Error, ErrorKind};
use tower_agent::tool::{ToolDeclaration, ToolRequest};

use super::checked::Checked;
use super::label::Label;
use super::settings::FlowSettings;

/// The name of the label of what agents have read that work in a call, in the data of the call.
const INSIDE: &str = "tower_agent.guard.flow inside";

/// The key that says that an agent has read something in a tool call.
const ANY_INSIDE: &str = "tower_agent.guard.flow any inside";

/// Records the label of what an agent reads that works in a tool call.
pub(super) fn note_read(agent: &RunContext, label: &Label) {
    let Some(key) = agent.outer_call_key(INSIDE) else {
        return;
    };
    note(agent, key, label);
}

/// Records that a tool of this crate returns the descriptions of these tools in this call.
pub(crate) fn note_described<'t>(
    request: &ToolRequest,
    tools: impl IntoIterator<Item = &'t ToolDeclaration>,
) {
    let Some(checked) = request.extensions().get::<Checked>() else {
        return;
    };
    let mut tools = tools.into_iter();
    if tools.any(|tool| !checked.guard.trusts_description(tool)) {
        let call = request.context();
        note(call, call.call_key(INSIDE), &Label::untrusted());
    }
}

/// Records the label of an error that the caller's model may read, unless what was called has
/// raised it itself: then it is of what was read.
pub(super) fn note_error<R: Request>(
    request: &R,
    error: &Error,
    is_own: bool,
    settings: &FlowSettings,
) {
    if is_read(error) && !is_own {
        note_read(request.context(), &settings.callbacks);
    }
}

/// Returns whether a model may read an error that ends an agent which works in a tool call.
pub(super) fn is_read(error: &Error) -> bool {
    !matches!(error.kind(), ErrorKind::Interrupted | ErrorKind::Cancelled)
}

fn note(context: &RunContext, key: String, label: &Label) {
    let state = context.private_state();
    let earlier: Option<Label> = state.read(&key, |value| Label::deserialize(value?).ok());
    let joined = earlier
        .as_ref()
        .map_or(label.clone(), |earlier| earlier.join(label));
    if earlier.as_ref() != Some(&joined) {
        // With every label and not once: the changes of a call may be all that is replayed.
        state.set(ANY_INSIDE, true);
        state.set(key, json!(joined));
        context.names().declare(INSIDE, own_name);
    }
}

/// Returns a name that is in every text of a call in which something was read. A cache must not
/// replay its response: another conversation would have no label for it.
fn own_name(call: &RunContext, _: &str) -> Names {
    let path = noted_inside(call).map(|_| (INSIDE.to_owned(), call.call_path()));
    path.into_iter().collect()
}

/// Returns the label of what agents have read that work in this tool call. `None` if none has read
/// anything with the guard around its model.
pub(super) fn noted_inside(call: &RunContext) -> Option<Label> {
    let state = call.private_state();
    // In most conversations no agent works in a call, and the path of the call is not needed.
    if !state.read(ANY_INSIDE, |any| any.is_some()) {
        return None;
    }
    let key = call.call_key(INSIDE);
    state.read(&key, |value| Label::deserialize(value?).ok())
}
