//! A shop: its tools, its rules and its people.

use std::sync::Arc;

use futures::{FutureExt, StreamExt};
use serde_json::{Value, json};
use test_support::log::Log;
use tower_agent::callback::Bundle;
use tower_agent::stream::{EventKind, Observations, observer};
use tower_agent::tool::ToolDeclaration;
use tower_agent::{
    Agent, AgentRequest, AgentResponse, Checkpoint, Effect, Error, Message, Resolution, Tool,
};
use tower_agent_policy::{Principal, Rulebook, RulebookBuilder};
use tower_agent_test::{ScriptedModel, Turn};

/// Who a run is for: the server's word.
#[derive(Clone, Debug)]
pub(crate) struct User {
    pub(crate) name: &'static str,
    pub(crate) role: &'static str,
}

pub(crate) const ANN: User = User {
    name: "ann",
    role: "customer",
};
pub(crate) const SAM: User = User {
    name: "sam",
    role: "support",
};

pub(crate) const SCHEMA: &str = "
entity Role;
entity User in [Role];
";

#[derive(serde::Deserialize, schemars::JsonSchema)]
#[allow(dead_code)]
struct Refund {
    order: String,
    cents: u32,
    note: Option<String>,
}

#[derive(serde::Deserialize, schemars::JsonSchema)]
#[allow(dead_code)]
struct Look {
    order: String,
}

/// The tools of the shop. Each call is logged with the arguments that the tool has got.
pub(crate) fn tools(log: &Log) -> Vec<Tool> {
    let [refunds, looks, wipes] = [log.clone(), log.clone(), log.clone()];
    vec![
        Tool::function("refund", "Pays money back.", move |refund: Refund| {
            refunds.note(format!("refund {} {}", refund.order, refund.cents));
            format!("refunded {}", refund.cents)
        }),
        Tool::function("look", "Shows an order.", move |look: Look| {
            looks.note(format!("look {}", look.order));
            format!("order {} is here", look.order)
        })
        .effect(Effect::Pure),
        Tool::function("wipe", "Deletes everything.", move |()| {
            wipes.note("wipe");
            "wiped"
        }),
    ]
}

pub(crate) fn declarations(tools: &[Tool]) -> Vec<Arc<ToolDeclaration>> {
    tools
        .iter()
        .map(|tool| tool.declaration().clone())
        .collect()
}

pub(crate) fn builder(tools: &[Tool]) -> RulebookBuilder {
    Rulebook::builder()
        .schema("shop.cedarschema", SCHEMA)
        .tools(&declarations(tools))
        .principals(["User"], |given| {
            let user = given.get::<User>()?;
            Some(Principal::new("User", user.name).within("Role", user.role))
        })
}

/// A rulebook of the shop with these rules.
pub(crate) fn rulebook(rules: &str) -> Rulebook {
    let tools = tools(&Log::default());
    builder(&tools).rules("shop.cedar", rules).build().unwrap()
}

/// What a run has come to.
pub(crate) struct Seen {
    pub(crate) result: Result<AgentResponse, Error>,
    /// The events of the policy.
    pub(crate) events: Vec<Value>,
}

impl Seen {
    pub(crate) fn response(&self) -> &AgentResponse {
        self.result.as_ref().unwrap()
    }

    /// Returns the tools' answers.
    pub(crate) fn results(&self) -> Vec<String> {
        let results = self
            .response()
            .new_messages()
            .flat_map(Message::tool_results);
        results.map(|result| result.text()).collect()
    }

    /// Returns the decisions, each with the policies that have made it.
    pub(crate) fn decisions(&self) -> Vec<String> {
        let decision = |event: &Value| {
            let mut text = event["decision"].as_str().unwrap().to_owned();
            if let Some(why) = event["why"].as_str() {
                text = format!("{text}: {why}");
            }
            let policies = event["policies"].as_array().unwrap();
            for policy in policies {
                text = format!("{text} {}", policy.as_str().unwrap());
            }
            text
        };
        self.events.iter().map(decision).collect()
    }
}

/// Runs an agent, and listens.
pub(crate) async fn run(agent: &Agent, request: AgentRequest) -> Seen {
    let (listening, mut heard) = listen();
    let result = agent.run(request.with_global_callbacks(listening)).await;
    let events = decided(&mut heard);
    Seen { result, events }
}

/// Returns callbacks that listen, and what they hear.
pub(crate) fn listen() -> (Bundle, Observations) {
    let (ear, heard) = observer(1 << 16);
    (Bundle::new().observer(ear), heard)
}

/// Returns the events of the policy that have been heard.
pub(crate) fn decided(heard: &mut Observations) -> Vec<Value> {
    let mut events = Vec::new();
    while let Some(Some(heard)) = heard.next().now_or_never() {
        if let EventKind::Note { name, value } = heard.event.kind
            && *name == *"policy"
        {
            events.push(value);
        }
    }
    events
}

pub(crate) fn asked_by(user: &User) -> AgentRequest {
    AgentRequest::new("?").with_extension(user.clone())
}

/// A model that makes these calls, one in each turn.
pub(crate) fn calling(calls: impl IntoIterator<Item = (&'static str, Value)>) -> ScriptedModel {
    let turns = calls
        .into_iter()
        .map(|(tool, arguments)| Turn::tool(tool, arguments));
    ScriptedModel::new(turns.chain([Turn::from_text("done")]))
}

pub(crate) fn refund(cents: i64) -> (&'static str, Value) {
    ("refund", json!({ "order": "o-1", "cents": cents }))
}

/// Returns an interrupted run as another process finds it.
pub(crate) fn saved(response: &AgentResponse) -> Checkpoint {
    let saved = serde_json::to_string(&response.checkpoint()).unwrap();
    serde_json::from_str(&saved).unwrap()
}

/// Returns the request that goes on with a run, with this answer to all that it asks.
pub(crate) fn answered(paused: &AgentResponse, user: &User, answer: Value) -> AgentRequest {
    let answers = paused.interrupts().iter();
    let answers: Vec<_> = answers
        .map(|open| Resolution::resolved(&open.id, answer.clone()))
        .collect();
    AgentRequest::resume(saved(paused))
        .with_extension(user.clone())
        .with_resolutions(answers)
}
