//! An agent that pays, and what may be paid.

use std::collections::HashMap;
use std::sync::{Arc, Mutex};

use serde_json::{Value, json};
use tower::ServiceExt;
use tower_agent::message::ToolCall;
use tower_agent::{
    Agent, Error, ErrorKind, Message, ModelRequest, ModelResponse, Part, Role, Tool,
};
use tower_agent_agui::{AgUi, AgUiBuilder};
use tower_agent_middleware::approval::Approval;
use tower_agent_test::{ScriptedModel, Turn};

use super::staff::ROLE;

/// Splitmix64.
#[derive(Clone)]
pub(crate) struct Rng(u64);

impl Rng {
    pub(crate) fn new(seed: u64) -> Self {
        Self(seed)
    }

    pub(crate) fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    pub(crate) fn below(&mut self, limit: usize) -> usize {
        (self.next() % limit.max(1) as u64) as usize
    }

    /// So many times in a hundred.
    pub(crate) fn percent(&mut self, chance: usize) -> bool {
        self.below(100) < chance
    }

    pub(crate) fn pick<'a, T>(&mut self, of: &'a [T]) -> Option<&'a T> {
        of.get(self.below(of.len()))
    }
}

/// A question that the server has asked, and where.
#[derive(Clone, Debug)]
struct Question {
    place: String,
    arguments: Value,
    /// Only somebody with the role may answer.
    is_for_staff: bool,
    /// The arguments to which the first answer has said yes.
    answer: Option<Option<Value>>,
}

#[derive(Clone)]
pub(crate) struct World(Arc<Mutex<State>>);

struct State {
    rng: Rng,
    calls: u64,
    questions: HashMap<String, Question>,
    /// Arguments that may be paid, and how often they have been.
    allowed: HashMap<String, usize>,
    paid: Vec<Value>,
    granted: usize,
    checked: usize,
    done: HashMap<String, usize>,
}

impl World {
    pub(crate) fn new(seed: u64) -> Self {
        Self(Arc::new(Mutex::new(State {
            rng: Rng::new(seed ^ 1),
            calls: 0,
            questions: HashMap::new(),
            allowed: HashMap::new(),
            paid: Vec::new(),
            granted: 0,
            checked: 0,
            done: HashMap::new(),
        })))
    }

    pub(crate) fn server(&self) -> AgUiBuilder {
        let helper = self.agent("helper").build().unwrap();
        let lead = self
            .agent("lead")
            .tool(helper.into_tool("Helps."))
            .build()
            .unwrap();
        AgUi::builder(lead)
    }

    fn agent(&self, name: &str) -> tower_agent::AgentBuilder {
        let world = self.clone();
        let is_lead = name == "lead";
        let model = tower::service_fn(move |request: ModelRequest| {
            let said = world.says(&request, is_lead);
            async move {
                let turn = Turn::response(ModelResponse::new(said?));
                ScriptedModel::new([turn])
                    .chunk_size(100)
                    .oneshot(request)
                    .await
            }
        });
        let world = self.clone();
        let pay = Tool::function("pay", "Pays.", move |bill: Value| {
            world.0.lock().unwrap().paid.push(bill);
            "paid"
        });
        let world = self.clone();
        let grant = Tool::function("grant", "Grants.", move |bill: Value| {
            let state = &mut *world.0.lock().unwrap();
            state.granted += 1;
            state.paid.push(bill);
            "granted"
        });
        Agent::builder(model)
            .name(name)
            .tool(pay)
            .tool(grant)
            .tool(Tool::function("look", "Looks.", |input: Value| input))
            .on_tool(Approval::of_tools(["pay"]).allow_edits())
            .on_tool(Approval::of_tools(["grant"]).by_role(ROLE).allow_edits())
    }

