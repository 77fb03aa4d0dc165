//! Random programs of tools, agents, callbacks, pauses and resumes, with a model that does
//! anything. What is untrusted or private is known in another way than by labels: by marks in the
//! content itself. The model writes every mark that it has read into each of its calls and texts,
//! so a mark is wherever its content could have had an influence.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

use serde_json::json;
use test_support::property::{sample, seed};
use tower::service_fn;
use tower_agent::callback::before_model;
use tower_agent::message::{Messages, ToolCall};
use tower_agent::{
    AgentRequest, BoxError, Checkpoint, Message, ModelResponse, Part, Request, Resolution, Role,
};
use tower_agent_middleware::approval::{Approval, Decision};
use tower_agent_middleware::flow::{FlowAnswer, Label, OnViolation};

use super::*;

/// A small generator of numbers, the same for each seed.
#[derive(Clone)]
struct Chance(Arc<AtomicU64>);

impl Chance {
    fn new(seed: u64) -> Self {
        Self(Arc::new(AtomicU64::new(seed)))
    }

    fn next(&self) -> u64 {
        // SplitMix64.
        let state = self
            .0
            .fetch_add(0x9e37_79b9_7f4a_7c15, Ordering::Relaxed)
            .wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (state ^ (state >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    fn below(&self, end: usize) -> usize {
        usize::try_from(self.next() % u64::try_from(end).unwrap()).unwrap()
    }

    fn one_in(&self, number: usize) -> bool {
        self.below(number) == 0
    }

    fn of<'a, T>(&self, all: &'a [T]) -> &'a T {
        &all[self.below(all.len())]
    }
}

/// A mark: `U1;` is untrusted, `P2;` is private to alice and the user, `T3;` is neither.
fn marks(text: &str) -> BTreeSet<String> {
    let mut marks = BTreeSet::new();
    for (at, kind) in text.match_indices(['U', 'P', 'T']) {
        let after = &text[at + 1..];
        let digits = after.bytes().take_while(u8::is_ascii_digit).count();
        if digits > 0 && after[digits..].starts_with(';') {
            marks.insert(format!("{kind}{};", &after[..digits]));
        }
    }
    marks
}

fn has(marks: &BTreeSet<String>, kind: char) -> bool {
    marks.iter().any(|mark| mark.starts_with(kind))
}

/// What has happened in all runs of one program.
#[derive(Default)]
struct World {
    made: BTreeMap<&'static str, usize>,
    wrong: Vec<String>,
    /// The calls that a person has allowed, with their arguments.
    allowed: Vec<(String, Value)>,
    marks: usize,
}

#[derive(Clone, Default)]
struct Shared(Arc<Mutex<World>>);

impl Shared {
    fn mark(&self, kind: char) -> String {
        let mut world = self.0.lock().unwrap();
        world.marks += 1;
        format!("{kind}{};", world.marks)
    }

    /// Checks a call of a consequential tool by the marks in it.
    fn acts(&self, tool: &'static str, arguments: &Value) {
        let world = &mut *self.0.lock().unwrap();
        *world.made.entry(tool).or_default() += 1;
        let part = |name: &str| marks(&arguments[name].to_string());
        let all = marks(&arguments.to_string());
        let mut wrong = Vec::new();
        if has(&part("to"), 'U') {
            wrong.push("an untrusted argument decides");
        }
        if has(&part("seen"), 'U') {
            wrong.push("made from an untrusted context");
        }
        if tool == "send" && has(&all, 'P') {
            let to = match &arguments["to"] {
                Value::Array(names) => names.clone(),
                name => vec![name.clone()],
            };
            let are_readers = to.iter().all(|name| name == "alice" || name == "user");
            if !are_readers || to.is_empty() {
                wrong.push("private data is sent to somebody else");
            }
        }
        if wrong.is_empty() {
            return;
        }
        let allowed = (tool.to_owned(), arguments.clone());
        match world.allowed.iter().position(|one| *one == allowed) {
            Some(at) => drop(world.allowed.remove(at)),
            None => world.wrong.push(format!("{tool} {arguments}: {wrong:?}")),
        }
    }
}

/// The choices of one program.
#[derive(Clone)]
struct Program {
    chance: Chance,
    world: Shared,
    hide: Hide,
    on_violation: OnViolation,
    narrow_bits: u32,
    has_worker: bool,
    has_successor: bool,
    approves_echo: bool,
    adds_untrusted: bool,
    cuts: bool,
    shows_results: bool,
}

impl Program {
    fn new(seed: u64) -> Self {
        let chance = Chance::new(seed);
        Self {
            world: Shared::default(),
            hide: *chance.of(&[
                Hide::Nothing,
                Hide::Everything,
                Hide::Everything,
                Hide::LargerThan(30),
            ]),
            on_violation: *chance.of(&[OnViolation::Refuse, OnViolation::Ask]),
            narrow_bits: *chance.of(&[0, 4, 100]),
            has_worker: chance.one_in(2),
            has_successor: chance.one_in(3),
            approves_echo: chance.one_in(3),
            adds_untrusted: chance.one_in(8),
            cuts: chance.one_in(4),
            shows_results: chance.one_in(2),
            chance,
        }
    }

