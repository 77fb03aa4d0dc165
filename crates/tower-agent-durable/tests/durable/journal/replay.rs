//! Calls that are answered from the journal: their effects, and their absence.

use futures::StreamExt;
use serde_json::{Value, json};
use tower_agent::callback::{before_agent, before_model, before_tool};
use tower_agent::message::ToolCall;
use tower_agent::stream::{Delta, EventKind};
use tower_agent::{
    Agent, AgentRequest, BoxError, Effect, Error, ErrorKind, Interrupt, ModelRequest,
    ModelResponse, Request, Resolution, State, Tool, ToolRequest, Usage,
};
use tower_agent_durable::Sqlite;
use tower_agent_durable::journal::Durable;
use tower_agent_middleware::budget::{Account, Budget, Limits};
use tower_agent_middleware::redact::{Detector, Redact};

use crate::support::{Count, calling, counting, durable, request, saying};

#[tokio::test]
async fn a_run_that_is_made_again_calls_neither_model_nor_tools_nor_their_callbacks() {
    let database = Sqlite::in_memory().await.unwrap();
    let (models, tools, callbacks) = <(Count, Count, Count)>::default();
    let agent = || {
        let (one, other) = (callbacks.clone(), callbacks.clone());
        durable(calling(&["pay"], &models), database.clone())
            .tool(counting("pay", Effect::Mutating, &tools))
            .on_model(before_model(move |_| {
                one.one();
            }))
            .on_tool(before_tool(move |_| {
                other.one();
            }))
            .build()
            .unwrap()
    };
    let first = agent().run(request()).await.unwrap();
    let counts = || (models.get(), tools.get(), callbacks.get());
    assert_eq!(counts(), (2, 1, 3));
    let again = agent().run(request()).await.unwrap();
    assert_eq!(counts(), (2, 1, 3));
    assert_eq!(again.messages(), first.messages());
    assert_eq!(again.usage(), first.usage());
    assert_eq!(
        (again.iterations(), again.end_reason()),
        (2, first.end_reason())
    );
}

#[tokio::test]
async fn a_response_that_was_streamed_in_two_attempts_is_shown_once() {
    let database = Sqlite::in_memory().await.unwrap();
    let calls = Count::default();
    let model = tower::service_fn(move |request: ModelRequest| {
        let is_first = calls.one() == 1;
        async move {
            let mut attempt = request.delta_sender().unwrap().open();
            attempt.send(Delta::Text("It is ".into())).await?;
            if is_first {
                return Err(Error::new(ErrorKind::Overloaded, "busy"));
            }
            attempt.send(Delta::Text("Oslo.".into())).await?;
            let usage = Usage::new(3, 2);
            Ok(ModelResponse::from(attempt.finish().await?).with_usage(usage))
        }
    });
    let moment = std::time::Duration::from_millis(1);
    let retry = tower_agent_middleware::retry::CallRetryLayer::new()
        .backoff(moment, moment)
        .restart_streams(true);
    let agent = durable(model, database).model_layer(retry).build().unwrap();
    let shown = async || {
        let mut stream = agent.stream(request());
        let (mut text, mut discarded, mut used) = (String::new(), 0, Usage::default());
        while let Some(event) = stream.next().await {
            match event.kind {
                EventKind::TextDelta { text: more, .. } => text.push_str(&more),
                EventKind::AttemptDiscarded { .. } => discarded += 1,
                EventKind::Usage { usage } => used = *usage,
                _ => {}
            }
        }
        (text, discarded, used)
    };
    assert_eq!(
        shown().await,
        ("It is It is Oslo.".to_owned(), 1, Usage::new(3, 2))
    );
    assert_eq!(
        shown().await,
        ("It is Oslo.".to_owned(), 0, Usage::new(3, 2))
    );
}

#[tokio::test]
async fn an_account_of_several_runs_is_charged_once_for_a_run_that_is_made_again() {
    let database = Sqlite::in_memory().await.unwrap();
    let agent = |account: &Account| {
        durable(calling(&["look"], &Count::default()), database.clone())
            .tool(counting("look", Effect::Pure, &Count::default()))
            .global_callbacks(Budget::of(account.clone()))
            .build()
            .unwrap()
    };
    let account = Account::new(Limits::new().model_calls(10));
    for _ in 0..3 {
        agent(&account).run(request()).await.unwrap();
        assert_eq!(
            (account.used().model_calls, account.used().tool_calls),
            (2, 1)
        );
    }
    let elsewhere = Account::new(Limits::new().model_calls(10));
    for _ in 0..2 {
        agent(&elsewhere).run(request()).await.unwrap();
        assert_eq!(
            (elsewhere.used().model_calls, elsewhere.used().tool_calls),
            (2, 1)
        );
    }
    let other = AgentRequest::new("Do it.").with_run_id("run 2");
    agent(&account).run(other).await.unwrap();
    assert_eq!(account.used().model_calls, 4);
}

