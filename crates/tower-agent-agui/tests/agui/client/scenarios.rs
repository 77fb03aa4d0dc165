//! The agents that tests/front_end/client.mjs and tests/copilotkit/copilotkit.mjs expect, each as
//! its scenario says.

use serde_json::{Value, json};
use tower::ServiceExt;
use tower::retry::{Policy, RetryLayer};
use tower_agent::agent::AgentService;
use tower_agent::callback::{after_model, before_tool};
use tower_agent::compat::Semantics;
use tower_agent::error::ResolutionOutcome;
use tower_agent::message::ToolCall;
use tower_agent::stream::Delta;
use tower_agent::{
    Action, Agent, AgentBuilder, AgentRequest, Error, ErrorKind, Interrupt, Message, ModelRequest,
    ModelResponse, Part, Request, Result, Role, Tool, ToolRequest, Usage,
};
use tower_agent_middleware::approval::Approval;
use tower_agent_test::{ScriptedModel, Turn};

use super::Active;

/// An agent that is counted while it runs.
pub(crate) fn counted(agent: Agent, active: Active) -> impl AgentService {
    tower::service_fn(move |request: AgentRequest| {
        let (agent, run) = (agent.clone(), active.enter());
        async move {
            let result = agent.run(request).await;
            drop(run);
            result
        }
    })
}

/// A model that answers by the tool results since the user's last words.
fn model<F>(says: F) -> AgentBuilder
where
    F: Fn(&[String]) -> Result<Vec<Part>> + Clone + Send + Sync + 'static,
{
    Agent::builder(tower::service_fn(move |request: ModelRequest| {
        let says = says.clone();
        async move {
            let messages = request.messages();
            let asked = messages
                .iter()
                .rposition(|message| message.role() == Role::User);
            let results = messages
                .range(asked.unwrap_or(0))
                .flat_map(Message::tool_results);
            let results: Vec<_> = results.map(|result| result.text()).collect();
            let mut parts = says(&results)?;
            for (index, part) in parts.iter_mut().enumerate() {
                if let Part::ToolCall(call) = part {
                    call.id = format!("call-{}-{index}", messages.len()).into();
                }
            }
            let response = ModelResponse::new(Message::new(Role::Assistant, parts));
            let turn = Turn::response(response).usage(Usage::new(7, 5));
            ScriptedModel::new([turn])
                .chunk_size(5)
                .oneshot(request)
                .await
        }
    }))
}

fn text(text: impl Into<String>) -> Result<Vec<Part>> {
    Ok(vec![Part::from_text(text)])
}

fn calls<const N: usize>(tool: &str, arguments: [Value; N]) -> Result<Vec<Part>> {
    Ok(arguments
        .map(|arguments| ToolCall::new("", tool, arguments).into())
        .into())
}

fn acting() -> Tool {
    Tool::function("act", "Acts.", |of: Value| {
        format!("{} acted", of["of"].as_str().unwrap_or_default())
    })
}

/// A tool that asks its own question, and returns the answer.
fn asking(name: &str, reason: &'static str, question: &'static str) -> Tool {
    Tool::function_with(name, "Asks.", move |_: Value, call: ToolRequest| {
        let answer = call.ask(Interrupt::new(question, reason).with_message(question))?;
        Ok::<_, Error>(match answer.outcome {
            ResolutionOutcome::Resolved(payload) => payload.to_string(),
            _ => "cancelled".to_owned(),
        })
    })
}

/// An agent that calls `act` once, which needs an approval, and then says what came of it.
fn guarded(name: &str) -> AgentBuilder {
    let own = name.to_owned();
    model(move |results| match results {
        [] => calls("act", [json!({ "of": own })]),
        [.., result] => text(format!("{own}: {result}")),
    })
    .name(name)
    .tool(acting())
    .on_tool(Approval::of_tools(["act"]))
}

/// An agent that lets another one answer.
fn delegating(name: &str, to: Agent) -> AgentBuilder {
    let (own, tool) = (name.to_owned(), to.name().to_owned());
    model(move |results| match results {
        [] => calls(&tool, [json!({ "request": "Act!" })]),
        [.., result] => text(format!("{own}: {result}")),
    })
    .name(name)
    .tool(to.into_tool("Acts."))
}

fn team(semantics: Semantics) -> Agent {
    Agent::parallel("team")
        .agent(guarded("left").build().unwrap())
        .agent(model(|_| text("middle")).name("middle").build().unwrap())
        .agent(guarded("right").build().unwrap())
        .semantics(semantics)
        .build()
        .unwrap()
}

