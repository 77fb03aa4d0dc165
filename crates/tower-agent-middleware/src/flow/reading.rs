//! The label of all that a model reads, in the request from which its calls are made.

use std::borrow::Cow;
use std::collections::{BTreeSet, HashMap};
use std::sync::{Arc, Mutex};

use tower_agent::AgentRequest;
use tower_agent::call::Request;
use tower_agent::callback::{Action, Callback};
use tower_agent::context::RunContext;
use tower_agent::error::{Error, ErrorKind, Result};
use tower_agent::message::{Message, MessageId, Messages, Part, Role};
use tower_agent::model::{ModelRequest, ModelResponse};

use super::book::{Book, Brought, KEY, Turn, note_read, own_steps};
use super::label::Label;
use super::place::Place;
use super::settings::{FlowSettings, NAME};
use super::vouch::{Vouched, Voucher};
use crate::lock::lock;

/// The request of a model call before callbacks and layers could change it: an extension of the request.
#[derive(Clone)]
pub(super) struct Reading {
    guard: Arc<FlowSettings>,
    messages: Messages,
    instructions: Text,
    sum: Sum,
    /// The label of the request as it was sent; `None` until it was. Of several attempts, all.
    sent: Arc<Mutex<Option<Sum>>>,
}

/// The messages that an agent's model was sent in its last call, and their label: those of the next call are
/// usually the same and more.
struct Known {
    messages: Messages,
    sum: Sum,
}

impl Known {
    /// Returns whether these messages begin with the known ones.
    fn begins(&self, messages: &Messages) -> bool {
        let mut pairs = self.messages.iter().zip(messages);
        self.messages.len() <= messages.len() && pairs.all(|(one, other)| is_same(one, other))
    }
}

/// Returns whether two messages have the same id and content.
fn is_same(one: &Message, other: &Message) -> bool {
    match (one.id(), other.id()) {
        // Clones of one message, as most are, share their id.
        (Some(one_id), Some(other_id)) if std::ptr::eq(one_id, other_id) => true,
        (one_id, other_id) => one_id == other_id && one == other,
    }
}

impl Reading {
    fn of(guard: &Arc<FlowSettings>, request: &ModelRequest) -> Self {
        let context = request.context();
        let key = key_of("read", &context.step_path());
        let known = context.values().get::<Known>(&key).ok().flatten();
        let known = known.filter(|known| known.begins(request.messages()));
        let asked = MessageOrigin::of(context);
        let book = Book::of(context);
        let (mut sum, begin) = match known {
            Some(known) => (known.sum.clone(), known.messages.len()),
            None => (Sum::of(asked.base.clone()), 0),
        };
        let mut last = None;
        for message in request.messages().range(begin) {
            sum.add(&label_of(&book, &asked, message, &mut last));
        }
        let known = Known {
            messages: request.messages().clone(),
            sum: sum.clone(),
        };
        context.values().set(key, known);
        Self {
            guard: guard.clone(),
            messages: request.messages().clone(),
            instructions: Text::of(request.instructions()),
            sum,
            sent: Arc::default(),
        }
    }
}

/// The address of a text that stays where it is for as long as the call lasts.
#[derive(Clone, Copy, PartialEq, Eq)]
struct Text(usize, usize);

impl Text {
    fn of(text: Option<&str>) -> Self {
        text.map_or(Self(0, 0), |text| Self(text.as_ptr() as usize, text.len()))
    }
}

/// The label of what is read, and the tools that made it untrusted.
#[derive(Clone, Default)]
struct Sum {
    label: Label,
    sources: BTreeSet<String>,
}

impl Sum {
    fn of(label: Label) -> Self {
        Self {
            label,
            sources: BTreeSet::new(),
        }
    }

    fn add(&mut self, more: &Self) {
        self.label = self.label.join(&more.label);
        for source in &more.sources {
            if self.sources.len() < MAX_SOURCES {
                self.sources.insert(source.clone());
            }
        }
    }
}

/// How many tools are named as the origin of what the model has read.
const MAX_SOURCES: usize = 16;

/// A turn that was read last, with its message: the results of its calls come next.
type LastTurn = Option<(String, Turn)>;

