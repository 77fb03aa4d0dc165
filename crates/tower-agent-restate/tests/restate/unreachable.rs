//! A server that cannot be reached, or whose answers are lost.

use std::net::{Ipv4Addr, SocketAddr};
use std::time::Duration;

use test_support::process::free_port;
use tokio::io::{AsyncReadExt, AsyncWriteExt, copy};
use tokio::net::{TcpListener, TcpStream};
use tower_agent::Effect;
use tower_agent_durable::journal::{JournalError, RunEnd};
use tower_agent_restate::{Engine, RestateError};

use super::server::Server;
use super::work;
use crate::support::{Count, calling, counting, durable, journal_error, request};

#[tokio::test]
async fn without_a_server_a_run_stops_before_its_first_call() {
    let silent = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.unwrap();
    let closed = (Ipv4Addr::LOCALHOST, free_port()).into();
    for (address, why) in [
        (silent.local_addr().unwrap(), "did not answer"),
        (closed, "onnect"),
    ] {
        let engine = Engine::new(&format!("http://{address}")).unwrap();
        let (engine, models) = (engine.timeout(Duration::from_millis(200)), Count::default());
        let agent = durable(calling(&[], &models), engine.clone())
            .build()
            .unwrap();
        let error = agent.run(request()).await.unwrap_err();
        assert!(
            matches!(journal_error(&error), JournalError::Store(_)),
            "{error}"
        );
        assert!(error.to_string().contains(why), "{error}");
        let error = engine.start("agent", request()).await.unwrap_err();
        assert!(
            matches!(error, RestateError::Journal(JournalError::Store(_))),
            "{error}"
        );
        assert_eq!(models.get(), 0);
    }
}

/// Loses the first answer of each connection, and with it the connection.
async fn lose_answers(ingress: SocketAddr) -> (SocketAddr, Count) {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.unwrap();
    let (address, lost) = (listener.local_addr().unwrap(), Count::default());
    let count = lost.clone();
    tokio::spawn(async move {
        let mut is_lost = false;
        loop {
            let (client, _) = listener.accept().await.unwrap();
            is_lost = !is_lost;
            tokio::spawn(forward(client, ingress, is_lost.then(|| count.clone())));
        }
    });
    (address, lost)
}

async fn forward(client: TcpStream, ingress: SocketAddr, lost: Option<Count>) {
    let (mut from_client, mut to_client) = client.into_split();
    let (mut from, mut to) = TcpStream::connect(ingress).await.unwrap().into_split();
    let there = tokio::spawn(async move { copy(&mut from_client, &mut to).await });
    let mut answer = vec![0; 65536];
    // One answer, so that the next call has a connection of its own.
    let read = from.read(&mut answer).await.unwrap_or(0);
    match lost {
        Some(lost) if read > 0 => {
            lost.one();
        }
        _ => {
            let _ = to_client.write_all(&answer[..read]).await;
        }
    }
    there.abort();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_call_whose_answer_is_lost_counts_once() {
    let Some(server) = Server::start("restate-lost", &[]) else {
        return;
    };
    let (models, pays) = <(Count, Count)>::default();
    let (ingress, lost) = lose_answers(server.ingress_address()).await;
    let engine = Engine::new(&format!("http://{ingress}")).unwrap();
    let agent = durable(calling(&["pay", "pay"], &models), engine.clone()).tool(counting(
        "pay",
        Effect::Mutating,
        &pays,
    ));
    let _worker = work(&server, &engine, [agent.build().unwrap()]).await;
    let end = engine
        .start("agent", request())
        .await
        .unwrap()
        .end()
        .await
        .unwrap();
    assert!(matches!(end, RunEnd::Completed { .. }), "{end:?}");
    assert_eq!((models.get(), pays.get()), (3, 2));
    // It was taken over by nobody.
    assert_eq!(engine.info("run 1").await.unwrap().epoch, 1);
    assert!(lost.get() > 5, "{} were lost", lost.get());
}
