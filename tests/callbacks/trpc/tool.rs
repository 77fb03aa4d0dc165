//! Callbacks around tool calls.

use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::{Value, json};
use tower_agent::callback::{after_tool, before_tool, on_tool_error};
use tower_agent::message::ToolCall;
use tower_agent::{
    Action, Effect, Error, Message, ModelResponse, Part, Recovery, Request, Role, Tool,
    ToolRequest, ToolResponse,
};
use tower_agent_test::{ScriptedModel, Turn};

use super::{act, acts_once, agent, failing_act, texts, told};
use test_support::log::Log;

#[tokio::test]
async fn arguments_are_enriched_for_the_tool_and_for_all_that_comes_after_it() {
    let model = acts_once();
    let seen = Log::default();
    let agent = agent(model.clone())
        .tool(act())
        .on_tool(before_tool(|request| {
            let original = request.arguments().clone();
            *request.arguments_mut() = json!({ "original": original, "ts": 7 });
        }))
        .on_tool(before_tool({
            let seen = seen.clone();
            move |request| seen.push(request.arguments().clone())
        }))
        .on_tool(after_tool({
            let seen = seen.clone();
            move |request, _| seen.push(request.arguments().clone())
        }))
        .tool_result_messages({
            let seen = seen.clone();
            move |answer| {
                seen.push(answer.arguments.value().clone());
                None
            }
        })
        .build()
        .unwrap();

    let response = agent.run("?").await.unwrap();

    let enriched = json!({ "original": { "n": 1 }, "ts": 7 });
    assert_eq!(seen.take(), vec![enriched.clone(); 3]);
    assert_eq!(
        texts(&told(&response)),
        [enriched.to_string()],
        "what the tool was given"
    );
    let transcript = model.requests()[1].messages().clone();
    let asked = transcript[1].tool_calls().next().unwrap();
    assert_eq!(
        asked.arguments,
        json!({ "n": 1 }),
        "what the model asked for"
    );
}

#[tokio::test]
async fn arguments_changed_by_one_callback_are_not_lost_by_those_after_it() {
    let agent = agent(acts_once())
        .tool(act())
        .on_tool(before_tool(|request| {
            *request.arguments_mut() = json!("changed")
        }))
        .on_tool(before_tool(|_| ()))
        .on_tool(before_tool(|request| {
            drop(request.extensions_mut().insert(1_u8))
        }))
        .build()
        .unwrap();

    assert_eq!(texts(&told(&agent.run("?").await.unwrap())), ["changed"]);
}

#[tokio::test]
async fn a_result_of_text_is_post_processed() {
    let model = ScriptedModel::new([
        Turn::tool("act", json!("sunny")).and_tool("act", json!(21)),
        Turn::from_text("done"),
    ]);
    let agent = agent(model)
        .tool(act())
        .on_tool(after_tool(|_, response| match response.value().as_str() {
            Some(text) => Action::Respond(ToolResponse::new(format!("{text}\n-- checked"))),
            None => Action::Continue,
        }))
        .build()
        .unwrap();

    assert_eq!(
        texts(&told(&agent.run("?").await.unwrap())),
        ["sunny\n-- checked", "21"]
    );
}

#[tokio::test]
async fn the_id_of_the_call_is_in_the_request_and_in_the_context() {
    let model = ScriptedModel::new([
        Turn::tool("act", json!(1)).and_tool("act", json!(2)),
        Turn::from_text("done"),
    ]);
    let seen = Log::default();
    let note = |phase: &'static str| {
        let seen = seen.clone();
        move |request: &ToolRequest| {
            let of_context = request.context().tool_call_id().map(str::to_owned);
            assert_eq!(of_context.as_deref(), Some(request.id()));
            seen.push((phase, request.id().to_owned()));
        }
    };
    let (before, after) = (note("before"), note("after"));
    let of_tool = seen.clone();
    let agent = agent(model)
        .tool_concurrency(1)
        .tool(Tool::function_with(
            "act",
            "",
            move |_: Value, request: ToolRequest| {
                let id = request.context().tool_call_id().unwrap().to_owned();
                of_tool.push(("tool", id));
            },
        ))
        .on_tool(before_tool(move |request| before(request)))
        .on_tool(after_tool(move |request, _| after(request)))
        .tool_result_messages({
            let seen = seen.clone();
            move |answer| {
                seen.push(("shown", answer.call.id.to_string()));
                None
            }
        })
        .build()
        .unwrap();

    agent.run("?").await.unwrap();

    let of = |id: &'static str| {
        ["before", "tool", "after", "shown"].map(move |phase| (phase, id.to_owned()))
    };
    assert_eq!(seen.take(), [of("call_1"), of("call_2")].concat());
}

