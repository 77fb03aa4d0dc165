//! Runs that answer with a value of a type.

use std::sync::{Arc, Mutex};

use futures::StreamExt;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use test_support::team::agent;
use tower::{Layer, ServiceBuilder, ServiceExt};
use tower_agent::agent::{AnswerFormat, AnswerMode, InvalidAnswer};
use tower_agent::callback::{after_agent, after_model, before_agent};
use tower_agent::message::{Metadata, ToolCall};
use tower_agent::model::{ResponseFormat, ToolChoice};
use tower_agent::stream::{Event, EventKind};
use tower_agent::{
    Action, Agent, AgentRequest, AgentResponse, EndReason, Error, ErrorKind, Message, ModelRequest,
    ModelResponse, Part, Resolution, Role, Settings, Tool, Usage,
};
use tower_agent_middleware::approval::{Approval, Decision};
use tower_agent_middleware::guardrail::{Guardrail, Tripped, Verdict};
use tower_agent_middleware::redact::{Detector, Redact};
use tower_agent_middleware::retry::CallRetryLayer;
use tower_agent_test::{ScriptedModel, StablePrefixLayer, Turn};

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
struct Weather {
    city: String,
    celsius: f64,
}

fn oslo() -> Weather {
    Weather {
        city: "Oslo".into(),
        celsius: 21.0,
    }
}

fn says(value: impl Serialize) -> Turn {
    Turn::from_text(serde_json::to_string(&value).unwrap())
}

fn gives(value: impl Serialize) -> Turn {
    Turn::tool("final_answer", serde_json::to_value(value).unwrap())
}

fn by_tool() -> AnswerFormat {
    AnswerFormat::of::<Weather>().mode(AnswerMode::Tool)
}

fn ask() -> AgentRequest {
    AgentRequest::new("How warm is it?")
}

fn look() -> Tool {
    Tool::function("look", "Looks.", |_: Value| "seen")
}

fn build(model: &ScriptedModel) -> Agent {
    Agent::builder(model.clone()).tool(look()).build().unwrap()
}

fn last_text(model: &ScriptedModel, call: usize) -> String {
    model.requests()[call].messages().last().unwrap().text()
}

#[tokio::test]
async fn the_model_is_asked_for_the_type_and_its_answer_is_a_value() {
    let model = ScriptedModel::new([Turn::tool("look", json!({})), says(oslo())]);
    let answer = build(&model).run_typed::<Weather>(ask()).await.unwrap();
    assert_eq!(answer.value, Some(oslo()));
    assert_eq!(answer.response.iterations(), 2);
    for request in model.requests() {
        assert_eq!(request.tools().len(), 1);
        let format = request.settings().response_format.clone();
        assert_eq!(format, Some(ResponseFormat::of::<Weather>()));
        let Some(ResponseFormat::JsonSchema { strict: true, .. }) = format else {
            panic!()
        };
    }
}

#[tokio::test]
async fn a_run_without_a_type_is_asked_for_nothing() {
    let model = ScriptedModel::new([Turn::from_text("warm")]);
    assert_eq!(build(&model).run(ask()).await.unwrap().text(), "warm");
    assert_eq!(model.requests()[0].settings().response_format, None);
    assert_eq!(model.requests()[0].tools().len(), 1);
}

#[tokio::test]
async fn the_model_is_told_the_problem_and_the_schema_and_repairs_its_answer() {
    let used = |turn: Turn| turn.usage(Usage::new(10, 1));
    let model = ScriptedModel::new([
        used(Turn::from_text("It is warm.")),
        used(says(json!({ "city": "Oslo" }))),
        used(says(oslo())),
    ]);
    let answer = build(&model).run_typed::<Weather>(ask()).await.unwrap();
    assert_eq!(answer.response.usage(), Usage::new(30, 3));
    assert_eq!(answer.response.new_messages().len(), 5);
    assert_eq!(answer.into_value().unwrap(), oslo());

    let schema = AnswerFormat::of::<Weather>().schema().to_string();
    for (call, problem) in [(1, "not JSON alone"), (2, "field `celsius`: is missing")] {
        let told = last_text(&model, call);
        assert!(told.contains(problem), "{told}");
        assert!(told.contains(&schema), "{told}");
    }
}

