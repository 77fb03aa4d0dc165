//! Serves connections within limits: who reaches the port can open many, send half a request, or
//! read nothing of an answer.

use std::future::Future;
use std::io;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use axum::Router;
use hyper::server::conn::http1;
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::server::graceful::GracefulShutdown;
use hyper_util::service::TowerToHyperService;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Semaphore;
use tokio::time::{Sleep, sleep};

/// The share of the server that a client may take.
#[derive(Clone, Copy)]
pub(crate) struct Limits {
    /// Open at once. Others wait to be accepted.
    pub(crate) connections: usize,
    /// The time in which the head of a request has to arrive, the first one or the next.
    pub(crate) head: Duration,
    /// The time in which its body has to arrive.
    pub(crate) body: Duration,
    /// The time in which a client has to take some of what was written.
    pub(crate) write: Duration,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            connections: 10_000,
            head: Duration::from_secs(10),
            body: Duration::from_secs(30),
            write: Duration::from_secs(60),
        }
    }
}

/// Serves until `stop`, and then what has begun.
pub(crate) async fn serve(
    listener: TcpListener,
    app: Router,
    limits: Limits,
    stop: impl Future<Output = ()>,
) {
    let connections = GracefulShutdown::new();
    let places = Arc::new(Semaphore::new(limits.connections));
    let mut http = http1::Builder::new();
    // Without a timer there is no limit for the head.
    http.timer(TokioTimer::new())
        .header_read_timeout(limits.head);
    let mut stop = pin!(stop);
    loop {
        let accepted = async {
            // The semaphore is never closed.
            let place = places.clone().acquire_owned().await;
            listener.accept().await.map(|(socket, _)| (place, socket))
        };
        let accepted = tokio::select! {
            accepted = accepted => accepted,
            () = &mut stop => break,
        };
        let (place, socket) = match accepted {
            Ok(accepted) => accepted,
            Err(error) => {
                // Such as too many open files, which some other connection's end mends.
                eprintln!("a connection was not accepted: {error}");
                sleep(Duration::from_secs(1)).await;
                continue;
            }
        };
        // Sends each piece of a stream as it comes. The kernel would wait for the client to confirm
        // the piece before, which takes 40 ms.
        if let Err(error) = socket.set_nodelay(true) {
            eprintln!("pieces may be late: {error}");
        }
        let socket = TokioIo::new(Socket::new(socket, limits.write));
        let service = TowerToHyperService::new(app.clone());
        let connection = connections.watch(http.serve_connection(socket, service));
        tokio::spawn(async move {
            // A client that breaks off, or is too slow, is no fault of the server.
            drop(connection.await);
            drop(place);
        });
    }
    connections.shutdown().await;
}

/// A connection that fails once its client has taken nothing for too long.
struct Socket {
    inner: TcpStream,
    patience: Duration,
    /// Set while the client has to take something.
    waits: Option<Pin<Box<Sleep>>>,
}

impl Socket {
    fn new(inner: TcpStream, patience: Duration) -> Self {
        Self {
            inner,
            patience,
            waits: None,
        }
    }

    /// Writes, and fails if that has waited for too long.
    fn write<T>(
        &mut self,
        cx: &mut Context<'_>,
        write: impl FnOnce(Pin<&mut TcpStream>, &mut Context<'_>) -> Poll<io::Result<T>>,
    ) -> Poll<io::Result<T>> {
        let written = write(Pin::new(&mut self.inner), cx);
        if written.is_ready() {
            self.waits = None;
            return written;
        }
        let patience = self.patience;
        let waits = self.waits.get_or_insert_with(|| Box::pin(sleep(patience)));
        ready!(waits.as_mut().poll(cx));
        Poll::Ready(Err(io::ErrorKind::TimedOut.into()))
    }
}

impl AsyncRead for Socket {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.inner).poll_read(cx, buffer)
    }
}

impl AsyncWrite for Socket {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        self.write(cx, |socket, cx| socket.poll_write(cx, bytes))
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        self.write(cx, |socket, cx| socket.poll_write_vectored(cx, bytes))
    }

    fn is_write_vectored(&self) -> bool {
        self.inner.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.inner).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.inner).poll_shutdown(cx)
    }
}
