//! Decides which parts of an input are accepted, by the rules in the crate's [table](crate#trust).

use std::collections::{BTreeSet, HashMap, HashSet};
use std::sync::Arc;

use super::account;
use super::thread::{Answered, Answers, Entry, Speaker, Thread};
use crate::wire::{
    InputError, InputErrorKind, Message, MessageKind, ResumeEntry, ResumeStatus, RunAgentInput,
};
use tower_agent::agent::AgentRequest;
use tower_agent::error::{Resolution, ResolutionOutcome};
use tower_agent::message::{self, Part, ToolCall, ToolResult};

/// The start of a run.
#[derive(Debug)]
pub(super) struct Taken {
    /// The thread with the accepted input.
    pub(super) thread: Thread,
    pub(super) request: AgentRequest,
}

/// The exceptions that a server allows its clients.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Allowed {
    /// An input without known messages continues the conversation.
    pub(crate) partial_history: bool,
    /// The answers to interrupts that are for an operator.
    pub(crate) operator_answers: bool,
}

/// Takes the input of a thread that the server does not know.
pub(super) fn begin(input: &RunAgentInput) -> Result<Taken, InputError> {
    for (index, entry) in input.resume.iter().enumerate() {
        if entry.status == ResumeStatus::Resolved {
            return Err(not_open(index, entry));
        }
    }
    let mut thread = Thread::default();
    account::read(&input.messages, &mut thread)?;
    thread.branch = (0..thread.log.len()).collect();
    let request = AgentRequest::resume(thread.checkpoint());
    Ok(Taken { thread, request })
}

/// Takes the input of a thread that the server knows. `is_lost` means that the progress of the
/// latest run is unknown, so no call that it may have started is repeated.
pub(super) fn go_on(
    mut thread: Thread,
    input: &RunAgentInput,
    is_lost: bool,
    allowed: Allowed,
) -> Result<Taken, InputError> {
    thread.is_cut |= is_lost;
    let mut told = Told::read(&thread, &input.messages)?;
    if allowed.partial_history && told.kept.is_empty() {
        told.keep_all(&thread);
    }
    let mut stand = Answers::of(&thread);
    let (stays, unheard) = told.stays(&thread, &stand);
    thread.unheard = unheard;
    let answers = told.answers(&thread, &stand, &stays)?;
    let is_whole = !is_lost
        && thread.branch.iter().copied().collect::<BTreeSet<_>>() == stays
        && told.new.iter().all(|(after, _)| *after == told.last);
    let answered = answered(&thread, input, allowed)?;
    let speaks = !told.new.is_empty();
    let is_answer =
        |answered: &&Answered| matches!(answered.answer.outcome, ResolutionOutcome::Resolved(_));
    let mut answers_now = answered.iter().filter(is_answer);
    // A repeated input may omit the messages of the run that broke off.
    let is_open = |answered: &Answered| thread.open.iter().any(|open| open.id == answered.id);
    if answers_now.any(|answered| speaks || !is_whole && is_open(answered)) {
        let why = "an interrupt must be answered in the conversation that raised it: omit new \
                   messages, and send the dropped ones";
        return Err(InputError::new("resume", why).of(InputErrorKind::NotOpen));
    }

    let mut new: HashMap<Option<usize>, Vec<usize>> = HashMap::new();
    let last = told.last;
    for (after, entry) in told.new {
        new.entry(after).or_default().push(thread.push(entry));
    }
    let mut branch = if is_whole {
        thread.branch.clone()
    } else {
        let mut branch = new.remove(&None).unwrap_or_default();
        for index in stays
            .into_iter()
            .filter(|index| !is_answer_of(&thread, *index))
        {
            branch.push(index);
            branch.extend(new.remove(&Some(index)).unwrap_or_default());
        }
        branch
    };
    branch.extend(new.remove(&last).unwrap_or_default());
    let mut fresh = HashSet::new();
    for entry in answers {
        let index = thread.push(entry);
        if let Some(old) = stand.note(&thread, index) {
            branch.retain(|index| *index != old);
        }
        fresh.insert(index);
    }
    if !is_whole {
        close(&mut thread, &mut stand, &branch);
        thread.head = thread.head.for_branch();
    }
    let is_wanted = |index: usize| !is_whole || fresh.contains(&index);
    thread.branch = with_answers(&thread, &stand, &branch, is_wanted);
    let goes_on = is_whole && !speaks;
    let mut resolutions = Vec::new();
    if goes_on {
        resolutions.extend(answered.iter().map(|answered| answered.answer.clone()));
    }
    thread
        .open
        .retain(|open| goes_on && !answered.iter().any(|answered| answered.id == open.id));
    thread.answered = answered;
    let request = AgentRequest::resume(thread.checkpoint()).with_resolutions(resolutions);
    Ok(Taken { thread, request })
}