/// Returns the label of a message of the conversation.
fn label_of(book: &Book<'_>, asked: &MessageOrigin, message: &Message, last: &mut LastTurn) -> Sum {
    let id = message.id().map(MessageId::to_shared);
    match (message.role(), id.as_deref().map(Place::of)) {
        (_, Some(Place::Brought { by, call })) => {
            if last.as_ref().is_none_or(|(id, _)| id != by) {
                *last = book.turn(by).map(|turn| (by.to_owned(), turn));
            }
            let turn = last.as_ref().map(|(_, turn)| turn);
            let brought = turn.and_then(|turn| turn.result(call));
            match (brought, turn) {
                (Some(brought), _) => of_brought(&brought, message),
                // The call was not made. Whoever chose to write a constant text has chosen no text.
                (None, Some(turn)) if is_of_run(message) => Sum::of(turn.label.clone()),
                _ => unknown(message),
            }
        }
        (Role::Assistant, Some(Place::Message(id))) | (_, Some(Place::Quote(id))) => {
            match book.turn(id) {
                Some(turn) => {
                    let sum = Sum {
                        label: turn.label.clone(),
                        sources: turn.sources.clone(),
                    };
                    *last = Some((id.to_owned(), turn));
                    sum
                }
                None => unknown(message),
            }
        }
        (Role::User | Role::System, Some(Place::Message(id))) if !has_result(message) => {
            // The program may have said that it is not the user's own.
            let declared = book.turn(id).map(|turn| turn.label);
            Sum::of(match declared {
                Some(declared) => declared.join(&asked.base),
                None if asked.is_made_here(id) => {
                    // Recorded, since other agents read it later, and do not know where it was made.
                    let turn = Turn::new(Label::unknown(), BTreeSet::new());
                    book.set_turn(id, &turn);
                    turn.label
                }
                None => asked.base.clone(),
            })
        }
        _ => unknown(message),
    }
}

fn of_brought(brought: &Brought, message: &Message) -> Sum {
    let mut sum = Sum::of(brought.label.clone());
    if sum.label.is_trusted() {
        return sum;
    }
    if brought.from.is_empty() {
        sum.sources = names(message);
    } else {
        sum.sources.extend(brought.from.iter().cloned());
    }
    sum
}

fn unknown(message: &Message) -> Sum {
    Sum {
        label: Label::unknown(),
        sources: names(message),
    }
}

/// Returns the tools whose results a message has.
fn names(message: &Message) -> BTreeSet<String> {
    let results = message.tool_results();
    results.map(|result| result.name.to_string()).collect()
}

/// Returns whether a message is a result that the run itself has written.
fn is_of_run(message: &Message) -> bool {
    let mut parts = message.parts().iter();
    parts.all(|part| matches!(part, Part::ToolResult(result) if result.is_of_run()))
}

/// Returns whether a message has a result of a tool: one that came too late is a part of a user message.
fn has_result(message: &Message) -> bool {
    let mut parts = message.parts().iter();
    parts.any(|part| matches!(part, Part::ToolResult(_)))
}

/// The part of the guard outside everything else.
pub(super) struct OutermostReading(pub(super) Arc<FlowSettings>);

/// The part of the guard directly around the model.
pub(super) struct InnermostReading(pub(super) Arc<FlowSettings>);

impl Callback<ModelRequest> for OutermostReading {
    async fn before(&self, request: &mut ModelRequest) -> Result<Action<ModelResponse>> {
        let settings = &self.0;
        if let Some(reading) = request.extensions().get::<Reading>() {
            if !Arc::ptr_eq(&reading.guard, settings) {
                return Err(two_guards());
            }
            return Ok(Action::Continue);
        }
        let reading = Reading::of(settings, request);
        request.extensions_mut().insert(reading);
        request.extensions_mut().insert(Vouched::default());
        Ok(Action::Continue)
    }

