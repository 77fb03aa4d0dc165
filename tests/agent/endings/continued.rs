//! A run goes on from what it did, however it ended.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicUsize, Ordering};
use std::time::Duration;

use futures::{FutureExt, StreamExt};
use serde_json::{Value, json};
use tokio::sync::Notify;
use tokio_util::sync::CancellationToken;
use tower::{Service, ServiceExt, service_fn};
use tower_agent::callback::{
    LayerInner, ToolFailure, after_tool, before_model, wrap_agent, wrap_model,
};
use tower_agent::compat::Semantics;
use tower_agent::message::ToolCall;
use tower_agent::stream::EventKind;
use tower_agent::{
    Agent, AgentRequest, AgentResponse, Checkpoint, Effect, Error, ErrorKind, Message,
    ModelRequest, ModelResponse, Request, Tool,
};
use tower_agent_middleware::retry::CallRetryLayer;
use tower_agent_test::{ScriptedModel, Turn};
use tower_layer::{Layer, layer_fn};

use test_support::transcript::{left, said};

/// How often something was paid.
#[derive(Clone, Default)]
struct Paid(Arc<AtomicUsize>);

impl Paid {
    fn tool(&self) -> Tool {
        let paid = self.clone();
        Tool::function("pay", "Pays.", move |_: Value| {
            paid.0.fetch_add(1, Ordering::SeqCst);
            "paid"
        })
    }

    fn times(&self) -> usize {
        self.0.load(Ordering::SeqCst)
    }
}

fn down() -> Turn {
    Turn::error(Error::new(ErrorKind::Overloaded, "503"))
}

fn pays() -> Turn {
    Turn::tool("pay", json!({}))
}

fn saved(checkpoint: &Checkpoint) -> Checkpoint {
    let saved = serde_json::to_string(checkpoint).unwrap();
    let read: Checkpoint = serde_json::from_str(&saved).unwrap();
    assert_eq!(&read, checkpoint);
    read
}

fn of(error: &Error) -> Checkpoint {
    saved(error.checkpoint().expect("a run's error has a checkpoint"))
}

#[tokio::test]
async fn a_run_that_fails_after_a_tool_continues_after_it() {
    let paid = Paid::default();
    let model = ScriptedModel::new([pays(), down(), Turn::from_text("Paid.")]);
    let agent = Agent::builder(model).tool(paid.tool()).build().unwrap();

    let error = agent.run("Pay.").await.unwrap_err();
    let response = agent.run(AgentRequest::resume(of(&error))).await.unwrap();

    assert_eq!(paid.times(), 1);
    assert_eq!(response.text(), "Paid.");
    assert_eq!(response.messages().len(), 4);
    assert_eq!(
        (of(&error).head.turn, response.checkpoint().head.turn),
        (1, 2)
    );
}

#[tokio::test]
async fn a_run_out_of_model_calls_or_aborted_keeps_what_it_did() {
    let paid = Paid::default();
    let model = ScriptedModel::new([pays(), Turn::from_text("Paid.")]);
    let once = Agent::builder(model.clone())
        .tool(paid.tool())
        .max_iterations(1)
        .build()
        .unwrap();
    let error = once.run("Pay.").await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::MaxIterations);
    let more = Agent::builder(model).tool(paid.tool()).build().unwrap();
    let response = more.run(AgentRequest::resume(of(&error))).await.unwrap();
    assert_eq!((response.text(), paid.times()), ("Paid.".into(), 1));

    let paid = Paid::default();
    let model = ScriptedModel::new([pays()]);
    let agent = Agent::builder(model)
        .tool(paid.tool())
        .on_model(before_model(|request| {
            match request.context().iteration() {
                0 => Ok(()),
                _ => Err(Error::abort("enough")),
            }
        }));
    let error = agent.build().unwrap().run("Pay.").await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Aborted);
    assert_eq!(of(&error).messages.len(), 3);
}

