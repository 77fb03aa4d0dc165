//! A question of a run in Restate is answered once, and not by everybody.

use super::clerks::clerks;
use super::server::Server;
use super::work;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_answer_counts_once_in_each_case() {
    let Some(server) = Server::start("restate-answers", &[]) else {
        return;
    };
    let engine = server.engine();
    let clerks = clerks(&engine);
    let agents = clerks.iter().map(|clerk| clerk.agent.clone());
    let _worker = work(&server, &engine, agents).await;
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
}
