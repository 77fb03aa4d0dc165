//! The events of any agent with any callbacks follow the rules.

use std::pin::pin;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::SeqCst};
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll, Wake, Waker};

use futures::{FutureExt, Stream};
use proptest::prelude::*;
use serde_json::{Value, json};
use tower_agent::callback::{
    after_agent, after_model, on_agent_error, on_model_error, on_tool_error,
};
use tower_agent::message::ToolCall;
use tower_agent::stream::EventKind as Told;
use tower_agent::{
    Action, Agent, AgentBuilder, AgentRequest, AgentResponse, BoxError, Error, ErrorKind,
    Interrupt, Message, ModelResponse, Part, Recovery, Request, Role, Tool, ToolRequest,
};
use tower_agent_agui::conversations::{ConversationKey, MemoryConversations, Roles};
use tower_agent_agui::{
    AgUiBuilder, Conversation, Event, Message as ShownMessage, MessageKind, RunAgentInput,
    TranslateRequest, TranslateResponse, after_translate, before_translate, wrap_translate,
};
use tower_agent_test::{ScriptedModel, Turn};

use super::{open, presets, rules, wire};
use crate::any::any_event;
use test_support::property::cases;

// The agent.

#[derive(Clone, Debug)]
enum Said {
    Text(String),
    Thought(String),
    Calls(Vec<&'static str>),
}

type Script = Vec<(Said, Option<usize>)>;

fn script() -> impl Strategy<Value = Script> {
    let tools = vec![
        "echo", "echo", "count", "fail", "ask", "tell", "helper", "pick", "unknown",
    ];
    let said = prop_oneof![
        "[a-c]{0,9}".prop_map(Said::Text),
        "[a-c]{1,5}".prop_map(Said::Thought),
        prop::collection::vec(prop::sample::select(tools), 1..4).prop_map(Said::Calls),
    ];
    prop::collection::vec((said, prop::option::weighted(0.25, 0..4_usize)), 0..4)
}

fn model(script: &Script, name: &str, alike: bool) -> ScriptedModel {
    let turns = script.iter().enumerate().map(|(index, (said, fails))| {
        let parts = match said {
            Said::Text(text) => vec![Part::from_text(text)],
            Said::Thought(thought) => vec![Part::reasoning(thought), Part::from_text("so")],
            Said::Calls(tools) => tools
                .iter()
                .enumerate()
                .map(|(number, tool)| {
                    // In conversations of their own two agents name the first of a turn alike.
                    let id = match number {
                        0 if alike => format!("c{index}"),
                        _ => format!("{name}-{index}-{number}"),
                    };
                    Part::from(ToolCall::new(id, *tool, json!({ "request": number })))
                })
                .collect(),
        };
        let turn = Turn::response(ModelResponse::new(Message::new(Role::Assistant, parts)));
        match fails {
            None => turn,
            Some(after) => turn.failing_after(*after, Error::new(ErrorKind::Overloaded, "busy")),
        }
    });
    ScriptedModel::new(turns.chain([Turn::from_text("end")])).chunk_size(3)
}

/// The layers and callbacks around the model, the tools and the agent.
#[derive(Clone, Copy, Debug)]
enum Around {
    Retry,
    Fallback,
    Replace,
    ToolFallback,
    AgentRetry,
    AgentFallback,
    AgentReplace,
}

fn around() -> impl Strategy<Value = Vec<Around>> {
    let around = prop::sample::select(vec![
        Around::Retry,
        Around::Retry,
        Around::Fallback,
        Around::Replace,
        Around::ToolFallback,
        Around::AgentRetry,
        Around::AgentFallback,
        Around::AgentReplace,
    ]);
    prop::collection::vec(around, 0..3)
}

fn tools() -> [Tool; 5] {
    [
        Tool::function("echo", "", |value: Value| value),
        Tool::function_with("count", "", |_: Value, call: ToolRequest| {
            let state = call.context().state();
            let count = state
                .get("count")
                .and_then(|value| value.as_i64())
                .unwrap_or(0)
                + 1;
            state.set("count", count);
            count
        }),
        Tool::function("fail", "", |_: Value| {
            Err::<Value, _>(Error::new(ErrorKind::Tool, "it broke"))
        }),
        Tool::function_with("ask", "", |_: Value, call: ToolRequest| {
            let pending = Interrupt::new(call.context().call_path(), "question");
            async move { Err::<Value, _>(Error::interrupt(pending)) }
        }),
        Tool::function_with("tell", "", |value: Value, call: ToolRequest| async move {
            call.context().emit("told", value).await;
            "told"
        }),
    ]
}

fn agent(name: &str, script: &Script, asked: &Asked) -> AgentBuilder {
    let (_, _, semantics) = presets()[asked.preset];
    let model = model(script, name, !asked.team);
    let mut builder = Agent::builder(model)
        .name(name)
        .tools(tools())
        .semantics(semantics);
    for around in &asked.around {
        builder = match around {
            Around::Retry => builder.on_model(on_model_error(|_, _| Recovery::Retry)),
            Around::Fallback => builder.on_model(on_model_error(|_, _| {
                Recovery::Fallback(ModelResponse::from_text("fell back"))
            })),
            Around::Replace => builder.on_model(after_model(|request, _| {
                match request.messages().len() % 2 {
                    0 => Action::Continue,
                    _ => Action::Respond(ModelResponse::from_text("replaced")),
                }
            })),
            Around::ToolFallback => builder.on_tool(on_tool_error(|_, error| {
                Recovery::Fallback(tower_agent::ToolResponse::error(error.message()))
            })),
            Around::AgentRetry => builder.on_agent(on_agent_error(|_, _| Recovery::Retry)),
            Around::AgentFallback => builder.on_agent(on_agent_error(|_, _| {
                Recovery::Fallback(AgentResponse::new([Message::assistant("fell back")]))
            })),
            Around::AgentReplace => builder.on_agent(after_agent(|_, _| {
                Action::Respond(AgentResponse::new([Message::assistant("replaced")]))
            })),
        };
    }
    builder
}

/// A case: two scripts, one of a helper within the agent, and the layers around.
#[derive(Clone, Debug)]
pub struct Asked {
    script: Script,
    around: Vec<Around>,
    helper: Script,
    preset: usize,
    team: bool,
}

pub fn asked() -> impl Strategy<Value = Asked> {
    (
        script(),
        around(),
        script(),
        0..8_usize,
        prop::bool::weighted(0.2),
    )
        .prop_map(|(script, around, helper, preset, team)| Asked {
            script,
            around,
            helper,
            preset,
            team,
        })
}

impl Asked {
    fn agent(&self) -> Agent {
        let helper = agent("helper", &self.helper, self);
        let lead = agent("lead", &self.script, self);
        if self.team {
            let members = [lead.build().unwrap(), helper.build().unwrap()];
            return Agent::sequential("team").agents(members).build().unwrap();
        }
        lead.tool(helper.build().unwrap().into_tool("Helps."))
            .build()
            .unwrap()
    }

