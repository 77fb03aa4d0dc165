//! Last responses of a model that are no answer.

use futures::StreamExt;
use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::json;
use test_support::team::agent;
use tower_agent::agent::{AnswerFormat, AnswerMode, AtNoAnswer, InvalidAnswer};
use tower_agent::callback::{after_model, before_model};
use tower_agent::compat::Semantics;
use tower_agent::message::{MediaSource, NoAnswer, ToolCall};
use tower_agent::model::FinishReason;
use tower_agent::stream::EventKind;
use tower_agent::{
    Action, Agent, AgentRequest, AgentResponse, Checkpoint, EndReason, ErrorKind, Message,
    ModelResponse, Part, Result, Role,
};
use tower_agent_middleware::retry::CallRetryLayer;
use tower_agent_test::{ScriptedModel, Turn};

fn ends(response: ModelResponse, reason: FinishReason) -> Turn {
    Turn::response(response.with_finish_reason(reason))
}

fn words(text: &str, reason: FinishReason) -> Turn {
    ends(ModelResponse::from_text(text), reason)
}

fn thoughts() -> ModelResponse {
    ModelResponse::new(Message::new(Role::Assistant, [Part::reasoning("Hm.")]))
}

/// Every kind of response that is no answer.
fn kinds() -> Vec<(Turn, NoAnswer)> {
    vec![
        (words("It is", FinishReason::Length), NoAnswer::CutOff),
        (
            words("It is", FinishReason::ContentFilter),
            NoAnswer::Filtered,
        ),
        (words("No.", FinishReason::Refusal), NoAnswer::Refused),
        (ends(thoughts(), FinishReason::Length), NoAnswer::CutOff),
        (words("", FinishReason::ContentFilter), NoAnswer::Filtered),
        (Turn::from_text(""), NoAnswer::Empty),
        (Turn::from_text(" \n"), NoAnswer::Empty),
        (Turn::response(thoughts()), NoAnswer::Empty),
        (
            Turn::response(ModelResponse::new(Message::new(Role::Assistant, []))),
            NoAnswer::Empty,
        ),
    ]
}

async fn run(agent: &Agent, streamed: bool) -> Result<AgentResponse> {
    if streamed {
        agent.stream("?").response().await
    } else {
        agent.run("?").await
    }
}

/// An agent that does this.
fn asked(model: &ScriptedModel, at: AtNoAnswer) -> Agent {
    let builder = Agent::builder(model.clone()).at_no_answer(at);
    builder.build().unwrap()
}

#[tokio::test]
async fn each_action_does_what_it_says() {
    for streamed in [false, true] {
        for (turn, why) in kinds() {
            let then = Turn::from_text("It is 5.");
            let told = |result: Result<AgentResponse>| match result {
                Ok(response) => {
                    assert_eq!(response.no_answer(), Some(why));
                    assert_eq!(response.end_reason(), &EndReason::NoAnswer(why));
                    true
                }
                Err(error) => {
                    assert_eq!(error.kind(), ErrorKind::InvalidAnswer);
                    assert_eq!(error.message(), format!("the model gave no answer: {why}"));
                    let invalid = error.downcast_ref::<InvalidAnswer>().unwrap();
                    assert_eq!(invalid.problem, why.to_string());
                    // Nothing is lost.
                    let kept = error.checkpoint().unwrap();
                    let last = kept.messages.last().unwrap();
                    assert_eq!(last.no_answer(), Some(why));
                    assert_eq!(last.text(), invalid.answer);
                    false
                }
            };
            let default = AtNoAnswer::default();
            for (at, is_returned) in [
                (default, true),
                (AtNoAnswer::AskAgain(0), true),
                (AtNoAnswer::Fail, false),
            ] {
                let model = ScriptedModel::new([turn.clone(), then.clone()]);
                let result = run(&asked(&model, at), streamed).await;
                assert_eq!(told(result), is_returned, "{why:?} {at:?}");
                assert_eq!(model.requests().len(), 1);
            }

            let model = ScriptedModel::new([turn.clone(), then.clone()]);
            let agent = asked(&model, AtNoAnswer::AskAgain(1));
            let response = run(&agent, streamed).await.unwrap();
            assert_eq!(response.end_reason(), &EndReason::Completed);
            assert_eq!(response.text(), "It is 5.");
            assert_eq!(response.iterations(), 2);
            let last = model.requests()[1].messages().last().cloned().unwrap();
            assert_eq!(last.role(), Role::User);
            assert!(last.text().contains(&why.to_string()), "{last:?}");

            // It asks as often as it says, and tells then.
            let model = ScriptedModel::new(std::iter::repeat_n(turn, 3));
            let agent = asked(&model, AtNoAnswer::AskAgain(2));
            assert!(told(run(&agent, streamed).await));
            assert_eq!(model.requests().len(), 3);
        }
    }
}

