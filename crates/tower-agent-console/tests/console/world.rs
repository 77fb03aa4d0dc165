//! A console, an agent and whoever asks.

use bytes::Bytes;
use http::{Request, Response, StatusCode};
use http_body_util::{BodyExt, Full};
use serde_json::Value;
use tower::ServiceExt;
use tower_agent_console::{Console, ConsoleService, Operator, ResponseBody};

/// A console for somebody who sees everything.
pub(crate) fn service(console: &Console) -> ConsoleService {
    service_for(console, || Operator::new("sam").sees_content().sees_users())
}

pub(crate) fn service_for(
    console: &Console,
    operator: impl Fn() -> Operator + Send + Sync + 'static,
) -> ConsoleService {
    console.clone().into_service(move |_| Some(operator()))
}

pub(crate) async fn send(
    service: &ConsoleService,
    request: Request<String>,
) -> Response<ResponseBody> {
    let request = request.map(|body| Full::new(Bytes::from(body)));
    service.clone().oneshot(request).await.unwrap()
}

pub(crate) async fn text(response: Response<ResponseBody>) -> String {
    let body = response.into_body().collect().await.unwrap();
    String::from_utf8(body.to_bytes().to_vec()).unwrap()
}

/// The status and the body of what is answered at a path.
pub(crate) async fn get(service: &ConsoleService, path: &str) -> (StatusCode, String) {
    let request = Request::get(path).body(String::new()).unwrap();
    let response = send(service, request).await;
    (response.status(), text(response).await)
}

pub(crate) async fn json(service: &ConsoleService, path: &str) -> Value {
    let (status, text) = get(service, path).await;
    assert_eq!(status, 200, "{path}: {text}");
    serde_json::from_str(&text).unwrap()
}

pub(crate) async fn runs(service: &ConsoleService) -> Vec<Value> {
    let page = json(service, "/api/runs").await;
    page["runs"].as_array().unwrap().clone()
}

/// The latest run, with its entries.
pub(crate) async fn latest(service: &ConsoleService) -> Value {
    let id = runs(service).await[0]["id"].as_str().unwrap().to_owned();
    json(service, &format!("/api/runs/{id}")).await
}

/// The entries of a kind.
pub(crate) fn of_kind<'a>(run: &'a Value, kind: &str) -> Vec<&'a Value> {
    let entries = run["entries"].as_array().unwrap();
    entries
        .iter()
        .filter(|entry| entry["kind"] == kind)
        .collect()
}

/// The user of a run: the server's word.
pub(crate) struct User(pub(crate) &'static str);

pub(crate) fn user_of(run: &tower_agent::RunContext) -> Option<String> {
    Some(run.extensions().get::<User>()?.0.to_owned())
}

/// The status and the body of what is answered to this.
pub(crate) async fn post(service: &ConsoleService, path: &str, body: Value) -> (u16, Value) {
    let request = Request::post(path).header("content-type", "application/json");
    let request = request.body(body.to_string()).unwrap();
    let response = send(service, request).await;
    let status = response.status().as_u16();
    (status, serde_json::from_str(&text(response).await).unwrap())
}
