//! The messages that a client sends for a thread that the server knows.

use std::cell::LazyCell;
use std::collections::{BTreeSet, HashMap, HashSet};
use std::sync::Arc;

use tower_agent::message::{Message, Role, ToolResult};

use super::account;
use super::allowed::Allowed;
use super::answers::{Answers, Said};
use super::client::{ClientMessage, ClientRole};
use super::entry_set::EntrySet;
use super::log_entry::{Entry, Speaker};
use super::reader::Mark;
use super::repeat::{Repeat, Repeats};
use super::results::Results;
use super::shown::ShownForm;
use super::thread::Thread;
use super::urls::Urls;
use crate::refusal::{InputPart, Refusal, RefusalKind};

/// The client's messages for a known thread.
pub(crate) struct Sent<'a, M> {
    /// The messages of the thread that the client has sent.
    pub(crate) known: EntrySet,
    /// The last of them.
    pub(crate) last: Option<usize>,
    /// New messages, and the known message that each follows.
    pub(crate) new: Vec<(Option<usize>, Entry)>,
    results: Vec<SentResult<'a, M>>,
    /// The index in the input of the last message that is not the agent's or a tool's.
    last_words: Option<usize>,
    /// Calls of messages that are not part of the conversation.
    left_out: HashSet<&'a str>,
    urls: Urls<'a>,
}

/// The client's results.
#[derive(Default)]
pub(crate) struct NewResults {
    /// The results of its own calls.
    pub(crate) results: Vec<Entry>,
    /// The messages that only repeat an answer.
    pub(crate) repeats: Repeats,
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

/// Fails if a message has another content than the one that the server knows by its id.
fn is_unchanged<M: ClientMessage>(
    message: &M,
    index: usize,
    known: Option<&Entry>,
) -> Result<(), M::Error> {
    let known = known.and_then(|entry| entry.message.as_ref());
    let Some(known) = known else {
        return Ok(());
    };
    let is_same = match known.tool_results().next() {
        Some(result) => message.has_parts(&result.parts, index)?,
        None => message.has_parts(known.parts(), index)?,
    };
    if !is_same {
        let why = format!(
            "the message `{}` was sent before, with another content: a changed message needs an id of \
             its own",
            message.id()
        );
        return Err(Refusal::new(RefusalKind::Invalid, InputPart::Message(index), why).into());
    }
    Ok(())
}

/// Returns the refusal of a message that says something else than the answer beside it.
fn contradicted(call: &str, part: InputPart) -> Refusal {
    let why = format!(
        "the message is no result of the call `{call}`, which has waited for an answer, and says \
         something else than the answer: omit it, or let it repeat the answer"
    );
    Refusal::new(RefusalKind::Invalid, part, why)
}

impl<'a, M: ClientMessage> Sent<'a, M> {
    pub(crate) fn read(
        thread: &Thread,
        messages: &'a [M],
        allowed: &Allowed,
        urls: Urls<'a>,
    ) -> Result<Self, M::Error> {
        let mut sent = Self {
            known: EntrySet::default(),
            last: None,
            new: Vec::new(),
            results: Vec::new(),
            last_words: None,
            left_out: HashSet::new(),
            urls,
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
            if matches!(role, ClientRole::System | ClientRole::User) {
                sent.last_words = Some(index);
            }
            let id = message.id();
            if let Some(known) = thread.log.find(speaker, id)
                && !thread.is_result(known)
            {
                // Of its own words, the client would otherwise not learn that the earlier ones
                // count. The agent's are the server's, whatever the client has made of them.
                if matches!(role, ClientRole::System | ClientRole::User) {
                    is_unchanged(message, index, thread.entry(known))?;
                }
                sent.known.insert(known);
                sent.last = sent.last.max(Some(known));
                continue;
            }
            match role {
                // Sent twice, it was said once.
                ClientRole::System | ClientRole::User if !seen.insert((speaker, &**id)) => {}
                ClientRole::System => {
                    allowed.check_system(index)?;
                    let words =
                        account::words(message, Role::System, index, urls, thread.has_id(id))?;
                    sent.add_new(id, speaker, words);
                }
                ClientRole::User => {
                    let words =
                        account::words(message, Role::User, index, urls, thread.has_id(id))?;
                    sent.add_new(id, speaker, words);
                }
                ClientRole::Tool { call, is_failed } => {
                    sent.results.push(SentResult {
                        message,
                        index,
                        call,
                        is_failed,
                    });
                }
                // Of a run that broke off, or an attempt that was discarded.
                ClientRole::Assistant(_) if thread.log.is_of_a_run(id) => sent.leave_out(message),
                ClientRole::Assistant(_) => {
                    let why = format!(
                        "the agent has said no message `{id}` in this thread: only the server knows \
                         what it says"
                    );
                    return Err(Refusal::forbidden(InputPart::Message(index), why).into());
                }
                ClientRole::Outside => {}
            }
        }
        Ok(sent)
    }

