//! Two users of one agent, whose model does what the request says.

use std::sync::{Arc, LazyLock, Mutex};
use std::time::Duration;

use futures::StreamExt;
use futures::future::join;
use serde_json::{Value, json};
use tokio::time::sleep;
use tower::service_fn;
use tower_agent::compat::Semantics;
use tower_agent::message::ToolCall;
use tower_agent::model::ModelService;
use tower_agent::{
    Agent, AgentBuilder, AgentRequest, AgentResponse, Effect, Message, ModelRequest, ModelResponse,
    Request, Result, Tool, ToolRequest,
};
use tower_agent_middleware::cache::{CacheLayer, Cacheable};
use tower_agent_middleware::context_window::ContextWindow;
use tower_agent_middleware::fallback::Fallback;
use tower_agent_middleware::flow::{Flow, Hide, Label, ToolFlow};
use tower_agent_middleware::redact::{Detector, Redact};
use tower_agent_middleware::retry::CallRetryLayer;
use tower_layer::layer_fn;

#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Person {
    Ann,
    Bob,
}

impl Person {
    /// The addresses that the person's tools find.
    fn addresses(self) -> [&'static str; 2] {
        match self {
            Self::Ann => ["ann@one.example", "amy@one.example"],
            Self::Bob => ["bob@two.example", "ben@two.example"],
        }
    }

    /// Everything that belongs to the person.
    pub(crate) fn values(self) -> [&'static str; 4] {
        let [first, second] = self.addresses();
        [first, second, balance_of(first), balance_of(second)]
    }
}

fn balance_of(address: &str) -> &'static str {
    match address {
        "ann@one.example" => "1001kr",
        "amy@one.example" => "1002kr",
        "bob@two.example" => "2001kr",
        "ben@two.example" => "2002kr",
        _ => "nothing",
    }
}

/// A part of the stack.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Item {
    CacheModel,
    CacheTools,
    /// Around `balance` itself.
    CacheOneTool,
    /// Around the model and the tools of the helper.
    CacheHelper,
    Redact {
        numbered: bool,
        restores: bool,
        input: bool,
        global: bool,
    },
    Hide,
    Retry,
    Fallback,
    Window,
}

/// One call that the model makes.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Step {
    /// Finds the first address of the user.
    Own,
    /// Finds the second one.
    Other,
    /// Asks for the balance of the address that was read last.
    Balance,
    /// Mails to that address.
    Mail,
    /// Mails to somebody whom the model knows.
    Zoe,
    /// Lets another agent ask for the balance.
    Helper,
}

#[derive(Clone, Copy, Debug)]
pub(crate) enum Preset {
    Default,
    AdkPython,
    AdkElixir,
    Trpc,
    Potato,
}

#[derive(Clone, Copy, Debug)]
pub(crate) struct Reading {
    pub(crate) is_streamed: bool,
    pub(crate) begins_after: u64,
}

#[derive(Clone, Debug)]
pub(crate) struct Case {
    /// In the order in which they are registered.
    pub(crate) stack: Vec<Item>,
    pub(crate) steps: Vec<Step>,
    /// What Bob's model does before that.
    pub(crate) before: Option<Step>,
    /// The user says the address.
    pub(crate) is_told: bool,
    pub(crate) preset: Preset,
    pub(crate) readings: [Reading; 2],
}

impl Case {
    pub(crate) fn without_caches(&self) -> Self {
        use Item::{CacheHelper, CacheModel, CacheOneTool, CacheTools};
        let is_cache =
            |item: &Item| matches!(item, CacheModel | CacheTools | CacheOneTool | CacheHelper);
        let mut plain = self.clone();
        plain.stack.retain(|item| !is_cache(item));
        plain
    }

    fn has(&self, item: Item) -> bool {
        self.stack.contains(&item)
    }

    fn question(&self, person: Person) -> String {
        let before = self.before.filter(|_| person == Person::Bob);
        let steps = before.iter().chain(&self.steps);
        let steps: Vec<_> = steps.map(|step| format!("{step:?}")).collect();
        let who = if self.is_told {
            person.addresses()[0]
        } else {
            "me"
        };
        format!("{who}: {}", steps.join(" "))
    }
}

/// What two runs have done, by the person.
#[derive(Clone, Debug, Default)]
pub(crate) struct World {
    /// What tools with effects have received.
    done: Arc<Mutex<Vec<(Person, String)>>>,
    /// What else the person, the model or the tools have read.
    seen: Arc<Mutex<Vec<(Person, String)>>>,
    /// The messages of the run, or its error.
    told: Arc<Mutex<Vec<(Person, String)>>>,
}

fn of(all: &Mutex<Vec<(Person, String)>>, person: Person) -> Vec<String> {
    let all = all.lock().unwrap();
    let own = all.iter().filter(|(of, _)| *of == person);
    own.map(|(_, text)| text.clone()).collect()
}