fn is_answer_of(thread: &Thread, index: usize) -> bool {
    thread
        .entry(index)
        .is_some_and(|entry| entry.answers.is_some())
}

/// The input for a known thread.
struct Told<'a> {
    /// The messages that the client has kept.
    kept: BTreeSet<usize>,
    last: Option<usize>,
    /// New messages, and what each follows.
    new: Vec<(Option<usize>, Entry)>,
    tools: Vec<(usize, &'a Message)>,
    /// Calls of messages that are not part of the conversation.
    left_out: HashSet<&'a str>,
}

impl<'a> Told<'a> {
    fn read(thread: &Thread, messages: &'a [Message]) -> Result<Self, InputError> {
        let mut names = HashMap::new();
        for (index, entry) in thread.log.iter().enumerate() {
            if let Some(id) = &entry.id {
                names.insert((entry.speaker, &**id), index);
            }
        }
        let mut told = Self {
            kept: BTreeSet::new(),
            last: None,
            new: Vec::new(),
            tools: Vec::new(),
            left_out: HashSet::new(),
        };
        let mut said = HashSet::new();
        for (index, message) in messages.iter().enumerate() {
            if message.subagent_run_id.is_some() {
                told.left_out
                    .extend(message.tool_calls().iter().map(|call| &*call.id));
                continue;
            }
            let speaker = match &message.kind {
                MessageKind::Activity { .. } => continue,
                MessageKind::User { .. } => Speaker::User,
                MessageKind::System { .. } | MessageKind::Developer { .. } => Speaker::System,
                MessageKind::Assistant { .. } | MessageKind::Reasoning { .. } => Speaker::Assistant,
                MessageKind::Tool { .. } => Speaker::Tool,
            };
            if let Some(&known) = names.get(&(speaker, &*message.id))
                && !is_answer_of(thread, known)
            {
                told.kept.insert(known);
                told.last = told.last.max(Some(known));
                continue;
            }
            match speaker {
                Speaker::User | Speaker::System => {
                    if said.insert((speaker, &*message.id)) {
                        let read = account::words(message, index)?;
                        let read = account::with_id_of(message, thread, read);
                        let entry = Entry::new(Some(message.id.clone()), speaker, read);
                        told.new.push((told.last, entry));
                    }
                }
                Speaker::Tool => told.tools.push((index, message)),
                Speaker::Assistant if is_of_a_run(thread, &message.id) => {
                    told.left_out
                        .extend(message.tool_calls().iter().map(|call| &*call.id));
                }
                Speaker::Assistant => {
                    let why = format!(
                        "the agent has said no message `{}` in this thread: only the server knows \
                         what it says",
                        message.id
                    );
                    return Err(forbidden(format!("messages[{index}].id"), why));
                }
            }
        }
        Ok(told)
    }

    /// Keeps the whole conversation, which the new messages follow.
    fn keep_all(&mut self, thread: &Thread) {
        let is_told = |index: &&usize| {
            thread
                .entry(**index)
                .is_some_and(|entry| entry.id.is_some() && entry.answers.is_none())
        };
        self.kept = thread.branch.iter().filter(is_told).copied().collect();
        self.last = self.kept.last().copied();
        let last = self.last;
        self.new.iter_mut().for_each(|(after, _)| *after = last);
    }

