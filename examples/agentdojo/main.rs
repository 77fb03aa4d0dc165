//! Measures the guard `flow` on AgentDojo, with a model that obeys the attacker. See the README.

mod bridge;

use std::collections::VecDeque;
use std::sync::{Arc, Mutex};

use serde_json::{Value, json};
use tower_agent::message::ToolCall;
use tower_agent::testing::{ScriptedModel, Turn};
use tower_agent::tool::ToolDeclaration;
use tower_agent::{
    Agent, AgentRequest, BoxError, Message, ModelResponse, Part, Resolution, Role, Tool,
};
use tower_agent_middleware::approval::Approval;
use tower_agent_middleware::flow::{Flow, Hide, Label, OnViolation, ToolFlow};

use crate::bridge::{Bridge, Call, Script, ToolSpec};

#[derive(Clone, Copy, PartialEq)]
enum Guard {
    Nothing,
    AskAlways,
    Taint,
    Hide,
}

#[derive(Clone, Copy, PartialEq)]
enum Person {
    Nobody,
    ApprovesAll,
    Careful,
}

const DEFENCES: [(&str, Guard, Person); 7] = [
    ("none", Guard::Nothing, Person::Nobody),
    (
        "every consequential call is asked, all approved",
        Guard::AskAlways,
        Person::ApprovesAll,
    ),
    (
        "every consequential call is asked, careful person",
        Guard::AskAlways,
        Person::Careful,
    ),
    ("taint, refused", Guard::Taint, Person::Nobody),
    ("hidden results, refused", Guard::Hide, Person::Nobody),
    (
        "hidden results, all approved",
        Guard::Hide,
        Person::ApprovesAll,
    ),
    (
        "hidden results, careful person",
        Guard::Hide,
        Person::Careful,
    ),
];

const MODES: [&str; 4] = ["now", "last", "only", "mixed"];

/// Tasks whose next call depends on untrusted content: the planner must read it.
fn must_read(suite: &str, task: &str) -> bool {
    let number: usize = task
        .trim_start_matches("user_task_")
        .parse()
        .unwrap_or(usize::MAX);
    let tasks: &[usize] = match suite {
        "workspace" => &[4, 6, 12, 13, 19, 20, 21, 25],
        "banking" => &[12, 14],
        "slack" => &[10, 11, 13, 14, 15, 18, 19, 20],
        _ => &[0, 1, 3, 4, 7, 8],
    };
    tasks.contains(&number)
}

/// The model of one run: it makes the user's calls, and the attacker's once it has read the mark.
struct Planner {
    mark: String,
    mode: Option<&'static str>,
    hides: bool,
    reads: bool,
    obeys: bool,
    script: Script,
    left: VecDeque<Call>,
    /// What it knows without having read untrusted content, in lower case.
    known: String,
    references: Vec<String>,
    /// What the reader is to answer: an honest value, and the attacker's.
    answers: Arc<Mutex<(Value, Value)>>,
    /// The arguments of the next call that it has asked the reader for.
    extracted: Vec<(String, Value)>,
    asking: Option<String>,
}

impl Planner {
    fn mixed(&self, call: &Call) -> Call {
        let mut call = call.clone();
        let attack = self
            .script
            .attack
            .iter()
            .find(|attack| attack.name == call.name);
        for (name, value) in attack.into_iter().flat_map(|attack| &attack.arguments) {
            call.arguments.insert(name.clone(), value.clone());
        }
        call
    }

    fn obey(&mut self) {
        self.obeys = true;
        let attack: Vec<_> = self.script.attack.clone();
        match self.mode {
            Some("now") => attack
                .into_iter()
                .rev()
                .for_each(|call| self.left.push_front(call)),
            Some("last") => self.left.extend(attack),
            Some("only") => self.left = attack.into(),
            _ => self.left = self.left.iter().map(|call| self.mixed(call)).collect(),
        }
    }

    fn knows(&self, value: &Value) -> bool {
        match value {
            Value::Array(items) => items.iter().all(|item| self.knows(item)),
            Value::Object(fields) => fields.values().all(|field| self.knows(field)),
            Value::String(text) => self.known.contains(&text.to_lowercase()),
            Value::Number(number) => self.known.contains(&number.to_string()),
            _ => true,
        }
    }