#[tokio::test]
async fn an_answer_that_stays_wrong_is_an_error_to_resume_from() {
    let model = ScriptedModel::new([
        Turn::tool("look", json!({})),
        says("a"),
        says("b"),
        says(json!({ "city": "Oslo", "celsius": "warm" })),
        says(oslo()),
    ]);
    let agent = build(&model);
    let error = agent.run_typed::<Weather>(ask()).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::InvalidAnswer);
    assert!(!error.is_retryable());
    assert!(
        error
            .message()
            .starts_with("the answer is not a `Weather`: field `celsius`: ")
    );
    let invalid = error.downcast_ref::<InvalidAnswer>().unwrap();
    assert_eq!(invalid.field, "celsius");
    let answer: Value = serde_json::from_str(&invalid.answer).unwrap();
    assert_eq!(answer, json!({ "celsius": "warm", "city": "Oslo" }));
    assert_eq!(model.requests().len(), 4);

    // The tool does not run again.
    let checkpoint = error.checkpoint().unwrap().clone();
    let request = AgentRequest::resume(checkpoint).with_message("In numbers, please.");
    let answer = agent.run_typed::<Weather>(request).await.unwrap();
    assert_eq!(
        (answer.value, answer.response.iterations()),
        (Some(oslo()), 1)
    );
}

#[tokio::test]
async fn the_limit_of_repairs_is_a_setting() {
    let model = ScriptedModel::new([says("no"), says(oslo())]);
    let format = AnswerFormat::of::<Weather>().max_repairs(0);
    let request = ask().with_answer_format(format);
    let error = build(&model)
        .run_typed::<Weather>(request)
        .await
        .unwrap_err();
    assert_eq!(
        (error.kind(), model.requests().len()),
        (ErrorKind::InvalidAnswer, 1)
    );
}

#[tokio::test]
async fn repairs_count_as_iterations() {
    let model = ScriptedModel::new([says("no"), says("no"), says(oslo())]);
    let agent = Agent::builder(model.clone())
        .max_iterations(2)
        .build()
        .unwrap();
    let error = agent.run_typed::<Weather>(ask()).await.unwrap_err();
    assert_eq!(
        (error.kind(), model.requests().len()),
        (ErrorKind::MaxIterations, 2)
    );
}

#[tokio::test]
async fn a_type_that_is_no_object_is_wrapped_in_one() {
    #[derive(Debug, PartialEq, Deserialize, JsonSchema)]
    #[serde(rename_all = "lowercase")]
    enum Mood {
        Good,
        Bad,
    }

    let format = AnswerFormat::of::<Vec<Weather>>();
    assert_eq!(format.schema()["type"], "object");
    assert_eq!(format.schema()["required"], json!(["value"]));
    assert_eq!(
        format.schema()["properties"]["value"]["items"]["additionalProperties"],
        false
    );

    let agent = |said: Value| build(&ScriptedModel::new([says(said)]));
    let list = agent(json!({ "value": [oslo()] }))
        .run_typed::<Vec<Weather>>(ask())
        .await;
    assert_eq!(list.unwrap().value, Some(vec![oslo()]));
    let number = agent(json!({ "value": 21 })).run_typed::<u8>(ask()).await;
    assert_eq!(number.unwrap().value, Some(21));
    // A model that sends the value alone is understood.
    let mood = agent(json!("good")).run_typed::<Mood>(ask()).await;
    assert_eq!(mood.unwrap().value, Some(Mood::Good));
    let text = agent(json!({ "value": "warm" }))
        .run_typed::<String>(ask())
        .await;
    assert_eq!(text.unwrap().value.as_deref(), Some("warm"));
}

