/// The purpose of a callback or layer of this crate, which it states itself. Building an agent warns
/// about orders that are known to be wrong.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Purpose {
    /// Asks a person.
    Approval,
    /// Limits what a run costs.
    Budget,
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
