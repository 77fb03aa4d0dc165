//! What an engineer who knows axum meets in the first hour.

use std::collections::HashMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::{Value, json};
use tower::buffer::Buffer;
use tower::limit::{ConcurrencyLimitLayer, RateLimitLayer};
use tower::{Layer, ServiceBuilder, ServiceExt};
use tower_agent::agent::{AgentService, BoxAgent};
use tower_agent::callback::{before_model, before_tool, on_tool_error, wrap_model, wrap_tool};
use tower_agent::message::{Messages, ToolCall};
use tower_agent::model::ModelService;
use tower_agent::testing::{ScriptedModel, Turn};
use tower_agent::tool::{BoxTool, ToolService};
use tower_agent::{
    Agent, AgentBuilder, AgentRequest, BoxError, Callbacks, CancellationToken, Checkpoint, Effect,
    Error, ErrorKind, Interrupt, Message, ModelRequest, Part, Resolution, Role, Tool, ToolRequest,
};
use tower_agent_middleware::approval::Approval;
use tower_agent_middleware::fallback::Fallback;
use tower_agent_middleware::retry::CallRetryLayer;
use tower_agent_middleware::timeout::CallTimeoutLayer;

const MINUTE: Duration = Duration::from_secs(60);

fn says(text: &str) -> ScriptedModel {
    ScriptedModel::always(Turn::from_text(text))
}

/// A rate limit is not `Clone`, so that it stands under a buffer; whatever the service is.
fn slow_model(model: impl ModelService) -> impl ModelService {
    Buffer::new(RateLimitLayer::new(9, MINUTE).layer(model), 8)
}

fn slow_tool(tool: impl ToolService) -> impl ToolService {
    Buffer::new(tool, 8)
}

fn slow_agent(agent: impl AgentService) -> impl AgentService {
    Buffer::new(agent, 8)
}

#[tokio::test]
async fn a_buffer_wraps_models_tools_and_agents() {
    let model = slow_model(says("hi"));
    let echo = Tool::function("echo", "Says it again.", |text: String| text);
    let tool = slow_tool(echo.clone().into_service());
    let request = ToolRequest::new(ToolCall::new("call", "echo", json!({ "value": "a" })));
    let answer = BoxTool::new(tool).oneshot(request).await.unwrap();
    assert_eq!(answer.value(), "a");
    let agent = Agent::builder(slow_model(model)).build().unwrap();
    let response = BoxAgent::new(slow_agent(agent))
        .oneshot(AgentRequest::new("?"))
        .await
        .unwrap();
    assert_eq!(response.text(), "hi");
}

#[test]
fn explain_shows_the_types_of_layers_and_models_and_the_names_of_wraps() {
    let stack = ServiceBuilder::new()
        .concurrency_limit(4)
        .layer(CallRetryLayer::new());
    let attempt = ServiceBuilder::new()
        .layer(CallRetryLayer::new())
        .timeout(MINUTE)
        .layer(before_model(|_| ()))
        .service(says("a"));
    let pass = wrap_model(|request, mut next| async move { next.run(request).await });
    let list = Callbacks::new()
        .with(before_model(|_| ()).named("brief"))
        .with(before_model(|_| ()).named("polite"));
    let tool = Tool::function("look", "Looks.", |_: ()| ())
        .layer(
            ServiceBuilder::new()
                .timeout(MINUTE)
                .concurrency_limit(1)
                .into_inner(),
        )
        .layer(wrap_tool(|request, mut next| async move { next.run(request).await }).named("timed"))
        .layer(Callbacks::new().with(before_tool(|_| ()).named("polite")));
    let agent = Agent::builder(
        Fallback::new(attempt)
            .or(says("b"))
            .or(Fallback::new(says("c"))),
    )
    .model_layer(stack.into_inner())
    .model_layer(pass.named("passes"))
    .model_layer(list)
    .model_layer((ConcurrencyLimitLayer::new(1), CallTimeoutLayer::new(MINUTE)))
    .tool(tool)
    .build()
    .unwrap();
    assert_eq!(
        agent.explain().to_string(),
        "\
agent `agent`
  loop of at most 25 model calls
    model call
      [Stack<CallRetryLayer, Stack<ConcurrencyLimitLayer, Identity>>]
        [passes]
          brief, polite
            [(ConcurrencyLimitLayer, CallTimeoutLayer<ModelRequest>)]
              Fallback
    tool calls, 8 at a time
      [Stack<ConcurrencyLimitLayer, Stack<TimeoutLayer, Identity>>]
        [timed]
          polite
            look
"
    );
}