    async fn after(
        &self,
        request: &ModelRequest,
        response: &ModelResponse,
    ) -> Result<Action<ModelResponse>> {
        let own;
        let reading = match request.extensions().get::<Reading>() {
            Some(reading) => reading,
            None => {
                // A callback has answered before this one was asked.
                own = Reading::of(&self.0, request);
                &own
            }
        };
        let sent = lock(&reading.sent).clone();
        let Sum { label, sources } = sent.unwrap_or_else(|| {
            // A callback or a layer has answered in place of the model.
            let mut sum = reading.sum.clone();
            sum.add(&Sum::of(self.0.callbacks.clone()));
            sum
        });
        let mut identified = response.clone();
        request.identify(&mut identified);
        let id = identified.message().id().map(MessageId::to_shared);
        let Some(Place::Message(id)) = id.as_deref().map(Place::of) else {
            return Ok(Action::Continue);
        };
        // People read them in a question: a history may have names that nobody knows.
        let mut sources = sources;
        sources.retain(|source| {
            let mut tools = request.tools().iter();
            let mut of_provider = request.settings().server_tools.iter();
            self.0.tools.contains_key(&**source)
                || tools.any(|tool| tool.name() == source)
                || of_provider.any(|tool| tool.kind.name() == source)
        });
        let mut turn = Turn::new(label.clone(), sources);
        for (index, call) in response.message().tool_calls().enumerate() {
            let is_known = request
                .tools()
                .iter()
                .any(|tool| tool.name() == &*call.name);
            if !is_known {
                // The run answers it itself, and no callback for tools is asked.
                turn.set_result(index, Brought::shown(label.clone()));
            }
        }
        Book::of(request.context()).set_turn(id, &turn);
        Ok(Action::Continue)
    }

    fn name(&self) -> Cow<'static, str> {
        NAME.into()
    }

    fn is_guard(&self) -> bool {
        true
    }
}

impl Callback<ModelRequest> for InnermostReading {
    async fn before(&self, request: &mut ModelRequest) -> Result<Action<ModelResponse>> {
        let Some(reading) = request.extensions().get::<Reading>() else {
            return Err(not_outside());
        };
        let settings = &self.0;
        let mut sum = reading.sum.clone();
        if *request.messages() != reading.messages {
            sum = self.changed(request, reading);
        }
        if Text::of(request.instructions()) != reading.instructions
            && request.instructions().is_some()
        {
            sum.add(&Sum::of(settings.callbacks.clone()));
        }
        for tool in &request.settings().server_tools {
            // What such a tool returns is a part of the model's own message.
            let name = tool.kind.name();
            sum.add(&Sum {
                label: settings.server_tool(name),
                sources: BTreeSet::from([name.to_owned()]),
            });
        }
        for tool in request.tools() {
            if !settings.trusts_description(tool) {
                sum.add(&Sum {
                    label: Label::untrusted(),
                    sources: BTreeSet::from([tool.name().to_owned()]),
                });
            }
        }
        note_read(request.context(), &sum.label);
        lock(&reading.sent).get_or_insert_default().add(&sum);
        Ok(Action::Continue)
    }

    fn name(&self) -> Cow<'static, str> {
        NAME.into()
    }

    fn is_guard(&self) -> bool {
        true
    }
}

impl InnermostReading {
    /// Returns the label of messages that callbacks or layers have changed.
    fn changed(&self, request: &ModelRequest, reading: &Reading) -> Sum {
        let mut changed = Changed::of(&self.0, request, reading);
        let mut sum = Sum::of(changed.asked.base.clone());
        for message in request.messages() {
            changed.add(message, changed.vouched.len(), &mut sum);
        }
        sum
    }
}

/// Reads the labels of messages that may be changed or added.
struct Changed<'r> {
    callbacks: &'r Label,
    book: Book<'r>,
    asked: MessageOrigin,
    unchanged: HashMap<&'r MessageId, &'r Message>,
    vouched: Vouched,
    last: LastTurn,
}

impl<'r> Changed<'r> {
    fn of(settings: &'r FlowSettings, request: &'r ModelRequest, reading: &'r Reading) -> Self {
        let identified = reading.messages.iter();
        let unchanged = identified.filter_map(|message| Some((message.id()?, message)));
        Self {
            callbacks: &settings.callbacks,
            book: Book::of(request.context()),
            asked: MessageOrigin::of(request.context()),
            unchanged: unchanged.collect(),
            vouched: request.extensions().get().cloned().unwrap_or_default(),
            last: None,
        }
    }

    /// Adds the label of a message. `before` is the number of vouchers that were there before it was written:
    /// a callback may have shortened what another has shortened or added.
    fn add(&mut self, message: &Message, before: usize, sum: &mut Sum) {
        let known = message.id().and_then(|id| self.unchanged.get(id));
        if known.is_some_and(|known| *known == message) {
            sum.add(&label_of(&self.book, &self.asked, message, &mut self.last));
            return;
        }
        match self.vouched.find(message, before) {
            Some((_, Voucher::Label(label))) => sum.add(&Sum::of(label.clone())),
            Some((at, Voucher::StandsFor(others))) => {
                for other in others.clone() {
                    self.add(&other, at, sum);
                }
            }
            None => sum.add(&Sum::of(self.callbacks.clone())),
        }
    }
}

