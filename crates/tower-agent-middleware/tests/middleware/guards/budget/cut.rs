//! The charge of a call that is cancelled or cut: nothing before it reaches the model, and what is
//! known afterwards.

use std::future::pending;
use std::time::Duration;

use futures::StreamExt;
use serde_json::json;
use tower::limit::ConcurrencyLimitLayer;
use tower::{ServiceBuilder, service_fn};
use tower_agent::callback::{Bundle, after_model, before_model, wrap_model, wrap_tool};
use tower_agent::model::ModelService;
use tower_agent::stream::{Delta, EventKind, Piece};
use tower_agent::{
    Action, Agent, AgentRequest, BoxError, CancellationToken, Error, ErrorKind, ModelRequest,
    ModelResponse, Result, Tool, Usage,
};
use tower_agent_middleware::budget::{Account, Budget, Limits, Spent};
use tower_agent_middleware::fallback::Fallback;
use tower_agent_middleware::retry::CallRetryLayer;
use tower_agent_middleware::timeout::CallTimeoutLayer;
use tower_agent_test::{ProbeLayer, ScriptedModel, Turn};

/// Of the eight bytes of [`PROMPT`].
const PROMPT_TOKENS: u64 = 2;
const PROMPT: &str = "12345678";

fn account() -> Account {
    let price = |_: &str, usage: Usage| usage.total() as f64;
    Account::new(Limits::new().tokens(100_000).cost(100_000.0, price))
}

fn agent(account: &Account, model: impl ModelService) -> Agent {
    Agent::builder(model)
        .global_callbacks(Budget::of(account.clone()))
        .build()
        .unwrap()
}

/// The calls and the tokens, which cost one each.
fn taken(account: &Account) -> (u64, u64) {
    let reserved = account.reserved();
    assert_eq!(reserved, Spent::default(), "nothing is left reserved");
    let used = account.used();
    assert_eq!(used.cost, used.tokens as f64);
    (used.model_calls, used.tokens)
}

/// Polls a run once, and drops it.
async fn begin_and_drop(agent: &Agent) {
    let mut run = Box::pin(agent.run(PROMPT));
    assert!(futures::poll!(&mut run).is_pending());
}

/// Reads this many deltas of a run, and drops it.
async fn read_and_drop(agent: &Agent, deltas: usize) {
    let mut run = agent.stream(PROMPT);
    let mut read = 0;
    while read < deltas {
        let event = run.next().await.unwrap();
        read += usize::from(matches!(event.kind, EventKind::TextDelta { .. }));
    }
}

fn long() -> Turn {
    Turn::from_text("0123456789".repeat(4)).usage(Usage::new(100, 50))
}

/// A model that tells what the prompt used, sends this text and hangs.
fn tells_the_prompt(text: &'static str) -> impl ModelService {
    service_fn(move |request: ModelRequest| async move {
        let sink = request.delta_sender().ok_or("streamed")?;
        let mut attempt = sink.open();
        attempt.send(Piece::Usage(Usage::new(30, 1))).await?;
        attempt.send(Delta::Text(text.into())).await?;
        pending::<()>().await;
        Err::<ModelResponse, BoxError>("never".into())
    })
}

#[tokio::test]
async fn a_call_dropped_while_the_model_is_not_ready_costs_nothing() {
    let account = account();
    let probe = ProbeLayer::new();
    probe.hold();
    let model = ServiceBuilder::new()
        .layer(probe.clone())
        .service(ScriptedModel::always(long()));
    let agent = agent(&account, model);

    begin_and_drop(&agent).await;

    assert_eq!(probe.calls(), 0);
    assert_eq!(taken(&account), (0, 0));
}

#[tokio::test]
async fn a_call_dropped_in_a_layer_around_the_model_costs_nothing() {
    let account = account();
    let waits = wrap_model(|request, mut next| async move {
        tokio::time::sleep(Duration::from_secs(60)).await;
        next.run(request).await
    });
    let agent = Agent::builder(ScriptedModel::always(long()))
        .model_layer(waits)
        .global_callbacks(Budget::of(account.clone()))
        .build()
        .unwrap();

    begin_and_drop(&agent).await;

    assert_eq!(taken(&account), (0, 0));
}

