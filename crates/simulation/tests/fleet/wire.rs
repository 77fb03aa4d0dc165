//! HTTP over the simulated network.

use std::net::{IpAddr, Ipv4Addr};
use std::time::Duration;

use bytes::Bytes;
use http::{Request, Response};
use http_body_util::Full;
use hyper::body::Incoming;
use hyper_util::rt::TokioIo;
use hyper_util::service::TowerToHyperService;
use tokio::time::timeout;
use tower::Service;
use tower_agent::BoxError;
use turmoil::net::{TcpListener, TcpStream};

/// Where every server listens.
pub(crate) const PORT: u16 = 80;

/// The time after which a server forgets a connection. If its end was lost in a partition, nobody
/// hears of it again, and in a week its port is wanted for another one. Far longer than anybody
/// waits: it is no time limit.
const LIFETIME: Duration = Duration::from_secs(2 * 3600);

/// The name of a host in this network.
pub(crate) type Host = &'static str;

/// Sends a request to the host of its URI, over a connection of its own.
pub(crate) async fn send<B>(request: Request<B>) -> Result<Response<Incoming>, BoxError>
where
    B: http_body::Body<Data: Send, Error: Into<BoxError>> + Send + 'static,
{
    let host = request.uri().host().unwrap_or_default().to_owned();
    let stream = TcpStream::connect((host.as_str(), PORT)).await?;
    let (mut sender, connection) =
        hyper::client::conn::http1::handshake(TokioIo::new(stream)).await?;
    tokio::spawn(async move {
        // An error of the connection is one of its request.
        drop(connection.await);
    });
    let (mut parts, body) = request.into_parts();
    parts.headers.insert(http::header::HOST, host.parse()?);
    parts.uri = parts.uri.path().parse()?;
    Ok(sender
        .send_request(Request::from_parts(parts, body))
        .await?)
}

/// Posts JSON.
pub(crate) async fn post(
    host: Host,
    path: &str,
    headers: &[(&'static str, &str)],
    body: &serde_json::Value,
) -> Result<Response<Incoming>, BoxError> {
    let mut request = Request::post(format!("http://{host}{path}"))
        .header(http::header::CONTENT_TYPE, "application/json");
    for (name, value) in headers {
        request = request.header(*name, *value);
    }
    send(request.body(Full::new(Bytes::from(body.to_string())))?).await
}

/// Serves HTTP until the host crashes.
pub(crate) async fn serve<S, B>(service: S) -> Result<(), BoxError>
where
    S: Service<Request<Incoming>, Response = Response<B>, Error: Into<BoxError>, Future: Send>
        + Clone
        + Send
        + 'static,
    B: http_body::Body<Data: Send, Error: Into<BoxError>> + Send + 'static,
{
    let listener = TcpListener::bind((IpAddr::from(Ipv4Addr::UNSPECIFIED), PORT)).await?;
    loop {
        let (stream, _) = listener.accept().await?;
        let service = TowerToHyperService::new(service.clone());
        tokio::spawn(async move {
            let connection = hyper::server::conn::http1::Builder::new()
                .serve_connection(TokioIo::new(stream), service);
            // A client that is gone is its own concern.
            drop(timeout(LIFETIME, connection).await);
        });
    }
}
