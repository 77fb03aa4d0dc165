//! The questions that wait, as the crate of stored conversations serves them, and the audit of the
//! answers.

use bytes::Buf;
use http::request::Parts;
use http::{Method, Request, Response};
use http_body_util::BodyExt;
use serde_json::Value;
use std::sync::{Arc, Mutex};
use tower_agent::BoxError;

use super::body::ResponseBody;
use super::reply::Refusal;
use crate::console::Inner;
use crate::inbox::InboxOf;
use crate::lock::lock;
use crate::operator::Operator;

/// The beginning of a body that the audit reads, in bytes: an answer that is longer has its id
/// behind what was edited, and is in the audit without it.
const AUDITED: usize = 64 << 10;

/// Passes a request to the inbox, and writes down who has answered what.
pub(super) async fn inbox<B>(
    inbox: InboxOf,
    console: &Inner,
    operator: Operator,
    mut parts: Parts,
    body: B,
) -> Result<Response<ResponseBody>, Refusal>
where
    B: http_body::Body<Error: Into<BoxError>> + Send + 'static,
    B::Data: Send,
{
    parts.extensions.insert(operator.roles.clone());
    let is_write = parts.method == Method::POST;
    let read = Arc::new(Mutex::new(Vec::new()));
    let reading = read.clone();
    let body = body.map_err(Into::into).map_frame(move |frame| {
        frame.map_data(|mut data| {
            let data = data.copy_to_bytes(data.remaining());
            let mut read = lock(&reading);
            let room = AUDITED.saturating_sub(read.len());
            read.extend_from_slice(&data[..data.len().min(room)]);
            data
        })
    });
    let request = Request::from_parts(parts, body.boxed_unsync());
    let response = inbox(request).await.map(ResponseBody::full);
    if is_write {
        let about = about(&lock(&read));
        console.audited(&operator, "answer", about, response.status());
    }
    Ok(response)
}

/// Returns which question of which conversation was answered. The conversation's user is not named:
/// not everybody who reads the audit may know.
fn about(body: &[u8]) -> String {
    let answer: Value = serde_json::from_slice(body).unwrap_or_default();
    let text = |value: &Value| {
        let text = value.as_str().unwrap_or("?");
        text.chars().take(200).collect::<String>()
    };
    let id = text(&answer["id"]);
    let conversation = text(&answer["key"]["id"]);
    format!("question {id} of conversation {conversation}")
}
