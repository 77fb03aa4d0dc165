//! When a run stops rather than going on wrongly.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use serde_json::{Value, json};
use tower_agent::callback::{Bundle, on_agent_error};
use tower_agent::{
    Agent, AgentRequest, AgentResponse, Effect, EndReason, Error, ErrorKind, Message, Recovery,
    Resolution, Tool, ToolResponse,
};
use tower_agent_durable::journal::{
    Durable, Input, Intent, Journal, JournalError, OpenRun, RunEnd, RunStatus, StepId, StepLease,
    StepRecord, StepState, UnfinishedStep,
};
use tower_agent_durable::{Sqlite, StoreError};
use tower_agent_middleware::approval::{Approval, Decision};
use tower_agent_middleware::budget::{Account, Budget, Limits};
use tower_agent_middleware::retry::CallRetryLayer;

use crate::support::folder::Folder;
use crate::support::{Count, calling, counting, durable, journal_error, request, saying, waiting};

#[tokio::test]
async fn a_changed_program_is_told_what_differs_and_where() {
    let database = Sqlite::in_memory().await.unwrap();
    let pay = Count::default();
    let agent = |instructions: &'static str| {
        durable(calling(&["pay"], &Count::default()), database.clone())
            .tool(counting("pay", Effect::Mutating, &pay))
            .instructions(instructions)
            .build()
            .unwrap()
    };
    agent("Be brief.").run(request()).await.unwrap();
    let error = agent("Be long.").run(request()).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Aborted);
    let JournalError::NonDeterminism { step, part } = journal_error(&error) else {
        panic!("{error}")
    };
    assert_eq!(
        (step.to_string(), &**part),
        (
            "model call 0 of `agent` in run `run 1`".into(),
            "instructions"
        )
    );
    assert_eq!(pay.get(), 1);
    assert!(agent("Be brief.").run(request()).await.is_ok());
}

#[tokio::test]
async fn a_tool_that_was_added_or_removed_is_named() {
    let (alone, before, after) = ("look", "ask, look", "look, ask");
    for [then, now] in [
        [alone, before],
        [alone, after],
        [before, alone],
        [after, alone],
    ] {
        let database = Sqlite::in_memory().await.unwrap();
        let agent = |names: &'static str| {
            let tools = names
                .split(", ")
                .map(|name| counting(name, Effect::Pure, &Count::default()));
            let models = calling(&["look"], &Count::default());
            durable(models, database.clone())
                .tools(tools)
                .build()
                .unwrap()
        };
        agent(then).run(request()).await.unwrap();
        let error = agent(now).run(request()).await.unwrap_err();
        let JournalError::NonDeterminism { part, .. } = journal_error(&error) else {
            panic!("{error}")
        };
        assert_eq!(&**part, "tool ask", "{then} then, {now} now");
    }
}

/// A journal that fails at one of its operations, before or after it has written.
#[derive(Clone)]
struct Failing {
    inner: Sqlite,
    operation: Arc<AtomicU32>,
    fails_at: u32,
    is_written: bool,
}

impl Failing {
    async fn then<T>(
        &self,
        operation: impl Future<Output = Result<T, JournalError>>,
    ) -> Result<T, JournalError> {
        let fails = self.operation.fetch_add(1, Ordering::SeqCst) + 1 == self.fails_at;
        if fails && !self.is_written {
            return Err(StoreError::database("disk full").into());
        }
        let done = operation.await;
        if fails {
            Err(StoreError::database("connection lost").into())
        } else {
            done
        }
    }
}

impl Journal for Failing {
    async fn start(&self, input: &Input) -> Result<OpenRun, JournalError> {
        self.then(self.inner.start(input)).await
    }

    async fn earlier_steps(&self, run: &OpenRun) -> Result<Vec<StepId>, JournalError> {
        self.inner.earlier_steps(run).await
    }

    async fn begin(
        &self,
        run: &OpenRun,
        step: &StepId,
        intent: &Intent,
    ) -> Result<StepState, JournalError> {
        self.then(self.inner.begin(run, step, intent)).await
    }

