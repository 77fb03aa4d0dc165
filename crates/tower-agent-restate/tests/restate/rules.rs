//! Starting, resuming, cancelling, and refusals.

use std::net::Ipv4Addr;
use std::time::SystemTime;

use futures::future::join_all;
use serde_json::json;
use tokio::net::TcpListener;
use tower::ServiceExt;
use tower_agent::callback::before_agent;
use tower_agent::{Agent, AgentRequest, Effect, Error, ErrorKind, Resolution, Tool, ToolSet};
use tower_agent_durable::Sqlite;
use tower_agent_durable::journal::{Durable, Input, Journal, JournalError, RunEnd, RunStatus};
use tower_agent_middleware::approval::{Approval, Decision};
use tower_agent_restate::{Engine, RestateError, Worker};

use super::balancer::Balancer;
use super::server::Server;
use super::{serve, work};
use crate::support::waiting;
use crate::support::{Count, calling, counting, durable, request};

fn text(end: &RunEnd) -> String {
    match end {
        RunEnd::Completed { checkpoint, .. } => {
            checkpoint.messages.last().unwrap().text().to_string()
        }
        end => panic!("{end:?}"),
    }
}

fn is<T: std::fmt::Debug>(result: Result<T, RestateError>, what: &str) {
    let error = result.unwrap_err();
    let debug = format!("{error:?}");
    let name = debug.trim_start_matches("Journal(");
    assert!(name.starts_with(what), "{error:?} is not {what}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_request_that_is_handed_in_twice_runs_once() {
    let Some(server) = Server::start("restate-twice", &[]) else {
        return;
    };
    let (engine, models, pays) = (server.engine(), Count::default(), Count::default());
    let (look, go_on, has_begun) = waiting(&Count::default());
    let agent = durable(calling(&["pay", "charge"], &models), engine.clone())
        .tool(look)
        .tool(counting("charge", Effect::Mutating, &pays))
        .on_tool(Approval::of_tools(["charge"]))
        .build()
        .unwrap();
    let _worker = work(&server, &engine, [agent]).await;

    let (one, other) = tokio::join!(
        engine.start("agent", request()),
        engine.start("agent", request())
    );
    has_begun.await.unwrap();
    // Anything else has to wait for its end.
    let more = AgentRequest::new("Do more.").with_run_id("run 1");
    is(engine.start("agent", more).await, "OtherRequest");
    is(
        engine
            .resume("run 1", [Resolution::cancelled("charge")])
            .await,
        "NotAsked",
    );
    go_on.notify_one();
    for handle in [
        one.unwrap(),
        other.unwrap(),
        engine.get("run 1").await.unwrap(),
    ] {
        assert!(matches!(
            handle.end().await.unwrap(),
            RunEnd::Waiting { .. }
        ));
    }
    assert_eq!(models.get(), 2);

    let info = engine.info("run 1").await.unwrap();
    assert_eq!(
        (info.status, info.epoch, &*info.agent),
        (RunStatus::Waiting, 1, "agent")
    );
    let id = &info.interrupts[0].id;
    is(
        engine
            .resume("run 1", [Resolution::resolved("other", json!(1))])
            .await,
        "NotAsked",
    );
    let yes = || [Resolution::resolved(id, Decision::Approve)];
    let (one, other) = tokio::join!(engine.resume("run 1", yes()), engine.resume("run 1", yes()));
    for handle in [one.unwrap(), other.unwrap()] {
        assert_eq!(text(&handle.end().await.unwrap()), "Done.");
    }
    // Also much later, with each of its requests; and who decides otherwise is too late.
    assert_eq!(
        text(
            &engine
                .start("agent", request())
                .await
                .unwrap()
                .end()
                .await
                .unwrap()
        ),
        "Done."
    );
    assert_eq!(
        text(
            &engine
                .resume("run 1", yes())
                .await
                .unwrap()
                .end()
                .await
                .unwrap()
        ),
        "Done."
    );
    is(
        engine.resume("run 1", [Resolution::cancelled(id)]).await,
        "NotAsked",
    );
    assert_eq!((models.get(), pays.get()), (3, 1));
    assert_eq!(engine.info("run 1").await.unwrap().epoch, 2);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_agent_without_the_journal_is_refused_before_it_does_anything() {
    let Some(server) = Server::start("restate-refused", &[]) else {
        return;
    };
    let (engine, models) = (server.engine(), Count::default());
    let agent = |name: &str| Agent::builder(calling(&[], &models)).name(name.to_owned());
    let elsewhere = Durable::new(Sqlite::in_memory().await.unwrap());
    let agents = [
        agent("bare").build().unwrap(),
        agent("elsewhere")
            .global_callbacks(elsewhere)
            .build()
            .unwrap(),
    ];
    let _worker = work(&server, &engine, agents).await;
    for name in ["bare", "elsewhere"] {
        let request = AgentRequest::new("Do it.").with_run_id(name);
        let handle = engine.start(name, request).await.unwrap();
        is(handle.end().await, "OtherJournal");
    }
    let handle = engine.start("nobody", request()).await.unwrap();
    is(handle.end().await, "UnknownAgent");
    assert_eq!(models.get(), 0);
    let mut tools = ToolSet::new();
    tools
        .insert(Tool::function(
            "look",
            "Looks.",
            |_: serde_json::Value| "seen",
        ))
        .unwrap();
    is(
        engine.start("bare", request().with_tools(tools)).await,
        "NotSaved",
    );
    is(engine.get("no run").await, "UnknownRun");
    is(engine.resume("no run", []).await, "UnknownRun");
    is(engine.cancel("no run").await, "UnknownRun");
    is(engine.delete("no run").await, "UnknownRun");
    is(Engine::new("restate:8080"), "Ingress");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_run_that_has_failed_goes_on_when_it_is_started_again() {
    let Some(server) = Server::start("restate-failed", &[]) else {
        return;
    };
    let (engine, models, looks) = (server.engine(), Count::default(), Count::default());
    let (inner, tries) = (calling(&["look"], &models), Count::default());
    let model = tower::service_fn(move |request| {
        let (inner, tries) = (inner.clone(), tries.clone());
        async move {
            match tries.one() {
                2 => Err(Error::new(ErrorKind::Overloaded, "busy")),
                _ => inner
                    .oneshot(request)
                    .await
                    .map_err(|error| Error::from(error.into())),
            }
        }
    });
    let agent = durable(model, engine.clone()).tool(counting("look", Effect::Pure, &looks));
    let _worker = work(&server, &engine, [agent.build().unwrap()]).await;
    let start = async || {
        engine
            .start("agent", request())
            .await
            .unwrap()
            .end()
            .await
            .unwrap()
    };
    let RunEnd::Failed(error) = start().await else {
        panic!("it has not failed")
    };
    assert_eq!(
        (error.kind(), error.message()),
        (ErrorKind::Overloaded, "busy")
    );
    assert_eq!(
        engine.info("run 1").await.unwrap().error.unwrap().message(),
        "busy"
    );
    assert_eq!(text(&start().await), "Done.");
    // It has completed.
    engine.cancel("run 1").await.unwrap();
    assert_eq!(text(&start().await), "Done.");
    assert_eq!((models.get(), looks.get()), (2, 1));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_run_that_was_cancelled_deleted_or_killed_stops_before_its_next_step() {
    let Some(server) = Server::start("restate-cancelled", &[]) else {
        return;
    };
    for how in ["cancel", "delete", "kill"] {
        let (engine, models) = (server.engine(), Count::default());
        let (tool, go_on, has_begun) = waiting(&Count::default());
        let agent = durable(calling(&["pay"], &models), engine.clone()).tool(tool);
        let _worker = work(&server, &engine, [agent.build().unwrap()]).await;
        let request = || AgentRequest::new("Do it.").with_run_id(how);
        let handle = engine.start("agent", request()).await.unwrap();
        has_begun.await.unwrap();
        match how {
            "cancel" => {
                engine.cancel(how).await.unwrap();
                go_on.notify_one();
                is(handle.end().await, "Cancelled");
                is(engine.start("agent", request()).await, "Cancelled");
                assert_eq!(engine.info(how).await.unwrap().status, RunStatus::Cancelled);
            }
            "delete" => {
                engine.delete(how).await.unwrap();
                go_on.notify_one();
                is(handle.end().await, "UnknownRun");
            }
            _ => {
                server.admin().kill_run(how).await;
                is(handle.end().await, "Stopped");
                // Nobody knows if it has paid.
                let end = engine
                    .start("agent", request())
                    .await
                    .unwrap()
                    .end()
                    .await
                    .unwrap();
                assert_eq!(end.interrupts()[0].name, "unfinished agent/m1.0 1");
            }
        }
        assert_eq!(models.get(), 1, "{how}");
    }
}

#[tokio::test]
async fn a_process_of_a_deleted_run_writes_nothing_to_another_run_of_its_id() {
    let Some(server) = Server::start("restate-deleted", &[]) else {
        return;
    };
    let engine = server.engine();
    let _worker = work(&server, &engine, []).await;
    let input = Input::new(&AgentRequest::new("Do it.").with_run_id("run 1")).unwrap();
    let deleted = Journal::start(&engine, &input).await.unwrap();
    engine.delete("run 1").await.unwrap();
    let other = Journal::start(&engine, &input).await.unwrap();
    assert_eq!((deleted.epoch, other.epoch), (1, 1));

    let end = RunEnd::Failed(tower_agent::Error::abort("it is over"));
    let refused = Journal::end(&engine, &deleted, &end).await.unwrap_err();
    assert!(
        matches!(refused, JournalError::UnknownRun { .. }),
        "{refused}"
    );
    assert_eq!(
        engine.info("run 1").await.unwrap().status,
        RunStatus::Running
    );
    Journal::end(&engine, &other, &end).await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_worker_that_stops_drops_its_runs_which_go_on_in_another() {
    let Some(server) = Server::start("restate-stopped", &[]) else {
        return;
    };
    let (engine, balancer) = (server.engine(), Balancer::start().await);
    let (models, pays) = <(Count, Count)>::default();
    let agent = |tool| {
        durable(calling(&["pay"], &models), engine.clone())
            .tool(tool)
            .build()
            .unwrap()
    };
    let (tool, _, has_begun) = waiting(&pays);
    let (one, address) = serve(&engine, [agent(tool)]).await;
    balancer.point_to([address]);
    server.admin().register(balancer.address).await;
    let handle = engine.start("agent", request()).await.unwrap();
    has_begun.await.unwrap();
    one.stop().await;
    let (_other, address) = serve(&engine, [agent(counting("pay", Effect::Mutating, &pays))]).await;
    balancer.point_to([address]);
    let end = handle.end().await.unwrap();
    assert_eq!(end.interrupts()[0].name, "unfinished agent/m1.0 1");
    assert_eq!((models.get(), pays.get()), (1, 1));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn more_runs_than_a_worker_makes_at_once_leave_room_for_their_steps() {
    let limit = ("RESTATE_WORKER__INVOKER__CONCURRENT_INVOCATIONS_LIMIT", "8");
    let Some(server) = Server::start("restate-busy", &[limit]) else {
        return;
    };
    let (engine, models) = (server.engine(), Count::default());
    let agent = durable(calling(&["look"], &models), engine.clone());
    let agent = agent
        .tool(counting("look", Effect::Pure, &Count::default()))
        .build()
        .unwrap();
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.unwrap();
    let address = listener.local_addr().unwrap();
    let _worker = Worker::builder(&engine)
        .agent("agent", agent)
        .concurrency(2)
        .start(listener);
    server.admin().register(address).await;
    let run = async |run: u32| {
        let request = AgentRequest::new("Do it.").with_run_id(format!("run {run}"));
        let handle = engine.start("agent", request).await.unwrap();
        assert_eq!(text(&handle.end().await.unwrap()), "Done.");
    };
    join_all((0..12).map(run)).await;
    assert_eq!(models.get(), 24);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_end_of_a_later_version_is_an_error_that_says_so() {
    let Some(server) = Server::start("restate-later", &[]) else {
        return;
    };
    let (engine, models, pays) = (server.engine(), Count::default(), Count::default());
    let agent = durable(calling(&["pay"], &models), engine.clone())
        .tool(counting("pay", Effect::Mutating, &pays))
        .on_tool(Approval::of_tools(["pay"]))
        .build()
        .unwrap();
    let _worker = work(&server, &engine, [agent]).await;
    let request = AgentRequest::new("Do it.").with_run_id("later");
    let input = Input::new(&request).unwrap();
    let end = engine
        .start("agent", request)
        .await
        .unwrap()
        .end()
        .await
        .unwrap();
    let yes = Resolution::resolved(&end.interrupts()[0].id, Decision::Approve);
    let run = Journal::start(&engine, &input).await.unwrap();
    let process = json!({ "row": run.row(), "epoch": run.epoch });
    let later = json!({ "version": 2, "end": { "something": "else" } }).to_string();
    let end = json!({ "process": process, "status": "waiting", "end": later, "at": SystemTime::UNIX_EPOCH });
    server.call_journal("later", "end", end).await;
    is(engine.resume("later", [yes]).await, "Store(NewerFormat");
    is(engine.info("later").await, "Store(NewerFormat");
    is(
        engine.get("later").await.unwrap().end().await,
        "Store(NewerFormat",
    );
    assert_eq!((models.get(), pays.get()), (1, 0));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_program_that_may_not_go_on_says_why_and_leaves_the_run_waiting() {
    let Some(server) = Server::start("restate-refused", &[]) else {
        return;
    };
    let (engine, pays) = (server.engine(), Count::default());
    let balancer = Balancer::start().await;
    let agent = || {
        durable(calling(&["pay"], &Count::default()), engine.clone())
            .tool(counting("pay", Effect::Mutating, &pays))
            .on_tool(Approval::of_tools(["pay"]))
    };
    let closed =
        before_agent(|_: &mut AgentRequest| Err::<(), _>(Error::new(ErrorKind::Auth, "closed")));
    let (_earlier, at) = serve(&engine, [agent().build().unwrap()]).await;
    let (_later, at_later) = serve(&engine, [agent().on_agent(closed).build().unwrap()]).await;
    balancer.point_to([at]);
    server.admin().register(balancer.address).await;
    let run = engine.start("agent", request()).await.unwrap();
    let asked = run.end().await.unwrap();
    let id = &asked.interrupts()[0].id;
    let yes = || [Resolution::resolved(id, Decision::Approve)];

    balancer.point_to([at_later]);
    for _ in 0..2 {
        let refused = engine.resume("run 1", yes()).await.unwrap();
        let RunEnd::Failed(why) = refused.end().await.unwrap() else {
            panic!("it has gone on");
        };
        assert_eq!((why.kind(), pays.get()), (ErrorKind::Auth, 0));
        let info = engine.info("run 1").await.unwrap();
        assert_eq!(info.status, RunStatus::Waiting);
        assert_eq!(info.interrupts, asked.interrupts());
    }
    balancer.point_to([at]);
    let done = engine.resume("run 1", yes()).await.unwrap();
    assert_eq!(text(&done.end().await.unwrap()), "Done.");
    assert_eq!(pays.get(), 1);
}
