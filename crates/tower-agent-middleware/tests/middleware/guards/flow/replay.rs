//! Runs that are made again from a journal, and go on in another process.

use std::collections::HashMap;
use std::sync::{Arc, Mutex};

use serde_json::json;
use tower::layer::util::Identity;
use tower_agent::callback::{Bundle, wrap_model, wrap_tool};
use tower_agent::context::{EffectLog, Effects};
use tower_agent::{
    Agent, AgentRequest, ModelRequest, ModelResponse, Request, ToolRequest, ToolResponse,
};
use tower_agent_test::{ScriptedModel, Turn};

use super::*;

/// What calls have returned, and what they have changed in their run.
#[derive(Clone, Default)]
struct Journal(Arc<Mutex<HashMap<String, (Value, Effects)>>>);

impl Journal {
    fn stored(&self, key: &str) -> Option<(Value, Effects)> {
        self.0.lock().unwrap().get(key).cloned()
    }

    fn store(&self, key: String, response: Value, effects: Effects) {
        let effects = serde_json::to_value(effects).unwrap();
        let effects = serde_json::from_value(effects).unwrap();
        self.0.lock().unwrap().insert(key, (response, effects));
    }

    /// Forgets the calls whose keys contain this, as if the process had ended before they were
    /// stored.
    fn forget(&self, part: &str) {
        self.0.lock().unwrap().retain(|key, _| !key.contains(part));
    }

    fn bundle(&self) -> Bundle {
        let (models, tools) = (self.clone(), self.clone());
        let model = wrap_model(move |request: ModelRequest, mut next| {
            let journal = models.clone();
            async move {
                let context = request.context().clone();
                let key = format!("model {} {}", context.step_path(), context.iteration());
                if let Some((response, effects)) = journal.stored(&key) {
                    effects.apply(&context, &key);
                    return Ok(serde_json::from_value::<ModelResponse>(response).unwrap());
                }
                let (inside, log) = EffectLog::collect(&context, key.clone());
                let mut response = next.run(request.clone().with_context(inside)).await?;
                request.identify(&mut response);
                journal.store(key, serde_json::to_value(&response).unwrap(), log.effects());
                Ok::<_, tower_agent::Error>(response)
            }
        });
        let tool = wrap_tool(move |request: ToolRequest, mut next| {
            let journal = tools.clone();
            async move {
                let context = request.context().clone();
                let key = format!("tool {}", context.step_path());
                if let Some((response, effects)) = journal.stored(&key) {
                    effects.apply(&context, &key);
                    return Ok(serde_json::from_value::<ToolResponse>(response).unwrap());
                }
                let (inside, log) = EffectLog::collect(&context, key.clone());
                let response = next.run(request.with_context(inside)).await?;
                journal.store(key, serde_json::to_value(&response).unwrap(), log.effects());
                Ok::<_, tower_agent::Error>(response)
            }
        });
        Bundle::new().journal(Identity::new(), model, tool)
    }
}

fn agent(journal: &Journal, log: &Log, boss: &ScriptedModel, worker: &ScriptedModel) -> Agent {
    let flow = flow().tool("worker", ToolFlow::agent());
    let worker = assistant(worker, log).name("worker").build().unwrap();
    assistant(boss, log)
        .name("boss")
        .tool(worker.into_tool(""))
        .global_callbacks(journal.bundle())
        .global_callbacks(flow)
        .build()
        .unwrap()
}

fn request() -> AgentRequest {
    AgentRequest::new("?").with_run_id("run")
}