#[tokio::test]
async fn a_run_that_is_cancelled_keeps_what_it_did() {
    let paid = Paid::default();
    let token = CancellationToken::new();
    let cancel = token.clone();
    let model = ScriptedModel::new([pays(), Turn::from_text("Paid.")]);
    let agent = Agent::builder(model)
        .tool(paid.tool())
        .model_layer(wrap_model(move |request: ModelRequest, mut next| {
            let cancel = cancel.clone();
            async move {
                if request.context().iteration() == 1 {
                    cancel.cancel();
                    std::future::pending::<()>().await;
                }
                next.run(request).await
            }
        }))
        .build()
        .unwrap();

    let request = AgentRequest::new("Pay.").with_cancellation(token);
    let error = agent.run(request).await.unwrap_err();

    assert_eq!(error.kind(), ErrorKind::Cancelled);
    assert_eq!((of(&error).messages.len(), paid.times()), (3, 1));
}

#[tokio::test]
async fn a_stream_that_is_not_read_to_its_end_has_what_it_has_shown() {
    let paid = Paid::default();
    let model = ScriptedModel::new([pays(), Turn::from_text("Paid.")]);
    let agent = Agent::builder(model).tool(paid.tool()).build().unwrap();

    let mut run = agent.stream("Pay.");
    assert_eq!(run.checkpoint().messages.len(), 1);
    while let Some(event) = run.next().await {
        if matches!(event.kind, EventKind::ToolResult(_)) {
            break;
        }
    }
    let checkpoint = saved(&run.checkpoint());
    drop(run);

    let answers: Vec<_> = checkpoint
        .messages
        .iter()
        .flat_map(Message::tool_results)
        .collect();
    assert_eq!(
        (answers.len(), answers[0].text(), paid.times()),
        (1, "paid".into(), 1)
    );
}

#[tokio::test]
async fn every_ending_has_a_checkpoint_that_the_next_turn_continues_from() {
    let model = ScriptedModel::always(Turn::from_text("Yes."));
    let agent = Agent::builder(model).build().unwrap();
    let mut checkpoint = Checkpoint::default();
    for turn in 1..=3 {
        let request = AgentRequest::resume(saved(&checkpoint)).with_message("Well?");
        let response = agent.run(request).await.unwrap();
        checkpoint = response.checkpoint();
        assert_eq!(
            (checkpoint.head.turn, checkpoint.messages.len()),
            (turn, 2 * turn as usize)
        );
        assert!(checkpoint.head.interrupts.is_empty());
    }
    assert_eq!(checkpoint.messages[4], Message::user("Well?"));
}

/// The text of a message, or of the answers in it.
fn said_in(message: &Message) -> String {
    let answers: String = message.tool_results().map(|answer| answer.text()).collect();
    message.text() + &answers
}

fn agent(name: &str, model: &ScriptedModel, tools: impl IntoIterator<Item = Tool>) -> Agent {
    Agent::builder(model.clone())
        .name(name)
        .tools(tools)
        .build()
        .unwrap()
}

async fn resume(agent: &Agent, error: &Error) -> AgentResponse {
    agent.run(AgentRequest::resume(of(error))).await.unwrap()
}

#[tokio::test]
async fn a_team_continues_with_the_member_that_failed() {
    let paid = Paid::default();
    let first = ScriptedModel::new([Turn::from_text("begun")]);
    let second = ScriptedModel::new([pays(), down(), Turn::from_text("Paid.")]);
    let third = ScriptedModel::new([Turn::from_text("end")]);
    let team = Agent::sequential("team")
        .agents([
            agent("first", &first, [paid.tool()]),
            agent("second", &second, [paid.tool()]),
            agent("third", &third, []),
        ])
        .build()
        .unwrap();

    let error = team.run("Pay.").await.unwrap_err();
    let response = resume(&team, &error).await;

    assert_eq!((response.text(), paid.times()), ("end".into(), 1));
    let said: Vec<_> = response.messages().iter().map(said_in).collect();
    assert_eq!(said, ["Pay.", "begun", "", "paid", "Paid.", "end"]);
    [first, second, third]
        .iter()
        .for_each(ScriptedModel::assert_done);
}

