//! Leaves out parts of a prompt.

use tower_agent::Role;
use tower_agent::message::{Message, MessageId, Messages, Part};

use super::counted::{CountTokens, PromptTokens};
use super::summary::Summary;
use crate::flow::{Label, short_name};
use crate::own_tool::LOOK_BACK;

/// The sizes of a prompt.
#[derive(Clone, Copy, Debug)]
pub(super) struct Bounds {
    pub(super) max: u64,
    pub(super) cut_to: u64,
    /// The number of the latest messages with results that stay whole.
    pub(super) keep_results: usize,
    /// The tokens that a summary may have; 0 if none is made.
    pub(super) summary: u64,
}

impl Bounds {
    /// Returns smaller bounds of the same shape.
    pub(super) fn with_max(self, max: u64) -> Self {
        if max >= self.max {
            return self;
        }
        let scaled = |tokens: u64| {
            let scaled = u128::from(tokens) * u128::from(max) / u128::from(self.max);
            // No larger than what it was made from.
            u64::try_from(scaled).unwrap_or(max)
        };
        Self {
            max,
            cut_to: scaled(self.cut_to),
            summary: scaled(self.summary),
            ..self
        }
    }
}

/// The settings by which one request is cut.
#[derive(Clone, Copy)]
pub(super) struct Cutting<'m> {
    pub(super) bounds: Bounds,
    /// Counts what is shown in place of messages.
    pub(super) count: &'m CountTokens,
    /// The model can look at what was left out.
    pub(super) can_look_back: bool,
    /// A message that is never left out: a summary in a request that is cut once more.
    pub(super) stays: Option<&'m Message>,
}

/// A prompt that is cut where it became too long.
///
/// The cuts of a conversation depend on one another: what was left out once stays out, so that a
/// provider's cache holds. They are made again from the start, or from the last summary, for each
/// request, at the places where the model was called, since nothing else remembers them.
pub(super) struct Prompt<'m> {
    cutting: Cutting<'m>,
    /// The tokens of what is never left out.
    fixed: u64,
    note: Message,
    note_tokens: u64,
    summary: Option<PromptSummary>,
    entries: Vec<PromptEntry<'m>>,
    total: u64,
    /// The places of messages with results of tools.
    results: Vec<usize>,
    /// The number of these that were replaced, or were too short for that.
    cleared: usize,
    last_user: Option<usize>,
}

/// A summary, as it is shown.
pub(super) struct PromptSummary {
    pub(super) message: Message,
    /// The label of all that it was made of, if a guard was there.
    pub(super) label: Option<Label>,
    tokens: u64,
}

/// A message of the conversation, as it is shown.
struct PromptEntry<'m> {
    message: &'m Message,
    /// The message with notes in place of its results.
    cleared: Option<Message>,
    tokens: u64,
    is_left_out: bool,
    /// It is left out, and the summary stands for it.
    is_summarised: bool,
}

impl<'m> Prompt<'m> {
    /// Creates the prompt of a conversation with these tokens, cut where it is too long.
    pub(super) fn new(
        messages: &'m Messages,
        tokens: &PromptTokens,
        cutting: Cutting<'m>,
        summary: Option<&Summary>,
    ) -> Self {
        let note = note(cutting.can_look_back);
        let mut prompt = Self {
            cutting,
            fixed: tokens.fixed,
            note_tokens: (cutting.count)(&note),
            note,
            summary: None,
            entries: Vec::new(),
            total: tokens.fixed,
            results: Vec::new(),
            cleared: 0,
            last_user: None,
        };
        let counted = &tokens.messages;
        let start = summary.map_or(0, |summary| prompt.go_on_from(messages, counted, summary));
        for (message, tokens) in messages.range(start).zip(&counted[start..]) {
            if message.role() == Role::Assistant {
                prompt.cut_if_needed();
            }
            prompt.push(message, *tokens);
        }
        prompt.cut_if_needed();
        prompt
    }

