//! The form in which whole calls are stored: JSON in which what has stood in the run before is a
//! place.
//!
//! A call has the whole conversation, of which the call before had all but the end. So an entry has
//! what it is the first to say, and a list of messages begins as another one does: what a call adds
//! to the database is what is new in it, however long the conversation is.

use std::collections::{HashMap, VecDeque};
use std::future::{Ready, ready};
use std::ops::Range;
use std::sync::Arc;
use std::task::{Context, Poll};

use serde::{Deserialize, Serialize};
use serde_json::value::{RawValue, to_raw_value};
use serde_json::{Value, json};
use sha2::{Digest, Sha256};
use tower_agent::agent::CheckpointHead;
use tower_agent::error::{Error, Result};
use tower_agent::message::{Messages, ToolCall};
use tower_agent::tool::ToolDeclaration;
use tower_agent::{
    Checkpoint, Message, ModelRequest, ModelResponse, Settings, Tool, ToolRequest, ToolResponse,
    ToolSet, Usage,
};
use tower_service::Service;

use crate::forked::Edits;
use crate::kept::{Kept, KeptCall, KeptRun};

/// The length, as JSON, above which a part of a value may stand elsewhere.
const SHARED: usize = 256;

/// The key of the object in whose place another one stands.
const PLACE: &str = "tower_agent_console.at";

/// An entry, and the position in what it was the first to say.
type Place = (u32, u32);

/// Names a list of messages: its entry, and which of the lists there it is.
type List = (u32, u8);

/// The list at the end of a run, which may go on: no other begins as it.
const AFTER: u8 = 2;

/// The number of lists whose beginning a list may have. One agent inside another has its own.
const RECENT: usize = 8;

/// A list of messages.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
struct Places {
    /// It begins as this list, with so many messages.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    on: Option<(List, usize)>,
    /// The rest: entries, and the positions of messages there that follow each other.
    more: Vec<(u32, Range<u32>)>,
}

/// The words of the calls of a run, as far as they are written.
#[derive(Debug, Default)]
pub(crate) struct Said {
    /// Messages by their addresses, which stay theirs while they are here.
    messages: HashMap<usize, (Message, Place)>,
    /// Other values, by the digests of their texts.
    values: HashMap<[u8; 32], Place>,
    /// The words that each entry was the first to say.
    first: HashMap<u32, Vec<First>>,
    /// Lists as they were written: others may begin as these.
    lists: HashMap<List, Places>,
    /// The latest lists, as the places of their messages.
    recent: VecDeque<(List, Vec<Place>)>,
}

#[derive(Debug)]
enum First {
    Message(Message),
    Value(Box<RawValue>),
}

/// An entry as it is stored.
#[derive(Serialize, Deserialize)]
pub(crate) struct Saved {
    /// The words that it is the first to say.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    first: Vec<Box<RawValue>>,
    kept: SavedKept,
}

#[derive(Serialize, Deserialize)]
#[expect(clippy::large_enum_variant, reason = "it is in a box while it is kept")]
enum SavedKept {
    Run {
        settings: Settings,
        /// The declarations of the tools that came with the request.
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        tools: Vec<ToolDeclaration>,
        /// An answer format came with it.
        has_format: bool,
        edits: Edits,
        before: SavedCheckpoint,
        after: Option<SavedCheckpoint>,
    },
    Model {
        path: String,
        messages: Places,
        /// The rest of the request.
        request: Value,
        result: Option<Result<ModelResponse>>,
        used: Usage,
        before: Option<SavedCheckpoint>,
    },
    Tool {
        path: String,
        call: ToolCall,
        changed: Option<Value>,
        result: Option<Result<ToolResponse>>,
        used: Usage,
        /// The digest of the arguments that the tool got.
        arguments: String,
    },
    /// A call of which a redaction hides a part. That is not to stand in a file.
    Hidden { before: Option<SavedCheckpoint> },
}

#[derive(Serialize, Deserialize)]
struct SavedCheckpoint {
    messages: Places,
    head: Value,
}

/// A model request without its messages.
#[derive(Serialize, Deserialize)]
struct Rest {
    instructions: Option<String>,
    tools: Vec<ToolDeclaration>,
    settings: Settings,
}

/// An entry as far as a database has it.
#[expect(clippy::large_enum_variant, reason = "it is taken apart at once")]
pub(crate) enum Read {
    Kept(Box<Kept>),
    /// The run came with an answer format, which is code.
    OfCode,
    /// A redaction hides a part of it. The conversation before it is there.
    Hidden(Option<Checkpoint>),
}