    async fn begin_again(&self, lease: StepLease) -> Result<StepLease, JournalError> {
        self.then(self.inner.begin_again(lease)).await
    }

    async fn commit(&self, lease: &StepLease, record: &StepRecord) -> Result<(), JournalError> {
        self.then(self.inner.commit(lease, record)).await
    }

    async fn release(&self, lease: &StepLease) -> Result<(), JournalError> {
        self.then(self.inner.release(lease)).await
    }

    async fn end(&self, run: &OpenRun, end: &RunEnd) -> Result<(), JournalError> {
        self.then(self.inner.end(run, end)).await
    }
}

/// Starts the run again after so many payments, and answers what it asks about one.
async fn started_again(agent: impl Fn() -> Agent, journal: &Sqlite, paid: u32) -> AgentResponse {
    let response = agent().run(request()).await.unwrap();
    let [interrupt] = response.interrupts() else {
        return response;
    };
    let answer = match paid {
        0 => UnfinishedStep::RunAgain,
        _ => UnfinishedStep::Done(json!("pay done")),
    };
    let answer = Resolution::resolved(&interrupt.id, answer);
    let again = journal.runs().request("run 1").await.unwrap();
    agent().run(again.with_resolutions([answer])).await.unwrap()
}

#[tokio::test]
async fn a_run_stops_where_its_journal_fails_and_goes_on_when_it_is_back() {
    let mut stopped = 0;
    for is_written in [false, true] {
        for fails_at in 1.. {
            let inner = Sqlite::in_memory().await.unwrap();
            let (model, pay) = <(Count, Count)>::default();
            let agent = |fails_at: u32| {
                let (inner, operation) = (inner.clone(), Arc::default());
                let journal = Failing {
                    inner,
                    operation,
                    fails_at,
                    is_written,
                };
                durable(calling(&["pay", "look"], &model), journal)
                    .tool(counting("pay", Effect::Mutating, &pay))
                    .tool(counting("look", Effect::Pure, &Count::default()))
                    .build()
                    .unwrap()
            };
            let Err(error) = agent(fails_at).run(request()).await else {
                break;
            };
            assert!(
                matches!(journal_error(&error), JournalError::Store(_)),
                "{error}"
            );
            assert!(
                error.message().starts_with("the journal failed: "),
                "{error}"
            );
            stopped += 1;
            // Nothing was done without a journal.
            let (made, paid) = (model.get(), pay.get());
            let response = started_again(|| agent(0), &inner, paid).await;
            assert_eq!(
                (response.text(), pay.get()),
                ("Done.".to_owned(), 1),
                "at {fails_at}"
            );
            assert!(
                made <= 3 && model.get() <= 4,
                "{made}, {} calls",
                model.get()
            );
        }
    }
    // The start, the end, and both ends of 5 steps, twice.
    assert_eq!(stopped, 24);
}

#[tokio::test]
async fn a_layer_that_swallows_the_error_of_a_journal_ends_no_run() {
    let mut stopped = 0;
    for fails_at in 2.. {
        let (inner, pay) = (Sqlite::in_memory().await.unwrap(), Count::default());
        let operation = Arc::default();
        let journal = Failing {
            inner: inner.clone(),
            operation,
            fails_at,
            is_written: true,
        };
        let sorry = |result: Result<AgentResponse, Error>| {
            let sorry = || AgentResponse::new([Message::assistant("Sorry.")]);
            Ok::<_, Error>(result.unwrap_or_else(|_| sorry()))
        };
        let agent = durable(calling(&["pay"], &Count::default()), journal)
            .tool(counting("pay", Effect::Mutating, &pay))
            .agent_layer(tower::util::MapResultLayer::new(sorry))
            .build()
            .unwrap();
        let Err(error) = agent.run(request()).await else {
            break;
        };
        assert!(
            matches!(journal_error(&error), JournalError::Store(_)),
            "{error}"
        );
        let status = inner.runs().get("run 1").await.unwrap().status;
        let (is_end, ends) = (fails_at == 8, RunStatus::Completed);
        assert_eq!(
            status,
            if is_end { ends } else { RunStatus::Running },
            "at {fails_at}"
        );
        stopped += 1;
    }
    // Both ends of 3 steps, and the end.
    assert_eq!(stopped, 7);
}

