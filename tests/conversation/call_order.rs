//! The results of a turn stand in the order of its calls, whoever gave them and when.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};

use futures::StreamExt;
use serde_json::{Value, json};
use tower_agent::agent::ToolAnswer;
use tower_agent::callback::{AfterAgentRespond, after_agent, after_tool, before_agent};
use tower_agent::compat::Semantics;
use tower_agent::message::{Messages, Part, ToolCall};
use tower_agent::stream::EventKind;
use tower_agent::{
    Action, Agent, AgentBuilder, AgentRequest, AgentResponse, Checkpoint, Effect, Error, ErrorKind,
    Message, ModelResponse, Resolution, Role, Tool, ToolResponse,
};
use tower_agent_middleware::approval::{Approval, Decision};
use tower_agent_middleware::retry::CallRetryLayer;
use tower_agent_test::{ScriptedModel, Turn};

/// The calls of the turn; the second and the fourth wait for an approval.
const CALLS: [(&str, &str); 5] = [
    ("c1", "look"),
    ("c2", "pay"),
    ("c3", "peek"),
    ("c4", "send"),
    ("c5", "look"),
];

fn calls() -> Turn {
    let calls = CALLS.map(|(id, tool)| ToolCall::new(id, tool, json!({ "of": id })));
    Turn::response(ModelResponse::from_tool_calls(calls))
}

fn model() -> ScriptedModel {
    ScriptedModel::new([calls(), Turn::from_text("done")])
}

fn tool(name: &'static str) -> Tool {
    Tool::function(name, "Does it.", move |of: Value| {
        format!("{name} {}", of["of"])
    })
}

fn worker(model: &ScriptedModel) -> AgentBuilder {
    Agent::builder(model.clone())
        .name("worker")
        .tools(["look", "pay", "peek", "send"].map(tool))
}

/// Returns the messages as JSON without their ids, which are those of each run.
fn bytes(messages: &Messages) -> String {
    let mut messages = serde_json::to_value(messages).unwrap();
    for message in messages.as_array_mut().unwrap() {
        // Not `remove`, which may put the last field in its place.
        message
            .as_object_mut()
            .unwrap()
            .retain(|field, _| field != "id");
    }
    messages.to_string()
}

/// The calls whose results these are, in order.
fn results<'a>(messages: impl IntoIterator<Item = &'a Message>) -> Vec<String> {
    let results = messages.into_iter().flat_map(Message::tool_results);
    results.map(|result| result.call_id.to_string()).collect()
}

/// Returns the checkpoint as another process reads it.
fn saved(response: &AgentResponse) -> Checkpoint {
    serde_json::from_str(&serde_json::to_string(&response.checkpoint()).unwrap()).unwrap()
}

fn resume(response: &AgentResponse, call: &str, decision: Decision) -> AgentRequest {
    let checkpoint = saved(response);
    let asks = checkpoint
        .head
        .interrupts
        .iter()
        .find(|interrupt| interrupt.tool_call_id.as_deref() == Some(call));
    let answer = Resolution::resolved(&asks.unwrap().id, decision);
    AgentRequest::resume(checkpoint).with_resolutions([answer])
}

/// Runs the agent, and approves its calls in this order, in a run each. An agent that makes its
/// calls one at a time asks about one at a time.
async fn approving(agent: &Agent, order: [&str; 2]) -> AgentResponse {
    let mut response = agent.run("Do it all.").await.unwrap();
    for _ in order {
        let asks = |call: &&str| {
            let mut interrupts = response.interrupts().iter();
            interrupts.any(|interrupt| interrupt.tool_call_id.as_deref() == Some(*call))
        };
        let call = order.into_iter().find(asks).unwrap();
        response = agent
            .run(resume(&response, call, Decision::Approve))
            .await
            .unwrap();
    }
    response
}

fn with_approvals(worker: AgentBuilder) -> AgentBuilder {
    worker.on_tool(Approval::of_tools(["pay", "send"]))
}

fn alone(worker: AgentBuilder) -> Agent {
    worker.build().unwrap()
}