impl Said {
    /// Returns an entry for the database.
    pub(crate) fn save(&mut self, n: u32, kept: &Kept) -> serde_json::Result<String> {
        let kept = match kept {
            Kept::Run(run) => SavedKept::Run {
                settings: run.settings.clone(),
                tools: declarations(run.tools.declarations()),
                has_format: run.answer_format.is_some(),
                edits: run.edits.clone(),
                before: self.checkpoint((n, 0), &run.before)?,
                after: self.optional_checkpoint((n, AFTER), run.after.as_ref())?,
            },
            Kept::Model { call, before } if call.is_hidden => SavedKept::Hidden {
                before: self.optional_checkpoint((n, 0), before.as_ref())?,
            },
            Kept::Tool { call, .. } if call.is_hidden => SavedKept::Hidden { before: None },
            Kept::Model { call, before } => {
                let request = &call.request;
                let rest = Rest {
                    instructions: request.instructions().map(str::to_owned),
                    tools: declarations(request.tools()),
                    settings: request.settings().clone(),
                };
                SavedKept::Model {
                    path: call.path.clone(),
                    messages: self.messages((n, 1), request.messages())?,
                    request: self.shared(n, json!(rest))?,
                    result: call.result.clone(),
                    used: call.used,
                    before: self.optional_checkpoint((n, 0), before.as_ref())?,
                }
            }
            Kept::Tool { call, arguments } => SavedKept::Tool {
                path: call.path.clone(),
                call: call.request.call().clone(),
                changed: call.request.changed_arguments().cloned(),
                result: call.result.clone(),
                used: call.used,
                arguments: arguments.clone(),
            },
        };
        let first = self.first.get(&n).map(Vec::as_slice).unwrap_or_default();
        let first = first.iter().map(|first| match first {
            First::Message(message) => to_raw_value(message),
            First::Value(value) => Ok(value.clone()),
        });
        serde_json::to_string(&Saved {
            first: first.collect::<serde_json::Result<_>>()?,
            kept,
        })
    }

    fn optional_checkpoint(
        &mut self,
        list: List,
        checkpoint: Option<&Checkpoint>,
    ) -> serde_json::Result<Option<SavedCheckpoint>> {
        let saved = checkpoint.map(|checkpoint| self.checkpoint(list, checkpoint));
        saved.transpose()
    }

    fn checkpoint(
        &mut self,
        list: List,
        checkpoint: &Checkpoint,
    ) -> serde_json::Result<SavedCheckpoint> {
        Ok(SavedCheckpoint {
            messages: self.messages(list, &checkpoint.messages)?,
            // It has the conversations of the agents inside.
            head: self.shared(list.0, serde_json::to_value(&checkpoint.head)?)?,
        })
    }

    fn messages(&mut self, list: List, messages: &Messages) -> serde_json::Result<Places> {
        let mut places = Vec::with_capacity(messages.len());
        for message in messages {
            places.push(self.message(list.0, message)?);
        }
        // Written before, such as by a write that has failed, it stays as it is: what was written
        // later may begin as this one.
        if let Some(written) = self.lists.get(&list) {
            return Ok(written.clone());
        }
        let shared = |other: &[Place]| {
            let both = other.iter().zip(&places);
            both.take_while(|(one, other)| one == other).count()
        };
        let bases = self
            .recent
            .iter()
            .map(|(base, other)| (*base, shared(other)));
        let on = bases
            .max_by_key(|(_, len)| *len)
            .filter(|(_, len)| *len > 0);
        let mut more: Vec<(u32, Range<u32>)> = Vec::new();
        for (entry, position) in &places[on.map_or(0, |(_, len)| len)..] {
            match more.last_mut() {
                Some((last, range)) if last == entry && range.end == *position => range.end += 1,
                _ => more.push((*entry, *position..*position + 1)),
            }
        }
        let written = Places { on, more };
        if list.1 != AFTER {
            self.lists.insert(list, written.clone());
            self.recent.push_back((list, places));
            if self.recent.len() > RECENT {
                self.recent.pop_front();
            }
        }
        Ok(written)
    }

    fn message(&mut self, n: u32, message: &Message) -> serde_json::Result<Place> {
        let address = message.parts().as_ptr().addr();
        if let Some((known, place)) = self.messages.get(&address)
            && known.is_clone_of(message)
        {
            return Ok(*place);
        }
        // One that was made anew, such as by a callback that changes every request.
        let digest = digest(&serde_json::to_string(message)?);
        let place = match self.values.get(&digest) {
            Some(place) => *place,
            None => self.add(n, digest, First::Message(message.clone())),
        };
        self.messages.insert(address, (message.clone(), place));
        Ok(place)
    }

