//! The guard's knowledge of a call, for other guards.

use tower_agent::call::Request;
use tower_agent::tool::ToolRequest;

use super::book::Book;
use super::checked::Checked;
use super::label::{Integrity, Label};

/// The knowledge that [`Flow`](super::Flow) has of a tool call that it has let through: for a guard
/// further inside that decides by it, such as a policy.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct SeenCall {
    /// The label of all that the model had read when it made the call.
    pub context: Label,
    /// The arguments in which the guard has put values for references, with their labels: each by
    /// its name, as in the questions of the guard. What the model wrote itself has the label of
    /// the context.
    pub arguments: Vec<(String, Label)>,
    /// The tools whose untrusted results the model had read, or are in the arguments, each once.
    pub sources: Vec<String>,
}

impl SeenCall {
    /// Returns what the guard knows about this call; `None` if it is not around the place that
    /// asks.
    #[must_use]
    pub fn of(request: &ToolRequest) -> Option<Self> {
        let checked = request.extensions().get::<Checked>()?;
        let book = Book::of(request.context());
        let turn = book.turn(&checked.turn());
        let mut sources = turn.map(|turn| turn.sources).unwrap_or_default();
        sources.extend(checked.origin());
        sources.sort();
        sources.dedup();
        let flow = checked.guard.flow_of_call(request);
        let declaration = request.declaration().map(|tool| &**tool);
        let arguments = checked.substitutions.iter().map(|one| {
            // What a person has endorsed is trusted wherever it stands.
            let label = if book.is_endorsed(&one.value) {
                one.label.clone().with_integrity(Integrity::Trusted)
            } else {
                one.label.clone()
            };
            (flow.place(&one.path, declaration), label)
        });
        Some(Self {
            context: checked.context.clone(),
            arguments: arguments.collect(),
            sources,
        })
    }
}
