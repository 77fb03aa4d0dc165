/// The progress of a run when it is saved.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum RunProgress {
    /// It goes on.
    Running,
    /// It completed, or was interrupted.
    Ended,
    /// It failed, or its client disconnected: the client may not know all its work.
    Cut,
}