fn one_by_one(worker: AgentBuilder) -> Agent {
    worker.tool_concurrency(1).build().unwrap()
}

fn replacing(worker: AgentBuilder) -> Agent {
    let replaces = after_tool(|_, response| {
        Action::Respond(ToolResponse::new(format!("{}!", response.value())))
    });
    worker.on_tool(replaces).build().unwrap()
}

fn as_tool(worker: AgentBuilder) -> Agent {
    let works = ToolCall::new("w1", "worker", json!({ "request": "Do it." }));
    let peek = ToolCall::new("w2", "peek", json!({ "of": "w2" }));
    let asks = Turn::response(ModelResponse::from_tool_calls([works, peek]));
    let model = ScriptedModel::new([asks, Turn::from_text("all done")]);
    let worker = worker.build().unwrap().into_tool("Works.");
    Agent::builder(model)
        .name("boss")
        .tools([worker, tool("peek")])
        .build()
        .unwrap()
}

fn taking_over(worker: AgentBuilder) -> Agent {
    let transfer = ToolCall::new("t1", "transfer_to_agent", json!({ "agent_name": "worker" }));
    let model = Turn::response(ModelResponse::from_tool_calls([transfer]));
    let boss = Agent::builder(ScriptedModel::new([model])).name("boss");
    boss.sub_agent(worker.build().unwrap()).build().unwrap()
}

fn in_a_team(worker: AgentBuilder) -> Agent {
    let critic = ScriptedModel::new([Turn::from_text("well done")]);
    let critic = Agent::builder(critic).name("critic").build().unwrap();
    Agent::sequential("team")
        .agent(worker.build().unwrap())
        .agent(critic)
        .build()
        .unwrap()
}

fn beside_another(worker: AgentBuilder) -> Agent {
    let other = ScriptedModel::new([Turn::from_text("so am I")]);
    let other = Agent::builder(other).name("other").build().unwrap();
    Agent::parallel("team")
        .agent(other)
        .agent(worker.build().unwrap())
        .build()
        .unwrap()
}

#[tokio::test]
async fn a_resumed_conversation_equals_one_without_interrupts() {
    type Build = fn(AgentBuilder) -> Agent;
    let builds: [(&str, Build); 7] = [
        ("alone", alone),
        ("one by one", one_by_one),
        ("replacing", replacing),
        ("as a tool", as_tool),
        ("taking over", taking_over),
        ("in a team", in_a_team),
        ("beside another", beside_another),
    ];
    for (name, build) in builds {
        let undisturbed = model();
        let whole = build(worker(&undisturbed)).run("Do it all.").await.unwrap();
        let asked = undisturbed.requests();
        for order in [["c2", "c4"], ["c4", "c2"]] {
            let resumed = model();
            let agent = build(with_approvals(worker(&resumed)));
            let response = approving(&agent, order).await;
            resumed.assert_done();
            let seen = resumed.requests();
            assert_eq!(
                bytes(seen[1].messages()),
                bytes(asked[1].messages()),
                "{name}: {order:?}"
            );
            assert_eq!(
                bytes(response.messages()),
                bytes(whole.messages()),
                "{name}: {order:?}"
            );
            assert_eq!(
                saved(&response).messages,
                *whole.messages(),
                "{name}: {order:?}"
            );
        }
    }
}

#[tokio::test]
async fn callbacks_of_the_next_agent_see_the_order_too() {
    let seen = Arc::new(Mutex::new(String::new()));
    let see = {
        let seen = seen.clone();
        move |request: &mut AgentRequest| *seen.lock().unwrap() = bytes(request.messages())
    };
    let critic = ScriptedModel::new([Turn::from_text("well done")]);
    let critic = Agent::builder(critic)
        .name("critic")
        .on_agent(before_agent(see))
        .build()
        .unwrap();
    let worker = with_approvals(worker(&model())).build().unwrap();
    let team = Agent::sequential("team")
        .agent(worker)
        .agent(critic)
        .build()
        .unwrap();
    let mut messages = approving(&team, ["c4", "c2"]).await.messages().clone();
    messages.pop();
    assert_eq!(*seen.lock().unwrap(), bytes(&messages));
}

