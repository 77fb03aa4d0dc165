//! How a model's turn ended: who is told, and which calls are not made.

use std::sync::{Arc, Mutex};

use futures::StreamExt;
use serde_json::{Value, json};
use test_support::team::agent;
use tower_agent::callback::before_tool;
use tower_agent::message::{Messages, NoAnswer, ToolCall};
use tower_agent::model::FinishReason;
use tower_agent::stream::EventKind;
use tower_agent::{
    Agent, AgentRequest, AgentResponse, Checkpoint, EndReason, Error, Message, ModelResponse, Part,
    Result, Role, Tool, ToolRequest, ToolResponse,
};
use tower_agent_middleware::approval::{Approval, Decision};
use tower_agent_test::{ScriptedModel, Turn};

/// The names and arguments of the calls that were made.
#[derive(Clone, Default)]
struct Made(Arc<Mutex<Vec<String>>>);

impl Made {
    fn tool(&self, name: &'static str) -> Tool {
        let made = self.clone();
        let service = tower::service_fn(move |request: ToolRequest| {
            let arguments = request.arguments().to_string();
            made.0.lock().unwrap().push(format!("{name} {arguments}"));
            async { Ok::<_, Error>(ToolResponse::new("done")) }
        });
        Tool::service(
            tower_agent::tool::ToolDeclaration::new(name, "Works."),
            service,
        )
    }

    fn calls(&self) -> Vec<String> {
        self.0.lock().unwrap().clone()
    }
}

/// A turn with these calls that ends for this reason.
fn calls(reason: FinishReason, calls: &[(&str, &str)]) -> Turn {
    let calls = calls.iter().zip(1..);
    let calls =
        calls.map(|((tool, text), id)| ToolCall::from_text(format!("call_{id}"), *tool, *text));
    Turn::response(ModelResponse::from_tool_calls(calls).with_finish_reason(reason))
}

fn words(text: &str, reason: FinishReason) -> Turn {
    Turn::response(ModelResponse::from_text(text).with_finish_reason(reason))
}

/// The results that are errors, as the model reads them, and the texts of the others.
fn results(messages: impl Iterator<Item = Message>) -> Vec<(bool, String)> {
    let messages: Vec<_> = messages.collect();
    let results = messages.iter().flat_map(Message::tool_results);
    results
        .map(|result| (result.is_error, result.text()))
        .collect()
}

async fn run(agent: &Agent, streamed: bool) -> Result<AgentResponse> {
    if streamed {
        agent.stream("?").response().await
    } else {
        agent.run("?").await
    }
}

const CUT: &str = "not called: your answer was cut off at its maximum length, and none of its calls \
                   was made; make the call again in a shorter answer, or do it in smaller steps";

/// No byte of the arguments is what a tool without parameters gets, and half of them is a string.
#[tokio::test]
async fn no_call_of_a_turn_that_was_cut_off_is_made() {
    let filtered = "not called: the content filter of the model's provider stopped your answer, \
                    and none of its calls was made";
    for streamed in [false, true] {
        for (reason, why) in [
            (FinishReason::Length, CUT),
            (FinishReason::ContentFilter, filtered),
        ] {
            for text in ["", "{\"pre", "{\"prefix\":\"tmp\"}"] {
                let made = Made::default();
                let asked = Made::default();
                let cut = calls(reason.clone(), &[("look", "{}"), ("purge", text)]);
                let whole = calls(FinishReason::ToolCalls, &[("purge", "")]);
                let model = ScriptedModel::new([cut, whole, Turn::from_text("Done.")]);
                let agent = Agent::builder(model.clone())
                    .tools([made.tool("look"), made.tool("purge")])
                    .on_tool(before_tool({
                        let asked = asked.clone();
                        move |request| asked.0.lock().unwrap().push(request.name().to_owned())
                    }))
                    .build()
                    .unwrap();

                let response = run(&agent, streamed).await.unwrap();

                assert_eq!(response.text(), "Done.");
                assert_eq!(made.calls(), ["purge {}"], "{reason} {text}");
                assert_eq!(asked.calls(), ["purge"]);
                let read = results(model.requests()[1].messages().iter().cloned());
                assert_eq!(read, [(true, why.to_owned()), (true, why.to_owned())]);
                let result = response.messages().iter().flat_map(Message::tool_results);
                assert!(result.clone().take(2).all(|result| result.is_of_run()));
            }
        }
    }
}

