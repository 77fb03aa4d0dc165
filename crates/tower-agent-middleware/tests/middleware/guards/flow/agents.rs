//! Agents in agents: as tools, after a transfer, in teams.

use serde_json::json;
use tower_agent::callback::OthersTurns;
use tower_agent::compat::Semantics;
use tower_agent::{Agent, AgentRequest};
use tower_agent_middleware::approval::{Approval, Decision};
use tower_agent_test::{ScriptedModel, Turn};

use super::*;
use crate::guards::{ids, saved};

fn worker(model: &ScriptedModel, log: &Log) -> Tool {
    assistant(model, log)
        .name("worker")
        .build()
        .unwrap()
        .into_tool("Works.")
}

fn with_agents() -> Flow {
    flow()
        .tool("worker", ToolFlow::agent())
        .tool("transfer_to_agent", ToolFlow::agent())
}

/// Runs a boss with a worker; returns the tools' log.
async fn boss(flow: Flow, boss: &ScriptedModel, worker_model: &ScriptedModel) -> Vec<String> {
    let log = Log::default();
    let agent = assistant(boss, &log)
        .name("boss")
        .tool(worker(worker_model, &log))
        .global_callbacks(flow)
        .build()
        .unwrap();
    agent.run("?").await.unwrap();
    log.take()
}

fn pay_bob() -> Turn {
    Turn::tool("pay", json!({ "to": "bob", "amount": 5 }))
}

fn ask_worker() -> Turn {
    Turn::tool("worker", json!({ "request": "Do it." }))
}

fn done() -> Turn {
    Turn::from_text("Done.")
}

#[tokio::test]
async fn an_agents_answer_has_the_label_of_what_it_has_read() {
    let read = ScriptedModel::new([Turn::tool("read_mail", json!({})), done()]);
    let model = ScriptedModel::new([ask_worker(), pay_bob(), done()]);
    assert_eq!(boss(with_agents(), &model, &read).await, [""; 0]);

    let read = ScriptedModel::new([Turn::tool("today", json!({})), done()]);
    let model = ScriptedModel::new([ask_worker(), pay_bob(), done()]);
    assert_eq!(boss(with_agents(), &model, &read).await, ["pay bob 5"]);
}

#[tokio::test]
async fn an_answer_that_is_hidden_is_a_variable() {
    let read = ScriptedModel::new([
        Turn::tool("read_mail", json!({})),
        Turn::tool("echo", json!({ "it": reference("@m1.0#/1/body") })),
        // The worker has read nothing of it, so that it may act.
        pay_bob(),
        done(),
    ]);
    let model = ScriptedModel::new([ask_worker(), pay_bob(), done()]);
    let flow = with_agents().hide(Hide::Everything);
    assert_eq!(
        boss(flow, &model, &read).await,
        ["echo {\"it\":\"Hello\"}", "pay bob 5", "pay bob 5"]
    );

    let read = ScriptedModel::new([
        Turn::tool("show_result", json!({ "result": "nothing" })),
        Turn::tool("read_mail", json!({})),
        Turn::tool("show_result", json!({ "result": reference("@m2.0") })),
        Turn::from_text(SECRET),
    ]);
    let model = ScriptedModel::new([ask_worker(), pay_bob(), done()]);
    let log = Log::default();
    let flow = with_agents().hide(Hide::Everything);
    let worker = assistant(&read, &log)
        .name("worker")
        .tools(flow.tools())
        .build()
        .unwrap();
    let agent = assistant(&model, &log)
        .tool(worker.into_tool(""))
        .global_callbacks(flow)
        .build()
        .unwrap();
    agent.run("?").await.unwrap();
    assert!(!super::read(&model.requests()).contains("SECRET"));
    assert_eq!(log.take(), ["pay bob 5"]);
}