#[tokio::test]
async fn a_call_that_the_model_gave_no_id_has_one_of_its_own() {
    let nameless = |n: i32| Part::from(ToolCall::new("", "act", json!(n)));
    let answer = ModelResponse::new(Message::new(Role::Assistant, [nameless(1), nameless(2)]));
    let answers = std::sync::Mutex::new(vec![ModelResponse::from_text("done"), answer]);
    let model = tower::service_fn(move |_| {
        let answer = answers.lock().unwrap().pop().unwrap();
        async move { Ok::<_, Error>(answer) }
    });
    let seen = Log::default();
    // A `service_fn` is cloned only where its closure is.
    let agent = agent(tower::buffer::Buffer::new(model, 1))
        .tool(act())
        .on_tool(before_tool({
            let seen = seen.clone();
            move |request| seen.push(request.id().to_owned())
        }))
        .build()
        .unwrap();

    let response = agent.run("?").await.unwrap();

    let ids = seen.take();
    assert!(
        !ids[0].is_empty() && !ids[1].is_empty() && ids[0] != ids[1],
        "{ids:?}"
    );
    let answered: Vec<_> = told(&response)
        .iter()
        .map(|result| result.call_id.to_string())
        .collect();
    assert_eq!(answered, ids);
}

#[derive(Deserialize, JsonSchema)]
struct City {
    /// Where.
    #[allow(dead_code, reason = "only its schema is looked at")]
    city: String,
}

#[tokio::test]
async fn callbacks_see_the_declaration_that_the_model_received() {
    let model = ScriptedModel::new([
        Turn::tool("weather", json!({ "city": "Oslo" })),
        Turn::from_text("done"),
    ]);
    let seen = Log::default();
    let note = {
        let seen = seen.clone();
        move |request: &ToolRequest| {
            let tool = request.declaration().unwrap();
            let parameter = tool.parameters()["properties"]["city"]["description"].clone();
            let description = tool.description().to_owned();
            seen.push((
                tool.name().to_owned(),
                description,
                parameter,
                tool.effect(),
            ));
        }
    };
    let again = note.clone();
    let weather = Tool::function("weather", "Tells the weather.", |_: City| "rain");
    let agent = agent(model)
        .tool(weather.effect(Effect::Pure))
        .on_tool(before_tool(move |request| note(request)))
        .on_tool(after_tool(move |request, _| again(request)))
        .build()
        .unwrap();

    agent.run("?").await.unwrap();

    let (name, description) = ("weather".to_owned(), "Tells the weather.".to_owned());
    let expected = (name, description, json!("Where."), Effect::Pure);
    assert_eq!(seen.take(), [expected.clone(), expected]);
}

#[tokio::test]
async fn callbacks_see_a_tools_error_and_the_model_reads_it() {
    let seen = Log::default();
    let agent = agent(acts_once())
        .tool(failing_act())
        .on_tool(after_tool({
            let seen = seen.clone();
            move |_, _| seen.push("after".to_owned())
        }))
        .on_tool(on_tool_error({
            let seen = seen.clone();
            move |_, error| seen.push(error.message().to_owned())
        }))
        .build()
        .unwrap();

    let response = agent.run("?").await.unwrap();

    assert_eq!(response.text(), "done");
    assert_eq!(seen.take(), ["disk full"]);
    assert_eq!(texts(&told(&response)), ["tool failed: disk full"]);
    assert!(told(&response)[0].is_error);
}

