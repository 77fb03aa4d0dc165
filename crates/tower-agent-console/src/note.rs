//! Notes that the layers tell beside the observer: calls with their begin and end, and whose a run
//! is.

use std::sync::Arc;
use std::time::SystemTime;

use tower_agent::Checkpoint;
use tower_agent::call::Attempted;

use crate::forked::ForkOf;
use crate::kept::Kept;
use crate::record::Content;

/// Something that a layer has seen.
pub(crate) struct Note {
    /// The run's id.
    pub(crate) run: Arc<str>,
    /// The id of the invocation of the agent.
    pub(crate) agent: Arc<str>,
    pub(crate) at: SystemTime,
    pub(crate) what: What,
}

pub(crate) enum What {
    /// An outermost agent is called.
    About {
        user: Option<Arc<str>>,
        conversation: Option<Arc<str>>,
        fork_of: Option<ForkOf>,
        kept: Option<Arc<Kept>>,
    },
    /// It has ended, and its conversation is this.
    Left {
        after: Box<Checkpoint>,
    },
    /// A call begins, which the layers give this number.
    Begun {
        number: u64,
        turn: u32,
        call: Call,
        input: Option<Box<str>>,
    },
    Ended {
        number: u64,
        end: Ended,
    },
}

pub(crate) enum Call {
    Model {
        is_streamed: bool,
    },
    Tool {
        id: Option<Arc<str>>,
        name: Arc<str>,
    },
}

/// The end of a call.
#[derive(Default)]
pub(crate) struct Ended {
    pub(crate) error: Option<&'static str>,
    pub(crate) attempts: Vec<Attempted>,
    pub(crate) is_given: bool,
    pub(crate) finish: Option<String>,
    pub(crate) provider: Option<&'static str>,
    pub(crate) model: Option<Arc<str>>,
    /// The tool itself has refused or failed.
    pub(crate) is_error: bool,
    pub(crate) answered_by: Vec<String>,
    pub(crate) output: Option<Box<str>>,
    pub(crate) kept: Option<Arc<Kept>>,
}

impl Note {
    /// Returns the memory of what was said in it, in bytes.
    pub(crate) fn content_len(&self) -> usize {
        let (text, kept) = match &self.what {
            What::About { kept, .. } => (&None, kept),
            // The messages that are new in it were counted with its calls.
            What::Left { .. } => return 0,
            What::Begun { input, .. } => (input, &None),
            What::Ended { end, .. } => (&end.output, &end.kept),
        };
        let text = text.as_ref().map_or(0, |text| text.len());
        text + kept.as_ref().map_or(0, |kept| kept.len())
    }

    /// Leaves out what is whole.
    pub(crate) fn drop_kept(&mut self) {
        match &mut self.what {
            What::About { kept, .. } => *kept = None,
            What::Left { .. } | What::Begun { .. } => {}
            What::Ended { end, .. } => end.kept = None,
        }
    }

    /// Leaves out its texts.
    pub(crate) fn drop_content(&mut self) {
        match &mut self.what {
            What::About { .. } | What::Left { .. } => {}
            What::Begun { input, .. } => *input = None,
            What::Ended { end, .. } => end.output = None,
        }
    }
}

impl Content {
    pub(crate) fn of_input(input: Option<Box<str>>) -> Self {
        Self {
            input,
            ..Self::default()
        }
    }
}