fn person(request: &impl Request) -> Person {
    *request.context().extension::<Person>().unwrap()
}

impl World {
    pub(crate) async fn run_both(case: &Case) -> Self {
        let world = Self::default();
        let agent = world.agent(case);
        let [first, second] = case.readings;
        join(
            world.run(case, &agent, Person::Ann, first),
            world.run(case, &agent, Person::Bob, second),
        )
        .await;
        // And once more, when everything is stored.
        world.run(case, &agent, Person::Bob, second).await;
        world.run(case, &agent, Person::Ann, first).await;
        world
    }

    pub(crate) fn seen_by(&self, person: Person) -> String {
        let all = [&self.done, &self.seen, &self.told];
        all.iter()
            .flat_map(|texts| of(texts, person))
            .collect::<Vec<_>>()
            .join("\n")
    }

    pub(crate) fn done_by(&self, person: Person) -> Vec<String> {
        of(&self.done, person)
    }

    pub(crate) fn told(&self, person: Person) -> Vec<String> {
        of(&self.told, person)
    }

    fn note(&self, place: &Mutex<Vec<(Person, String)>>, person: Person, text: String) {
        place.lock().unwrap().push((person, text));
    }

    async fn run(&self, case: &Case, agent: &Agent, person: Person, reading: Reading) {
        sleep(Duration::from_secs(reading.begins_after)).await;
        let request = AgentRequest::new(case.question(person)).with_extension(person);
        let result = if reading.is_streamed {
            let mut run = agent.stream(request);
            while let Some(event) = run.next().await {
                self.note(&self.seen, person, format!("{:?}", event.kind));
            }
            run.response().await
        } else {
            agent.run(request).await
        };
        self.note(&self.told, person, told(&result));
    }

    fn agent(&self, case: &Case) -> Agent {
        let helper = cached_helper(Agent::builder(self.model()).name("helper"), case)
            .tool(self.balance())
            .build()
            .unwrap();
        let helper = helper.into_tool("Helps.").effect(Effect::Pure);
        let mut balance = self.balance();
        if case.has(Item::CacheOneTool) {
            balance = balance.layer(cache::<ToolRequest>());
        }
        let mut builder = Agent::builder(self.model())
            .tool(self.find("own", 0))
            .tool(self.find("other", 1))
            .tool(self.mail())
            .tool(balance)
            .tool(helper)
            .semantics(match case.preset {
                Preset::Default => Semantics::default(),
                Preset::AdkPython => Semantics::adk_python(),
                Preset::AdkElixir => Semantics::adk_elixir(),
                Preset::Trpc => Semantics::trpc(),
                Preset::Potato => Semantics::potato(),
            });
        let mut has_flow = false;
        for item in &case.stack {
            // Two different guards of this kind are an error.
            let is_second = *item == Item::Hide && std::mem::replace(&mut has_flow, true);
            if !is_second {
                builder = self.put(builder, *item);
            }
        }
        builder.build().unwrap()
    }

    fn put(&self, builder: AgentBuilder, item: Item) -> AgentBuilder {
        match item {
            Item::CacheModel => builder.model_layer(cache::<ModelRequest>()),
            Item::CacheTools => builder.tool_layer(cache::<ToolRequest>()),
            // Put in their places already.
            Item::CacheOneTool | Item::CacheHelper => builder,
            Item::Redact {
                numbered,
                restores,
                input,
                global,
            } => {
                static REDACT: LazyLock<Redact> =
                    LazyLock::new(|| Redact::new([Detector::email()]).unwrap());
                let mut redact = REDACT.clone();
                if numbered {
                    redact = redact.numbered();
                }
                if input {
                    redact = redact.redact_input();
                }
                if restores {
                    redact = redact.restore_when(|call| call.name() != "helper");
                }
                if global {
                    builder.global_callbacks(redact)
                } else {
                    builder.callbacks(redact)
                }
            }
            Item::Hide => builder.global_callbacks(
                Flow::new()
                    .hide(Hide::Everything)
                    .callbacks(Label::trusted())
                    .tool("own", ToolFlow::source())
                    .tool("other", ToolFlow::source())
                    .tool("balance", ToolFlow::source())
                    .tool("mail", ToolFlow::source()),
            ),
            Item::Retry => builder
                .model_layer(CallRetryLayer::new())
                .tool_layer(CallRetryLayer::new()),
            Item::Fallback => {
                let other = self.model();
                builder.model_layer(layer_fn(move |inner| {
                    Fallback::new(inner).or(other.clone())
                }))
            }
            Item::Window => builder.on_model(ContextWindow::new(150).keep_results(1)),
        }
    }

    /// A model that makes one call of those asked for after the other.
    fn model(&self) -> impl ModelService {
        let world = self.clone();
        service_fn(move |request: ModelRequest| {
            world.note(
                &world.seen,
                person(&request),
                json!(request.messages()).to_string(),
            );
            let answer = answer(&request);
            async move {
                sleep(Duration::from_secs(1)).await;
                let sink = request.delta_sender().cloned();
                answer.streamed_to(sink.as_ref()).await
            }
        })
    }

