//! A front end starts the next run with the messages that it has after this one: the model is shown
//! the same conversation as if it had stayed on the server.

use std::collections::HashMap;
use std::collections::VecDeque;
use std::sync::{Arc, Mutex};

use proptest::prelude::*;
use serde_json::{Value, json};
use tower_agent::message::{MediaSource, Messages, ProviderData, ToolCall};
use tower_agent::{
    Agent, AgentRequest, Error, ErrorKind, Message, ModelRequest, ModelResponse, Part, Role, Tool,
};
use tower_agent_agui::conversations::{MemoryConversations, SealKey};
use tower_agent_agui::{Conversation, Event, RunAgentInput, conversation};

use super::open;
use super::properties::{asked, watch};
use test_support::property::cases;

/// A message, as far as a model is shown it.
#[derive(Debug, PartialEq)]
struct Said {
    role: Role,
    thoughts: String,
    text: String,
    /// The call's number in the conversation, the tool, the arguments, what the provider added.
    calls: Vec<(usize, String, String, ProviderData)>,
    /// The call's number, and what was answered.
    result: Option<(usize, Vec<Part>)>,
}

/// Calls are known by their numbers, for a front end may have to be told another name. Answers of
/// one turn stand in any order.
fn said<'a>(messages: impl Iterator<Item = &'a Message>) -> Vec<Said> {
    let (mut numbers, mut next) = (HashMap::new(), 0);
    let mut said: Vec<_> = messages
        .filter_map(|message| {
            let thoughts = message.parts().iter().filter_map(|part| match part {
                Part::Reasoning(thought) => Some(thought.text.as_str()),
                _ => None,
            });
            let calls = message.tool_calls().map(|call| {
                next += 1;
                numbers.insert(call.id.clone(), next);
                (
                    next,
                    call.name.to_string(),
                    call.arguments.to_string(),
                    call.provider.clone(),
                )
            });
            let calls: Vec<_> = calls.collect();
            let mut results = message.tool_results();
            let result = results
                .next()
                .map(|result| (numbers[&result.call_id], result.parts.clone()));
            let (thoughts, text) = (thoughts.collect::<String>(), message.text());
            // Thoughts that led to nothing are left out.
            let is_empty = text.is_empty() && calls.is_empty();
            let said = Said {
                role: message.role(),
                thoughts,
                text,
                calls,
                result,
            };
            (said.role != Role::Assistant || !is_empty).then_some(said)
        })
        .collect();
    let answers = |one: &Said, other: &Said| one.role == Role::Tool && other.role == Role::Tool;
    for turn in said.chunk_by_mut(answers) {
        turn.sort_by_key(|answer| answer.result.as_ref().map(|(number, _)| *number));
    }
    said
}

/// Returns the front end's messages after these events, by way of the bytes of its next request.
fn held(input: &RunAgentInput, events: &[Event]) -> RunAgentInput {
    let mut held = Conversation::new(input.messages.clone());
    events.iter().for_each(|event| held.apply(event));
    let next = RunAgentInput::new("t", "r", held.messages().iter().cloned());
    RunAgentInput::from_json(&serde_json::to_vec(&next).unwrap()).unwrap()
}

// Messages in which anything may stand anywhere.

