//! Entries of a run, made from what is told of it.

use std::collections::HashMap;
use std::sync::Arc;

use tower_agent::call::CallKind;
use tower_agent::error::{Error, ErrorKind, Interrupt};
use tower_agent::stream::{
    CallEnd, CallbackDecision, Event, EventKind, FieldChange, Invocation, ToolCallResult,
    WrapperNote,
};
use tower_agent::{Part, Usage};

use crate::content;
use crate::kept::Kept;
use crate::note::{Call, Ended, What};
use crate::record::{
    Attempt, CallOutcome, Content, Entry, EntryKind, Run, Status, Summary, micros,
};
use crate::saved::Said;

/// The maximum number of entries of one run.
const ENTRIES: usize = 50_000;

/// The maximum length of a name, which a model may have made up, and of a reason, in bytes.
const NAME: usize = 128;

/// The number of reasons of one decision that are kept.
const REASONS: usize = 8;

/// The number of callbacks that a summary names.
const DECIDED: usize = 3;

impl Run {
    pub(crate) fn new(number: u64, id: Arc<str>, shown: Arc<str>, event: &Event) -> Self {
        let bytes = size_of::<Self>() + 2 * id.len();
        Self {
            id,
            summary: Summary {
                number,
                id: shown,
                agent: event.invocation.path.clone(),
                status: Status::Running,
                begun: micros(event.time),
                ended: None,
                error: None,
                waits_for: Vec::new(),
                decided_by: Vec::new(),
                usage: Usage::default(),
                cost: None,
                model_calls: 0,
                tool_calls: 0,
                failed_attempts: 0,
                conversation: None,
                fork_of: None,
                forks: Vec::new(),
                user: None,
                entries: 0,
                left_out: 0,
                version: 0,
            },
            entries: Vec::new(),
            left_out_before: 0,
            bytes,
            content: 0,
            kept: 0,
            stored: None,
            said: Said::default(),
            agents: HashMap::new(),
            turns: HashMap::new(),
            calls: HashMap::new(),
            tools: HashMap::new(),
            open: 0,
        }
    }

    pub(crate) fn has_ended(&self) -> bool {
        self.summary.ended.is_some()
    }

    pub(crate) fn drop_content(&mut self) {
        // It may be asked for with each event that follows.
        if self.content == 0 {
            return;
        }
        for entry in &mut self.entries {
            if entry.content.len() > 0 {
                self.summary.left_out += 1;
                entry.content = Content::default();
            }
        }
        self.bytes -= self.content;
        self.content = 0;
        self.kept = 0;
    }

    /// Drops what is whole; the texts stay.
    pub(crate) fn drop_kept(&mut self) {
        if self.kept == 0 {
            return;
        }
        for entry in &mut self.entries {
            if entry.content.kept.take().is_some() {
                self.summary.left_out += 1;
            }
        }
        self.said = Said::default();
        self.bytes -= self.kept;
        self.content -= self.kept;
        self.kept = 0;
    }

    /// Keeps what is whole of an entry.
    fn keep(&mut self, n: u32, kept: Option<Arc<Kept>>, version: u64) {
        let Some(entry) = self.entries.get_mut(n as usize) else {
            return;
        };
        entry.content.kept = kept;
        entry.version = version;
        let len = entry.content.kept_len();
        self.kept += len;
        self.keeps(len);
    }

    /// Counts a text that was kept.
    fn keeps(&mut self, len: usize) {
        self.content += len;
        self.bytes += len;
    }

    /// Adds an entry, and returns its place. `None` if the run has as many as it may.
    fn push(
        &mut self,
        agent: u32,
        at: u64,
        version: u64,
        call: Option<Arc<str>>,
        kind: EntryKind,
        content: Content,
    ) -> Option<u32> {
        if self.entries.len() >= ENTRIES {
            self.summary.left_out += 1;
            return None;
        }
        let n = u32::try_from(self.entries.len()).ok()?;
        let turn = self
            .turns
            .get(&agent)
            .and_then(|turn| self.entries.get(*turn as usize));
        let turn = turn.and_then(|turn| turn.turn);
        self.keeps(content.len());
        self.bytes += size_of::<Entry>() + kind.len();
        self.bytes += call.as_ref().map_or(0, |call| call.len());
        self.entries.push(Entry {
            n,
            agent,
            turn,
            call,
            at,
            end: None,
            kind,
            content,
            version,
        });
        self.summary.entries = n + 1;
        Some(n)
    }

