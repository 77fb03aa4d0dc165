//! `router`

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use futures::StreamExt;
use futures::future::join_all;
use serde_json::json;
use tower_agent::context::ConversationId;
use tower_agent::message::ToolCall;
use tower_agent::{
    Agent, AgentRequest, AgentResponse, Error, ErrorKind, Message, ModelRequest, ModelResponse,
    Part, Request, Resolution, Role, Tool,
};
use tower_agent_middleware::approval::{Approval, Decision};
use tower_agent_middleware::fallback::Fallback;
use tower_agent_middleware::retry::CallRetryLayer;
use tower_agent_middleware::router::{Router, UnknownRoute};
use tower_agent_test::{ScriptedModel, Turn};

use super::saved;
use super::watch::busy;
use test_support::call;

fn says(text: &str) -> ScriptedModel {
    ScriptedModel::always(Turn::from_text(text))
}

fn results(request: &ModelRequest) -> usize {
    let messages = request.messages().iter();
    messages.flat_map(Message::tool_results).count()
}

/// A model that calls a tool twice, and then says who it is.
fn works(text: &'static str) -> ScriptedModel {
    ScriptedModel::always(Turn::function(move |request| {
        let done = results(request);
        if done == 2 {
            return Ok(ModelResponse::from_text(text));
        }
        let call = ToolCall::new(format!("{text}_{done}"), "look", json!(null));
        Ok(ModelResponse::new(Message::new(
            Role::Assistant,
            [Part::from(call)],
        )))
    }))
}

/// Returns the ids of the tool calls, which say who has made them.
fn calls(response: &AgentResponse) -> Vec<String> {
    let calls = response.messages().iter().flat_map(Message::tool_calls);
    calls.map(|call| call.id.to_string()).collect()
}

fn look() -> Tool {
    Tool::function("look", "Looks.", |_: ()| "something")
}

/// A conversation with results goes to the large model.
fn by_results(request: &ModelRequest) -> Result<&'static str, Error> {
    Ok(if results(request) > 0 {
        "large"
    } else {
        "small"
    })
}

fn router(small: &ScriptedModel, large: &ScriptedModel) -> Router {
    Router::new(by_results)
        .route("small", small.clone())
        .route("large", large.clone())
}

#[tokio::test]
async fn the_route_of_a_run_is_chosen_once_and_not_changed_after_a_tool_has_run() {
    for streamed in [false, true] {
        let [small, large] = [works("small"), works("large")];
        let agent = Agent::builder(router(&small, &large))
            .tool(look())
            .build()
            .unwrap();
        let response = if streamed {
            let mut stream = agent.stream("?");
            let _: Vec<_> = stream.by_ref().collect().await;
            stream.response().await.unwrap()
        } else {
            agent.run("?").await.unwrap()
        };
        assert_eq!(response.text(), "small");
        assert_eq!(calls(&response), ["small_0", "small_1"]);
    }
}

#[tokio::test]
async fn the_next_run_of_a_conversation_is_routed_anew() {
    let [small, large] = [works("small"), says("large")];
    let agent = Agent::builder(router(&small, &large))
        .tool(look())
        .build()
        .unwrap();
    let first = agent.run("?").await.unwrap();
    assert_eq!(first.text(), "small");
    let next = AgentRequest::resume(saved(&first)).with_message("And now?");
    assert_eq!(agent.run(next).await.unwrap().text(), "large");
}

#[tokio::test]
async fn a_run_that_waits_for_an_approval_keeps_its_route_in_another_process() {
    let build = || {
        let [small, large] = [works("small"), works("large")];
        Agent::builder(router(&small, &large))
            .tool(look())
            .on_tool(Approval::of_tools(["look"]))
            .build()
            .unwrap()
    };
    let mut response = build().run("?").await.unwrap();
    for _ in 0..2 {
        let answers: Vec<_> = response
            .interrupts()
            .iter()
            .map(|pending| Resolution::resolved(&pending.id, Decision::Approve))
            .collect();
        assert_eq!(answers.len(), 1);
        let request = AgentRequest::resume(saved(&response)).with_resolutions(answers);
        response = build().run(request).await.unwrap();
    }
    assert_eq!(response.text(), "small");
    assert_eq!(calls(&response), ["small_0", "small_1"]);
}