    fn find(&self, name: &'static str, which: usize) -> Tool {
        Tool::function_with(
            name,
            "Finds an address.",
            move |_: Value, call: ToolRequest| {
                let address = person(&call).addresses()[which];
                async move { address }
            },
        )
    }

    fn balance(&self) -> Tool {
        let world = self.clone();
        let balance = move |asked: Value, call: ToolRequest| {
            world.note(&world.seen, person(&call), asked.to_string());
            let address = asked["of"].as_str().unwrap_or_default().to_owned();
            async move {
                sleep(Duration::from_secs(1)).await;
                format!("{address} has {}", balance_of(&address))
            }
        };
        Tool::function_with("balance", "Tells a balance.", balance).effect(Effect::Pure)
    }

    fn mail(&self) -> Tool {
        let world = self.clone();
        Tool::function_with("mail", "Mails.", move |mail: Value, call: ToolRequest| {
            world.note(&world.done, person(&call), mail.to_string());
            async { "sent" }
        })
    }
}

fn cached_helper(helper: AgentBuilder, case: &Case) -> AgentBuilder {
    if !case.has(Item::CacheHelper) {
        return helper;
    }
    helper
        .model_layer(cache::<ModelRequest>())
        .tool_layer(cache::<ToolRequest>())
}

pub(crate) fn cache<R: Cacheable>() -> CacheLayer<R> {
    CacheLayer::new(|_| Ok("one tenant".to_owned()))
}

/// Returns the messages of a run, with the texts in place of numbered placeholders, or its error.
fn told(result: &Result<AgentResponse>) -> String {
    let response = match result {
        Ok(response) => response,
        Err(error) => return error.to_string(),
    };
    let new = response.new_messages();
    let texts = new.map(|message| json!([message.role(), message.parts()]).to_string());
    let mut told = texts.collect::<Vec<_>>().join("\n");
    let saved = json!(response.checkpoint());
    let vault = &saved["head"]["private_state"]["tower_agent.guard.redact"]["originals"];
    for (placeholder, original) in vault.as_object().into_iter().flatten() {
        told = told.replace(placeholder, original.as_str().unwrap());
    }
    told
}

/// Returns the model's answer: the next call, or what it has read last.
fn answer(request: &ModelRequest) -> ModelResponse {
    let messages = request.messages();
    let asked = messages
        .iter()
        .find(|message| message.text().contains(": "));
    let asked = asked.map(Message::text).unwrap_or_default();
    let (who, steps) = asked.split_once(": ").unwrap_or_default();
    let calls = messages.iter().flat_map(Message::tool_calls).count();
    let results = messages.iter().flat_map(Message::tool_results);
    let read = results
        .map(|result| result.text())
        .filter_map(|text| address_in(&text))
        .last();
    let address = read.unwrap_or_else(|| Address::Text(who.to_owned()));
    let (name, arguments) = match steps.split(' ').nth(calls) {
        Some("Own") => ("own", json!({})),
        Some("Other") => ("other", json!({})),
        Some("Balance") => ("balance", json!({ "of": address.value() })),
        Some("Mail") => ("mail", json!({ "to": address.value() })),
        Some("Zoe") => ("mail", json!({ "to": "zoe@new.example" })),
        Some("Helper") => (
            "helper",
            json!({ "request": format!("{}: Balance", address.text()) }),
        ),
        _ => {
            let last = messages.iter().flat_map(Message::tool_results).last();
            let said = last.map(|result| result.text()).unwrap_or_default();
            return ModelResponse::from_text(format!("{} says {said}", address.text()));
        }
    };
    ModelResponse::from_tool_calls([ToolCall::new(format!("call-{calls}"), name, arguments)])
}

/// An address as the model has read it.
enum Address {
    Text(String),
    Reference(String),
}

impl Address {
    fn value(&self) -> Value {
        match self {
            Self::Text(text) => text.clone().into(),
            Self::Reference(name) => json!({ "$ref": name }),
        }
    }

    fn text(&self) -> String {
        match self {
            Self::Text(text) => text.clone(),
            Self::Reference(name) => format!("{{{{{name}}}}}"),
        }
    }
}

/// Returns the address in a result: plain, as a placeholder, or what stands for it.
fn address_in(text: &str) -> Option<Address> {
    if let Ok(stub) = serde_json::from_str::<Value>(text)
        && let Some(name) = stub["$ref"].as_str()
    {
        return Some(Address::Reference(name.to_owned()));
    }
    let is_address = |word: &&str| word.contains(".example") || word.starts_with("[email");
    text.split(' ')
        .find(is_address)
        .map(|word| Address::Text(word.to_owned()))
}
