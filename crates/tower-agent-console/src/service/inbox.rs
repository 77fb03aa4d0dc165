//! The questions that wait, as the crate of stored conversations serves them, and the audit of the
//! answers.

use std::sync::{Arc, Mutex};
use std::time::SystemTime;

use bytes::{Buf, Bytes};
use futures_util::future::BoxFuture;
use http::request::Parts;
use http::{Method, Request, Response};
use http_body_util::BodyExt;
use http_body_util::combinators::UnsyncBoxBody;
use serde_json::Value;
use tower_agent::BoxError;
use tower_agent_conversations::{Inbox, InboxService, Roles};
use tower_service::Service;

use super::ConsoleService;
use super::body::Body;
use super::reply::Refusal;
use crate::audit::AuditRow;
use crate::lock::lock;
use crate::operator::Operator;
use crate::record::micros;

/// The beginning of a body that the audit reads, in bytes: an answer that is longer has its id
/// behind what was edited, and is in the audit without it.
const AUDITED: usize = 64 << 10;

type InboxBody = UnsyncBoxBody<Bytes, BoxError>;

/// An inbox over HTTP, of whatever type.
pub(crate) type InboxOf =
    Arc<dyn Fn(Request<InboxBody>) -> BoxFuture<'static, Response<Body>> + Send + Sync>;

pub(crate) fn inbox_of(inbox: impl Inbox) -> InboxOf {
    let service = InboxService::new(inbox, |parts: &Parts| {
        // Put there below: a client cannot.
        parts.extensions.get::<Roles>().cloned().unwrap_or_default()
    });
    Arc::new(move |request| {
        // It is always ready.
        let response = service.clone().call(request);
        Box::pin(async move {
            match response.await {
                Ok(response) => response.map(Body::full),
                Err(never) => match never {},
            }
        })
    })
}

impl ConsoleService {
    pub(super) async fn inbox<B>(
        self,
        operator: Operator,
        mut parts: Parts,
        body: B,
    ) -> Result<Response<Body>, Refusal>
    where
        B: http_body::Body<Error: Into<BoxError>> + Send + 'static,
        B::Data: Send,
    {
        let inbox = self.console.inbox.ok_or_else(Refusal::not_found)?;
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
        let response = inbox(request).await;
        if is_write {
            self.console.inner.audit.add(AuditRow {
                at: micros(SystemTime::now()),
                operator: operator.shared_name().clone(),
                action: "answer",
                about: about(&lock(&read)),
                status: response.status().as_u16(),
            });
        }
        Ok(response)
    }
}

/// Returns which question of which conversation was answered. The conversation's user is not named:
/// not everybody who reads the audit may know.
fn about(body: &[u8]) -> String {
    let answer: Value = serde_json::from_slice(body).unwrap_or_default();
    let text = |value: &Value| {
        let text = value.as_str().unwrap_or("?");
        text.chars().take(200).collect::<String>()
    };
    let (id, conversation) = (text(&answer["id"]), text(&answer["key"]["id"]));
    format!("question {id} of conversation {conversation}")
}