#[tokio::test]
async fn runs_at_the_same_time_do_not_share_a_choice() {
    struct Plan(&'static str);
    let router = Router::new(|request: &ModelRequest| Ok(request.context().extension::<Plan>()?.0))
        .route("small", works("small"))
        .route("large", works("large"));
    let agent = Agent::builder(router).tool(look()).build().unwrap();
    let runs = (0..20).map(|number| {
        let plan = ["small", "large"][number % 2];
        let run = agent.run(AgentRequest::new("?").with_extension(Plan(plan)));
        async move { (plan, run.await.unwrap().text()) }
    });
    for (plan, text) in join_all(runs).await {
        assert_eq!(text, plan);
    }
}

#[tokio::test]
async fn a_sub_agent_has_a_route_of_its_own_and_so_has_a_router_in_a_route() {
    let asks = ScriptedModel::new([
        Turn::tool("helper", json!({ "request": "?" })),
        Turn::from_text("asked"),
    ]);
    let helper = |model: Router| {
        let agent = Agent::builder(model).name("helper").build().unwrap();
        agent.into_tool("Helps.")
    };
    let by_agent = |request: &ModelRequest| {
        Ok(if request.context().agent() == "helper" {
            "inner"
        } else {
            "outer"
        })
    };
    let nested = Router::new(|_: &ModelRequest| Ok("deep")).route("deep", says("helped"));
    let router = Router::new(by_agent)
        .route("outer", asks)
        .route("inner", nested);
    let agent = Agent::builder(router.clone())
        .tool(helper(router))
        .build()
        .unwrap();
    let response = agent.run("?").await.unwrap();
    assert_eq!(response.text(), "asked");
    assert_eq!(super::results(&response), ["helped"]);
}

#[tokio::test]
async fn a_route_that_there_is_not_is_a_typed_error_of_the_call() {
    let router = Router::new(|_: &ModelRequest| Ok("huge"))
        .route("small", says("small"))
        .route("large", says("large"));
    let error = call(router, ModelRequest::default()).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::InvalidRequest);
    assert!(!error.is_retryable());
    let unknown = error.downcast_ref::<UnknownRoute>().unwrap();
    assert_eq!(&*unknown.route, "huge");
    assert_eq!(unknown.known.len(), 2);
    assert_eq!(
        error.message(),
        r#"not called: the router has no route `huge`; it has ["small", "large"]"#
    );

    let failing = Router::new(|_: &ModelRequest| Err::<&str, _>(busy()));
    let error = call(failing, ModelRequest::default()).await.unwrap_err();
    assert_eq!(error.message(), "busy");
}

#[tokio::test]
async fn a_choice_that_a_later_version_of_the_program_does_not_have_is_made_again() {
    let asks = || ScriptedModel::always(Turn::tool("look", json!(null)));
    let build = |router: Router| {
        let agent = Agent::builder(router).tool(look());
        agent.on_tool(Approval::of_tools(["look"])).build().unwrap()
    };
    let before = Router::new(|_: &ModelRequest| Ok("old")).route("old", asks());
    let response = build(before).run("?").await.unwrap();
    let answer = Resolution::resolved(&response.interrupts()[0].id, Decision::Approve);
    let after = Router::new(|_: &ModelRequest| Ok("new")).route("new", says("new"));
    let request = AgentRequest::resume(saved(&response)).with_resolutions([answer]);
    assert_eq!(build(after).run(request).await.unwrap().text(), "new");
}

#[tokio::test(start_paused = true)]
async fn retries_stay_on_the_route_and_a_fallback_is_part_of_it() {
    let chosen = Arc::new(AtomicUsize::new(0));
    let count = chosen.clone();
    let small = ScriptedModel::new([
        Turn::error(busy()),
        Turn::error(busy()),
        Turn::from_text("small"),
    ]);
    let down = ScriptedModel::always(Turn::error(busy()));
    let choose = move |request: &ModelRequest| {
        count.fetch_add(1, Ordering::SeqCst);
        let id = request.context().extension::<ConversationId>()?;
        Ok(if id.as_str() == "a" { "small" } else { "safe" })
    };
    let router = Router::new(choose)
        .route("small", small)
        .route("safe", Fallback::new(down).or(says("safe")));
    let agent = Agent::builder(router)
        .model_layer(CallRetryLayer::new())
        .build()
        .unwrap();
    let of = |id: &'static str| AgentRequest::new("?").with_extension(ConversationId::new(id));
    assert_eq!(agent.run(of("a")).await.unwrap().text(), "small");
    assert_eq!(
        chosen.load(Ordering::SeqCst),
        1,
        "three attempts, one choice"
    );
    assert_eq!(agent.run(of("b")).await.unwrap().text(), "safe");
}