/// Hosts have words of their own for a turn that is whole.
#[tokio::test]
async fn a_call_of_a_turn_that_ended_otherwise_is_made() {
    for reason in [
        FinishReason::Stop,
        FinishReason::Other("eos".into()),
        FinishReason::PauseTurn,
    ] {
        let made = Made::default();
        let model = ScriptedModel::new([calls(reason, &[("look", "")]), Turn::from_text("Done.")]);
        let agent = Agent::builder(model)
            .tool(made.tool("look"))
            .build()
            .unwrap();
        assert_eq!(agent.run("?").await.unwrap().text(), "Done.");
        assert_eq!(made.calls(), ["look {}"]);
    }
}

#[tokio::test]
async fn nobody_is_asked_about_a_call_that_is_not_made() {
    for streamed in [false, true] {
        let made = Made::default();
        let cut = calls(FinishReason::Length, &[("purge", "")]);
        let model = ScriptedModel::new([cut, Turn::from_text("Done.")]);
        let agent = Agent::builder(model)
            .tool(made.tool("purge"))
            .on_tool(Approval::of_tools(["purge"]))
            .build()
            .unwrap();
        let response = run(&agent, streamed).await.unwrap();
        assert_eq!(response.end_reason(), &EndReason::Completed);
        assert!(made.calls().is_empty());
    }
}

/// Each builder makes an agent that reaches the cut call somewhere else.
#[tokio::test]
async fn it_is_not_made_in_whatever_agent_the_model_works() {
    type Around = fn(Agent) -> Agent;
    let around: [(&str, Around); 4] = [
        ("tool", |inner| {
            let asks = Turn::tool("worker", json!({ "request": "?" }));
            let model = ScriptedModel::new([asks, Turn::from_text("Done.")]);
            let boss = Agent::builder(model).tool(inner.into_tool("Works."));
            boss.build().unwrap()
        }),
        ("sub-agent", |inner| {
            let asks = Turn::tool("transfer_to_agent", json!({ "agent_name": "worker" }));
            let boss = Agent::builder(ScriptedModel::new([asks])).sub_agent(inner);
            boss.build().unwrap()
        }),
        ("sequential", |inner| {
            let next = agent("next", &ScriptedModel::new([Turn::from_text("Done.")]));
            Agent::sequential("team")
                .agents([inner, next])
                .build()
                .unwrap()
        }),
        ("parallel", |inner| {
            let next = agent("next", &ScriptedModel::new([Turn::from_text("Done.")]));
            Agent::parallel("team")
                .agents([inner, next])
                .build()
                .unwrap()
        }),
    ];
    for (name, around) in around {
        for streamed in [false, true] {
            let made = Made::default();
            let cut = calls(FinishReason::Length, &[("purge", "")]);
            let model = ScriptedModel::new([cut, Turn::from_text("Nothing was purged.")]);
            let worker = Agent::builder(model.clone())
                .name("worker")
                .tool(made.tool("purge"))
                .build()
                .unwrap();
            run(&around(worker), streamed).await.unwrap();
            assert!(made.calls().is_empty(), "{name}");
            let read = results(model.requests()[1].messages().iter().cloned());
            assert!(read.contains(&(true, CUT.to_owned())), "{name}: {read:?}");
        }
    }
}

#[tokio::test]
async fn it_is_not_made_by_a_run_that_goes_on_in_another_process() {
    let made = Made::default();
    let cut = calls(FinishReason::Length, &[("purge", "")]);
    let done = Turn::from_text("Done.");
    let model = ScriptedModel::new([cut, done.clone(), done]);
    let builder = Agent::builder(model.clone()).tool(made.tool("purge"));
    let agent = builder.build().unwrap();
    let whole = agent.run("?").await.unwrap();
    // As it is stored right after the answer of the model.
    let stored = serde_json::to_value(whole.messages()).unwrap();
    let stored: Messages = serde_json::from_value(json!(stored.as_array().unwrap()[..2])).unwrap();
    assert_eq!(stored.open_calls().count(), 1);

    let request = AgentRequest::resume(Checkpoint::new(stored));
    let response = agent.run(request).await.unwrap();

    assert_eq!(response.text(), "Done.");
    assert!(made.calls().is_empty());
    assert_eq!(
        results(response.new_messages().cloned()),
        [(true, CUT.to_owned())]
    );
}

