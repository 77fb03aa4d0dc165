//! A server on a real socket that records what it is sent and answers byte for byte as it is told.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex};

use serde_json::Value;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::net::TcpListener;
use tokio::task::JoinHandle;
use tower_agent_providers::openai::{Chat, OpenAi};
use tower_agent_providers::{HttpClient, HttpModelBuilder};

/// The bytes of one response, in the pieces in which they are written.
pub type Reply = Vec<Vec<u8>>;

pub struct Server {
    pub base_url: String,
    seen: Arc<Mutex<Vec<Seen>>>,
    task: JoinHandle<()>,
}

/// A request as it came over the socket.
#[derive(Clone, Debug)]
pub struct Seen {
    pub head: String,
    pub body: Value,
    /// The body, byte for byte.
    pub text: String,
}

impl Seen {
    /// The method and the target.
    pub fn line(&self) -> &str {
        self.head
            .lines()
            .next()
            .unwrap()
            .trim_end_matches(" HTTP/1.1")
    }

    pub fn header(&self, wanted: &str) -> Option<&str> {
        let mut headers = self
            .head
            .lines()
            .skip(1)
            .filter_map(|line| line.split_once(": "));
        headers
            .find(|(name, _)| name.eq_ignore_ascii_case(wanted))
            .map(|(_, value)| value)
    }
}

impl Server {
    /// Answers one request a connection, with these replies in order, and then with none.
    pub async fn start(replies: impl IntoIterator<Item = Reply>) -> Self {
        let replies = Arc::new(Mutex::new(VecDeque::from_iter(replies)));
        let seen = Arc::new(Mutex::new(Vec::new()));
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let base_url = format!("http://{}/v1", listener.local_addr().unwrap());
        let log = seen.clone();
        let task = tokio::spawn(async move {
            while let Ok((mut socket, _)) = listener.accept().await {
                let (replies, log) = (replies.clone(), log.clone());
                tokio::spawn(async move {
                    socket.set_nodelay(true).unwrap();
                    let Some(request) = read_request(&mut socket).await else {
                        return;
                    };
                    log.lock().unwrap().push(request);
                    let reply = replies.lock().unwrap().pop_front().unwrap_or_default();
                    write_pieces(&mut socket, &reply).await;
                });
            }
        });
        Self {
            base_url,
            seen,
            task,
        }
    }

    pub fn builder(&self) -> HttpModelBuilder<Chat> {
        OpenAi::builder()
            .base_url(&self.base_url)
            .api_key("")
            .model("test-model")
    }

    pub fn model(&self) -> OpenAi<HttpClient> {
        self.builder().build().unwrap()
    }

    pub fn seen(&self) -> Vec<Seen> {
        self.seen.lock().unwrap().clone()
    }

    /// The only request so far.
    pub fn only(&self) -> Seen {
        let seen = self.seen();
        assert_eq!(seen.len(), 1, "{seen:?}");
        seen.into_iter().next().unwrap()
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.task.abort();
    }
}

pub async fn read_request(socket: &mut (impl AsyncRead + Unpin)) -> Option<Seen> {
    let mut bytes = Vec::new();
    let head = loop {
        if let Some(end) = bytes.windows(4).position(|four| four == b"\r\n\r\n") {
            let rest = bytes.split_off(end + 4);
            let head = String::from_utf8(std::mem::replace(&mut bytes, rest)).unwrap();
            break head.trim_end().to_owned();
        }
        if socket.read_buf(&mut bytes).await.ok()? == 0 {
            return None;
        }
    };
    let mut seen = Seen {
        head,
        body: Value::Null,
        text: String::new(),
    };
    let length: usize = seen
        .header("content-length")
        .map_or(0, |value| value.parse().unwrap());
    while bytes.len() < length {
        if socket.read_buf(&mut bytes).await.ok()? == 0 {
            return None;
        }
    }
    // A request for a tunnel has no body.
    if !bytes.is_empty() {
        seen.body = serde_json::from_slice(&bytes).unwrap();
    }
    seen.text = String::from_utf8(bytes).unwrap();
    Some(seen)
}

async fn write_pieces(socket: &mut (impl AsyncWrite + Unpin), reply: &Reply) {
    for piece in reply {
        if socket.write_all(piece).await.is_err() || socket.flush().await.is_err() {
            return;
        }
    }
    let _ = socket.shutdown().await;
}

/// A response with a length.
pub fn whole(status: u16, headers: &[(&str, &str)], body: impl AsRef<[u8]>) -> Reply {
    let mut head = format!("HTTP/1.1 {status} Whatever\r\nconnection: close\r\n");
    for (name, value) in headers {
        head.push_str(&format!("{name}: {value}\r\n"));
    }
    let body = body.as_ref();
    head.push_str(&format!("content-length: {}\r\n\r\n", body.len()));
    vec![[head.as_bytes(), body].concat()]
}

/// A JSON response.
pub fn json(status: u16, body: &Value) -> Reply {
    whole(
        status,
        &[("content-type", "application/json")],
        body.to_string(),
    )
}

/// An answer that says `content`.
pub fn says(content: &str) -> Reply {
    let message = serde_json::json!({ "role": "assistant", "content": content });
    json(
        200,
        &serde_json::json!({ "choices": [{ "message": message, "finish_reason": "stop" }] }),
    )
}

/// A response in chunks, each of which is written and arrives by itself.
pub fn chunked<P: AsRef<[u8]>>(pieces: impl IntoIterator<Item = P>) -> Reply {
    chunked_as(EVENT_STREAM, pieces)
}

const EVENT_STREAM: &str = "text/event-stream; charset=utf-8";

/// The same, cut off before its end.
pub fn unfinished<P: AsRef<[u8]>>(pieces: impl IntoIterator<Item = P>) -> Reply {
    unfinished_as(EVENT_STREAM, pieces)
}

/// The same, of another media type.
pub fn chunked_as<P: AsRef<[u8]>>(media_type: &str, pieces: impl IntoIterator<Item = P>) -> Reply {
    let mut reply = unfinished_as(media_type, pieces);
    reply.push(b"0\r\n\r\n".to_vec());
    reply
}

pub fn unfinished_as<P: AsRef<[u8]>>(
    media_type: &str,
    pieces: impl IntoIterator<Item = P>,
) -> Reply {
    let head = format!(
        "HTTP/1.1 200 OK\r\nconnection: close\r\ncontent-type: {media_type}\r\n\
         x-request-id: req_1\r\ntransfer-encoding: chunked\r\n\r\n"
    );
    let mut reply = vec![head.into_bytes()];
    for piece in pieces {
        let piece = piece.as_ref();
        if !piece.is_empty() {
            let size = format!("{:x}\r\n", piece.len());
            reply.push([size.as_bytes(), piece, b"\r\n"].concat());
        }
    }
    reply
}

/// A stream of these chunks, then `[DONE]`.
pub fn events(chunks: &[Value]) -> Reply {
    chunked(chunks.iter().map(event).chain(["data: [DONE]\n\n".into()]))
}

pub fn event(chunk: &Value) -> String {
    format!("data: {chunk}\n\n")
}

/// A chunk whose delta is this.
pub fn delta(delta: Value) -> Value {
    serde_json::json!({ "choices": [{ "index": 0, "delta": delta, "finish_reason": null }] })
}

/// A chunk that says why the answer ended.
pub fn finished(reason: &str) -> Value {
    serde_json::json!({ "choices": [{ "index": 0, "delta": {}, "finish_reason": reason }] })
}