#[tokio::test]
async fn a_tool_gives_the_answer_to_models_without_a_response_format() {
    let model = ScriptedModel::new([Turn::tool("look", json!({})), gives(oslo())]);
    let request = ask().with_answer_format(by_tool());
    let answer = build(&model).run_typed::<Weather>(request).await.unwrap();
    assert_eq!(answer.value, Some(oslo()));

    let request = &model.requests()[1];
    assert_eq!(request.settings().response_format, None);
    assert_eq!(request.settings().tool_choice, Some(ToolChoice::Required));
    let names: Vec<_> = request.tools().iter().map(|tool| tool.name()).collect();
    assert_eq!(names, ["look", "final_answer"]);
    assert_eq!(request.tools()[1].parameters(), by_tool().schema());
    // The transcript is one that any later run can continue.
    assert_eq!(answer.response.open_calls().count(), 0);
    let last = answer.response.message().unwrap();
    assert_eq!(last.parts().len(), 1);
    let text: Weather = serde_json::from_str(&last.text()).unwrap();
    assert_eq!(text, oslo());
}

#[tokio::test]
async fn a_tool_choice_of_the_agent_stays() {
    let model = ScriptedModel::new([Turn::from_text("It is warm."), gives(oslo())]);
    let mut settings = Settings::default();
    settings.tool_choice = Some(ToolChoice::Auto);
    let agent = Agent::builder(model.clone())
        .settings(settings)
        .build()
        .unwrap();
    let answer = agent
        .run_typed::<Weather>(ask().with_answer_format(by_tool()))
        .await
        .unwrap();
    assert_eq!(answer.value, Some(oslo()));
    assert_eq!(
        model.requests()[0].settings().tool_choice,
        Some(ToolChoice::Auto)
    );
    assert!(last_text(&model, 1).contains("call the tool `final_answer`"));
}

#[tokio::test]
async fn text_of_the_model_before_the_answer_stays() {
    let call = ToolCall::new("1", "final_answer", serde_json::to_value(oslo()).unwrap());
    let said = [
        Part::reasoning("hm"),
        Part::from_text("Here it is:"),
        call.into(),
    ];
    let said = ModelResponse::new(Message::new(Role::Assistant, said));
    let model = ScriptedModel::new([Turn::response(said)]);
    let request = ask().with_answer_format(by_tool());
    let answer = build(&model).run_typed::<Weather>(request).await.unwrap();
    assert_eq!(answer.value, Some(oslo()));
    assert!(answer.response.text().starts_with("Here it is:{"));
}

#[tokio::test]
async fn an_answer_beside_tool_calls_is_not_final() {
    let early = json!({ "city": "Oslo", "celsius": 0 });
    let model = ScriptedModel::new([gives(early).and_tool("look", json!({})), gives(oslo())]);
    let request = ask().with_answer_format(by_tool());
    let answer = build(&model).run_typed::<Weather>(request).await.unwrap();
    assert_eq!(
        (answer.value, answer.response.iterations()),
        (Some(oslo()), 2)
    );
    assert_eq!(last_text(&model, 1), "");
    let results: Vec<_> = answer
        .response
        .new_messages()
        .flat_map(Message::tool_results)
        .collect();
    assert_eq!(results.len(), 1);
    assert_eq!(
        (&*results[0].name, results[0].text().as_str()),
        ("look", "seen")
    );
}

#[tokio::test]
async fn the_tool_is_told_about_arguments_that_do_not_match() {
    let model = ScriptedModel::new([gives(json!({ "city": "Oslo" })), gives(oslo())]);
    let request = ask().with_answer_format(by_tool());
    let answer = build(&model).run_typed::<Weather>(request).await.unwrap();
    assert_eq!(answer.value, Some(oslo()));
    let told = last_text(&model, 1);
    assert!(told.contains("field `celsius`: is missing"), "{told}");
    assert!(told.contains(&by_tool().schema().to_string()), "{told}");
}

