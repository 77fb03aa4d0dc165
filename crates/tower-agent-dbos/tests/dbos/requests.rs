//! Starting, resuming and cancelling: each takes effect once.

use serde_json::{Value, json};
use std::sync::Arc;
use tokio::sync::Semaphore;
use tower_agent::callback::before_model;
use tower_agent::{
    Agent, AgentRequest, Effect, Error, ErrorKind, Request, Resolution, State, Tool,
};
use tower_agent_dbos::{DbosError, Engine, Worker};
use tower_agent_durable::journal::{Durable, JournalError, RunEnd, RunStatus};
use tower_agent_middleware::approval::{Approval, Decision};

use super::{Cluster, journal_error, text};
use crate::support::{Count, calling, counting};

/// An agent that pays, if it may.
fn agent(cluster: &Cluster, models: &Count, pay: &Count) -> Agent {
    Agent::builder(calling(&["pay"], models))
        .name("clerk")
        .tool(counting("pay", Effect::Mutating, pay))
        .on_tool(Approval::of_tools(["pay"]))
        .global_callbacks(Durable::new(cluster.journal.clone()))
        .build()
        .unwrap()
}

fn request() -> AgentRequest {
    AgentRequest::new("Pay.").with_run_id("invoice/7")
}

fn decide(end: &RunEnd, decision: Decision) -> Vec<Resolution> {
    assert_eq!(end.interrupts().len(), 1, "{end:?}");
    vec![Resolution::resolved(&end.interrupts()[0].id, decision)]
}