#[tokio::test]
async fn a_layer_that_swallows_the_error_of_a_journal_in_a_sub_agent_answers_no_call() {
    let mut stopped = 0;
    for is_written in [false, true] {
        for fails_at in 2.. {
            let (inner, pay) = (Sqlite::in_memory().await.unwrap(), Count::default());
            let agent = |fails_at: u32| {
                let (inner, operation) = (inner.clone(), Arc::default());
                let journal = Failing {
                    inner,
                    operation,
                    fails_at,
                    is_written,
                };
                let sorry = |result: Result<ToolResponse, Error>| {
                    Ok::<_, Error>(result.unwrap_or_else(|_| ToolResponse::new("Sorry.")))
                };
                let worker = Agent::builder(calling(&["pay"], &Count::default())).name("worker");
                let worker = worker
                    .tool(counting("pay", Effect::Mutating, &pay))
                    .build()
                    .unwrap();
                durable(calling(&["worker"], &Count::default()), journal)
                    .tool(worker.into_tool("Works."))
                    .tool_layer(tower::util::MapResultLayer::new(sorry))
                    .build()
                    .unwrap()
            };
            let Err(error) = agent(fails_at).run(request()).await else {
                break;
            };
            assert!(
                matches!(journal_error(&error), JournalError::Store(_)),
                "{error}"
            );
            let paid = pay.get();
            let response = started_again(|| agent(0), &inner, paid).await;
            let told: Vec<_> = response
                .messages()
                .iter()
                .flat_map(Message::tool_results)
                .collect();
            let told: Vec<_> = told.iter().map(|result| result.text()).collect();
            assert_eq!(
                (told, pay.get()),
                (vec!["Done.".to_owned()], 1),
                "at {fails_at}"
            );
            stopped += 1;
        }
    }
    // Both ends of 6 steps, and the end, twice.
    assert_eq!(stopped, 26);
}

#[tokio::test]
async fn a_budget_is_charged_once_for_what_a_sub_agent_did_in_another_process() {
    // The journal fails when the call of the sub-agent has ended, or the one after it.
    for (fails_at, completes_elsewhere) in [(9, false), (9, true), (11, false), (11, true)] {
        let inner = Sqlite::in_memory().await.unwrap();
        let agent = |fails_at: u32, account: &Account| {
            let journal = Failing {
                inner: inner.clone(),
                operation: Arc::default(),
                fails_at,
                is_written: false,
            };
            let looks = counting("look", Effect::Pure, &Count::default());
            let worker = Agent::builder(calling(&["look"], &Count::default())).name("worker");
            let worker = worker.tool(looks).build().unwrap();
            let budget = Budget::of(account.clone());
            let budget = Bundle::new().on_agent(budget.clone()).on_model(budget);
            durable(calling(&["worker"], &Count::default()), journal)
                .tool(worker.into_tool("Works."))
                .global_callbacks(budget)
                .build()
                .unwrap()
        };
        let account = || Account::new(Limits::new().model_calls(100));
        let (one, other, third) = (account(), account(), account());
        agent(fails_at, &one).run(request()).await.unwrap_err();
        if completes_elsewhere {
            agent(0, &other).run(request()).await.unwrap();
        }
        // Of the boss two, and of the worker two.
        for account in [&one, &other, &third] {
            for _ in 0..2 {
                agent(0, account).run(request()).await.unwrap();
                assert_eq!(account.used().model_calls, 4, "at {fails_at}");
            }
        }
    }
}

