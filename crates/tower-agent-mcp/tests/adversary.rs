//! A client that sends whatever it can make of what it has seen: a guarded tool runs once for each
//! approval of a question, with the arguments that it was asked about, and never else.
#![allow(
    clippy::panic,
    clippy::unwrap_used,
    reason = "a test fails by panicking"
)]

use std::sync::{Arc, Mutex};

use rmcp::model::{
    CallToolRequestParams, CallToolResponse, ClientCapabilities, ClientConfig,
    ElicitationCapability, Implementation, InputRequiredResult, ProtocolVersion,
};
use rmcp::service::{RoleClient, RunningService};
use rmcp::{ClientLifecycleMode, ClientServiceExt};
use serde_json::{Value, json};
use test_support::property::{sample, seed};
use tower_agent::message::ToolCall;
use tower_agent::{Agent, ModelResponse, Tool};
use tower_agent_mcp::server::McpServer;
use tower_agent_middleware::approval::Approval;
use tower_agent_test::{ScriptedModel, Turn};

/// How many of the latest states the client plays with.
const KNOWN: usize = 40;

const CLERKS: [&str; 2] = ["clerk", "cashier"];

type Paid = Arc<Mutex<Vec<(&'static str, u64)>>>;

struct Rng(u64);

impl Rng {
    fn below(&mut self, limit: usize) -> usize {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        ((z ^ (z >> 31)) % limit as u64) as usize
    }
}

/// A question that the server asked, and how it is answered as it should be.
#[derive(Clone)]
struct Asked {
    clerk: &'static str,
    amount: u64,
    state: String,
    /// The id of the question.
    key: String,
    is_open: bool,
}

impl Asked {
    fn read(clerk: &'static str, amount: u64, asked: InputRequiredResult) -> Self {
        let questions = asked.input_requests.unwrap();
        let key = questions.keys().next().unwrap().clone();
        Self {
            clerk,
            amount,
            state: asked.request_state.unwrap(),
            key,
            is_open: true,
        }
    }
}

/// A call that goes on after a question.
struct Answer {
    clerk: &'static str,
    amount: u64,
    state: Option<String>,
    key: String,
    answer: Option<Value>,
}

/// An agent that pays what it is asked for, after an approval.
fn clerk(name: &'static str, paid: &Paid) -> Agent {
    let model = ScriptedModel::always(Turn::function(|request| {
        let is_done = request
            .messages()
            .iter()
            .any(|message| message.tool_results().next().is_some());
        let asked = request.messages().iter().next().unwrap().text();
        let amount: u64 = asked.parse().unwrap();
        if is_done {
            return Ok(ModelResponse::from_text("Done."));
        }
        let call = ToolCall::new("call_1", "pay", json!({ "value": amount }));
        Ok(ModelResponse::from_tool_calls([call]))
    }));
    let paid = paid.clone();
    let pay = Tool::function("pay", "Pays.", move |amount: u64| {
        paid.lock().unwrap().push((name, amount));
    });
    let agent = Agent::builder(model).name(name).tool(pay);
    agent.on_tool(Approval::of_tools(["pay"])).build().unwrap()
}

async fn connect(server: McpServer) -> RunningService<RoleClient, ClientConfig> {
    let (ours, theirs) = tokio::io::duplex(1 << 16);
    tokio::spawn(async move { server.serve(ours).await });
    let mut capabilities = ClientCapabilities::default();
    capabilities.elicitation = Some(ElicitationCapability::new());
    let client = ClientConfig::new(capabilities, Implementation::new("adversary", "1"));
    let preferred_versions = vec![ProtocolVersion::V_2026_07_28];
    let mode = ClientLifecycleMode::Discover { preferred_versions };
    client.serve_with_lifecycle(theirs, mode).await.unwrap()
}

fn call(clerk: &'static str, amount: u64) -> CallToolRequestParams {
    let Value::Object(arguments) = json!({ "request": amount.to_string() }) else {
        unreachable!()
    };
    CallToolRequestParams::new(clerk).with_arguments(arguments)
}

/// Answers a question, right or wrong in up to two ways.
fn answer(asked: &Asked, known: &[Asked], rng: &mut Rng) -> Answer {
    let mut answer = Answer {
        clerk: asked.clerk,
        amount: asked.amount,
        state: Some(asked.state.clone()),
        key: asked.key.clone(),
        answer: Some(json!({ "action": "accept", "content": { "approved": true } })),
    };
    for _ in 0..rng.below(3) {
        match rng.below(10) {
            0 => answer.clerk = CLERKS[rng.below(2)],
            1 => answer.amount += 1,
            2 => answer.state = Some(known[rng.below(known.len())].state.clone()),
            3 => {
                let mut state = answer.state.unwrap_or_default().into_bytes();
                if !state.is_empty() {
                    let at = rng.below(state.len());
                    state[at] = b"AZaz09-_"[rng.below(8)];
                }
                answer.state = Some(String::from_utf8(state).unwrap());
            }
            4 => {
                let state = answer.state.unwrap_or_default();
                answer.state = Some(state[..rng.below(state.len() + 1)].to_owned());
            }
            5 => answer.state = None,
            6 => answer.key = "clerk/m1.1".to_owned(),
            7 => answer.answer = None,
            8 => answer.answer = Some(json!({ "action": "decline" })),
            _ => {
                let content = [json!({ "approved": "yes" }), json!(true), json!({})];
                let content = &content[rng.below(3)];
                answer.answer = Some(json!({ "action": "accept", "content": content }));
            }
        }
    }
    answer
}

#[tokio::test]
async fn a_payment_needs_an_approval_of_its_own() {
    // Every input is a run.
    let inputs = sample(2_000, 10_000);
    let mut rng = Rng(seed());

    let paid = Paid::default();
    let server = McpServer::builder("bank", "1.0.0");
    let server = CLERKS
        .into_iter()
        .fold(server, |server, name| server.agent(clerk(name, &paid)));
    let client = connect(server.build().unwrap()).await;

    let mut known: Vec<Asked> = Vec::new();
    let mut expected: Vec<(&str, u64)> = Vec::new();
    for input in 0..inputs {
        if known.is_empty() || rng.below(10) < 3 {
            let clerk = CLERKS[rng.below(2)];
            let amount = input as u64;
            let response = client.call_tool_once(call(clerk, amount)).await.unwrap();
            let CallToolResponse::InputRequired(asked) = response else {
                panic!("{response:?}")
            };
            known.push(Asked::read(clerk, amount, asked));
        } else {
            let asked = known[rng.below(known.len())].clone();
            let Answer {
                clerk,
                amount,
                state,
                key,
                answer,
            } = answer(&asked, &known, &mut rng);
            let mut params = call(clerk, amount);
            params.request_state = state.clone();
            params.input_responses = answer.clone().map(|answer| [(key.clone(), answer)].into());
            let response = client.call_tool_once(params).await;

            let of = known
                .iter_mut()
                .find(|call| Some(&call.state) == state.as_ref());
            let of = of.filter(|call| call.is_open && call.clerk == clerk && call.amount == amount);
            let is_yes = answer.is_some_and(|answer| answer["content"]["approved"] == true);
            let is_approval = is_yes && of.as_ref().is_some_and(|asked| asked.key == key);
            match (&of, state.is_some()) {
                (None, true) => assert!(response.is_err(), "{response:?}"),
                _ => assert!(response.is_ok(), "{response:?}"),
            }
            if let Some(asked) = of {
                asked.is_open = false;
                if is_approval {
                    expected.push((clerk, amount));
                }
            }
            if let Ok(CallToolResponse::InputRequired(asked)) = response {
                known.push(Asked::read(clerk, amount, asked));
            }
        }
        assert_eq!(*paid.lock().unwrap(), expected, "input {input}");
        if known.len() > 2 * KNOWN {
            known.drain(..KNOWN);
        }
    }
    assert!(expected.len() > inputs / 20, "{}", expected.len());
}