#[tokio::test]
async fn a_tool_of_the_same_name_is_an_error_before_anything_is_sent() {
    let model = ScriptedModel::new([gives(oslo())]);
    let taken = Tool::function("final_answer", "", |_: Value| "mine");
    let agent = Agent::builder(model.clone()).tool(taken).build().unwrap();
    let request = ask().with_answer_format(by_tool());
    let error = agent.run_typed::<Weather>(request).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::InvalidRequest);
    assert!(error.message().contains("`final_answer`"), "{error}");
    assert_eq!(model.requests().len(), 0);
    // The name is free in a run without it.
    let model = ScriptedModel::new([says(oslo())]);
    let taken = Tool::function("final_answer", "", |_: Value| "mine");
    let agent = Agent::builder(model).tool(taken).build().unwrap();
    assert_eq!(
        agent.run_typed::<Weather>(ask()).await.unwrap().value,
        Some(oslo())
    );
}

/// Returns the texts of each streamed message, and `rejected` for each rejected answer.
fn shown(events: &[Event]) -> Vec<String> {
    let mut shown: Vec<String> = Vec::new();
    for event in events {
        match &event.kind {
            EventKind::TextStart { .. } => shown.push(String::new()),
            EventKind::TextDelta { text, .. } => shown.last_mut().unwrap().push_str(text),
            EventKind::AnswerRejected { error } => {
                assert_eq!(error.kind(), ErrorKind::InvalidAnswer);
                shown.push("rejected".into());
            }
            EventKind::ToolCallStart(call) => shown.push(call.name.to_string()),
            EventKind::ResponseReplaced { .. } | EventKind::AttemptDiscarded { .. } => {
                shown.push("gone".into());
            }
            _ => {}
        }
    }
    shown
}

