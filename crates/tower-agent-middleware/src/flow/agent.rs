//! The labels of what callbacks and layers around an agent write: into what it is asked, and in
//! place of what it answers.
//!
//! The guard sees both outside everything else and directly around the agent's loop. A message that
//! differs between the two places was written between them.

use std::borrow::Cow;
use std::collections::HashMap;
use std::sync::{Arc, Mutex};

use serde_json::json;
use tower_agent::call::Request;
use tower_agent::callback::{Action, Callback, Outcome, Recovery};
use tower_agent::context::RunContext;
use tower_agent::error::{Error, Result};
use tower_agent::message::{Message, Messages, Role};
use tower_agent::{AgentRequest, AgentResponse};

use super::book::Book;
use super::history::{MessageOrigin, label_of};
use super::inside::{note_error, note_read};
use super::label::Label;
use super::mixed::begin_labels;
use super::place::{Place, TurnId};
use super::run::FlowRun;
use super::settings::{FlowSettings, not_outside, two_guards};
use super::state::StateLabels;
use super::sum::Sum;
use super::turn::{Brought, Turn};
use crate::lock::lock;

/// The request of an agent before callbacks and layers could change it: an extension of the
/// request.
pub(super) struct Asked {
    guard: Arc<FlowSettings>,
    messages: Messages,
    /// The agent's own outcomes. Of several attempts, all.
    own: Mutex<Vec<Own>>,
    /// Messages as they were, each with the one in its place that says no more.
    shortened: Mutex<Vec<(Message, Message)>>,
    /// Somebody inside the run has begun the conversation: a callback, a layer or a model that
    /// calls the agent.
    is_begun_inside: bool,
}

/// The outcome of a request in the agent itself.
enum Own {
    Answer(Messages),
    Failure(String),
}

impl Asked {
    fn of(guard: &Arc<FlowSettings>, request: &AgentRequest) -> Self {
        Self {
            guard: guard.clone(),
            messages: request.messages().clone(),
            own: Mutex::default(),
            shortened: Mutex::default(),
            is_begun_inside: false,
        }
    }

    /// Records that messages of a response were shortened: each with the message as it was.
    #[cfg(feature = "redact")]
    pub(super) fn note_shortened(&self, messages: impl IntoIterator<Item = (Message, Message)>) {
        lock(&self.shortened).extend(messages);
    }

    /// Returns whether nothing but the agent has answered, with exactly these messages.
    fn is_own_answer(&self, messages: &Messages) -> bool {
        let own = lock(&self.own);
        let mut answers = own.iter().filter_map(Own::answer);
        answers.any(|own| own.len() == messages.len() && messages.continues(own))
    }

    /// Records the label of each of these messages that is none of the request or of the agent
    /// itself, and says more than one. Returns whether there is one.
    fn note_others(&self, book: &Book<'_>, messages: &Messages) -> bool {
        let own = lock(&self.own);
        let lists = own.iter().filter_map(Own::answer).chain([&self.messages]);
        let mut known = HashMap::<_, Vec<_>>::new();
        for message in lists.flatten() {
            known.entry(message.id()).or_default().push(message);
        }
        let is_known = |message: &Message| {
            let same = known.get(&message.id()).into_iter().flatten();
            message.id().is_some() && same.into_iter().any(|known| *known == message)
        };
        let shortened = lock(&self.shortened);
        let mut has_others = false;
        for message in messages {
            let mut as_it_was = message;
            // A message may be shortened twice.
            for (earlier, now) in shortened.iter().rev() {
                if now.id() == as_it_was.id() && now == as_it_was {
                    as_it_was = earlier;
                }
            }
            if !is_known(message) && !is_known(as_it_was) {
                has_others |= note_written(book, message, &self.guard.callbacks);
            }
        }
        has_others
    }
}

impl Own {
    fn answer(&self) -> Option<&Messages> {
        match self {
            Self::Answer(messages) => Some(messages),
            Self::Failure(_) => None,
        }
    }
}

/// The part of the guard around agents, outside everything else.
pub(super) struct OutermostAgent(pub(super) Arc<FlowSettings>);

impl Callback<AgentRequest> for OutermostAgent {
    async fn before(&self, request: &mut AgentRequest) -> Result<Action<AgentResponse>> {
        match request.extensions().get::<Asked>() {
            Some(asked) if !Arc::ptr_eq(&asked.guard, &self.0) => return Err(two_guards()),
            // The guard is registered twice, or a layer passes the request on to another agent.
            Some(_) => {}
            None => {
                let mut asked = Asked::of(&self.0, request);
                asked.is_begun_inside = note_begun_inside(request, &self.0)?;
                if is_outermost(request.context()) {
                    begin_labels(request)?;
                }
                request.extensions_mut().insert(asked);
            }
        }
        let context = request.context();
        let run = FlowRun::of(context)?;
        run.begin_agent(context.step_path(), request.messages());
        if is_outermost(context) && run.begin_outermost() {
            StateLabels::of(context.state(), context, &run, &self.0).begin_run();
        }
        Ok(Action::Continue)
    }

