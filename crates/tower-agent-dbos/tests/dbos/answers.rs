//! A question of a run in DBOS is answered once, and not by everybody.

use tower_agent_dbos::Worker;

use super::Cluster;
use super::clerks::clerks;

#[tokio::test(flavor = "multi_thread")]
async fn an_answer_counts_once_in_each_case() {
    let Some(cluster) = Cluster::start().await else {
        return;
    };
    let engine = &cluster.engine;
    let clerks = clerks(&cluster.journal);
    let worker = clerks
        .iter()
        .fold(Worker::builder(engine, "one"), |worker, clerk| {
            worker.agent(clerk.agent.clone())
        });
    let worker = worker.start().await.unwrap();
    for clerk in &clerks {
        let go_on = clerk.check(async |key, next| {
            let run = match next {
                Ok(request) => engine.start(clerk.agent.name(), request).await,
                Err(answers) => engine.resume(key, answers).await,
            };
            let run = run.map_err(|error| error.to_string())?;
            run.end().await.map_err(|error| error.to_string())
        });
        go_on.await;
    }
    worker.stop().await.unwrap();
}