#[tokio::test]
async fn a_database_that_is_closed_in_the_middle_stops_the_run() {
    let folder = Folder::new("closed-in-the-middle");
    let database = Sqlite::open(folder.file("runs.db")).await.unwrap();
    let pay = Count::default();
    let closes = {
        let (database, pay) = (database.clone(), pay.clone());
        Tool::function("pay", "Does it.", move |_: Value| {
            let (database, pay) = (database.clone(), pay.clone());
            async move {
                pay.one();
                database.close().await;
                "paid"
            }
        })
    };
    let models = Count::default();
    let agent = durable(calling(&["pay"], &models), database)
        .tool(closes)
        .build()
        .unwrap();
    let error = agent.run(request()).await.unwrap_err();
    assert!(
        matches!(journal_error(&error), JournalError::Store(_)),
        "{error}"
    );
    assert_eq!((pay.get(), models.get()), (1, 1));

    let database = Sqlite::open(folder.file("runs.db")).await.unwrap();
    let pays = counting("pay", Effect::Mutating, &pay);
    let agent = durable(calling(&["pay"], &models), database)
        .tool(pays)
        .build()
        .unwrap();
    let paused = agent.run(request()).await.unwrap();
    assert_eq!(paused.interrupts()[0].reason, UnfinishedStep::REASON);
    assert_eq!((pay.get(), models.get()), (1, 1));
}

#[tokio::test]
async fn a_finished_call_is_recorded_while_layers_around_it_wait() {
    let database = Sqlite::in_memory().await.unwrap();
    let pay = Count::default();
    let agent = |tool: Tool| {
        let agent = durable(calling(&["pay"], &Count::default()), database.clone());
        agent.tool(tool).on_tool(Approval::of_tools(["pay"]))
    };
    let paused = agent(counting("pay", Effect::Mutating, &pay))
        .build()
        .unwrap()
        .run(request())
        .await
        .unwrap();
    let approval = paused.interrupts()[0].id.clone();
    let approved = || Resolution::resolved(&approval, Decision::Approve);
    let with = |paused: &AgentResponse, answer: Resolution| {
        let next = AgentRequest::resume(paused.checkpoint()).with_resolutions([answer]);
        next.with_run_id("run 1")
    };
    let (tool, _, has_begun) = waiting(&pay);
    let lost = agent(tool).build().unwrap();
    let run = tokio::spawn(lost.run(with(&paused, approved())));
    has_begun.await.unwrap();
    run.abort();

    // One answer in each request. The program has another guard since.
    let audit = Approval::of_tools(["pay"]).by_role("audit");
    let agent = agent(counting("pay", Effect::Mutating, &pay)).on_tool(audit);
    let agent = agent.build().unwrap();
    let asked = agent.run(with(&paused, approved())).await.unwrap();
    let question = &asked.interrupts()[0];
    assert_eq!(question.name, "unfinished agent/m1.0 1");
    let id = &question.id;
    let done = Resolution::resolved(id, UnfinishedStep::Done(json!("paid")));
    let asked = agent.run(with(&asked, done)).await.unwrap();
    let [audited] = asked.interrupts() else {
        panic!("{asked:?}")
    };
    assert_eq!(audited.answerer.role(), Some("audit"));
    let yes = Resolution::resolved(&audited.id, Decision::Approve);
    let response = agent.run(with(&asked, yes)).await.unwrap();
    let result = response.messages()[2].tool_results().next().unwrap().text();
    assert_eq!(
        (response.text(), &*result, pay.get()),
        ("Done.".into(), "paid", 1)
    );
}

#[tokio::test]
async fn another_request_is_refused_until_the_run_has_ended() {
    let database = Sqlite::in_memory().await.unwrap();
    let pay = Count::default();
    let (tool, _go_on, has_begun) = waiting(&pay);
    let models = Count::default();
    let agent = durable(calling(&["pay"], &models), database.clone()).tool(tool);
    let agent = agent.build().unwrap();
    let run = tokio::spawn(agent.run(request()));
    has_begun.await.unwrap();
    run.abort();
    let other = || AgentRequest::new("Something else.").with_run_id("run 1");
    let error = agent.run(other()).await.unwrap_err();
    assert!(
        matches!(journal_error(&error), JournalError::OtherRequest { .. }),
        "{error}"
    );

    let paused = agent.run(request()).await.unwrap();
    assert_eq!(paused.interrupts().len(), 1);
    // The user goes on without an answer.
    let next = AgentRequest::resume(paused.checkpoint()).with_message("Never mind.");
    let next = agent.run(next.with_run_id("run 1")).await.unwrap();
    assert_eq!((next.text(), pay.get()), ("Done.".to_owned(), 1));
}

