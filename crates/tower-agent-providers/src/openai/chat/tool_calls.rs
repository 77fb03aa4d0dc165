use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use serde::de::IgnoredAny;
use serde_json::{Map, Value};

use super::response::ToolCallPiece;
use crate::protocol::Fault;
use tower_agent::message::CallIds;
use tower_agent::stream::{Delta, Piece};

/// Assembles tool calls that arrive in pieces.
///
/// The protocol numbers the calls and sends id and name with the first piece. Servers omit the
/// number, the id or both, send them late or again, number all calls 0, or each piece anew. What a
/// piece says of itself counts in this order: the id of a call, then the name of another one or
/// whether the call is complete, then the number.
#[derive(Debug, Default)]
pub(super) struct ToolCalls {
    calls: Vec<OpenCall>,
    /// The last call with each number, and with each id.
    by_index: BTreeMap<u64, usize>,
    by_id: BTreeMap<String, usize>,
    /// Calls that have not been announced, and the ids of those that have.
    waiting: BTreeSet<usize>,
    ids: CallIds,
    /// The length of the conversation, which makes ids unique across turns.
    message_count: usize,
}

#[derive(Debug, Default)]
struct OpenCall {
    /// Its number, if the server says one.
    index: Option<u64>,
    id: String,
    name: String,
    arguments: Arguments,
    /// The id under which it was announced; until then its arguments wait.
    announced: Option<Arc<str>>,
    extra_content: Map<String, Value>,
}

impl ToolCalls {
    pub(super) fn new(message_count: usize) -> Self {
        Self {
            message_count,
            ..Self::default()
        }
    }

    /// Adds a piece and appends the resulting deltas to `out`.
    pub(super) fn push(&mut self, mut piece: ToolCallPiece<'_>, out: &mut Vec<Piece>) {
        let at = self.place_of(&piece);
        if at == self.calls.len() {
            // A call that another one follows receives no id any more.
            self.announce_all(out);
            self.calls.push(OpenCall::default());
            self.waiting.insert(at);
            if let Some(index) = piece.index {
                self.by_index.insert(index, at);
            }
        }
        let call = &mut self.calls[at];
        call.index = call.index.or(piece.index);
        if call.is_repeated_by(&piece) && call.arguments.is_complete() {
            return;
        }
        let more = piece.take_arguments();
        // The first id counts: some servers send another one with each piece.
        if call.id.is_empty() && !piece.id().is_empty() {
            self.by_id.insert(piece.id().to_owned(), at);
            call.id = piece.id().to_owned();
        }
        if call.name.is_empty() {
            call.name = piece.name().to_owned();
        }
        call.arguments.push_str(&more);
        call.extra_content
            .extend(piece.extra_content.unwrap_or_default());
        if call.announced.is_some() {
            send_arguments(at, more, out);
        } else if !call.id.is_empty() && !call.name.is_empty() {
            self.announce(at, out);
        }
    }

    /// Adds a call that is complete and appends its deltas to `out`.
    pub(super) fn push_whole(&mut self, mut piece: ToolCallPiece<'_>, out: &mut Vec<Piece>) {
        let at = self.calls.len();
        let json = piece.take_arguments();
        let mut call = OpenCall::default();
        if piece.name().is_empty() {
            call.id = piece.id().to_owned();
            call.arguments.text = json;
        } else {
            let id = announce(
                at,
                piece.id(),
                piece.name(),
                &mut self.ids,
                self.message_count,
                out,
            );
            call.announced = Some(id);
            send_arguments(at, json, out);
        }
        call.extra_content = piece.extra_content.unwrap_or_default();
        self.calls.push(call);
    }

    /// Returns whether there is no call that can be read.
    pub(super) fn is_empty(&self) -> bool {
        self.calls.iter().all(|call| call.announced.is_none())
    }

    /// Announces the calls that are still waiting for an id. Fails if a call has no name, unless
    /// the answer is cut off: none of its calls is made.
    pub(super) fn end(&mut self, is_cut: bool, out: &mut Vec<Piece>) -> Result<(), Fault> {
        self.announce_all(out);
        for call in &self.calls {
            // A piece with neither id nor arguments may be nothing but an empty start.
            let is_empty = call.id.is_empty() && call.arguments.is_empty();
            if call.announced.is_none() && !is_empty && !is_cut {
                return Err(Fault::nameless_call());
            }
        }
        Ok(())
    }

    /// Returns the extra content of calls, which must be sent back, by call id.
    pub(super) fn extra_contents(&self) -> impl Iterator<Item = (&str, &Map<String, Value>)> {
        let announced = self
            .calls
            .iter()
            .filter(|call| !call.extra_content.is_empty());
        announced.filter_map(|call| Some((&**call.announced.as_ref()?, &call.extra_content)))
    }