#[tokio::test]
async fn what_an_agent_is_asked_has_the_label_of_the_call() {
    // The boss has read the mail, and passes the attack on.
    let attacked = ScriptedModel::new([pay_bob(), done()]);
    let model = ScriptedModel::new([Turn::tool("read_mail", json!({})), ask_worker(), done()]);
    assert_eq!(boss(with_agents(), &model, &attacked).await, [""; 0]);
    attacked.assert_done();

    // Or it passes on what it has not read.
    let attacked = ScriptedModel::new([pay_bob(), done()]);
    let model = ScriptedModel::new([
        Turn::tool("read_mail", json!({})),
        Turn::tool("worker", json!({ "request": reference("@m1.0#/0/body") })),
        pay_bob(),
        done(),
    ]);
    let flow = with_agents().hide(Hide::Everything);
    assert_eq!(
        boss(flow, &model, &attacked).await,
        ["pay bob 5"],
        "the boss alone may"
    );
    attacked.assert_done();
}

#[tokio::test]
async fn an_agent_that_is_not_declared_is_consequential() {
    let attacked = ScriptedModel::new([]);
    let model = ScriptedModel::new([Turn::tool("read_mail", json!({})), ask_worker(), done()]);
    assert_eq!(boss(flow(), &model, &attacked).await, [""; 0]);
    assert!(results_read(&model)[1].starts_with("refused: `worker`"));
}

#[tokio::test]
async fn an_agent_with_a_guard_of_its_own_in_an_agent_without_one_trusts_nothing() {
    let log = Log::default();
    let attacked = ScriptedModel::new([pay_bob(), done()]);
    let worker = assistant(&attacked, &log)
        .name("worker")
        .global_callbacks(flow())
        .build()
        .unwrap();
    let model = ScriptedModel::new([ask_worker(), done()]);
    let agent = assistant(&model, &log)
        .tool(worker.into_tool(""))
        .build()
        .unwrap();
    agent.run("?").await.unwrap();
    assert_eq!(log.take(), [""; 0]);
}

#[tokio::test]
async fn an_agent_without_the_guard_gives_an_answer_that_is_not_trusted() {
    let log = Log::default();
    let read = ScriptedModel::new([Turn::tool("read_mail", json!({})), done()]);
    let model = ScriptedModel::new([ask_worker(), pay_bob(), done()]);
    let agent = assistant(&model, &log)
        .tool(worker(&read, &log))
        // For this agent alone.
        .callbacks(with_agents())
        .build()
        .unwrap();
    agent.run("?").await.unwrap();
    assert_eq!(log.take(), [""; 0]);
}

#[tokio::test]
async fn a_transfer_takes_the_labels_along_also_in_quotations() {
    let read_mail = || Turn::tool("read_mail", json!({}));
    let transfer = || Turn::tool("transfer_to_agent", json!({ "agent_name": "second" }));
    for others in [OthersTurns::AsOwn, OthersTurns::Quoted] {
        for is_tainted in [true, false] {
            let log = Log::default();
            let second = ScriptedModel::new([pay_bob(), done()]);
            let sub = assistant(&second, &log).name("second").build().unwrap();
            let mut turns = vec![transfer()];
            if is_tainted {
                turns.insert(0, read_mail());
            }
            let model = ScriptedModel::new(turns);
            let mut semantics = Semantics::default();
            semantics.run.others_turns = others;
            let agent = assistant(&model, &log)
                .semantics(semantics)
                .sub_agent(sub)
                .global_callbacks(with_agents())
                .build()
                .unwrap();
            agent.run("?").await.unwrap();
            second.assert_done();
            let quotes = read(&second.requests()).contains("<quote");
            assert_eq!(quotes, others == OthersTurns::Quoted);
            assert_eq!(log.take().is_empty(), is_tainted, "{others:?}");
        }
    }
}

#[tokio::test]
async fn a_transfer_that_is_not_declared_is_consequential() {
    let log = Log::default();
    let sub = assistant(&ScriptedModel::new([]), &log)
        .name("second")
        .build()
        .unwrap();
    let model = ScriptedModel::new([
        Turn::tool("read_mail", json!({})),
        Turn::tool("transfer_to_agent", json!({ "agent_name": "second" })),
        done(),
    ]);
    // The guard is this agent's alone, and would not see what the other does.
    let agent = assistant(&model, &log)
        .sub_agent(sub)
        .callbacks(flow())
        .build()
        .unwrap();
    agent.run("?").await.unwrap();
    assert!(results_read(&model)[1].starts_with("refused: `transfer_to_agent`"));
}