#[tokio::test]
async fn a_stop_condition_does_not_take_it_for_a_call() {
    let made = Made::default();
    let cut = calls(FinishReason::Length, &[("submit", "")]);
    let look = calls(FinishReason::ToolCalls, &[("look", "")]);
    let submit = calls(FinishReason::ToolCalls, &[("submit", "{\"a\":1}")]);
    let agent = Agent::builder(ScriptedModel::new([cut, look, submit]))
        .tools([made.tool("submit"), made.tool("look")])
        .stop_when(|progress| progress.has_called("submit"))
        .build()
        .unwrap();
    let response = agent.run("?").await.unwrap();
    assert_eq!(response.end_reason(), &EndReason::StopCondition);
    assert_eq!(made.calls(), ["look {}", "submit {\"a\":1}"]);
}

#[tokio::test]
async fn the_caller_is_told() {
    for reason in [
        FinishReason::Length,
        FinishReason::ContentFilter,
        FinishReason::Refusal,
        FinishReason::Other("eos".into()),
        FinishReason::Stop,
    ] {
        let look = calls(FinishReason::ToolCalls, &[("look", "")]);
        let turns = [look, words("The dose is 5", reason.clone())];
        let builder = Agent::builder(ScriptedModel::new([turns.clone(), turns].concat()));
        let agent = builder.tool(Made::default().tool("look")).build().unwrap();

        let response = agent.run("?").await.unwrap();
        assert_eq!(response.finish_reason(), &reason);
        assert_eq!(response.text(), "The dose is 5");
        // Kept with the conversation, which can be stored.
        let stored = serde_json::to_string(response.messages()).unwrap();
        let stored: Vec<Message> = serde_json::from_str(&stored).unwrap();
        let ends = stored
            .iter()
            .map(|message| message.finish_reason().to_string());
        let expected = ["stop", "tool_calls", "stop", &reason.to_string()];
        assert_eq!(ends.collect::<Vec<_>>(), expected);

        let mut stream = agent.stream("?");
        let mut ends = Vec::new();
        while let Some(event) = stream.next().await {
            if let EventKind::StepFinished { finish_reason, .. } = event.kind {
                ends.push(finish_reason);
            }
        }
        assert_eq!(ends, [Some(FinishReason::ToolCalls), Some(reason.clone())]);
        assert_eq!(stream.response().await.unwrap().finish_reason(), &reason);
    }
}

#[tokio::test]
async fn a_step_without_an_answer_has_no_finish_reason() {
    let broken = Error::new(tower_agent::ErrorKind::Provider, "broken");
    let model = ScriptedModel::new([Turn::error(broken)]);
    let events: Vec<_> = agent("worker", &model).stream("?").collect().await;
    let mut steps = events.iter().filter_map(|event| match &event.kind {
        EventKind::StepFinished { finish_reason, .. } => Some(finish_reason.clone()),
        _ => None,
    });
    assert_eq!(steps.next(), Some(None));
    assert_eq!(steps.next(), None);
}

#[tokio::test]
async fn the_model_that_has_an_agent_as_a_tool_is_told() {
    for (turn, read) in [
        (
            words("The dose is 5", FinishReason::Length),
            "The dose is 5\n\n(the answer was cut off at its maximum length)",
        ),
        (
            words("The dose", FinishReason::ContentFilter),
            "The dose\n\n(the provider's content filter stopped the answer)",
        ),
        (
            words("I cannot.", FinishReason::Refusal),
            "I cannot.\n\n(the model refused to answer)",
        ),
        (Turn::from_text("5 mg"), "5 mg"),
    ] {
        let inner = agent("dose", &ScriptedModel::new([turn]));
        let asks = Turn::tool("dose", json!({ "request": "?" }));
        let model = ScriptedModel::new([asks, Turn::from_text("Give 5.")]);
        let outer = Agent::builder(model.clone()).tool(inner.into_tool("Knows doses."));
        outer.build().unwrap().run("?").await.unwrap();
        assert_eq!(
            results(model.requests()[1].messages().iter().cloned()),
            [(false, read.to_owned())]
        );
    }
}