#[tokio::test]
async fn a_mutating_tool_whose_time_has_run_out_is_asked_about() {
    let database = Sqlite::in_memory().await.unwrap();
    let pay = Count::default();
    let agent = || {
        let pay = pay.clone();
        let slow = Tool::function("pay", "Does it.", move |_: Value| {
            pay.one();
            Err::<(), _>(Error::new(ErrorKind::Timeout, "too slow"))
        });
        let model = calling(&["pay"], &Count::default());
        durable(model, database.clone()).tool(slow).build().unwrap()
    };
    let paused = agent().run(request()).await.unwrap();
    let EndReason::Interrupted(interrupts) = paused.end_reason() else {
        panic!()
    };
    assert_eq!(interrupts[0].payload["tool"], "pay");
    assert!(interrupts[0].payload["idempotency_key"].is_string());

    let answer = async |answer: Value| {
        let id = &database.runs().get("run 1").await.unwrap().interrupts[0].id;
        let next = database.runs().request("run 1").await.unwrap();
        let next = next.with_resolutions([Resolution::resolved(id, answer)]);
        agent().run(next).await
    };
    // An answer that cannot be read is refused, and one that lets it run is for one attempt.
    let refused = answer(json!({ "perhaps": true })).await.unwrap_err();
    assert!(matches!(
        journal_error(&refused),
        JournalError::Unfit { .. }
    ));
    assert_eq!(pay.get(), 1);
    let again = answer(UnfinishedStep::RunAgain.into()).await.unwrap();
    assert_eq!(
        (again.interrupts()[0].name.as_str(), pay.get()),
        ("unfinished agent/m1.0 2", 2)
    );
    let closed = UnfinishedStep::Failed("the bank is closed".into());
    let failed = answer(closed.into()).await.unwrap();
    let told = failed
        .messages()
        .iter()
        .flat_map(|message| message.tool_results())
        .next()
        .unwrap()
        .text();
    assert_eq!(
        (told.as_str(), pay.get()),
        ("tool failed: the bank is closed", 2)
    );
}

#[tokio::test]
async fn an_agent_that_is_repeated_from_outside_its_steps_stops() {
    let database = Sqlite::in_memory().await.unwrap();
    let models = Count::default();
    let fails = {
        let models = models.clone();
        tower::service_fn(move |_: tower_agent::ModelRequest| {
            models.one();
            async {
                Err::<tower_agent::ModelResponse, _>(Error::new(ErrorKind::Overloaded, "busy"))
            }
        })
    };
    let again = on_agent_error(|_, _| Recovery::Retry);
    let agent = durable(fails, database).on_agent(again).build().unwrap();
    let error = agent.run(request()).await.unwrap_err();
    assert!(
        matches!(journal_error(&error), JournalError::Repeated { .. }),
        "{error}"
    );
    assert_eq!(models.get(), 1);
}

/// A row of the guide's table of orders.
#[tokio::test]
async fn a_retry_belongs_inside_the_journal_around_the_model_and_not_around_the_agent() {
    for is_around_agent in [true, false] {
        let database = Sqlite::in_memory().await.unwrap();
        let models = Count::default();
        let fails_once = {
            let models = models.clone();
            tower::service_fn(move |_: tower_agent::ModelRequest| {
                let is_first = models.one() == 1;
                async move {
                    if is_first {
                        return Err(Error::new(ErrorKind::Overloaded, "busy"));
                    }
                    Ok(tower_agent::ModelResponse::from_text("Done."))
                }
            })
        };
        let retry = CallRetryLayer::new().backoff(Duration::ZERO, Duration::ZERO);
        let agent = durable(fails_once, database);
        let agent = if is_around_agent {
            agent.agent_layer(retry.retry_if(|_| true))
        } else {
            agent.model_layer(retry)
        };
        let agent = agent.build().unwrap();
        let ended = agent.run(request()).await;
        let warnings = agent.explain().warnings();
        if is_around_agent {
            let error = ended.unwrap_err();
            assert!(
                matches!(journal_error(&error), JournalError::Repeated { .. }),
                "{error}"
            );
            let [found] = &warnings[..] else {
                panic!("{warnings:#?}")
            };
            assert_eq!(found.outside, "CallRetryLayer");
            assert_eq!(found.inside, "DurableLayer");
        } else {
            assert_eq!(ended.unwrap().text(), "Done.");
            assert_eq!(warnings, []);
        }
    }
}

