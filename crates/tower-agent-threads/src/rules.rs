//! Decides which parts of a client's input are accepted, by the [rules](crate#rules).

use std::collections::{BTreeSet, HashMap, HashSet};

use tower_agent::agent::AgentRequest;
use tower_agent::error::{Resolution, ResolutionOutcome};
use tower_agent::message::{Message, Part, Role, ToolCall, ToolResult};

use crate::account;
use crate::client::{ClientInput, ClientMessage, ClientRole};
use crate::refusal::{InputPart, Refusal, RefusalKind};
use crate::results::Results;
use crate::thread::{Answered, Entry, Speaker, Thread};

/// The start of a run.
#[derive(Debug)]
pub(crate) struct Accepted {
    /// The thread with the accepted input.
    pub(crate) thread: Thread,
    pub(crate) request: AgentRequest,
}

/// The exceptions that a server allows its clients.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Allowed {
    /// An input without known messages continues the conversation.
    pub(crate) partial_history: bool,
    /// The answers to interrupts that are for an operator.
    pub(crate) operator_answers: bool,
}

/// Accepts the input of a thread that the server does not know.
pub(crate) fn begin<M: ClientMessage>(input: &ClientInput<'_, M>) -> Result<Accepted, M::Error> {
    for (index, answer) in input.answers.iter().enumerate() {
        if is_resolved(answer) {
            return Err(not_open(index, answer).into());
        }
    }
    let mut thread = Thread::default();
    account::read(input.messages, &mut thread)?;
    thread.branch = (0..thread.log.len()).collect();
    let request = AgentRequest::resume(thread.checkpoint());
    Ok(Accepted { thread, request })
}

/// Accepts the input of a thread that the server knows. `is_lost` means that the progress of the
/// latest run is unknown, so no call that it may have started is repeated.
pub(crate) fn go_on<M: ClientMessage>(
    mut thread: Thread,
    input: &ClientInput<'_, M>,
    is_lost: bool,
    allowed: Allowed,
) -> Result<Accepted, M::Error> {
    thread.is_cut |= is_lost;
    let mut sent = Sent::read(&thread, input.messages)?;
    if allowed.partial_history && sent.known.is_empty() {
        sent.add_all_known(&thread);
    }
    let mut results = Results::of(&thread);
    let (staying, unheard) = sent.staying(&thread, &results);
    thread.unheard = unheard;
    let new_results = sent.results(&thread, &results, &staying)?;
    // Only then does the run go on where the last one stopped; otherwise it is another branch.
    let is_whole = !is_lost
        && thread.branch.iter().copied().collect::<BTreeSet<_>>() == staying
        && sent.new.iter().all(|(after, _)| *after == sent.last);
    let answered = answered(&thread, &input.answers, allowed)?;
    let has_new_messages = !sent.new.is_empty();
    // A repeated input may omit the messages of the run that broke off.
    let is_open = |id: &str| thread.open.iter().any(|open| *open.id == *id);
    let mut resolved = answered
        .iter()
        .filter(|answered| is_resolved(&answered.answer));
    if resolved.any(|answered| has_new_messages || !is_whole && is_open(&answered.id)) {
        let why = "an interrupt must be answered in the conversation that raised it: omit new \
                   messages, and send the dropped ones";
        return Err(Refusal::new(RefusalKind::NotOpen, InputPart::Answers, why).into());
    }

    let mut new: HashMap<Option<usize>, Vec<usize>> = HashMap::new();
    let last = sent.last;
    for (after, entry) in sent.new {
        new.entry(after).or_default().push(thread.push(entry));
    }
    let mut branch = if is_whole {
        thread.branch.clone()
    } else {
        // Results follow below, each after the message with its call.
        let mut branch = new.remove(&None).unwrap_or_default();
        for index in staying
            .into_iter()
            .filter(|index| !thread.is_result(*index))
        {
            branch.push(index);
            branch.extend(new.remove(&Some(index)).unwrap_or_default());
        }
        branch
    };
    branch.extend(new.remove(&last).unwrap_or_default());
    let mut fresh = HashSet::new();
    for entry in new_results {
        let index = thread.push(entry);
        if let Some(replaced) = results.note(&thread, index) {
            branch.retain(|index| *index != replaced);
        }
        fresh.insert(index);
    }
    if !is_whole {
        // Nobody continues the calls of the branch that is left.
        close(&mut thread, &mut results, &branch);
        thread.head = thread.head.for_branch();
    }
    let is_wanted = |index: usize| !is_whole || fresh.contains(&index);
    thread.branch = with_results(&thread, &results, &branch, is_wanted);
    let goes_on = is_whole && !has_new_messages;
    let mut resolutions = Vec::new();
    if goes_on {
        resolutions.extend(answered.iter().map(|answered| answered.answer.clone()));
    }
    thread
        .open
        .retain(|open| goes_on && !answered.iter().any(|answered| answered.id == open.id));
    thread.answered = answered;
    let request = AgentRequest::resume(thread.checkpoint()).with_resolutions(resolutions);
    Ok(Accepted { thread, request })
}