#[tokio::test]
async fn a_stream_shows_every_answer_and_that_it_was_rejected() {
    let answer = serde_json::to_string(&oslo()).unwrap();
    for mode in [AnswerMode::Auto, AnswerMode::Tool, AnswerMode::Text] {
        let give = |value: Value| match mode {
            AnswerMode::Tool => gives(value),
            _ => says(value),
        };
        let model = ScriptedModel::new([
            Turn::tool("look", json!({})),
            give(json!({ "city": "Oslo" })),
            give(serde_json::to_value(oslo()).unwrap()),
        ]);
        let format = AnswerFormat::of::<Weather>().mode(mode);
        let request = ask().with_answer_format(format.clone());
        let mut run = build(&model).stream_typed::<Weather>(request);
        let events: Vec<_> = run.by_ref().collect().await;
        let done = run.response().await.unwrap();
        assert_eq!(done.value, Some(oslo()));
        let expected = ["look", r#"{"city":"Oslo"}"#, "rejected", &*answer];
        let shown = shown(&events);
        assert_eq!(shown.len(), 4, "{shown:?}");
        for (shown, expected) in shown.iter().zip(expected) {
            match serde_json::from_str::<Value>(expected) {
                Ok(json) => assert_eq!(serde_json::from_str::<Value>(shown).unwrap(), json),
                Err(_) => assert_eq!(shown, expected),
            }
        }
        test_support::runs::check(&events, Ok(done.response)).unwrap();
    }
}

#[tokio::test]
async fn an_interrupted_run_has_no_value_until_it_resumes() {
    let model = ScriptedModel::new([Turn::tool("look", json!({})), says("hm"), says(oslo())]);
    let agent = Agent::builder(model)
        .tool(look())
        .on_tool(Approval::of_tools(["look"]))
        .build()
        .unwrap();
    let waits = agent.run_typed::<Weather>(ask()).await.unwrap();
    assert_eq!(waits.value, None);
    let [interrupt] = waits.response.interrupts() else {
        panic!()
    };
    let resolution = Resolution::resolved(&*interrupt.id, Decision::Approve);
    let checkpoint = waits.response.checkpoint();
    let error = waits.into_value().unwrap_err();
    assert_eq!(
        (error.kind(), error.interrupts().len()),
        (ErrorKind::Interrupted, 1)
    );
    assert_eq!(error.checkpoint(), Some(&checkpoint));

    let request = AgentRequest::resume(checkpoint).with_resolutions([resolution]);
    let answer = agent.run_typed::<Weather>(request).await.unwrap();
    assert_eq!(answer.value, Some(oslo()));
}

#[tokio::test]
async fn a_team_that_was_interrupted_gives_the_answer_when_it_resumes() {
    let notes = ScriptedModel::new([Turn::from_text("It is warm.")]);
    let writes = ScriptedModel::new([Turn::tool("look", json!({})), gives("hm"), gives(oslo())]);
    let writer = Agent::builder(writes.clone())
        .name("writes")
        .tool(look())
        .on_tool(Approval::of_tools(["look"]))
        .build()
        .unwrap();
    let team = Agent::sequential("team")
        .agents([agent("notes", &notes), writer])
        .build()
        .unwrap();
    let waits = team
        .run_typed::<Weather>(ask().with_answer_format(by_tool()))
        .await
        .unwrap();
    assert_eq!(waits.value, None);
    let id = waits.response.interrupts()[0].id.clone();
    let request = AgentRequest::resume(waits.response.checkpoint())
        .with_resolutions([Resolution::resolved(&*id, Decision::Approve)])
        .with_answer_format(by_tool());
    assert_eq!(
        team.run_typed::<Weather>(request).await.unwrap().value,
        Some(oslo())
    );
    assert_eq!((notes.requests().len(), writes.requests().len()), (1, 3));
}

#[tokio::test]
async fn a_stream_that_is_dropped_after_a_rejected_answer_resumes() {
    let model = ScriptedModel::new([says("hm"), Turn::pending(), says(oslo())]);
    let agent = build(&model);
    let mut run = agent.stream_typed::<Weather>(ask());
    while let Some(event) = run.next().await {
        if matches!(event.kind, EventKind::AnswerRejected { .. }) {
            break;
        }
    }
    let checkpoint = run.checkpoint();
    drop(run);
    // The question, the answer, and what is wrong with it.
    assert_eq!(checkpoint.messages.len(), 3);
    let told = checkpoint.messages.last().unwrap();
    assert_eq!(told.role(), Role::User);
    assert!(told.text().contains("schema"), "{told:?}");
    let answer = agent
        .run_typed::<Weather>(AgentRequest::resume(checkpoint))
        .await
        .unwrap();
    assert_eq!(answer.value, Some(oslo()));
    model.assert_done();
}

#[tokio::test(start_paused = true)]
async fn a_retry_inside_and_a_layer_outside_keep_the_answer() {
    let busy = || Turn::error(Error::new(ErrorKind::Overloaded, "busy"));
    let model = ScriptedModel::new([busy(), says("no"), busy(), says(oslo())]);
    let agent = Agent::builder(model.clone())
        .model_layer(CallRetryLayer::new())
        .build()
        .unwrap();
    let service = ServiceBuilder::new()
        .timeout(std::time::Duration::from_secs(60))
        .service(agent);
    let request = ask().with_answer_format(AnswerFormat::of::<Weather>());
    let response = service.oneshot(request).await.unwrap();
    assert_eq!(response.parse::<Weather>().unwrap(), oslo());
    model.assert_done();
}

#[tokio::test]
async fn the_prompt_only_grows_while_an_answer_is_repaired() {
    for format in [AnswerFormat::of::<Weather>(), by_tool()] {
        let model = ScriptedModel::new([
            Turn::tool("look", json!({})),
            says("no"),
            says(json!({})),
            says(oslo()),
        ]);
        let prefix = StablePrefixLayer::new();
        let agent = Agent::builder(prefix.layer(model))
            .tool(look())
            .build()
            .unwrap();
        let request = ask().with_answer_format(format);
        assert_eq!(
            agent.run_typed::<Weather>(request).await.unwrap().value,
            Some(oslo())
        );
        assert_eq!(prefix.faults(), []);
    }
}

#[tokio::test]
async fn the_last_member_of_a_team_gives_the_answer() {
    let notes = ScriptedModel::new([Turn::from_text("It is warm.")]);
    let writes = ScriptedModel::new([says("no"), says(oslo())]);
    let team = Agent::sequential("team")
        .agents([agent("notes", &notes), agent("writes", &writes)])
        .build()
        .unwrap();
    let answer = team.run_typed::<Weather>(ask()).await.unwrap();
    assert_eq!(answer.value, Some(oslo()));
    assert_eq!(notes.requests()[0].settings().response_format, None);
    assert!(writes.requests()[0].settings().response_format.is_some());
}

#[tokio::test]
async fn a_parallel_team_cannot_give_one_answer() {
    let model = ScriptedModel::new([says(oslo()), says(oslo()), says(oslo())]);
    let both = || {
        let team = Agent::parallel("both").agents([agent("a", &model), agent("b", &model)]);
        team.build().unwrap()
    };
    let ends_in_both = Agent::sequential("team").agents([agent("c", &model), both()]);
    for team in [both(), ends_in_both.build().unwrap()] {
        let error = team.run_typed::<Weather>(ask()).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::InvalidRequest);
        // Nothing was sent.
        assert!(model.requests().is_empty());
    }
    let joined = Agent::sequential("team")
        .agents([both(), agent("c", &model)])
        .build()
        .unwrap();
    let answer = joined.run_typed::<Weather>(ask()).await.unwrap();
    assert_eq!((answer.value, model.requests().len()), (Some(oslo()), 3));
}