#[tokio::test]
async fn a_sub_agent_that_took_over_continues_where_it_failed() {
    let paid = Paid::default();
    let desk = ScriptedModel::new([Turn::tool(
        "transfer_to_agent",
        json!({ "agent_name": "billing" }),
    )]);
    let billing = ScriptedModel::new([pays(), down(), Turn::from_text("Paid.")]);
    let desk = Agent::builder(desk)
        .name("desk")
        .sub_agent(agent("billing", &billing, [paid.tool()]))
        .build()
        .unwrap();

    let error = desk.run("Pay.").await.unwrap_err();
    let response = resume(&desk, &error).await;

    assert_eq!((response.text(), paid.times()), ("Paid.".into(), 1));
    billing.assert_done();
}

#[tokio::test]
async fn an_agent_as_a_tool_continues_where_it_failed() {
    let paid = Paid::default();
    let worker = ScriptedModel::new([pays(), down(), Turn::from_text("Paid.")]);
    let ask = Turn::tool("worker", json!({ "request": "Pay." }));
    let boss = ScriptedModel::new([ask, Turn::from_text("Done.")]);
    let mut semantics = Semantics::default();
    semantics.run.tool_failure = ToolFailure::FailRun;
    let boss = Agent::builder(boss)
        .tool(agent("worker", &worker, [paid.tool()]).into_tool("Works."))
        .semantics(semantics)
        .build()
        .unwrap();

    let error = boss.run("Pay.").await.unwrap_err();
    let response = resume(&boss, &error).await;

    assert_eq!((response.text(), paid.times()), ("Done.".into(), 1));
    worker.assert_done();
    let answers: Vec<_> = response
        .messages()
        .iter()
        .flat_map(Message::tool_results)
        .collect();
    assert_eq!((answers.len(), answers[0].text()), (1, "Paid.".into()));
}

#[tokio::test]
async fn an_agent_as_a_tool_continues_where_a_cancellation_dropped_it() {
    let paid = Paid::default();
    let worker = ScriptedModel::new([pays(), Turn::pending(), Turn::from_text("Paid.")]);
    let ask = Turn::tool("worker", json!({ "request": "Pay." }));
    let boss = ScriptedModel::new([ask, Turn::from_text("Done.")]);
    let boss = agent(
        "boss",
        &boss,
        [agent("worker", &worker, [paid.tool()]).into_tool("Works.")],
    );

    let mut run = boss.stream("Pay.");
    while let Some(event) = run.next().await {
        if matches!(&event.kind, EventKind::ToolResult(result) if &*result.name == "pay") {
            break;
        }
    }
    while worker.requests().len() < 2 {
        run.next().now_or_never();
    }
    let checkpoint = saved(&run.checkpoint());
    drop(run);
    let response = boss.run(AgentRequest::resume(checkpoint)).await.unwrap();

    assert_eq!((response.text(), paid.times()), ("Done.".into(), 1));
    worker.assert_done();
}

#[tokio::test]
async fn members_side_by_side_go_on_where_one_failed_and_the_others_were_dropped() {
    let paid = Paid::default();
    let done = ScriptedModel::new([Turn::from_text("a")]);
    let fails = ScriptedModel::new([pays(), down(), Turn::from_text("b")]);
    let dropped = ScriptedModel::new([pays(), Turn::pending(), Turn::from_text("c")]);
    let fan = Agent::parallel("fan")
        .agents([
            agent("a", &done, []),
            agent("c", &dropped, [paid.tool()]),
            agent("b", &fails, [paid.tool()]),
        ])
        .build()
        .unwrap();

    let error = fan.run("Pay.").await.unwrap_err();
    assert_eq!(paid.times(), 2);
    let response = resume(&fan, &error).await;

    assert_eq!(paid.times(), 2);
    [done, fails, dropped]
        .iter()
        .for_each(ScriptedModel::assert_done);
    let mut said: Vec<_> = response.messages().iter().map(said_in).collect();
    said.sort();
    assert_eq!(said, ["", "", "Pay.", "a", "b", "c", "paid", "paid"]);
}