#[tokio::test]
async fn a_result_in_the_place_of_an_error_clears_it() {
    let agent = agent(acts_once())
        .tool(failing_act())
        .on_tool(on_tool_error(|_, _| {
            Recovery::Fallback(ToolResponse::new("from the archive"))
        }))
        .build()
        .unwrap();

    let results = told(&agent.run("?").await.unwrap());

    assert_eq!(texts(&results), ["from the archive"]);
    assert_eq!(
        (&*results[0].call_id, results[0].is_error),
        ("call_1", false)
    );
}

#[tokio::test]
async fn the_model_reads_an_error_of_a_tool_callback_and_the_run_continues() {
    for before in [true, false] {
        let fails = move |here: bool| {
            if here {
                Err(Error::from("not today"))
            } else {
                Ok(())
            }
        };
        let agent = agent(acts_once())
            .tool(act())
            .on_tool(before_tool(move |_| fails(before)))
            .on_tool(after_tool(move |_, _| fails(!before)))
            .build()
            .unwrap();

        let response = agent.run("?").await.unwrap();

        assert_eq!(response.text(), "done");
        assert_eq!(
            texts(&told(&response)),
            ["callback failed: not today"],
            "before: {before}"
        );
        assert!(told(&response)[0].is_error);
    }
}

#[tokio::test]
async fn the_model_reads_the_error_of_an_unknown_tool_and_no_callback_sees_it() {
    let seen = Log::default();
    let note = |what: &'static str| {
        let seen = seen.clone();
        move || seen.push(what)
    };
    let (before, after, failed, shown) = (
        note("before"),
        note("after"),
        note("on_error"),
        note("shown"),
    );
    let model = ScriptedModel::new([Turn::tool("fly", json!(null)), Turn::from_text("done")]);
    let agent = agent(model)
        .tool(act())
        .on_tool(before_tool(move |_| before()))
        .on_tool(after_tool(move |_, _| after()))
        .on_tool(on_tool_error(move |_, _| failed()))
        .tool_result_messages(move |_| {
            shown();
            None
        })
        .build()
        .unwrap();

    let response = agent.run("?").await.unwrap();

    assert_eq!(response.text(), "done");
    let results = told(&response);
    assert!(results[0].is_error && results[0].text().contains("`fly` is not registered"));
    assert!(seen.take().is_empty());
}

#[derive(Debug, PartialEq)]
struct Mine(u64);

#[tokio::test]
async fn after_tool_finds_what_before_tool_stored_for_the_same_call() {
    let model = ScriptedModel::new([
        Turn::tool("act", json!(1)).and_tool("act", json!(2)),
        Turn::from_text("done"),
    ]);
    let seen = Log::default();
    let agent = agent(model)
        .tool(act())
        .on_tool(before_tool(|request| {
            let n = request.arguments().as_u64().unwrap();
            request.extensions_mut().insert(Mine(n));
        }))
        .on_tool(after_tool({
            let seen = seen.clone();
            move |request, response| {
                let mine = request.extensions().get::<Mine>().map(|mine| mine.0);
                seen.push((mine, response.value().as_u64()));
            }
        }))
        .build()
        .unwrap();

    agent.run("?").await.unwrap();

    assert_eq!(seen.take(), [(Some(1), Some(1)), (Some(2), Some(2))]);
}

#[tokio::test]
async fn a_result_may_end_the_run_without_asking_the_model_about_it() {
    let model = ScriptedModel::new([Turn::tool("act", json!("the report"))]);
    let agent = agent(model.clone())
        .tool(act())
        .stop_when(|turn| turn.has_called("act"))
        .build()
        .unwrap();

    let response = agent.run("?").await.unwrap();

    model.assert_done();
    assert_eq!(texts(&told(&response)), ["the report"]);
    assert_eq!(
        response.end_reason(),
        &tower_agent::EndReason::StopCondition
    );
}
