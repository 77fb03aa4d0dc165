//! Uses of the callbacks around the model call.

use std::collections::HashMap;
use std::sync::{Arc, Mutex};

use serde_json::{Value, json};
use tower_agent::callback::{after_model, before_model};
use tower_agent::model::FinishReason;
use tower_agent::{Action, AgentRequest, Message, ModelRequest, ModelResponse, Request, State};
use tower_agent_test::{ScriptedModel, Turn};

use super::{adk, model_says};
use test_support::log::Log;

fn with_state(text: &str, state: Value) -> AgentRequest {
    let Value::Object(state) = state else {
        panic!("{state} is no state")
    };
    AgentRequest::new(text).with_state(State::from(state))
}

#[tokio::test]
async fn a_guardrail_answers_in_the_models_place() {
    for (question, answer, calls) in [
        ("What the heck?", "Mind your language.", 0),
        ("What is this?", "A question.", 1),
    ] {
        let model = ScriptedModel::new([Turn::from_text("A question.")]);
        let agent = adk(&model)
            .on_model(before_model(|request| match request.messages().last() {
                Some(last) if last.text().contains("heck") => {
                    Action::Respond(model_says("Mind your language."))
                }
                _ => Action::Continue,
            }))
            .build()
            .unwrap();

        assert_eq!(agent.run(question).await.unwrap().text(), answer);
        assert_eq!(model.requests().len(), calls);
    }
}

#[tokio::test]
async fn instructions_may_depend_on_the_state() {
    for (state, instructions) in [
        (
            json!({ "language": "Norwegian" }),
            "Help.\n\nAnswer in Norwegian.",
        ),
        (json!({}), "Help."),
    ] {
        let model = ScriptedModel::new([Turn::from_text("Ja.")]);
        let agent = adk(&model)
            .instructions("Help.")
            .on_model(before_model(|request| {
                if let Some(language) = request.context().state().get("language") {
                    let language = language.as_str().unwrap_or("English");
                    request.add_instructions(&format!("Answer in {language}."));
                }
            }))
            .build()
            .unwrap();

        agent.run(with_state("?", state)).await.unwrap();

        assert_eq!(model.requests()[0].instructions(), Some(instructions));
    }
}

#[tokio::test]
async fn examples_from_the_state_come_before_the_question() {
    let model = ScriptedModel::new([Turn::from_text("-1")]);
    let agent = adk(&model)
        .on_model(before_model(|request| {
            let Some(Value::Array(examples)) = request.context().state().get("examples") else {
                return;
            };
            let shots = examples.iter().flat_map(|example| {
                let text = |side: &str| example[side].as_str().unwrap_or_default().to_owned();
                [
                    Message::user(text("question")),
                    Message::assistant(text("answer")),
                ]
            });
            let asked = request.messages().iter().cloned();
            *request.messages_mut() = shots.chain(asked).collect();
        }))
        .build()
        .unwrap();
    let examples = json!({ "examples": [{ "question": "I love it!", "answer": "1" }] });

    let response = agent.run(with_state("I hate it!", examples)).await.unwrap();

    let shown: Vec<_> = model.requests()[0]
        .messages()
        .iter()
        .map(Message::text)
        .collect();
    assert_eq!(shown, ["I love it!", "1", "I hate it!"]);
    assert_eq!(
        response.messages().len(),
        2,
        "the transcript keeps what was said"
    );
}

#[tokio::test]
async fn a_callback_may_choose_the_models_settings() {
    let model = ScriptedModel::new([Turn::from_text("4")]);
    let agent = adk(&model)
        .on_model(before_model(|request| {
            let settings = request.settings_mut();
            settings.model = Some("precise".into());
            settings.temperature = Some(0.0);
        }))
        .build()
        .unwrap();

    agent.run("2 + 2?").await.unwrap();

    let settings = model.requests()[0].settings().clone();
    assert_eq!(
        (settings.model.as_deref(), settings.temperature),
        (Some("precise"), Some(0.0))
    );
}