    pub fn input(&self) -> RunAgentInput {
        let mut input = super::input();
        let pick = json!({ "name": "pick", "description": "" });
        input.tools.push(serde_json::from_value(pick).unwrap());
        input
    }
}

// The callbacks.

/// A callback's change of an event.
#[derive(Clone, Debug)]
enum Act {
    Look,
    Drop,
    Double,
    Reverse,
    /// Sends it with the next one, before or behind that.
    Hold(bool),
    Rename(&'static str),
    Inject(Box<Event>, bool),
    Instead(Box<Event>),
    SkipRest,
    Fail,
    Abort,
    Interrupt,
    End,
    Panic,
}

#[derive(Clone, Debug)]
struct Meddler {
    act: Act,
    before: bool,
    /// At every so many events, from which on.
    at: (usize, usize),
    /// Behind a layer of its own.
    layered: bool,
    waits: bool,
}

const NAMES: &[&str] = &["a", "b", "r-m1", "r-m2", "r-a2", "c0"];

fn meddler() -> impl Strategy<Value = Meddler> {
    let event = || any_event(NAMES).prop_map(Box::new);
    let act = prop_oneof![
        2 => Just(Act::Look),
        3 => Just(Act::Drop),
        3 => Just(Act::Double),
        2 => Just(Act::Reverse),
        3 => any::<bool>().prop_map(Act::Hold),
        3 => prop::sample::select(NAMES).prop_map(Act::Rename),
        8 => (event(), any::<bool>()).prop_map(|(event, first)| Act::Inject(event, first)),
        3 => event().prop_map(Act::Instead),
        1 => Just(Act::SkipRest),
        1 => Just(Act::Fail),
        1 => Just(Act::Abort),
        1 => Just(Act::Interrupt),
        1 => Just(Act::End),
        1 => Just(Act::Panic),
    ];
    let at = (1..12_usize, 0..20_usize);
    (
        act,
        any::<bool>(),
        at,
        prop::bool::weighted(0.2),
        prop::bool::weighted(0.2),
    )
        .prop_map(|(act, before, at, layered, waits)| Meddler {
            act,
            before,
            at,
            layered,
            waits,
        })
}

fn rename(kind: &mut Told, name: &str) {
    match kind {
        Told::TextStart { message: id }
        | Told::TextDelta { message: id, .. }
        | Told::TextEnd { message: id }
        | Told::ReasoningStart { id, .. }
        | Told::ReasoningDelta { id, .. }
        | Told::ReasoningEnd { id }
        | Told::ToolCallDelta { id, .. }
        | Told::ToolCallEnd { id }
        | Told::AttemptDiscarded { message: id, .. } => *id = name.into(),
        Told::ToolCallStart(call) => call.id = name.into(),
        Told::ToolResult(result) => result.id = name.into(),
        _ => {}
    }
}

impl Meddler {
    /// Makes of a response what the act says.
    fn change(&self, held: &Mutex<Vec<Event>>, events: Vec<Event>) -> Result<Vec<Event>, Error> {
        Ok(match &self.act {
            Act::Drop => Vec::new(),
            Act::Double => [events.clone(), events].concat(),
            Act::Reverse => events.into_iter().rev().collect(),
            Act::Hold(before) => {
                let late = std::mem::replace(&mut *held.lock().unwrap(), events);
                if *before {
                    late
                } else {
                    late.into_iter().rev().collect()
                }
            }
            Act::Inject(event, true) => [vec![(**event).clone()], events].concat(),
            Act::Inject(event, false) => [events, vec![(**event).clone()]].concat(),
            Act::Instead(event) => vec![(**event).clone()],
            Act::Fail => return Err(Error::new(ErrorKind::Other, "failed")),
            Act::Abort => return Err(Error::abort("aborted")),
            Act::Interrupt => return Err(Error::interrupt(Interrupt::new("p", "why"))),
            Act::End => return Err(Error::end_invocation()),
            Act::Panic => panic!("panicked"),
            Act::Look | Act::SkipRest | Act::Rename(_) => events,
        })
    }