/// The client's messages for a known thread.
struct Sent<'a, M> {
    /// The messages of the thread that the client has sent.
    known: BTreeSet<usize>,
    /// The last of them.
    last: Option<usize>,
    /// New messages, and the known message that each follows.
    new: Vec<(Option<usize>, Entry)>,
    results: Vec<SentResult<'a, M>>,
    /// Calls of messages that are not part of the conversation.
    left_out: HashSet<&'a str>,
}

/// The result of a call, as the client has sent it.
struct SentResult<'a, M> {
    message: &'a M,
    /// The index of the message in the input.
    index: usize,
    /// The client's id of the call.
    call: &'a str,
    is_failed: bool,
}

impl<'a, M: ClientMessage> Sent<'a, M> {
    fn read(thread: &Thread, messages: &'a [M]) -> Result<Self, M::Error> {
        let mut entries = HashMap::new();
        for (index, entry) in thread.log.iter().enumerate() {
            if let Some(id) = &entry.id {
                entries.insert((entry.speaker, &**id), index);
            }
        }
        let mut sent = Self {
            known: BTreeSet::new(),
            last: None,
            new: Vec::new(),
            results: Vec::new(),
            left_out: HashSet::new(),
        };
        let mut seen = HashSet::new();
        for (index, message) in messages.iter().enumerate() {
            let role = message.role();
            let speaker = match role {
                ClientRole::System => Speaker::System,
                ClientRole::User => Speaker::User,
                ClientRole::Assistant(_) => Speaker::Assistant,
                ClientRole::Tool { .. } => Speaker::Tool,
                ClientRole::Outside => {
                    sent.leave_out(message);
                    continue;
                }
            };
            let id = message.id();
            // The server's own version counts, whatever the client has made of the message.
            if let Some(&known) = entries.get(&(speaker, id))
                && !thread.is_result(known)
            {
                sent.known.insert(known);
                sent.last = sent.last.max(Some(known));
                continue;
            }
            let words = match role {
                ClientRole::System => Role::System,
                ClientRole::User => Role::User,
                ClientRole::Tool { call, is_failed } => {
                    sent.results.push(SentResult {
                        message,
                        index,
                        call,
                        is_failed,
                    });
                    continue;
                }
                _ if thread.is_of_a_run(id) => {
                    // Of a run that broke off, or an attempt that was discarded.
                    sent.leave_out(message);
                    continue;
                }
                _ => {
                    let why = format!(
                        "the agent has said no message `{id}` in this thread: only the server knows \
                         what it says"
                    );
                    return Err(Refusal::forbidden(InputPart::Message(index), why).into());
                }
            };
            // Sent twice, it was said once.
            if seen.insert((speaker, id)) {
                let words = account::words(message, words, index, thread)?;
                let entry = Entry::new(Some(id.into()), speaker, words);
                sent.new.push((sent.last, entry));
            }
        }
        Ok(sent)
    }

    fn leave_out(&mut self, message: &'a M) {
        let calls = message.calls().into_iter();
        self.left_out.extend(calls.map(|call| call.id));
    }

