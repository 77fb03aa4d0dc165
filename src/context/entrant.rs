use std::sync::Arc;

use super::inherited::Inherited;
use super::node;
use super::place::RecordPlace;
use super::run_context::RunContext;
use super::scope::Scope;
use crate::conversation::ConversationRecord;
use crate::stream::Observer;

/// An agent that is called in another's context, before its own context exists.
pub(crate) struct Entrant<'a> {
    caller: &'a RunContext,
    pub(crate) scope: Scope,
}

impl<'a> Entrant<'a> {
    /// Creates it for the agent with this name. `is_member` if a team calls it.
    pub(crate) fn new(
        caller: &'a RunContext,
        agent: &str,
        is_member: bool,
        inherited: Inherited,
    ) -> Self {
        let parent = &caller.scope;
        // Changes before the first agent belong to the request, not to the stream of the run.
        parent.run.begin();
        let path = node::below(&parent.node.path, agent);
        let mut scope = Scope::within(parent, path, caller.tool_call.clone());
        scope.node.is_member = is_member;
        scope.settings.inherited = inherited;
        Self { caller, scope }
    }

    /// Sets how many model calls the agent may make, and how many agents may be nested inside it.
    pub(crate) fn limit(&mut self, max_iterations: u32, max_nesting: Option<u32>) {
        let settings = &mut self.scope.settings;
        settings.max_iterations = max_iterations;
        settings.nesting = settings.nesting.inside(max_nesting);
    }

    pub(crate) fn join(&mut self, at: usize) {
        self.scope.place = self.caller.place().joined(self.scope.node.name(), at);
    }

    pub(crate) fn take_over(&mut self) {
        self.scope.place = self.caller.place().taken_over(self.scope.node.name());
    }

    /// Numbers an agent that is about to open a conversation of its own.
    pub(crate) fn count(&mut self) {
        self.scope.node.number = self.scope.number();
    }

    /// Returns the part that the ids of a conversation's messages share: the same whenever this run
    /// is made, and another one for every other conversation of the run.
    pub(crate) fn id_prefix(&self) -> Arc<str> {
        let scope = &self.scope;
        let run = match &self.caller.listeners().emitter {
            Some(emitter) => emitter.run_name(),
            None => &scope.run.id,
        };
        if scope.is_outermost() {
            return match scope.run.next_conversation() {
                // Most runs have one conversation, whose ids then need no number.
                0 => run.clone(),
                number => format!("{run}+{number}").into(),
            };
        }
        let path = scope.path_of_call(self.caller.tool_call.as_ref(), true);
        format!("{run}/{path}").into()
    }

    pub(crate) fn open(&mut self, record: ConversationRecord) {
        // Data about calls of which none is open any more, for example after a user message: a
        // later call may have the same path as one that is in no transcript.
        let private = self.caller.private_state();
        let has_data = private.has_data_about_calls();
        if has_data && self.scope.is_outermost() && !record.has_open_calls() {
            private.forget_calls();
        }
        // What the members of a parallel team say becomes part of the team's conversation.
        let above = if self.scope.node.is_member {
            self.caller.place().author_path()
        } else {
            Arc::default()
        };
        self.scope.place = RecordPlace::opened(record, self.scope.node.name(), above);
    }

    /// Returns the agent's context, with these observers and those who listen to the caller.
    pub(crate) fn told(mut self, observers: &[Observer], goes_on: bool) -> RunContext {
        let Self { caller, scope } = &mut self;
        let run = || scope.run.observed();
        let tool_call = || Some(caller.tool_call.as_ref()?.name().in_stream());
        let above = caller.listeners();
        scope.listeners = above.enter(observers, run, &scope.node.path, tool_call, goes_on);
        RunContext {
            tool_call: caller.tool_call.clone(),
            carried: caller
                .carried
                .as_ref()
                .and_then(|carried| carried.in_agent()),
            ..RunContext::from(self.scope)
        }
    }
}
