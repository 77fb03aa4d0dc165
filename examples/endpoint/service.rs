//! The service around the endpoint: its layers, and how it stops.

use std::io;
use std::time::Duration;

use axum::Router;
use axum::http::StatusCode;
use axum::routing::post;
use tokio::net::TcpListener;
use tokio_util::sync::CancellationToken;
use tower::ServiceBuilder;
use tower_agent::Agent;
use tower_http::catch_panic::CatchPanicLayer;
use tower_http::limit::RequestBodyLimitLayer;
use tower_http::timeout::TimeoutLayer;

use crate::chat::{Chat, chat};

/// The time for the first output. tower-http's limit ends with the head of the answer, which is
/// sent with it; the run is then dropped.
const FIRST_OUTPUT: Duration = Duration::from_secs(30);

/// The time that runs have to end once the server is told to stop.
const GRACE: Duration = Duration::from_secs(10);

/// The size of a question, in bytes.
const QUESTION: usize = 16 * 1024;

/// Returns the routes, inside the layers that any other endpoint has, too.
pub(crate) fn routes(chat_with: Chat) -> Router {
    let layers = ServiceBuilder::new()
        .layer(CatchPanicLayer::new())
        .layer(TimeoutLayer::with_status_code(
            StatusCode::GATEWAY_TIMEOUT,
            FIRST_OUTPUT,
        ))
        .layer(RequestBodyLimitLayer::new(QUESTION));
    Router::new()
        .route("/chat", post(chat))
        .layer(layers)
        .with_state(chat_with)
}

/// Serves until `terminated`, and then until the runs have ended or [`GRACE`] is over.
pub(crate) async fn serve(
    listener: TcpListener,
    agent: Agent,
    terminated: impl Future<Output = ()> + Send + 'static,
) -> io::Result<()> {
    let stop = CancellationToken::new();
    let routes = routes(Chat {
        agent,
        stop: stop.clone(),
    });
    axum::serve(listener, routes)
        .with_graceful_shutdown(async move {
            terminated.await;
            tokio::spawn(async move {
                tokio::time::sleep(GRACE).await;
                stop.cancel();
            });
        })
        .await
}
