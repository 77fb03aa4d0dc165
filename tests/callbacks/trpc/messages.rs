//! The messages that show a tool's result to the model.

use serde_json::{Value, json};
use tower_agent::agent::ToolAnswer;
use tower_agent::callback::{after_tool, before_tool, on_tool_error};
use tower_agent::message::{MediaSource, ToolResult};
use tower_agent::{
    Action, Agent, Error, ErrorKind, Message, Part, Recovery, Role, Tool, ToolResponse,
};
use tower_agent_test::ScriptedModel;

use super::{act, acts_once, agent, failing_act, texts, told};
use test_support::log::Log;

/// The messages between what the model asked and its next answer.
fn shown(model: &ScriptedModel) -> Vec<Message> {
    model.requests()[1]
        .messages()
        .iter()
        .skip(2)
        .cloned()
        .collect()
}

fn result(answer: &ToolAnswer, text: &str) -> Message {
    Message::tool(ToolResult::new(&answer.call, [Part::from_text(text)]))
}

type Messages = Option<Vec<Message>>;

async fn shows(
    show: impl Fn(ToolAnswer) -> Messages + Send + Sync + 'static,
) -> (Vec<Message>, Message) {
    let model = acts_once();
    let default = Log::default();
    let agent = agent(model.clone())
        .tool(act())
        .tool_result_messages({
            let default = default.clone();
            move |answer| {
                default.push(answer.default.clone());
                show(answer)
            }
        })
        .build()
        .unwrap();
    assert_eq!(agent.run("?").await.unwrap().text(), "done");
    (shown(&model), default.take().remove(0))
}

