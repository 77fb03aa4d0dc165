//! Serves until the process is told to stop, as an orchestrator does before it starts the next
//! version.

use std::io;
use std::time::Duration;

use axum::Router;
use tokio::net::TcpListener;
use tower_agent_agui::AgUi;

use crate::terminated::terminated;

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
