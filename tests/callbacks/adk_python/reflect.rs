//! A plugin that has the model think again about a tool that failed.

use std::collections::BTreeMap;

use serde_json::{Value, json};
use tower_agent::callback::on_tool_error;
use tower_agent::compat::Hooks;
use tower_agent::{
    Action, Error, ErrorKind, Recovery, Request, Result, Tool, ToolRequest, ToolResponse,
};
use tower_agent_test::{ScriptedModel, Turn};

use super::{adk, told};

/// Tells the model what went wrong, so many times in a row for each tool.
struct Reflect {
    most: u32,
}

impl Reflect {
    const FAILURES: &str = "reflect: failures";
}

type Failures = BTreeMap<String, u32>;

impl Hooks for Reflect {
    async fn after_tool(
        &self,
        request: &ToolRequest,
        response: &ToolResponse,
    ) -> Result<Action<ToolResponse>> {
        if !response.is_error() {
            let values = request.context().values();
            values.update(Self::FAILURES, |all: &mut Failures| {
                all.remove(request.name())
            })?;
        }
        Ok(Action::Continue)
    }

    async fn on_tool_error(
        &self,
        request: &mut ToolRequest,
        error: &Error,
    ) -> Result<Recovery<ToolResponse>> {
        let (values, name) = (request.context().values(), request.name());
        let count = values.update(Self::FAILURES, |all: &mut Failures| {
            let count = all.entry(name.to_owned()).or_default();
            *count += 1;
            *count
        })?;
        if count > self.most {
            return Ok(Recovery::Propagate);
        }
        let (kind, message) = (error.kind(), error.message());
        let advice = format!(
            "{kind}: {message}; attempt {count} of {} at {name}",
            self.most
        );
        Ok(Recovery::Fallback(ToolResponse::error(advice)))
    }
}

/// Fails as often as its argument says `fail`.
fn fragile(name: &'static str) -> Tool {
    Tool::function(name, "", |arguments: Value| match arguments.as_str() {
        Some("fail") => Err(Error::new(ErrorKind::Tool, "no paper")),
        _ => Ok("printed"),
    })
}

/// Returns the results that the model reads for these calls, and how the run fails.
async fn run(most: u32, calls: &[(&str, &str)]) -> Result<Vec<String>> {
    let calls = calls
        .iter()
        .map(|(tool, how)| Turn::tool(*tool, json!(how)));
    let model = ScriptedModel::new(calls.chain([Turn::from_text("done")]));
    let agent = adk(&model)
        .callbacks(Reflect { most })
        .on_tool(on_tool_error(|_, error| Recovery::Fail(given_up(error))))
        .tools([fragile("print"), fragile("fax")])
        .build()
        .unwrap();
    Ok(told(&agent.run("?").await?))
}

/// The agent's own handling of a failure that the plugin leaves to it.
fn given_up(error: &Error) -> Error {
    Error::new(error.kind(), format!("given up: {}", error.message())).with_source(error.clone())
}

#[tokio::test]
async fn each_tools_failures_in_a_row_are_counted_and_a_success_forgets_them() {
    let told = run(
        3,
        &[
            ("print", "fail"),
            ("print", "fail"),
            ("fax", "fail"),
            ("print", "work"),
            ("print", "fail"),
            ("missing", "fail"),
        ],
    )
    .await
    .unwrap();

    let counts = [
        (0, "attempt 1"),
        (1, "attempt 2"),
        (2, "attempt 1"),
        (4, "attempt 1"),
    ];
    for (index, count) in counts {
        assert!(
            told[index].contains("no paper") && told[index].contains(count),
            "{told:?}"
        );
    }
    assert_eq!(told[3], "printed");
    assert!(
        told[5].contains("missing") && told[5].contains("attempt 1"),
        "{told:?}"
    );
}

#[tokio::test]
async fn past_the_limit_the_failure_is_the_agents_own_callbacks_to_handle() {
    for most in [0, 2] {
        let calls = [("print", "fail"); 3];
        let error = run(most, &calls[..most as usize + 1]).await.unwrap_err();

        assert_eq!(
            (error.kind(), error.message()),
            (ErrorKind::Tool, "given up: no paper")
        );
    }
}