    async fn after(
        &self,
        request: &AgentRequest,
        response: &AgentResponse,
    ) -> Result<Action<AgentResponse>> {
        let own;
        let asked = match request.extensions().get::<Asked>() {
            Some(asked) => asked,
            None => {
                // A callback has answered before this one was asked.
                own = Asked::of(&self.0, request);
                &own
            }
        };
        let context = request.context();
        let run = FlowRun::of(context)?;
        let book = Book::of(context);
        let messages = response.messages();
        if !asked.is_own_answer(messages) && asked.note_others(&book, messages) {
            run.forget_read();
        }
        if is_outermost(context) {
            run.note_answered(messages);
        }
        if !response.interrupts().is_empty() {
            return Ok(Action::Continue);
        }
        let origin = MessageOrigin::of(context, &run, &self.0);
        let answer = label_of_answer(&book, &origin, response);
        note_read(context, &answer.label);
        if asked.is_begun_inside {
            run.note_inside(agent_around(&context.step_path()), &answer);
        }
        let told = json!({
            "agent": context.path(),
            "message": response.message().and_then(Message::id),
            "label": answer.label,
            "from": answer.sources,
        });
        context.note(NOTE, told).await;
        Ok(Action::Continue)
    }

    async fn on_error(
        &self,
        request: &mut AgentRequest,
        error: &Error,
    ) -> Result<Recovery<AgentResponse>> {
        let asked = request.extensions().get::<Asked>();
        let is_own = asked.is_some_and(|asked| {
            let own = lock(&asked.own);
            own.iter()
                .any(|own| matches!(own, Own::Failure(text) if *text == error.to_string()))
        });
        note_error(request, error, is_own, &self.0);
        Ok(Recovery::Propagate)
    }

    fn on_end(&self, request: &AgentRequest, _: Outcome<'_, AgentResponse>) {
        let context = request.context();
        let Ok(run) = FlowRun::of(context) else {
            return;
        };
        run.end_agent(&context.step_path());
        if is_outermost(context) && run.end_outermost() {
            // A later run does not know that it was written in this one.
            StateLabels::of(context.state(), context, &run, &self.0).end_run();
        }
    }

    fn name(&self) -> Cow<'static, str> {
        "Flow(labels)".into()
    }

    fn is_guard(&self) -> bool {
        true
    }
}

/// Returns whether nothing in the run is around the agent.
fn is_outermost(context: &RunContext) -> bool {
    !context.path().contains('/') && context.tool_call_message().is_none()
}

/// The name of the event about the label of an agent's answer.
const NOTE: &str = "flow_answer";

/// The part of the guard directly around an agent's loop.
pub(super) struct InnermostAgent(pub(super) Arc<FlowSettings>);

impl Callback<AgentRequest> for InnermostAgent {
    async fn before(&self, request: &mut AgentRequest) -> Result<Action<AgentResponse>> {
        let Some(asked) = request.extensions().get::<Asked>() else {
            return Err(not_outside());
        };
        let messages = request.messages();
        let is_same = messages.len() == asked.messages.len() && messages.continues(&asked.messages);
        if !is_same && asked.note_others(&Book::of(request.context()), messages) {
            FlowRun::of(request.context())?.forget_read();
        }
        Ok(Action::Continue)
    }

    async fn after(
        &self,
        request: &AgentRequest,
        response: &AgentResponse,
    ) -> Result<Action<AgentResponse>> {
        let messages = response.messages();
        note_answer_of_tool(request, messages, &self.0)?;
        if let Some(asked) = request.extensions().get::<Asked>() {
            lock(&asked.own).push(Own::Answer(messages.clone()));
        }
        Ok(Action::Continue)
    }

    async fn on_error(
        &self,
        request: &mut AgentRequest,
        error: &Error,
    ) -> Result<Recovery<AgentResponse>> {
        if let Some(asked) = request.extensions().get::<Asked>() {
            lock(&asked.own).push(Own::Failure(error.to_string()));
        }
        Ok(Recovery::Propagate)
    }

    fn name(&self) -> Cow<'static, str> {
        "Flow(notes)".into()
    }

    fn is_guard(&self) -> bool {
        true
    }
}