#[tokio::test]
async fn a_call_cancelled_while_another_has_the_only_permit_costs_nothing() {
    let account = account();
    let model = ServiceBuilder::new()
        .layer(ConcurrencyLimitLayer::new(1))
        .service(ScriptedModel::always(Turn::pending()));
    let agent = agent(&account, model);
    let mut first = Box::pin(agent.run(PROMPT));
    assert!(futures::poll!(&mut first).is_pending());
    let token = CancellationToken::new();
    let request = AgentRequest::new(PROMPT).with_cancellation(token.clone());
    let mut second = Box::pin(agent.run(request));
    assert!(futures::poll!(&mut second).is_pending());

    token.cancel();
    let error = second.await.unwrap_err();

    assert_eq!(error.kind(), ErrorKind::Cancelled);
    assert_eq!(account.used().model_calls, 0);
    assert_eq!(account.reserved().model_calls, 1);
    drop(first);
    assert_eq!(taken(&account), (1, PROMPT_TOKENS));
}

#[tokio::test]
async fn a_call_dropped_before_the_first_byte_of_its_answer_is_charged_its_prompt() {
    let account = account();
    let agent = agent(&account, ScriptedModel::always(Turn::pending()));

    begin_and_drop(&agent).await;

    assert_eq!(taken(&account), (1, PROMPT_TOKENS));
}

#[tokio::test]
async fn a_dropped_stream_is_charged_what_was_received() {
    let account = account();
    let model = ScriptedModel::always(long().hanging_after(20)).chunk_size(1);
    let agent = agent(&account, model);

    read_and_drop(&agent, 20).await;

    assert_eq!(taken(&account), (1, PROMPT_TOKENS + 20 / 4));
}

#[tokio::test]
async fn a_dropped_stream_is_charged_the_prompt_that_the_provider_told() {
    let account = account();
    let agent = agent(&account, tells_the_prompt("0123456789012345"));

    read_and_drop(&agent, 1).await;

    assert_eq!(taken(&account), (1, 30 + 16 / 4));
}

#[tokio::test]
async fn a_dropped_stream_is_charged_what_a_mapper_still_held_back() {
    let account = account();
    let hold = before_model(|request: &mut ModelRequest| {
        request.map_deltas(|| tower_agent::stream::map_fn(|_| None));
    });
    let agent = Agent::builder(tells_the_prompt("01234567"))
        .on_model(hold)
        .global_callbacks(Budget::of(account.clone()))
        .build()
        .unwrap();
    let mut run = agent.stream(PROMPT);
    while let std::task::Poll::Ready(event) = futures::poll!(run.next()) {
        event.unwrap();
    }

    drop(run);

    assert_eq!(taken(&account), (1, 30 + 8 / 4));
}

#[tokio::test(start_paused = true)]
async fn a_time_limit_charges_the_prompt_and_what_was_received() {
    let limit = || CallTimeoutLayer::new(Duration::from_secs(1));
    let model = || ScriptedModel::always(long().hanging_after(20)).chunk_size(1);
    let outside = |account: &Account| {
        Agent::builder(model())
            .model_layer(limit())
            .global_callbacks(Budget::of(account.clone()))
            .build()
            .unwrap()
    };
    let inside = |account: &Account| {
        let model = ServiceBuilder::new().layer(limit()).service(model());
        agent(account, model)
    };
    for make in [&outside as &dyn Fn(&Account) -> Agent, &inside] {
        let account = account();
        let agent = make(&account);
        let error = agent.run(PROMPT).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Timeout);
        assert_eq!(taken(&account), (1, PROMPT_TOKENS));

        let mut run = agent.stream(PROMPT);
        while run.next().await.is_some() {}
        assert_eq!(taken(&account), (2, 2 * PROMPT_TOKENS + 20 / 4));
    }
}

