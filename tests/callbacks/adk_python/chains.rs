//! Lists of callbacks: who is asked, who decides, in every hook of every call.

use serde_json::json;
use tower_agent::callback::{
    after_agent, after_agent_async, before_agent, before_agent_async, before_model,
    before_model_async, before_tool, before_tool_async, on_model_error, on_model_error_async,
    on_tool_error, on_tool_error_async,
};
use tower_agent::testing::{ScriptedModel, Turn};
use tower_agent::{
    Action, AgentRequest, AgentResponse, Callback, Error, ErrorKind, ModelRequest, ModelResponse,
    Recovery, Request, Result, ToolRequest, ToolResponse,
};

use super::{adk, agent_says, model_says, said, told, work};
use test_support::log::Log;

#[derive(Clone, Copy, Debug, PartialEq)]
enum Hook {
    Before,
    After,
    OnError,
}

/// Takes part in one hook, where it is written down, and answers if it has an answer.
struct Link {
    hook: Hook,
    index: usize,
    answer: Option<&'static str>,
    /// Comes back to the executor first, as an async callback does.
    waits: bool,
    log: Log,
}

impl Link {
    async fn asked<T>(&self, hook: Hook, make: impl FnOnce(&str) -> T) -> Option<T> {
        if hook != self.hook {
            return None;
        }
        if self.waits {
            tokio::task::yield_now().await;
        }
        self.log.note(self.index.to_string());
        self.answer.map(make)
    }
}

/// A call whose answers can be made of a text.
trait Says: Request {
    fn says(text: &str) -> Self::Response;
}

impl Says for ModelRequest {
    fn says(text: &str) -> ModelResponse {
        model_says(text)
    }
}

impl Says for ToolRequest {
    fn says(text: &str) -> ToolResponse {
        match text {
            // What the framework calls an empty dictionary, which counts as an answer.
            "" => ToolResponse::new(json!({})),
            text => ToolResponse::new(text),
        }
    }
}

impl Says for AgentRequest {
    fn says(text: &str) -> AgentResponse {
        agent_says(text)
    }
}

impl<R: Says> Callback<R> for Link {
    async fn before(&self, _: &mut R) -> Result<Action<R::Response>> {
        Ok(self
            .asked(Hook::Before, R::says)
            .await
            .map_or(Action::Continue, Action::Respond))
    }

    async fn after(&self, _: &R, _: &R::Response) -> Result<Action<R::Response>> {
        Ok(self
            .asked(Hook::After, R::says)
            .await
            .map_or(Action::Continue, Action::Respond))
    }

    async fn on_error(&self, _: &mut R, _: &Error) -> Result<Recovery<R::Response>> {
        let answer = self.asked(Hook::OnError, R::says).await;
        Ok(answer.map_or(Recovery::Propagate, Recovery::Fallback))
    }
}

/// Each list of callbacks' answers, and how many of them are asked.
const LISTS: [(&[Option<&str>], usize); 6] = [
    (&[Some("first"), None], 1),
    (&[None, Some("second"), None, None], 2),
    (&[None, Some("second"), Some("third")], 2),
    (&[None, None, Some("last")], 3),
    (&[None, None, None, None], 4),
    (&[], 0),
];

/// Every list in one hook, its callbacks sync and async by turns.
fn lists(hook: Hook, log: &Log) -> impl Iterator<Item = (Vec<Link>, Vec<String>, Option<&str>)> {
    LISTS.iter().flat_map(move |(answers, asked)| {
        [0, 1].map(|parity| {
            let link = |(index, answer): (usize, &Option<&'static str>)| Link {
                hook,
                index,
                answer: *answer,
                waits: index % 2 == parity,
                log: log.clone(),
            };
            let links = answers.iter().enumerate().map(link).collect();
            let asked = (0..*asked).map(|index| index.to_string()).collect();
            (links, asked, answers.iter().copied().flatten().next())
        })
    })
}

#[tokio::test]
async fn the_first_answer_of_a_list_of_model_callbacks_wins() {
    let log = Log::default();
    for hook in [Hook::Before, Hook::After, Hook::OnError] {
        for (links, asked, answer) in lists(hook, &log) {
            let failure = Error::new(ErrorKind::RateLimited, "quota");
            let model = ScriptedModel::new([match hook {
                Hook::OnError => Turn::error(failure),
                _ => Turn::from_text("the model's"),
            }]);
            let agent = links
                .into_iter()
                .fold(adk(&model), |agent, link| agent.on_model(link));
            let result = agent.build().unwrap().run("?").await;

            assert_eq!(log.take(), asked, "{hook:?} {answer:?}");
            match (answer, hook) {
                (Some(answer), _) => assert_eq!(said(&result.unwrap()), [answer]),
                (None, Hook::OnError) => assert_eq!(result.unwrap_err().message(), "quota"),
                (None, _) => assert_eq!(said(&result.unwrap()), ["the model's"]),
            }
            let calls = usize::from(!(hook == Hook::Before && answer.is_some()));
            assert_eq!(model.requests().len(), calls, "{hook:?} {answer:?}");
        }
    }
}