    fn stand(self, server: AgUiBuilder) -> AgUiBuilder {
        let seen = AtomicUsize::new(0);
        let held = Arc::new(Mutex::new(Vec::new()));
        let (every, from) = self.at;
        let acts = move || {
            let at = seen.fetch_add(1, SeqCst);
            at >= from && (at - from).is_multiple_of(every)
        };
        let waits = self.waits;
        if self.layered {
            return server.translate_layer(wrap_translate(
                move |request: TranslateRequest, mut next| {
                    let (acts, meddler, held) = (acts(), self.clone(), held.clone());
                    async move {
                        let response = next.run(request).await?;
                        Yield(!meddler.waits).await;
                        if acts {
                            Ok(meddler
                                .change(&held, response.into_events())?
                                .into_iter()
                                .collect())
                        } else {
                            Ok(response)
                        }
                    }
                },
            ));
        }
        if self.before {
            return server.on_translate(before_translate(move |request| {
                let acts = acts();
                let action = match &self.act {
                    _ if !acts => Ok(Action::Continue),
                    Act::Look => Ok(Action::Continue),
                    Act::SkipRest => Ok(Action::SkipRest),
                    Act::Rename(name) => {
                        rename(&mut request.event_mut().kind, name);
                        Ok(Action::Continue)
                    }
                    _ => self
                        .change(&held, Vec::new())
                        .map(|events| Action::Respond(TranslateResponse::new(events))),
                };
                async move {
                    Yield(!waits).await;
                    action
                }
            }));
        }
        server.on_translate(after_translate(move |_, response| {
            let action = match (&self.act, acts()) {
                (_, false) | (Act::Look | Act::Rename(_), _) => Ok(Action::Continue),
                (Act::SkipRest, _) => Ok(Action::SkipRest),
                _ => self
                    .change(&held, response.events().to_vec())
                    .map(|events| Action::Respond(TranslateResponse::new(events))),
            };
            async move {
                Yield(!waits).await;
                action
            }
        }))
    }
}

/// Waits for one more poll, unless it is true.
struct Yield(bool);

impl Future for Yield {
    type Output = ();