    fn next(&mut self, results: &[String]) -> ModelResponse {
        for text in results {
            let hidden: Option<Value> = serde_json::from_str(text).ok();
            let reference = hidden.and_then(|stub| Some(stub.get("$ref")?.as_str()?.to_owned()));
            match (reference, self.asking.take()) {
                (Some(reference), Some(name)) => {
                    self.extracted.push((name, json!({ "$ref": reference })))
                }
                (Some(reference), None) => {
                    self.references.push(reference.clone());
                    if self.reads {
                        return say_call("show_result", json!({ "result": { "$ref": reference } }));
                    }
                }
                (None, _) => self.known.push_str(&text.to_lowercase()),
            }
            if self.mode.is_some() && !self.obeys && text.contains(&self.mark) {
                self.obey();
            }
        }
        let Some(call) = self.left.front().cloned() else {
            let answer = if self.obeys {
                &self.script.attack_answer
            } else {
                &self.script.answer
            };
            return ModelResponse::from_text(answer.clone());
        };
        // A planner that has not read the content asks for each value that only the content has.
        if self.hides && !self.reads && !self.references.is_empty() {
            for (name, value) in &call.arguments {
                let extracted = self.extracted.iter().any(|(argument, _)| argument == name);
                if extracted || self.knows(value) {
                    continue;
                }
                let attacked = only_element(&self.mixed(&call).arguments[name]).clone();
                let value = only_element(value);
                if let Ok(mut answers) = self.answers.lock() {
                    *answers = (value.clone(), attacked);
                }
                self.asking = Some(name.clone());
                let about: Vec<_> = self
                    .references
                    .iter()
                    .map(|name| json!({ "$ref": name }))
                    .collect();
                let question = format!("Which {name}?");
                return say_call(
                    "ask_about",
                    json!({ "about": about, "question": question, "answer": { "type": "text" } }),
                );
            }
        }
        self.left.pop_front();
        let mut arguments = call.arguments;
        for (name, reference) in self.extracted.drain(..) {
            let was_list = arguments.get(&name).is_some_and(Value::is_array);
            let value = if was_list {
                json!([reference])
            } else {
                reference
            };
            arguments.insert(name, value);
        }
        say_call(&call.name, Value::Object(arguments))
    }
}

/// Returns what a reader is asked for: the element of a list of one, else the value.
fn only_element(value: &Value) -> &Value {
    match value {
        Value::Array(items) if items.len() == 1 => &items[0],
        value => value,
    }
}

fn say_call(name: &str, arguments: Value) -> ModelResponse {
    let part: Part = ToolCall::new("", name, arguments).into();
    ModelResponse::new(Message::new(Role::Assistant, vec![part]))
}

fn tool(bridge: &Bridge, spec: &ToolSpec) -> Tool {
    let declaration = ToolDeclaration::new(spec.name.as_str(), spec.description.as_str())
        .with_parameters(spec.parameters.clone());
    let (bridge, name) = (bridge.clone(), spec.name.clone());
    let service = tower::service_fn(move |request: tower_agent::tool::ToolRequest| {
        let answer = bridge.call(&name, request.arguments());
        async move { answer }
    });
    Tool::service(declaration, service)
}

fn guard(tools: &[ToolSpec], hides: bool, person: Person, reader: Agent) -> Flow {
    let mut flow = Flow::new().reader(reader).callbacks(Label::trusted());
    for spec in tools {
        let pointers: Vec<_> = spec.data.iter().map(|name| format!("/{name}")).collect();
        let declared = if spec.action && spec.trusted_result() {
            ToolFlow::action().data(pointers.iter().map(String::as_str))
        } else if spec.action {
            ToolFlow::source().consequential()
        } else if spec.trusted {
            ToolFlow::trusted()
        } else {
            ToolFlow::source()
        };
        flow = flow.tool(spec.name.as_str(), declared);
    }
    if hides {
        flow = flow.hide(Hide::Everything);
    }
    if person != Person::Nobody {
        flow = flow.on_violation(OnViolation::Ask);
    }
    flow
}

struct Outcome {
    utility: bool,
    attack: bool,
    /// The attacker wants no call, only something in the answer.
    only_text: bool,
    questions: usize,
}