#[tokio::test]
async fn new_messages_are_only_those_that_the_turn_did_not_have() {
    let agent = alone(with_approvals(worker(&model())));
    let first = agent.run("Do it all.").await.unwrap();
    assert_eq!(results(first.new_messages()), ["c1", "c3", "c5"]);
    let second = agent
        .run(resume(&first, "c4", Decision::Approve))
        .await
        .unwrap();
    assert_eq!(results(second.new_messages()), ["c4"]);
    assert_eq!(results(second.messages()), ["c1", "c3", "c4", "c5"]);
    assert_eq!(results(&saved(&second).messages), ["c1", "c3", "c4", "c5"]);
    let third = agent
        .run(resume(&second, "c2", Decision::reject("no")))
        .await
        .unwrap();
    assert_eq!(results(third.new_messages()), ["c2"]);
    assert_eq!(third.new_messages().len(), 2);
    assert_eq!(third.messages().len(), 8);
    assert_eq!(results(third.messages()), ["c1", "c2", "c3", "c4", "c5"]);
}

#[tokio::test]
async fn results_from_the_caller_come_in_order_too() {
    let whole = model();
    alone(worker(&whole)).run("Do it all.").await.unwrap();
    let asked = whole.requests();

    let answered = model();
    let agent = alone(with_approvals(worker(&answered)));
    let first = agent.run("Do it all.").await.unwrap();
    let request = AgentRequest::resume(saved(&first))
        .with_answer("c4", "send \"c4\"")
        .unwrap();
    let response = agent
        .run(request.with_answer("c2", "pay \"c2\"").unwrap())
        .await
        .unwrap();
    assert_eq!(
        bytes(answered.requests()[1].messages()),
        bytes(asked[1].messages())
    );
    assert_eq!(results(response.new_messages()), [""; 0]);

    // A history that was kept by appending what each run has added.
    let kept = model();
    let agent = alone(with_approvals(worker(&kept)));
    let mut history = Messages::from([Message::user("Do it all.")]);
    let mut response = agent.run("Do it all.").await.unwrap();
    history.extend(response.new_messages().cloned());
    for call in ["c4", "c2"] {
        response = agent
            .run(resume(&response, call, Decision::Approve))
            .await
            .unwrap();
        history.extend(response.new_messages().cloned());
    }
    assert_eq!(results(&history), ["c1", "c3", "c5", "c4", "c2"]);
    let listener = ScriptedModel::new([Turn::from_text("I see.")]);
    let request = AgentRequest::new("Well?").with_history(history);
    alone(worker(&listener)).run(request).await.unwrap();
    let mut again = response.messages().clone();
    again.push(Message::user("Well?"));
    assert_eq!(bytes(listener.requests()[0].messages()), bytes(&again));
}

/// A tool that fails the first time, after its siblings have run.
fn flaky(name: &'static str) -> Tool {
    let has_failed = Arc::new(AtomicBool::new(false));
    let tool = move |of: Value| {
        let has_failed = has_failed.clone();
        async move {
            tokio::task::yield_now().await;
            if has_failed.swap(true, Ordering::SeqCst) {
                Ok(format!("{name} {}", of["of"]))
            } else {
                Err(Error::new(ErrorKind::Overloaded, "busy"))
            }
        }
    };
    Tool::function(name, "Does it.", tool).effect(Effect::Pure)
}

/// An agent that fails with its tool, and with the model that has read the results.
fn failing(model: &ScriptedModel) -> AgentBuilder {
    let tools = [tool("look"), flaky("pay"), tool("peek"), tool("send")];
    Agent::builder(model.clone())
        .tools(tools)
        .semantics(Semantics::adk_python())
}

fn failing_model() -> ScriptedModel {
    let busy = Turn::error(Error::new(ErrorKind::Overloaded, "busy"));
    ScriptedModel::new([calls(), busy, Turn::from_text("done")])
}

