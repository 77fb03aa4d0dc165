use std::sync::Arc;
use std::time::SystemTime;

use tower_agent::agent::SavedRequest;
use tower_agent::{Interrupt, Resolution};

use super::error::JournalError;
use super::fingerprint::Fingerprint;
use super::input::Input;
use super::open_run::OpenRun;
use super::run_status::RunStatus;

/// A run as a journal has stored it. A journal of your own decides with it whether a request may
/// start, resume or continue the run.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct KnownRun {
    /// The run as its latest process had it.
    pub run: OpenRun,
    /// The status, of [a run that may continue](RunStatus::of_open_run).
    pub status: RunStatus,
    /// The fingerprints of the conversation's requests, latest last.
    pub fingerprints: Vec<Fingerprint>,
    /// The resolutions in these requests, in order.
    pub answers: Vec<Resolution>,
    /// The turn from which the latest request continued.
    pub turn: u64,
    /// The open interrupts.
    pub interrupts: Vec<Interrupt>,
}

impl KnownRun {
    /// Creates a run without requests, answers and interrupts.
    #[must_use]
    pub fn new(run: OpenRun, status: RunStatus) -> Self {
        Self {
            run,
            status,
            fingerprints: Vec::new(),
            answers: Vec::new(),
            turn: 0,
            interrupts: Vec::new(),
        }
    }

    /// Returns the run as the process that starts it has it. Its `input` is a new number if the
    /// request is another one than the latest.
    ///
    /// # Errors
    ///
    /// Fails as [`Journal::start`](super::Journal::start) does.
    pub fn start(self, input: &Input) -> Result<OpenRun, JournalError> {
        let has_moved_past = self.has_moved_past(&input.request);
        let answers = input.request.resolutions();
        let checked = check_answers(&self.run.id, &self.interrupts, answers, input.at);
        let unasked = self.unasked(&input.request).map(str::to_owned);
        let Self {
            run,
            status,
            fingerprints,
            turn: latest_turn,
            ..
        } = self;
        // A journal that has runs by their ids alone must not show one user the run of another.
        if run.user != input.user {
            return Err(JournalError::OtherRequest { run: run.id });
        }
        let epoch = run.epoch.saturating_add(1);
        // A request that is delivered again, or a process that takes over: the same steps, under a
        // new epoch that shuts out the previous process.
        if fingerprints.last() == Some(&input.fingerprint) {
            return Ok(OpenRun { epoch, ..run });
        }
        checked?;
        // An older request of the conversation would repeat the calls that followed it.
        if fingerprints.contains(&input.fingerprint) {
            return Err(JournalError::EarlierRequest { run: run.id });
        }
        let turn = input.request.checkpoint().head.turn;
        // A retry in the same process changes the request, since it has what the failed try left.
        let is_retried = input.is_retried && status == RunStatus::Failed;
        // Turn 0 means that the request continues no checkpoint, so it would begin a second
        // conversation.
        if status == RunStatus::Running || turn == 0 && !is_retried {
            return Err(JournalError::OtherRequest { run: run.id });
        }
        if turn <= latest_turn && !is_retried || has_moved_past {
            return Err(JournalError::EarlierRequest { run: run.id });
        }
        if let Some(interrupt) = unasked {
            let run = run.id;
            return Err(JournalError::NotOpen { run, interrupt });
        }
        // The checkpoint that the latest request has left is one turn later.
        if turn > latest_turn.saturating_add(1) {
            return Err(JournalError::OtherRequest { run: run.id });
        }
        let number = run.input.saturating_add(1);
        // After a completed run a new conversation begins, so that its steps get names of their
        // own.
        let conversation = if status == RunStatus::Completed {
            number
        } else {
            run.conversation
        };
        Ok(OpenRun {
            epoch,
            input: number,
            conversation,
            ..run
        })
    }

    /// Returns the id of an interrupt that a request answers although it is not open and was not
    /// answered before: it has changed since the person read it.
    fn unasked<'r>(&self, request: &'r SavedRequest) -> Option<&'r str> {
        let mut answers = request.resolutions().iter();
        let unasked = answers.find(|answer| {
            let was_answered = self.answers.iter().any(|earlier| earlier.id == answer.id);
            !was_answered && !self.is_open(answer)
        })?;
        Some(&unasked.id)
    }

    /// Returns whether a request answers an interrupt that was answered differently, or is closed.
    fn has_moved_past(&self, request: &SavedRequest) -> bool {
        let answers = request.resolutions();
        if self.status == RunStatus::Completed {
            // Every interrupt was answered before, or the run would not have completed.
            return !answers.is_empty();
        }
        answers.iter().any(|answer| self.contradicts(answer))
    }

    /// Returns whether an interrupt that is no longer open has another answer.
    fn contradicts(&self, answer: &Resolution) -> bool {
        let earlier = self.answers.iter().rfind(|earlier| earlier.id == answer.id);
        !self.is_open(answer) && earlier.is_some_and(|earlier| earlier != answer)
    }

    fn is_open(&self, answer: &Resolution) -> bool {
        let mut open = self.interrupts.iter();
        open.any(|interrupt| interrupt.id == answer.id)
    }
}

/// Fails if an open interrupt of a run is answered with what [does not count](Interrupt::check) at
/// this time. For a journal of your own that looks at the answers before a worker starts;
/// [`KnownRun::start`] does it again.
///
/// # Errors
///
/// Fails with [`Unfit`](JournalError::Unfit). The interrupt stays open.
pub fn check_answers(
    run: &Arc<str>,
    open: &[Interrupt],
    answers: &[Resolution],
    at: SystemTime,
) -> Result<(), JournalError> {
    for answer in answers {
        let Some(asked) = open.iter().find(|open| open.id == answer.id) else {
            continue;
        };
        let checked = asked.check(answer, at);
        checked.map_err(|why| JournalError::Unfit {
            run: run.clone(),
            interrupt: answer.id.clone(),
            why,
        })?;
    }
    Ok(())
}