    /// Brings the prompt into the state in which a summary was made. Returns the number of messages
    /// that it had then; 0 if it was not made of this conversation.
    fn go_on_from(&mut self, messages: &'m Messages, tokens: &[u64], summary: &Summary) -> usize {
        let mut ids = messages.iter().map(Message::id);
        let Some(last) = ids.position(|id| id == Some(&summary.last)) else {
            return 0;
        };
        // Later messages may have been taken back.
        let later = ids.position(|id| id == Some(&summary.made_after));
        let end = later.map_or(last + 1, |later| last + later + 2);
        for (message, tokens) in messages.iter().zip(tokens).take(end) {
            self.push(message, *tokens);
        }
        for at in 0..=last {
            if self.may_be_left_out(at) {
                self.entries[at].is_left_out = true;
                self.entries[at].is_summarised = true;
            }
        }
        let is_cleared = |at: &usize| self.entries[*at].message.id() == summary.cleared.as_ref();
        let cleared = self.results.iter().position(is_cleared);
        let cleared = cleared.filter(|_| summary.cleared.is_some());
        while self.cleared < cleared.map_or(0, |cleared| cleared + 1) {
            self.clear_next();
        }
        let shown = summary.message(self.cutting.can_look_back);
        self.show_summary(shown, summary.label.clone());
        end
    }

    fn push(&mut self, message: &'m Message, tokens: u64) {
        self.total = self.total.saturating_add(tokens);
        let at = self.entries.len();
        match message.role() {
            Role::Tool => self.results.push(at),
            Role::User if self.is_of_user(message) => self.last_user = Some(at),
            _ => {}
        }
        self.entries.push(PromptEntry {
            message,
            cleared: None,
            tokens,
            is_left_out: false,
            is_summarised: false,
        });
    }

    /// Returns whether a message is the user's own. What a callback has added for one request has
    /// no id, and a quotation of another agent has an author.
    fn is_of_user(&self, message: &Message) -> bool {
        if message.author().is_some() {
            return false;
        }
        let last = self.last_user.map(|at| self.entries[at].message);
        message.id().is_some() || last.is_none_or(|last| last.id().is_none())
    }

    fn cut_if_needed(&mut self) {
        let bounds = self.cutting.bounds;
        if self.total <= bounds.max {
            return;
        }
        self.clear_results();
        // A summary is made of what is left out only, and needs room.
        if self.total > bounds.cut_to {
            self.leave_out();
        }
        if self.total > bounds.max {
            self.shorten_last_step();
        }
    }

    /// Shortens the results of the last step, the longest first. The model goes on from them, so
    /// that none is left out.
    fn shorten_last_step(&mut self) {
        let is_result = |entry: &&PromptEntry<'_>| entry.message.role() == Role::Tool;
        let count = self.entries.iter().rev().take_while(is_result).count();
        let from = self.entries.len() - count;
        let shown: u64 = self.entries[from..].iter().map(|entry| entry.tokens).sum();
        let others = self.total.saturating_sub(shown);
        let mut room = self.cutting.bounds.cut_to.saturating_sub(others);
        let mut results: Vec<_> = self.entries[from..].iter_mut().collect();
        // What a short one leaves of its share is for those that are longer.
        results.sort_by_key(|entry| entry.tokens);
        let mut left = count as u64;
        for entry in results {
            let share = room / left;
            if entry.tokens > share {
                let shorter = with_short_results(entry.message, share, entry.tokens);
                let tokens = (self.cutting.count)(&shorter);
                if tokens < entry.tokens {
                    entry.tokens = tokens;
                    entry.cleared = Some(shorter);
                }
            }
            room = room.saturating_sub(entry.tokens);
            left -= 1;
        }
        self.total = self.sum();
    }

    /// Replaces old results by notes until the prompt is short enough.
    fn clear_results(&mut self) {
        let Bounds {
            cut_to,
            keep_results,
            ..
        } = self.cutting.bounds;
        let old = self.results.len().saturating_sub(keep_results);
        while self.cleared < old && self.total > cut_to {
            self.clear_next();
        }
    }

    /// Replaces the next result, if its note is shorter.
    fn clear_next(&mut self) {
        let entry = &mut self.entries[self.results[self.cleared]];
        self.cleared += 1;
        if entry.is_left_out {
            return;
        }
        let cleared = without_results(entry.message, self.cutting.can_look_back);
        let tokens = (self.cutting.count)(&cleared);
        if tokens < entry.tokens {
            self.total -= entry.tokens - tokens;
            entry.tokens = tokens;
            entry.cleared = Some(cleared);
        }
    }