#[tokio::test(start_paused = true)]
async fn a_call_that_is_made_again_has_its_place() {
    let undisturbed = model();
    let whole = alone(worker(&undisturbed)).run("Do it all.").await.unwrap();
    let asked = bytes(undisturbed.requests()[1].messages());
    let seen = |model: ScriptedModel| {
        model.assert_done();
        let requests = model.requests();
        [1, 2].map(|index| bytes(requests[index].messages()))
    };

    // In the same run.
    let again = failing_model();
    let agent = failing(&again)
        .agent_layer(CallRetryLayer::new())
        .build()
        .unwrap();
    let response = agent.run("Do it all.").await.unwrap();
    assert_eq!(seen(again), [asked.clone(), asked.clone()]);
    assert_eq!(bytes(response.messages()), bytes(whole.messages()));
    assert_eq!(response.new_messages().len(), whole.new_messages().len());

    // In others.
    let again = failing_model();
    let agent = failing(&again).build().unwrap();
    let mut request = AgentRequest::new("Do it all.");
    for left in [
        ["c1", "c3", "c4", "c5"].as_slice(),
        &["c1", "c2", "c3", "c4", "c5"],
    ] {
        let error = agent.run(request).await.unwrap_err();
        let checkpoint = error.checkpoint().unwrap().clone();
        assert_eq!(results(&checkpoint.messages), left);
        request = AgentRequest::resume(checkpoint);
    }
    let response = agent.run(request).await.unwrap();
    assert_eq!(seen(again), [asked.clone(), asked]);
    assert_eq!(bytes(response.messages()), bytes(whole.messages()));
}

#[tokio::test]
async fn a_request_that_is_made_again_has_each_result_once() {
    let agent = alone(with_approvals(worker(&model())));
    let first = agent.run("Do it all.").await.unwrap();
    let request = resume(&first, "c4", Decision::Approve);
    for _ in 0..2 {
        let response = agent.run(request.clone()).await.unwrap();
        assert_eq!(results(response.messages()), ["c1", "c3", "c4", "c5"]);
        assert_eq!(results(response.new_messages()), ["c4"]);
    }
}

#[tokio::test]
async fn a_transfer_that_had_to_wait_has_its_place() {
    let transfer = ToolCall::new("t1", "transfer_to_agent", json!({ "agent_name": "worker" }));
    let peek = ToolCall::new("t2", "peek", json!({ "of": "t2" }));
    let asks = Turn::response(ModelResponse::from_tool_calls([transfer, peek]));
    let said = ScriptedModel::new([Turn::from_text("done")]);
    let worker = Agent::builder(said.clone()).name("worker").build().unwrap();
    let boss = Agent::builder(ScriptedModel::new([asks]))
        .name("boss")
        .tool(tool("peek"));
    let approval = Approval::of_tools(["transfer_to_agent"]);
    let boss = boss.sub_agent(worker).on_tool(approval).build().unwrap();
    let first = boss.run("Do it all.").await.unwrap();
    let response = boss
        .run(resume(&first, "t1", Decision::Approve))
        .await
        .unwrap();
    assert_eq!(results(said.requests()[0].messages()), ["t1", "t2"]);
    assert_eq!(results(response.messages()), ["t1", "t2"]);
    assert_eq!(results(response.new_messages()), ["t1"]);
    assert_eq!(response.new_messages().len(), 2);
}