/// Makes a failed call again, whatever it was, as a custom policy would.
#[derive(Clone)]
struct Again;

impl<R: Clone, T> tower::retry::Policy<R, T, Error> for Again {
    type Future = std::future::Ready<()>;

    fn retry(&mut self, _: &mut R, result: &mut Result<T, Error>) -> Option<Self::Future> {
        result.is_err().then(|| std::future::ready(()))
    }

    fn clone_request(&mut self, request: &R) -> Option<R> {
        Some(request.clone())
    }
}

#[tokio::test(start_paused = true)]
async fn a_retry_of_an_agent_continues_and_does_not_pay_twice() {
    let model = || ScriptedModel::new([pays(), down(), Turn::from_text("Paid.")]);
    let paid = Paid::default();
    let ours = Agent::builder(model())
        .tool(paid.tool())
        .agent_layer(CallRetryLayer::new())
        .build()
        .unwrap();
    let theirs = Agent::builder(model())
        .tool(paid.tool())
        .agent_layer(tower::retry::RetryLayer::new(Again))
        .build()
        .unwrap();
    for (times, agent) in [ours, theirs].into_iter().enumerate() {
        let response = agent.run("Pay.").await.unwrap();
        assert_eq!((response.text(), paid.times()), ("Paid.".into(), times + 1));
        assert_eq!(response.messages().len(), 4);
    }

    let plain = Agent::builder(model()).tool(paid.tool()).build().unwrap();
    let around = tower::retry::RetryLayer::new(Again).layer(plain);
    let response = around.oneshot("Pay.".into()).await.unwrap();
    assert_eq!((response.text(), paid.times()), ("Paid.".into(), 3));

    let team = Agent::sequential("team")
        .agent(agent("payer", &model(), [paid.tool()]))
        .agent_layer(CallRetryLayer::new())
        .build()
        .unwrap();
    assert_eq!(
        (team.run("Pay.").await.unwrap().text(), paid.times()),
        ("Paid.".into(), 4)
    );

    let worker = agent("worker", &model(), [paid.tool()]).into_tool("Works.");
    let worker = worker.layer(tower::retry::RetryLayer::new(Again));
    let ask = Turn::tool("worker", json!({ "request": "Pay." }));
    let boss = agent(
        "boss",
        &ScriptedModel::new([ask, Turn::from_text("Done.")]),
        [worker],
    );
    assert_eq!(
        (boss.run("Pay.").await.unwrap().text(), paid.times()),
        ("Done.".into(), 5)
    );
}

#[tokio::test]
async fn a_call_that_has_answered_is_begun_anew_when_it_is_made_again() {
    let model = ScriptedModel::new([Turn::from_text("one"), Turn::from_text("two")]);
    let agent = Agent::builder(model).build().unwrap();
    let request = AgentRequest::new("?");
    assert_eq!(
        agent.run(request.clone()).await.unwrap().messages().len(),
        2
    );
    let second = agent.run(request).await.unwrap();
    assert_eq!((second.text(), second.messages().len()), ("two".into(), 2));
}

#[tokio::test(start_paused = true)]
async fn a_timeout_inside_the_agent_keeps_what_was_done() {
    let paid = Paid::default();
    let model = ScriptedModel::new([pays(), Turn::pending(), Turn::from_text("Paid.")]);
    let agent = Agent::builder(model)
        .tool(paid.tool())
        .agent_layer(tower::timeout::TimeoutLayer::new(Duration::from_secs(1)))
        .build()
        .unwrap();

    let error = agent.run("Pay.").await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Timeout);
    assert_eq!(
        (resume(&agent, &error).await.text(), paid.times()),
        ("Paid.".into(), 1)
    );
}