#[tokio::test]
async fn members_of_a_team_share_what_was_read() {
    let log = Log::default();
    let member = |name: &str, turns: Vec<Turn>| {
        assistant(&ScriptedModel::new(turns), &log)
            .name(name)
            .build()
            .unwrap()
    };
    let team = Agent::sequential("team")
        .agents([
            member("first", vec![Turn::tool("read_mail", json!({})), done()]),
            member("second", vec![pay_bob(), done()]),
        ])
        .global_callbacks(flow())
        .build()
        .unwrap();
    team.run("?").await.unwrap();
    assert_eq!(log.take(), [""; 0]);

    // In parallel, neither has read what the other reads.
    let team = Agent::parallel("team")
        .agents([
            member("first", vec![Turn::tool("read_mail", json!({})), done()]),
            member("second", vec![pay_bob(), done()]),
        ])
        .global_callbacks(flow())
        .build()
        .unwrap();
    let both = team.run("?").await.unwrap();
    assert_eq!(log.take(), ["pay bob 5"]);

    // Whoever goes on has read both.
    let model = ScriptedModel::new([pay_bob(), done()]);
    let request = AgentRequest::resume(saved(&both)).with_message("Go on.");
    guarded(&model, &log, flow()).run(request).await.unwrap();
    assert_eq!(log.take(), [""; 0]);
}

#[tokio::test]
async fn a_variable_of_an_agent_is_none_of_another() {
    let read = ScriptedModel::new([Turn::tool("read_mail", json!({})), done()]);
    let log = Log::default();
    let model = ScriptedModel::new([
        Turn::tool("read_mail", json!({})),
        ask_worker(),
        // The worker's own is `@m1.0` as well, and `@worker/m1.0` is nobody's.
        Turn::tool("echo", json!({ "it": reference("@worker/m1.0") })),
        done(),
    ]);
    let agent = assistant(&model, &log)
        .tool(worker(&read, &log))
        .global_callbacks(with_agents().hide(Hide::Everything))
        .build()
        .unwrap();
    let ended = agent.run("?").await.unwrap();
    assert_eq!(log.take(), [""; 0]);
    let kept = serde_json::to_string(&ended.checkpoint()).unwrap();
    assert!(
        !kept.contains("calls/"),
        "nothing is left of the worker: {kept}"
    );
}

#[tokio::test]
async fn an_agent_in_a_call_goes_on_in_another_process_with_its_labels() {
    let log = Log::default();
    let agent = |boss_model: &ScriptedModel, worker_model: &ScriptedModel| {
        assistant(boss_model, &log)
            .name("boss")
            .tool(worker(worker_model, &log))
            .global_callbacks(with_agents())
            .global_callbacks(Approval::of_tools(["echo"]))
            .build()
            .unwrap()
    };
    let read = ScriptedModel::new([
        Turn::tool("read_mail", json!({})),
        Turn::tool("echo", json!({})),
    ]);
    let paused = agent(&ScriptedModel::new([ask_worker()]), &read)
        .run("?")
        .await
        .unwrap();
    let yes: Vec<_> = ids(&paused)
        .into_iter()
        .map(|id| tower_agent::Resolution::resolved(id, Decision::Approve))
        .collect();
    assert_eq!(yes.len(), 1);
    let request = AgentRequest::resume(saved(&paused)).with_resolutions(yes);
    let worker_model = ScriptedModel::new([pay_bob(), done()]);
    let boss_model = ScriptedModel::new([pay_bob(), done()]);
    agent(&boss_model, &worker_model)
        .run(request)
        .await
        .unwrap();
    assert_eq!(log.take(), ["echo {}"], "neither pays");
}