/// The new result stands before results of an earlier run, of which the callback sees none.
#[tokio::test]
async fn a_changed_result_is_changed_wherever_it_stands() {
    let hides = after_agent(|_, response| {
        let hidden = response.map_messages(|message| {
            let mut hidden = message.tool_results().next()?.clone();
            hidden.parts = vec![Part::from_text("hidden")];
            Some(Message::tool(hidden))
        });
        hidden.map_or(Action::Continue, Action::Respond)
    });
    let texts = |messages: &Messages| {
        let results = messages.iter().flat_map(Message::tool_results);
        results
            .map(|result| (result.call_id.to_string(), result.text() == "hidden"))
            .collect::<Vec<_>>()
    };
    let asking = alone(with_approvals(worker(&model())));
    let first = asking.run("Do it all.").await.unwrap();
    let second = asking
        .run(resume(&first, "c4", Decision::Approve))
        .await
        .unwrap();
    let done = ScriptedModel::always(Turn::from_text("done"));
    let third = alone(with_approvals(worker(&done)).on_agent(hides))
        .run(resume(&second, "c2", Decision::Approve))
        .await
        .unwrap();
    let seen = ["c1", "c2", "c3", "c4", "c5"].map(|call| (call.to_owned(), call == "c2"));
    assert_eq!(texts(third.messages()), seen);
    assert_eq!(texts(&saved(&third).messages), seen);
    assert_eq!(results(third.new_messages()), ["c2"]);
}

#[tokio::test]
async fn a_consumer_reads_results_as_they_come_and_a_checkpoint_has_them_in_order() {
    let agent = alone(with_approvals(worker(&model())));
    let first = agent.run("Do it all.").await.unwrap();
    let mut run = agent.stream(resume(&first, "c2", Decision::Approve));
    let mut told = Vec::new();
    while let Some(event) = run.next().await {
        if let EventKind::ToolResult(result) = event.kind {
            let id = &result.call_id;
            told.push(id.to_string());
            assert_eq!(
                results(&run.checkpoint().messages),
                ["c1", "c2", "c3", "c5"]
            );
        }
    }
    assert_eq!(told, ["c2"]);
    assert_eq!(
        results(&run.checkpoint().messages),
        ["c1", "c2", "c3", "c5"]
    );
}

#[tokio::test]
async fn a_response_of_a_callback_drops_no_results_of_an_earlier_run() {
    let mut semantics = Semantics::default();
    semantics.run.after_agent_respond = AfterAgentRespond::Transform;
    let said = || Action::Respond(AgentResponse::new([Message::assistant("well")]));
    let agent = with_approvals(worker(&model())).semantics(semantics);
    let agent = agent
        .on_agent(after_agent(move |_, _| said()))
        .build()
        .unwrap();
    let mut response = agent.run("Do it all.").await.unwrap();
    response = agent
        .run(resume(&response, "c4", Decision::Approve))
        .await
        .unwrap();
    response = agent
        .run(resume(&response, "c2", Decision::Approve))
        .await
        .unwrap();
    assert_eq!(response.text(), "well");
    assert_eq!(results(response.new_messages()), ["c2"]);
    assert_eq!(results(response.messages()), ["c1", "c2", "c3", "c4", "c5"]);
}

/// Shows more than the result: messages of any role, which know their provider.
fn with_more(worker: AgentBuilder) -> AgentBuilder {
    worker.tool_result_messages(|answer: ToolAnswer| {
        let mut picture = Message::user(format!("picture of {}", answer.call.id));
        picture
            .provider_mut()
            .set("scripted", json!({ "of": &*answer.call.id }));
        let note = Message::assistant(format!("note on {}", answer.call.id));
        vec![note, answer.default, picture]
    })
}

#[tokio::test]
async fn other_messages_of_tools_are_as_without_interrupts() {
    type Build = fn(AgentBuilder) -> Agent;
    let builds: [(&str, Build); 4] = [
        ("alone", alone),
        ("one by one", one_by_one),
        ("as a tool", as_tool),
        ("team", in_a_team),
    ];
    for (name, build) in builds {
        let undisturbed = model();
        let whole = build(with_more(worker(&undisturbed)))
            .run("Do it all.")
            .await
            .unwrap();
        let asked = undisturbed.requests();
        assert_eq!(asked[1].messages().len(), 17);
        for order in [["c2", "c4"], ["c4", "c2"]] {
            let resumed = model();
            let agent = build(with_more(with_approvals(worker(&resumed))));
            let response = approving(&agent, order).await;
            let seen = resumed.requests();
            assert_eq!(
                bytes(seen[1].messages()),
                bytes(asked[1].messages()),
                "{name}: {order:?}"
            );
            assert_eq!(
                bytes(response.messages()),
                bytes(whole.messages()),
                "{name}: {order:?}"
            );
            assert_eq!(
                saved(&response).messages,
                *whole.messages(),
                "{name}: {order:?}"
            );
        }
    }
}