    /// Adds the whole conversation, which the new messages then follow.
    fn add_all_known(&mut self, thread: &Thread) {
        let is_sent_back = |index: &&usize| {
            thread
                .entry(**index)
                .is_some_and(|entry| entry.id.is_some() && entry.answers.is_none())
        };
        self.known = thread.branch.iter().filter(is_sent_back).copied().collect();
        self.last = self.known.last().copied();
        for (after, _) in &mut self.new {
            *after = self.last;
        }
    }

    /// Returns the part of the log that stays: the messages that the client has sent with those that
    /// belong to them, and the messages that the client never received.
    fn staying(&self, thread: &Thread, results: &Results) -> (BTreeSet<usize>, BTreeSet<usize>) {
        let mut staying = BTreeSet::new();
        let mut unheard = &thread.unheard - &self.known;
        let mut has_previous = true;
        // A run that broke off may have done work that the client was not told about.
        let mut of_cut = thread.is_cut;
        for &index in &thread.branch {
            let Some(entry) = thread.entry(index) else {
                continue;
            };
            let stays = match (&entry.id, entry.answers) {
                (_, Some(calling)) => staying.contains(&calling),
                (Some(_), None) => self.known.contains(&index),
                (None, None) => has_previous,
            };
            let is_of_cut = index >= thread.run_from;
            of_cut &= is_of_cut || stays;
            let is_done = of_cut && is_of_cut && entry.calls_server();
            if !stays && is_done {
                unheard.insert(index);
            }
            let stays = stays || is_done || has_previous && unheard.contains(&index);
            if stays {
                staying.insert(index);
            }
            if entry.answers.is_none() {
                has_previous = stays;
            }
        }
        // From another branch: the messages that the client has sent, and the results of their calls.
        staying.extend(self.known.iter().copied());
        let results = results.by_message();
        let calling: Vec<_> = staying.iter().copied().collect();
        staying.retain(|index| !thread.is_result(*index));
        staying.extend(calling.iter().filter_map(|at| results.get(at)).flatten());
        (staying, unheard)
    }

    /// Accepts the results of the client's own calls.
    fn results(
        &self,
        thread: &Thread,
        results: &Results,
        staying: &BTreeSet<usize>,
    ) -> Result<Vec<Entry>, M::Error> {
        let mut calls: HashMap<&str, (usize, usize)> = HashMap::new();
        for (at, entry) in thread.log.iter().enumerate() {
            for (number, call) in entry.calls.iter().enumerate() {
                // The same call may stand in a message that was stored again: the one that stays counts.
                let is_better = staying.contains(&at)
                    || calls
                        .get(&*call.client_id)
                        .is_none_or(|(other, _)| !staying.contains(other));
                if is_better {
                    calls.insert(&call.client_id, (at, number));
                }
            }
        }
        let mut accepted = Vec::new();
        let mut answered = HashMap::new();
        for result in &self.results {
            let message = result.message;
            let part = InputPart::Call(result.index);
            let Some(&(calling, number)) = calls.get(result.call) else {
                if self.left_out.contains(result.call) {
                    continue;
                }
                let why = format!("no message contains the call `{}`", result.call);
                return Err(Refusal::forbidden(part, why).into());
            };
            let Some(entry) = thread.entry(calling).filter(|_| staying.contains(&calling)) else {
                // It was dropped with the message that contains it.
                continue;
            };
            let call = &entry.calls[number];
            let known = results
                .get(calling, &call.id)
                .and_then(|index| thread.entry(index));
            match (known, call.is_client) {
                // The server's own result counts, whatever the client has changed.
                (Some(_), false) => continue,
                (Some(known), true) if known.id.as_deref() == Some(message.id()) => continue,
                (None, false) => {
                    let why = format!(
                        "only the server may set the result of the call `{}`",
                        result.call
                    );
                    return Err(Refusal::forbidden(part, why).into());
                }
                (_, true) => {}
            }
            if let Some(earlier) = answered.insert((calling, number), message.id()) {
                if earlier == message.id() {
                    // The same message again.
                    continue;
                }
                let why = format!("there are two results for the call `{}`", result.call);
                return Err(Refusal::new(RefusalKind::Invalid, part, why).into());
            }
            let mut sent_calls = entry.message.iter().flat_map(Message::tool_calls);
            let Some(sent_call) = sent_calls.find(|sent_call| sent_call.id == call.id) else {
                continue;
            };
            let parts = account::parts(message, result.index)?;
            let mut answer = ToolResult::new(sent_call, parts);
            if result.is_failed {
                answer = answer.failed();
            }
            let answer = account::with_id_of(message, thread, Message::tool(answer));
            let entry = Entry::new(Some(message.id().into()), Speaker::Tool, answer);
            accepted.push(entry.with_call(Some(calling)));
        }
        Ok(accepted)
    }
}