/// Answers a question that was answered before.
#[derive(Clone, Default)]
struct Cache(Arc<Mutex<HashMap<String, ModelResponse>>>);

impl Cache {
    fn key(request: &ModelRequest) -> String {
        request
            .messages()
            .last()
            .map(Message::text)
            .unwrap_or_default()
    }
}

impl tower_agent::Callback<ModelRequest> for Cache {
    async fn before(
        &self,
        request: &mut ModelRequest,
    ) -> tower_agent::Result<Action<ModelResponse>> {
        let known = self.0.lock().unwrap().get(&Self::key(request)).cloned();
        Ok(known.map_or(Action::Continue, Action::Respond))
    }

    async fn after(
        &self,
        request: &ModelRequest,
        response: &ModelResponse,
    ) -> tower_agent::Result<Action<ModelResponse>> {
        self.0
            .lock()
            .unwrap()
            .insert(Self::key(request), response.clone());
        Ok(Action::Continue)
    }
}

#[tokio::test]
async fn a_cache_asks_the_model_once_for_each_question() {
    let model = ScriptedModel::new([Turn::from_text("Oslo"), Turn::from_text("Rome")]);
    let agent = adk(&model).on_model(Cache::default()).build().unwrap();

    for (question, answer) in [
        ("Norway?", "Oslo"),
        ("Norway?", "Oslo"),
        ("Italy?", "Rome"),
        ("Norway?", "Oslo"),
    ] {
        assert_eq!(agent.run(question).await.unwrap().text(), answer);
    }
    model.assert_done();
}

#[tokio::test]
async fn answers_are_logged_and_censored() {
    let log = Log::default();
    let model = ScriptedModel::new([Turn::from_text("Her number is 555-0199.")]);
    let agent = adk(&model)
        .on_model(after_model({
            let log = log.clone();
            move |_, response| log.note(response.message().text())
        }))
        .on_model(after_model(|_, response| {
            let text = response.message().text();
            let censored: String = text
                .chars()
                .map(|c| if c.is_ascii_digit() { '*' } else { c })
                .collect();
            if censored == text {
                Action::Continue
            } else {
                Action::Respond(model_says(&censored))
            }
        }))
        .build()
        .unwrap();

    assert_eq!(
        agent.run("?").await.unwrap().text(),
        "Her number is ***-****."
    );
    assert_eq!(log.take(), ["Her number is 555-0199."]);
}

#[tokio::test]
async fn a_structured_answer_of_the_model_is_stored_in_the_state() {
    let model = ScriptedModel::new([Turn::from_text(r#"{"city":"Oslo","celsius":4}"#)]);
    let agent = adk(&model)
        .on_model(after_model(|request, response| {
            if let Ok(Value::Object(report)) = serde_json::from_str(&response.message().text()) {
                request.context().state().set("report", report);
            }
        }))
        .build()
        .unwrap();

    let response = agent.run("Weather?").await.unwrap();

    assert_eq!(
        response.state().get("report"),
        Some(json!({ "city": "Oslo", "celsius": 4 }))
    );
    assert_eq!(response.state().delta().set.len(), 1);
}

#[tokio::test]
async fn an_answer_that_was_held_back_is_replaced() {
    let held = ModelResponse::from_text("").with_finish_reason(FinishReason::ContentFilter);
    for (answer, text) in [
        (held, "I may not say."),
        (ModelResponse::from_text("Sure."), "Sure."),
    ] {
        let model = ScriptedModel::new([Turn::response(answer)]);
        let agent = adk(&model)
            .on_model(after_model(|_, response| match response.finish_reason() {
                FinishReason::ContentFilter => Action::Respond(model_says("I may not say.")),
                _ => Action::Continue,
            }))
            .build()
            .unwrap();

        assert_eq!(agent.run("?").await.unwrap().text(), text);
    }
}