#[derive(Clone, Debug)]
enum Piece {
    Text(&'static str),
    Thought(&'static str),
    /// The tool, the call's name if other turns use it too, and whether the provider adds to it.
    Call(&'static str, Option<&'static str>, bool),
}

fn piece() -> impl Strategy<Value = Piece> {
    let tools = prop::sample::select(vec!["echo", "fail", "draw"]);
    let alike = prop::option::weighted(0.3, prop::sample::select(vec!["a", "b"]));
    prop_oneof![
        prop::sample::select(vec!["one", "two"]).prop_map(Piece::Text),
        prop::sample::select(vec!["hm", "ah"]).prop_map(Piece::Thought),
        (tools, alike, any::<bool>()).prop_map(|(tool, id, adds)| Piece::Call(tool, id, adds)),
    ]
}

fn part(place: (usize, usize, usize), piece: &Piece) -> Part {
    match *piece {
        Piece::Text(text) => Part::from_text(text),
        Piece::Thought(text) => Part::reasoning(text),
        Piece::Call(tool, id, adds) => {
            let id = id.map_or_else(|| format!("{place:?}"), str::to_owned);
            let mut call = ToolCall::new(id, tool, json!({ "turn": place.1, "index": place.2 }));
            if adds {
                call.provider
                    .set("openai", json!({ "extra_content": { "signature": "EqQ" } }));
            }
            call.into()
        }
    }
}

/// The models' requests, in order.
type Asked = Arc<Mutex<Vec<Messages>>>;

/// Does what the script says, then is done.
fn agent(run: usize, script: &[Vec<Piece>], asked: &Asked) -> Agent {
    let message = |(turn, pieces): (usize, &Vec<Piece>)| {
        let parts = pieces
            .iter()
            .enumerate()
            .map(|(index, piece)| part((run, turn, index), piece));
        Message::new(Role::Assistant, parts)
    };
    let messages: VecDeque<_> = script.iter().enumerate().map(message).collect();
    let left = Arc::new(Mutex::new(messages));
    let asked = asked.clone();
    let model = tower::service_fn(move |request: ModelRequest| {
        asked.lock().unwrap().push(request.messages().clone());
        let next = left.lock().unwrap().pop_front();
        async move {
            Ok::<_, Error>(next.map_or_else(|| ModelResponse::from_text("end"), ModelResponse::new))
        }
    });
    let tools = [
        Tool::function("echo", "", |value: Value| value),
        Tool::function("fail", "", |_: Value| {
            Err::<Value, _>(Error::new(ErrorKind::Tool, "it broke"))
        }),
        Tool::function("draw", "", |_: Value| {
            tower_agent::ToolResponse::new("here").with_parts([
                Part::from_text("here"),
                Part::image(MediaSource::base64("image/png", "QQ==")),
            ])
        }),
    ];
    Agent::builder(model).tools(tools).build().unwrap()
}

proptest! {
    #![proptest_config(cases(2_000))]

    #[test]
    fn a_conversation_by_way_of_the_front_end_is_the_one_held_here(
        runs in prop::collection::vec(
            prop::collection::vec(prop::collection::vec(piece(), 1..5), 0..4),
            1..4,
        ),
        sealed in any::<bool>(),
    ) {
        let mut here = Messages::new();
        let threads = Arc::new(MemoryConversations::new());
        let key = SealKey::new([1; 32]);
        let mut input = RunAgentInput::new("t", "r", []);
        for (run, script) in runs.iter().enumerate() {
            here.push(Message::user("Go on."));
            let mut front_end = input.messages.clone();
            front_end.push(tower_agent_agui::Message::user(format!("u{run}"), "Go on."));
            input = RunAgentInput::new("t", format!("run{run}"), front_end);

            let request = AgentRequest::conversation(here.clone());
            let (asked_here, asked_there) = (Asked::default(), Asked::default());
            let local = agent(run, script, &asked_here).run(request);
            let response = futures::FutureExt::now_or_never(local);
            here = response.unwrap().unwrap().messages().clone();
            let server = open(agent(run, script, &asked_there));
            let server = if sealed {
                server.stateless(key.clone()).build()
            } else {
                server.threads(threads.clone()).build()
            };
            let server = super::started(&server, input.clone());
            let events = futures::StreamExt::collect::<Vec<_>>(server);
            let events = futures::FutureExt::now_or_never(events).unwrap();
            input = held(&input, &events);

            // To the last part: nothing is lost on the way.
            prop_assert_eq!(&*asked_there.lock().unwrap(), &*asked_here.lock().unwrap());
            let read = conversation::read(&input.messages);
            prop_assert!(read.is_ok(), "{read:?}");
            prop_assert_eq!(said(read.unwrap().iter()), said(here.iter()), "{:#?}", events);
        }
    }
}

proptest! {
    #![proptest_config(cases(2_000))]

    #[test]
    fn the_next_run_has_the_conversation_of_a_caller_on_the_server(asked in asked()) {
        let input = asked.input();
        let (events, response) = watch(&asked, |server| server)?;
        let Some(response) = response else { return Ok(()) };
        let read = conversation::read(&held(&input, &events).messages);
        let mut here = conversation::read(&input.messages).unwrap();
        response.new_messages().for_each(|message| here.push(message.clone()));
        prop_assert!(read.is_ok(), "{read:?}");
        prop_assert_eq!(said(read.unwrap().iter()), said(here.iter()), "{:#?}", events);
    }
}