#[tokio::test]
async fn what_is_an_answer_is_none_of_these() {
    let image = Message::new(
        Role::Assistant,
        [Part::image(MediaSource::url("https://example.com/a.png"))],
    );
    for turn in [
        Turn::from_text("5"),
        words("5", FinishReason::Other("eos".into())),
        Turn::response(ModelResponse::new(image)),
    ] {
        let model = ScriptedModel::new([turn]);
        let response = asked(&model, AtNoAnswer::Fail).run("?").await.unwrap();
        assert_eq!(response.end_reason(), &EndReason::Completed);
        assert_eq!(response.no_answer(), None);
    }
}

/// A guard takes the answer away, or gives one of its own.
#[tokio::test]
async fn a_callback_may_say_nothing() {
    let silent = || Action::Respond(ModelResponse::from_text(""));
    let model = ScriptedModel::always(Turn::from_text("5"));
    let builder = || Agent::builder(model.clone()).at_no_answer(AtNoAnswer::Fail);
    for agent in [
        builder().on_model(after_model(move |_, _| silent())),
        builder().on_model(before_model(move |_| silent())),
    ] {
        let response = agent.build().unwrap().run("?").await.unwrap();
        assert_eq!(response.end_reason(), &EndReason::Completed);
        assert_eq!(response.text(), "");
    }
}

/// Words that a callback has only changed are still without their end.
#[tokio::test]
async fn a_callback_that_changes_the_words_keeps_how_they_ended() {
    let model = ScriptedModel::new([words("secret", FinishReason::Length)]);
    let agent = Agent::builder(model)
        .on_model(after_model(|_, response| {
            Action::Respond(response.clone().with_text("*"))
        }))
        .build()
        .unwrap();
    let response = agent.run("?").await.unwrap();
    assert_eq!(response.text(), "*");
    assert_eq!(
        response.end_reason(),
        &EndReason::NoAnswer(NoAnswer::CutOff)
    );
}

#[tokio::test]
async fn a_team_tells_of_its_members() {
    let cut = || ScriptedModel::new([words("It is", FinishReason::Length)]);
    let whole = || ScriptedModel::new([Turn::from_text("5.")]);
    let told = EndReason::NoAnswer(NoAnswer::CutOff);
    for streamed in [false, true] {
        // Each member answers for a team side by side, and the last one for a team in turn.
        for (first, last, end) in [
            (whole(), cut(), &told),
            (cut(), whole(), &told),
            (whole(), whole(), &EndReason::Completed),
        ] {
            let members = [agent("first", &first), agent("last", &last)];
            let team = Agent::parallel("team").agents(members).build().unwrap();
            let response = run(&team, streamed).await.unwrap();
            assert_eq!(response.end_reason(), end);
        }
        for (first, last, end) in [
            (whole(), cut(), &told),
            (cut(), whole(), &EndReason::Completed),
        ] {
            let members = [agent("first", &first), agent("last", &last)];
            let team = Agent::sequential("team").agents(members).build().unwrap();
            let response = run(&team, streamed).await.unwrap();
            assert_eq!(response.end_reason(), end);
        }
        let asks = Turn::tool("transfer_to_agent", json!({ "agent_name": "last" }));
        let desk = Agent::builder(ScriptedModel::new([asks]));
        let desk = desk.sub_agent(agent("last", &cut())).build().unwrap();
        let response = run(&desk, streamed).await.unwrap();
        assert_eq!(response.end_reason(), &told);
    }
}

/// The outer model reads why, whether the tool has failed or returned nothing.
#[tokio::test]
async fn the_model_whose_tool_an_agent_is_reads_that_it_says_nothing() {
    for at in [AtNoAnswer::Tell, AtNoAnswer::Fail] {
        the_tool_says_nothing(at).await;
    }
}

async fn the_tool_says_nothing(at: AtNoAnswer) {
    let inner = Agent::builder(ScriptedModel::new([Turn::from_text("")]));
    let inner = inner.name("dose").at_no_answer(at).build().unwrap();
    let asks = Turn::tool("dose", json!({ "request": "?" }));
    let model = ScriptedModel::new([asks, Turn::from_text("I do not know.")]);
    let outer = Agent::builder(model.clone()).tool(inner.into_tool("Knows doses."));
    outer.build().unwrap().run("?").await.unwrap();
    let messages = model.requests()[1].messages().clone();
    let result = messages.iter().flat_map(Message::tool_results).next();
    let result = result.unwrap();
    assert_eq!(result.is_error, at == AtNoAnswer::Fail);
    assert!(result.text().contains("the answer is empty"), "{result:?}");
}

#[tokio::test]
async fn the_conversation_goes_on_after_it_in_another_process() {
    let model = ScriptedModel::new([Turn::from_text(""), Turn::from_text("It is 5.")]);
    let agent = asked(&model, AtNoAnswer::Fail);
    let error = agent.run("?").await.unwrap_err();
    let checkpoint = serde_json::to_string(error.checkpoint().unwrap()).unwrap();
    let checkpoint: Checkpoint = serde_json::from_str(&checkpoint).unwrap();
    let request = AgentRequest::resume(checkpoint).with_message("Well?");
    assert_eq!(agent.run(request).await.unwrap().text(), "It is 5.");
}