    /// Returns the part of the log that is kept: what the client has kept and what belongs to it,
    /// then what the client never received.
    fn stays(&self, thread: &Thread, stand: &Answers) -> (BTreeSet<usize>, BTreeSet<usize>) {
        let mut stays = BTreeSet::new();
        let mut unheard = &thread.unheard - &self.kept;
        let mut before = true;
        // A run that broke off may have done work that the client was not told about.
        let mut of_cut = thread.is_cut;
        for &index in &thread.branch {
            let Some(entry) = thread.entry(index) else {
                continue;
            };
            let here = match (&entry.id, entry.answers) {
                (_, Some(asks)) => stays.contains(&asks),
                (Some(_), None) => self.kept.contains(&index),
                (None, None) => before,
            };
            let is_of_cut = index >= thread.run_from;
            of_cut &= is_of_cut || here;
            let is_done = of_cut && is_of_cut && entry.asks_server();
            if !here && is_done {
                unheard.insert(index);
            }
            let here = here || is_done || before && unheard.contains(&index);
            if here {
                stays.insert(index);
            }
            if entry.answers.is_none() {
                before = here;
            }
        }
        // From another branch: what the client has kept of it, and the results of its calls.
        stays.extend(self.kept.iter().copied());
        let answers = stand.by_asking();
        let asking: Vec<_> = stays.iter().copied().collect();
        stays.retain(|index| !is_answer_of(thread, *index));
        stays.extend(asking.iter().flat_map(|asks| answers.get(asks)).flatten());
        (stays, unheard)
    }

    /// Takes the results of the client's own calls.
    fn answers(
        &self,
        thread: &Thread,
        stand: &Answers,
        stays: &BTreeSet<usize>,
    ) -> Result<Vec<Entry>, InputError> {
        let mut calls: HashMap<&str, (usize, usize)> = HashMap::new();
        for (at, entry) in thread.log.iter().enumerate() {
            for (number, call) in entry.calls.iter().enumerate() {
                let is_better = stays.contains(&at)
                    || calls
                        .get(&*call.wire)
                        .is_none_or(|(other, _)| !stays.contains(other));
                if is_better {
                    calls.insert(&call.wire, (at, number));
                }
            }
        }
        let mut answers = Vec::new();
        let mut answered = HashMap::new();
        for &(index, message) in &self.tools {
            let MessageKind::Tool { tool_call_id, .. } = &message.kind else {
                continue;
            };
            let path = || format!("messages[{index}].toolCallId");
            let Some(&(asks, number)) = calls.get(&**tool_call_id) else {
                if self.left_out.contains(&**tool_call_id) {
                    continue;
                }
                let why = format!("no message contains the call `{tool_call_id}`");
                return Err(forbidden(path(), why));
            };
            let Some(entry) = thread.entry(asks).filter(|_| stays.contains(&asks)) else {
                // It was dropped with the message that contains it.
                continue;
            };
            let call = &entry.calls[number];
            let known = stand
                .to(asks, &call.id)
                .and_then(|index| thread.entry(index));
            match (known, call.is_client) {
                // The server's own result counts, whatever the client has changed.
                (Some(_), false) => continue,
                (Some(known), true) if known.id.as_ref() == Some(&message.id) => continue,
                (None, false) => {
                    let why =
                        format!("only the server may set the result of the call `{tool_call_id}`");
                    return Err(forbidden(path(), why));
                }
                (_, true) => {}
            }
            if let Some(earlier) = answered.insert((asks, number), &message.id) {
                if *earlier == message.id {
                    // The same message again.
                    continue;
                }
                let why = format!("there are two results for the call `{tool_call_id}`");
                return Err(InputError::new(path(), why));
            }
            let mut asked = entry.message.iter().flat_map(message::Message::tool_calls);
            let Some(asked) = asked.find(|asked| asked.id == call.id) else {
                continue;
            };
            let (parts, is_failed) = account::tool_answer(message, index)?;
            let result = ToolResult::new(asked, parts);
            let result = if is_failed { result.failed() } else { result };
            let said = account::with_id_of(message, thread, message::Message::tool(result));
            let answer = Entry::new(Some(message.id.clone()), Speaker::Tool, said);
            answers.push(answer.answering(Some(asks)));
        }
        Ok(answers)
    }
}

