//! Questions of a server interrupt the run, and their answers reach the server.
#![allow(deprecated)]

use std::sync::{Arc, Mutex};

use rmcp::model::*;
use serde_json::{Value, json};
use tower_agent::{Agent, AgentRequest, AgentResponse, Checkpoint, EndReason, Resolution};
use tower_agent_mcp::client::{Lifecycle, McpClient};
use tower_agent_test::{ScriptedModel, Turn};

use crate::support::{LIFECYCLES, Server, elicit, said};

pub(crate) fn question(message: &str) -> ElicitRequestParams {
    let schema = ElicitationSchema::builder()
        .required_string("name")
        .build()
        .unwrap();
    ElicitRequestParams::FormElicitationParams {
        meta: None,
        message: message.to_owned(),
        requested_schema: schema,
    }
}

fn page(url: &str) -> ElicitRequestParams {
    ElicitRequestParams::UrlElicitationParams {
        meta: None,
        message: "Sign in.".to_owned(),
        url: url.to_owned(),
        elicitation_id: String::new(),
    }
}

fn asks<const N: usize>(
    requests: [(&str, ElicitRequestParams); N],
    state: Option<&str>,
) -> CallToolResponse {
    let ask = |(key, params): (&str, _)| {
        (
            key.to_owned(),
            InputRequest::Elicitation(ElicitRequest::new(params)),
        )
    };
    let requests = requests.into_iter().map(ask).collect();
    InputRequiredResult::new(Some(requests), state.map(str::to_owned)).into()
}

/// The answers and the state that a server received with each call.
pub(crate) type Heard = Arc<Mutex<Vec<(Option<InputResponses>, Option<String>)>>>;

/// Asks with a result, as servers do since 2026-07-28.
pub(crate) fn asking() -> (Server, Heard) {
    let heard = Heard::default();
    let hears = heard.clone();
    let server = Server::new(move |params, _| {
        hears
            .lock()
            .unwrap()
            .push((params.input_responses.clone(), params.request_state.clone()));
        async move {
            Ok(match params.input_responses {
                None => asks(
                    [("who", question("Who?")), ("page", page("https://a.b"))],
                    Some("s1"),
                ),
                Some(answers) => said(&json!(answers).to_string()),
            })
        }
    });
    (server, heard)
}

/// Asks during the call, as servers did before.
pub(crate) fn asking_during() -> Server {
    Server::new(async |_, context| {
        let mut answers = Vec::new();
        for message in ["Who?", "And who else?"] {
            let answer = elicit(&context, question(message)).await;
            match answer {
                Ok(answer) => answers.push(json!(answer)),
                Err(error) => return Ok(said(&format!("refused: {error}"))),
            }
        }
        Ok(said(&json!(answers).to_string()))
    })
}

async fn agent(client: &McpClient) -> Agent {
    let model = ScriptedModel::new([
        Turn::tool("echo", json!({ "n": 1 })),
        Turn::from_text("Done."),
    ]);
    Agent::builder(model)
        .name("boss")
        .tools(client.tools().await)
        .build()
        .unwrap()
}

/// A checkpoint as another process reads it.
fn stored(paused: &AgentResponse) -> Checkpoint {
    let json = serde_json::to_string(&paused.checkpoint()).unwrap();
    serde_json::from_str(&json).unwrap()
}

fn result(response: &AgentResponse) -> Value {
    let results = response
        .messages()
        .iter()
        .find_map(|message| message.tool_results().next());
    serde_json::from_str(&results.unwrap().text()).unwrap()
}

#[tokio::test]
async fn input_required_interrupts_the_run_and_the_call_is_repeated_with_answers_and_state() {
    let (server, heard) = asking();
    let client = server.connect(Lifecycle::Discover).await;
    let agent = agent(&client).await;

    let paused = agent.run("Go.").await.unwrap();
    assert!(matches!(paused.end_reason(), EndReason::Interrupted { .. }));
    let [page, who] = paused.interrupts() else {
        panic!("{:?}", paused.interrupts())
    };
    assert_eq!(
        (&*who.reason, who.message.as_deref()),
        ("input_required", Some("Who?"))
    );
    assert_eq!(who.name, "boss/m1.0/who#1");
    assert_eq!(who.response_schema["properties"]["name"]["type"], "string");
    assert_eq!(
        who.payload,
        json!({ "server": "test", "tool": "echo", "mode": "form" })
    );
    assert_eq!(page.payload["url"], "https://a.b");
    assert!(page.response_schema.is_null());

    let answers = [
        Resolution::resolved(&who.id, json!({ "name": "Ada" })),
        Resolution::resolved(&page.id, true),
    ];
    let request = AgentRequest::resume(stored(&paused)).with_resolutions(answers);
    let done = agent.run(request).await.unwrap();
    assert_eq!(done.text(), "Done.");
    let answers = json!({
        "page": { "action": "accept" },
        "who": { "action": "accept", "content": { "name": "Ada" } },
    });
    assert_eq!(result(&done), answers);
    assert_eq!(heard.lock().unwrap().len(), 2);
    assert_eq!(heard.lock().unwrap()[1].1.as_deref(), Some("s1"));
    // Nothing of the call stays behind.
    let checkpoint = serde_json::to_value(done.checkpoint()).unwrap();
    assert!(
        !checkpoint.to_string().contains("tower_agent_mcp"),
        "{checkpoint}"
    );
}