#[tokio::test]
async fn a_journal_of_a_sub_agent_alone_is_an_error_when_the_run_begins() {
    let database = Sqlite::in_memory().await.unwrap();
    let worker = durable(saying("Done."), database.clone()).build().unwrap();
    assert!(worker.run(request()).await.is_ok());
    let boss = Agent::builder(calling(&["agent"], &Count::default())).name("boss");
    let boss = boss
        .tool(worker.clone().into_tool("Works."))
        .build()
        .unwrap();
    let error = boss.run("Do it.").await.unwrap_err();
    assert!(
        matches!(journal_error(&error), JournalError::NoRun { .. }),
        "{error}"
    );

    // With one of the whole tree, that is enough.
    let boss = durable(calling(&["worker"], &Count::default()), database.clone());
    let worker = Agent::builder(saying("Done.")).name("worker");
    let worker = worker
        .global_callbacks(Durable::new(database.clone()))
        .build()
        .unwrap();
    let boss = boss.tool(worker.into_tool("Works.")).build().unwrap();
    let other = AgentRequest::new("Do it.").with_run_id("run 2");
    assert_eq!(boss.run(other).await.unwrap().text(), "Done.");
    assert_eq!(database.runs().steps("run 2").await.unwrap().len(), 4);
}

#[tokio::test]
async fn a_layer_that_makes_a_request_of_its_own_makes_the_run_fail() {
    let (database, models) = (Sqlite::in_memory().await.unwrap(), Count::default());
    let anew = |request: AgentRequest| AgentRequest::conversation(request.messages().clone());
    let agent = durable(calling(&[], &models), database);
    let agent = agent
        .agent_layer(tower::util::MapRequestLayer::new(anew))
        .build()
        .unwrap();
    let error = agent.run(request()).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::InvalidRequest);
    assert!(
        error.message().contains("does not belong to the run"),
        "{error}"
    );
    assert_eq!(models.get(), 0);
}

#[tokio::test]
async fn a_retry_around_the_agent_goes_on_with_the_call_that_failed() {
    let (database, models, pay) = (
        Sqlite::in_memory().await.unwrap(),
        Count::default(),
        Count::default(),
    );
    let fails = Count::default();
    let once =
        tower_agent::callback::before_model(move |request: &mut tower_agent::ModelRequest| {
            if request.messages().len() > 1 && fails.one() == 1 {
                Err(Error::new(ErrorKind::Overloaded, "busy"))
            } else {
                Ok(())
            }
        });
    let agent = durable(calling(&["pay"], &models), database.clone()).on_model(once);
    let agent = agent
        .tool(counting("pay", Effect::Mutating, &pay))
        .build()
        .unwrap();
    let again = request();
    let error = agent.run(again.clone()).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Overloaded);
    assert_eq!(agent.run(again).await.unwrap().text(), "Done.");
    assert_eq!((models.get(), pay.get()), (2, 1));
    assert_eq!(database.runs().steps("run 1").await.unwrap().len(), 3);
}

#[tokio::test]
async fn a_journal_may_come_with_a_run() {
    let database = Sqlite::in_memory().await.unwrap();
    let of_run = || request().with_callbacks(Durable::new(database.clone()));
    let models = Count::default();
    let agent = Agent::builder(calling(&[], &models)).build().unwrap();
    for _ in 0..2 {
        assert_eq!(agent.run(of_run()).await.unwrap().text(), "Done.");
    }
    assert_eq!(models.get(), 1);
    assert_eq!(database.runs().steps("run 1").await.unwrap().len(), 1);
}