pub(crate) fn agent(scenario: &str, semantics: Semantics) -> Agent {
    let builder = match scenario {
        "team" => return team(semantics),
        "inner" => {
            let leaf = guarded("leaf").build().unwrap();
            delegating("top", delegating("middle", leaf).build().unwrap())
        }
        "plain" => model(|_| text("Hello from the agent.")),
        "reasoning" => model(|_| {
            Ok(vec![
                Part::reasoning("Six times seven."),
                Part::from_text("It is 42."),
            ])
        }),
        "tool" => model(|results| match results {
            [] => calls("add", [json!({ "a": 2, "b": 3 })]),
            _ => text("2 + 3 = 5."),
        })
        .tool(Tool::function("add", "Adds.", |of: Value| {
            of["a"].as_i64().unwrap_or(0) + of["b"].as_i64().unwrap_or(0)
        })),
        "parallel" => model(|results| match results {
            [] => calls(
                "weather",
                ["Oslo", "Rome"].map(|city| json!({ "city": city })),
            ),
            [oslo, rome, ..] => text(format!("Oslo: {oslo}. Rome: {rome}.")),
            [_] => Err(Error::new(ErrorKind::InvalidRequest, "a result is missing")),
        })
        .tool(Tool::function(
            "weather",
            "Tells the weather.",
            |of: Value| {
                if of["city"] == "Oslo" { "rain" } else { "sun" }
            },
        )),
        "state" => model(|results| match results {
            [] | [_] => calls("increment", [json!({})]),
            [.., count] => text(format!("The count is {count}.")),
        })
        .tool(Tool::function_with(
            "increment",
            "Counts on.",
            |_: Value, call: ToolRequest| {
                let state = call.context().state();
                let count = state
                    .get("count")
                    .and_then(|count| count.as_i64())
                    .unwrap_or(0)
                    + 1;
                state.set("count", count);
                count
            },
        )),
        "keys" => model(
            |results| match ["count", "__proto__", "more"].get(results.len()) {
                Some(key) => calls("set", [json!({ "key": key })]),
                None => text("Set."),
            },
        )
        .tool(Tool::function_with(
            "set",
            "Sets.",
            |of: Value, call: ToolRequest| {
                call.context()
                    .state()
                    .set(of["key"].as_str().unwrap_or_default(), 1);
                "set"
            },
        )),
        "failed" => model(|results| match results {
            [] => calls("break", [json!({})]),
            _ => text("It is broken."),
        })
        .tool(Tool::function("break", "Fails.", |_: Value| {
            tower_agent::ToolResponse::error("it broke")
        })),
        "client_tool" => model(|results| match results {
            [] => calls("pick_color", [json!({ "prompt": "Pick a colour" })]),
            [color, ..] => text(format!("You picked {color}.")),
        }),
        "approval" => model(|results| match results {
            [] => calls("delete_file", [json!({ "path": "notes.txt" })]),
            [result, ..] => text(format!("The tool said: {result}")),
        })
        .tool(Tool::function(
            "delete_file",
            "Deletes a file.",
            |of: Value| format!("deleted {}", of["path"].as_str().unwrap_or("nothing")),
        ))
        .on_tool(Approval::of_tools(["delete_file"]).allow_edits()),
        "devices" => Agent::builder(ScriptedModel::new([Turn::function(|request| {
            let words = request.messages().last().map(Message::text);
            let answer = format!("You said: {}", words.unwrap_or_default());
            Ok(ModelResponse::from_text(answer))
        })])),
        "kinds" => model(|results| match results {
            [] => Ok([
                ("act", json!({ "of": "it" })),
                ("size", json!({})),
                ("sure", json!({})),
                ("pick_color", json!({ "prompt": "Pick a colour" })),
            ]
            .map(|(tool, arguments)| ToolCall::new("", tool, arguments).into())
            .into()),
            results => text(results.join(", ")),
        })
        .tool(acting())
        .tool(asking("size", "input_required", "How large?"))
        .tool(asking("sure", "tool_call", "Really?"))
        .on_tool(Approval::of_tools(["act"])),
        "twice" => model(|results| match results {
            [] => calls("act", [json!({ "of": "it" })]),
            [.., result] => text(result),
        })
        .tool(asking("act", "input_required", "How?"))
        .on_tool(Approval::of_tools(["act"])),
        "error" => model(|_| Err(Error::new(ErrorKind::Provider, "the model is ill"))),
        "abort" => model(|_| calls("delete_everything", [json!({})]))
            .tool(Tool::function(
                "delete_everything",
                "Deletes.",
                |_: Value| "all is gone",
            ))
            .on_tool(before_tool(|_| {
                Err::<(), _>(Error::abort("nothing is deleted here"))
            })),
        "retry" => Agent::builder(
            ScriptedModel::new([
                Turn::from_text("Half an answer")
                    .failing_after(2, Error::new(ErrorKind::Overloaded, "busy")),
                Turn::from_text("The whole answer."),
            ])
            .chunk_size(6),
        )
        .model_layer(RetryLayer::new(Again)),
        "replace" => model(|_| text("The secret is 1234.")).on_model(after_model(|_, _| {
            Action::Respond(ModelResponse::from_text("The secret is [removed]."))
        })),
        "slow" => Agent::builder(tower::service_fn(endless)),
        other => panic!("there is no scenario `{other}`"),
    };
    builder.semantics(semantics).build().unwrap()
}

/// Tells a story that never ends.
async fn endless(request: ModelRequest) -> Result<ModelResponse> {
    let Some(sink) = request.delta_sender() else {
        return Ok(ModelResponse::from_text("The end."));
    };
    let mut attempt = sink.open();
    let words = "Once upon a time "
        .split_inclusive(' ')
        .chain(std::iter::repeat("and on "));
    for word in words {
        attempt.send(Delta::Text(word.to_owned())).await?;
        tokio::time::sleep(std::time::Duration::from_millis(5)).await;
    }
    Ok(attempt.finish().await?.into())
}

/// Every failure is tried once more.
#[derive(Clone)]
struct Again;

impl<R: Clone, T> Policy<R, T, Error> for Again {
    type Future = std::future::Ready<()>;

    fn retry(&mut self, _: &mut R, result: &mut Result<T>) -> Option<Self::Future> {
        result.is_err().then(|| std::future::ready(()))
    }

    fn clone_request(&mut self, request: &R) -> Option<R> {
        Some(request.clone())
    }
}