#[test]
fn a_wrap_without_a_name_is_shown_by_its_place() {
    let pass = wrap_model(|request: ModelRequest, mut next| async move { next.run(request).await });
    let agent = Agent::builder(says("a")).model_layer(pass).build().unwrap();
    let told = agent.explain().to_string();
    assert!(
        told.contains("[wrap_model at tests/seams/first_hour.rs:"),
        "{told}"
    );
}

#[tokio::test(start_paused = true)]
async fn a_retry_that_does_not_call_a_tool_again_says_why() {
    let busy = || Err::<(), _>(Error::new(ErrorKind::Overloaded, "busy"));
    let pay = Tool::function("pay", "Pays.", move |_: ()| busy()).layer(CallRetryLayer::new());
    let call = |tool: Tool| {
        let request = ToolRequest::new(ToolCall::new("call", "pay", json!({})))
            .with_declaration(Some(tool.declaration().clone()));
        tool.into_service().oneshot(request)
    };
    let error = call(pay.clone()).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Overloaded);
    let told = error.to_string();
    assert!(
        told.contains("tool call `pay`") && told.contains("after 1 attempt"),
        "{told}"
    );
    assert!(
        told.contains("not retried: the tool's effect is `Mutating`"),
        "{told}"
    );

    let error = call(pay.effect(Effect::Idempotent)).await.unwrap_err();
    assert_eq!(error.message(), "busy (after 3 attempts)");
}

/// The result of the last tool call that the model has read.
async fn told(agent: AgentBuilder, model: &ScriptedModel) -> String {
    agent.build().unwrap().run("?").await.unwrap();
    let requests = model.requests();
    let messages = requests.last().unwrap().messages();
    messages
        .iter()
        .flat_map(|message| message.tool_results())
        .map(|it| it.text())
        .collect()
}

fn asks(arguments: Value) -> ScriptedModel {
    ScriptedModel::new([Turn::tool("balance", arguments), Turn::from_text("Done.")])
}

fn balance() -> Tool {
    Tool::function("balance", "Asks the bank.", |account: u32| {
        Err::<(), BoxError>(format!("no column `balance` where id = {account}").into())
    })
}

#[tokio::test]
async fn an_internal_error_is_kept_from_the_model_by_one_switch_and_seen_by_callbacks() {
    let arguments = json!({ "value": 7 });
    let model = asks(arguments.clone());
    let open = told(Agent::builder(model.clone()).tool(balance()), &model).await;
    assert_eq!(open, "tool failed: no column `balance` where id = 7");

    let seen = Arc::new(Mutex::new(Vec::new()));
    let look = || {
        let seen = seen.clone();
        on_tool_error(move |_, error| seen.lock().unwrap().push(error.message().to_owned()))
    };
    let model = asks(arguments.clone());
    let agent = Agent::builder(model.clone())
        .tool(balance())
        .on_tool(look());
    let agent = agent.tool_failure_message("The bank is closed.");
    assert_eq!(told(agent, &model).await, "The bank is closed.");

    // A tool's own says more than the agent's.
    let model = asks(arguments);
    let tool = balance().failure_message("Ask again tomorrow.");
    let agent = Agent::builder(model.clone()).tool(tool).on_tool(look());
    let agent = agent.tool_failure_message("The bank is closed.");
    assert_eq!(told(agent, &model).await, "Ask again tomorrow.");
    assert_eq!(
        *seen.lock().unwrap(),
        ["no column `balance` where id = 7"; 2]
    );
}

#[tokio::test]
async fn a_model_that_is_kept_from_errors_reads_what_is_wrong_with_its_own_call() {
    let model = asks(json!({ "value": "seven" }));
    let agent = Agent::builder(model.clone())
        .tool(balance().failure_message("Ask again tomorrow."))
        .tool_failure_message("The bank is closed.");
    let text = told(agent, &model).await;
    assert!(
        text.contains("field `value`") && text.contains("expected u32"),
        "{text}"
    );

    let model = ScriptedModel::new([Turn::tool("balanse", json!({})), Turn::from_text("Done.")]);
    let agent = Agent::builder(model.clone()).tool(balance());
    let text = told(agent.tool_failure_message("The bank is closed."), &model).await;
    assert!(text.contains("`balanse` is not registered"), "{text}");
}