#[tokio::test]
async fn the_first_answer_of_a_list_of_tool_callbacks_wins() {
    let log = Log::default();
    for hook in [Hook::Before, Hook::After, Hook::OnError] {
        for (links, asked, answer) in lists(hook, &log) {
            let model =
                ScriptedModel::new([Turn::tool("work", json!({})), Turn::from_text("done")]);
            let ran = Log::default();
            let work = match hook {
                Hook::OnError => tower_agent::Tool::function("work", "", |_: serde_json::Value| {
                    Err::<(), _>("out of paper")
                }),
                _ => work(&ran),
            };
            let agent = links
                .into_iter()
                .fold(adk(&model), |agent, link| agent.on_tool(link));
            let result = agent.tool(work).build().unwrap().run("?").await;

            assert_eq!(log.take(), asked, "{hook:?} {answer:?}");
            match (answer, hook) {
                (Some(answer), _) => assert_eq!(told(&result.unwrap()), [answer]),
                (None, Hook::OnError) => assert_eq!(result.unwrap_err().message(), "out of paper"),
                (None, _) => assert_eq!(told(&result.unwrap()), [r#"{"from":"tool"}"#]),
            }
            let runs = match hook {
                Hook::Before if answer.is_some() => 0,
                Hook::OnError => 0,
                _ => 1,
            };
            assert_eq!(ran.take().len(), runs, "{hook:?} {answer:?}");
        }
    }
}

#[tokio::test]
async fn the_first_answer_of_a_list_of_agent_callbacks_wins() {
    let log = Log::default();
    for hook in [Hook::Before, Hook::After] {
        for (links, asked, answer) in lists(hook, &log) {
            let model = ScriptedModel::new([Turn::from_text("the model's")]);
            let agent = links
                .into_iter()
                .fold(adk(&model), |agent, link| agent.on_agent(link));
            let response = agent.build().unwrap().run("?").await.unwrap();

            assert_eq!(log.take(), asked, "{hook:?} {answer:?}");
            assert_eq!(said(&response), [answer.unwrap_or("the model's")]);
            let calls = usize::from(!(hook == Hook::Before && answer.is_some()));
            assert_eq!(model.requests().len(), calls, "{hook:?} {answer:?}");
        }
    }
}

#[tokio::test]
async fn an_empty_answer_counts_as_one() {
    for hook in [Hook::Before, Hook::After] {
        let log = Log::default();
        let link = |index, answer| Link {
            hook,
            index,
            answer,
            waits: false,
            log: log.clone(),
        };
        let model = ScriptedModel::new([Turn::tool("work", json!({})), Turn::from_text("done")]);
        let agent = adk(&model)
            .tool(work(&Log::default()))
            .on_tool(link(0, Some("")))
            .on_tool(link(1, Some("not reached")))
            .build()
            .unwrap();

        assert_eq!(told(&agent.run("?").await.unwrap()), ["{}"], "{hook:?}");
        assert_eq!(log.take(), ["0"]);
    }
}

#[tokio::test]
async fn sync_and_async_functions_stand_in_one_list() {
    let log = Log::default();
    let [a, b, c, d, e, f] = ["a", "b", "c", "d", "e", "f"].map(|name| log.line(name));
    let model = ScriptedModel::new([Turn::tool("work", json!({})), Turn::from_text("done")]);
    let agent = adk(&model)
        .tool(work(&log))
        .on_agent(before_agent(move |_| a()))
        .on_agent(before_agent_async(async |request: &mut AgentRequest| {
            tokio::task::yield_now().await;
            request.context().state().set("async", true);
        }))
        .on_model(before_model(move |_| b()))
        .on_model(before_model_async(async |request: &mut ModelRequest| {
            tokio::task::yield_now().await;
            request.add_instructions("Wait.");
        }))
        .on_tool(before_tool(move |_| c()))
        .on_tool(before_tool_async(async |request: &mut ToolRequest| {
            tokio::task::yield_now().await;
            request.arguments_mut()["later"] = json!(true);
        }))
        .on_agent(after_agent(move |_, _| {
            let d = d.clone();
            async move {
                tokio::task::yield_now().await;
                d();
            }
        }))
        .on_agent(after_agent_async(
            async |_: &AgentRequest, response: &AgentResponse| {
                tokio::task::yield_now().await;
                Action::Respond(agent_says(&response.text().to_uppercase()))
            },
        ))
        .on_model(on_model_error(move |_, _| e()))
        .on_tool(on_tool_error(move |_, _| f()))
        .build()
        .unwrap();

    let response = agent.run("?").await.unwrap();

    model.assert_done();
    assert_eq!(response.text(), "DONE");
    assert_eq!(response.state().get("async"), Some(json!(true)));
    assert_eq!(model.requests()[0].instructions(), Some("Wait."));
    assert_eq!(
        log.take(),
        ["a", "b", "c", r#"work {"later":true}"#, "b", "d"]
    );
}

#[tokio::test]
async fn async_error_callbacks_recover_as_sync_ones_do() {
    let model = ScriptedModel::new([
        Turn::tool("missing", json!({})),
        Turn::error(Error::new(ErrorKind::RateLimited, "quota")),
    ]);
    let agent = adk(&model)
        .on_model(on_model_error_async(
            async |_: &mut ModelRequest, error: &Error| {
                tokio::task::yield_now().await;
                Recovery::Fallback(model_says(&format!("instead of: {}", error.message())))
            },
        ))
        .on_tool(on_tool_error_async(
            async |request: &mut ToolRequest, _: &Error| {
                tokio::task::yield_now().await;
                Recovery::Fallback(ToolResponse::new(format!("no {} here", request.name())))
            },
        ))
        .build()
        .unwrap();

    let response = agent.run("?").await.unwrap();

    assert_eq!(told(&response), ["no missing here"]);
    assert_eq!(response.text(), "instead of: quota");
}
