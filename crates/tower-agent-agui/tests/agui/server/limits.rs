//! A budget of each principal.

use std::collections::HashMap;
use std::sync::{Arc, Mutex};

use futures::{FutureExt, StreamExt};
use serde_json::{Value, json};
use tower::ServiceBuilder;
use tower_agent::{Agent, AgentBuilder, AgentRequest, Request, Resolution, Tool};
use tower_agent_agui::conversations::{ConversationKey, ConversationQuery, Roles};
use tower_agent_agui::{AgUi, Event, Message, RunAgentInput};
use tower_agent_middleware::approval::{Approval, Decision};
use tower_agent_middleware::budget::{Account, Budget, Limits};
use tower_agent_test::{ScriptedModel, Turn};

/// The accounts of the principals.
#[derive(Clone, Default)]
struct Accounts(Arc<Mutex<HashMap<Arc<str>, Account>>>);

impl Accounts {
    fn of(&self, key: &ConversationKey) -> Account {
        let mut accounts = self.0.lock().unwrap();
        let account = accounts.entry(key.user.clone());
        let new = || Account::new(Limits::new().model_calls(2));
        account.or_insert_with(new).clone()
    }

    fn model_calls(&self, principal: &str) -> u64 {
        let key = ConversationKey::new("agent", principal, "thread");
        self.of(&key).used().model_calls
    }
}

fn agent(model: ScriptedModel) -> AgentBuilder {
    Agent::builder(model)
        .tool(Tool::function("refund", "Refunds.", |_: Value| "refunded"))
        .on_tool(Approval::of_tools(["refund"]).by_role("support"))
}

fn now<T>(future: impl Future<Output = T>) -> T {
    future.now_or_never().expect("nothing waits")
}

/// Says something in the thread of this id; returns the last event.
fn says(server: &AgUi, principal: &str, thread: &str) -> Value {
    static RUNS: Mutex<u32> = Mutex::new(0);
    let mut runs = RUNS.lock().unwrap();
    *runs += 1;
    let message = Message::user(format!("u{runs}"), "Hello");
    let input = RunAgentInput::new(thread, format!("r{runs}"), [message]);
    let run = now(server.run_for(principal, input)).unwrap();
    let events: Vec<Event> = now(run.collect());
    serde_json::to_value(events.last().unwrap()).unwrap()
}

/// The approver's answer is charged to the customer, whose runs go on.
#[test]
fn a_budget_by_the_thread_key_holds_over_the_threads_and_answers_of_one_principal() {
    let accounts = Accounts::default();
    let find = accounts.clone();
    let model = ScriptedModel::new([
        Turn::tool("refund", json!({})),
        Turn::from_text("hi"),
        Turn::from_text("refunded"),
    ]);
    let budget = Budget::by(move |run| Ok(find.of(run.extension::<ConversationKey>()?)));
    let agent = agent(model).global_callbacks(budget).build().unwrap();
    let server = AgUi::new(agent);

    says(&server, "ada", "thread");
    // The id of another's thread names a thread of one's own, and one's own account.
    assert_eq!(says(&server, "bob", "thread")["type"], "RUN_FINISHED");
    assert_eq!(accounts.model_calls("ada"), 1);
    assert_eq!(accounts.model_calls("bob"), 1);

    let support = Roles::new(["support"]);
    let questions = now(server.questions(&ConversationQuery::new(), &support)).unwrap();
    let question = &questions.questions[0];
    let yes = Resolution::resolved(&*question.id, Decision::Approve);
    let run = now(server.answer(question.key.clone(), support, yes)).unwrap();
    drop(now(run.collect::<Vec<_>>()));
    assert_eq!(accounts.model_calls("ada"), 2);

    // The approver has no account of the run, and another thread is no other customer.
    let refused = says(&server, "ada", "another thread");
    assert_eq!(refused["type"], "RUN_ERROR");
    assert_eq!(refused["code"], "budget_exceeded");
    assert_eq!(accounts.model_calls("ada"), 2);
    assert_eq!(accounts.0.lock().unwrap().len(), 2);
}

#[test]
fn a_layer_around_the_agent_gives_each_run_callbacks_of_its_principal() {
    let accounts = Accounts::default();
    let find = accounts.clone();
    let model = ScriptedModel::new([Turn::tool("refund", json!({})), Turn::from_text("refunded")]);
    let agent = agent(model).build().unwrap();
    let agent = ServiceBuilder::new()
        .map_request(move |request: AgentRequest| {
            let account = match request.context().extension::<ConversationKey>() {
                Ok(key) => find.of(key),
                Err(_) => Account::new(Limits::new().model_calls(0)),
            };
            request.with_global_callbacks(Budget::of(account))
        })
        .service(agent);
    let server = AgUi::new(agent);

    says(&server, "ada", "thread");
    let support = Roles::new(["support"]);
    let questions = now(server.questions(&ConversationQuery::new(), &support)).unwrap();
    let question = &questions.questions[0];
    let yes = Resolution::resolved(&*question.id, Decision::Approve);
    let run = now(server.answer(question.key.clone(), support, yes)).unwrap();
    drop(now(run.collect::<Vec<_>>()));

    assert_eq!(accounts.model_calls("ada"), 2);
    assert_eq!(says(&server, "ada", "thread")["code"], "budget_exceeded");
}