    fn add_new(&mut self, id: &Arc<str>, speaker: Speaker, words: Message) {
        let entry = Entry::new(Some(id.clone()), speaker, words).shown_as(ShownForm::Whole);
        self.new.push((self.last, entry));
    }

    fn leave_out(&mut self, message: &'a M) {
        let calls = message.calls().into_iter();
        self.left_out.extend(calls.map(|call| call.id));
    }

    /// Adds the whole conversation, which the new messages then follow.
    pub(crate) fn add_all_known(&mut self, thread: &Thread) {
        let branch = thread.branch().iter().copied();
        self.known = branch.filter(|index| thread.is_known(*index)).collect();
        let last = self.known.iter().next_back();
        self.follow(last);
    }

    /// Makes the new messages follow a conversation that is the whole log.
    pub(crate) fn follow_log(&mut self, thread: &Thread) {
        let mut entries = (0..thread.log.len()).rev();
        self.follow(entries.find(|index| thread.is_known(*index)));
    }

    fn follow(&mut self, last: Option<usize>) {
        self.last = last;
        for (after, _) in &mut self.new {
            *after = last;
        }
    }

    /// Returns whether the client has sent results of its calls.
    pub(crate) fn has_results(&self) -> bool {
        !self.results.is_empty()
    }

    /// Returns the part of the log that stays: the messages that the client has sent with those
    /// that belong to them, and the messages that the client never received.
    pub(crate) fn staying(
        &self,
        thread: &Thread,
        results: &Results,
        mark: &Mark,
    ) -> (EntrySet, BTreeSet<usize>) {
        let mut staying = EntrySet::default();
        let mut unheard = thread.unheard.clone();
        unheard.retain(|index| !self.known.contains(*index));
        let received = thread.readers.received(mark);
        let mut has_previous = true;
        // A run that broke off may have done work that the client was not told about.
        let mut of_cut = thread.is_cut;
        for &index in thread.branch() {
            let Some(entry) = thread.entry(index) else {
                continue;
            };
            let stays = match (&entry.id, entry.answers) {
                (_, Some(calling)) => staying.contains(calling),
                (Some(_), None) => {
                    // A device that has read the thread has not received what is hidden, either.
                    let is_hidden = !mark.is_none() && entry.shown.is_hidden();
                    let is_missed = index >= received || is_hidden;
                    self.known.contains(index) || has_previous && is_missed
                }
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
        // From another branch: the messages that the client has sent, and the results of their
        // calls.
        for index in self.known.iter() {
            staying.insert(index);
        }
        let with_results = staying.clone();
        for index in with_results.iter() {
            if thread.is_result(index) {
                staying.remove(index);
            }
        }
        for (calling, result) in results.iter() {
            if with_results.contains(calling) {
                staying.insert(result);
            }
        }
        (staying, unheard)
    }

    /// Returns the index in the input of the last result of each call.
    fn latest_results(&self) -> HashMap<&'a str, usize> {
        let results = self.results.iter();
        results.map(|result| (result.call, result.index)).collect()
    }

    /// Accepts the results of the client's own calls.
    pub(crate) fn results(
        &self,
        thread: &Thread,
        answers: &Answers<'_>,
        results: &Results,
        staying: &EntrySet,
    ) -> Result<NewResults, M::Error> {
        if self.results.is_empty() {
            return Ok(NewResults::default());
        }
        let mut calls: HashMap<&str, (usize, usize)> = HashMap::new();
        for (at, entry) in thread.log.iter().enumerate() {
            for (number, call) in entry.calls.iter().enumerate() {
                // The same call may stand in a message that was stored again: the one that stays
                // counts.
                let is_better = staying.contains(at)
                    || calls
                        .get(&*call.client_id)
                        .is_none_or(|(other, _)| !staying.contains(*other));
                if is_better {
                    calls.insert(&call.client_id, (at, number));
                }
            }
        }
        let mut accepted = Vec::new();
        let mut answered = HashMap::new();
        let mut repeats = Repeats::new();
        // A client keeps a message that was refused. It does not stand in the way of what the
        // client says next: of its results of a call the last one counts, and none that the user's
        // words have passed over.
        let latest = LazyCell::new(|| self.latest_results());
        let is_last_word = |result: &SentResult<'_, M>| {
            latest.get(result.call) == Some(&result.index) && self.last_words < Some(result.index)
        };
        for result in &self.results {
            let message = result.message;
            let part = InputPart::Call(result.index);
            let known = thread.repeats.get(message.id());
            if known.is_some_and(|repeat| repeat.is_of(result.call)) {
                continue;
            }
            let Some(&(calling, number)) = calls.get(result.call) else {
                // A sub-agent's call, whose message is not of this conversation.
                let is_left_out = self.left_out.contains(result.call);
                if is_left_out && thread.log.is_of_a_run(message.id()) {
                    continue;
                }
                match answers.compare(result.call, message, result.index)? {
                    Said::Same => {
                        repeats.insert(message.id().clone(), Repeat::new(result.call, false));
                        continue;
                    }
                    Said::Other if is_last_word(result) => {
                        return Err(contradicted(result.call, part).into());
                    }
                    Said::Other => continue,
                    Said::Nothing if is_left_out => continue,
                    Said::Nothing => {}
                }
                let why = format!("no message contains the call `{}`", result.call);
                return Err(Refusal::forbidden(part, why).into());
            };
            let Some(entry) = thread.entry(calling).filter(|_| staying.contains(calling)) else {
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
                (Some(known), true) if known.id.as_ref() == Some(message.id()) => {
                    // A result that the server made, for example of a call that was denied, is its
                    // own.
                    if !thread.log.is_of_a_run(message.id()) {
                        let as_sent = known.changes.map_or(Some(known), |at| thread.entry(at));
                        is_unchanged(message, result.index, as_sent)?;
                    }
                    continue;
                }
                (None, false) => {
                    match answers.compare(result.call, message, result.index)? {
                        Said::Same => {
                            repeats.insert(message.id().clone(), Repeat::new(result.call, false));
                            continue;
                        }
                        _ if !is_last_word(result) => continue,
                        Said::Other => return Err(contradicted(result.call, part).into()),
                        Said::Nothing => {}
                    }
                    let why = format!(
                        "only the server may set the result of the call `{}`: if it waits for an \
                         answer, answer its question",
                        result.call
                    );
                    return Err(Refusal::forbidden(part, why).into());
                }
                // The question was whether the client's own call may be made.
                (_, true) if answers.compare(result.call, message, result.index)? == Said::Same => {
                    repeats.insert(message.id().clone(), Repeat::new(result.call, true));
                    continue;
                }
                // A result would end the question, whose answer is not the client's.
                (_, true) if answers.are_for_others(result.call) => {
                    if !is_last_word(result) {
                        continue;
                    }
                    let why = format!(
                        "the call `{}` waits for the answer of somebody else: send its result once \
                         it is allowed",
                        result.call
                    );
                    return Err(Refusal::forbidden(part, why).into());
                }
                (_, true) => {}
            }
            if let Some(earlier) = answered.insert((calling, number), message) {
                let is_same_message = earlier.id() == message.id();
                if is_same_message
                    && earlier.has_parts(&message.parts(result.index)?, result.index)?
                {
                    // Sent twice, it was said once.
                    continue;
                }
                let why = format!("there are two results for the call `{}`", result.call);
                return Err(Refusal::new(RefusalKind::Invalid, part, why).into());
            }
            let mut sent_calls = entry.message.iter().flat_map(Message::tool_calls);
            let Some(sent_call) = sent_calls.find(|sent_call| sent_call.id == call.id) else {
                continue;
            };
            let parts = account::parts(message, result.index, self.urls)?;
            let mut answer = ToolResult::new(sent_call, parts);
            if result.is_failed {
                answer = answer.failed();
            }
            let answer =
                account::with_id_of(message, thread.has_id(message.id()), Message::tool(answer));
            let entry = Entry::new(Some(message.id().clone()), Speaker::Tool, answer);
            let entry = entry.shown_as(ShownForm::Whole);
            accepted.push(entry.with_call(Some(calling)));
        }
        Ok(NewResults {
            results: accepted,
            repeats,
        })
    }
}