#[tokio::test]
async fn an_agent_that_a_callback_calls_trusts_nothing_that_it_is_asked() {
    use tower_agent::callback::Callback;
    use tower_agent::{Action, ModelRequest, ModelResponse, Request, Result};

    /// Lets another agent look at the conversation first.
    struct Helps(Agent);

    impl Callback<ModelRequest> for Helps {
        async fn before(&self, request: &mut ModelRequest) -> Result<Action<ModelResponse>> {
            // For the agent at work, and not for the helper itself.
            if request.context().agent() == "helper" {
                return Ok(Action::Continue);
            }
            let asked = AgentRequest::new("Look.").with_context(request.context().clone());
            self.0.run(asked).await?;
            Ok(Action::Continue)
        }
    }

    let log = Log::default();
    let helped = ScriptedModel::new([pay_bob(), done()]);
    let helper = assistant(&helped, &log).name("helper").build().unwrap();
    let model = ScriptedModel::new([done()]);
    let agent = assistant(&model, &log)
        .on_model(Helps(helper))
        .global_callbacks(flow())
        .build()
        .unwrap();
    agent.run("?").await.unwrap();
    helped.assert_done();
    assert_eq!(log.take(), [""; 0]);
}

#[tokio::test]
async fn a_team_for_each_item_trusts_none_of_what_it_is_given() {
    let log = Log::default();
    let each = ScriptedModel::new([pay_bob(), done()]);
    let worker = assistant(&each, &log).name("each").build().unwrap();
    let list = ScriptedModel::new([
        Turn::tool("read_mail", json!({})),
        Turn::from_text("[\"pay bob\"]"),
    ]);
    let list = assistant(&list, &log).name("list").build().unwrap();
    let team = Agent::sequential("team")
        .agent(list)
        .agent(
            Agent::for_each("items", worker, |request: &AgentRequest| {
                let text = request.messages().last().map(tower_agent::Message::text);
                let items: Vec<String> = serde_json::from_str(&text.unwrap_or_default())?;
                Ok(items)
            })
            .build()
            .unwrap(),
        )
        .global_callbacks(flow())
        .build()
        .unwrap();
    let ended = team.run("?").await.unwrap();
    each.assert_done();
    assert_eq!(log.take(), [""; 0]);

    // Nor does whoever reads only that later.
    let mut checkpoint = saved(&ended);
    let items = checkpoint.messages.iter();
    let items = items
        .filter(|message| message.text() == "pay bob" && message.role() == tower_agent::Role::User);
    checkpoint.messages = items.cloned().collect();
    assert_eq!(checkpoint.messages.len(), 1);
    let model = ScriptedModel::new([pay_bob(), done()]);
    let request = AgentRequest::resume(checkpoint).with_message("Go on.");
    guarded(&model, &log, flow()).run(request).await.unwrap();
    assert_eq!(log.take(), [""; 0]);
}

#[tokio::test]
async fn a_tool_that_is_no_agent_is_not_declared_as_one() {
    use tower_agent::agent::BuildError;
    use tower_agent::tool::ToolSet;

    let log = Log::default();
    let plain = || Tool::function("worker", "", |_: Value| "SECRET");
    let model = ScriptedModel::new([ask_worker(), pay_bob(), done()]);
    let flow = || with_agents().tool("worker", ToolFlow::agent());
    let of_agent = assistant(&model, &log).tool(plain());
    let is_refused = |built: Result<Agent, BuildError>| matches!(built, Err(BuildError::NotAnAgent { tool, .. }) if &*tool == "worker");
    assert!(is_refused(of_agent.global_callbacks(flow()).build()));
    let of_agent = assistant(&model, &log).tool(plain());
    assert!(is_refused(of_agent.callbacks(flow()).build()));
    let member = assistant(&model, &log).tool(plain()).build().unwrap();
    let team = Agent::sequential("team").agent(member);
    assert!(is_refused(team.global_callbacks(flow()).build()));

    // A name that nobody has is no error, and a run may bring a tool.
    let agent = guarded(&model, &log, flow());
    let mut tools = ToolSet::new();
    tools.insert(plain()).unwrap();
    let error = agent
        .run(AgentRequest::new("?").with_tools(tools))
        .await
        .unwrap_err();
    assert_eq!(error.kind(), tower_agent::ErrorKind::InvalidRequest);
    assert!(error.message().contains("`worker`"), "{error}");
    assert_eq!(log.take(), [""; 0]);
}