#[tokio::test]
async fn a_connection_lost_in_a_stream_charges_what_was_received_and_before_it_nothing() {
    let lost = || Error::new(ErrorKind::Connection, "lost");
    let account = account();
    let model = ScriptedModel::new([long().failing_after(8, lost()), Turn::error(lost())]);
    let agent = agent(&account, model.chunk_size(1));

    for _ in 0..2 {
        let mut run = agent.stream(PROMPT);
        while run.next().await.is_some() {}
    }

    assert_eq!(taken(&account), (2, PROMPT_TOKENS + 8 / 4));
}

#[tokio::test(start_paused = true)]
async fn a_retried_call_counts_once_with_the_tokens_of_each_attempt() {
    let lost = || Error::new(ErrorKind::Connection, "lost");
    let turns = || {
        let turns = [
            long().failing_after(8, lost()),
            Turn::error(lost()),
            Turn::from_text("done").usage(Usage::new(100, 50)),
        ];
        ScriptedModel::new(turns).chunk_size(1)
    };
    let retry = || CallRetryLayer::new().restart_streams(true);
    let cut = PROMPT_TOKENS + 8 / 4;

    let outside = account();
    let agent = Agent::builder(turns())
        .model_layer(retry())
        .global_callbacks(Budget::of(outside.clone()))
        .build()
        .unwrap();
    let mut run = agent.stream(PROMPT);
    while run.next().await.is_some() {}
    assert_eq!(taken(&outside), (1, cut + 150));

    let inside = account();
    let budget = tower_agent::Callbacks::new().with(Budget::of(inside.clone()));
    let agent = Agent::builder(turns())
        .model_layer(retry())
        .model_layer(budget)
        .build()
        .unwrap();
    let mut run = agent.stream(PROMPT);
    while run.next().await.is_some() {}
    assert_eq!(taken(&inside), (3, cut + 150));
}

#[tokio::test]
async fn a_call_that_falls_back_in_a_stream_is_charged_both_models() {
    let account = account();
    let lost = Error::new(ErrorKind::Connection, "lost");
    let first = ScriptedModel::new([long().failing_after(8, lost)]).chunk_size(1);
    let model = Fallback::new(first)
        .or(ScriptedModel::always(long()))
        .restart_streams(true);
    let agent = agent(&account, model);

    let mut run = agent.stream(PROMPT);
    while run.next().await.is_some() {}

    assert_eq!(taken(&account), (1, PROMPT_TOKENS + 8 / 4 + 150));
}

#[tokio::test(start_paused = true)]
async fn a_call_dropped_between_two_attempts_is_one_call_without_tokens() {
    let account = account();
    let busy = Turn::error(Error::new(ErrorKind::Overloaded, "busy"));
    let agent = Agent::builder(ScriptedModel::always(busy))
        .model_layer(CallRetryLayer::new())
        .global_callbacks(Budget::of(account.clone()))
        .build()
        .unwrap();

    begin_and_drop(&agent).await;

    assert_eq!(taken(&account), (1, 0));
}

#[tokio::test]
async fn an_answer_that_a_callback_refuses_is_charged_what_it_used() {
    let account = account();
    let refuse = after_model(|_, _| -> Result<()> { Err(Error::new(ErrorKind::Denied, "no")) });
    let agent = Agent::builder(ScriptedModel::always(long()))
        .on_model(refuse)
        .global_callbacks(Budget::of(account.clone()))
        .build()
        .unwrap();

    agent.run(PROMPT).await.unwrap_err();

    assert_eq!(taken(&account), (1, 150));
}

#[tokio::test]
async fn an_answer_that_a_callback_replaces_is_charged_what_it_used() {
    let account = account();
    let replace = after_model(|_, _| Action::Respond(ModelResponse::from_text("other")));
    let agent = Agent::builder(ScriptedModel::always(long()))
        .on_model(replace)
        .global_callbacks(Budget::of(account.clone()))
        .build()
        .unwrap();

    agent.run(PROMPT).await.unwrap();

    assert_eq!(taken(&account), (1, 150));
}

