//! A connection to a server of PostgreSQL that breaks at a commit.

use std::net::{Ipv4Addr, SocketAddr};
use std::path::PathBuf;
use std::sync::{Arc, Mutex};

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream, UnixStream};

/// The part of a commit that is lost, and with it the connection.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Lost {
    /// The server does not hear of it.
    Request,
    /// It was made, and the client does not hear so.
    Answer,
}

type Break = (Lost, Box<dyn FnOnce() + Send>);

/// Listens on the loopback for clients, and connects them to the server.
pub(crate) struct Proxy {
    pub(crate) address: SocketAddr,
    next: Arc<Mutex<Option<Break>>>,
}

impl Proxy {
    pub(crate) async fn start(socket: PathBuf) -> Self {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.unwrap();
        let (address, next) = (listener.local_addr().unwrap(), Arc::default());
        let breaks: Arc<Mutex<Option<Break>>> = Arc::clone(&next);
        tokio::spawn(async move {
            while let Ok((client, _)) = listener.accept().await {
                // A server that is away is a connection that ends.
                if let Ok(server) = UnixStream::connect(&socket).await {
                    tokio::spawn(carry(client, server, breaks.clone()));
                }
            }
        });
        Self { address, next }
    }

    /// Breaks the connection of the next commit, and then does this.
    pub(crate) fn lose(&self, lost: Lost, then: impl FnOnce() + Send + 'static) {
        *self.next.lock().unwrap() = Some((lost, Box::new(then)));
    }
}

async fn carry(
    mut client: TcpStream,
    mut server: UnixStream,
    next: Arc<Mutex<Option<Break>>>,
) -> std::io::Result<()> {
    let (mut asked, mut answered) = ([0; 16384], [0; 16384]);
    let mut lost = None;
    loop {
        tokio::select! {
            read = client.read(&mut asked) => {
                let asked = &asked[..read?];
                let is_commit = asked.windows(7).any(|window| window == b"COMMIT\0");
                match is_commit.then(|| next.lock().unwrap().take()).flatten() {
                    Some((Lost::Request, then)) => {
                        then();
                        return Ok(());
                    }
                    found => lost = found,
                }
                if asked.is_empty() {
                    return Ok(());
                }
                server.write_all(asked).await?;
            }
            read = server.read(&mut answered) => {
                let answered = &answered[..read?];
                if let Some((_, then)) = lost {
                    then();
                    return Ok(());
                }
                if answered.is_empty() {
                    return Ok(());
                }
                client.write_all(answered).await?;
            }
        }
    }
}
