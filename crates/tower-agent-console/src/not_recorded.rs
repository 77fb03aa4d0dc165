/// The error of a run whose texts are not there, or not whole: it can be neither saved nor forked.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum NotRecorded {
    /// There is no such run.
    #[error("the console has no run `{run}`")]
    UnknownRun {
        /// The id of the run.
        run: String,
    },
    /// Nothing was kept of what was said.
    #[error(
        "nothing was kept of what was said in the run `{run}`: call `Console::record_content` \
         before `Console::watch`, and let the run fit into `Console::max_bytes`"
    )]
    NoContent {
        /// The id of the run.
        run: String,
    },
    /// A part of it was left out, to make room or since the console was behind.
    #[error(
        "{call} of the run `{run}` was left out: let the run fit into `Console::max_bytes`, and \
         make it again"
    )]
    LeftOut {
        /// The id of the run.
        run: String,
        /// The part, as far as it is known.
        call: String,
    },
    /// A call has not ended.
    #[error("{call} of the run `{run}` has not ended: save it once the run is over")]
    Running {
        /// The id of the run.
        run: String,
        /// The call.
        call: String,
    },
    /// A redaction hides a part of a call, which must not stand in a file.
    #[error(
        "a redaction hides a part of {call} of the run `{run}`, as by `Redact` without \
         `redact_input`: its recording would contain what is hidden"
    )]
    Hidden {
        /// The id of the run.
        run: String,
        /// The call.
        call: String,
    },
    /// The run came with an answer format, which is code and in no database.
    #[error(
        "the run `{run}` came with an answer format, which is code and in no database: it can be \
         forked while it is in the memory of its process"
    )]
    OfCode {
        /// The id of the run.
        run: String,
    },
    /// The database does not answer, or what it has cannot be read.
    #[error("the run `{run}` cannot be read from the database: {reason}")]
    NotRead {
        /// The id of the run.
        run: String,
        /// The reason.
        reason: String,
    },
    /// The run has no such step.
    #[error("the run `{run}` has no step {step}: its last one is {last}")]
    NoStep {
        /// The id of the run.
        run: String,
        /// The step that was asked for.
        step: usize,
        /// The last one that it has.
        last: usize,
    },
    /// A call cannot be written as JSON.
    #[error("{call} of the run `{run}` cannot be written: {reason}")]
    Unwritten {
        /// The id of the run.
        run: String,
        /// The call.
        call: String,
        /// The reason.
        reason: String,
    },
}
