use bytes::Bytes;
use futures_util::StreamExt;
use http::{Request, Response, Uri};
use http_body_util::BodyExt;
use rmcp::transport::auth::{
    OAuthHttpClient, OAuthHttpClientError, OAuthHttpClientFuture, OAuthHttpRequest,
};
use serde_json::{Map, Value};
use tokio::time::timeout;
use tower::ServiceExt;

use crate::client::http_service::HttpService;

/// The maximum size of an answer about authorization, in bytes.
const MAX_BODY: usize = 1024 * 1024;

/// The fields of the answer with a token that are read.
const TOKEN: [&str; 5] = [
    "access_token",
    "expires_in",
    "refresh_token",
    "scope",
    "token_type",
];

/// The longest time for which a token is taken to be valid, in seconds: ten years.
const LONGEST: f64 = 10.0 * 365.0 * 24.0 * 60.0 * 60.0;

/// The HTTP service of a client, for requests about authorization.
///
/// It follows no redirects: rmcp follows those of discovery, and one of a token's request would
/// carry the secrets in it to somebody else.
pub(super) struct OAuthHttp {
    pub(super) service: HttpService,
    pub(super) resource: Uri,
}

impl OAuthHttp {
    async fn send(
        &self,
        request: Request<Vec<u8>>,
    ) -> Result<Response<Vec<u8>>, OAuthHttpClientError> {
        if !is_allowed(&self.resource, request.uri()) {
            let message = format!("`{}` is not https", request.uri());
            return Err(message.into());
        }
        let response = self.service.clone().oneshot(request.map(Bytes::from));
        let (parts, body) = response.await?.into_parts();
        let mut pieces = body.into_data_stream();
        let mut body = Vec::new();
        while let Some(piece) = pieces.next().await {
            let piece = piece?;
            if piece.len() > MAX_BODY - body.len() {
                return Err(format!("the answer is larger than {MAX_BODY} bytes").into());
            }
            body.extend_from_slice(&piece);
        }
        Ok(Response::from_parts(parts, token_alone(body)))
    }
}

impl OAuthHttpClient for OAuthHttp {
    fn execute(&self, request: OAuthHttpRequest) -> OAuthHttpClientFuture<'_> {
        Box::pin(async move {
            let limit = request.timeout;
            let sending = self.send(request.request);
            match limit {
                Some(limit) => timeout(limit, sending).await?,
                None => sending.await,
            }
        })
    }
}

/// Returns whether something about a login may be sent to an address: nothing leaves TLS.
pub(super) fn is_allowed(resource: &Uri, address: &Uri) -> bool {
    match address.scheme_str() {
        Some("https") => true,
        Some("http") => resource.scheme_str() == Some("http"),
        _ => false,
    }
}

/// Takes away what comes beside a token, such as one about the user's identity: rmcp prints it with
/// `tracing`. What is left is in the form that rmcp reads: it takes no token for one odd value.
fn token_alone(body: Vec<u8>) -> Vec<u8> {
    match serde_json::from_slice(&body) {
        Ok(Value::Object(mut answer)) if answer.contains_key("access_token") => {
            answer.retain(|field, _| TOKEN.contains(&&**field));
            if !answer.get("token_type").is_some_and(Value::is_string) {
                answer.insert("token_type".to_owned(), "Bearer".into());
            }
            set(&mut answer, "expires_in", seconds);
            set(&mut answer, "scope", scopes);
            set(&mut answer, "refresh_token", text);
            serde_json::to_vec(&answer).unwrap_or_default()
        }
        _ => body,
    }
}

/// Replaces a field by what it means, or leaves it out if that is nothing.
fn set(answer: &mut Map<String, Value>, field: &str, read: fn(&Value) -> Option<Value>) {
    if let Some(meant) = answer.remove(field).as_ref().and_then(read) {
        answer.insert(field.to_owned(), meant);
    }
}

/// Reads a time in seconds: a number or a text. None is left of a time that is over already, with
/// which servers say that they do not know: the server refuses a token that has expired.
fn seconds(given: &Value) -> Option<Value> {
    let seconds: f64 = match given {
        Value::String(text) => text.trim().parse().ok()?,
        given => given.as_f64()?,
    };
    if seconds.is_nan() {
        return None;
    }
    // Beyond the clock's range it could not be added to the time of now.
    let seconds = seconds.min(LONGEST) as u64;
    (seconds > 0).then(|| seconds.into())
}

/// Reads scopes: a text with spaces, or a list.
fn scopes(given: &Value) -> Option<Value> {
    let Some(list) = given.as_array() else {
        return text(given);
    };
    let scopes: Vec<_> = list.iter().filter_map(Value::as_str).collect();
    Some(scopes.join(" ").into())
}

fn text(given: &Value) -> Option<Value> {
    let text = given.as_str().filter(|text| !text.is_empty());
    text.map(Value::from)
}