/// Returns the label of what is made of these messages of a request, if a guard reads labels there.
pub(crate) fn joined_label<'m>(
    request: &ModelRequest,
    messages: impl IntoIterator<Item = &'m Message>,
) -> Option<Label> {
    let reading = request.extensions().get::<Reading>()?;
    let mut changed = Changed::of(&reading.guard, request, reading);
    let mut sum = Sum::default();
    for message in messages {
        changed.add(message, changed.vouched.len(), &mut sum);
    }
    Some(sum.label)
}

/// Gives a label to a message of a request that a program makes: to a document that it attaches, a prompt of
/// a server, a history without labels. It is kept with the conversation.
///
/// Without it, messages of the user are trusted, and messages of a model that the guard was not around are
/// [`unknown`](Label::unknown). The message must have an [id](Message::with_id).
///
/// ```
/// use tower_agent::{AgentRequest, Message};
/// use tower_agent_middleware::flow::{Label, label_history};
///
/// let page = Message::user("A page that I have found: ..").with_id("page-1");
/// let request = AgentRequest::conversation([page.clone()]).with_message("Summarise it.");
/// label_history(&request, &page, Label::untrusted())?;
/// # Ok::<_, tower_agent::Error>(())
/// ```
///
/// # Errors
///
/// Fails with [`InvalidRequest`](ErrorKind::InvalidRequest) if the message has no id.
pub fn label_history(request: &AgentRequest, message: &Message, label: Label) -> Result<()> {
    let id = message.id().map(MessageId::to_shared);
    let Some(Place::Message(id)) = id.as_deref().map(Place::of) else {
        let problem = "a label needs a message with an id of its own: add one with `with_id`";
        return Err(Error::new(ErrorKind::InvalidRequest, problem));
    };
    let turn = Turn::new(label, BTreeSet::new());
    Book::of(request.context()).set_turn(id, &turn);
    Ok(())
}

/// The origin of the messages of the user in a request.
struct MessageOrigin {
    /// The label of the call that this agent works in, which has written them.
    base: Label,
    /// The end of the ids of messages that somebody inside the run has written: a callback that calls an
    /// agent, or a team that makes conversations for its members.
    made_here: Option<String>,
}

impl MessageOrigin {
    fn of(context: &RunContext) -> Self {
        let base = if context.outer_call_key("").is_none() {
            Label::trusted()
        } else {
            // Without the guard around that call, nobody knows.
            let key = in_call(context);
            let label = key.and_then(|key| context.values().get::<Label>(&key).ok().flatten());
            label.map_or_else(Label::unknown, |label| Label::clone(&label))
        };
        let is_inner =
            context.path().contains('/') && !own_steps(&context.call_path(), false).is_empty();
        let made_here = is_inner.then(|| format!("/{}-m", context.step_path()));
        Self { base, made_here }
    }

    /// Returns whether somebody inside the run has written the message with this id.
    fn is_made_here(&self, id: &str) -> bool {
        let before_number = id.rfind("-m").map(|at| &id[..at + 2]);
        match (&self.made_here, before_number) {
            (Some(made_here), Some(before)) => before.ends_with(made_here),
            _ => false,
        }
    }
}

/// Returns the key of the label of the tool call that this call is, or is made in, among the run's values. No
/// other call that runs at the same time has it.
pub(super) fn in_call(context: &RunContext) -> Option<String> {
    let call = context.tool_call_in_stream()?;
    Some(in_call_with_id(&call))
}

/// Returns this key for the tool call with this id in a stream.
pub(super) fn in_call_with_id(call: &str) -> String {
    key_of("call", call)
}

/// Returns a key among the run's values.
fn key_of(kind: &str, name: &str) -> String {
    // A key is made for every call: `format!` takes several times as long.
    let mut key = String::with_capacity(KEY.len() + kind.len() + name.len() + 2);
    for part in [KEY, " ", kind, " ", name] {
        key.push_str(part);
    }
    key
}

pub(super) fn two_guards() -> Error {
    let message = "two different `Flow` guards are around one call: register one, with \
                   `global_callbacks`, that declares all tools";
    Error::new(ErrorKind::InvalidRequest, message)
}

fn not_outside() -> Error {
    let message = "`Flow` is not around the whole call: register it with `global_callbacks` or \
                   `callbacks`, as a bundle";
    Error::new(ErrorKind::InvalidRequest, message)
}
