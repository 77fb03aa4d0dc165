//! What is left out of a prompt.

use tower_agent::Role;
use tower_agent::message::{Message, Messages, Part};

/// The words in place of messages that are left out.
const LEFT_OUT: &str = "[Earlier messages were left out to save space.]";

/// The sizes of a prompt.
#[derive(Clone, Copy, Debug)]
pub(super) struct Bounds {
    pub(super) max: u64,
    pub(super) cut_to: u64,
    /// The number of the latest messages with results that stay whole.
    pub(super) keep_results: usize,
}

impl Bounds {
    /// Returns smaller bounds of the same shape.
    pub(super) fn with_max(self, max: u64) -> Self {
        if max >= self.max {
            return self;
        }
        let cut_to = u128::from(self.cut_to) * u128::from(max) / u128::from(self.max);
        Self {
            max,
            // No larger than what it was made from.
            cut_to: u64::try_from(cut_to).unwrap_or(max),
            ..self
        }
    }
}

/// Returns a shorter prompt, or `None` if it may stay as it is.
///
/// The cuts of a conversation depend on one another: what was left out once stays out, so that a provider's
/// cache holds. They are made again from the start for each request, at the places where the model was called,
/// since nothing else remembers them.
pub(super) fn shortened(
    messages: &Messages,
    fixed: u64,
    bounds: Bounds,
    count: &dyn Fn(&Message) -> u64,
) -> Option<Messages> {
    let mut prompt = Prompt::new(fixed, bounds, count);
    for message in messages.iter() {
        if message.role() == Role::Assistant {
            prompt.cut_if_needed();
        }
        prompt.push(message);
    }
    prompt.cut_if_needed();
    prompt.shortened()
}

struct Prompt<'m> {
    bounds: Bounds,
    count: &'m dyn Fn(&Message) -> u64,
    fixed: u64,
    note: Message,
    entries: Vec<PromptEntry<'m>>,
    total: u64,
    /// The places of messages with results of tools.
    results: Vec<usize>,
    /// The number of these that were replaced, or were too short for that.
    cleared: usize,
    last_user: Option<usize>,
}

/// A message of the conversation, as it is shown.
struct PromptEntry<'m> {
    message: &'m Message,
    /// The message with notes in place of its results.
    cleared: Option<Message>,
    tokens: u64,
    is_left_out: bool,
}

impl<'m> Prompt<'m> {
    fn new(fixed: u64, bounds: Bounds, count: &'m dyn Fn(&Message) -> u64) -> Self {
        Self {
            bounds,
            count,
            fixed,
            note: note(),
            entries: Vec::new(),
            total: fixed,
            results: Vec::new(),
            cleared: 0,
            last_user: None,
        }
    }

    fn push(&mut self, message: &'m Message) {
        let at = self.entries.len();
        match message.role() {
            Role::Tool => self.results.push(at),
            Role::User if self.is_of_user(message) => self.last_user = Some(at),
            _ => {}
        }
        let tokens = (self.count)(message);
        self.total = self.total.saturating_add(tokens);
        self.entries.push(PromptEntry {
            message,
            cleared: None,
            tokens,
            is_left_out: false,
        });
    }

    /// Returns whether a message is the user's own. What a callback has added for one request has no id.
    fn is_of_user(&self, message: &Message) -> bool {
        let last = self.last_user.map(|at| self.entries[at].message);
        message.id().is_some() || last.is_none_or(|last| last.id().is_none())
    }

    fn cut_if_needed(&mut self) {
        if self.total <= self.bounds.max {
            return;
        }
        self.clear_results();
        if self.total > self.bounds.cut_to {
            self.leave_out();
        }
    }

    /// Replaces old results by notes until the prompt is short enough.
    fn clear_results(&mut self) {
        let old = self.results.len().saturating_sub(self.bounds.keep_results);
        while self.cleared < old && self.total > self.bounds.cut_to {
            let entry = &mut self.entries[self.results[self.cleared]];
            self.cleared += 1;
            if entry.is_left_out {
                continue;
            }
            let cleared = without_results(entry.message);
            let tokens = (self.count)(&cleared);
            if tokens < entry.tokens {
                self.total -= entry.tokens - tokens;
                entry.tokens = tokens;
                entry.cleared = Some(cleared);
            }
        }
    }

    /// Leaves out old messages until the prompt is short enough.
    fn leave_out(&mut self) {
        let note = (self.count)(&self.note);
        // One before the user's last message, and one after it.
        let cut_to = self.bounds.cut_to.saturating_sub(2 * note);
        let mut total = self.shown();
        let mut at = 0;
        while total > cut_to {
            let end = self.end_of_step(at);
            // The last step is what the model goes on from.
            if end >= self.entries.len() {
                break;
            }
            for place in at..end {
                total -= self.leave_out_one(place);
            }
            at = end;
        }
        self.total = total.saturating_add(self.gaps().saturating_mul(note));
    }

    /// Leaves out a message, if it may be, and returns its tokens.
    fn leave_out_one(&mut self, at: usize) -> u64 {
        let entry = &mut self.entries[at];
        let stays = entry.message.role() == Role::System || Some(at) == self.last_user;
        if stays || entry.is_left_out {
            return 0;
        }
        entry.is_left_out = true;
        entry.tokens
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

    /// Returns the tokens of what is shown, without notes for what is not.
    fn shown(&self) -> u64 {
        let shown = self.entries.iter().filter(|entry| !entry.is_left_out);
        shown.fold(self.fixed, |total, entry| {
            total.saturating_add(entry.tokens)
        })
    }

    /// Returns the number of notes.
    fn gaps(&self) -> u64 {
        let mut gaps = 0;
        let mut is_in_gap = false;
        for entry in &self.entries {
            gaps += u64::from(entry.is_left_out && !is_in_gap);
            is_in_gap = entry.is_left_out;
        }
        gaps
    }

    fn shortened(self) -> Option<Messages> {
        let is_whole = |entry: &PromptEntry<'_>| !entry.is_left_out && entry.cleared.is_none();
        if self.entries.iter().all(is_whole) {
            return None;
        }
        let mut messages = Messages::new();
        let mut is_in_gap = false;
        for entry in self.entries {
            if entry.is_left_out {
                is_in_gap = true;
                continue;
            }
            if std::mem::take(&mut is_in_gap) {
                messages.push(self.note.clone());
            }
            messages.push(entry.cleared.unwrap_or_else(|| entry.message.clone()));
        }
        Some(messages)
    }
}

/// Returns what the model reads in place of messages that were left out.
pub(super) fn note() -> Message {
    Message::user(LEFT_OUT)
}

/// Returns a message with notes in place of its results. It keeps its id, and each result its call.
fn without_results(message: &Message) -> Message {
    let mut cleared = message.clone();
    for part in cleared.parts_mut() {
        if let Part::ToolResult(result) = part {
            let note = format!(
                "[This result of `{}` was cleared to save space.]",
                result.name
            );
            result.parts = vec![Part::from_text(note)];
        }
    }
    cleared
}