    /// Returns the index of the call that a piece belongs to, one past the last for a new call.
    fn place_of(&mut self, piece: &ToolCallPiece<'_>) -> usize {
        let new = self.calls.len();
        let Some(last) = new.checked_sub(1) else {
            return new;
        };
        let id = piece.id();
        let found = piece
            .index
            .and_then(|index| self.by_index.get(&index).copied());
        // The id counts more than the number, and names the call also where the number is another.
        let known = self.by_id.get(id).copied().or(found);
        if let Some(at) = known {
            return if self.calls[at].is_another(piece) {
                new
            } else {
                at
            };
        }
        let says_name = !piece.name().is_empty();
        match piece.index {
            // A number that is new begins a call, unless the piece has only arguments, which the
            // last call still lacks.
            Some(_) if says_name || !id.is_empty() || self.calls[last].arguments.is_complete() => {
                new
            }
            // Without a name it is a late id, or a server that sends a new id with each piece.
            None if !id.is_empty() && says_name => new,
            None if says_name && self.calls[last].is_another(piece) => new,
            _ => last,
        }
    }

    fn announce_all(&mut self, out: &mut Vec<Piece>) {
        for at in std::mem::take(&mut self.waiting) {
            // A call cannot be announced without a name, which may still come.
            if self.calls[at].name.is_empty() {
                self.waiting.insert(at);
            } else {
                self.announce(at, out);
            }
        }
    }

    fn announce(&mut self, at: usize, out: &mut Vec<Piece>) {
        let call = &mut self.calls[at];
        let id = announce(
            at,
            &call.id,
            &call.name,
            &mut self.ids,
            self.message_count,
            out,
        );
        call.announced = Some(id);
        self.waiting.remove(&at);
        send_arguments(at, call.arguments.text.clone(), out);
    }
}

impl OpenCall {
    /// Returns whether a piece that may belong to this call begins another one.
    fn is_another(&mut self, piece: &ToolCallPiece<'_>) -> bool {
        let name = piece.name();
        let id = piece.id();
        // Only a piece with a name can begin a call. It may also repeat the name of its own.
        if name.is_empty() || self.name.is_empty() {
            return false;
        }
        if !id.is_empty() && !self.id.is_empty() && self.id != id {
            return true;
        }
        if self.name != name {
            return true;
        }
        // What would follow the whole arguments belongs to another call, unless it repeats them.
        let has_more = !piece.arguments().trim().is_empty() && !self.is_repeated_by(piece);
        (has_more || !self.may_have_number(piece.index)) && self.arguments.is_complete()
    }

    /// Returns whether a piece with this number, or none, may be one of this call.
    fn may_have_number(&self, index: Option<u64>) -> bool {
        index.is_none() || self.index.is_none() || self.index == index
    }

    /// Returns whether a piece is the whole call again.
    fn is_repeated_by(&self, piece: &ToolCallPiece<'_>) -> bool {
        let is_same = !piece.id().is_empty() && piece.id() == self.id;
        is_same
            && self.may_have_number(piece.index)
            && !piece.name().is_empty()
            && piece.arguments().trim() == self.arguments.text.trim()
    }
}

/// The text of a call's arguments, with the position up to which it was parsed, so that each piece
/// is parsed only once.
#[derive(Debug, Default)]
struct Arguments {
    text: String,
    depth: usize,
    in_string: bool,
    is_escaped: bool,
    /// The text is invalid JSON, whatever follows.
    is_broken: bool,
}

impl Arguments {
    fn push_str(&mut self, more: &str) {
        // Brackets are counted without parsing, so that many small pieces cost no more than one.
        for byte in more.bytes() {
            match byte {
                _ if self.is_escaped => self.is_escaped = false,
                b'\\' if self.in_string => self.is_escaped = true,
                b'"' => self.in_string = !self.in_string,
                _ if self.in_string => {}
                b'{' | b'[' => self.depth += 1,
                b'}' | b']' => self.depth = self.depth.saturating_sub(1),
                _ => {}
            }
        }
        self.text.push_str(more);
    }

    fn is_empty(&self) -> bool {
        self.text.is_empty()
    }

    /// Returns whether it is a complete JSON value.
    fn is_complete(&mut self) -> bool {
        if self.is_broken || self.in_string || self.depth > 0 {
            return false;
        }
        match serde_json::from_str::<IgnoredAny>(&self.text) {
            Ok(_) => true,
            Err(error) => {
                // More text can still mend an early end, but nothing else.
                self.is_broken = !error.is_eof();
                false
            }
        }
    }
}

/// Appends the delta that starts a call and returns the call's id.
fn announce(
    index: usize,
    id: &str,
    name: &str,
    ids: &mut CallIds,
    message_count: usize,
    out: &mut Vec<Piece>,
) -> Arc<str> {
    let id = ids.claim(&id.into(), || format!("call_{message_count}_{index}"));
    out.push(
        Delta::ToolCall {
            index,
            id: id.clone(),
            name: name.into(),
        }
        .into(),
    );
    id
}

fn send_arguments(index: usize, json: String, out: &mut Vec<Piece>) {
    if !json.is_empty() {
        out.push(Delta::Arguments { index, json }.into());
    }
}
