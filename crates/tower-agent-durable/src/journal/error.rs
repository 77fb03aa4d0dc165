use std::borrow::Cow;
use std::sync::Arc;

use serde::{Deserialize, Serialize};
use tower_agent::Error;
use tower_agent::error::AnswerError;

use super::step_id::StepId;
use tower_agent_conversations::StoreError;

/// The reason why a run cannot continue, at all or in this process.
///
/// As an [`Error`] it is an abort, since the model must not read it and no other step may follow;
/// [`downcast_ref`](Error::downcast_ref) finds it.
///
/// It serialises, so that a journal on another machine can refuse a call. The source of a
/// [`StoreError`] becomes its text.
#[derive(Clone, Debug, thiserror::Error, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum JournalError {
    /// The program does not do what it did before: it was changed, or depends on something besides
    /// the run's steps.
    #[error(
        "{step} does not match the journal: `{part}` differs; run it with the program that began it, or \
         delete the run"
    )]
    NonDeterminism {
        /// The step.
        step: StepId,
        /// The part of its request that differs.
        part: String,
    },
    /// The program makes a step that is not in the journal, and does not come to one that is: an
    /// agent or a tool has another name, or stands elsewhere. It would make the calls of the run
    /// again.
    #[error(
        "{step} is not in the journal, which has {earlier}: this program does not come to that one; run \
         it with the program that began it, or delete the run"
    )]
    OtherProgram {
        /// The new step.
        step: StepId,
        /// The step in the journal.
        earlier: Box<StepId>,
    },
    /// Another process executes the run.
    #[error("run `{run}` was taken over by another process")]
    TakenOver {
        /// The run.
        run: Arc<str>,
    },
    /// The run was cancelled.
    #[error("run `{run}` was cancelled")]
    Cancelled {
        /// The run.
        run: Arc<str>,
    },
    /// The run does not exist, or was deleted.
    #[error("there is no run `{run}`")]
    UnknownRun {
        /// The run.
        run: Arc<str>,
    },
    /// The run was started with another request, and either it has not ended or this one does not
    /// continue from its latest checkpoint.
    #[error(
        "run `{run}` was started with another request; start it with that request, continue from its \
         latest checkpoint when it has ended, or use another run id"
    )]
    OtherRequest {
        /// The run.
        run: Arc<str>,
    },
    /// The run has had this request, or a different answer to what this one answers, or has gone on
    /// from where this one continues. It would repeat the calls after it.
    #[error(
        "run `{run}` has moved past this request; take the one that the journal has for the run, send \
         again the one that it had last if its process was lost, or use another run id"
    )]
    EarlierRequest {
        /// The run.
        run: Arc<str>,
    },
    /// The run is part of a stored conversation, which alone goes on with it; or it is not, and the
    /// request comes from one.
    #[error(
        "run `{run}` belongs to {conversation}, and goes on only there: give a session its request \
         through the session's layer, and a thread its answers through the thread"
    )]
    OtherConversation {
        /// The run.
        run: Arc<str>,
        /// The policy and the key of the conversation, or that the run has none.
        conversation: Box<str>,
    },
    /// The request answers an interrupt that is not open. Asked anew with another content, such as
    /// other arguments of its call, an interrupt has another id.
    #[error(
        "interrupt `{interrupt}` of run `{run}` is not open: the question has changed, or was never \
         asked; read the open ones"
    )]
    NotOpen {
        /// The run.
        run: Arc<str>,
        /// The interrupt's id.
        interrupt: String,
    },
    /// The request answers an open interrupt [too late](AnswerError::Late), with what does not fit
    /// it, or by somebody who may not. The interrupt stays open.
    #[error("the answer to interrupt `{interrupt}` of run `{run}` does not count: {why}")]
    Unfit {
        /// The run.
        run: Arc<str>,
        /// The interrupt's id.
        interrupt: String,
        /// The reason.
        why: AnswerError,
    },
    /// The beginning of the run's conversation is in its session, which was deleted.
    #[error(
        "the conversation of run `{run}` was deleted with its session: the run cannot go on; delete it as \
         well"
    )]
    SessionDeleted {
        /// The run.
        run: Arc<str>,
    },
    /// A call is not part of a run that is journaled.
    #[error("{call} is not part of a journaled run: {why}")]
    NoRun {
        /// The call.
        call: String,
        /// The reason, and what to do.
        why: Cow<'static, str>,
    },
    /// A model call that has failed is repeated from outside the journal.
    #[error(
        "{step} follows one that has failed: something repeats the agent; put the retry around the \
         model"
    )]
    Repeated {
        /// The step.
        step: StepId,
    },
    /// The journal failed or cannot be reached.
    #[error("the journal failed: {0}")]
    Store(#[from] StoreError),
}

impl JournalError {
    /// Returns whether the program is the reason: the run ends with this error.
    pub(super) fn is_of_program(&self) -> bool {
        match self {
            Self::NonDeterminism { .. }
            | Self::OtherProgram { .. }
            | Self::NoRun { .. }
            | Self::Repeated { .. } => true,
            // The journal has failed or refuses this process, so an end could not be written
            // either.
            Self::TakenOver { .. }
            | Self::Cancelled { .. }
            | Self::UnknownRun { .. }
            | Self::OtherRequest { .. }
            | Self::EarlierRequest { .. }
            | Self::OtherConversation { .. }
            | Self::NotOpen { .. }
            | Self::Unfit { .. }
            | Self::SessionDeleted { .. }
            | Self::Store(_) => false,
        }
    }
}

impl From<JournalError> for Error {
    fn from(error: JournalError) -> Self {
        let message = match &error {
            JournalError::Store(StoreError::Database(_)) => {
                format!("{error}; start the run again once it works: it goes on where it stopped")
            }
            error => error.to_string(),
        };
        Self::abort(message).with_source(error)
    }
}
