/// The purpose of a callback or layer, which it states itself. Building an agent warns about orders that
/// are known to be wrong, and fails where calls would not be journaled.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Purpose {
    /// Asks a person.
    Approval,
    /// Limits what a run costs.
    Budget,
    /// Keeps what calls have returned, so that another process can go on with the run. It stands
    /// outside everything else around the model and the tools, in the
    /// [global callbacks](crate::AgentBuilder::global_callbacks) of the outermost agent.
    Durability,
    /// Calls another model.
    Fallback,
    /// Hides data.
    Redaction {
        /// Whether it also acts directly around the model and the tools.
        innermost: bool,
    },
    /// Repeats calls.
    Retry,
    /// Limits how long a call takes.
    Timeout,
}
