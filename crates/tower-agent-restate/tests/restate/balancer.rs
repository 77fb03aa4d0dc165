//! The address of several workers.

use std::net::{Ipv4Addr, SocketAddr};
use std::sync::{Arc, Mutex};

use tokio::io::copy_bidirectional;
use tokio::net::{TcpListener, TcpStream};
use tokio::task::{AbortHandle, JoinSet};

/// Stands for a load balancer: hands connections to the first worker that takes them.
pub(crate) struct Balancer {
    pub(crate) address: SocketAddr,
    state: Arc<Mutex<State>>,
    accepting: AbortHandle,
}

#[derive(Default)]
struct State {
    workers: Vec<SocketAddr>,
    connections: JoinSet<()>,
}

impl Balancer {
    pub(crate) async fn start() -> Self {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.unwrap();
        let address = listener.local_addr().unwrap();
        let state = Arc::<Mutex<State>>::default();
        let shared = state.clone();
        let accepting = tokio::spawn(async move {
            loop {
                let (client, _) = listener.accept().await.unwrap();
                let workers = shared.lock().unwrap().workers.clone();
                shared
                    .lock()
                    .unwrap()
                    .connections
                    .spawn(forward(client, workers));
            }
        });
        Self {
            address,
            state,
            accepting: accepting.abort_handle(),
        }
    }

    /// Sets the workers, the preferred one first, and cuts all connections.
    pub(crate) fn point_to(&self, workers: impl IntoIterator<Item = SocketAddr>) {
        let mut state = self.state.lock().unwrap();
        state.workers = workers.into_iter().collect();
        state.connections.abort_all();
    }
}

async fn forward(mut client: TcpStream, workers: Vec<SocketAddr>) {
    for worker in workers {
        if let Ok(mut worker) = TcpStream::connect(worker).await {
            client.set_nodelay(true).unwrap();
            worker.set_nodelay(true).unwrap();
            // Whoever hangs up ends it.
            let _ = copy_bidirectional(&mut client, &mut worker).await;
            return;
        }
    }
}

impl Drop for Balancer {
    fn drop(&mut self) {
        self.accepting.abort();
    }
}