#[tokio::test]
async fn the_agent_that_takes_over_gives_the_answer() {
    let meteorologist = ScriptedModel::new([gives(json!({})), gives(oslo())]);
    let model = ScriptedModel::new([Turn::tool(
        "transfer_to_agent",
        json!({ "agent_name": "meteorologist" }),
    )]);
    let boss = Agent::builder(model)
        .sub_agent(agent("meteorologist", &meteorologist))
        .build()
        .unwrap();
    let request = ask().with_answer_format(by_tool());
    assert_eq!(
        boss.run_typed::<Weather>(request).await.unwrap().value,
        Some(oslo())
    );
}

#[tokio::test]
async fn an_agent_used_as_a_tool_answers_as_ever() {
    let inner = ScriptedModel::new([Turn::from_text("It is warm.")]);
    let model = ScriptedModel::new([
        Turn::tool("inner", json!({ "request": "Warm?" })),
        says(oslo()),
    ]);
    let outer = Agent::builder(model)
        .tool(agent("inner", &inner).into_tool("Knows."))
        .build()
        .unwrap();
    assert_eq!(
        outer.run_typed::<Weather>(ask()).await.unwrap().value,
        Some(oslo())
    );
    assert_eq!(inner.requests()[0].settings().response_format, None);
}

#[tokio::test]
async fn answers_of_callbacks_are_read_too() {
    let given = serde_json::to_string(&oslo()).unwrap();
    let model = ScriptedModel::new([Turn::from_text("no")]);
    let before = Agent::builder(model.clone())
        .on_agent(before_agent({
            let given = given.clone();
            move |_| Action::Respond(AgentResponse::new([Message::assistant(given.clone())]))
        }))
        .build()
        .unwrap();
    assert_eq!(
        before.run_typed::<Weather>(ask()).await.unwrap().value,
        Some(oslo())
    );
    assert!(model.requests().is_empty());

    // A callback around the model sees the text, also of the call of the tool, and may replace it.
    let model = ScriptedModel::new([gives(json!({}))]);
    let after = Agent::builder(model)
        .on_model(after_model(move |_, response| {
            assert_eq!(response.text(), "{}");
            Action::Respond(ModelResponse::from_text(given.clone()))
        }))
        .build()
        .unwrap();
    let request = ask().with_answer_format(by_tool());
    assert_eq!(
        after.run_typed::<Weather>(request).await.unwrap().value,
        Some(oslo())
    );

    // The model is not asked again for what a callback broke after the loop.
    let model = ScriptedModel::new([says(oslo())]);
    let breaks = Agent::builder(model.clone())
        .on_agent(after_agent(|_, response| {
            Action::Respond(response.clone().with_message(Message::assistant("hidden")))
        }))
        .build()
        .unwrap();
    let error = breaks.run_typed::<Weather>(ask()).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::InvalidAnswer);
    assert!(error.checkpoint().is_some());
    assert_eq!(model.requests().len(), 1);
}

