//! Decides which parts of a client's input are accepted, by the [rules](crate#rules).

use std::collections::{HashMap, HashSet};
use std::time::SystemTime;

use tower_agent::agent::AgentRequest;
use tower_agent::error::{AnswerError, Resolution, ResolutionOutcome};
use tower_agent::message::{Message, ToolCall, ToolResult};

use super::account;
use super::allowed::Allowed;
use super::answers::Answers;
use super::client::{ClientInput, ClientMessage};
use super::entry_set::EntrySet;
use super::log_entry::{Entry, Speaker};
use super::reader::Mark;
use super::results::Results;
use super::sent::Sent;
use super::shown::MissedMessage;
use super::thread::{Answered, OpenInterrupt, Thread};
use super::urls::Urls;
use crate::refusal::{InputPart, Refusal, RefusalKind};

/// The start of a run.
#[derive(Debug)]
pub(crate) struct AcceptedInput {
    /// The thread with the accepted input.
    pub(crate) thread: Thread,
    pub(crate) request: AgentRequest,
    /// The messages that the client has missed.
    pub(crate) missed: Vec<MissedMessage>,
}

/// Accepts the input of a thread that the server does not know.
pub(crate) fn begin<M: ClientMessage>(
    input: &ClientInput<'_, M>,
    allowed: &Allowed,
    urls: Urls<'_>,
) -> Result<AcceptedInput, M::Error> {
    for (index, answer) in input.answers.iter().enumerate() {
        if is_resolved(answer) {
            return Err(not_open(index, answer).into());
        }
    }
    let mut thread = Thread::default();
    account::read(&input.messages, allowed, urls, &mut thread)?;
    thread.set_branch((0..thread.log.len()).collect());
    let request = AgentRequest::resume(thread.checkpoint());
    Ok(AcceptedInput {
        thread,
        request,
        missed: Vec::new(),
    })
}

/// Accepts the input of a thread that the server knows. `is_lost` means that the progress of the
/// latest run is unknown, so no call that it may have started is repeated.
pub(crate) fn go_on<M: ClientMessage>(
    mut thread: Thread,
    input: &ClientInput<'_, M>,
    mark: &Mark,
    is_lost: bool,
    allowed: &Allowed,
    urls: Urls<'_>,
) -> Result<AcceptedInput, M::Error> {
    thread.is_cut |= is_lost;
    let mut sent = Sent::read(&thread, &input.messages, allowed, urls)?;
    let is_partial = (allowed.partial_history || input.is_away) && sent.known.is_empty();
    let Placed {
        is_whole,
        staying,
        mut results,
        new_results,
    } = place(&mut thread, &mut sent, input, mark, is_partial, is_lost)?;
    let now = SystemTime::now();
    let mut answered = answered(&thread, input, now)?;
    let expired: Vec<_> = thread
        .open
        .iter()
        .filter_map(|open| open.expired(now))
        .collect();
    if input.is_away && answered.is_empty() && expired.is_empty() {
        let why = "no question of this thread has expired";
        return Err(Refusal::new(RefusalKind::NotOpen, InputPart::Answers, why).into());
    }
    let is_for_other = |open: &OpenInterrupt| !input.may_answer(&open.interrupt);
    // A message that a client sends while somebody else is to answer must not close the question,
    // nor one that it sends before it has received the question.
    let is_asked = is_whole && !thread.open.is_empty();
    let is_unseen = is_asked && !missed(&thread, input, mark, is_partial).is_empty();
    if is_unseen || is_asked && thread.open.iter().any(is_for_other) {
        for (_, entry) in std::mem::take(&mut sent.new) {
            let index = thread.push(entry);
            thread.held.push(index);
        }
    }
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
        thread.branch().to_vec()
    } else {
        // Results follow below, each after the message with its call.
        let mut branch = Vec::new();
        // New messages after the last known one also follow those that the client has missed.
        let mut new_after = |after: Option<usize>| {
            let is_last = after == last;
            (!is_last).then(|| new.remove(&after)).flatten()
        };
        branch.extend(new_after(None).unwrap_or_default());
        for index in staying.iter().filter(|index| !thread.is_result(*index)) {
            branch.push(index);
            branch.extend(new_after(Some(index)).unwrap_or_default());
        }
        branch
    };
    if is_whole && has_new_messages {
        branch.append(&mut thread.held);
    }
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
        thread.held.clear();
    }
    if !is_whole || !fresh.is_empty() {
        let is_wanted = |index: usize| !is_whole || fresh.contains(&index);
        branch = with_results(&thread, &results, &branch, is_wanted);
    }
    thread.set_branch(branch);
    let goes_on = is_whole && !has_new_messages;
    let mut resolutions = Vec::new();
    if goes_on {
        answered.extend(expired);
        resolutions.extend(answered.iter().map(|answered| answered.answer.clone()));
    }
    thread
        .open
        .retain(|open| goes_on && !answered.iter().any(|answered| answered.id == open.id));
    thread.answered = answered;
    let request = AgentRequest::resume(thread.checkpoint()).with_resolutions(resolutions);
    let missed = missed(&thread, input, mark, is_partial);
    Ok(AcceptedInput {
        thread,
        request,
        missed,
    })
}