/// Closes the server's calls in a branch that was abandoned.
fn close(thread: &mut Thread, results: &mut Results, branch: &[usize]) {
    let mut closed = Vec::new();
    for &calling in branch {
        let Some(entry) = thread.entry(calling) else {
            continue;
        };
        let is_open = |call: &&ToolCall| {
            let is_server = entry
                .calls
                .iter()
                .any(|sent| sent.id == call.id && !sent.is_client);
            is_server && results.get(calling, &call.id).is_none()
        };
        let calls = entry.message.iter().flat_map(Message::tool_calls);
        for call in calls.filter(is_open) {
            let why = "no result: the conversation continued without this call";
            let result = ToolResult::new(call, [Part::from_text(why)]).failed();
            let entry = Entry::new(None, Speaker::Tool, Message::tool(result));
            closed.push(entry.with_call(Some(calling)));
        }
    }
    for entry in closed {
        let index = thread.push(entry);
        results.note(thread, index);
    }
}

/// Returns the branch with the selected results, each after the message with its call. The results of
/// a message are in the order of its calls.
fn with_results(
    thread: &Thread,
    results: &Results,
    branch: &[usize],
    is_wanted: impl Fn(usize) -> bool,
) -> Vec<usize> {
    let mut by_message = results.by_message();
    let mut all = Vec::with_capacity(branch.len());
    let mut of_message = Vec::new();
    for &index in branch {
        if thread.is_result(index) {
            of_message.push(index);
        } else {
            append_sorted(&mut all, &mut of_message, thread);
            all.push(index);
        }
        let results = by_message.remove(&index).unwrap_or_default();
        of_message.extend(results.into_iter().filter(|index| is_wanted(*index)));
    }
    append_sorted(&mut all, &mut of_message, thread);
    all
}

/// Moves results to a branch, in the order of their calls.
fn append_sorted(branch: &mut Vec<usize>, results: &mut Vec<usize>, thread: &Thread) {
    results.sort_by_key(|index| thread.answered_call(*index));
    branch.append(results);
}

/// Accepts the answers to the thread's open interrupts.
fn answered(
    thread: &Thread,
    answers: &[Resolution],
    allowed: Allowed,
) -> Result<Vec<Answered>, Refusal> {
    let mut answered = Vec::new();
    for (index, answer) in answers.iter().enumerate() {
        let id = &*answer.id;
        if let Some(open) = thread.open.iter().find(|open| *open.id == *id) {
            if is_resolved(answer) && open.is_for_operator && !allowed.operator_answers {
                let why = format!("only an operator can answer the interrupt `{id}`: cancel it");
                return Err(Refusal::forbidden(InputPart::Answer(index), why));
            }
            let mut answer = answer.clone();
            answer.id = open.pending.clone();
            answered.push(Answered {
                id: open.id.clone(),
                answer,
            });
            continue;
        }
        let mut earlier = thread.answered.iter();
        match earlier.find(|earlier| thread.is_cut && *earlier.id == *id) {
            // The run broke off. Its answer still counts for the calls that it did not start.
            Some(earlier) => answered.push(earlier.clone()),
            None if is_resolved(answer) => return Err(not_open(index, answer)),
            // A cancelled interrupt that is not open needs no answer.
            None => {}
        }
    }
    Ok(answered)
}

/// Returns whether an answer could allow a call.
fn is_resolved(answer: &Resolution) -> bool {
    !matches!(answer.outcome, ResolutionOutcome::Cancelled)
}

fn not_open(index: usize, answer: &Resolution) -> Refusal {
    let why = format!(
        "the interrupt `{}` is not open in this thread: it was answered, abandoned or never raised",
        answer.id
    );
    Refusal::new(RefusalKind::NotOpen, InputPart::Answer(index), why)
}