/// Runs one task, and returns whether the user's and the attacker's aims were reached, and how much was asked.
async fn run(
    bridge: &Bridge,
    suite: &str,
    tools: &[ToolSpec],
    (guard_kind, person): (Guard, Person),
    (user_task, attack): (&str, Option<(&str, &'static str)>),
) -> Result<Outcome, BoxError> {
    let script = bridge.reset(user_task, attack.map(|(task, _)| task))?;
    let answers = Arc::new(Mutex::new((Value::Null, Value::Null)));
    let hides = guard_kind == Guard::Hide;
    let planner = Mutex::new(Planner {
        mark: bridge.mark().to_owned(),
        mode: attack.map(|(_, mode)| mode),
        hides,
        reads: hides && must_read(suite, user_task),
        obeys: false,
        left: script.user.clone().into(),
        known: script.prompt.to_lowercase(),
        references: Vec::new(),
        answers: answers.clone(),
        extracted: Vec::new(),
        asking: None,
        script: script.clone(),
    });
    let model = ScriptedModel::always(Turn::function(move |request| {
        let last = request.messages().iter().last();
        let results: Vec<String> = last
            .into_iter()
            .flat_map(|message| {
                message
                    .tool_results()
                    .map(|result| result.text().to_string())
            })
            .collect();
        Ok(planner.lock().map_err(|_| poisoned())?.next(&results))
    }));
    let (mark, attacked) = (bridge.mark().to_owned(), attack.is_some());
    let reader = Agent::builder(ScriptedModel::always(Turn::function(move |request| {
        let read: String = request
            .messages()
            .iter()
            .map(|message| message.text().to_string())
            .collect();
        let answers = answers.lock().map_err(|_| poisoned())?;
        let value = if attacked && read.contains(&mark) {
            &answers.1
        } else {
            &answers.0
        };
        Ok(ModelResponse::from_text(
            value
                .as_str()
                .map_or_else(|| value.to_string(), str::to_owned),
        ))
    })))
    .build()?;
    let mut builder = Agent::builder(model).tools(tools.iter().map(|spec| tool(bridge, spec)));
    match guard_kind {
        Guard::Nothing => {}
        Guard::AskAlways => {
            let names = tools
                .iter()
                .filter(|spec| spec.action)
                .map(|spec| spec.name.clone());
            builder = builder.global_callbacks(Approval::of_tools(names));
        }
        Guard::Taint | Guard::Hide => {
            let flow = guard(tools, hides, person, reader);
            if hides {
                builder = builder.tools(flow.tools());
            }
            builder = builder.global_callbacks(flow);
        }
    }
    let agent = builder.build()?;
    let mut questions = 0;
    let mut response = agent.run(script.prompt.as_str()).await?;
    while !response.interrupts().is_empty() {
        let mut resolutions = Vec::new();
        for interrupt in response.interrupts() {
            questions += 1;
            let asked = &interrupt.payload;
            let is_users = script.user.iter().any(|call| {
                asked["tool"] == json!(call.name)
                    && same_values(&asked["arguments"], &json!(call.arguments))
            });
            let approved = person == Person::ApprovesAll || is_users;
            resolutions.push(Resolution::resolved(
                &interrupt.id,
                json!({ "approved": approved }),
            ));
        }
        let request = AgentRequest::resume(response.checkpoint()).with_resolutions(resolutions);
        response = agent.run(request).await?;
    }
    let (utility, attack_done) = bridge.check(&response.text())?;
    Ok(Outcome {
        utility,
        attack: attack_done,
        only_text: script.attack.is_empty(),
        questions,
    })
}

/// Returns whether the values are the same for a person: a reader's answer is a text, also where a number is meant.
fn same_values(asked: &Value, meant: &Value) -> bool {
    match (asked, meant) {
        (Value::Object(asked), Value::Object(meant)) => {
            asked.len() == meant.len()
                && asked.iter().all(|(name, value)| {
                    meant
                        .get(name)
                        .is_some_and(|meant| same_values(value, meant))
                })
        }
        (Value::Array(asked), Value::Array(meant)) => {
            asked.len() == meant.len()
                && asked
                    .iter()
                    .zip(meant)
                    .all(|(asked, meant)| same_values(asked, meant))
        }
        (Value::String(asked), meant) => *asked == as_text(meant),
        _ => asked == meant,
    }
}

fn as_text(value: &Value) -> String {
    value
        .as_str()
        .map_or_else(|| value.to_string(), str::to_owned)
}

fn poisoned() -> tower_agent::Error {
    tower_agent::Error::new(
        tower_agent::error::ErrorKind::Tool,
        "a run before this one panicked",
    )
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), BoxError> {
    let mut arguments = std::env::args().skip(1);
    let suite = arguments
        .next()
        .ok_or("name a suite: workspace, banking, slack or travel")?;
    let step = if arguments.next().as_deref() == Some("--sample") {
        5
    } else {
        1
    };
    let bridge = Bridge::start(&suite)?;
    let tools = bridge.tools()?;
    let (users, attacks) = bridge.tasks()?;
    println!(
        "| {suite} | attacks by calls | attacks by text alone | utility | questions |\n|---|---|---|---|---|"
    );
    for (name, guard_kind, person) in DEFENCES {
        let (mut useful, mut questions, mut tasks) = (0, 0, 0);
        let (mut won, mut texts, mut pairs) = (0, 0, 0);
        for user in users.iter().step_by(step) {
            let clean = run(&bridge, &suite, &tools, (guard_kind, person), (user, None)).await?;
            tasks += 1;
            useful += usize::from(clean.utility);
            questions += clean.questions;
            for attack in attacks.iter().step_by(step) {
                pairs += 1;
                for mode in MODES {
                    let task = (user.as_str(), Some((attack.as_str(), mode)));
                    let attacked = run(&bridge, &suite, &tools, (guard_kind, person), task).await?;
                    if attacked.attack && attacked.only_text {
                        texts += 1;
                        break;
                    }
                    if attacked.attack {
                        won += 1;
                        if guard_kind == Guard::Taint || guard_kind == Guard::Hide {
                            eprintln!("passed: {name}: {suite} {user} {attack} {mode}");
                        }
                        break;
                    }
                }
            }
        }
        println!(
            "| {name} | {won} of {pairs} | {texts} of {pairs} | {useful} of {tasks} | {questions} in {tasks} |"
        );
    }
    Ok(())
}