/// The place where an input goes on in a thread.
struct Placed {
    /// The run goes on where the last one stopped. Otherwise it is another branch.
    is_whole: bool,
    /// The messages of another branch that are known. Not needed in the same one.
    staying: EntrySet,
    results: Results,
    new_results: Vec<Entry>,
}

fn place<M: ClientMessage>(
    thread: &mut Thread,
    sent: &mut Sent<'_, M>,
    input: &ClientInput<'_, M>,
    mark: &Mark,
    is_partial: bool,
    is_lost: bool,
) -> Result<Placed, M::Error> {
    if is_partial && thread.is_whole() && !sent.has_results() {
        // All that the thread has stays. Looked up message by message, as below, it would take
        // longer with each turn.
        sent.follow_log(thread);
        return Ok(Placed {
            is_whole: true,
            staying: EntrySet::default(),
            results: Results::default(),
            new_results: Vec::new(),
        });
    }
    if is_partial {
        sent.add_all_known(thread);
    }
    let results = Results::of(thread);
    let (staying, unheard) = sent.staying(thread, &results, mark);
    thread.unheard = unheard;
    let answers = Answers::new(thread, input);
    let accepted = sent.results(thread, &answers, &results, &staying)?;
    thread.repeats.extend(accepted.repeats);
    // They follow the answer, wherever the client shows them.
    let mut not_held = staying.clone();
    for index in &thread.held {
        not_held.remove(*index);
    }
    let is_whole = !is_lost
        && thread.branch().iter().copied().collect::<EntrySet>() == not_held
        && sent.new.iter().all(|(after, _)| *after == sent.last);
    Ok(Placed {
        is_whole,
        staying,
        results,
        new_results: accepted.results,
    })
}

/// Returns the messages that the client has missed. One that sends only what is new receives all,
/// as it is not known what it has.
fn missed<M: ClientMessage>(
    thread: &Thread,
    input: &ClientInput<'_, M>,
    mark: &Mark,
    is_partial: bool,
) -> Vec<MissedMessage> {
    let received = thread.readers.received(mark);
    if input.is_away {
        return Vec::new();
    }
    let mut positions = HashMap::new();
    for (index, message) in input.messages.iter().enumerate() {
        positions.insert(message.id(), index);
    }
    // Most clients have missed nothing, and the messages that they have are many.
    if thread
        .shown_from(received)
        .all(|id| positions.contains_key(id))
    {
        return Vec::new();
    }
    let mut missed = Vec::new();
    let mut after = 0;
    for (index, id, message) in thread.shown() {
        match positions.get(id) {
            Some(position) => after = after.max(position + 1),
            None if is_partial || index >= received => {
                missed.push(MissedMessage { after, message });
            }
            None => {}
        }
    }
    missed
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
            // Its process may have died in the call.
            let result = Message::tool(ToolResult::left(call));
            let entry = Entry::new(None, Speaker::Tool, result);
            closed.push(entry.with_call(Some(calling)));
        }
    }
    for entry in closed {
        let index = thread.push(entry);
        results.note(thread, index);
    }
}

/// Returns the branch with the selected results, each after the message with its call. The results
/// of a message are in the order of its calls.
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

/// Accepts the answers to the thread's open interrupts whose time is not over.
fn answered<M: ClientMessage>(
    thread: &Thread,
    input: &ClientInput<'_, M>,
    now: SystemTime,
) -> Result<Vec<Answered>, Refusal> {
    let mut answered = Vec::new();
    for (index, answer) in input.answers.iter().enumerate() {
        let id = &*answer.id;
        if let Some(open) = thread.open.iter().find(|open| *open.id == *id) {
            if !input.may_answer(&open.interrupt) {
                let why =
                    format!("the interrupt `{id}` is for a role that this client does not have");
                return Err(Refusal::forbidden(InputPart::Answer(index), why));
            }
            // Whatever name the answer came with: the server's own counts.
            let given = open.answered(answer.outcome.clone(), input.roles.name());
            let checked = open.interrupt.check(&given.answer, now);
            // Whoever cancels a question whose time is over goes on without an answer.
            if is_resolved(answer) || checked != Err(AnswerError::Late) {
                checked.map_err(|error| Refusal::unfit(InputPart::Answer(index), &error))?;
            }
            // One whose time is over has its outcome from the thread.
            if open.expired(now).is_none() {
                // A program that could not go on was given an answer before, which counts.
                let mut earlier = thread.answered.iter();
                let first = earlier.find(|earlier| *earlier.id == *id);
                if first.is_some_and(|first| first.answer.outcome != given.answer.outcome) {
                    let why = format!("the interrupt `{id}` has another answer already: repeat it");
                    let part = InputPart::Answer(index);
                    return Err(Refusal::new(RefusalKind::NotOpen, part, why));
                }
                answered.push(first.cloned().unwrap_or(given));
            }
            continue;
        }
        let mut earlier = thread.answered.iter();
        match earlier.find(|earlier| thread.is_cut && *earlier.id == *id) {
            // The run broke off. Its answer still counts for the calls that it did not start.
            Some(earlier) => answered.push(earlier.clone()),
            None if is_resolved(answer) || input.is_away => return Err(not_open(index, answer)),
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
        "the interrupt `{}` is not open in this thread: it was answered, abandoned, has changed or was \
         never raised",
        answer.id
    );
    Refusal::new(RefusalKind::NotOpen, InputPart::Answer(index), why)
}