#[tokio::test]
async fn one_answer_of_two_asks_for_the_other_without_the_server() {
    let (server, heard) = asking();
    let client = server.connect(Lifecycle::Discover).await;
    let agent = agent(&client).await;
    let paused = agent.run("Go.").await.unwrap();
    let [page, who] = paused.interrupts() else {
        panic!()
    };
    let request = AgentRequest::resume(stored(&paused));
    let request = request.with_resolutions([Resolution::resolved(&who.id, Value::Null)]);
    let paused = agent.run(request).await.unwrap();
    let [left] = paused.interrupts() else {
        panic!("{:?}", paused.interrupts())
    };
    assert_eq!(left, page);
    assert_eq!(heard.lock().unwrap().len(), 1);
    let request = AgentRequest::resume(stored(&paused));
    let request = request.with_resolutions([Resolution::cancelled(&left.id)]);
    let done = agent.run(request).await.unwrap();
    let answers = json!({ "page": { "action": "cancel" }, "who": { "action": "decline" } });
    assert_eq!(result(&done), answers);
}

#[tokio::test]
async fn a_second_question_with_the_same_key_does_not_take_the_first_answer() {
    let server = Server::new(async |params, _| {
        Ok(match params.request_state.as_deref() {
            None => asks([("who", question("Who?"))], Some("1")),
            Some("1") => asks([("who", question("Really?"))], Some("2")),
            Some(_) => said(&json!(params.input_responses).to_string()),
        })
    });
    let client = server.connect(Lifecycle::Discover).await;
    let agent = agent(&client).await;
    let paused = agent.run("Go.").await.unwrap();
    let first = Resolution::resolved(&paused.interrupts()[0].id, json!({ "name": "Ada" }));
    let request = AgentRequest::resume(stored(&paused)).with_resolutions([first.clone()]);
    let paused = agent.run(request).await.unwrap();
    let [again] = paused.interrupts() else {
        panic!()
    };
    assert_eq!(again.message.as_deref(), Some("Really?"));
    let second = Resolution::resolved(&again.id, json!({ "name": "Bob" }));
    let request = AgentRequest::resume(stored(&paused)).with_resolutions([first, second]);
    let done = agent.run(request).await.unwrap();
    assert_eq!(result(&done)["who"]["content"]["name"], "Bob");
}

#[tokio::test]
async fn questions_during_a_call_interrupt_the_run_one_after_the_other() {
    let server = asking_during();
    let client = server.connect(Lifecycle::Initialize).await;
    let agent = agent(&client).await;
    let mut paused = agent.run("Go.").await.unwrap();
    for (message, name) in [("Who?", "Ada"), ("And who else?", "Bob")] {
        let [who] = paused.interrupts() else {
            panic!("{:?}", paused.messages())
        };
        assert_eq!(who.message.as_deref(), Some(message));
        let answer = Resolution::resolved(&who.id, json!({ "name": name }));
        let request = AgentRequest::resume(stored(&paused)).with_resolutions([answer]);
        paused = agent.run(request).await.unwrap();
    }
    assert_eq!(paused.text(), "Done.");
    let accept = |name| json!({ "action": "accept", "content": { "name": name } });
    assert_eq!(result(&paused), json!([accept("Ada"), accept("Bob")]));
}

#[tokio::test]
async fn an_interrupted_call_is_cancelled_before_its_question_is_answered() {
    let order: Arc<Mutex<Vec<&str>>> = Arc::default();
    let notes = order.clone();
    let server = Server::new(move |_, context| {
        let notes = notes.clone();
        async move {
            let note = |what| notes.lock().unwrap().push(what);
            let asked = elicit(&context, question("Who?"));
            tokio::select! {
                biased;
                () = context.ct.cancelled() => note("cancelled"),
                _ = asked => note("answered"),
            }
            Ok(said("{}"))
        }
    });
    let client = server.connect(Lifecycle::Initialize).await;
    agent(&client).await.run("Go.").await.unwrap();
    while order.lock().unwrap().is_empty() {
        tokio::task::yield_now().await;
    }
    assert_eq!(*order.lock().unwrap(), ["cancelled"]);
}