    /// Makes the model's answer: each payment is one that was never asked for before.
    fn says(&self, request: &ModelRequest, is_lead: bool) -> Result<Message, Error> {
        let state = &mut *self.0.lock().unwrap();
        let messages = request.messages();
        let user = messages
            .iter()
            .rposition(|message| message.role() == Role::User)
            .unwrap_or(0);
        let results = messages.range(user).flat_map(Message::tool_results).count();
        if state.rng.percent(8) {
            return Err(Error::new(ErrorKind::Provider, "the model is ill"));
        }
        let has_pick = request.tools().iter().any(|tool| tool.name() == "pick");
        let mut parts = Vec::new();
        if state.rng.percent(30) {
            parts.push(Part::from_text("Well."));
        }
        if results < 3 && state.rng.percent(75) {
            for _ in 0..=state.rng.below(2) {
                state.calls += 1;
                // Providers count from the start again.
                let id = format!("c{}", state.rng.below(3));
                let n = state.calls;
                parts.push(Part::from(match state.rng.below(10) {
                    0 => ToolCall::new(id, "look", json!({ "value": n })),
                    1 if has_pick => ToolCall::new(id, "pick", json!({})),
                    2 | 3 if is_lead => {
                        ToolCall::new(id, "helper", json!({ "request": format!("{n}") }))
                    }
                    4 | 5 => ToolCall::new(id, "grant", json!({ "value": { "grant": n } })),
                    _ => ToolCall::new(id, "pay", json!({ "value": { "bill": n } })),
                }));
            }
        } else {
            parts.push(Part::from_text("Done."));
        }
        Ok(Message::new(Role::Assistant, parts))
    }

    /// The server has asked this, in this place: for the first time, or again while it is open.
    pub(crate) fn ask(&self, place: &str, interrupt: &Value) {
        let id = interrupt["id"].as_str().unwrap().to_owned();
        let arguments = interrupt["metadata"]["arguments"].clone();
        let is_for_staff = !arguments["value"]["grant"].is_null();
        let asked = Question {
            place: place.to_owned(),
            arguments,
            is_for_staff,
            answer: None,
        };
        let state = &mut *self.0.lock().unwrap();
        let Some(earlier) = state.questions.get(&id) else {
            state.questions.insert(id, asked);
            return;
        };
        let is_same = earlier.place == asked.place && earlier.arguments == asked.arguments;
        assert!(is_same, "one id is that of two questions");
    }

    /// The server has taken this answer, in this place, from somebody with these roles.
    pub(crate) fn answer(&self, place: &str, entry: &Value, roles: &[&str]) {
        let state = &mut *self.0.lock().unwrap();
        let id = entry["interruptId"].as_str().unwrap_or_default();
        let Some(question) = state.questions.get_mut(id) else {
            assert_ne!(
                entry["status"], "resolved",
                "an answer to nothing was taken: {entry}"
            );
            return;
        };
        if entry["status"] != "resolved" {
            // It stands, as any first answer, if its run breaks off.
            if question.place == place && question.answer.is_none() {
                question.answer = Some(None);
            }
            return;
        }
        assert_eq!(
            question.place, place,
            "an answer to another's question was taken"
        );
        if question.answer.is_some() {
            // The first stands.
            return;
        }
        let payload = &entry["payload"];
        let says_yes = payload["approved"] == true;
        assert!(
            !says_yes || !question.is_for_staff || roles.contains(&ROLE),
            "a yes of somebody without the role was taken"
        );
        let edited = payload.get("editedArgs").filter(|_| says_yes);
        let arguments = edited
            .cloned()
            .unwrap_or_else(|| question.arguments.clone());
        let agreed = says_yes.then_some(arguments);
        if let Some(arguments) = &agreed {
            *state.allowed.entry(arguments.to_string()).or_default() += 1;
        }
        question.answer = Some(agreed);
    }

    /// Checks that every payment was allowed, as often as it was made.
    pub(crate) fn check(&self) {
        let state = &mut *self.0.lock().unwrap();
        for bill in &state.paid[state.checked..] {
            let key = bill.to_string();
            let done = state.done.entry(key.clone()).or_default();
            *done += 1;
            let allowed = state.allowed.get(&key).copied().unwrap_or(0);
            assert!(
                *done <= allowed,
                "{bill} was paid {done} times, allowed {allowed} times"
            );
        }
        state.checked = state.paid.len();
    }

    pub(crate) fn paid(&self) -> usize {
        self.0.lock().unwrap().paid.len()
    }

    pub(crate) fn granted(&self) -> usize {
        self.0.lock().unwrap().granted
    }

    pub(crate) fn asked_of_staff(&self) -> usize {
        let state = &*self.0.lock().unwrap();
        let questions = state.questions.values();
        questions.filter(|question| question.is_for_staff).count()
    }

    pub(crate) fn asked(&self) -> usize {
        self.0.lock().unwrap().questions.len()
    }
}
