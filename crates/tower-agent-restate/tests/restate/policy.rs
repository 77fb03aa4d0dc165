//! Calls of runs in Restate are decided about by the rules of a business.

use tower_agent_restate::Worker;

use super::balancer::Balancer;
use super::serve;
use super::server::Server;
use super::workers::Runs;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn rules_decide_once_about_a_call_whatever_becomes_of_the_worker() {
    let Some(server) = Server::start("restate-policy", &[]) else {
        return;
    };
    let engine = server.engine();
    let balancer = Balancer::start().await;
    let mut worker = None::<Worker>;
    let work = async |agents: Vec<_>| {
        let is_first = match worker.take() {
            Some(before) => {
                before.stop().await;
                false
            }
            None => true,
        };
        let (other, address) = serve(&engine, agents).await;
        worker = Some(other);
        balancer.point_to([address]);
        if is_first {
            server.admin().register(balancer.address).await;
        }
    };
    let go_on = async |agent: &str, run: &_, next| {
        let run = match next {
            Ok(request) => engine.start(agent, request).await,
            Err(answers) => engine.resume(run, answers).await,
        };
        run.unwrap().end().await.unwrap()
    };
    Runs::new(&engine).check(work, go_on).await;
}