/// The inner agent has answered, and its caller waits for something else in the same turn.
#[tokio::test]
async fn it_is_told_after_a_pause_as_well() {
    let inner = agent(
        "dose",
        &ScriptedModel::new([words("The dose is 5", FinishReason::Length)]),
    );
    let asks = calls(
        FinishReason::ToolCalls,
        &[("dose", "{\"request\":\"?\"}"), ("purge", "{}")],
    );
    let model = ScriptedModel::new([asks, Turn::from_text("Give 5.")]);
    let outer = Agent::builder(model.clone())
        .tools([
            inner.into_tool("Knows doses."),
            Made::default().tool("purge"),
        ])
        .on_tool(Approval::of_tools(["purge"]))
        .build()
        .unwrap();
    let paused = outer.run("?").await.unwrap();
    let [question] = paused.interrupts() else {
        panic!("{:?}", paused.end_reason());
    };
    let checkpoint = serde_json::to_string(&paused.checkpoint()).unwrap();
    let checkpoint: Checkpoint = serde_json::from_str(&checkpoint).unwrap();
    let answer = tower_agent::Resolution::resolved(&question.id, Decision::Approve);
    let request = AgentRequest::resume(checkpoint).with_resolutions([answer]);
    outer.run(request).await.unwrap();
    let read = results(model.requests()[1].messages().iter().cloned());
    assert_eq!(
        read[0].1,
        "The dose is 5\n\n(the answer was cut off at its maximum length)"
    );
}

#[tokio::test]
async fn the_output_of_a_member_says_how_it_ended() {
    for streamed in [false, true] {
        let first = ScriptedModel::new([words("The dose is", FinishReason::Length)]);
        let last = ScriptedModel::new([words("I can", FinishReason::ContentFilter)]);
        let members = [agent("first", &first), agent("last", &last)];
        let team = Agent::sequential("team").agents(members).build().unwrap();
        let response = run(&team, streamed).await.unwrap();
        let ends = response
            .new_messages()
            .map(|message| message.finish_reason());
        assert_eq!(
            ends.collect::<Vec<_>>(),
            [&FinishReason::Length, &FinishReason::ContentFilter]
        );
        assert_eq!(response.finish_reason(), &FinishReason::ContentFilter);
        assert_eq!(response.no_answer(), Some(NoAnswer::Filtered));
    }
}

/// Words of a callback are whole, whatever they replace.
#[tokio::test]
async fn the_words_of_a_callback_have_no_reason_of_the_model() {
    let model = ScriptedModel::new([words("The dose is 5", FinishReason::Length)]);
    let agent = Agent::builder(model)
        .on_agent(tower_agent::callback::after_agent(|_, response| {
            let told = response
                .clone()
                .with_message(Message::assistant("Ask again."));
            tower_agent::Action::Respond(told)
        }))
        .build()
        .unwrap();
    let response = agent.run("?").await.unwrap();
    assert_eq!(response.finish_reason(), &FinishReason::Stop);
    assert_eq!(response.no_answer(), None);
}

#[test]
fn a_message_that_nobody_generated_has_the_reason_of_a_whole_one() {
    let call = ToolCall::new("call_1", "look", Value::Null);
    let asks = Message::new(Role::Assistant, [Part::from(call)]);
    assert_eq!(asks.finish_reason(), &FinishReason::ToolCalls);
    assert_eq!(Message::user("?").finish_reason(), &FinishReason::Stop);
    assert_eq!(
        serde_json::to_value(Message::assistant("5")).unwrap(),
        json!({ "role": "assistant", "parts": [{ "type": "text", "text": "5" }] })
    );
}