    fn flow(&self) -> Flow {
        let reader_chance = self.chance.clone();
        // It obeys, too: it says all that it has read, or a narrow answer.
        let reader = service_fn(move |request: ModelRequest| {
            let chance = reader_chance.clone();
            async move {
                let prompt = request.messages()[0].text();
                let text = match chance.below(3) {
                    0 => "yes".to_owned(),
                    1 => "7".to_owned(),
                    _ => marks(&prompt).into_iter().collect(),
                };
                Ok::<_, BoxError>(ModelResponse::from_text(text))
            }
        });
        let private = Readers::only(["alice", "user"]);
        Flow::new()
            .hide(self.hide)
            .on_violation(self.on_violation)
            .narrow_answers(self.narrow_bits)
            .reader(Agent::builder(reader).name("reader").build().unwrap())
            .tool("clock", ToolFlow::trusted())
            .tool(
                "page",
                ToolFlow::source()
                    .label(Label::untrusted())
                    .trusted_at("/id")
                    .keys(["body"]),
            )
            .tool("notes", ToolFlow::trusted().readers(private.clone()))
            .tool("mail", ToolFlow::source().readers(private))
            .tool("echo", ToolFlow::trusted())
            .tool("fails", ToolFlow::trusted())
            .tool("act", ToolFlow::action().data(["/body", "/seen"]))
            .tool(
                "send",
                ToolFlow::action()
                    .data(["/body", "/seen"])
                    .recipients("/to"),
            )
            .tool("worker", ToolFlow::agent())
            .tool("transfer_to_agent", ToolFlow::agent())
    }

    fn tools(&self) -> Vec<Tool> {
        let world = || self.world.clone();
        let [clock, page, notes, mail, act, send] =
            [world(), world(), world(), world(), world(), world()];
        vec![
            Tool::function("clock", "", move |_: Value| clock.mark('T')).effect(Effect::Pure),
            Tool::function("page", "", move |_: Value| {
                json!({ "id": page.mark('T'), "body": page.mark('U') })
            })
            .effect(Effect::Pure),
            Tool::function("notes", "", move |_: Value| json!([notes.mark('P')]))
                .effect(Effect::Pure),
            Tool::function("mail", "", move |_: Value| {
                json!({ "from": mail.mark('U'), "body": mail.mark('P') + &mail.mark('U') })
            })
            .effect(Effect::Pure),
            Tool::function("echo", "", |value: Value| value).effect(Effect::Pure),
            Tool::function("fails", "", |value: Value| {
                Err::<String, _>(BoxError::from(format!("cannot do {value}")))
            })
            .effect(Effect::Pure),
            Tool::function("act", "", move |value: Value| {
                act.acts("act", &value);
                "done"
            }),
            Tool::function("send", "", move |value: Value| {
                send.acts("send", &value);
                "sent"
            }),
        ]
    }

    /// Returns a model that does anything.
    fn model(&self, turns: usize) -> impl tower_agent::model::ModelService + Clone {
        let chance = self.chance.clone();
        service_fn(move |request: ModelRequest| {
            let chance = chance.clone();
            async move { Ok::<_, BoxError>(say(&chance, &request, turns)) }
        })
    }

    fn agent(&self) -> Agent {
        let flow = self.flow();
        let mut boss = Agent::builder(self.model(6))
            .name("boss")
            .tools(self.tools())
            .tools(flow.tools());
        if self.has_worker {
            let worker = Agent::builder(self.model(3))
                .name("worker")
                .tools(self.tools())
                .tools(flow.tools())
                .build()
                .unwrap();
            boss = boss.tool(worker.into_tool(""));
        }
        if self.has_successor {
            let successor = Agent::builder(self.model(9))
                .name("successor")
                .tools(self.tools())
                .build()
                .unwrap();
            boss = boss.sub_agent(successor);
        }
        if self.adds_untrusted {
            let world = self.world.clone();
            let chance = self.chance.clone();
            boss = boss.on_model(before_model(move |request| {
                if chance.one_in(3) {
                    let found = Message::user(format!("Found: {}", world.mark('U')));
                    request.messages_mut().push(found);
                }
            }));
        }
        if self.cuts {
            let chance = self.chance.clone();
            boss = boss.on_model(before_model(move |request| {
                if chance.one_in(2) {
                    let from = chance.below(request.messages().len());
                    let kept: Messages = request.messages().range(from).cloned().collect();
                    *request.messages_mut() = kept;
                }
            }));
        }
        if self.shows_results {
            boss = boss.tool_result_messages(|answer: tower_agent::agent::ToolAnswer| {
                let also = Message::user(format!("It is {}", answer.response.value()));
                vec![answer.default, also.with_id("also")]
            });
        }
        boss = boss.global_callbacks(flow);
        if self.approves_echo {
            boss = boss.global_callbacks(Approval::of_tools(["echo"]));
        }
        boss.build().unwrap()
    }

