//! An HTTP client that shows every byte, and reads only when asked.

use bytes::Bytes;
use http::{HeaderMap, Request, StatusCode};
use http_body_util::{BodyExt, Full};
use hyper::body::Incoming;
use hyper::client::conn::http1;
use hyper_util::rt::TokioIo;
use serde_json::Value;
use tokio::net::TcpStream;
use tokio::task::JoinHandle;

use super::Served;

/// A response on a connection of its own, which goes away when this is dropped.
pub struct Reply {
    pub status: StatusCode,
    pub headers: HeaderMap,
    body: Incoming,
    connection: JoinHandle<()>,
}

impl Drop for Reply {
    fn drop(&mut self) {
        self.connection.abort();
    }
}

/// A post of JSON.
pub fn post(body: impl Into<Bytes>) -> Request<Full<Bytes>> {
    let builder = Request::post("/agent").header("host", "localhost");
    builder
        .header("content-type", "application/json")
        .body(Full::new(body.into()))
        .unwrap()
}

pub async fn send<B>(served: &Served, request: Request<B>) -> Reply
where
    B: http_body::Body<Data = Bytes, Error: Into<tower::BoxError>> + Send + 'static,
{
    let socket = TcpStream::connect(served.address).await.unwrap();
    let (mut sender, connection) = http1::handshake(TokioIo::new(socket)).await.unwrap();
    let connection = tokio::spawn(async move { drop(connection.await) });
    let (parts, body) = sender.send_request(request).await.unwrap().into_parts();
    Reply {
        status: parts.status,
        headers: parts.headers,
        body,
        connection,
    }
}

impl Reply {
    pub fn header(&self, name: &str) -> Option<&str> {
        self.headers.get(name).map(|value| value.to_str().unwrap())
    }

    /// The next bytes, as they come.
    pub async fn next(&mut self) -> Option<Bytes> {
        loop {
            match self.body.frame().await?.unwrap().into_data() {
                Ok(data) if data.is_empty() => {}
                Ok(data) => return Some(data),
                Err(_) => return None,
            }
        }
    }

    /// All that is left.
    pub async fn bytes(mut self) -> Vec<u8> {
        let mut all = Vec::new();
        while let Some(bytes) = self.next().await {
            all.extend_from_slice(&bytes);
        }
        all
    }

    pub async fn json(self) -> Value {
        serde_json::from_slice(&self.bytes().await).unwrap()
    }

    /// The events of a run that ends.
    pub async fn events(self) -> Vec<Value> {
        parse(&String::from_utf8(self.bytes().await).unwrap())
    }
}

/// Events as a front end's parser takes them: by lines, each of one field.
pub fn parse(text: &str) -> Vec<Value> {
    let records = text
        .split_terminator("\n\n")
        .filter(|record| !record.starts_with(':'));
    let data = records.map(|record| record.strip_prefix("data: ").expect("only data"));
    data.map(|data| serde_json::from_str(data).expect("one line of JSON"))
        .collect()
}
