//! Calls of runs in DBOS are decided about by the rules of a business.

use tower_agent_dbos::Worker;

use super::Cluster;
use super::workers::Runs;

#[tokio::test(flavor = "multi_thread")]
async fn rules_decide_once_about_a_call_whatever_becomes_of_the_worker() {
    let Some(cluster) = Cluster::start().await else {
        return;
    };
    let engine = &cluster.engine;
    let mut worker = None::<Worker>;
    let mut number = 0;
    let work = async |agents: Vec<_>| {
        if let Some(worker) = worker.take() {
            worker.stop().await.unwrap();
        }
        number += 1;
        let builder = Worker::builder(engine, format!("worker {number}"));
        let builder = agents.into_iter().fold(builder, |all, one| all.agent(one));
        worker = Some(builder.start().await.unwrap());
    };
    let go_on = async |agent: &str, run: &_, next| {
        let run = match next {
            Ok(request) => engine.start(agent, request).await,
            Err(answers) => engine.resume(run, answers).await,
        };
        run.unwrap().end().await.unwrap()
    };
    Runs::new(&cluster.journal).check(work, go_on).await;
}
