use std::collections::{BTreeSet, HashMap, HashSet};
use std::sync::Arc;

use serde::de::IgnoredAny;
use serde_json::{Map, Value};

use super::wire::ToolCallPiece;
use tower_agent::stream::Delta;

/// Tool calls as they arrive in pieces.
///
/// The protocol numbers them and gives id and name with the first piece. Servers leave out the
/// number, the id or both, give them late or again, or number all calls 0.
#[derive(Debug, Default)]
pub(super) struct ToolCalls {
    calls: Vec<Open>,
    /// The last call of each number, and of each id.
    by_index: HashMap<u64, usize>,
    by_id: HashMap<String, usize>,
    /// Those that have not been announced, and the ids of those that have.
    waiting: BTreeSet<usize>,
    announced: HashSet<Arc<str>>,
    /// How long the conversation is, which tells the calls of its turns apart.
    asked: usize,
}

#[derive(Debug, Default)]
struct Open {
    id: String,
    name: String,
    arguments: Arguments,
    /// The id under which it was announced; until then its arguments wait.
    announced: Option<Arc<str>>,
    extra_content: Map<String, Value>,
}

impl ToolCalls {
    pub(super) fn new(asked: usize) -> Self {
        Self { asked, ..Self::default() }
    }

    /// Takes a piece; `deltas` gets what it tells.
    pub(super) fn push(&mut self, piece: ToolCallPiece, deltas: &mut Vec<Delta>) {
        let at = self.place_of(&piece);
        if at == self.calls.len() {
            // A call that another follows gets no id any more.
            self.announce_all(deltas);
            self.calls.push(Open::default());
            self.waiting.insert(at);
            if let Some(index) = piece.index {
                self.by_index.insert(index, at);
            }
        }
        let call = &mut self.calls[at];
        let more = piece.function.arguments;
        if call.id.is_empty() && !piece.id.is_empty() {
            self.by_id.insert(piece.id.clone(), at);
            call.id = piece.id;
        }
        if call.name.is_empty() {
            call.name = piece.function.name;
        }
        call.arguments.push_str(&more);
        call.extra_content.extend(piece.extra_content.unwrap_or_default());
        if call.announced.is_some() {
            send_arguments(at, more, deltas);
        } else if !call.id.is_empty() && !call.name.is_empty() {
            self.announce(at, deltas);
        }
    }

    /// Nothing follows: announces the calls that have waited for an id. Fails for a call that
    /// never got a name.
    pub(super) fn end(&mut self, deltas: &mut Vec<Delta>) -> Result<(), &'static str> {
        self.announce_all(deltas);
        let is_nameless = |call: &Open| {
            call.name.is_empty() && !(call.id.is_empty() && call.arguments.is_empty())
        };
        match self.calls.iter().any(is_nameless) {
            true => Err("the server sent a tool call without a tool's name"),
            false => Ok(()),
        }
    }

    /// What the server added to its calls and must get back, by the call's id.
    pub(super) fn extra_contents(&self) -> impl Iterator<Item = (&str, &Map<String, Value>)> {
        let announced = self.calls.iter().filter(|call| !call.extra_content.is_empty());
        announced.filter_map(|call| Some((&**call.announced.as_ref()?, &call.extra_content)))
    }

    /// Which call a piece belongs to; one past the last for a new one.
    fn place_of(&mut self, piece: &ToolCallPiece) -> usize {
        let new = self.calls.len();
        let Some(last) = new.checked_sub(1) else { return new };
        let name = &piece.function.name;
        if let Some(index) = piece.index {
            let found = self.by_index.get(&index).copied();
            return found.filter(|&at| !self.calls[at].is_another(&piece.id, name)).unwrap_or(new);
        }
        if !piece.id.is_empty() {
            let known = self.by_id.get(&piece.id).copied();
            // Without a name it is a late id, or a new one for each piece.
            return known.unwrap_or(if name.is_empty() { last } else { new });
        }
        if name.is_empty() || !self.calls[last].is_complete_beside(name) { last } else { new }
    }

    fn announce_all(&mut self, deltas: &mut Vec<Delta>) {
        for at in std::mem::take(&mut self.waiting) {
            match self.calls[at].name.is_empty() {
                true => drop(self.waiting.insert(at)),
                false => self.announce(at, deltas),
            }
        }
    }

    fn announce(&mut self, at: usize, deltas: &mut Vec<Delta>) {
        let id = &self.calls[at].id;
        let is_taken = self.announced.contains(&**id);
        // Results find their calls by id, so each needs one of its own.
        let id = if id.is_empty() || is_taken {
            format!("call_{}_{at}", self.asked)
        } else {
            id.clone()
        };
        let id: Arc<str> = id.into();
        let call = &mut self.calls[at];
        call.announced = Some(id.clone());
        self.waiting.remove(&at);
        self.announced.insert(id.clone());
        deltas.push(Delta::ToolCall { index: at, id, name: call.name.as_str().into() });
        send_arguments(at, call.arguments.text.clone(), deltas);
    }
}

impl Open {
    /// Whether a piece of the same number begins another call.
    fn is_another(&self, id: &str, name: &str) -> bool {
        !id.is_empty() && !name.is_empty() && !self.id.is_empty() && self.id != id
    }

    /// Whether a piece that has nothing but a name, and perhaps arguments, begins another call.
    fn is_complete_beside(&mut self, name: &str) -> bool {
        !self.name.is_empty() && (self.name != name || self.arguments.is_complete())
    }
}

/// The text of a call's arguments, and where in its JSON it ends: so that a piece costs what it
/// holds, however much has come before.
#[derive(Debug, Default)]
struct Arguments {
    text: String,
    depth: usize,
    in_string: bool,
    is_escaped: bool,
    /// What stands there is no JSON, whatever follows.
    is_broken: bool,
}

impl Arguments {
    fn push_str(&mut self, more: &str) {
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

    /// Whether it is a whole JSON value.
    fn is_complete(&mut self) -> bool {
        if self.is_broken || self.in_string || self.depth > 0 {
            return false;
        }
        match serde_json::from_str::<IgnoredAny>(&self.text) {
            Ok(_) => true,
            Err(error) => {
                self.is_broken = !error.is_eof();
                false
            }
        }
    }
}

fn send_arguments(index: usize, json: String, deltas: &mut Vec<Delta>) {
    if !json.is_empty() {
        deltas.push(Delta::Arguments { index, json });
    }
}