    pub(crate) fn enter(&mut self, event: &Event, version: u64) {
        let Invocation {
            id,
            path,
            caller,
            tool_call,
            ..
        } = &*event.invocation;
        let caller = caller
            .as_ref()
            .and_then(|caller| self.agents.get(&caller.id))
            .copied();
        let kind = EntryKind::Agent {
            path: path.clone(),
            caller,
            error: None,
            waits_for: Vec::new(),
        };
        let n = u32::try_from(self.entries.len()).unwrap_or(u32::MAX);
        let at = micros(event.time);
        let content = Content::default();
        let Some(n) = self.push(n, at, version, tool_call.clone(), kind, content) else {
            return;
        };
        self.bytes += id.len() + size_of::<(Arc<str>, u32)>();
        self.agents.insert(id.clone(), n);
        if caller.is_none() {
            self.open += 1;
            self.summary.status = Status::Running;
            self.summary.ended = None;
        }
    }

    pub(crate) fn observe(&mut self, agent: u32, event: Event, has_content: bool, version: u64) {
        let at = micros(event.time);
        let mut call = None;
        // Of one that is told when the agent is in another turn already.
        let mut turn = None;
        let mut content = Content::default();
        let kind = match event.kind {
            EventKind::AgentFinished { interrupts, error } => {
                self.leave(agent, at, &interrupts, error.as_ref(), has_content, version);
                return;
            }
            EventKind::StepStarted { iteration } => {
                self.turns.remove(&agent);
                let kind = EntryKind::Turn { finish: None };
                if let Some(n) = self.push(agent, at, version, None, kind, content) {
                    self.entries[n as usize].turn = Some(iteration);
                    self.turns.insert(agent, n);
                }
                return;
            }
            EventKind::StepFinished { finish_reason, .. } => {
                // It stays the current one: what an agent does behind its turn belongs to it.
                let entry = self.turns.get(&agent).copied();
                let entry = entry.and_then(|n| self.entries.get_mut(n as usize));
                if let Some(entry) = entry {
                    entry.end = Some(at);
                    entry.version = version;
                    if let EntryKind::Turn { finish } = &mut entry.kind {
                        *finish = finish_reason.map(|reason| reason.to_string());
                    }
                }
                return;
            }
            EventKind::Usage { usage } => {
                self.summary.usage += *usage;
                return;
            }
            EventKind::Callback(note) => {
                call = note.tool_call.clone();
                self.decided(&note.callback, &note.decision);
                EntryKind::Decision {
                    callback: short(&note.callback),
                    hook: note.hook,
                    on: note.call,
                    attempt: note.attempt,
                    decision: note.decision.clone(),
                    reasons: reasons(&note.reasons),
                    wrapper: note.wrapper,
                }
            }
            EventKind::Wrapper(note) => {
                call = note.tool_call.clone();
                turn = Some(note.iteration).filter(|_| note.call != CallKind::Agent);
                self.acted(&note);
                if has_content {
                    content.input = content::of_changes(&note.request);
                    content.output = content::of_changes(&note.response);
                }
                wrapper(&note)
            }
            EventKind::PrefixChanged(note) => {
                turn = Some(note.iteration);
                EntryKind::Prefix {
                    on: CallKind::Model,
                    attempt: note.attempt,
                    changed: note.changed.clone(),
                    by: note.changed_by.iter().map(|name| short(name)).collect(),
                }
            }
            EventKind::AttemptFailed(failed) => {
                call = failed.tool_call.clone();
                self.summary.failed_attempts += 1;
                EntryKind::Retry {
                    on: failed.call,
                    attempt: failed.attempt,
                    error: failed.error.code(),
                    usage: failed.usage,
                    next: failed.next,
                }
            }
            EventKind::AttemptDiscarded { error, usage, .. } => EntryKind::Discarded {
                error: error.map(ErrorKind::code),
                usage: *usage,
            },
            EventKind::ResponseReplaced { .. } => EntryKind::Replaced,
            EventKind::AnswerRejected { error } => {
                content.output = has_content.then(|| content::of_text(error.message()));
                EntryKind::Rejected {
                    error: error.kind().code(),
                }
            }
            EventKind::Custom { name, value } => {
                content.output = has_content.then(|| content::of_value(&value));
                EntryKind::Event { name: short(&name) }
            }
            EventKind::Note { name, value } => {
                content.output = has_content.then(|| content::of_value(&value));
                EntryKind::Note { name: short(&name) }
            }
            EventKind::ToolResult(result) => {
                self.result(agent, at, *result, has_content, version);
                return;
            }
            _ => return,
        };
        let n = self.push(agent, at, version, call, kind, content);
        if let (Some(n), Some(turn)) = (n, turn) {
            self.entries[n as usize].turn = Some(turn);
        }
    }

