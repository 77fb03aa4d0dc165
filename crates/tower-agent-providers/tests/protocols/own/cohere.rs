//! Cohere: errors have no kind but their status.

use serde_json::json;
use tower_agent::{ErrorKind, ModelRequest};

use crate::answer::{Answer, text};
use crate::column::{Column, model, stream_of};
use crate::columns::cohere::CohereColumn;
use crate::server::{Server, json as reply};
use test_support::{call, deltas, stream};

#[tokio::test]
async fn an_error_is_one_wherever_it_stands() {
    let body = json!({ "id": "e1", "message": "Sorry." });
    let server = Server::start([reply(429, &body), reply(200, &body)]).await;
    let model = model::<CohereColumn>(&server);
    for kind in [ErrorKind::RateLimited, ErrorKind::Provider] {
        let error = call(model.clone(), ModelRequest::default())
            .await
            .unwrap_err();
        assert_eq!((error.kind(), error.message()), (kind, "Sorry."));
    }
}

#[tokio::test]
async fn an_error_after_some_deltas_is_one() {
    let mut events = CohereColumn::events(&Answer::new([text(&["a", "b"])]));
    events.pop();
    events.push(CohereColumn::error_event());
    let server = Server::start([stream_of::<CohereColumn, _>(events)]).await;
    let model = model::<CohereColumn>(&server);
    let (response, events) = stream(model, ModelRequest::default()).await;
    let error = response.unwrap_err();
    assert_eq!(
        (error.kind(), error.message()),
        (ErrorKind::Provider, "Overloaded.")
    );
    assert_eq!(deltas(events).len(), 2);
}