    fn poll(mut self: std::pin::Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
        if std::mem::replace(&mut self.0, true) {
            return Poll::Ready(());
        }
        cx.waker().wake_by_ref();
        Poll::Pending
    }
}

// The runs.

struct Woken(AtomicBool);

impl Wake for Woken {
    fn wake(self: Arc<Self>) {
        self.0.store(true, SeqCst);
    }
}

/// Reads to the end; fails if the stream waits for what nobody will wake it for, or never ends.
fn read(stream: impl Stream<Item = Event>) -> Result<Vec<Event>, TestCaseError> {
    let woken = Arc::new(Woken(AtomicBool::new(false)));
    let waker = Waker::from(woken.clone());
    let mut cx = Context::from_waker(&waker);
    let mut stream = pin!(stream);
    let mut events = Vec::new();
    for _ in 0..100_000 {
        match stream.as_mut().poll_next(&mut cx) {
            Poll::Ready(Some(event)) => events.push(event),
            Poll::Ready(None) => return Ok(events),
            Poll::Pending => {
                prop_assert!(woken.0.swap(false, SeqCst), "it hangs after {events:#?}");
            }
        }
    }
    Err(TestCaseError::fail(format!(
        "it never ends: {} events",
        events.len()
    )))
}

fn schema() -> &'static jsonschema::Validator {
    static SCHEMA: std::sync::LazyLock<jsonschema::Validator> = std::sync::LazyLock::new(|| {
        let schema = include_str!("../wire/event.schema.json");
        jsonschema::validator_for(&serde_json::from_str(schema).unwrap()).unwrap()
    });
    &SCHEMA
}

fn obeys(events: &[Event], by_schema: bool) -> Result<(), TestCaseError> {
    let sent = wire(events);
    let verdict = rules::check("t", "r", &sent);
    prop_assert!(verdict.is_ok(), "{verdict:?}\n{events:#?}");
    for event in sent.iter().filter(|_| by_schema) {
        let errors: Vec<_> = schema()
            .iter_errors(event)
            .map(|error| error.to_string())
            .collect();
        prop_assert!(errors.is_empty(), "{event}: {errors:?}");
    }
    Ok(())
}

/// The contents of a conversation: text and calls of each message, the answers to the calls, the
/// thoughts.
#[derive(Debug, Default, PartialEq)]
struct Transcript {
    said: Vec<(String, Vec<String>)>,
    answers: Vec<(String, String)>,
    thoughts: String,
}

impl Transcript {
    fn say(&mut self, text: String, calls: Vec<String>) {
        if !text.is_empty() || !calls.is_empty() {
            self.said.push((text, calls));
        }
    }

    /// The answers come as the tools are done, and stand in the order of their calls.
    fn sorted(mut self) -> Self {
        self.answers.sort();
        self
    }

    fn seen(events: &[Event], input: &RunAgentInput) -> Self {
        let mut front_end = Conversation::new(input.messages.clone());
        events.iter().for_each(|event| front_end.apply(event));
        let mut seen = Self::default();
        let own = front_end
            .messages()
            .iter()
            .filter(|event| event.subagent_run_id.is_none());
        for message in own {
            match &message.kind {
                MessageKind::Reasoning { content } => seen.thoughts.push_str(content),
                MessageKind::Tool {
                    tool_call_id,
                    content,
                    ..
                } => {
                    seen.answers
                        .push((tool_call_id.to_string(), content.text()));
                }
                MessageKind::Assistant {
                    content,
                    tool_calls,
                } => {
                    let calls = tool_calls.iter().map(|call| {
                        format!(
                            "{} {} {}",
                            call.id, call.function.name, call.function.arguments
                        )
                    });
                    seen.say(content.clone().unwrap_or_default(), calls.collect());
                }
                _ => {}
            }
        }
        seen.sorted()
    }

