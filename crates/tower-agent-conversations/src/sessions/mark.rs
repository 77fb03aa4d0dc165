use tower_agent::RunContext;
use tower_agent::error::{Error, ErrorKind, Result};

const KEY: &str = "tower_agent_conversations.session";

/// The state of a run's session, among the run's values, which clones of the request share.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Stage {
    /// No layer has seen the run.
    #[default]
    None,
    /// A layer has the session for the run.
    Active,
    /// The request's messages are stored, and its run has failed.
    Failed,
    /// The run has responded.
    Ended,
}

/// The state in which a layer finds a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Arrival {
    /// A new run.
    New,
    /// The request has been stored, and its run has failed: this is another attempt.
    Again,
    /// A clone of a request whose run has ended.
    Next,
}

/// A run that has its session, until it is dropped.
pub(super) struct SessionMark {
    context: RunContext,
    stage: Stage,
}

/// Enters a run. Returns nothing for a call that is part of a run that has its session.
pub(super) fn enter(context: &RunContext) -> Result<Option<(Arrival, SessionMark)>> {
    // Looked at and changed in one step: two clones of a request may be called at once, and only
    // one of them may enter.
    let is_inside = !context.path().is_empty() || context.tool_call_id().is_some();
    let before = context.values().update(KEY, |stage: &mut Stage| {
        let next = if is_inside { *stage } else { Stage::Active };
        std::mem::replace(stage, next)
    })?;
    let entry = match (is_inside, before) {
        (true, Stage::None) => {
            return Err(Error::new(
                ErrorKind::InvalidRequest,
                "a session layer has to be around the outermost agent, and not inside its builder \
                 or around one of its parts",
            ));
        }
        (true, _) => return Ok(None),
        (false, Stage::None) => Arrival::New,
        (false, Stage::Failed) => Arrival::Again,
        (false, Stage::Ended) => Arrival::Next,
        (false, Stage::Active) => {
            return Err(Error::new(
                ErrorKind::InvalidRequest,
                "the run has its session already: use one session layer, and do not call a clone \
                 of a request while the request runs",
            ));
        }
    };
    Ok(Some((
        entry,
        SessionMark {
            context: context.clone(),
            stage: before,
        },
    )))
}

impl SessionMark {
    /// Notes that the request is stored, so that another attempt does not store it again.
    pub(super) fn stored(&mut self) {
        self.stage = Stage::Failed;
    }

    /// Notes that the run has a response.
    pub(super) fn ended(&mut self) {
        self.stage = Stage::Ended;
    }
}

// In a drop, so that a cancelled run can be called again.
impl Drop for SessionMark {
    fn drop(&mut self) {
        self.context.values().set(KEY, self.stage);
    }
}
