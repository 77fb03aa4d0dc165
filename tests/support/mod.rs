//! What several tests share.
#![allow(dead_code, unreachable_pub, reason = "each test uses its share")]

pub mod agui_order;
pub mod call;
pub mod logger;
pub mod process;
pub mod server;
pub mod team;
pub mod trace;

use futures::StreamExt;
use tower::ServiceExt;
use tower_agent::stream::{Chunk, Delta, channel};
use tower_agent::{BoxError, Error, ModelRequest, ModelResponse, ModelService};

/// Calls a model without a sink.
pub async fn call<M: ModelService>(
    model: M,
    request: ModelRequest,
) -> Result<ModelResponse, Error> {
    model.oneshot(request).await.map_err(|error| Error::from(Into::<BoxError>::into(error)))
}

/// Calls a model with a sink, and reads what is sent to it.
pub async fn stream<M: ModelService>(
    model: M,
    request: ModelRequest,
) -> (Result<ModelResponse, Error>, Vec<Chunk>) {
    let (sink, chunks) = channel(4);
    futures::join!(call(model, request.with_sink(sink)), chunks.collect())
}

/// The deltas, without their attempt.
pub fn deltas(chunks: Vec<Chunk>) -> Vec<Delta> {
    chunks.into_iter().map(|chunk| chunk.delta).collect()
}

pub fn text(text: &str) -> Delta {
    Delta::Text(text.into())
}

pub fn begins(index: usize, id: &str, name: &str) -> Delta {
    Delta::ToolCall { index, id: id.into(), name: name.into() }
}

pub fn arguments(index: usize, json: &str) -> Delta {
    Delta::Arguments { index, json: json.into() }
}