#[tokio::test]
async fn a_call_that_failed_its_run_or_was_stopped_in_it_is_not_made_again() {
    let mut semantics = Semantics::default();
    semantics.run.tool_failure = ToolFailure::FailRun;
    let paid = Paid::default();
    let model = ScriptedModel::new([pays(), Turn::from_text("Hm.")]);
    let agent = Agent::builder(model.clone())
        .tool(paid.tool())
        .on_tool(after_tool(|_, _| {
            Err::<(), _>(Error::from("the ledger is down"))
        }))
        .semantics(semantics)
        .build()
        .unwrap();
    let error = agent.run("Pay.").await.unwrap_err();
    let response = resume(&agent, &error).await;
    assert_eq!((response.text(), paid.times()), ("Hm.".into(), 1));
    let told = said_in(&model.requests()[1].messages()[2]);
    assert!(told.contains("the ledger is down"), "{told}");

    let token = CancellationToken::new();
    let (cancel, paid) = (token.clone(), Paid::default());
    let times = paid.clone();
    let slow = Tool::function("pay", "Pays.", move |_: Value| {
        times.0.fetch_add(1, Ordering::SeqCst);
        cancel.cancel();
        std::future::pending::<&'static str>()
    });
    let model = ScriptedModel::new([pays(), Turn::from_text("Hm.")]);
    let agent = Agent::builder(model.clone()).tool(slow).build().unwrap();
    let error = agent
        .run(AgentRequest::new("Pay.").with_cancellation(token))
        .await
        .unwrap_err();
    let response = resume(&agent, &error).await;
    assert_eq!((response.text(), paid.times()), ("Hm.".into(), 1));
    let told = said_in(&model.requests()[1].messages()[2]);
    assert!(told.contains("stopped"), "{told}");
}

#[tokio::test]
async fn an_agent_that_replaces_a_failed_one_continues_where_that_stopped() {
    for in_team in [false, true] {
        let paid = Paid::default();
        let looks = Tool::function("look", "Looks.", |_: Value| std::future::pending::<&str>());
        let looks = looks.effect(Effect::Pure);
        let backup = ScriptedModel::new([Turn::from_text("Paid.")]);
        let spare = Tool::function("look", "Looks.", |_: Value| -> &str {
            panic!("not its call")
        });
        let spare = agent("spare", &backup, [paid.tool(), spare]);
        let turn = pays()
            .and_tool("look", json!({}))
            .and_tool("fail", json!({}));
        let fail = Tool::function("fail", "Fails.", |_: Value| Err::<(), _>(Error::from("no")));
        let mut semantics = Semantics::default();
        semantics.run.tool_failure = ToolFailure::FailRun;
        let first = Agent::builder(ScriptedModel::new([turn]))
            .name("first")
            .tools([paid.tool(), looks, fail])
            .semantics(semantics)
            .agent_layer(wrap_agent(move |request: AgentRequest, mut next| {
                let spare = spare.clone();
                async move {
                    match next.run(request.clone()).await {
                        Ok(response) => Ok(response),
                        Err(_) => spare.run(request).await,
                    }
                }
            }))
            .build()
            .unwrap();
        let agent = if in_team {
            Agent::sequential("team").agent(first).build().unwrap()
        } else {
            first
        };

        let response = agent.run("Pay.").await.unwrap();

        assert_eq!((response.text(), paid.times()), ("Paid.".into(), 1));
        let heard = backup.requests()[0].messages().clone();
        let answers: Vec<_> = heard.iter().flat_map(Message::tool_results).collect();
        assert_eq!(answers.len(), 3, "{heard:?}");
        let said: Vec<_> = response.messages().iter().map(said_in).collect();
        assert_eq!(said.len(), 6, "{said:?}");
        assert_eq!(said[2], "paid");
    }
}