    fn of(response: &AgentResponse) -> Self {
        let mut transcript = Self::default();
        let mut calls = std::collections::HashMap::new();
        for message in response.new_messages() {
            let id = message.id().unwrap();
            for (index, call) in message.tool_calls().enumerate() {
                calls.insert(call.id.clone(), id.tool_call(index).to_string());
            }
            for result in message.tool_results() {
                let call = calls[&result.call_id].clone();
                transcript.answers.push((call, result.text()));
            }
            if message.role() != Role::Assistant {
                continue;
            }
            for part in message.parts() {
                if let Part::Reasoning(thought) = part {
                    transcript.thoughts.push_str(&thought.text);
                }
            }
            let call = |(index, call): (usize, &ToolCall)| {
                format!("{} {} {}", id.tool_call(index), call.name, call.arguments)
            };
            let calls = message.tool_calls().enumerate().map(call).collect();
            transcript.say(message.text(), calls);
        }
        transcript.sorted()
    }
}

/// Returns the events as they are sent. Ids of questions are new every time, and replaced by
/// numbers.
fn with_questions_numbered(events: &[Event]) -> Vec<Value> {
    let mut wire = wire(events);
    let Some(last) = wire.last() else { return wire };
    let interrupts = last["outcome"]["interrupts"]
        .as_array()
        .cloned()
        .unwrap_or_default();
    for (number, interrupt) in interrupts.iter().enumerate() {
        let id = interrupt["id"].to_string();
        let text = Value::Array(wire)
            .to_string()
            .replace(&id, &format!("\"q{number}\""));
        wire = serde_json::from_str(&text).unwrap();
    }
    wire
}

/// Reads a run of an agent whose response is kept.
pub fn watch(
    asked: &Asked,
    change: impl FnOnce(AgUiBuilder) -> AgUiBuilder,
) -> Result<(Vec<Event>, Option<AgentResponse>), TestCaseError> {
    let agent = asked.agent();
    let kept = Arc::new(Mutex::new(None));
    let keep = kept.clone();
    let service = tower::service_fn(move |request: AgentRequest| {
        let (run, keep) = (agent.run(request), keep.clone());
        async move {
            let response = run.await?;
            *keep.lock().unwrap() = Some(response.clone());
            Ok::<_, BoxError>(response)
        }
    });
    let events = read(super::started(
        &change(open(service)).build(),
        asked.input(),
    ))?;
    let response = kept.lock().unwrap().take();
    Ok((events, response))
}

proptest! {
    #![proptest_config(cases(10_000))]

    #[test]
    fn events_are_in_order_with_any_callbacks(
        asked in asked(),
        meddlers in prop::collection::vec(meddler(), 1..4),
        preset in 0..8_usize,
        by_schema in prop::bool::weighted(0.1),
    ) {
        let (_, band, _) = presets()[preset];
        let server = open(asked.agent()).semantics(band);
        let server = meddlers.into_iter().fold(server, |server, meddler| meddler.stand(server));
        let events = read(super::started(&server.build(), asked.input()))?;
        obeys(&events, by_schema)?;
    }
}

proptest! {
    #![proptest_config(cases(4_000))]

    #[test]
    fn callbacks_that_only_look_leave_the_front_end_with_the_transcript(
        asked in asked(),
        preset in 0..8_usize,
        by_schema in prop::bool::weighted(0.1),
    ) {
        let (_, band, _) = presets()[preset];
        let (plain, _) = watch(&asked, |server| server)?;
        let (events, response) = watch(&asked, |server| {
            let look = |before, layered, waits| {
                Meddler { act: Act::Look, before, at: (1, 0), layered, waits }
            };
            let looks = [look(true, false, false), look(false, false, true), look(false, true, true)];
            looks.into_iter().fold(server.semantics(band), |server, look| look.stand(server))
        })?;
        obeys(&events, by_schema)?;
        prop_assert_eq!(with_questions_numbered(&events), with_questions_numbered(&plain));
        let ends_well = events.last().unwrap().kind.name() == "RUN_FINISHED";
        prop_assert_eq!(response.is_some(), ends_well);
        if let Some(response) = response {
            let (seen, said) = (Transcript::seen(&events, &asked.input()), Transcript::of(&response));
            prop_assert_eq!(seen, said, "{:#?}", events);
        }
    }
}

/// Returns the messages that are not activities, without the mark of the device that reads them.
fn without_mark(messages: &[ShownMessage]) -> Vec<ShownMessage> {
    let mut messages = messages.to_vec();
    // Reasoning that was discarded is empty.
    messages.retain(|message| match &message.kind {
        MessageKind::Activity { .. } => false,
        MessageKind::Reasoning { content } => !content.is_empty(),
        _ => true,
    });
    for message in &mut messages {
        // A text that a callback began under the id of a message without text shows nothing.
        if let MessageKind::Assistant { content, .. } = &mut message.kind
            && content.as_deref() == Some("")
        {
            *content = None;
        }
        message.metadata = message.metadata.take().and_then(|mut metadata| {
            metadata.remove("reader");
            (!metadata.is_empty()).then_some(metadata)
        });
    }
    messages
}

/// Sorts results of one turn: they are told as they come, and kept in the order of their calls.
fn in_order_of_calls(mut messages: Vec<ShownMessage>) -> Vec<ShownMessage> {
    let is_result = |message: &ShownMessage| matches!(message.kind, MessageKind::Tool { .. });
    for results in messages.chunk_by_mut(|one, other| is_result(one) == is_result(other)) {
        if results.first().is_some_and(is_result) {
            results.sort_by(|one, other| one.id.cmp(&other.id));
        }
    }
    messages
}

/// Fails if a reload shows what the client never had.
fn reload(asked: &Asked, meddlers: Vec<Meddler>) -> Result<(), TestCaseError> {
    let is_plain = meddlers.is_empty();
    let threads = Arc::new(MemoryConversations::new());
    let server = open(asked.agent()).threads(threads.clone());
    let server = meddlers
        .into_iter()
        .fold(server, |server, meddler| meddler.stand(server));
    let events = read(super::started(&server.build(), asked.input()))?;
    let mut client = Conversation::new(asked.input().messages);
    // What it has at the end, and what it has had before.
    let mut had = without_mark(client.messages());
    for event in &events {
        client.apply(event);
        had.extend(without_mark(client.messages()));
    }
    let client = without_mark(client.messages());

    // Its callbacks would change what is shown.
    let plain = open(asked.agent()).threads(threads).build();
    let shown = plain.show(ConversationKey::new("", "", "t"), Roles::default());
    let shown = shown.now_or_never().unwrap().unwrap().unwrap();
    obeys_as(&shown)?;
    let mut reloaded = Conversation::default();
    shown.iter().for_each(|event| reloaded.apply(event));
    let reloaded = without_mark(reloaded.messages());
    for message in &reloaded {
        prop_assert!(
            had.contains(message),
            "{message:?}\n{client:#?}\n{events:#?}"
        );
    }
    let ends_well = events.last().unwrap().kind.name() == "RUN_FINISHED";
    if is_plain && ends_well {
        prop_assert_eq!(in_order_of_calls(reloaded), in_order_of_calls(client));
    }
    Ok(())
}

proptest! {
    #![proptest_config(cases(4_000))]

    #[test]
    fn a_reload_shows_what_the_client_has_and_nothing_else(
        asked in asked(),
        meddlers in prop::collection::vec(meddler(), 0..3),
    ) {
        reload(&asked, meddlers)?;
    }
}

#[test]
fn a_result_is_shown_under_the_call_that_the_client_has_read() {
    // The agent's answer replaces the message with the calls, and the client reads no more of the
    // run.
    let asked = Asked {
        script: vec![(Said::Calls(vec!["tell", "echo", "ask"]), None)],
        around: vec![Around::AgentReplace],
        helper: Vec::new(),
        preset: 2,
        team: false,
    };
    let holds = Meddler {
        act: Act::Hold(false),
        before: false,
        at: (9, 9),
        layered: false,
        waits: false,
    };
    reload(&asked, vec![holds]).unwrap();
}

/// Fails unless the official client accepts the events that show a thread.
fn obeys_as(shown: &[Event]) -> Result<(), TestCaseError> {
    let sent = wire(shown);
    let run = sent[0]["runId"].as_str().unwrap_or_default();
    let verdict = rules::check("t", run, &sent);
    prop_assert!(verdict.is_ok(), "{verdict:?}\n{shown:#?}");
    Ok(())
}
