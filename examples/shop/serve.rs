//! Serves until the process is told to stop, as an orchestrator does before it starts the next
//! version.

use std::io;
use std::time::Duration;

use axum::Router;
use tokio::net::TcpListener;
use tower_agent_agui::AgUi;

/// The time that runs have to end. An orchestrator must wait longer before it kills the process.
const GRACE: Duration = Duration::from_secs(10);

pub(crate) async fn serve(listener: TcpListener, app: Router, agui: AgUi) -> io::Result<()> {
    let terminated = terminated()?;
    axum::serve(listener, app)
        .with_graceful_shutdown(async move {
            terminated.await;
            agui.shutdown(GRACE).await;
        })
        .await
}

/// Returns a future that waits for SIGTERM or Ctrl-C, which are caught from now on.
#[cfg(unix)]
fn terminated() -> io::Result<impl Future<Output = ()>> {
    use tokio::signal::unix::{SignalKind, signal};
    let mut terminate = signal(SignalKind::terminate())?;
    let mut interrupt = signal(SignalKind::interrupt())?;
    Ok(async move {
        tokio::select! {
            _ = terminate.recv() => {}
            _ = interrupt.recv() => {}
        }
    })
}

/// Returns a future that waits for Ctrl-C.
#[cfg(not(unix))]
fn terminated() -> io::Result<impl Future<Output = ()>> {
    Ok(async { drop(tokio::signal::ctrl_c().await) })
}