    /// Leaves out old messages until the prompt is short enough.
    fn leave_out(&mut self) {
        let bounds = self.cutting.bounds;
        // A note before the user's last message, and one after it.
        let cut_to = bounds
            .cut_to
            .saturating_sub(2 * self.note_tokens)
            .saturating_sub(bounds.summary);
        let mut shown = self.shown();
        let mut at = 0;
        while shown > cut_to {
            let end = self.end_of_step(at);
            // The last step is what the model goes on from.
            if end >= self.entries.len() {
                break;
            }
            for place in at..end {
                if self.may_be_left_out(place) {
                    self.entries[place].is_left_out = true;
                    shown -= self.entries[place].tokens;
                }
            }
            at = end;
        }
        self.total = self.sum();
    }

    fn may_be_left_out(&self, at: usize) -> bool {
        let entry = &self.entries[at];
        let is_summary = entry.message.id().is_none() && self.cutting.stays == Some(entry.message);
        let stays =
            is_summary || entry.message.role() == Role::System || Some(at) == self.last_user;
        !stays && !entry.is_left_out
    }

    /// Returns the end of the step at a place: a message, with the results of its calls.
    fn end_of_step(&self, at: usize) -> usize {
        let mut end = at + 1;
        if self.entries[at].message.role() == Role::Assistant {
            while self
                .entries
                .get(end)
                .is_some_and(|entry| entry.message.role() == Role::Tool)
            {
                end += 1;
            }
        }
        end
    }

    /// Returns the tokens of the prompt.
    fn sum(&self) -> u64 {
        let summary = self.summary.as_ref().map_or(0, |summary| summary.tokens);
        let notes = self.notes().saturating_mul(self.note_tokens);
        self.shown().saturating_add(summary).saturating_add(notes)
    }

    /// Returns the tokens of the messages that are shown.
    fn shown(&self) -> u64 {
        let shown = self.entries.iter().filter(|entry| !entry.is_left_out);
        shown.fold(self.fixed, |total, entry| {
            total.saturating_add(entry.tokens)
        })
    }

    /// Returns the number of places with a note for what no summary stands for.
    fn notes(&self) -> u64 {
        let mut notes = 0;
        let mut has_note = false;
        for entry in &self.entries {
            let needs_note = entry.is_left_out && !entry.is_summarised;
            notes += u64::from(needs_note && !has_note);
            has_note = entry.is_left_out && (has_note || needs_note);
        }
        notes
    }

    /// Returns the messages that are left out and that no summary stands for, oldest first.
    pub(super) fn unsummarised(&self) -> Vec<&'m Message> {
        let entries = self.entries.iter();
        let left_out = entries.filter(|entry| entry.is_left_out && !entry.is_summarised);
        left_out.map(|entry| entry.message).collect()
    }

    /// Returns the messages that the summary stands for, oldest first.
    pub(super) fn summarised(&self) -> Vec<Message> {
        let entries = self.entries.iter().filter(|entry| entry.is_summarised);
        entries.map(|entry| entry.message.clone()).collect()
    }

    /// Shows a summary of everything that is left out, with its label, if a guard is there.
    pub(super) fn summarise(&mut self, summary: Message, label: Option<Label>) {
        for entry in &mut self.entries {
            entry.is_summarised = entry.is_left_out;
        }
        self.show_summary(summary, label);
    }

    fn show_summary(&mut self, summary: Message, label: Option<Label>) {
        let tokens = (self.cutting.count)(&summary);
        self.summary = Some(PromptSummary {
            message: summary,
            label,
            tokens,
        });
        self.total = self.sum();
    }

    /// Returns whether a summary stands for some of the messages.
    pub(super) fn has_summary(&self) -> bool {
        self.summary.is_some()
    }

    /// Returns the one of these messages that is the last in the conversation.
    pub(super) fn last_of<'i>(
        &self,
        ids: impl IntoIterator<Item = &'i MessageId>,
    ) -> Option<&'i MessageId> {
        let place = |id: &&MessageId| {
            let mut entries = self.entries.iter();
            entries.rposition(|entry| entry.message.id() == Some(*id))
        };
        ids.into_iter().max_by_key(place)
    }

    /// Returns the last message of the conversation that has an id.
    pub(super) fn last_id(&self) -> Option<&'m MessageId> {
        let mut entries = self.entries.iter().rev();
        entries.find_map(|entry| entry.message.id())
    }

    /// Returns the last message whose results were replaced.
    pub(super) fn last_cleared(&self) -> Option<&'m MessageId> {
        let last = self.cleared.checked_sub(1)?;
        self.entries[self.results[last]].message.id()
    }

    /// Returns the shorter prompt; `None` if the conversation may stay as it is.
    pub(super) fn shortened(self) -> Option<ShortenedPrompt> {
        let is_whole = |entry: &PromptEntry<'_>| !entry.is_left_out && entry.cleared.is_none();
        if self.entries.iter().all(is_whole) {
            return None;
        }
        let summarised = self.summarised();
        let summary = self.summary;
        // After the user's last message, if the summary stands for some that came later.
        let summary_at = self.entries.iter().rposition(|entry| entry.is_summarised);
        let mut messages = Messages::new();
        let mut needs_note = false;
        for (at, entry) in self.entries.into_iter().enumerate() {
            if entry.is_left_out {
                needs_note |= !entry.is_summarised;
                if Some(at) == summary_at {
                    messages.extend(summary.iter().map(|summary| summary.message.clone()));
                }
                continue;
            }
            if std::mem::take(&mut needs_note) {
                messages.push(self.note.clone());
            }
            messages.push(entry.cleared.unwrap_or_else(|| entry.message.clone()));
        }
        Some(ShortenedPrompt {
            messages,
            note: self.note,
            summary,
            summarised,
        })
    }
}