#[tokio::test]
async fn none_keeps_the_default_message() {
    let (messages, default) = shows(|_| None).await;
    assert_eq!((messages.len(), &messages[0]), (1, &default));
    let result = default.tool_results().next().unwrap().clone();
    assert_eq!(
        (&*result.call_id, result.text()),
        ("call_1", r#"{"n":1}"#.to_owned())
    );
}

#[tokio::test]
async fn one_message_takes_the_place_of_the_default() {
    let (messages, _) = shows(|answer| Some(vec![result(&answer, "one")])).await;
    assert_eq!(messages.len(), 1);
    let result = messages[0].tool_results().next().unwrap();
    assert_eq!(
        (&*result.call_id, &*result.name, result.text()),
        ("call_1", "act", "one".into())
    );
}

#[tokio::test]
async fn several_messages_of_several_roles_are_shown_in_their_order() {
    let (messages, _) = shows(|answer| {
        let picture = Message::new(
            Role::User,
            [
                Part::from_text("the chart"),
                Part::image(MediaSource::base64("image/png", "iVBORw0")),
            ],
        );
        Some(vec![result(&answer, "see the picture"), picture])
    })
    .await;

    let roles: Vec<_> = messages.iter().map(Message::role).collect();
    assert_eq!(roles, [Role::Tool, Role::User]);
    assert!(matches!(
        messages[1].parts(),
        [Part::Text(_), Part::Image(_)]
    ));
}

#[tokio::test]
async fn messages_that_leave_the_call_unanswered_follow_the_default() {
    for messages in [vec![], vec![Message::user("by the way")]] {
        let count = messages.len();
        let (shown, default) = shows(move |_| Some(messages.clone())).await;
        assert_eq!((&shown[0], shown.len()), (&default, count + 1));
    }
}

#[tokio::test]
async fn a_list_of_words_is_joined_into_one_message() {
    let model = acts_once();
    let agent = agent(model.clone())
        .tool(Tool::function("act", "", |_: Value| vec!["rain", "wind"]))
        .tool_result_messages(|answer: ToolAnswer| {
            let words: Vec<_> = answer.response.value().as_array()?.iter().collect();
            let words: Option<Vec<_>> = words.into_iter().map(Value::as_str).collect();
            Some(vec![result(
                &answer,
                &format!("Results: {}", words?.join(", ")),
            )])
        })
        .build()
        .unwrap();

    assert_eq!(
        texts(&told(&agent.run("?").await.unwrap())),
        ["Results: rain, wind"]
    );
}

#[tokio::test]
async fn the_function_sees_the_final_arguments_the_final_result_and_the_declaration() {
    let seen = Log::default();
    let agent = agent(acts_once())
        .tool(act())
        .on_tool(before_tool(|request| {
            request.arguments_mut()["n"] = json!(2)
        }))
        .on_tool(after_tool(|_, response| {
            Action::Respond(ToolResponse::new(json!([response.value()])))
        }))
        .tool_result_messages({
            let seen = seen.clone();
            move |answer: ToolAnswer| {
                let declared = answer
                    .declaration
                    .as_ref()
                    .map(|tool| tool.name().to_owned());
                let value = answer.response.value().clone();
                let arguments = answer.arguments.value().clone();
                seen.push((answer.call.id.to_string(), declared, arguments, value));
                async move {
                    tokio::task::yield_now().await;
                    Ok(Some(vec![result(&answer, "shown")]))
                }
            }
        })
        .build()
        .unwrap();

    let response = agent.run("?").await.unwrap();

    assert_eq!(texts(&told(&response)), ["shown"]);
    let (id, declared) = ("call_1".to_owned(), Some("act".to_owned()));
    assert_eq!(
        seen.take(),
        [(id, declared, json!({ "n": 2 }), json!([{ "n": 2 }]))]
    );
}

#[tokio::test]
async fn the_function_receives_the_final_result() {
    let given = ToolResponse::new("given");
    let (before, after, fallback) = (given.clone(), given.clone(), given);
    let seen = Log::default();
    let build = |agent: tower_agent::AgentBuilder| -> Agent {
        let seen = seen.clone();
        agent
            .tool_result_messages(move |answer: ToolAnswer| {
                seen.push(answer.response.value().clone());
                None
            })
            .build()
            .unwrap()
    };
    let agents = [
        agent(acts_once())
            .tool(act())
            .on_tool(before_tool(move |_| Action::Respond(before.clone()))),
        agent(acts_once())
            .tool(act())
            .on_tool(after_tool(move |_, _| Action::Respond(after.clone()))),
        agent(acts_once())
            .tool(failing_act())
            .on_tool(on_tool_error(move |_, _| {
                Recovery::Fallback(fallback.clone())
            })),
    ];
    for agent in agents {
        build(agent).run("?").await.unwrap();
        assert_eq!(seen.take(), [json!("given")]);
    }

    // There is no result to show of a tool that failed, or of a callback that did.
    let guarded = agent(acts_once()).tool(act());
    let guarded = guarded.on_tool(before_tool(|_| Err::<(), _>(Error::from("no"))));
    for agent in [agent(acts_once()).tool(failing_act()), guarded] {
        build(agent).run("?").await.unwrap();
        assert!(seen.take().is_empty());
    }
}

#[tokio::test]
async fn the_model_reads_its_error_and_its_panic_and_the_tool_is_not_run_again() {
    fn fails(_: ToolAnswer) -> tower_agent::Result<Messages> {
        Err(Error::from("no paper"))
    }
    fn panics(_: ToolAnswer) -> tower_agent::Result<Messages> {
        panic!("no ink")
    }
    let cases: [(fn(ToolAnswer) -> _, _); 2] = [
        (fails, "callback failed: no paper"),
        (
            panics,
            "callback failed: `tool_result_messages` panicked: no ink",
        ),
    ];
    for (show, text) in cases {
        let calls = Log::default();
        let counted = calls.clone();
        let agent = agent(acts_once())
            .tool(Tool::function("act", "", move |_: Value| counted.push(())))
            .tool_result_messages(show)
            .build()
            .unwrap();

        let response = agent.run("?").await.unwrap();

        assert_eq!(
            (response.text(), texts(&told(&response))),
            ("done".into(), vec![text.into()])
        );
        assert!(told(&response)[0].is_error);
        assert_eq!(calls.take().len(), 1);
    }
}

#[tokio::test]
async fn its_abort_ends_the_run_and_names_it() {
    let model = acts_once();
    let agent = agent(model.clone())
        .tool(act())
        .tool_result_messages(|_| Err::<Messages, _>(Error::abort("too much to show")))
        .build()
        .unwrap();

    let error = agent.run("?").await.unwrap_err();

    assert_eq!(
        (error.kind(), error.message()),
        (ErrorKind::Aborted, "too much to show")
    );
    assert_eq!(error.raised_by().unwrap().callback, "tool_result_messages");
    assert_eq!(error.call().unwrap().name.as_deref(), Some("act"));
    assert_eq!(model.requests().len(), 1);
}

#[tokio::test]
async fn the_last_function_given_is_the_one_asked() {
    let agent = agent(acts_once())
        .tool(act())
        .tool_result_messages(|answer| Some(vec![result(&answer, "first")]))
        .tool_result_messages(|answer| Some(vec![result(&answer, "second")]))
        .build()
        .unwrap();

    assert_eq!(texts(&told(&agent.run("?").await.unwrap())), ["second"]);
}
