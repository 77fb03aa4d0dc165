//! A panic is an error that says whose it is.

use serde_json::json;
use tower_agent::callback::{wrap_model, wrap_tool};
use tower_agent::{
    Action, Callback, Error, ErrorKind, Recovery, Result, Tool, ToolRequest, ToolResponse,
};
use tower_agent_test::{Ended, RecordLayer, ScriptedModel, Turn};

use super::{act, acts_once, agent, texts, told};

/// Panics in one hook, after a wait.
struct Panics {
    hook: &'static str,
}

impl Panics {
    async fn at(&self, hook: &str) {
        if self.hook == hook {
            tokio::task::yield_now().await;
            panic!("boom");
        }
    }
}

impl Callback<ToolRequest> for Panics {
    async fn before(&self, _: &mut ToolRequest) -> Result<Action<ToolResponse>> {
        self.at("before").await;
        Ok(Action::Continue)
    }

    async fn after(&self, _: &ToolRequest, _: &ToolResponse) -> Result<Action<ToolResponse>> {
        self.at("after").await;
        Ok(Action::Continue)
    }

    async fn on_error(&self, _: &mut ToolRequest, _: &Error) -> Result<Recovery<ToolResponse>> {
        self.at("on_error").await;
        Ok(Recovery::Propagate)
    }

    fn name(&self) -> std::borrow::Cow<'static, str> {
        "bomb".into()
    }
}

fn is_named(error: &Error, hook: &str) {
    assert_eq!(
        (error.kind(), error.message()),
        (ErrorKind::Callback, "panicked: boom")
    );
    let by = error.raised_by().unwrap();
    assert_eq!((&*by.callback, &*by.hook), ("bomb", hook));
}

#[tokio::test]
async fn the_model_reads_a_panic_in_a_callback_of_a_tool() {
    for hook in ["before", "after", "on_error"] {
        let record = RecordLayer::<ToolRequest>::new();
        let tool = Tool::function("act", "", move |_: serde_json::Value| match hook {
            "on_error" => Err("disk full"),
            _ => Ok("fine"),
        });
        let agent = agent(acts_once())
            .tool(tool)
            .tool_layer(record.clone())
            .on_tool(Panics { hook })
            .build()
            .unwrap();

        let response = agent.run("?").await.unwrap();

        assert_eq!(texts(&told(&response)), ["callback failed: panicked: boom"]);
        let Ended::Failed(error) = &record.calls()[0] else {
            panic!("{record:?}")
        };
        is_named(error, hook);
        assert_eq!(error.call().unwrap().name.as_deref(), Some("act"));
    }
}

#[tokio::test]
async fn a_panic_of_the_tool_itself_reaches_the_error_half_and_leaves_the_run_standing() {
    let agent = agent(ScriptedModel::new([
        Turn::tool("bomb", json!(null)).and_tool("act", json!("fine")),
        Turn::from_text("done"),
    ]))
    .tools([
        act(),
        Tool::function("bomb", "", |_: serde_json::Value| -> () { panic!("boom") }),
    ])
    .on_tool(tower_agent::callback::on_tool_error(|_, error| {
        Recovery::Fallback(ToolResponse::new(format!("saw: {}", error.message())))
    }))
    .build()
    .unwrap();

    let response = agent.run("?").await.unwrap();

    assert_eq!(
        texts(&told(&response)),
        ["saw: the tool panicked: boom", "fine"]
    );
}

#[tokio::test]
async fn a_panic_in_a_wrap_fails_its_call() {
    let around_model = agent(ScriptedModel::new([]))
        .model_layer(wrap_model(|_, _| async move { panic!("boom") }))
        .build()
        .unwrap();
    let error = around_model.run("?").await.unwrap_err();
    assert_eq!(
        (error.kind(), error.message()),
        (ErrorKind::Callback, "panicked: boom")
    );

    let around_tool = agent(acts_once())
        .tool(act())
        .tool_layer(wrap_tool(|request, mut next| async move {
            next.run(request).await?;
            panic!("boom")
        }))
        .build()
        .unwrap();
    let response = around_tool.run("?").await.unwrap();
    assert_eq!(texts(&told(&response)), ["callback failed: panicked: boom"]);
}