#[tokio::test]
async fn agents_of_one_name_at_once_are_answered_each_with_its_own() {
    let database = Sqlite::in_memory().await.unwrap();
    let calls = Count::default();
    let agent = || {
        let calls = calls.clone();
        let echo = tower::service_fn(move |request: ModelRequest| {
            calls.one();
            let text = request.messages().iter().next().unwrap().text();
            async move { Ok::<_, BoxError>(ModelResponse::from_text(text)) }
        });
        let worker = Agent::builder(echo).name("worker").build().unwrap();
        let both = move |_: Value, call: ToolRequest| {
            let run = |text: &str| {
                worker.run(AgentRequest::new(text).with_context(call.context().clone()))
            };
            let (one, other) = (run("one"), run("other"));
            async move {
                let (one, other) = futures::join!(one, other);
                Ok::<_, Error>(format!("{} {}", one?.text(), other?.text()))
            }
        };
        // So that the calls inside it are made again, and not the whole.
        let both = Tool::function_with("both", "Asks two.", both).effect(Effect::Pure);
        durable(calling(&["both"], &Count::default()), database.clone())
            .tool(both)
            .build()
            .unwrap()
    };
    let first = agent().run(request()).await.unwrap();
    assert_eq!(calls.get(), 2);
    let result = first
        .messages()
        .iter()
        .flat_map(|message| message.tool_results())
        .next()
        .unwrap()
        .text();
    assert_eq!(result, "one other");
    let steps = database.runs().steps("run 1").await.unwrap();
    let paths: Vec<_> = steps.iter().map(|step| &*step.id.path).collect();
    let expected = [
        "agent",
        "agent/m1.0",
        "agent/m1.0/worker",
        "agent/m1.0/worker//2",
        "agent",
    ];
    assert_eq!(paths, expected);
    assert_eq!(
        agent().run(request()).await.unwrap().messages(),
        first.messages()
    );
    assert_eq!(calls.get(), 2);
}

#[tokio::test]
async fn a_team_that_a_tool_has_ended_ends_there_again() {
    let database = Sqlite::in_memory().await.unwrap();
    let rounds = Count::default();
    let team = || {
        let (rounds, count) = (rounds.clone(), rounds.clone());
        let model = tower::service_fn(move |request: ModelRequest| {
            let is_asked = request.messages().last().unwrap().role() == tower_agent::Role::Tool;
            let response = if is_asked {
                ModelResponse::from_text("Next.")
            } else {
                ModelResponse::from_tool_calls([ToolCall::new(
                    format!("c{}", request.messages().len()),
                    "work",
                    json!({}),
                )])
            };
            async { Ok::<_, BoxError>(response) }
        });
        let work = move |_: Value, call: ToolRequest| {
            if rounds.one() == 3 {
                call.context().escalate();
            }
            call.context().state().update("rounds", |value| {
                *value = json!(value.as_u64().unwrap_or(0) + 1)
            });
            "worked"
        };
        let member = Agent::builder(model).name("member");
        let member = member
            .tool(Tool::function_with("work", "Works.", work))
            .build()
            .unwrap();
        let team = Agent::repeat("team", 10).agent(member);
        (
            team.global_callbacks(Durable::new(database.clone()))
                .build()
                .unwrap(),
            count,
        )
    };
    let (agent, count) = team();
    let first = agent.run(request()).await.unwrap();
    assert_eq!(
        (count.get(), first.state().get("rounds")),
        (3, Some(json!(3)))
    );
    let again = team().0.run(request()).await.unwrap();
    assert_eq!(
        (count.get(), again.state().get("rounds")),
        (3, Some(json!(3)))
    );
    assert_eq!(again.messages(), first.messages());
}

