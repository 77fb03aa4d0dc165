use tower_agent::agent::SavedRequest;
use tower_agent::{Interrupt, Resolution};

use super::error::JournalError;
use super::fingerprint::Fingerprint;
use super::journal::{Input, OpenRun};
use super::run_status::RunStatus;

/// What a journal has of a run that is started.
pub(crate) struct KnownRun {
    /// Not that of a run which was cancelled.
    pub(crate) status: RunStatus,
    pub(crate) epoch: u64,
    /// The number of its latest request.
    pub(crate) input: u32,
    /// The number of the request that began its conversation.
    pub(crate) conversation: u32,
    /// Those of the requests of its conversation; the last is that of the latest.
    pub(crate) fingerprints: Vec<Fingerprint>,
    /// What these have answered, in order.
    pub(crate) answers: Vec<Resolution>,
    /// The turn from which its latest request continued.
    pub(crate) turn: u64,
    /// What it waits for.
    pub(crate) interrupts: Vec<Interrupt>,
}

impl KnownRun {
    /// Returns the run as the process that starts it has it. Its `input` is another one if the request
    /// is.
    pub(crate) fn start(self, input: &Input) -> Result<OpenRun, JournalError> {
        let run = || input.request.run_id().into();
        let epoch = self.epoch.saturating_add(1);
        if self.fingerprints.last() == Some(&input.fingerprint) {
            return Ok(OpenRun::new(run(), epoch, self.input, self.conversation));
        }
        if self.fingerprints.contains(&input.fingerprint) {
            return Err(JournalError::EarlierRequest { run: run() });
        }
        let turn = input.request.checkpoint().turn;
        let is_retried = input.is_retried && self.status == RunStatus::Failed;
        if self.status == RunStatus::Running || turn == 0 && !is_retried {
            return Err(JournalError::OtherRequest { run: run() });
        }
        if turn <= self.turn && !is_retried || self.has_gone_on(&input.request) {
            return Err(JournalError::EarlierRequest { run: run() });
        }
        // The checkpoint that the latest request has left is one turn later.
        if turn > self.turn.saturating_add(1) {
            return Err(JournalError::OtherRequest { run: run() });
        }
        let number = self.input.saturating_add(1);
        let conversation = match self.status {
            RunStatus::Completed => number,
            _ => self.conversation,
        };
        Ok(OpenRun::new(run(), epoch, number, conversation))
    }

    /// Returns whether a request answers what was answered.
    fn has_gone_on(&self, request: &SavedRequest) -> bool {
        let answers = request.resolutions();
        match self.status {
            // It was answered before, or the run would not have completed.
            RunStatus::Completed => !answers.is_empty(),
            _ => answers.iter().any(|answer| self.has_another(answer)),
        }
    }

    /// Returns whether a question has another answer, and is not asked again.
    fn has_another(&self, answer: &Resolution) -> bool {
        let is_asked = self.interrupts.iter().any(|asked| asked.id == answer.id);
        let earlier = self.answers.iter().rfind(|earlier| earlier.id == answer.id);
        !is_asked && earlier.is_some_and(|earlier| earlier != answer)
    }
}