#[tokio::test]
async fn other_messages_of_tools_leave_the_calls_open() {
    let agent = alone(with_more(with_approvals(worker(&model()))));
    let first = agent.run("Do it all.").await.unwrap();
    let open: Vec<_> = saved(&first)
        .messages
        .open_calls()
        .map(|call| call.id.clone())
        .collect();
    assert_eq!(
        open.iter().map(|id| &**id).collect::<Vec<_>>(),
        ["c2", "c4"]
    );
    assert!(
        first
            .messages()
            .range(2)
            .all(|message| message.role() == Role::Tool)
    );
}

/// The roles and texts of messages that are no results.
fn others<'a>(messages: impl IntoIterator<Item = &'a Message>) -> Vec<(Role, String)> {
    let others = messages
        .into_iter()
        .filter(|message| message.tool_results().next().is_none());
    others
        .map(|message| (message.role(), message.text()))
        .collect()
}

#[tokio::test]
async fn other_messages_of_a_turn_that_is_closed_are_as_they_were_brought() {
    let brought: Vec<_> = ["c1", "c3", "c5"]
        .into_iter()
        .flat_map(|id| {
            let note = (Role::Assistant, format!("note on {id}"));
            [note, (Role::User, format!("picture of {id}"))]
        })
        .collect();
    // By the user, who goes on without the answers.
    let model = model();
    let agent = alone(with_more(with_approvals(worker(&model))));
    let first = agent.run("Do it all.").await.unwrap();
    agent
        .run(AgentRequest::resume(saved(&first)).with_message("Never mind."))
        .await
        .unwrap();
    let seen = model.requests()[1].messages().clone();
    let mut expected = brought.clone();
    expected.push((Role::User, "Never mind.".to_owned()));
    assert_eq!(others(seen.range(2)), expected);
    assert_eq!(results(&seen), CALLS.map(|(id, _)| id));

    // By the caller, with the results.
    let request = AgentRequest::resume(saved(&first))
        .with_answer("c4", "sent")
        .unwrap();
    let request = request.with_answer("c2", "paid").unwrap();
    let listener = ScriptedModel::new([Turn::from_text("I see.")]);
    alone(worker(&listener)).run(request).await.unwrap();
    let seen = listener.requests()[0].messages().clone();
    assert_eq!(others(seen.range(2)), brought);
    assert_eq!(results(&seen), CALLS.map(|(id, _)| id));

    // By whoever knows that the process is lost.
    let stopped = saved(&first).with_calls_stopped().messages;
    assert_eq!(others(stopped.range(2)), brought);
    assert_eq!(results(&stopped), CALLS.map(|(id, _)| id));
}

#[tokio::test]
async fn calls_that_were_stopped_have_their_place() {
    let agent = alone(with_approvals(worker(&model())));
    let first = agent.run("Do it all.").await.unwrap();
    let stopped = saved(&first).with_calls_stopped().messages;
    assert_eq!(results(&stopped), CALLS.map(|(id, _)| id));
    assert_eq!(stopped.len(), 7);
}

/// The texts of results, in order.
fn told(messages: &Messages) -> Vec<String> {
    messages
        .iter()
        .flat_map(Message::tool_results)
        .map(|result| result.text())
        .collect()
}