    /// Takes in the result of a tool call. That of one which the layers have seen is known by
    /// then; another was answered outside of them, and the tool was not called.
    fn result(
        &mut self,
        agent: u32,
        at: u64,
        result: ToolCallResult,
        has_content: bool,
        version: u64,
    ) {
        if self.tools.contains_key(&result.id) {
            return;
        }
        let kind = EntryKind::Tool {
            name: short(&result.name),
            is_error: result.is_error,
            is_given: true,
            answered_by: result.answered_by,
            end: CallOutcome::default(),
        };
        let mut content = Content::default();
        if has_content {
            let texts: Vec<_> = result.parts.iter().filter_map(Part::as_text).collect();
            content.output = Some(content::of_text(&texts.join("\n")));
        }
        let id = result.id;
        if let Some(n) = self.push(agent, at, version, Some(id.clone()), kind, content) {
            self.summary.tool_calls += 1;
            self.entries[n as usize].end = Some(at);
            self.tools.insert(id, n);
        }
    }

    /// Notes who has decided, if anything was decided.
    fn decided(&mut self, callback: &str, decision: &CallbackDecision) {
        let is_nothing = matches!(
            decision,
            CallbackDecision::Continue | CallbackDecision::Propagate
        );
        if !is_nothing {
            self.decided_by(callback);
        }
    }

    /// Notes a layer that has answered itself, or has made a response of an error or an error of a
    /// response. What the callbacks of a band have decided, they tell themselves.
    fn acted(&mut self, note: &WrapperNote) {
        let has_decided = match (note.inside, note.outside) {
            (_, CallEnd::Dropped) => false,
            (None, _) => true,
            (Some(inside), outside) => is_response(inside) != is_response(outside),
        };
        let layer = note.names.first().and_then(|name| name.strip_prefix('['));
        if let (true, Some(layer)) = (has_decided, layer) {
            self.decided_by(layer.trim_end_matches(']'));
        }
    }

    fn decided_by(&mut self, name: &str) {
        let decided_by = &mut self.summary.decided_by;
        if decided_by.iter().any(|known| **known == *name) {
            return;
        }
        if decided_by.len() == DECIDED {
            decided_by.remove(0);
        }
        decided_by.push(short(name));
    }

    fn leave(
        &mut self,
        agent: u32,
        at: u64,
        interrupts: &[Interrupt],
        failure: Option<&Error>,
        has_content: bool,
        version: u64,
    ) {
        let Some(entry) = self.entries.get_mut(agent as usize) else {
            return;
        };
        let waiting = parties(interrupts);
        let code = failure.map(|error| error.kind().code());
        entry.end = Some(at);
        entry.version = version;
        if let (true, Some(failure)) = (has_content, failure) {
            entry.content.output = Some(content::of_text(failure.message()));
        }
        let kept = entry.content.len();
        if let EntryKind::Agent {
            caller,
            error,
            waits_for,
            ..
        } = &mut entry.kind
        {
            *error = code;
            waits_for.clone_from(&waiting);
            if caller.is_some() {
                self.keeps(kept);
                return;
            }
        }
        self.keeps(kept);
        self.open = self.open.saturating_sub(1);
        if self.open > 0 {
            return;
        }
        let summary = &mut self.summary;
        summary.ended = Some(at);
        summary.error = code;
        summary.status = match failure.map(Error::kind) {
            Some(ErrorKind::Cancelled) => Status::Cancelled,
            Some(_) => Status::Failed,
            None if interrupts.is_empty() => Status::Completed,
            None => Status::Waiting,
        };
        summary.waits_for = waiting;
    }