#[tokio::test]
async fn guards_around_the_model_read_the_answer_of_the_tool_as_text() {
    let secret = Weather {
        city: "jo@example.com".into(),
        celsius: 21.0,
    };
    let hidden = Weather {
        city: "[email]".into(),
        celsius: 21.0,
    };
    for streamed in test_support::runs::WAYS {
        // The guardrail sees what no other callback has changed.
        let seen = Arc::<Mutex<Vec<String>>>::default();
        let read = after_model({
            let seen = seen.clone();
            move |_, response| seen.lock().unwrap().push(response.text())
        });
        let agent = Agent::builder(ScriptedModel::new([gives(&secret)]))
            .global_callbacks(Redact::new([Detector::email()]).unwrap())
            .on_model(read)
            .build()
            .unwrap();
        let request = ask().with_answer_format(by_tool());
        let answer = if streamed {
            let mut run = agent.stream_typed::<Weather>(request);
            let events: Vec<_> = run.by_ref().collect().await;
            let answer = run.response().await.unwrap();
            assert_eq!(
                shown(&events),
                [serde_json::to_value(&hidden).unwrap().to_string()]
            );
            test_support::runs::check(&events, Ok(answer.response.clone())).unwrap();
            answer
        } else {
            agent.run_typed::<Weather>(request).await.unwrap()
        };
        assert_eq!(answer.value.as_ref(), Some(&hidden));
        assert_eq!(
            *seen.lock().unwrap(),
            [serde_json::to_value(&hidden).unwrap().to_string()]
        );
    }
}

#[tokio::test]
async fn a_guardrail_refuses_an_answer_that_a_tool_gives() {
    let forbids = Guardrail::after(async |_: ModelRequest, response: ModelResponse| {
        if response.text().contains("Oslo") {
            Verdict::trip("no places")
        } else {
            Verdict::Pass
        }
    });
    let agent = Agent::builder(ScriptedModel::new([gives(oslo())]))
        .model_layer(forbids)
        .build()
        .unwrap();
    let request = ask().with_answer_format(by_tool());
    let error = agent.run_typed::<Weather>(request).await.unwrap_err();
    assert!(error.downcast_ref::<Tripped>().is_some(), "{error}");
}

#[tokio::test]
async fn a_run_that_ends_early_has_no_value() {
    let model = ScriptedModel::always(Turn::tool("look", json!({})));
    let agent = Agent::builder(model)
        .tool(look())
        .stop_when(|_| true)
        .build()
        .unwrap();
    let ended = agent.run_typed::<Weather>(ask()).await.unwrap();
    assert_eq!(ended.value, None);
    assert_eq!(ended.response.end_reason(), &EndReason::StopCondition);
    assert_eq!(
        ended.into_value().unwrap_err().kind(),
        ErrorKind::InvalidAnswer
    );
}

#[tokio::test]
async fn the_model_reads_the_schema_of_a_tool_whose_arguments_do_not_match() {
    let add = Tool::function("add", "Adds.", |Weather { celsius, .. }| celsius);
    let schema = add.declaration().parameters().to_string();
    let model = ScriptedModel::new([
        Turn::tool("add", json!({ "city": "Oslo" })),
        Turn::from_text("done"),
    ]);
    let agent = Agent::builder(model.clone()).tool(add).build().unwrap();
    agent.run("Add!").await.unwrap();
    let messages = model.requests()[1].messages().clone();
    let result = messages
        .last()
        .unwrap()
        .tool_results()
        .next()
        .unwrap()
        .text();
    assert!(
        result.starts_with("invalid arguments: field `celsius`: is missing"),
        "{result}"
    );
    assert!(
        result.ends_with(&format!("must match this schema: {schema}")),
        "{result}"
    );
}