#[tokio::test(start_paused = true)]
async fn an_attempt_at_the_agent_that_failed_with_it_is_followed_by_another_answer() {
    for streamed in [false, true] {
        let again = CallRetryLayer::new()
            .restart_streams(true)
            .retry_if(|error| error.kind() == ErrorKind::InvalidAnswer);
        let model = ScriptedModel::new([Turn::from_text(" "), Turn::from_text("It is 5.")]);
        let agent = Agent::builder(model.clone()).at_no_answer(AtNoAnswer::Fail);
        let agent = agent.agent_layer(again);
        let response = run(&agent.build().unwrap(), streamed).await.unwrap();
        assert_eq!(response.text(), "It is 5.");
        assert_eq!(response.end_reason(), &EndReason::Completed);
        assert_eq!(model.requests().len(), 2);
    }
}

/// Every field may be left out, and half of the JSON of a number is JSON.
#[derive(Debug, Deserialize, JsonSchema)]
struct Dose {
    mg: Option<u32>,
}

#[tokio::test]
async fn a_typed_answer_that_was_cut_off_is_none_even_if_it_can_be_read() {
    let whole = "{\"mg\":50}";
    let gives = |text: &str, reason| {
        let call = ToolCall::from_text("call_1", "final_answer", text);
        ends(ModelResponse::from_tool_calls([call]), reason)
    };
    for (mode, cut, then) in [
        (
            AnswerMode::Tool,
            gives("", FinishReason::Length),
            gives(whole, FinishReason::ToolCalls),
        ),
        (
            AnswerMode::Auto,
            words("{\"mg\":5}", FinishReason::ContentFilter),
            Turn::from_text(whole),
        ),
    ] {
        let format = AnswerFormat::of::<Dose>().mode(mode);
        let model = ScriptedModel::new([cut.clone(), then]);
        let agent = asked(&model, AtNoAnswer::Tell);
        let request = AgentRequest::new("?").with_answer_format(format.clone());
        let answer = agent.run_typed::<Dose>(request).await.unwrap();
        assert_eq!(answer.into_value().unwrap().mg, Some(50));
        let asked_again = model.requests()[1].messages().last().unwrap().text();
        assert!(asked_again.starts_with("The answer is not valid: the "));

        let model = ScriptedModel::always(cut);
        let agent = asked(&model, AtNoAnswer::Tell);
        let request = AgentRequest::new("?").with_answer_format(format.max_repairs(0));
        let error = agent.run_typed::<Dose>(request).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::InvalidAnswer);
        let invalid = error.downcast_ref::<InvalidAnswer>().unwrap();
        assert!(invalid.problem.starts_with("the "), "{error}");
    }
}

/// What an agent does at no answer holds for those inside it that do not say otherwise.
#[tokio::test]
async fn the_agents_inside_do_as_the_one_around_them() {
    let fails = AtNoAnswer::Fail;
    let inner = |own: Option<AtNoAnswer>| {
        let inner = Agent::builder(ScriptedModel::new([Turn::from_text("")])).name("inner");
        let inner = match own {
            Some(own) => inner.at_no_answer(own),
            None => inner,
        };
        inner.build().unwrap()
    };
    let mut semantics = Semantics::default();
    semantics.run.at_no_answer = fails;
    for (own, is_failed) in [(None, true), (Some(AtNoAnswer::Tell), false)] {
        let asks = || {
            ScriptedModel::new([Turn::tool(
                "transfer_to_agent",
                json!({ "agent_name": "inner" }),
            )])
        };
        let agents = [
            Agent::builder(asks())
                .at_no_answer(fails)
                .sub_agent(inner(own))
                .build(),
            Agent::builder(asks())
                .semantics(semantics)
                .sub_agent(inner(own))
                .build(),
            Agent::sequential("team")
                .at_no_answer(fails)
                .agent(inner(own))
                .build(),
            Agent::parallel("team")
                .at_no_answer(fails)
                .agent(inner(own))
                .build(),
        ];
        for agent in agents {
            let result = agent.unwrap().run("?").await;
            let kind = result.as_ref().map_err(|error| error.kind()).err();
            assert_eq!(
                kind,
                is_failed.then_some(ErrorKind::InvalidAnswer),
                "{own:?}"
            );
        }
        let asks = Turn::tool("inner", json!({ "request": "?" }));
        let model = ScriptedModel::new([asks, Turn::from_text("Hm.")]);
        let outer = Agent::builder(model.clone()).at_no_answer(fails);
        let outer = outer.tool(inner(own).into_tool("Knows."));
        outer.build().unwrap().run("?").await.unwrap();
        let messages = model.requests()[1].messages().clone();
        let result = messages.iter().flat_map(Message::tool_results).next();
        assert_eq!(result.unwrap().is_error, is_failed, "{own:?}");
    }
}

/// The last event says it, to whoever reads the stream alone.
#[tokio::test]
async fn the_end_of_a_stream_says_why() {
    for (turn, why) in kinds() {
        let agent = asked(&ScriptedModel::new([turn]), AtNoAnswer::Tell);
        let events: Vec<_> = agent.stream("?").collect().await;
        let EventKind::RunFinished { reason } = &events.last().unwrap().kind else {
            panic!("{events:?}");
        };
        assert_eq!(reason, &EndReason::NoAnswer(why));
    }
}
