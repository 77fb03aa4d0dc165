//! The callbacks. They write to stderr, so that stdout has only the response. Each starts a new
//! line, since the response may have started one.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

use tower_agent::callback::{Outcome, before_tool};
use tower_agent::error::CallSite;
use tower_agent::{
    Action, Callback, Error, ModelRequest, ModelResponse, Recovery, Request, Result, ToolRequest,
    ToolResponse,
};

/// Logs the start and end of calls of any kind.
#[derive(Debug)]
pub(crate) struct Log;

impl<R: Request> Callback<R> for Log {
    async fn before(&self, request: &mut R) -> Result<Action<R::Response>> {
        eprint!("\n[log]    > {}", CallSite::of(request));
        Ok(Action::Continue)
    }

    async fn after(&self, request: &R, _: &R::Response) -> Result<Action<R::Response>> {
        eprint!("\n[log]    < {}", CallSite::of(request));
        Ok(Action::Continue)
    }

    async fn on_error(&self, request: &mut R, error: &Error) -> Result<Recovery<R::Response>> {
        eprint!(
            "\n[log]    ! {}: {}",
            CallSite::of(request),
            error.message()
        );
        Ok(Recovery::Propagate)
    }
}

/// Counts tokens across the runs of an agent.
#[derive(Debug, Default)]
pub(crate) struct TokenCount(AtomicU64);

impl Callback<ModelRequest> for TokenCount {
    async fn after(
        &self,
        _: &ModelRequest,
        response: &ModelResponse,
    ) -> Result<Action<ModelResponse>> {
        let usage = response.usage();
        let total = self.0.fetch_add(usage.total(), Ordering::Relaxed) + usage.total();
        eprint!(
            "\n[tokens] {} input, {} output; {total} so far",
            usage.input_tokens, usage.output_tokens
        );
        Ok(Action::Continue)
    }
}

/// Logs how long each tool call took, however it ended.
#[derive(Debug)]
pub(crate) struct Stopwatch;

/// Stored with one call, so that parallel calls do not interfere.
struct Started(Instant);

impl Callback<ToolRequest> for Stopwatch {
    async fn before(&self, request: &mut ToolRequest) -> Result<Action<ToolResponse>> {
        request.extensions_mut().insert(Started(Instant::now()));
        Ok(Action::Continue)
    }

    fn on_end(&self, request: &ToolRequest, outcome: Outcome<'_, ToolResponse>) {
        let Some(Started(start)) = request.extensions().get() else {
            return;
        };
        let outcome = match outcome {
            Outcome::Done(response) => format!("returned {}", response.value()),
            Outcome::Failed(error) => format!("failed: {}", error.message()),
            _ => "was dropped".to_owned(),
        };
        let (id, tool, took) = (request.id(), request.name(), start.elapsed());
        eprint!(
            "\n[time]   {id} {tool}{} {outcome} in {took:.0?}",
            request.arguments()
        );
    }
}

/// Blocks a tool and tells the model so.
pub(crate) fn forbid(tool: &'static str) -> impl Callback<ToolRequest> {
    let guard = before_tool(move |request| {
        if request.name() == tool {
            return Action::Respond(ToolResponse::error(format!("{tool} is forbidden here")));
        }
        Action::Continue
    });
    guard.named(format!("forbid {tool}"))
}
