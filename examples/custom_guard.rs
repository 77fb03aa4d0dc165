//! A guard written from scratch: a tool that reads files must stay inside its folder.
//!
//! The guard is a tower middleware with the usual three parts: a layer, a service and a future
//! without a box. A refusal is a response that the model can read, so the run continues.

use std::future::{Ready, ready};
use std::path::{Component, Path};
use std::pin::Pin;
use std::task::{Context, Poll};

use pin_project_lite::pin_project;
use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::json;
use tower::{Layer, Service};
use tower_agent::{Agent, BoxError, Message, Tool, ToolRequest, ToolResponse};
use tower_agent_test::{ScriptedModel, Turn};

/// Blocks calls whose `path` leads out of the folder, or is no text.
#[derive(Clone, Copy, Debug)]
struct ConfineLayer;

impl<S> Layer<S> for ConfineLayer {
    type Service = Confine<S>;

    fn layer(&self, inner: S) -> Confine<S> {
        Confine { inner }
    }
}

#[derive(Clone, Debug)]
struct Confine<S> {
    inner: S,
}

impl<S: Service<ToolRequest, Response = ToolResponse>> Service<ToolRequest> for Confine<S> {
    type Response = ToolResponse;
    type Error = S::Error;
    type Future = ResponseFuture<S::Future>;

    // Ready when the tool is. `call` uses this `inner`, because a clone has not been polled ready.
    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), S::Error>> {
        self.inner.poll_ready(cx)
    }

    fn call(&mut self, request: ToolRequest) -> Self::Future {
        let refusal = match request.arguments()["path"].as_str() {
            Some(path) if leads_down(path) => {
                return ResponseFuture::Called {
                    future: self.inner.call(request),
                };
            }
            Some(path) => ToolResponse::error(format!("`{path}` is out of bounds")),
            // Arguments that the guard cannot read do not reach the tool.
            None => ToolResponse::error("`path` must be a text"),
        };
        ResponseFuture::Refused {
            refusal: ready(refusal),
        }
    }
}

pin_project! {
    #[project = Projected]
    enum ResponseFuture<F> {
        Called { #[pin] future: F },
        Refused { refusal: Ready<ToolResponse> },
    }
}

impl<F: Future<Output = Result<ToolResponse, E>>, E> Future for ResponseFuture<F> {
    type Output = F::Output;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<F::Output> {
        match self.project() {
            Projected::Called { future } => future.poll(cx),
            Projected::Refused { refusal } => Pin::new(refusal).poll(cx).map(Ok),
        }
    }
}

/// Returns whether a path leads down, and neither up nor to the root.
fn leads_down(path: &str) -> bool {
    Path::new(path)
        .components()
        .all(|part| matches!(part, Component::Normal(_)))
}

#[derive(Deserialize, JsonSchema)]
struct ReadFile {
    /// The file, from the notes' folder.
    path: String,
}

#[tokio::main]
async fn main() -> Result<(), BoxError> {
    let read_file = Tool::function("read_file", "Reads a note.", |ReadFile { path }| {
        println!("reading {path}");
        "buy milk"
    });
    // A model that tries to read more than it should.
    let model = ScriptedModel::new([
        Turn::tool("read_file", json!({ "path": "today.txt" }))
            .and_tool("read_file", json!({ "path": "../secrets.txt" }))
            .and_tool("read_file", json!({ "path": "/etc/passwd" }))
            .and_tool("read_file", json!(["/etc/passwd"])),
        Turn::from_text("You need milk."),
    ]);
    let agent = Agent::builder(model)
        .tool(read_file.layer(ConfineLayer))
        .build()?;
    print!("{}", agent.explain());

    let response = agent.run("What is on my list?").await?;
    for result in response.new_messages().flat_map(Message::tool_results) {
        println!("the model reads: {}", result.text());
    }
    println!("it says: {}", response.text());
    Ok(())
}