#[tokio::test]
async fn a_replay_resolves_parallel_changes_of_one_key_alike() {
    let database = Sqlite::in_memory().await.unwrap();
    let agent = || {
        let model = tower::service_fn(|request: ModelRequest| {
            let is_asked = request.messages().len() == 1;
            let calls =
                ["slow", "quick", "remover"].map(|tool| ToolCall::new(tool, tool, json!({})));
            let response = if is_asked {
                ModelResponse::from_tool_calls(calls)
            } else {
                ModelResponse::from_text("Done.")
            };
            async { Ok::<_, BoxError>(response) }
        });
        let (done, is_done) = tokio::sync::watch::channel(0);
        // Each changes the state when so many others have.
        let tool = |name: &'static str, turn: usize, change: fn(&State)| {
            let (done, is_done) = (done.clone(), is_done.clone());
            Tool::function_with(name, "Changes it.", move |_: Value, call: ToolRequest| {
                let (done, mut is_done) = (done.clone(), is_done.clone());
                async move {
                    is_done.wait_for(|done| *done == turn).await.unwrap();
                    change(call.context().state());
                    change(call.context().private_state());
                    done.send_modify(|done| *done += 1);
                }
            })
        };
        let set_by_slow = |state: &State| {
            state.set("last", "slow");
            state.set("removed", "slow");
        };
        let set_by_quick = |state: &State| {
            state.set("last", "quick");
            state.set("removed", "quick");
        };
        let remove = |state: &State| drop(state.remove("removed"));
        durable(model, database.clone())
            .tool(tool("slow", 1, set_by_slow))
            .tool(tool("quick", 0, set_by_quick))
            .tool(tool("remover", 2, remove))
            .build()
            .unwrap()
    };
    let expected = json!({ "last": "slow" });
    for _ in 0..2 {
        let response = agent().run(request()).await.unwrap();
        assert_eq!(Value::from(response.state().snapshot()), expected);
        let checkpoint = serde_json::to_value(response.checkpoint()).unwrap();
        assert_eq!(checkpoint["head"]["private_state"], expected);
    }
}

#[tokio::test]
async fn a_value_is_made_once_in_a_run() {
    let database = Sqlite::in_memory().await.unwrap();
    let made = Count::default();
    let agent = || {
        let (durable, made) = (Durable::new(database.clone()), made.clone());
        let values = durable.clone();
        let ask = tower_agent::callback::wrap_agent(move |request: AgentRequest, mut next| {
            let (durable, made) = (values.clone(), made.clone());
            async move {
                let context = request.context().clone();
                let made = async || Ok::<u32, Error>(made.one());
                let value = durable.value(&context, "number", made).await?;
                context.state().set("number", value);
                next.run(request).await
            }
        });
        let builder = Agent::builder(saying("Done.")).global_callbacks(durable);
        builder.agent_layer(ask).build().unwrap()
    };
    for _ in 0..2 {
        let response = agent().run(request()).await.unwrap();
        assert_eq!(response.state().get("number"), Some(json!(1)));
    }
    let other = AgentRequest::new("Do it.").with_run_id("run 2");
    assert_eq!(
        agent().run(other).await.unwrap().state().get("number"),
        Some(json!(2))
    );
}

/// A tool that takes a number, shows it in a question, and uses it once it has the answer.
fn numbering(durable: &Durable<Sqlite>, made: &Count) -> Tool {
    let (durable, made) = (durable.clone(), made.clone());
    let tool = move |_: Value, request: ToolRequest| {
        let (durable, made) = (durable.clone(), made.clone());
        async move {
            let context = request.context();
            let number = async || Ok::<u32, Error>(made.one());
            let number = durable.value(context, "number", number).await?;
            let question = Interrupt::new("number", "confirm").with_payload(json!(number));
            request.ask(question).map(|_| number)
        }
    };
    Tool::function_with("order", "Orders.", tool)
}

#[tokio::test]
async fn a_value_of_a_call_that_waits_stays_the_same_when_the_call_goes_on() {
    for is_nested in [false, true] {
        let (database, made) = (Sqlite::in_memory().await.unwrap(), Count::default());
        let agent = || {
            let durable = Durable::new(database.clone());
            let orders = numbering(&durable, &made);
            let tool = if is_nested {
                let worker = Agent::builder(calling(&["order"], &Count::default()));
                worker
                    .name("order")
                    .tool(orders)
                    .build()
                    .unwrap()
                    .into_tool("Works.")
            } else {
                orders
            };
            let agent = Agent::builder(calling(&["order", "order"], &Count::default()));
            agent
                .name("agent")
                .global_callbacks(durable)
                .tool(tool)
                .build()
                .unwrap()
        };
        let mut paused = agent().run(request()).await.unwrap();
        for number in 1..=2 {
            let [asked] = paused.interrupts() else {
                panic!("{:?}", paused.interrupts())
            };
            assert_eq!((&asked.payload, made.get()), (&json!(number), number));
            // The same pause again.
            let next = database.runs().request("run 1").await.unwrap();
            assert_eq!(
                agent().run(next).await.unwrap().interrupts(),
                paused.interrupts()
            );
            let yes = Resolution::resolved(&asked.id, true);
            let next = database
                .runs()
                .request("run 1")
                .await
                .unwrap()
                .with_resolutions([yes]);
            paused = agent().run(next).await.unwrap();
        }
        assert_eq!((paused.text(), made.get()), ("Done.".into(), 2));
    }
}

