use super::{Fingerprint, Input, JournalError, OpenRun, RunStatus};

/// What a journal has of a run that is started.
pub(crate) struct KnownRun {
    pub(crate) status: RunStatus,
    pub(crate) epoch: u64,
    /// The number of its latest request.
    pub(crate) input: u32,
    /// The number of the request that began its conversation.
    pub(crate) conversation: u32,
    /// Those of the requests of its conversation; the last is that of the latest.
    pub(crate) fingerprints: Vec<Fingerprint>,
}

impl KnownRun {
    /// Returns the run as the process that starts it has it. Its `input` is another one if the request
    /// is.
    pub(crate) fn start(self, input: &Input) -> Result<OpenRun, JournalError> {
        let Self { status, epoch, input: latest, conversation, fingerprints } = self;
        let run = || input.request.run_id().into();
        if status == RunStatus::Cancelled {
            return Err(JournalError::Cancelled { run: run() });
        }
        let epoch = epoch.saturating_add(1);
        if fingerprints.last() == Some(&input.fingerprint) {
            return Ok(OpenRun::new(run(), epoch, latest, conversation));
        }
        if fingerprints.contains(&input.fingerprint) {
            return Err(JournalError::EarlierRequest { run: run() });
        }
        if status == RunStatus::Running {
            return Err(JournalError::OtherRequest { run: run() });
        }
        let has_completed = status == RunStatus::Completed;
        let goes_on = input.request.checkpoint().turn > 0;
        if has_completed && goes_on && !input.request.resolutions().is_empty() {
            // What it answers was answered before, or the run would not have completed.
            return Err(JournalError::EarlierRequest { run: run() });
        }
        let number = latest.saturating_add(1);
        let conversation = if goes_on && !has_completed { conversation } else { number };
        Ok(OpenRun::new(run(), epoch, number, conversation))
    }
}