    /// Returns a value without the long parts of it, which stand elsewhere: texts, and objects in
    /// lists, such as messages and declarations.
    fn shared(&mut self, n: u32, value: Value) -> serde_json::Result<Value> {
        self.walk(n, value, false)
    }

    fn walk(&mut self, n: u32, value: Value, is_item: bool) -> serde_json::Result<Value> {
        let is_apart = match &value {
            Value::String(text) => text.len() > SHARED,
            // One that looks like a place is none.
            Value::Object(fields) if fields.contains_key(PLACE) => true,
            Value::Object(_) => is_item && value.to_string().len() > SHARED,
            _ => false,
        };
        if is_apart {
            let text = to_raw_value(&value)?;
            let digest = digest(text.get());
            let place = match self.values.get(&digest) {
                Some(place) => *place,
                None => self.add(n, digest, First::Value(text)),
            };
            return Ok(json!({ PLACE: place }));
        }
        Ok(match value {
            Value::Array(items) => {
                let items = items.into_iter().map(|item| self.walk(n, item, true));
                Value::Array(items.collect::<serde_json::Result<_>>()?)
            }
            Value::Object(fields) => {
                let fields = fields.into_iter();
                let fields = fields.map(|(name, value)| Ok((name, self.walk(n, value, false)?)));
                Value::Object(fields.collect::<serde_json::Result<_>>()?)
            }
            other => other,
        })
    }

    fn add(&mut self, n: u32, digest: [u8; 32], first: First) -> Place {
        let all = self.first.entry(n).or_default();
        let place = (n, all.len() as u32);
        all.push(first);
        self.values.insert(digest, place);
        place
    }
}

/// Returns the places of the messages of a list. Fails if it begins as one that is not here.
fn resolve(lists: &HashMap<List, Places>, places: &Places) -> serde_json::Result<Vec<Place>> {
    let mut chain = vec![places];
    while let Some((base, _)) = chain.last().and_then(|last| last.on) {
        chain.push(lists.get(&base).ok_or_else(missing)?);
        // Lists that begin as each other were written by nobody.
        if chain.len() > lists.len() + 1 {
            return Err(missing());
        }
    }
    let mut all: Vec<Place> = Vec::new();
    for Places { on, more } in chain.into_iter().rev() {
        all.truncate(on.map_or(0, |(_, len)| len));
        for (entry, positions) in more {
            all.extend(positions.clone().map(|position| (*entry, position)));
        }
    }
    Ok(all)
}

fn digest(text: &str) -> [u8; 32] {
    Sha256::digest(text).into()
}

fn declarations(tools: &[Arc<ToolDeclaration>]) -> Vec<ToolDeclaration> {
    tools.iter().map(|tool| (**tool).clone()).collect()
}

/// The words of the entries of a stored run.
#[derive(Default)]
pub(crate) struct Texts {
    first: HashMap<u32, Vec<Box<RawValue>>>,
    lists: HashMap<List, Places>,
    messages: HashMap<Place, Message>,
}

impl Texts {
    /// Takes in what is stored of an entry, and returns the rest of it.
    pub(crate) fn add(&mut self, n: u32, saved: &str) -> serde_json::Result<Unread> {
        let Saved { first, kept } = serde_json::from_str(saved)?;
        self.first.insert(n, first);
        let messages = |saved: &SavedCheckpoint| saved.messages.clone();
        let lists = match &kept {
            SavedKept::Run { before, .. } => [Some(messages(before)), None],
            SavedKept::Model {
                before,
                messages: own,
                ..
            } => [before.as_ref().map(messages), Some(own.clone())],
            SavedKept::Hidden { before } => [before.as_ref().map(messages), None],
            SavedKept::Tool { .. } => [None, None],
        };
        let lists = (0..).zip(lists);
        let lists = lists.filter_map(|(which, list)| Some(((n, which), list?)));
        self.lists.extend(lists);
        Ok(Unread(kept))
    }

    fn at(&self, (entry, position): Place) -> serde_json::Result<&RawValue> {
        let first = self.first.get(&entry);
        let value = first.and_then(|first| first.get(position as usize));
        value.map(|value| &**value).ok_or_else(missing)
    }

    fn messages(&mut self, places: &Places) -> serde_json::Result<Messages> {
        let mut messages = Messages::new();
        for place in resolve(&self.lists, places)? {
            let message = match self.messages.get(&place) {
                Some(message) => message.clone(),
                None => {
                    let message: Message = serde_json::from_str(self.at(place)?.get())?;
                    self.messages.insert(place, message.clone());
                    message
                }
            };
            messages.push(message);
        }
        Ok(messages)
    }