#[tokio::test]
async fn a_call_that_a_callback_inside_the_budget_denies_costs_nothing() {
    let account = account();
    let deny = before_model(|_| -> Result<()> { Err(Error::new(ErrorKind::Denied, "no")) });
    let agent = Agent::builder(ScriptedModel::always(long()))
        .on_model(deny)
        .global_callbacks(Budget::of(account.clone()))
        .build()
        .unwrap();

    agent.run(PROMPT).await.unwrap_err();

    assert_eq!(taken(&account), (0, 0));
}

#[tokio::test]
async fn a_tool_call_counts_once_it_reaches_the_tool() {
    let account = account();
    let waits = wrap_tool(|request, mut next| async move {
        if request.name() == "queued" {
            pending::<()>().await;
        }
        next.run(request).await
    });
    let tool = |name: &'static str| {
        Tool::function(name, "Hangs.", |_: serde_json::Value| async {
            pending::<()>().await;
            ""
        })
    };
    let turn = Turn::tool("queued", json!({})).and_tool("running", json!({}));
    let agent = Agent::builder(ScriptedModel::new([turn.usage(Usage::new(1, 1))]))
        .tool(tool("queued"))
        .tool(tool("running"))
        .tool_layer(waits)
        .global_callbacks(Budget::of(account.clone()))
        .build()
        .unwrap();
    let mut run = Box::pin(agent.run(PROMPT));
    assert!(futures::poll!(&mut run).is_pending());
    assert_eq!(account.reserved().tool_calls, 2);

    drop(run);

    assert_eq!(account.used().tool_calls, 1);
    assert_eq!(account.reserved(), Spent::default());
}

/// Two users at once, whose runs are dropped at different times, and two budgets around each call.
#[tokio::test]
async fn each_account_is_charged_its_own_cuts() {
    struct User(Account);

    let all = account();
    let model = ScriptedModel::always(long().hanging_after(20)).chunk_size(1);
    let agent = Agent::builder(model)
        .global_callbacks(Budget::of(all.clone()).named("all"))
        .global_callbacks(Budget::by(|run| Ok(run.extension::<User>()?.0.clone())))
        .build()
        .unwrap();
    let [ada, grace] = [account(), account()];
    let mut runs = Vec::new();
    for (user, deltas) in [(&ada, 8), (&grace, 20), (&ada, 16)] {
        let request = AgentRequest::new(PROMPT).with_extension(User(user.clone()));
        let mut run = agent.stream(request);
        let mut read = 0;
        while read < deltas {
            let event = run.next().await.unwrap();
            read += usize::from(matches!(event.kind, EventKind::TextDelta { .. }));
        }
        runs.push(run);
    }
    assert_eq!(all.reserved().model_calls, 3);

    drop(runs);

    // A stream is driven by its reader: the model has sent what was read, and no more than fits
    // into the queue of events.
    let (calls, tokens) = taken(&ada);
    assert_eq!(calls, 2);
    assert!(tokens >= 2 * PROMPT_TOKENS + 8 / 4 + 16 / 4, "{tokens}");
    assert_eq!(taken(&grace), (1, PROMPT_TOKENS + 20 / 4));
    assert_eq!(taken(&all), (3, tokens + PROMPT_TOKENS + 20 / 4));
}

#[tokio::test]
async fn a_bundle_with_a_budget_and_others_that_answer_or_skip_is_charged_once() {
    let account = account();
    let skip = before_model(|_| Action::<ModelResponse>::SkipRest);
    let agent = Agent::builder(ScriptedModel::always(long()))
        .on_model(skip)
        .callbacks(
            Bundle::new().innermost_model(before_model(|_| Action::<ModelResponse>::SkipRest)),
        )
        .global_callbacks(Budget::of(account.clone()))
        .build()
        .unwrap();

    agent.run(PROMPT).await.unwrap();

    assert_eq!(taken(&account), (1, 150));
}