#[tokio::test]
async fn two_calls_of_an_agent_at_once_do_not_mix() {
    let paid = Paid::default();
    // Each waits for the other.
    let both = Arc::new(tokio::sync::Barrier::new(2));
    let pay = || {
        let (paid, both) = (paid.clone(), both.clone());
        Tool::function("pay", "Pays.", move |_: Value| {
            paid.0.fetch_add(1, Ordering::SeqCst);
            let both = both.clone();
            async move {
                both.wait().await;
                "paid"
            }
        })
    };
    let model = ScriptedModel::always(Turn::function(|request| {
        let response = match request.messages().len() {
            1 => ModelResponse::from_tool_calls([ToolCall::new("call_1", "pay", json!({}))]),
            _ => ModelResponse::from_text("Paid."),
        };
        Ok(response)
    }));
    let inside = Agent::builder(model.clone())
        .tool(pay())
        .agent_layer(wrap_agent(|request: AgentRequest, next| async move {
            let (mut one, mut other) = (next.clone(), next);
            let both = futures::join!(one.run(request.clone()), other.run(request));
            assert_eq!(both.1?.messages().len(), 4);
            both.0
        }))
        .build()
        .unwrap();
    assert_eq!(inside.run("Pay.").await.unwrap().messages().len(), 4);

    let agent = agent("agent", &model, [pay()]);
    let request = AgentRequest::new("Pay.");
    let (one, other) = futures::join!(agent.run(request.clone()), agent.run(request));
    assert_eq!(
        (
            one.unwrap().messages().len(),
            other.unwrap().messages().len()
        ),
        (4, 4)
    );
    assert_eq!(paid.times(), 4);
}

#[tokio::test]
async fn a_layer_may_ask_more_about_an_answer() {
    let paid = Paid::default();
    let model = ScriptedModel::new([
        pays(),
        Turn::from_text("Paid."),
        Turn::from_text("Paid, 10 in all."),
    ]);
    let agent = Agent::builder(model.clone())
        .tool(paid.tool())
        .agent_layer(wrap_agent(
            |mut request: AgentRequest, mut next| async move {
                let first = next.run(request.clone()).await?;
                *request.messages_mut() = first.messages().clone();
                request.messages_mut().push(Message::user("How much?"));
                next.run(request).await
            },
        ))
        .build()
        .unwrap();

    let response = agent.run("Pay.").await.unwrap();

    assert_eq!(
        (response.text(), paid.times()),
        ("Paid, 10 in all.".into(), 1)
    );
    let said: Vec<_> = response.checkpoint().messages.iter().map(said_in).collect();
    assert_eq!(
        said,
        ["Pay.", "", "paid", "Paid.", "How much?", "Paid, 10 in all."]
    );
    model.assert_done();
}

#[tokio::test]
async fn the_next_call_continues_with_what_a_dropped_agent_has_streamed() {
    let waits = Arc::new(Notify::new());
    let (waiting, tries) = (waits.clone(), Arc::new(AtomicU32::new(0)));
    // It never answers when it is called first.
    let look = Tool::function("look", "Looks.", move |_: serde_json::Value| {
        let (waits, first) = (waits.clone(), tries.fetch_add(1, Ordering::Relaxed) == 0);
        async move {
            if first {
                waits.notify_one();
                std::future::pending::<()>().await;
            }
            "nothing"
        }
    });
    let model = ScriptedModel::new([
        Turn::response(ModelResponse::new(Message::assistant("I look.")))
            .and_tool("look", json!({})),
        Turn::response(ModelResponse::new(Message::assistant("Again.")))
            .and_tool("look", json!({})),
        Turn::from_text("Nothing."),
    ]);
    let member = Agent::builder(model.clone())
        .name("member")
        .tool(look)
        .build()
        .unwrap();
    let team = Agent::sequential("team")
        .agent_layer(layer_fn(move |seam: LayerInner<AgentRequest>| {
            let waiting = waiting.clone();
            service_fn(move |request: AgentRequest| {
                let (mut seam, waiting) = (seam.clone(), waiting.clone());
                async move {
                    let first = seam.ready().await?.call(request.clone());
                    tokio::select! {
                        _ = first => panic!("it waits"),
                        () = waiting.notified() => {}
                    }
                    seam.ready().await?.call(request).await
                }
            })
        }))
        .agent(member)
        .build()
        .unwrap();

    let mut run = team.stream("?");
    let events: Vec<_> = run.by_ref().collect().await;
    let response = run.response().await.unwrap();

    assert_eq!(response.text(), "Nothing.");
    assert_eq!(left(&events), said(response.new_messages()));
    model.assert_done();
}