    /// Returns a value with what stands elsewhere.
    fn whole(&self, value: &Value) -> serde_json::Result<Value> {
        Ok(match value {
            Value::Object(fields) => match fields.get(PLACE) {
                Some(place) => serde_json::from_str(self.at(Place::deserialize(place)?)?.get())?,
                None => {
                    let fields = fields.iter();
                    let fields = fields.map(|(name, value)| Ok((name.clone(), self.whole(value)?)));
                    Value::Object(fields.collect::<serde_json::Result<_>>()?)
                }
            },
            Value::Array(items) => {
                let items = items.iter().map(|item| self.whole(item));
                Value::Array(items.collect::<serde_json::Result<_>>()?)
            }
            other => other.clone(),
        })
    }

    fn checkpoint(&mut self, saved: &SavedCheckpoint) -> serde_json::Result<Checkpoint> {
        let mut checkpoint = Checkpoint::new(self.messages(&saved.messages)?);
        checkpoint.head = CheckpointHead::deserialize(self.whole(&saved.head)?)?;
        Ok(checkpoint)
    }

    fn optional_checkpoint(
        &mut self,
        saved: Option<&SavedCheckpoint>,
    ) -> serde_json::Result<Option<Checkpoint>> {
        saved.map(|saved| self.checkpoint(saved)).transpose()
    }
}

/// An entry from the database, which names what others have said.
pub(crate) struct Unread(SavedKept);

impl Unread {
    pub(crate) fn is_run(&self) -> bool {
        matches!(self.0, SavedKept::Run { .. })
    }

    /// Returns it with what others have said.
    pub(crate) fn read(&self, texts: &mut Texts) -> serde_json::Result<Read> {
        let kept = match &self.0 {
            SavedKept::Run {
                has_format: true, ..
            } => return Ok(Read::OfCode),
            SavedKept::Hidden { before } => {
                return Ok(Read::Hidden(texts.optional_checkpoint(before.as_ref())?));
            }
            SavedKept::Run {
                settings,
                tools,
                edits,
                before,
                after,
                ..
            } => Kept::Run(KeptRun {
                settings: settings.clone(),
                tools: absent(tools),
                answer_format: None,
                edits: edits.clone(),
                before: texts.checkpoint(before)?,
                after: texts.optional_checkpoint(after.as_ref())?,
            }),
            SavedKept::Model {
                path,
                messages,
                request,
                result,
                used,
                before,
            } => {
                let rest = Rest::deserialize(texts.whole(request)?)?;
                let tools: Vec<_> = rest.tools.into_iter().map(Into::into).collect();
                let mut request = ModelRequest::new(texts.messages(messages)?)
                    .with_tools(tools.into())
                    .with_settings(rest.settings);
                request.set_instructions(rest.instructions.map(Into::into));
                Kept::Model {
                    call: KeptCall {
                        path: path.clone(),
                        request,
                        result: result.clone(),
                        used: *used,
                        is_hidden: false,
                    },
                    before: texts.optional_checkpoint(before.as_ref())?,
                }
            }
            SavedKept::Tool {
                path,
                call,
                changed,
                result,
                used,
                arguments,
            } => {
                let mut request = ToolRequest::new(call.clone());
                if let Some(changed) = changed {
                    *request.arguments_mut() = changed.clone();
                }
                Kept::Tool {
                    call: KeptCall {
                        path: path.clone(),
                        request,
                        result: result.clone(),
                        used: *used,
                        is_hidden: false,
                    },
                    arguments: arguments.clone(),
                }
            }
        };
        Ok(Read::Kept(Box::new(kept)))
    }
}

/// Returns tools that are declared as these, and refuse: what they did was code, which came with
/// the run's request.
fn absent(declarations: &[ToolDeclaration]) -> ToolSet {
    let mut tools = ToolSet::new();
    for declaration in declarations {
        // They were in one set before.
        let _ = tools.insert(Tool::service(declaration.clone(), Absent));
    }
    tools
}

/// A tool that came with a request, and is in no database.
#[derive(Clone)]
struct Absent;

impl Service<ToolRequest> for Absent {
    type Response = ToolResponse;
    type Error = Error;
    type Future = Ready<Result<ToolResponse>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: ToolRequest) -> Self::Future {
        let name = request.name();
        let why = format!("`{name}` came with the recorded run, and is in no database");
        ready(Ok(ToolResponse::error(why)))
    }
}

fn missing() -> serde_json::Error {
    serde::de::Error::custom("it names what is not stored")
}