/// The messages in place of those of a conversation.
pub(super) struct ShortenedPrompt {
    pub(super) messages: Messages,
    /// The message where messages are left out without a summary.
    pub(super) note: Message,
    /// The summary, and the messages that it stands for.
    pub(super) summary: Option<PromptSummary>,
    pub(super) summarised: Vec<Message>,
}

/// Returns what the model reads in place of messages that were left out.
pub(super) fn note(can_look_back: bool) -> Message {
    let mut text = String::from("[Earlier messages were left out to save space.");
    if can_look_back {
        text.push_str(&format!(
            " `{LOOK_BACK}` shows one of them by its name, such as `m3`, or the result of a call in it, such \
             as `m3.0`."
        ));
    }
    text.push(']');
    Message::user(text)
}

/// Returns a message with the beginnings and the ends of its results, in about so many tokens of
/// those that it has.
fn with_short_results(message: &Message, share: u64, tokens: u64) -> Message {
    let mut short = message.clone();
    for part in short.parts_mut() {
        let Part::ToolResult(result) = part else {
            continue;
        };
        for part in &mut result.parts {
            if let Part::Text(text) = part {
                let kept = text.text.len() as u128 * u128::from(share) / u128::from(tokens.max(1));
                // No larger than the length that it was made from.
                let kept = usize::try_from(kept).unwrap_or_default();
                text.text = ends_of(&text.text, kept.saturating_sub(SHORTENED.len() + 20));
            }
        }
    }
    short
}

/// Follows the number of bytes that are missing in a result.
const SHORTENED: &str = " bytes were left out here, since there is no room for the whole result: ask for less at once.]";

/// Returns the beginning and the end of a text, in so many bytes, and a note between them.
fn ends_of(text: &str, bytes: usize) -> String {
    let mut head = bytes / 2;
    while !text.is_char_boundary(head) {
        head -= 1;
    }
    let mut tail = text.len().saturating_sub(bytes / 2).max(head);
    while !text.is_char_boundary(tail) {
        tail += 1;
    }
    let missing = tail - head;
    format!(
        "{}\n[{missing}{SHORTENED}\n{}",
        &text[..head],
        &text[tail..]
    )
}

/// Returns a message with notes in place of its results. It keeps its id, and each result its call.
fn without_results(message: &Message, can_look_back: bool) -> Message {
    let mut cleared = message.clone();
    let id = message.id().filter(|_| can_look_back);
    let look_back = id.map_or_else(String::new, |id| {
        let name = short_name(id);
        format!(" `{LOOK_BACK}` shows it by the name `{name}`.")
    });
    for part in cleared.parts_mut() {
        if let Part::ToolResult(result) = part {
            let note = format!(
                "[This result of `{}` was cleared to save space.{look_back}]",
                result.name
            );
            result.parts = vec![Part::from_text(note)];
        }
    }
    cleared
}