#[tokio::test]
async fn a_run_that_is_made_again_has_the_same_labels() {
    let turns = || {
        [
            Turn::tool("worker", json!({ "request": "Look." })),
            Turn::tool("pay", json!({ "to": "bob", "amount": 5 })),
            Turn::from_text("Done."),
        ]
    };
    for (read, pays) in [("read_mail", false), ("today", true)] {
        let journal = Journal::default();
        let log = Log::default();
        let worker = ScriptedModel::new([Turn::tool(read, json!({})), Turn::from_text("Done.")]);
        let boss = ScriptedModel::new(turns());
        let first = agent(&journal, &log, &boss, &worker)
            .run(request())
            .await
            .unwrap();
        assert_eq!(log.take(), if pays { vec!["pay bob 5"] } else { vec![] });

        // Everything is stored: no model and no tool is called.
        let none = ScriptedModel::new([]);
        let again = agent(&journal, &log, &none, &none)
            .run(request())
            .await
            .unwrap();
        assert_eq!(log.take(), [""; 0]);
        let private = |response: &tower_agent::AgentResponse| {
            let saved = serde_json::to_value(response.checkpoint()).unwrap();
            saved["head"]["private_state"].clone()
        };
        assert_eq!(private(&first), private(&again));

        // The process ended in the worker's call: its model's calls are stored, the call is not.
        // What it has read is known all the same.
        journal.forget("tool boss/m1.0 ");
        journal.0.lock().unwrap().remove("tool boss/m1.0");
        journal.forget("boss/m2.0");
        journal.forget("model boss 1");
        journal.forget("model boss 2");
        let boss = ScriptedModel::new(turns().into_iter().skip(1));
        agent(&journal, &log, &boss, &none)
            .run(request())
            .await
            .unwrap();
        boss.assert_done();
        assert_eq!(log.take(), if pays { vec!["pay bob 5"] } else { vec![] });
    }
}

#[tokio::test]
async fn a_hidden_result_is_found_again_from_the_journal() {
    let journal = Journal::default();
    let log = Log::default();
    let agent = |model: &ScriptedModel| {
        assistant(model, &log)
            .global_callbacks(journal.bundle())
            .global_callbacks(hiding())
            .build()
            .unwrap()
    };
    let model = ScriptedModel::new([
        Turn::tool("read_mail", json!({})),
        Turn::tool("echo", json!({ "it": reference("@m1.0#/1/body") })),
        Turn::from_text("Done."),
    ]);
    agent(&model).run(request()).await.unwrap();
    assert_eq!(log.take(), ["echo {\"it\":\"Hello\"}"]);

    journal.forget("m2.0");
    let none = ScriptedModel::new([]);
    agent(&none).run(request()).await.unwrap();
    assert_eq!(log.take(), ["echo {\"it\":\"Hello\"}"]);
}

#[tokio::test]
async fn a_question_that_was_answered_is_not_asked_again() {
    use tower_agent::Resolution;
    use tower_agent_middleware::flow::{FlowAnswer, OnViolation};

    use crate::guards::{names, saved, to_open};

    let journal = Journal::default();
    let log = Log::default();
    let agent = |model: &ScriptedModel| {
        assistant(model, &log)
            .global_callbacks(journal.bundle())
            .global_callbacks(flow().on_violation(OnViolation::Ask))
            .build()
            .unwrap()
    };
    let model = ScriptedModel::new([
        Turn::tool("read_mail", json!({})),
        Turn::tool("pay", pay_mallory()),
    ]);
    let paused = agent(&model).run(request()).await.unwrap();
    assert_eq!(names(&paused), ["agent/m2.0 flow"]);
    let resume = || {
        let yes = Resolution::resolved("agent/m2.0 flow", FlowAnswer::Approve);
        AgentRequest::resume(saved(&paused))
            .with_resolutions(to_open(&paused, [yes]))
            .with_run_id("run")
    };
    let model = ScriptedModel::new([Turn::from_text("Done.")]);
    agent(&model).run(resume()).await.unwrap();
    assert_eq!(log.take(), ["pay mallory 1000"]);

    // The same run again: the call is stored, with its answer.
    let none = ScriptedModel::new([]);
    let again = agent(&none).run(resume()).await.unwrap();
    assert!(again.interrupts().is_empty());
    assert_eq!(log.take(), [""; 0]);
}