/// Returns whether it comes from a run of this thread and was discarded or broke off.
fn is_of_a_run(thread: &Thread, id: &str) -> bool {
    let is_its = |run: &Arc<str>| {
        id.strip_prefix(&**run)
            .is_some_and(|rest| rest.starts_with(['-', '+', '/']))
    };
    thread.runs.iter().any(is_its)
}

/// Closes the server's calls in a branch that was abandoned.
fn close(thread: &mut Thread, stand: &mut Answers, branch: &[usize]) {
    let mut closed = Vec::new();
    for &asks in branch {
        let Some(entry) = thread.entry(asks) else {
            continue;
        };
        let is_open = |call: &&ToolCall| {
            let is_server = entry
                .calls
                .iter()
                .any(|asked| asked.id == call.id && !asked.is_client);
            is_server && stand.to(asks, &call.id).is_none()
        };
        let calls = entry.message.iter().flat_map(message::Message::tool_calls);
        for call in calls.filter(is_open) {
            let why = "no result: the conversation continued without this call";
            let result = ToolResult::new(call, [Part::from_text(why)]).failed();
            let answer = Entry::new(None, Speaker::Tool, message::Message::tool(result));
            closed.push(answer.answering(Some(asks)));
        }
    }
    for answer in closed {
        let index = thread.push(answer);
        stand.note(thread, index);
    }
}

/// Returns the branch with the selected results, each after the message with its call. The results of
/// a message are in the order of its calls.
fn with_answers(
    thread: &Thread,
    stand: &Answers,
    branch: &[usize],
    is_wanted: impl Fn(usize) -> bool,
) -> Vec<usize> {
    let mut answers = stand.by_asking();
    let mut all = Vec::with_capacity(branch.len());
    let mut results = Vec::new();
    let add = |all: &mut Vec<usize>, results: &mut Vec<usize>| {
        results.sort_by_key(|index| thread.answered_call(*index));
        all.append(results);
    };
    for &index in branch {
        if is_answer_of(thread, index) {
            results.push(index);
        } else {
            add(&mut all, &mut results);
            all.push(index);
        }
        let wanted = answers.remove(&index).unwrap_or_default();
        results.extend(wanted.into_iter().filter(|index| is_wanted(*index)));
    }
    add(&mut all, &mut results);
    all
}

/// Takes the answers to the thread's open interrupts.
fn answered(
    thread: &Thread,
    input: &RunAgentInput,
    allowed: Allowed,
) -> Result<Vec<Answered>, InputError> {
    let mut answered = Vec::new();
    for (index, entry) in input.resume.iter().enumerate() {
        let id = &entry.interrupt_id;
        if let Some(open) = thread.open.iter().find(|open| open.id == *id) {
            let pending = open.pending.as_str();
            let answer = match entry.status {
                ResumeStatus::Cancelled => Resolution::cancelled(pending),
                ResumeStatus::Resolved if open.is_for_operator && !allowed.operator_answers => {
                    let why =
                        format!("only an operator can answer the interrupt `{id}`: cancel it");
                    return Err(InputError::of_answer(index, why).of(InputErrorKind::Forbidden));
                }
                ResumeStatus::Resolved => {
                    Resolution::resolved(pending, entry.payload.clone().unwrap_or_default())
                }
            };
            answered.push(Answered {
                id: id.clone(),
                answer,
            });
        } else if let Some(first) = thread
            .answered
            .iter()
            .find(|answered| thread.is_cut && answered.id == *id)
        {
            // The run broke off. Its answer still counts for the calls that it did not start.
            answered.push(first.clone());
        } else if entry.status == ResumeStatus::Resolved {
            return Err(not_open(index, entry));
        }
    }
    Ok(answered)
}

fn not_open(index: usize, entry: &ResumeEntry) -> InputError {
    let why = format!(
        "the interrupt `{}` is not open in this thread: it was answered, abandoned or never raised",
        entry.interrupt_id
    );
    InputError::of_answer(index, why).of(InputErrorKind::NotOpen)
}

fn forbidden(path: String, why: String) -> InputError {
    InputError::new(path, why).of(InputErrorKind::Forbidden)
}