    /// Runs the program, in a new process after each pause.
    async fn run(&self) {
        let mut request = AgentRequest::new("Do something.");
        let mut answered = BTreeSet::new();
        for _ in 0..12 {
            // A run that fails has shown nothing, but its checkpoint goes on.
            let checkpoint = match self.agent().run(request).await {
                Ok(response) => response.checkpoint(),
                Err(error) => error.checkpoint().cloned().unwrap_or_default(),
            };
            let saved = serde_json::to_string(&checkpoint).unwrap();
            let checkpoint: Checkpoint = serde_json::from_str(&saved).unwrap();
            let answers: Vec<_> = checkpoint
                .head
                .interrupts
                .iter()
                .map(|question| {
                    if !answered.insert(question.id.clone()) {
                        let twice = format!("{} was asked twice", question.id);
                        self.world.0.lock().unwrap().wrong.push(twice);
                    }
                    Resolution::resolved(&question.id, self.answer(question))
                })
                .collect();
            let ended = answers.is_empty();
            request = AgentRequest::resume(checkpoint).with_resolutions(answers);
            if ended {
                request = request.with_message("And now something else.");
            }
            if ended && self.chance.one_in(2) {
                return;
            }
        }
    }

    fn answer(&self, question: &tower_agent::Interrupt) -> Value {
        if question.reason != "flow" {
            return Decision::Approve.into();
        }
        if self.chance.one_in(2) {
            return FlowAnswer::Reject { reason: None }.into();
        }
        let tool = question.payload["tool"].as_str().unwrap().to_owned();
        let arguments = question.payload["arguments"].clone();
        self.world.0.lock().unwrap().allowed.push((tool, arguments));
        FlowAnswer::Approve.into()
    }
}

/// Says anything, and with it all marks that the model has read.
fn say(chance: &Chance, request: &ModelRequest, turns: usize) -> ModelResponse {
    let text = read(std::slice::from_ref(request));
    let seen: String = marks(&text).into_iter().collect();
    let iteration = usize::try_from(request.context().iteration()).unwrap();
    if iteration >= turns || chance.one_in(8) {
        return ModelResponse::from_text(format!("Done. {seen}"));
    }
    let references = references(request);
    let mut parts = vec![Part::from_text(seen.clone())];
    for number in 0..=chance.below(2) {
        let tools = request.tools();
        let name = chance.of(tools).name().to_owned();
        let arguments = arguments(chance, &name, &seen, &references);
        parts.push(ToolCall::new(format!("{iteration}-{number}"), name, arguments).into());
    }
    ModelResponse::new(Message::new(Role::Assistant, parts))
}

/// Returns the names of hidden results that a model has read, and some that it guesses.
fn references(request: &ModelRequest) -> Vec<String> {
    let mut names = vec!["@m1.0".to_owned(), "@m2.0".to_owned()];
    for message in request.messages() {
        for result in message.tool_results() {
            if let Ok(stub) = serde_json::from_str::<Value>(&result.text())
                && let Some(name) = stub["$ref"].as_str()
            {
                names.push(name.to_owned());
                names.push(format!("{name}#/body"));
                names.push(format!("{name}#/id"));
            }
        }
    }
    names
}

fn arguments(chance: &Chance, tool: &str, seen: &str, references: &[String]) -> Value {
    let any = || {
        let name = &references[chance.below(references.len())];
        match chance.below(6) {
            0 => reference(name),
            1 => json!(format!("see {{{{{name}}}}}")),
            2 => json!([reference(name)]),
            3 => json!(["alice"]),
            4 => json!("bob"),
            _ => json!("alice"),
        }
    };
    match tool {
        "worker" => json!({ "request": format!("Do it. {seen}") }),
        "transfer_to_agent" => json!({ "agent_name": "successor" }),
        "show_result" => {
            json!({ "result": reference(&references[chance.below(references.len())]) })
        }
        "ask_about" => {
            let answer = match chance.below(3) {
                0 => json!({ "type": "yes_no" }),
                1 => json!({ "type": "number", "min": 0, "max": 9 }),
                _ => json!({ "type": "text" }),
            };
            json!({
                "about": [reference(&references[chance.below(references.len())])],
                "question": seen,
                "answer": answer,
            })
        }
        _ => json!({ "to": any(), "body": any(), "seen": seen }),
    }
}

#[tokio::test]
async fn no_program_acts_on_untrusted_content_or_sends_what_is_private() {
    let first = seed();
    let programs = sample(400, 100_000);
    let mut made: BTreeMap<&str, usize> = BTreeMap::new();
    for number in 0..programs {
        let seed = first.wrapping_add(number);
        let program = Program::new(seed);
        program.run().await;
        let world = program.world.0.lock().unwrap();
        assert!(
            world.wrong.is_empty(),
            "PROPTEST_RNG_SEED={seed}: {:#?}",
            world.wrong
        );
        for (tool, calls) in &world.made {
            *made.entry(tool).or_default() += calls;
        }
    }
    println!("{programs} programs: {made:?}");
    // The guard lets through what may be done: about 28 of each in 100 programs.
    let least = usize::try_from(programs * 15 / 100).unwrap();
    assert!(made["act"] > least && made["send"] > least, "{made:?}");
}