/// Records the label of messages with ids of their own that somebody inside the run asks an agent:
/// the agent around it does not know them. Returns whether somebody inside has begun the
/// conversation.
fn note_begun_inside(request: &AgentRequest, settings: &FlowSettings) -> Result<bool> {
    let context = request.context();
    let run = FlowRun::of(context)?;
    let origin = MessageOrigin::of(context, &run, settings);
    if !origin.is_inner() {
        return Ok(false);
    }
    let book = Book::of(context);
    let step = context.step_path();
    let around = run.messages_of_agent(agent_around(&step));
    let mut is_begun_inside = false;
    for message in request.messages() {
        let Some(Place::Message(id)) = message.id().map(Place::of) else {
            continue;
        };
        let is_foreign = || {
            let mut known = around.iter().flatten();
            around.is_some() && !known.any(|known| known.id() == message.id())
        };
        let is_others = match &id {
            TurnId::OfRun { .. } => origin.is_made_here(&id),
            TurnId::Other(_) => message.role() != Role::Assistant && is_foreign(),
        };
        is_begun_inside |= is_others;
        if is_others && book.turn(&id).is_none() {
            book.set_turn(&id, &Turn::new(settings.callbacks.clone(), Vec::new()));
        }
    }
    Ok(is_begun_inside)
}

/// Returns the step path of the agent around the one with this step path.
fn agent_around(step: &str) -> &str {
    let is_number = |text: &str| text.bytes().all(|byte| byte.is_ascii_digit());
    let step = match step.rsplit_once("//") {
        Some((first, number)) if is_number(number) => first,
        _ => step,
    };
    step.rsplit_once('/').map_or("", |(around, _)| around)
}

/// Records the label of an answer that a tool has given in place of the model: of what it repeats.
fn note_answer_of_tool(
    request: &AgentRequest,
    messages: &Messages,
    settings: &FlowSettings,
) -> Result<()> {
    let mut latest = messages.iter().rev();
    let (Some(answer), Some(result)) = (latest.next(), latest.next()) else {
        return Ok(());
    };
    let mut results = result.tool_results();
    let repeats = answer.role() == Role::Assistant
        && results.any(|result| result.text() == answer.text() && !result.text().is_empty());
    let (true, Some(Place::Message(id))) = (repeats, answer.id().map(Place::of)) else {
        return Ok(());
    };
    let context = request.context();
    let book = Book::of(context);
    if book.turn(&id).is_none() {
        let run = FlowRun::of(context)?;
        let origin = MessageOrigin::of(context, &run, settings);
        let Sum { label, sources } = label_of(&book, &origin, result, &mut None);
        book.set_turn(&id, &Turn::new(label, sources));
    }
    Ok(())
}

/// Records that a callback or a layer has written a message that has an id. Without one, its id
/// will say so. Returns whether a label has changed.
fn note_written(book: &Book<'_>, message: &Message, label: &Label) -> bool {
    let Some(id) = message.id() else {
        return false;
    };
    let (id, known) = match Place::of(id) {
        Place::Brought { by, call } => {
            let earlier = book.turn(&by);
            let earlier = earlier.as_ref().and_then(|turn| turn.result(call));
            let earlier = earlier.map_or_else(Label::unknown, |brought| brought.label.clone());
            book.set_result(&by, call, Brought::shown(earlier.join(label)));
            return true;
        }
        // The program may have said what it adds.
        Place::Message(TurnId::Other(id)) if message.role() != Role::Assistant => {
            let id = TurnId::Other(id);
            if book.turn(&id).is_some() {
                return false;
            }
            (id, None)
        }
        Place::Message(id) | Place::Written(id) => {
            let known = book.turn(&id);
            (id, known)
        }
        Place::Quote(quoted) => {
            let known = book.turn(&quoted);
            (TurnId::Other(id.to_shared()), known)
        }
    };
    let unknown = (message.role() == Role::Assistant).then(Label::unknown);
    let mut turn = known.unwrap_or_else(|| Turn::new(unknown.unwrap_or_default(), Vec::new()));
    turn.label = turn.label.join(label);
    book.set_turn(&id, &turn);
    true
}

/// Returns the label of the answer of an agent, by what it is made of.
pub(super) fn label_of_answer(
    book: &Book<'_>,
    origin: &MessageOrigin<'_>,
    response: &AgentResponse,
) -> Sum {
    let Some(answer) = response.message() else {
        return Sum::default();
    };
    let is_of_model = matches!(answer.id().map(Place::of), Some(Place::Message(_)));
    if is_of_model {
        return label_of(book, origin, answer, &mut None);
    }
    // Whoever has written it may have read all that there was.
    let mut sum = label_of_all(book, origin, response.messages().iter());
    sum.add(&Sum::of(origin.written.clone()));
    sum
}

fn label_of_all<'m>(
    book: &Book<'_>,
    origin: &MessageOrigin<'_>,
    messages: impl IntoIterator<Item = &'m Message>,
) -> Sum {
    let mut sum = Sum::of(origin.base.clone());
    let mut last = None;
    for message in messages {
        sum.add(&label_of(book, origin, message, &mut last));
    }
    sum
}
