//! A rule that is written once for every call, and how each call tells of its refusal.

use serde_json::json;
use tower::{Layer, ServiceExt, service_fn};
use tower_agent::call::CallKind;
use tower_agent::callback::{after_model, before_tool};
use tower_agent::{
    Action, Agent, AgentBuilder, Callback, Callbacks, Error, ErrorKind, Request, Result,
    RunContext, Tool,
};
use tower_agent_test::{ScriptedModel, Turn};

use test_support::call::{Call, Embed};

/// Refuses every call of one kind.
#[derive(Clone)]
struct Closed(CallKind);

impl<R: Request> Callback<R> for Closed {
    async fn before(&self, request: &mut R) -> Result<Action<R::Response>> {
        if R::CALL != self.0 {
            return Ok(Action::Continue);
        }
        Ok(Action::Respond(request.refusal("closed on Sundays")?))
    }

    fn is_guard(&self) -> bool {
        true
    }
}

fn pays() -> (ScriptedModel, AgentBuilder) {
    let model = ScriptedModel::new([Turn::tool("pay", json!({})), Turn::from_text("Done.")]);
    let pay = Tool::function("pay", "Pays.", |_: serde_json::Value| "paid");
    let agent = Agent::builder(model.clone()).tool(pay);
    (model, agent)
}

/// The result that the model has read in its last call.
fn result(model: &ScriptedModel) -> (String, bool) {
    let requests = model.requests();
    let messages = requests.last().unwrap().messages();
    let result = messages
        .iter()
        .flat_map(|message| message.tool_results())
        .next()
        .unwrap();
    (result.text(), result.is_error)
}

#[tokio::test]
async fn a_refused_tool_call_is_a_failed_result_that_the_model_reads() {
    let (model, agent) = pays();
    let agent = agent.on_tool(Closed(CallKind::Tool)).build().unwrap();
    assert_eq!(agent.run("Pay.").await.unwrap().text(), "Done.");
    assert_eq!(result(&model), ("closed on Sundays".to_owned(), true));
}

#[tokio::test]
async fn a_refused_model_call_and_a_refused_agent_answer_with_the_reason() {
    let (model, agent) = pays();
    let agent = agent.on_model(Closed(CallKind::Model)).build().unwrap();
    let answer = agent.stream("Pay.").response().await.unwrap();
    assert_eq!(answer.text(), "closed on Sundays");
    assert_eq!(model.requests().len(), 0);

    let (model, agent) = pays();
    let agent = agent.on_agent(Closed(CallKind::Agent)).build().unwrap();
    let answer = agent.run("Pay.").await.unwrap();
    assert_eq!(answer.text(), "closed on Sundays");
    assert_eq!(model.requests().len(), 0);
}

/// The response that is replaced asks for a tool.
#[tokio::test]
async fn a_refusal_in_place_of_a_response_calls_none_of_its_tools() {
    let (model, agent) = pays();
    let refuse = after_model(|request, _| request.refusal("not today").map(Action::Respond));
    let never = before_tool(|_| Err::<(), _>(Error::abort("a tool was called")));
    let agent = agent.on_model(refuse).on_tool(never).build().unwrap();
    assert_eq!(agent.run("Pay.").await.unwrap().text(), "not today");
    assert_eq!(model.requests().len(), 1);
}

#[tokio::test]
async fn a_call_without_words_for_it_fails_as_denied() {
    let rule = Callbacks::new().with(Closed(Embed::CALL));
    let call = rule.layer(service_fn(|_: Embed| async {
        Ok::<_, Error>(Embed::response("made"))
    }));
    let error = call
        .oneshot(Embed::request(RunContext::default()))
        .await
        .unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Denied);
    assert!(!error.is_retryable());
    let text = error.to_string();
    assert!(text.contains("denied: closed on Sundays"), "{text}");
    assert!(!text.contains("failed"), "{text}");
}

#[tokio::test]
async fn a_denied_tool_call_tells_the_model_why_although_other_failures_are_hidden() {
    let deny = || before_tool(|_| Err::<(), _>(Error::new(ErrorKind::Denied, "ask your manager")));
    let (model, agent) = pays();
    let agent = agent.on_tool(deny()).tool_failure_message("It is broken.");
    agent.build().unwrap().run("Pay.").await.unwrap();
    assert_eq!(
        result(&model),
        ("denied: ask your manager".to_owned(), true)
    );
}
