//! Faults of foreign code: panics, and agents inside agents without end.

use std::task::{Context, Poll};

use serde_json::json;
use tower::Service;
use tower_agent::guard::fallback::Fallback;
use tower_agent::guard::retry::RetryLayer;
use tower_agent::testing::{ScriptedModel, Turn};
use tower_agent::{
    Agent, CallKind, Error, ErrorKind, ModelRequest, ModelResponse, Recovery, Result, Tool,
    on_model_error,
};

/// A model that panics at one stage.
#[derive(Clone, Copy)]
struct Panics(&'static str);

impl Service<ModelRequest> for Panics {
    type Response = ModelResponse;
    type Error = Error;
    type Future = futures::future::BoxFuture<'static, Result<ModelResponse>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<()>> {
        assert_ne!(self.0, "poll_ready", "boom");
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, _: ModelRequest) -> Self::Future {
        assert_ne!(self.0, "call", "boom");
        Box::pin(async {
            tokio::task::yield_now().await;
            panic!("boom")
        })
    }
}

const STAGES: [&str; 3] = ["poll_ready", "call", "poll"];

#[tokio::test]
async fn a_models_panic_is_the_error_of_its_call() {
    for stage in STAGES {
        for is_streamed in [false, true] {
            let agent = Agent::builder(Panics(stage)).name("poet").build().unwrap();
            let result = match is_streamed {
                false => agent.run("?").await,
                true => agent.stream("?").response().await,
            };
            let error = result.unwrap_err();
            assert_eq!(error.kind(), ErrorKind::Provider, "{stage}");
            let message = error.message();
            assert!(message.starts_with("the model panicked: "), "{stage}: {message}");
            assert!(message.contains("boom"), "{stage}: {message}");
            let call = error.call().unwrap();
            assert_eq!((call.kind, &*call.agent), (CallKind::Model, "poet"), "{stage}");
        }
    }
}

#[tokio::test(start_paused = true)]
async fn callbacks_retries_and_fallbacks_see_a_models_panic() {
    for stage in STAGES {
        let agent = Agent::builder(Panics(stage))
            .on_model(on_model_error(|_, error| match error.message().contains("panicked") {
                true => Recovery::Fallback(ModelResponse::text("recovered")),
                false => Recovery::Propagate,
            }))
            .build()
            .unwrap();
        assert_eq!(agent.run("?").await.unwrap().text(), "recovered", "{stage}");

        let second = ScriptedModel::new([Turn::text("second")]);
        let models = Fallback::new(Panics(stage)).or(second);
        let agent = Agent::builder(models).build().unwrap();
        assert_eq!(agent.run("?").await.unwrap().text(), "second", "{stage}");

        let record = tower_agent::testing::RecordLayer::new();
        let agent = Agent::builder(Panics(stage))
            .model_layer(RetryLayer::new().with_attempts(3))
            .model_layer(record.clone())
            .build()
            .unwrap();
        let error = agent.run("?").await.unwrap_err();
        assert!(error.message().contains("panicked"), "{stage}: {error}");
        assert_eq!(record.calls().len(), 3, "{stage}");
    }
}

#[tokio::test]
async fn a_panic_in_until_is_an_error_that_names_it() {
    let member = || {
        let model = ScriptedModel::new([Turn::text("done")]);
        Agent::builder(model).name("member").build().unwrap()
    };
    let teams = [Agent::sequential("team"), Agent::parallel("team"), Agent::repeat("team", 2)];
    for team in teams {
        let team = team.agent(member()).until(|_| panic!("boom")).build().unwrap();
        let error = team.run("?").await.unwrap_err();
        assert_eq!(
            (error.kind(), error.message()),
            (ErrorKind::Callback, "`until` panicked: boom")
        );
        assert_eq!(&*error.call().unwrap().agent, "team");
    }
}

#[tokio::test]
async fn a_panic_in_tool_result_messages_names_its_stage() {
    let model = ScriptedModel::new([Turn::tool("look", json!({})), Turn::text("done")]);
    let agent = Agent::builder(model)
        .tool(Tool::function("look", "Looks.", |_: serde_json::Value| "seen"))
        .tool_result_messages(|_| -> Option<Vec<tower_agent::Message>> { panic!("boom") })
        .build()
        .unwrap();
    let response = agent.run("?").await.unwrap();
    let told: String =
        response.new_messages().flat_map(|m| m.tool_results()).map(|r| r.text()).collect();
    assert_eq!(told, "callback failed: `tool_result_messages` panicked: boom");
}