#[tokio::test]
async fn a_question_that_may_belong_to_several_calls_is_refused() {
    let both = Arc::new(tokio::sync::Barrier::new(2));
    let server = Server::new(move |_, context| {
        let both = both.clone();
        async move {
            both.wait().await;
            let asked = elicit(&context, question("Delete it?")).await;
            both.wait().await;
            Ok(said(&json!(asked.unwrap_err().to_string()).to_string()))
        }
    });
    let client = server.connect(Lifecycle::Initialize).await;
    let calls = (0..2).map(|n| crate::support::ask(&client, "echo", json!({ "n": n })));
    for answer in futures::future::join_all(calls).await {
        let answer = answer.unwrap();
        let text = answer.value().as_str().unwrap();
        assert!(text.contains("cannot tell which call"), "{text}");
    }
}

#[tokio::test]
async fn answers_are_not_for_a_call_with_other_arguments() {
    let (server, heard) = asking();
    let client = server.connect(Lifecycle::Discover).await;
    let changed = Arc::new(Mutex::new(json!({ "n": 1 })));
    let arguments = changed.clone();
    let model = ScriptedModel::new([
        Turn::tool("echo", json!({ "n": 1 })),
        Turn::from_text("Done."),
    ]);
    let agent = Agent::builder(model)
        .tools(client.tools().await)
        .on_tool(tower_agent::callback::before_tool(
            move |request: &mut tower_agent::ToolRequest| {
                *request.arguments_mut() = arguments.lock().unwrap().clone();
            },
        ))
        .build()
        .unwrap();
    let paused = agent.run("Go.").await.unwrap();
    *changed.lock().unwrap() = json!({ "n": 2 });
    let answers = paused
        .interrupts()
        .iter()
        .map(|interrupt| Resolution::resolved(&interrupt.id, json!({})));
    let request = AgentRequest::resume(stored(&paused)).with_resolutions(answers);
    let paused = agent.run(request).await.unwrap();
    assert_eq!(paused.interrupts().len(), 2);
    assert!(
        heard
            .lock()
            .unwrap()
            .iter()
            .all(|(answers, state)| answers.is_none() && state.is_none())
    );
}

#[tokio::test]
async fn a_server_that_only_wants_to_be_asked_again_is_asked_again_up_to_a_limit() {
    let times: Arc<Mutex<u32>> = Arc::default();
    let counted = times.clone();
    let server = Server::new(move |params, _| {
        *counted.lock().unwrap() += 1;
        let ends = params.arguments.is_some();
        async move {
            Ok(match params.request_state.as_deref() {
                Some("2") if ends => said("now"),
                Some("1") if ends => InputRequiredResult::from_request_state("2").into(),
                _ => InputRequiredResult::from_request_state("1").into(),
            })
        }
    });
    tokio::time::pause();
    let client = server.connect(Lifecycle::Discover).await;
    let answer = crate::support::ask(&client, "echo", json!({ "n": 1 }))
        .await
        .unwrap();
    assert_eq!((answer.value(), *times.lock().unwrap()), (&json!("now"), 3));

    let endless = Server::new(async |_, _| Ok(InputRequiredResult::from_request_state("1").into()));
    let client = endless.connect(Lifecycle::Discover).await;
    let error = crate::support::ask(&client, "echo", json!({}))
        .await
        .unwrap_err();
    assert_eq!(
        error.message(),
        "MCP server `test` asked for input more than 10 times"
    );
}

#[tokio::test]
async fn a_question_in_both_lifecycles_names_the_call_in_its_id() {
    for lifecycle in LIFECYCLES {
        let server = match lifecycle {
            Lifecycle::Initialize => asking_during(),
            _ => asking().0,
        };
        let client = server.connect(lifecycle).await;
        let paused = agent(&client).await.run("Go.").await.unwrap();
        let interrupts = paused.interrupts();
        assert!(
            interrupts
                .iter()
                .all(|interrupt| interrupt.name.starts_with("boss/m1.0/")),
            "{interrupts:?}"
        );
        assert!(
            interrupts
                .iter()
                .all(|interrupt| interrupt.tool_call_id.as_deref() == Some("call_1"))
        );
    }
}