#[tokio::test]
async fn redacted_values_are_restored_in_a_run_that_continues() {
    let database = Sqlite::in_memory().await.unwrap();
    let (sent, fails) = <(Count, Count)>::default();
    let agent = || {
        let (sent, fails) = (sent.clone(), fails.clone());
        let model = tower::service_fn(move |request: ModelRequest| {
            let last = request.messages().last().unwrap().clone();
            let count = request.messages().len();
            let is_broken = count == 3 && fails.one() == 1;
            async move {
                if is_broken {
                    return Err(Error::new(ErrorKind::Auth, "no key"));
                }
                Ok::<_, Error>(match count {
                    1 => ModelResponse::from_tool_calls([ToolCall::new("c1", "find", json!({}))]),
                    3 => {
                        let to = last.tool_results().next().unwrap().text();
                        assert!(!to.contains("ann@example.com"), "{to}");
                        ModelResponse::from_tool_calls([ToolCall::new(
                            "c2",
                            "send",
                            json!({ "value": to }),
                        )])
                    }
                    _ => ModelResponse::from_text("Sent."),
                })
            }
        });
        let send = move |to: String| {
            assert_eq!(to, "ann@example.com");
            sent.one();
        };
        durable(model, database.clone())
            .callbacks(
                Redact::new([Detector::email()])
                    .unwrap()
                    .numbered()
                    .restore_when(|_| true),
            )
            .tool(Tool::function(
                "find",
                "Finds.",
                |_: Value| "ann@example.com",
            ))
            .tool(Tool::function("send", "Sends.", send))
            .build()
            .unwrap()
    };
    assert_eq!(
        agent().run(request()).await.unwrap_err().kind(),
        ErrorKind::Auth
    );
    let response = agent().run(request()).await.unwrap();
    assert_eq!((response.text(), sent.get()), ("Sent.".to_owned(), 1));
}

#[tokio::test]
async fn an_agent_callback_is_called_in_every_process() {
    let database = Sqlite::in_memory().await.unwrap();
    let runs = Count::default();
    let agent = || {
        let runs = runs.clone();
        let builder = durable(saying("Done."), database.clone());
        builder
            .on_agent(before_agent(move |_| {
                runs.one();
            }))
            .build()
            .unwrap()
    };
    agent().run(request()).await.unwrap();
    agent().run(request()).await.unwrap();
    assert_eq!(runs.get(), 2);
}

#[tokio::test]
async fn a_failed_tool_is_told_to_the_model_in_the_same_words() {
    let database = Sqlite::in_memory().await.unwrap();
    let models = Count::default();
    let agent = || {
        let wants = |_: f64| 0.1 + 0.2;
        let fails = |_: Value| Err::<(), _>(Error::new(ErrorKind::Overloaded, "busy"));
        durable(
            calling(&["wants", "fails", "floats"], &models),
            database.clone(),
        )
        .tool(Tool::function("wants", "Wants a number.", wants))
        .tool(Tool::function("fails", "Fails.", fails))
        .tool(Tool::function("floats", "Floats.", |_: Value| {
            123_456_789.123_456_78_f64 / 3.0
        }))
        .build()
        .unwrap()
    };
    let first = agent().run(request()).await.unwrap();
    assert!(
        first.messages()[2]
            .tool_results()
            .next()
            .unwrap()
            .text()
            .contains("schema")
    );
    let again = agent().run(request()).await.unwrap();
    assert_eq!(again.messages(), first.messages());
    assert_eq!(models.get(), 4);
}

#[tokio::test]
async fn a_team_for_tasks_is_replayed_task_by_task() {
    let database = Sqlite::in_memory().await.unwrap();
    let calls = Count::default();
    let team = || {
        let calls = calls.clone();
        let model = tower::service_fn(move |request: ModelRequest| {
            calls.one();
            let task = request.messages().last().unwrap().text();
            // The later ones finish first.
            let moment = std::time::Duration::from_millis(30 - 10 * task.len() as u64);
            async move {
                tokio::time::sleep(moment).await;
                Ok::<_, BoxError>(ModelResponse::from_text(format!("{task} is done")))
            }
        });
        let worker = Agent::builder(model).name("worker").build().unwrap();
        Agent::for_each("team", worker, |_| Ok(["a", "bb", "ccc"]))
            .concurrency(2)
            .global_callbacks(Durable::new(database.clone()))
            .build()
            .unwrap()
    };
    let mut run = team().stream(request());
    while let Some(event) = run.next().await {
        let is_over = matches!(event.kind, EventKind::AgentFinished { .. });
        if is_over {
            break;
        }
    }
    // The process ends here.
    drop(run);
    let begun = calls.get();
    assert!((2..=3).contains(&begun), "{begun}");
    let first = team().run(request()).await.unwrap();
    let texts: Vec<_> = first.new_messages().map(|message| message.text()).collect();
    let expected = ["a", "a is done", "bb", "bb is done", "ccc", "ccc is done"];
    assert_eq!(texts, expected);
    let made = calls.get();
    let again = team().run(request()).await.unwrap();
    assert_eq!(again.messages(), first.messages());
    assert_eq!(calls.get(), made, "every call is answered from the journal");
}