#[tokio::test]
async fn a_panic_and_a_layers_error_are_kept_from_the_model_as_well() {
    let panics = Tool::function("balance", "Asks the bank.", |_: u32| -> u32 {
        panic!("secret")
    });
    let fails = before_tool(|_| Err::<(), _>(Error::new(ErrorKind::Tool, "secret")));
    for (tool, callback) in [(panics, None), (balance(), Some(fails))] {
        let model = asks(json!({ "value": 7 }));
        let agent = Agent::builder(model.clone())
            .tool(tool)
            .tool_failure_message("Closed.");
        let agent = callback
            .into_iter()
            .fold(agent, |agent, it| agent.on_tool(it));
        assert_eq!(told(agent, &model).await, "Closed.");
    }
}

#[tokio::test]
async fn an_open_call_is_answered_by_its_id() {
    let model = ScriptedModel::new([
        Turn::tool("ask_user", json!({ "question": "Which?" })).and_tool("ask_user", json!({})),
        Turn::from_text("Oslo it is."),
    ]);
    let ask = Tool::function("ask_user", "Asks the user.", |_: Value| {
        Err::<(), _>(Error::interrupt(Interrupt::new("ask", "input_required")))
    });
    let agent = Agent::builder(model.clone()).tool(ask).build().unwrap();
    let paused = agent.run("The weather?").await.unwrap();
    let open: Vec<_> = paused
        .open_calls()
        .map(|call| call.id.to_string())
        .collect();
    assert_eq!(open.len(), 2);

    let request = AgentRequest::resume(paused.checkpoint());
    let error = request.clone().with_answer("call_9", "Oslo").unwrap_err();
    assert_eq!(error.kind(), ErrorKind::InvalidRequest);
    assert!(error.message().contains(&*open[0]), "{error}");
    let request = request.with_answer(&open[0], "Oslo").unwrap();
    assert!(
        request.clone().with_answer(&open[0], "Rome").is_err(),
        "it is answered"
    );
    let request = request
        .with_answer(&open[1], json!({ "city": "Oslo" }))
        .unwrap();
    assert_eq!(request.messages().open_calls().count(), 0);

    let response = agent.run(request).await.unwrap();
    assert_eq!(response.text(), "Oslo it is.");
    let told: Vec<_> = model.requests()[1]
        .messages()
        .range(2)
        .map(|m| m.tool_results().map(|r| r.text()).collect::<String>())
        .collect();
    assert_eq!(told, ["Oslo", r#"{"city":"Oslo"}"#]);
}

#[test]
fn no_call_is_open_once_the_user_has_spoken() {
    let call = Part::from(ToolCall::new("call_1", "look", json!({})));
    let mut messages = Messages::from([Message::new(Role::Assistant, [call])]);
    assert_eq!(messages.open_calls().count(), 1);
    messages.push(Message::user("Never mind."));
    assert_eq!(messages.open_calls().count(), 0);
    let error = messages.answer("call_1", 1).unwrap_err();
    assert!(error.message().contains("no open calls"), "{error}");
}

// Three programs of a first hour.

struct Shop {
    prices: HashMap<String, f64>,
}

impl Shop {
    async fn price(&self, article: &str) -> Result<f64, BoxError> {
        Ok(*self
            .prices
            .get(article)
            .ok_or_else(|| format!("no row for {article}"))?)
    }
}

#[derive(Deserialize, JsonSchema)]
struct Order {
    article: String,
    /// One, if it is not said.
    count: Option<u32>,
}

fn shop_tools(shop: &Arc<Shop>) -> [Tool; 2] {
    let (prices, orders) = (shop.clone(), shop.clone());
    let price = Tool::function(
        "price",
        "The price of an article.",
        move |article: String| {
            let shop = prices.clone();
            async move { shop.price(&article).await }
        },
    );
    let order = Tool::function("order", "Orders.", move |Order { article, count }| {
        let shop = orders.clone();
        async move { Ok::<_, BoxError>(shop.price(&article).await? * f64::from(count.unwrap_or(1))) }
    });
    [price.effect(Effect::Pure), order]
}

/// A chat: tools with a dependency, several turns, the session kept as text between them.
#[tokio::test]
async fn a_chat_of_several_turns_with_tools_that_share_a_shop() {
    let model = ScriptedModel::new([
        Turn::tool("price", json!({ "value": "tea" })),
        Turn::from_text("2.50"),
        Turn::tool("order", json!({ "article": "tea", "count": 2 })),
        Turn::from_text("That is 5."),
    ]);
    let shop = Arc::new(Shop {
        prices: HashMap::from([("tea".to_owned(), 2.5)]),
    });
    let agent = Agent::builder(model.clone())
        .tools(shop_tools(&shop))
        .build()
        .unwrap();

    let mut saved = serde_json::to_string(&Checkpoint::default()).unwrap();
    for (asked, expected) in [("What is tea?", "2.50"), ("Two, please.", "That is 5.")] {
        let checkpoint: Checkpoint = serde_json::from_str(&saved).unwrap();
        let request = AgentRequest::resume(checkpoint).with_message(asked);
        let response = agent.run(request).await.unwrap();
        assert_eq!(response.text(), expected);
        saved = serde_json::to_string(&response.checkpoint()).unwrap();
    }
    assert_eq!(model.requests()[3].messages().len(), 7);
    model.assert_done();
}

/// A service: limits of tower's under and around, a second model, a token to stop it all.
#[tokio::test]
async fn a_service_with_limits_a_second_model_and_a_token() {
    fn guarded(model: impl ModelService) -> impl ModelService {
        let retried = ServiceBuilder::new()
            .layer(CallRetryLayer::new())
            .concurrency_limit(2);
        Buffer::new(retried.service(model), 8)
    }
    let down = ScriptedModel::always(Turn::error(Error::new(ErrorKind::Auth, "no")));
    let model = Fallback::new(guarded(down)).or_each([says("a"), says("b")]);
    let model = model.fall_back_if(|error| error.kind() == ErrorKind::Auth);
    let agent = Agent::builder(model)
        .model_layer(
            ServiceBuilder::new()
                .load_shed()
                .concurrency_limit(8)
                .into_inner(),
        )
        .build()
        .unwrap();
    assert_eq!(agent.run("?").await.unwrap().text(), "a");

    let token = CancellationToken::new();
    token.cancel();
    let stopped = agent
        .run(AgentRequest::new("?").with_cancellation(token))
        .await
        .unwrap_err();
    assert_eq!(stopped.kind(), ErrorKind::Cancelled);
}

/// A desk: a person approves, another one answers a question of the model's.
#[tokio::test]
async fn a_desk_where_people_approve_and_answer() {
    let model = ScriptedModel::new([
        Turn::tool("refund", json!({ "value": 100 })),
        Turn::tool("ask_user", json!({ "question": "By post?" })),
        Turn::from_text("Sent by post."),
    ]);
    let refunds = Arc::new(Mutex::new(Vec::new()));
    let refund = Tool::function("refund", "Pays back.", {
        let refunds = refunds.clone();
        move |euros: u32| refunds.lock().unwrap().push(euros)
    });
    let ask = Tool::function("ask_user", "Asks the user.", |_: Value| {
        Err::<(), _>(Error::interrupt(Interrupt::new("ask", "input_required")))
    });
    let agent = Agent::builder(model)
        .tools([refund, ask])
        .on_tool(Approval::of_tools(["refund"]))
        .build()
        .unwrap();

    let paused = agent.run("I want my money back.").await.unwrap();
    let yes = paused.interrupts().iter();
    let yes = yes.map(|it| Resolution::resolved(&it.id, json!({ "approved": true })));
    let request = AgentRequest::resume(paused.checkpoint()).with_resolutions(yes);
    let paused = agent.run(request).await.unwrap();
    let [open] = &paused.open_calls().cloned().collect::<Vec<_>>()[..] else {
        panic!("one")
    };
    assert_eq!(&*open.name, "ask_user");

    let request = AgentRequest::resume(paused.checkpoint())
        .with_answer(&open.id, "Yes")
        .unwrap();
    assert_eq!(agent.run(request).await.unwrap().text(), "Sent by post.");
    assert_eq!(*refunds.lock().unwrap(), [100]);
}