#[tokio::test]
async fn an_answer_in_a_code_block_is_read() {
    let json = r#"{ "city": "O```slo", "celsius": 21 }"#;
    for text in [
        format!("```json\n{json}\n```"),
        format!("```\n{json}\n```\n"),
        format!("It is warm:\n\n```json\n{json}\n```\nEnjoy!"),
    ] {
        let model = ScriptedModel::new([Turn::from_text(&text)]);
        let answer = build(&model).run_typed::<Weather>(ask()).await.unwrap();
        assert_eq!(answer.value.unwrap().city, "O```slo", "{text}");
    }
    for text in [
        "```json\n{}\n```\n```json\n{}\n```",
        "```",
        "``````",
        "```json",
    ] {
        let model = ScriptedModel::new([Turn::from_text(text), says(oslo())]);
        let answer = build(&model).run_typed::<Weather>(ask()).await.unwrap();
        assert_eq!(answer.value, Some(oslo()), "{text}");
        assert!(last_text(&model, 1).contains("not JSON alone"));
    }
}

#[tokio::test]
async fn the_error_of_a_wrong_answer_says_how_the_model_was_asked() {
    let described = |reason: &str| {
        let mut metadata = Metadata::default();
        metadata.described_schema = Some(reason.to_owned());
        Turn::response(ModelResponse::from_text("no").with_metadata(metadata))
    };
    for (turn, mode, chosen) in [
        (
            says("no"),
            AnswerMode::Auto,
            "the schema was sent as the response format",
        ),
        (
            described("it is recursive"),
            AnswerMode::Auto,
            "the schema stood in the instructions, since it is recursive",
        ),
        (
            gives("no"),
            AnswerMode::Tool,
            "the schema was that of the tool `final_answer`",
        ),
    ] {
        let model = ScriptedModel::new([turn]);
        let format = AnswerFormat::of::<Weather>().mode(mode).max_repairs(0);
        let request = ask().with_answer_format(format);
        let error = build(&model)
            .run_typed::<Weather>(request)
            .await
            .unwrap_err();
        assert!(error.message().ends_with(&format!("; {chosen}")), "{error}");
        assert!(error.downcast_ref::<InvalidAnswer>().is_some());
    }
}

/// A model that gives its answer twice in one response: the stream, the text and the value are of
/// the first.
#[tokio::test]
async fn of_two_answers_in_one_response_the_first_counts_everywhere() {
    let second = json!({ "city": "Bergen", "celsius": 4 });
    let first = serde_json::to_value(oslo()).unwrap().to_string();
    for beside_another in [false, true] {
        for is_streamed in [false, true] {
            let mut turn = gives(oslo()).and_tool("final_answer", second.clone());
            if beside_another {
                turn = turn.and_tool("look", json!({}));
            }
            let model = ScriptedModel::new([turn, gives(oslo())]);
            let agent = build(&model);
            let request = ask().with_answer_format(by_tool());
            let mut texts = Vec::new();
            let response = if is_streamed {
                let mut run = agent.stream(request);
                let events: Vec<_> = run.by_ref().collect().await;
                texts = shown(&events);
                let response = run.response().await.unwrap();
                test_support::runs::check(&events, Ok(response.clone())).unwrap();
                response
            } else {
                agent.run(request).await.unwrap()
            };
            assert_eq!(response.text(), first);
            assert_eq!(response.parse::<Weather>().unwrap(), oslo());
            assert!(
                !texts.iter().any(|text| text.contains("Bergen")),
                "{texts:?}"
            );
            let kept: Vec<_> = response.new_messages().map(Message::text).collect();
            assert_eq!(kept[0], first, "beside another: {beside_another}");
        }
    }
}

/// Where the tool of the answer is the only way to end, it is forced in each step.
#[tokio::test]
async fn a_named_tool_is_forced_once_and_then_the_answer() {
    let model = ScriptedModel::new([Turn::tool("look", json!({})), gives(oslo())]);
    let mut request = ask().with_answer_format(by_tool());
    request.settings_mut().tool_choice = Some(ToolChoice::Tool("look".into()));
    build(&model).run(request).await.unwrap();
    let choices: Vec<_> = model
        .requests()
        .iter()
        .map(|request| request.settings().tool_choice.clone())
        .collect();
    assert_eq!(
        choices,
        [
            Some(ToolChoice::Tool("look".into())),
            Some(ToolChoice::Required)
        ]
    );
}
