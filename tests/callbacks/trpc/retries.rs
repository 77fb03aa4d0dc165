//! Where a retry stands: inside one before and after, or around them.

use std::future::Ready;
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use serde_json::Value;
use tower::retry::{Policy, RetryLayer};
use tower_agent::callback::Outcome;
use tower_agent::{
    Callback, Error, ErrorKind, ModelRequest, ModelResponse, Recovery, Request, Result, Tool,
    ToolResponse,
};
use tower_agent_test::{ScriptedModel, Turn};

use super::{acts_once, agent, texts, told};
use test_support::log::Log;

/// Says yes to every failure, so many times.
#[derive(Clone)]
struct Again(u32);

impl<R: Request> Policy<R, R::Response, Error> for Again {
    type Future = Ready<()>;

    fn retry(&mut self, _: &mut R, result: &mut Result<R::Response>) -> Option<Ready<()>> {
        if result.is_ok() || self.0 == 0 {
            return None;
        }
        self.0 -= 1;
        Some(std::future::ready(()))
    }

    fn clone_request(&mut self, request: &R) -> Option<R> {
        Some(request.clone())
    }
}

/// Notes every hook.
#[derive(Clone)]
struct Notes(Log<&'static str>);

impl<R: Request> Callback<R> for Notes {
    async fn before(&self, _: &mut R) -> Result<tower_agent::Action<R::Response>> {
        self.0.push("before");
        Ok(tower_agent::Action::Continue)
    }

    async fn after(&self, _: &R, _: &R::Response) -> Result<tower_agent::Action<R::Response>> {
        self.0.push("after");
        Ok(tower_agent::Action::Continue)
    }

    async fn on_error(&self, _: &mut R, _: &Error) -> Result<Recovery<R::Response>> {
        self.0.push("on_error");
        Ok(Recovery::Propagate)
    }

    fn on_end(&self, _: &R, outcome: Outcome<'_, R::Response>) {
        self.0.push(if matches!(outcome, Outcome::Done(_)) {
            "done"
        } else {
            "failed"
        });
    }
}

/// A tool that fails so many times, then works; and how often it was called.
fn flaky(
    failures: u32,
    error: impl Fn() -> Error + Send + Sync + 'static,
) -> (Tool, Arc<AtomicU32>) {
    let calls = Arc::new(AtomicU32::new(0));
    let tool = Tool::function("act", "", {
        let calls = calls.clone();
        move |_: Value| match calls.fetch_add(1, Ordering::SeqCst) {
            n if n < failures => Err(error()),
            n => Ok(n + 1),
        }
    });
    (tool, calls)
}

fn eof() -> Error {
    io::Error::from(io::ErrorKind::UnexpectedEof).into()
}

#[tokio::test]
async fn a_retry_of_a_tool_is_inside_or_outside_the_callbacks_as_registered() {
    let once = vec!["before", "after", "done"];
    let each = vec!["before", "on_error", "failed", "before", "after", "done"];
    for (inside, expected) in [(true, once), (false, each)] {
        let (tool, calls) = flaky(1, eof);
        let seen = Log::default();
        let agent = agent(acts_once()).tool(tool);
        let agent = if inside {
            agent
                .on_tool(Notes(seen.clone()))
                .tool_layer(RetryLayer::new(Again(1)))
        } else {
            agent
                .tool_layer(RetryLayer::new(Again(1)))
                .on_tool(Notes(seen.clone()))
        };

        let response = agent.build().unwrap().run("?").await.unwrap();

        assert_eq!(texts(&told(&response)), ["2"]);
        assert_eq!(calls.load(Ordering::SeqCst), 2);
        assert_eq!(seen.take(), expected, "inside: {inside}");
    }
}

#[tokio::test]
async fn after_the_last_attempt_the_callbacks_see_its_error() {
    let (tool, calls) = flaky(5, eof);
    let seen = Log::default();
    let agent = agent(acts_once())
        .tool(tool)
        .on_tool(Notes(seen.clone()))
        .tool_layer(RetryLayer::new(Again(2)))
        .build()
        .unwrap();

    let response = agent.run("?").await.unwrap();

    assert!(told(&response)[0].is_error);
    assert_eq!(calls.load(Ordering::SeqCst), 3);
    assert_eq!(seen.take(), ["before", "on_error", "failed"]);
}

#[tokio::test]
async fn a_retry_of_the_model_is_inside_or_outside_the_callbacks_as_registered() {
    let once = vec!["before", "after", "done"];
    let each = vec!["before", "on_error", "failed", "before", "after", "done"];
    for (inside, expected) in [(true, once), (false, each)] {
        let busy = Error::new(ErrorKind::Overloaded, "busy");
        let model = ScriptedModel::new([Turn::error(busy), Turn::from_text("ok")]);
        let seen = Log::default();
        let agent = agent(model.clone());
        let agent = if inside {
            agent
                .on_model(Notes(seen.clone()))
                .model_layer(RetryLayer::new(Again(1)))
        } else {
            agent
                .model_layer(RetryLayer::new(Again(1)))
                .on_model(Notes(seen.clone()))
        };

        let response = agent.build().unwrap().run("?").await.unwrap();

        model.assert_done();
        assert_eq!(
            (response.text(), response.iterations()),
            ("ok".to_owned(), 1)
        );
        assert_eq!(seen.take(), expected, "inside: {inside}");
    }
}

#[tokio::test]
async fn a_stop_is_not_retried_whatever_the_policy_says() {
    for callback in [true, false] {
        let (tool, calls) = flaky(9, || Error::abort("enough"));
        let agent = agent(acts_once()).tool(tool);
        let agent = if callback {
            agent.on_tool(Notes(Log::default()))
        } else {
            agent
        };
        let agent = agent.tool_layer(RetryLayer::new(Again(5))).build().unwrap();

        let error = agent.run("?").await.unwrap_err();

        assert_eq!(
            (error.kind(), error.message()),
            (ErrorKind::Aborted, "enough")
        );
        assert_eq!(
            calls.load(Ordering::SeqCst),
            1,
            "with a callback: {callback}"
        );
    }
}

#[tokio::test]
async fn a_stop_of_the_model_is_not_retried_either() {
    let calls = Log::default();
    let counted = calls.clone();
    let model = tower::service_fn(move |_: ModelRequest| {
        counted.push(());
        async { Err::<ModelResponse, _>(Error::abort("enough")) }
    });
    let agent = agent(model)
        .model_layer(RetryLayer::new(Again(5)))
        .build()
        .unwrap();

    assert_eq!(agent.run("?").await.unwrap_err().kind(), ErrorKind::Aborted);
    assert_eq!(calls.take().len(), 1);
}

#[tokio::test]
async fn a_layer_at_the_tool_itself_cannot_swallow_a_stop() {
    let (tool, _) = flaky(9, || Error::abort("enough"));
    let tool = tool.layer(tower_agent::callback::wrap_tool(
        |request, mut next| async move {
            let _ = next.run(request).await;
            Ok(ToolResponse::new("all is well"))
        },
    ));
    let error = agent(acts_once())
        .tool(tool)
        .build()
        .unwrap()
        .run("?")
        .await
        .unwrap_err();
    assert_eq!(
        (error.kind(), error.message()),
        (ErrorKind::Aborted, "enough")
    );
    assert_eq!(error.call().unwrap().name.as_deref(), Some("act"));
}