#[tokio::test(flavor = "multi_thread")]
async fn a_request_is_made_once_however_often_it_is_delivered() {
    let Some(cluster) = Cluster::start().await else {
        return;
    };
    let (engine, models, pay) = (&cluster.engine, Count::default(), Count::default());
    let worker = Worker::builder(engine, "one").agent(agent(&cluster, &models, &pay));
    let worker = worker.start().await.unwrap();

    // Two starts at once.
    let starts = tokio::join!(
        engine.start("clerk", request()),
        engine.start("clerk", request())
    );
    let (one, other) = (starts.0.unwrap(), starts.1.unwrap());
    let (one, other) = tokio::join!(one.end(), other.end());
    let waiting = one.unwrap();
    assert_eq!(waiting.interrupts(), other.unwrap().interrupts());
    assert_eq!((models.get(), pay.get()), (1, 0));

    // Another process looks at it.
    let other = Engine::connect(&cluster.url, cluster.journal.runs())
        .await
        .unwrap();
    let seen = other.get("invoice/7").await.unwrap();
    assert_eq!(seen.run_id(), "invoice/7");
    assert_eq!(seen.end().await.unwrap().interrupts(), waiting.interrupts());

    // An answer that nobody asked for, and two different ones at once.
    let stray = engine
        .resume("invoice/7", [Resolution::resolved("x", json!(1))])
        .await;
    assert!(stray.unwrap_err().to_string().contains("`x`"));
    let (yes, no) = (
        decide(&waiting, Decision::Approve),
        decide(&waiting, Decision::Reject { reason: None }),
    );
    let (yes_again, no_again) = (yes.clone(), no.clone());
    let resumes = tokio::join!(
        engine.resume("invoice/7", yes),
        engine.resume("invoice/7", no)
    );
    let (mut resumed, refused, again) = match resumes {
        (Ok(resumed), Err(refused)) => (resumed, refused, yes_again),
        (Err(refused), Ok(resumed)) => (resumed, refused, no_again),
        other => panic!("{other:?}"),
    };
    assert!(
        matches!(refused, DbosError::OtherRequest { .. }),
        "{refused}"
    );
    let paid = u32::from(again == decide(&waiting, Decision::Approve));
    // The same answer again, while it works and after it has ended.
    for _ in 0..2 {
        assert_eq!(text(&resumed.end().await.unwrap()), "Done.");
        assert_eq!((models.get(), pay.get()), (2, paid));
        resumed = engine.resume("invoice/7", again.clone()).await.unwrap();
    }

    // The first request again, late.
    let late = engine
        .start("clerk", request())
        .await
        .unwrap()
        .end()
        .await
        .unwrap();
    assert_eq!(late.interrupts(), waiting.interrupts());
    let other = AgentRequest::new("Pay again.").with_run_id("invoice/7");
    let refused = engine.start("clerk", other).await.unwrap_err();
    assert!(
        matches!(refused, DbosError::OtherRequest { .. }),
        "{refused}"
    );
    assert_eq!((models.get(), pay.get()), (2, paid));
    let status = cluster
        .journal
        .runs()
        .get("invoice/7")
        .await
        .unwrap()
        .status;
    assert_eq!(status, RunStatus::Completed);
    worker.stop().await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_run_that_has_failed_goes_on_with_the_call_that_failed() {
    let Some(cluster) = Cluster::start().await else {
        return;
    };
    let (engine, models, pay) = (&cluster.engine, Count::default(), Count::default());
    let works = Arc::new(std::sync::atomic::AtomicBool::new(false));
    let broken = {
        let works = works.clone();
        before_model(move |request| {
            let works = works.load(std::sync::atomic::Ordering::SeqCst);
            match request.context().iteration() {
                1 if !works => Err(Error::new(ErrorKind::Auth, "no key")),
                _ => Ok(()),
            }
        })
    };
    let agent = Agent::builder(calling(&["pay"], &models))
        .name("clerk")
        .tool(counting("pay", Effect::Mutating, &pay))
        .on_model(broken)
        .global_callbacks(Durable::new(cluster.journal.clone()))
        .build()
        .unwrap();
    let worker = Worker::builder(engine, "one")
        .agent(agent)
        .start()
        .await
        .unwrap();
    let state = || State::from_iter([("user".to_owned(), json!("ann"))]);
    let first = engine
        .start("clerk", request().with_state(state()))
        .await
        .unwrap();
    for _ in 0..2 {
        let RunEnd::Failed(error) = first.end().await.unwrap() else {
            panic!()
        };
        assert_eq!(error.kind(), ErrorKind::Auth);
    }
    works.store(true, std::sync::atomic::Ordering::SeqCst);
    let again = tokio::join!(
        engine.start("clerk", request().with_state(state())),
        engine.resume("invoice/7", []),
    );
    assert_eq!(text(&again.0.unwrap().end().await.unwrap()), "Done.");
    assert_eq!(text(&again.1.unwrap().end().await.unwrap()), "Done.");
    assert_eq!((models.get(), pay.get()), (2, 1));
    worker.stop().await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_run_that_was_cancelled_stays_cancelled() {
    let Some(cluster) = Cluster::start().await else {
        return;
    };
    let (engine, models, pay) = (&cluster.engine, Count::default(), Count::default());
    let is_cancelled = async |run: &str| {
        let start = AgentRequest::new("Pay.").with_run_id(run);
        let started = engine.start("clerk", start).await.unwrap_err();
        assert!(
            matches!(journal_error(&started), JournalError::Cancelled { .. }),
            "{started}"
        );
        let resumed = engine.resume(run, []).await.unwrap_err();
        assert!(
            matches!(journal_error(&resumed), JournalError::Cancelled { .. }),
            "{resumed}"
        );
        let ended = engine.get(run).await.unwrap().end().await;
        ended.map_err(|error| {
            assert!(
                matches!(journal_error(&error), JournalError::Cancelled { .. }),
                "{error}"
            );
        })
    };
    let unknown = engine.cancel("x").await.unwrap_err();
    assert!(
        matches!(journal_error(&unknown), JournalError::UnknownRun { .. }),
        "{unknown}"
    );

    // Before a worker has begun.
    engine
        .start("clerk", request().with_run_id("queued"))
        .await
        .unwrap();
    engine.cancel("queued").await.unwrap();

    // In the middle of a step.
    let (is_in, goes_on) = (Arc::new(Semaphore::new(0)), Arc::new(Semaphore::new(0)));
    let slow = {
        let (is_in, goes_on) = (is_in.clone(), goes_on.clone());
        let tool = move |_: Value| {
            let (is_in, goes_on) = (is_in.clone(), goes_on.clone());
            async move {
                is_in.add_permits(1);
                goes_on.acquire().await.unwrap().forget();
                "done"
            }
        };
        Tool::function("slow", "Takes its time.", tool)
    };
    let slow = Agent::builder(calling(&["slow"], &models))
        .name("slow")
        .tool(slow)
        .global_callbacks(Durable::new(cluster.journal.clone()))
        .build()
        .unwrap();
    let worker = Worker::builder(engine, "one")
        .agent(slow)
        .agent(agent(&cluster, &models, &pay));
    let worker = worker.start().await.unwrap();
    let running = engine
        .start("slow", request().with_run_id("running"))
        .await
        .unwrap();
    is_in.acquire().await.unwrap().forget();
    assert_eq!(models.get(), 1);
    engine.cancel("running").await.unwrap();
    goes_on.add_permits(1);
    let ended = running.end().await.unwrap_err();
    assert!(
        matches!(journal_error(&ended), JournalError::Cancelled { .. }),
        "{ended}"
    );
    is_cancelled("running").await.unwrap_err();

    // While it waits.
    let waiting = engine
        .start("clerk", request().with_run_id("waiting"))
        .await
        .unwrap();
    let end = waiting.end().await.unwrap();
    engine.cancel("waiting").await.unwrap();
    let resumed = engine
        .resume("waiting", decide(&end, Decision::Approve))
        .await
        .unwrap_err();
    assert!(
        matches!(journal_error(&resumed), JournalError::Cancelled { .. }),
        "{resumed}"
    );
    is_cancelled("waiting").await.unwrap();
    is_cancelled("queued").await.unwrap_err();
    worker.stop().await.unwrap();
    // The worker has let the queued one be: each of the others has asked the model once.
    assert_eq!((models.get(), pay.get()), (2, 0));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_run_that_was_deleted_is_gone_and_its_id_can_be_used_again() {
    let Some(cluster) = Cluster::start().await else {
        return;
    };
    let (engine, models, pay) = (&cluster.engine, Count::default(), Count::default());
    // Before any worker has begun it.
    engine.start("clerk", request()).await.unwrap();
    engine.delete("invoice/7").await.unwrap();
    let gone = engine.delete("invoice/7").await.unwrap_err();
    assert!(matches!(
        journal_error(&gone),
        JournalError::UnknownRun { .. }
    ));

    let worker = Worker::builder(engine, "one").agent(agent(&cluster, &models, &pay));
    let worker = worker.start().await.unwrap();
    let waiting = engine.start("clerk", request()).await.unwrap();
    waiting.end().await.unwrap();
    engine.delete("invoice/7").await.unwrap();
    let gone = engine.get("invoice/7").await.unwrap_err();
    assert!(matches!(
        journal_error(&gone),
        JournalError::UnknownRun { .. }
    ));
    let database = sqlx::PgPool::connect(&cluster.url).await.unwrap();
    for table in ["dbos.workflow_status", "tower_agent_runs"] {
        let count = sqlx::AssertSqlSafe(format!("SELECT count(*) FROM {table}"));
        let (count,): (i64,) = sqlx::query_as(count).fetch_one(&database).await.unwrap();
        assert_eq!(count, 0, "{table}");
    }

    // Another request under the same id.
    let again = AgentRequest::new("Pay more.").with_run_id("invoice/7");
    let end = engine.start("clerk", again).await.unwrap().end().await;
    let yes = decide(&end.unwrap(), Decision::Approve);
    let end = engine.resume("invoice/7", yes).await.unwrap().end().await;
    assert_eq!(text(&end.unwrap()), "Done.");
    assert_eq!((models.get(), pay.get()), (3, 1));
    worker.stop().await.unwrap();
}
