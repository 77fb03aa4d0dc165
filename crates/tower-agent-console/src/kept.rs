//! Whole calls, kept in memory beside their texts: what a recording and a fork are made of.
//!
//! They share their messages with the run, so that a call takes no more than what is new in it.
//! Nothing of this is shown.

use std::collections::HashMap;
use std::sync::{Arc, Mutex};

use tower_agent::agent::AnswerFormat;
use tower_agent::error::Result;
use tower_agent::stream::Invocation;
use tower_agent::{
    AgentRequest, Checkpoint, Message, ModelRequest, Request, Settings, State, ToolRequest,
    ToolResponse, ToolSet, Usage,
};

use crate::content;
use crate::forked::{Edits, Forked};
use crate::lock::lock;

/// A call with its request and its result.
#[derive(Debug)]
pub(crate) struct KeptCall<R: Request> {
    /// Its [path](RunContext::call_path) in the run.
    pub(crate) path: String,
    /// Without its run and without what callbacks have attached to it.
    pub(crate) request: R,
    /// `None` for a call that was dropped.
    pub(crate) result: Option<Result<R::Response>>,
    /// The tokens that were used beside those of the response.
    pub(crate) used: Usage,
    /// A redaction hides a part of it from the model, or from the rest of the run.
    pub(crate) is_hidden: bool,
}

/// Something whole that belongs to an entry.
#[derive(Debug)]
#[expect(
    clippy::large_enum_variant,
    reason = "it is always in a box, and its messages take more"
)]
pub(crate) enum Kept {
    Run(KeptRun),
    Model {
        call: KeptCall<ModelRequest>,
        /// The conversation of the outermost agent before the call.
        before: Option<Checkpoint>,
    },
    Tool {
        call: KeptCall<ToolRequest>,
        /// The digest of the arguments that the tool got, which a redaction may hide.
        arguments: String,
    },
}

/// The request of the outermost agent, and the conversation where it has come to.
#[derive(Clone, Debug)]
pub(crate) struct KeptRun {
    pub(crate) settings: Settings,
    pub(crate) tools: ToolSet,
    pub(crate) answer_format: Option<AnswerFormat>,
    /// The changes of model calls by the run, if it is a fork itself.
    pub(crate) edits: Edits,
    pub(crate) before: Checkpoint,
    /// `None` while it runs.
    pub(crate) after: Option<Checkpoint>,
}

impl KeptRun {
    pub(crate) fn of(request: &AgentRequest) -> Self {
        let forked = request.context().extensions().get::<Forked>();
        Self {
            settings: request.settings().clone(),
            tools: request.tools().clone(),
            answer_format: request.answer_format().cloned(),
            edits: forked
                .map(|forked| forked.edits.clone())
                .unwrap_or_default(),
            before: checkpoint(request),
            after: None,
        }
    }
}

/// Returns the conversation of a running agent, of which no private state is kept.
pub(crate) fn checkpoint(request: &AgentRequest) -> Checkpoint {
    let mut checkpoint = request.checkpoint();
    // A fork asks its own questions.
    checkpoint.head.interrupts.clear();
    checkpoint.head = checkpoint.head.without_private_state();
    checkpoint
}

/// Returns the digest of the arguments that a tool got.
pub(crate) fn digest_of(request: &ToolRequest, result: Option<&Result<ToolResponse>>) -> String {
    let changed = match result {
        Some(Ok(response)) => response.changed_arguments(),
        _ => None,
    };
    State::digest(changed.unwrap_or_else(|| request.arguments()))
}

impl Kept {
    /// Returns the estimated memory of what is new in it, in bytes.
    pub(crate) fn len(&self) -> usize {
        let of = |message: &Message| content::weight(message.parts());
        match self {
            Self::Run(run) => run.before.messages.iter().map(of).sum(),
            Self::Model { call, .. } => {
                let new = content::new_messages(call.request.messages(), false);
                let answer = call.result.iter().flatten();
                let answers = answer.map(|response| of(response.message()));
                new.map(of).chain(answers).sum()
            }
            Self::Tool { call, .. } => {
                let answer = call.result.iter().flatten();
                let answers = answer.map(|response| content::weight(&response.parts()));
                call.request.call().arguments.as_str().len() + answers.sum::<usize>()
            }
        }
    }
}

/// The outermost agents that run, of which content is kept: by the invocation of each, which is
/// another one for each call, also where two runs have the same id.
#[derive(Default)]
pub(crate) struct Roots(Mutex<HashMap<usize, AgentRequest>>);

impl Roots {
    pub(crate) fn enter(&self, agent: &Arc<Invocation>, request: &AgentRequest) {
        // The request keeps the invocation alive, so that no other has its address meanwhile.
        let request = request.clone();
        lock(&self.0).insert(address(agent), request);
    }

    pub(crate) fn leave(&self, agent: &Arc<Invocation>) -> Option<AgentRequest> {
        lock(&self.0).remove(&address(agent))
    }

    /// Returns the conversation of the outermost agent around this one, as it is now.
    pub(crate) fn checkpoint(&self, agent: &Arc<Invocation>) -> Option<Checkpoint> {
        let mut root = agent;
        while let Some(caller) = &root.caller {
            root = caller;
        }
        let request = lock(&self.0).get(&address(root)).cloned();
        request.as_ref().map(checkpoint)
    }
}

fn address(agent: &Arc<Invocation>) -> usize {
    Arc::as_ptr(agent).addr()
}
