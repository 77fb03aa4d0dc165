//! A worker is killed by the system that takes an answer. Another one goes on: it is paid once, for
//! the right user, and everybody is told.

use std::net::Ipv4Addr;
use std::path::PathBuf;

use test_support::process::free_port;
use tokio::net::TcpListener;
use tower::{ServiceExt, service_fn};
use tower_agent::AgentRequest;
use tower_agent_durable::journal::RunKey;
use tower_agent_restate::{Engine, Worker};

use super::balancer::Balancer;
use super::clerks::{pays_once, stopping};
use super::serve;
use super::server::Server;
use crate::support::folder::Folder;
use crate::support::stops::{Point, Stops, Victim};

const FOLDER: &str = "TOWER_AGENT_TEST_KILLED_ANSWERS";
const INGRESS: &str = "TOWER_AGENT_TEST_KILLED_ANSWERS_INGRESS";
const PORT: &str = "TOWER_AGENT_TEST_KILLED_ANSWERS_PORT";
const POINT: &str = "TOWER_AGENT_TEST_KILLED_ANSWERS_POINT";

/// The worker: it takes the answer, and stops at its point.
#[test]
fn a_worker_that_takes_an_answer() {
    let Some(folder) = std::env::var_os(FOLDER) else {
        return;
    };
    let number = |name| std::env::var(name).unwrap().parse::<u16>().unwrap();
    let engine = Engine::new(&std::env::var(INGRESS).unwrap()).unwrap();
    let point = Point::ALL[usize::from(number(POINT))];
    let stops = Stops::paying_into(&PathBuf::from(folder), Some(point));
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .unwrap();
    runtime.block_on(async {
        let address = (Ipv4Addr::LOCALHOST, number(PORT));
        let listener = TcpListener::bind(address).await.unwrap();
        let agent = stopping(&stops, &engine);
        let agent = service_fn(move |request: AgentRequest| {
            let agent = agent.clone();
            let stops = stops.clone();
            async move {
                stops.come(Point::Given).await;
                agent.oneshot(request).await
            }
        });
        let _worker = Worker::builder(&engine)
            .agent("clerk", agent)
            .start(listener);
        std::future::pending::<()>().await;
    });
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_answer_whose_worker_is_killed_counts_once() {
    let Some(server) = Server::start("restate-killed-answers", &[]) else {
        return;
    };
    let engine = server.engine();
    let balancer = Balancer::start().await;
    let go_on = async |key: &RunKey, next: Result<_, Vec<_>>| {
        let run = match next {
            Ok(request) => engine.start("clerk", request).await,
            Err(answers) => engine.resume(key, answers).await,
        };
        let run = run.map_err(|error| error.to_string())?;
        run.end().await.map_err(|error| error.to_string())
    };
    for (number, point) in Point::ALL.into_iter().enumerate() {
        let folder = Folder::new(&format!("restate-killed-answers-{number}"));
        let root = folder.file("");
        let (worker, address) = serve(
            &engine,
            [stopping(&Stops::paying_into(&root, None), &engine)],
        )
        .await;
        balancer.point_to([address]);
        if number == 0 {
            server.admin().register(balancer.address).await;
        }
        let key = RunKey::new(format!("run {number}")).of("ada");
        let asked = go_on(&key, Ok(key.request("Pay."))).await.unwrap();

        let port = free_port();
        balancer.point_to([(Ipv4Addr::LOCALHOST, port).into()]);
        let variables = [
            (FOLDER, root.clone().into()),
            (INGRESS, server.ingress().into()),
            (PORT, port.to_string().into()),
            (POINT, number.to_string().into()),
        ];
        let kill = async {
            let victim = tokio::task::spawn_blocking(move || {
                Victim::start("killed_answers::a_worker_that_takes_an_answer", &variables)
            });
            drop(victim.await.unwrap());
            balancer.point_to([address]);
        };
        let look = async |key: &RunKey| engine.get(key).await.unwrap().end().await.unwrap();
        pays_once(&key, point, &root, &asked, kill, &go_on, look).await;
        worker.stop().await;
    }
}