    pub(crate) fn note(&mut self, agent: u32, at: u64, what: What, version: u64) {
        match what {
            What::About {
                user,
                conversation,
                fork_of,
                kept,
            } => {
                self.summary.user = user;
                self.summary.conversation = conversation;
                self.summary.fork_of = fork_of;
                self.keep(agent, kept, version);
            }
            What::Left { after } => {
                let entry = self.entries.get_mut(agent as usize);
                if let Some(entry) = entry
                    && let Some(Kept::Run(run)) = entry.content.kept.as_deref()
                {
                    let mut run = run.clone();
                    run.after = Some(*after);
                    entry.content.kept = Some(Arc::new(Kept::Run(run)));
                    entry.version = version;
                }
            }
            What::Begun {
                number,
                turn,
                call,
                input,
            } => {
                let content = Content::of_input(input);
                // It has its result already if the clock was set back meanwhile.
                if let Call::Tool { id: Some(id), .. } = &call
                    && let Some(n) = self.tools.get(id)
                {
                    self.calls.insert(number, *n);
                    return;
                }
                let (id, kind) = match call {
                    Call::Model { is_streamed } => {
                        self.summary.model_calls += 1;
                        let kind = EntryKind::Model {
                            provider: None,
                            model: None,
                            is_streamed,
                            is_given: false,
                            finish: None,
                            end: CallOutcome::default(),
                        };
                        (None, kind)
                    }
                    Call::Tool { id, name } => {
                        self.summary.tool_calls += 1;
                        let kind = EntryKind::Tool {
                            name: short(&name),
                            is_error: false,
                            is_given: false,
                            answered_by: Vec::new(),
                            end: CallOutcome::default(),
                        };
                        (id, kind)
                    }
                };
                if let Some(n) = self.push(agent, at, version, id.clone(), kind, content) {
                    self.entries[n as usize].turn = Some(turn);
                    self.calls.insert(number, n);
                    self.tools.extend(id.map(|id| (id, n)));
                }
            }
            What::Ended { number, end } => self.end_call(number, at, end, version),
        }
    }

    fn end_call(&mut self, number: u64, at: u64, ended: Ended, version: u64) {
        let n = self.calls.remove(&number);
        let Some(entry) = n.and_then(|n| self.entries.get_mut(n as usize)) else {
            return;
        };
        entry.end = Some(at);
        entry.version = version;
        let before = entry.content.len();
        entry.content.output = ended.output;
        let kept = entry.content.len().saturating_sub(before);
        let attempts: Vec<Attempt> = ended.attempts.into_iter().map(Into::into).collect();
        // A model call alone: those inside a tool call are entries of their own.
        if let EntryKind::Model { .. } = entry.kind {
            for cost in attempts.iter().filter_map(|attempt| attempt.cost) {
                *self.summary.cost.get_or_insert(0.0) += cost;
            }
        }
        let call_end = CallOutcome {
            error: ended.error,
            attempts,
        };
        match &mut entry.kind {
            EntryKind::Model {
                provider,
                model,
                is_given,
                finish,
                end,
                ..
            } => {
                *provider = ended.provider;
                *model = ended.model.as_deref().map(short);
                *is_given = ended.is_given;
                *finish = ended.finish;
                *end = call_end;
            }
            EntryKind::Tool {
                is_error,
                is_given,
                answered_by,
                end,
                ..
            } => {
                *is_error = ended.is_error;
                *is_given = ended.is_given;
                *answered_by = ended.answered_by;
                *end = call_end;
            }
            _ => {}
        }
        self.bytes += entry.kind.len();
        self.keeps(kept);
        if let Some(n) = n {
            self.keep(n, ended.kept, version);
        }
    }
}

fn is_response(end: CallEnd) -> bool {
    end == CallEnd::Response
}

/// Returns the part of a wrapper's note that is kept: not the name of a tool, which its call has.
fn wrapper(note: &WrapperNote) -> EntryKind {
    EntryKind::Wrapper {
        on: note.call,
        index: note.index,
        names: note.names.iter().map(|name| short(name)).collect(),
        attempt: note.attempt,
        did: note.deeds(),
        reasons: reasons(&note.reasons),
        request: without_texts(&note.request),
        response: without_texts(&note.response),
        own_time: u64::try_from(note.own_time.as_micros()).unwrap_or(u64::MAX),
    }
}

/// Returns what was changed without its texts, which are content.
fn without_texts(changes: &[FieldChange]) -> Vec<FieldChange> {
    let mut changes = changes.to_vec();
    for change in &mut changes {
        change.texts = None;
    }
    changes
}

/// Returns the first few reasons.
fn reasons(given: &[Arc<str>]) -> Vec<Arc<str>> {
    let first = given.iter().take(REASONS);
    first.map(|reason| short(reason)).collect()
}

/// Returns the parties that are asked: `user`, or a role.
fn parties(interrupts: &[Interrupt]) -> Vec<Arc<str>> {
    let mut parties: Vec<Arc<str>> = Vec::new();
    for interrupt in interrupts {
        let party = interrupt.answerer.role().unwrap_or("user");
        if !parties.iter().any(|known| **known == *party) {
            parties.push(short(party));
        }
    }
    parties
}

/// Returns the beginning of a name, which a model may have made up.
fn short(name: &str) -> Arc<str> {
    content::beginning(name, NAME).into()
}