#[tokio::test]
async fn a_callback_that_speaks_while_calls_of_an_earlier_run_wait_leaves_them_open() {
    type Build = fn(AgentBuilder) -> Agent;
    type Speak = fn(&AgentResponse) -> AgentResponse;
    let builds: [(&str, Build); 5] = [
        ("alone", alone),
        ("as a tool", as_tool),
        ("taking over", taking_over),
        ("in a team", in_a_team),
        ("beside another", beside_another),
    ];
    let speaks: [Speak; 3] = [
        |_| AgentResponse::new([Message::assistant("One moment.")]),
        |response| {
            response
                .clone()
                .with_message(Message::assistant("One moment."))
        },
        |_| AgentResponse::new([Message::assistant("One."), Message::user("What?")]),
    ];
    for (name, build) in builds {
        let undisturbed = model();
        build(worker(&undisturbed)).run("Do it all.").await.unwrap();
        let asked = told(undisturbed.requests()[1].messages());
        for (speaks, says_all) in speaks
            .into_iter()
            .flat_map(|speaks| [(speaks, false), (speaks, true)])
        {
            let mut semantics = Semantics::default();
            if says_all {
                semantics.run.after_agent_respond = AfterAgentRespond::Transform;
            }
            let speak =
                move |_: &AgentRequest, response: &AgentResponse| match response.interrupts() {
                    [] => Action::Continue,
                    _ => Action::Respond(speaks(response)),
                };
            let resumed = model();
            let agent = with_approvals(worker(&resumed)).semantics(semantics);
            let agent = build(agent.on_agent(after_agent(speak).guard()));
            let response = approving(&agent, ["c2", "c4"]).await;
            resumed.assert_done();
            assert_eq!(told(resumed.requests()[1].messages()), asked, "{name}");
            assert!(response.interrupts().is_empty() && response.open_calls().next().is_none());
        }
    }
}

#[tokio::test]
async fn words_beside_calls_that_wait_are_kept_with_these() {
    let count = Arc::new(Mutex::new(0));
    let speak = move |_: &AgentRequest, response: &AgentResponse| match response.interrupts() {
        [] => Action::Continue,
        waits => {
            *count.lock().unwrap() += 1;
            let words = format!("{} wait, {}.", waits.len(), count.lock().unwrap());
            Action::Respond(AgentResponse::new([Message::assistant(words)]))
        }
    };
    let agent = with_approvals(worker(&model()))
        .on_agent(after_agent(speak).guard())
        .build()
        .unwrap();
    let first = agent.run("Do it all.").await.unwrap();
    assert_eq!(first.messages()[1].text(), "2 wait, 1.");
    let second = agent
        .run(resume(&first, "c4", Decision::Approve))
        .await
        .unwrap();
    assert_eq!(second.messages()[1].text(), "1 wait, 2.");
    assert_eq!(results(second.new_messages()), ["c4"]);
    assert_eq!(results(second.messages()), ["c1", "c3", "c4", "c5"]);
    assert_eq!(saved(&second).messages, *second.messages());
    assert_eq!(
        second
            .open_calls()
            .map(|call| &*call.id)
            .collect::<Vec<_>>(),
        ["c2"]
    );
}

#[tokio::test]
async fn a_layer_that_answers_for_a_run_that_waits_leaves_its_calls_open() {
    let undisturbed = model();
    alone(worker(&undisturbed)).run("Do it all.").await.unwrap();
    let answers = |result: Result<AgentResponse, Error>| {
        result.map(|response| match response.interrupts() {
            [] => response,
            _ => AgentResponse::new([Message::assistant("One moment.")]),
        })
    };
    let resumed = model();
    let agent = with_approvals(worker(&resumed));
    let agent = agent
        .agent_layer(tower::util::MapResultLayer::new(answers))
        .build()
        .unwrap();
    let first = agent.run("Do it all.").await.unwrap();
    assert_eq!(
        (first.text(), first.messages().len()),
        ("One moment.".into(), 5)
    );
    assert_eq!(saved(&first).messages, *first.messages());
    let second = agent
        .run(resume(&first, "c4", Decision::Approve))
        .await
        .unwrap();
    assert_eq!(results(second.messages()), ["c1", "c3", "c4", "c5"]);
    let third = agent
        .run(resume(&second, "c2", Decision::Approve))
        .await
        .unwrap();
    assert_eq!(third.text(), "done");
    assert_eq!(
        told(resumed.requests().last().unwrap().messages()),
        told(undisturbed.requests()[1].messages())
    );
}
