//! For those who come from ADK Elixir: lists of callbacks with and without an agent; continue and
//! halt; retry, fallback and propagate; callbacks of one run.

use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex};

use serde_json::{Value, json};
use tower_agent::callback::{
    Bundle, after_agent, after_model, after_tool, before_agent, before_model, before_model_async,
    before_tool, on_model_error, on_tool_error,
};
use tower_agent::compat::{CallbackSemantics, Hooks, Semantics};
use tower_agent::message::ToolCall;
use tower_agent::{
    Action, Agent, AgentBuilder, AgentRequest, AgentResponse, Callback, Callbacks, Error,
    ErrorKind, Message, ModelRequest, ModelResponse, Recovery, Request, Result, Tool, ToolRequest,
    ToolResponse,
};
use tower_agent_test::{ProbeLayer, RecordLayer, ScriptedModel, Turn};

use test_support::logger::Logger;
use test_support::trace::{Trace, pending_once};

fn elixir() -> Semantics {
    Semantics::adk_elixir()
}

fn double() -> Tool {
    Tool::function("double", "Doubles a number.", |n: i64| 2 * n)
}

fn builder(model: &ScriptedModel, semantics: Semantics) -> AgentBuilder {
    Agent::builder(model.clone())
        .name("clerk")
        .semantics(semantics)
        .tool(double())
}

fn one_round() -> ScriptedModel {
    ScriptedModel::new([Turn::tool("double", json!(1)), Turn::from_text("2")])
}

fn asks_for_a_tool() -> ModelResponse {
    ModelResponse::new(
        Message::assistant("a moment").with_part(tower_agent::Part::ToolCall(ToolCall::new(
            "given",
            "double",
            json!(1),
        ))),
    )
}

fn failure() -> Error {
    Error::new(ErrorKind::Provider, "500")
}

/// The results that the model has read, by call id.
fn told(response: &AgentResponse) -> Vec<(String, String, bool)> {
    let results = response.new_messages().flat_map(Message::tool_results);
    results
        .map(|r| (r.call_id.to_string(), r.text(), r.is_error))
        .collect()
}

fn texts(response: &AgentResponse) -> Vec<String> {
    response.new_messages().map(Message::text).collect()
}

// Lists without an agent.

/// A request and a response that differ in one word.
trait Worded: Request {
    fn request() -> Self;
    fn response(word: &str) -> Self::Response;
    fn word(response: &Self::Response) -> String;
    fn add(&mut self, word: &str);
    fn words(&self) -> String;
}

impl Worded for AgentRequest {
    fn request() -> Self {
        Self::new("")
    }

    fn response(word: &str) -> AgentResponse {
        AgentResponse::new([Message::assistant(word)])
    }

    fn word(response: &AgentResponse) -> String {
        response.text()
    }

    fn add(&mut self, word: &str) {
        self.messages_mut().push(Message::user(word));
    }

    fn words(&self) -> String {
        self.messages().iter().map(Message::text).collect()
    }
}

impl Worded for ModelRequest {
    fn request() -> Self {
        Self::new([])
    }

    fn response(word: &str) -> ModelResponse {
        ModelResponse::from_text(word)
    }

    fn word(response: &ModelResponse) -> String {
        response.message().text()
    }

    fn add(&mut self, word: &str) {
        self.messages_mut().push(Message::user(word));
    }

    fn words(&self) -> String {
        self.messages().iter().map(Message::text).collect()
    }
}

impl Worded for ToolRequest {
    fn request() -> Self {
        Self::new(ToolCall::new("call_1", "note", json!("")))
    }

    fn response(word: &str) -> ToolResponse {
        ToolResponse::new(word)
    }

    fn word(response: &ToolResponse) -> String {
        response.value().as_str().unwrap().to_owned()
    }

    fn add(&mut self, word: &str) {
        *self.arguments_mut() = json!(self.words() + word);
    }

    fn words(&self) -> String {
        self.arguments().as_str().unwrap().to_owned()
    }
}

/// The behaviour of a callback of a list when it is asked.
#[derive(Clone, Copy)]
enum Does {
    /// It lacks the hook.
    Lacks,
    /// Adds its name to the request or the response, and continues.
    Adds,
    /// Leaves all as it is.
    Nothing,
    /// Answers, replaces or falls back.
    Gives(&'static str),
    /// Fails with, or puts in the error's place.
    Fails(&'static str),
    Retries,
}
use Does::*;

struct Link {
    name: &'static str,
    does: Does,
    trace: Trace,
}

impl<R: Worded> Callback<R> for Link {
    async fn before(&self, request: &mut R) -> Result<Action<R::Response>> {
        if matches!(self.does, Lacks) {
            return Ok(Action::Continue);
        }
        self.trace.push(self.name);
        match self.does {
            Adds => request.add(self.name),
            Gives(word) => return Ok(Action::Respond(R::response(word))),
            Fails(word) => return Err(Error::new(ErrorKind::Other, word)),
            _ => {}
        }
        Ok(Action::Continue)
    }

    async fn after(&self, _: &R, response: &R::Response) -> Result<Action<R::Response>> {
        if matches!(self.does, Lacks) {
            return Ok(Action::Continue);
        }
        pending_once().await;
        self.trace.push(self.name);
        Ok(match self.does {
            Adds => Action::Respond(R::response(&(R::word(response) + self.name))),
            Gives(word) => Action::Respond(R::response(word)),
            _ => Action::Continue,
        })
    }

    async fn on_error(&self, request: &mut R, error: &Error) -> Result<Recovery<R::Response>> {
        if matches!(self.does, Lacks) {
            return Ok(Recovery::Propagate);
        }
        self.trace
            .push(format!("{}({})", self.name, error.message()));
        Ok(match self.does {
            Retries => {
                request.add(self.name);
                Recovery::Retry
            }
            Gives(word) => Recovery::Fallback(R::response(word)),
            Fails(word) => Recovery::Fail(Error::new(ErrorKind::Other, word)),
            _ => Recovery::Propagate,
        })
    }
}

fn list<R: Worded>(does: &[Does], trace: &Trace) -> Callbacks<R> {
    let names = ["A", "B", "C", "D"];
    let links = names.into_iter().zip(does);
    let list: Callbacks<R> = links
        .map(|(name, &does)| Link {
            name,
            does,
            trace: trace.clone(),
        })
        .collect();
    list.with_semantics(CallbackSemantics::adk_elixir())
}

async fn run_before<R: Worded>() {
    /// Who is asked, what the request has become, and what the list says.
    type Case<'a> = (
        &'a [Does],
        &'a str,
        &'a str,
        Result<Option<&'a str>, &'a str>,
    );
    let cases: &[Case<'_>] = &[
        (&[], "", "", Ok(None)),
        (&[Nothing, Nothing], "A B", "", Ok(None)),
        (&[Adds, Adds, Adds], "A B C", "ABC", Ok(None)),
        (&[Lacks, Adds, Lacks], "B", "B", Ok(None)),
        (&[Gives("x"), Adds], "A", "", Ok(Some("x"))),
        (&[Adds, Gives("x"), Gives("y")], "A B", "A", Ok(Some("x"))),
        (&[Adds, Fails("no"), Adds], "A B", "A", Err("no")),
    ];
    for &(does, asked, words, says) in cases {
        let trace = Trace::default();
        let mut request = R::request();
        let result = list::<R>(does, &trace).run_before(&mut request).await;
        assert_eq!(
            (trace.take().as_str(), request.words().as_str()),
            (asked, words)
        );
        let result = result.map(|response| response.map(|r| R::word(&r)));
        assert_eq!(
            result
                .as_ref()
                .map(Option::as_deref)
                .map_err(|e| e.message()),
            says
        );
    }
}

#[tokio::test]
async fn run_before_threads_the_request_and_stops_at_the_first_halt() {
    run_before::<AgentRequest>().await;
    run_before::<ModelRequest>().await;
    run_before::<ToolRequest>().await;
}

async fn run_after<R: Worded>() {
    let cases: &[(&[Does], &str, &str)] = &[
        (&[], "", "base"),
        (&[Nothing, Lacks], "A", "base"),
        (&[Adds, Adds, Adds], "A B C", "baseABC"),
        (&[Adds, Gives("new"), Adds], "A B C", "newC"),
        (&[Gives("x"), Adds, Gives("y"), Adds], "A B C D", "yD"),
    ];
    for &(does, asked, word) in cases {
        let trace = Trace::default();
        let list = list::<R>(does, &trace);
        let response = list
            .run_after(&R::request(), R::response("base"))
            .await
            .unwrap();
        assert_eq!(
            (trace.take().as_str(), R::word(&response).as_str()),
            (asked, word)
        );
    }
}

#[tokio::test]
async fn run_after_threads_the_response_through_every_callback() {
    run_after::<AgentRequest>().await;
    run_after::<ModelRequest>().await;
    run_after::<ToolRequest>().await;
}

async fn run_on_error<R: Worded>() {
    let cases: &[(&[Does], &str, &str)] = &[
        (&[], "", "error: 500"),
        (&[Lacks, Nothing], "B(500)", "error: 500"),
        (&[Retries, Gives("x")], "A(500)", "retry with A"),
        (
            &[Nothing, Gives("x"), Retries],
            "A(500) B(500)",
            "fallback: x",
        ),
        (&[Lacks, Retries], "B(500)", "retry with B"),
        (
            &[Fails("worse"), Nothing],
            "A(500) B(worse)",
            "error: worse",
        ),
        (
            &[Fails("worse"), Fails("worst"), Gives("x")],
            "A(500) B(worse) C(worst)",
            "fallback: x",
        ),
    ];
    for &(does, asked, says) in cases {
        let trace = Trace::default();
        let mut request = R::request();
        let said = match list::<R>(does, &trace)
            .run_on_error(&mut request, failure())
            .await
        {
            Recovery::Retry => format!("retry with {}", request.words()),
            Recovery::Fallback(response) => format!("fallback: {}", R::word(&response)),
            Recovery::Fail(error) => format!("error: {}", error.message()),
            _ => panic!("a list ends in one of these three"),
        };
        assert_eq!((trace.take().as_str(), said.as_str()), (asked, says));
    }
}

#[tokio::test]
async fn run_on_error_takes_the_first_retry_or_fallback() {
    run_on_error::<AgentRequest>().await;
    run_on_error::<ModelRequest>().await;
    run_on_error::<ToolRequest>().await;
}

// The model.

#[tokio::test]
async fn tool_calls_in_a_halt_or_a_fallback_for_the_model_are_not_run() {
    let halt = |builder: AgentBuilder| {
        builder.on_model(before_model(|request| {
            match request.context().iteration() {
                0 => Action::Respond(asks_for_a_tool()),
                _ => Action::Continue,
            }
        }))
    };
    let fallback = |builder: AgentBuilder| {
        builder.on_model(on_model_error(|_, _| Recovery::Fallback(asks_for_a_tool())))
    };
    type Ways<'a> = &'a dyn Fn(AgentBuilder) -> AgentBuilder;
    let ways: [(Ways<'_>, Vec<Turn>); 2] =
        [(&halt, vec![]), (&fallback, vec![Turn::error(failure())])];
    for (give, turns) in ways {
        for (semantics, calls, text) in [(elixir(), 0, "a moment"), (Semantics::default(), 1, "2")]
        {
            let record = RecordLayer::<ToolRequest>::new();
            let model = ScriptedModel::new(turns.iter().cloned().chain([Turn::from_text("2")]));
            let agent = give(builder(&model, semantics).tool_layer(record.clone()))
                .build()
                .unwrap();

            let response = agent.run("?").await.unwrap();

            assert_eq!(
                (response.text().as_str(), record.requests().len()),
                (text, calls)
            );
            assert_eq!(told(&response).len(), calls);
            assert_eq!(response.messages().last().unwrap().tool_calls().count(), 0);
        }
    }
}

#[tokio::test]
async fn a_response_given_for_the_model_stays_final_whatever_an_outer_after_returns() {
    let halts = before_model(|_| Action::Respond(asks_for_a_tool()));
    let falls_back = on_model_error(|_, _| Recovery::Fallback(asks_for_a_tool()));
    for (callbacks, turn) in [
        (Bundle::new().on_model(halts), None),
        (
            Bundle::new().on_model(falls_back),
            Some(Turn::error(failure())),
        ),
    ] {
        let record = RecordLayer::<ToolRequest>::new();
        let model = ScriptedModel::new(turn);
        let agent = builder(&model, elixir())
            .on_model(after_model(|_, response| {
                let message = response
                    .message()
                    .clone()
                    .with_part(tower_agent::Part::from_text(", please"));
                Action::Respond(ModelResponse::new(message))
            }))
            .tool_layer(record.clone())
            .build()
            .unwrap();

        let request = AgentRequest::new("?").with_callbacks(callbacks);
        assert_eq!(agent.run(request).await.unwrap().text(), "a moment, please");

        model.assert_done();
        assert!(record.requests().is_empty());
    }
}

#[tokio::test]
async fn changes_of_before_model_reach_the_model_and_after_model_changes_the_answer() {
    let model = ScriptedModel::new([Turn::from_text("base")]);
    let appends = |word: &'static str| {
        after_model(move |_, response| {
            Action::Respond(ModelResponse::from_text(response.message().text() + word))
        })
    };
    let agent = builder(&model, elixir())
        .on_model(before_model(|request| {
            request.add_instructions("Be brief.")
        }))
        .on_model(before_model_async(async |request: &mut ModelRequest| {
            pending_once().await;
            request.add_instructions("Be kind.");
        }))
        .on_model(appends("+A"))
        .on_model(appends("+B"))
        .build()
        .unwrap();

    assert_eq!(agent.run("?").await.unwrap().text(), "base+A+B");

    let instructions = model.requests()[0].instructions().unwrap().to_owned();
    assert!(instructions.contains("Be brief.") && instructions.ends_with("Be kind."));
}

#[tokio::test]
async fn a_retry_of_the_model_asks_before_model_again_about_the_request_as_it_was() {
    for (semantics, asked) in [
        (elixir(), "log> log!provider failed log> <log"),
        (Semantics::default(), "log> log!provider failed <log"),
    ] {
        let trace = Trace::default();
        let model = ScriptedModel::new([Turn::error(failure()), Turn::from_text("well")]);
        let agent = builder(&model, semantics)
            .on_model(Logger::new("log", &trace))
            .on_model(before_model(|request| {
                request.messages_mut().push(Message::user("!"))
            }))
            .on_model(on_model_error(|_, _| Recovery::Retry))
            .build()
            .unwrap();

        let response = agent.run("?").await.unwrap();

        model.assert_done();
        assert_eq!(
            (response.text().as_str(), response.iterations()),
            ("well", 1)
        );
        assert_eq!(trace.take(), asked);
        // Asked once or twice, it adds its message once.
        let sent: Vec<_> = model
            .requests()
            .iter()
            .map(|r| r.messages().len())
            .collect();
        assert_eq!(sent, [2, 2]);
    }
}

#[tokio::test]
async fn a_retry_may_be_halted_by_before_model() {
    let model = ScriptedModel::new([Turn::error(failure())]);
    let asked = AtomicU32::new(0);
    let agent = builder(&model, elixir())
        .on_model(before_model(move |_| {
            match asked.fetch_add(1, Ordering::SeqCst) {
                0 => Action::Continue,
                _ => Action::Respond(ModelResponse::from_text("later")),
            }
        }))
        .on_model(on_model_error(|_, _| Recovery::Retry))
        .build()
        .unwrap();

    assert_eq!(agent.run("?").await.unwrap().text(), "later");
    model.assert_done();
}

#[tokio::test]
async fn retries_of_the_model_end_at_the_iteration_limit() {
    for (semantics, limit, calls) in [
        (elixir(), 2, 3),
        (elixir(), 6, 7),
        (Semantics::default(), 2, 4),
        (Semantics::default(), 6, 4),
    ] {
        let model = ScriptedModel::new((0..calls).map(|_| Turn::error(failure())));
        let agent = builder(&model, semantics)
            .max_iterations(limit)
            .on_model(on_model_error(|_, _| Recovery::Retry))
            .build()
            .unwrap();

        let error = agent.run("?").await.unwrap_err();

        model.assert_done();
        assert_eq!(
            (error.kind(), error.message()),
            (ErrorKind::Provider, "500")
        );
    }
}

#[tokio::test]
async fn a_hook_that_retries_once_and_then_gives_up_is_asked_twice() {
    for semantics in [elixir(), Semantics::default()] {
        let asked = Arc::new(AtomicU32::new(0));
        let model = ScriptedModel::new([Turn::error(failure()), Turn::error(failure())]);
        let agent = builder(&model, semantics)
            .on_model(on_model_error({
                let asked = asked.clone();
                move |_, _| match asked.fetch_add(1, Ordering::SeqCst) {
                    0 => Recovery::Retry,
                    _ => Recovery::Propagate,
                }
            }))
            .build()
            .unwrap();

        let error = agent.run("?").await.unwrap_err();

        model.assert_done();
        assert_eq!(error.message(), "500");
        assert_eq!(asked.load(Ordering::SeqCst), 2);
    }
}

// Tools.

#[tokio::test]
async fn the_model_reads_a_halt_with_an_error_and_no_on_tool_error_runs() {
    let (trace, record) = (Trace::default(), RecordLayer::<ToolRequest>::new());
    let agent = builder(&one_round(), elixir())
        .on_tool(before_tool(|_| {
            Result::<()>::Err(Error::new(ErrorKind::Tool, "closed"))
        }))
        .on_tool(Logger::new("log", &trace))
        .tool_layer(record.clone())
        .build()
        .unwrap();

    let response = agent.run("?").await.unwrap();

    assert_eq!(response.text(), "2");
    assert_eq!(
        told(&response),
        [("call_1".into(), "tool failed: closed".into(), true)]
    );
    assert_eq!((trace.take().as_str(), record.requests().len()), ("", 0));
}

#[tokio::test]
async fn arguments_changed_before_a_tool_reach_it_and_after_tool_changes_its_result() {
    let seen = Arc::new(Mutex::new(None));
    let agent = builder(&one_round(), elixir())
        .on_tool(before_tool(|request| *request.arguments_mut() = json!(10)))
        .on_tool(before_tool(|request| {
            let n = request.arguments().as_i64().unwrap();
            *request.arguments_mut() = json!(n + 1);
        }))
        .on_tool(after_tool({
            let seen = seen.clone();
            move |request, response| {
                *seen.lock().unwrap() =
                    Some((request.arguments().clone(), response.value().clone()));
                Action::Respond(ToolResponse::new("about twenty"))
            }
        }))
        .on_tool(after_tool(|_, response| {
            Action::Respond(ToolResponse::new(format!(
                "{}!",
                response.value().as_str().unwrap()
            )))
        }))
        .build()
        .unwrap();

    let response = agent.run("?").await.unwrap();

    assert_eq!(*seen.lock().unwrap(), Some((json!(11), json!(22))));
    assert_eq!(
        told(&response),
        [("call_1".into(), "about twenty!".into(), false)]
    );
    // The transcript keeps what the model asked for.
    let asked = response
        .new_messages()
        .flat_map(Message::tool_calls)
        .next()
        .unwrap()
        .clone();
    assert_eq!(asked.arguments, json!(1));
}

/// A tool that fails so often, and the arguments of its calls.
fn flaky(failures: usize) -> (Tool, Arc<Mutex<Vec<Value>>>) {
    let calls = Arc::new(Mutex::new(Vec::new()));
    let tool = Tool::function("flaky", "", {
        let calls = calls.clone();
        move |arguments: Value| {
            let mut calls = calls.lock().unwrap();
            calls.push(arguments);
            match calls.len() {
                n if n <= failures => Err(Error::new(ErrorKind::Tool, format!("jam {n}"))),
                _ => Ok("paper"),
            }
        }
    });
    (tool, calls)
}

fn print() -> ScriptedModel {
    ScriptedModel::new([Turn::tool("flaky", json!("a4")), Turn::from_text("done")])
}

#[tokio::test]
async fn a_retry_of_a_tool_runs_it_once_more_with_its_arguments() {
    // How often it fails, how often it runs, and what the model reads.
    let cases = [
        (elixir(), 1, 2, "paper"),
        (elixir(), 9, 2, "tool failed: jam 2"),
        (Semantics::default(), 3, 4, "paper"),
        (Semantics::default(), 9, 4, "tool failed: jam 4"),
    ];
    for (semantics, failures, runs, result) in cases {
        let trace = Trace::default();
        let (tool, calls) = flaky(failures);
        let agent = builder(&print(), semantics)
            .tool(tool)
            .on_tool(before_tool(|request| {
                *request.arguments_mut() = json!("a3")
            }))
            .on_tool(before_tool({
                let trace = trace.clone();
                move |_| trace.push("before")
            }))
            .on_tool(on_tool_error(|_, _| Recovery::Retry))
            .build()
            .unwrap();

        let response = agent.run("?").await.unwrap();

        assert_eq!(response.text(), "done");
        assert_eq!(*calls.lock().unwrap(), vec![json!("a3"); runs]);
        assert_eq!(trace.take(), "before");
        assert_eq!(told(&response)[0].1, result);
    }
}

#[tokio::test]
async fn on_tool_error_may_change_the_arguments_of_the_retry() {
    let (tool, calls) = flaky(1);
    let agent = builder(&print(), elixir())
        .tool(tool)
        .on_tool(on_tool_error(|request, _| {
            *request.arguments_mut() = json!("letter");
            Recovery::Retry
        }))
        .build()
        .unwrap();

    let response = agent.run("?").await.unwrap();

    assert_eq!(*calls.lock().unwrap(), [json!("a4"), json!("letter")]);
    assert_eq!(told(&response), [("call_1".into(), "paper".into(), false)]);
}

#[tokio::test]
async fn a_retry_that_fails_may_still_be_answered_by_a_fallback() {
    let (tool, calls) = flaky(9);
    let agent = builder(&print(), elixir())
        .tool(tool)
        .on_tool(on_tool_error(|_, error| match error.message() {
            "jam 1" => Recovery::Retry,
            _ => Recovery::Fallback(ToolResponse::new("by mail")),
        }))
        .build()
        .unwrap();

    let response = agent.run("?").await.unwrap();

    assert_eq!(calls.lock().unwrap().len(), 2);
    assert_eq!(
        told(&response),
        [("call_1".into(), "by mail".into(), false)]
    );
}

#[tokio::test]
async fn the_model_reads_a_failure_of_a_tool_that_all_propagate() {
    let (tool, calls) = flaky(9);
    let agent = builder(&print(), elixir())
        .tool(tool)
        .on_tool(on_tool_error(|_, error| {
            Recovery::Fail(Error::new(
                error.kind(),
                format!("printer: {}", error.message()),
            ))
        }))
        .on_tool(on_tool_error(|_, _| Recovery::Propagate))
        .build()
        .unwrap();

    let response = agent.run("?").await.unwrap();

    assert_eq!(
        (response.text().as_str(), calls.lock().unwrap().len()),
        ("done", 1)
    );
    assert_eq!(
        told(&response),
        [("call_1".into(), "tool failed: printer: jam 1".into(), true)]
    );
}

#[tokio::test]
async fn an_exception_beside_other_tool_calls_is_the_result_of_its_own_call() {
    let boom = |request: &ToolRequest, here: bool| {
        if here && request.arguments()["value"] == 2 {
            panic!("boom");
        }
    };
    let places = [
        ("tool", "tool failed: the tool panicked: boom"),
        ("before", "callback failed: panicked: boom"),
        ("after", "callback failed: panicked: boom"),
        ("on_error", "callback failed: panicked: boom"),
    ];
    for (place, says) in places {
        for semantics in [elixir(), Semantics::default()] {
            let model = ScriptedModel::new([
                Turn::tool("work", json!(1))
                    .and_tool("work", json!(2))
                    .and_tool("work", json!(3)),
                Turn::from_text("done"),
            ]);
            let work = Tool::function_with("work", "", move |n: i64, request: ToolRequest| {
                boom(&request, place == "tool");
                match n {
                    2 if place == "on_error" => Err(Error::new(ErrorKind::Tool, "jam")),
                    n => Ok(10 * n),
                }
            });
            let agent = builder(&model, semantics)
                .tool(work)
                .on_tool(before_tool(move |request| boom(request, place == "before")))
                .on_tool(after_tool(move |request, _| {
                    boom(request, place == "after")
                }))
                .on_tool(on_tool_error(move |request, _| {
                    boom(request, place == "on_error")
                }))
                .build()
                .unwrap();

            let response = agent.run("?").await.unwrap();

            model.assert_done();
            assert_eq!(
                told(&response),
                [
                    ("call_1".into(), "10".into(), false),
                    ("call_2".into(), says.into(), true),
                    ("call_3".into(), "30".into(), false),
                ],
                "{place}"
            );
        }
    }
}

#[tokio::test]
async fn an_unknown_tool_is_an_error_that_on_tool_error_may_answer() {
    for semantics in [elixir(), Semantics::default()] {
        for falls_back in [true, false] {
            let kinds = Arc::new(Mutex::new(Vec::new()));
            let model =
                ScriptedModel::new([Turn::tool("triple", json!(1)), Turn::from_text("done")]);
            let agent = builder(&model, semantics)
                .on_tool(on_tool_error({
                    let kinds = kinds.clone();
                    move |request, error| {
                        kinds
                            .lock()
                            .unwrap()
                            .push((request.name().to_owned(), error.kind()));
                        if falls_back {
                            Recovery::Fallback(ToolResponse::new(3))
                        } else {
                            Recovery::Propagate
                        }
                    }
                }))
                .build()
                .unwrap();

            let response = agent.run("?").await.unwrap();

            model.assert_done();
            assert_eq!(
                *kinds.lock().unwrap(),
                [("triple".to_owned(), ErrorKind::UnknownTool)]
            );
            let (id, text, is_error) = told(&response).remove(0);
            assert_eq!((id.as_str(), is_error), ("call_1", !falls_back));
            if falls_back {
                assert_eq!(text, "3")
            } else {
                assert!(
                    text.contains("`triple`") && text.contains("double"),
                    "{text}"
                )
            }
        }
    }
}

#[tokio::test]
async fn tool_calls_of_a_turn_run_one_by_one() {
    let wait = || {
        Tool::function("wait", "", async |_: Value| {
            pending_once().await;
            pending_once().await;
        })
    };
    for (semantics, at_once) in [(elixir(), 1), (Semantics::default(), 2)] {
        let probe = ProbeLayer::new();
        let turn = Turn::tool("wait", json!(null)).and_tool("wait", json!(null));
        let agent = builder(
            &ScriptedModel::new([turn, Turn::from_text("done")]),
            semantics,
        )
        .tool(wait())
        .tool_layer(probe.clone())
        .build()
        .unwrap();

        agent.run("?").await.unwrap();

        assert_eq!((probe.max_in_flight(), probe.violations()), (at_once, 0));
    }
}

#[tokio::test]
async fn a_callback_knows_the_agent_the_request_the_tool_and_its_arguments() {
    let trace = Trace::default();
    let agent = builder(&one_round(), elixir())
        .on_model(before_model({
            let trace = trace.clone();
            move |request| {
                let agent = request.context().agent().to_owned();
                trace.push(format!("{agent}/{}", request.messages()[0].text()));
            }
        }))
        .on_tool(before_tool({
            let trace = trace.clone();
            move |request| {
                let agent = request.context().agent().to_owned();
                let tool = request.declaration().unwrap().description().to_owned();
                trace.push(format!("{agent}/{tool}/{}", request.arguments()));
            }
        }))
        .build()
        .unwrap();

    agent.run("hi").await.unwrap();

    assert_eq!(
        trace.take(),
        "clerk/hi clerk/Doubles a number./{\"value\":1} clerk/hi"
    );
}

#[tokio::test]
async fn later_callbacks_find_what_a_callback_has_stored() {
    let agent = builder(&one_round(), elixir())
        .on_agent(before_agent(|request| {
            request.context().values().set("from", "agent")
        }))
        .on_model(before_model(|request| {
            request.extensions_mut().insert(7_u8);
        }))
        .on_model(before_model(|request| {
            assert_eq!(request.extensions().get::<u8>(), Some(&7));
        }))
        .on_model(after_model(|request, response| {
            let n = request.extensions().get::<u8>().copied().unwrap();
            let from = request
                .context()
                .values()
                .get::<&str>("from")
                .unwrap()
                .unwrap();
            let text = response.message().text();
            if text.is_empty() {
                Action::Continue
            } else {
                Action::Respond(ModelResponse::from_text(format!("{text}/{n}/{from}")))
            }
        }))
        .build()
        .unwrap();

    assert_eq!(agent.run("?").await.unwrap().text(), "2/7/agent");
}

// The agent.

#[tokio::test]
async fn a_halt_before_the_agent_is_all_that_it_says() {
    for (semantics, asked) in [(elixir(), ""), (Semantics::default(), "<log")] {
        let trace = Trace::default();
        let model = ScriptedModel::new([]);
        let agent = builder(&model, semantics)
            .on_agent(before_agent(|_| {
                let events = [
                    Message::assistant("closed"),
                    Message::assistant("come back later"),
                ];
                Action::Respond(AgentResponse::new(events))
            }))
            .on_agent(Logger::new("log", &trace))
            .build()
            .unwrap();

        let response = agent.run("?").await.unwrap();

        model.assert_done();
        assert_eq!(texts(&response), ["closed", "come back later"]);
        assert_eq!(response.iterations(), 0);
        assert_eq!(trace.take(), asked);
    }
}

/// Gives all that was said, changed by a function.
fn transform(
    change: impl Fn(&mut Vec<Message>) + Send + Sync + 'static,
) -> impl Callback<AgentRequest> {
    after_agent(move |_, response: &AgentResponse| {
        let mut events = response.new_messages().cloned().collect();
        change(&mut events);
        Action::Respond(AgentResponse::new(events))
    })
}

#[tokio::test]
async fn after_agent_transforms_all_that_the_agent_said() {
    let agent = builder(&one_round(), elixir())
        .on_agent(transform(|events| {
            events.retain(|event| event.tool_calls().count() == 0)
        }))
        .build()
        .unwrap();

    let response = agent.run("?").await.unwrap();

    // The answer of the tool, and the last words; what the run took is kept.
    assert_eq!(texts(&response).len(), 2);
    assert_eq!((response.text().as_str(), response.iterations()), ("2", 2));
    assert_eq!(response.messages().len(), 3);
    assert_eq!(response.messages()[0], Message::user("?"));
}

#[tokio::test]
async fn every_after_agent_sees_the_events_as_the_one_before_it_left_them() {
    let seen = Arc::new(Mutex::new(Vec::new()));
    let agent = builder(&one_round(), elixir())
        .on_agent(transform(|events| drop(events.drain(..2))))
        .on_agent(transform({
            let seen = seen.clone();
            move |events| {
                seen.lock()
                    .unwrap()
                    .extend(events.iter().map(Message::text));
                events.push(Message::assistant("bye"));
            }
        }))
        .on_agent(after_agent(|_, _| Action::Continue))
        .on_agent(transform(|events| {
            events.insert(0, Message::assistant("hello"))
        }))
        .build()
        .unwrap();

    let response = agent.run("?").await.unwrap();

    assert_eq!(*seen.lock().unwrap(), ["2"]);
    assert_eq!(texts(&response), ["hello", "2", "bye"]);
    let all: Vec<_> = response.messages().iter().map(Message::text).collect();
    assert_eq!(all, ["?", "hello", "2", "bye"]);
}

#[tokio::test]
async fn after_agent_may_drop_every_event() {
    let agent = builder(&one_round(), elixir())
        .on_agent(transform(Vec::clear))
        .build()
        .unwrap();
    let response = agent.run("?").await.unwrap();
    assert_eq!(response.new_messages().count(), 0);
    assert_eq!(response.messages().len(), 1);
}

#[tokio::test]
async fn the_hooks_of_a_run_are_asked_in_the_order_of_the_pipeline() {
    let trace = Trace::default();
    let module = Module {
        name: "m",
        trace: trace.clone(),
    };
    let agent = builder(&one_round(), elixir())
        .callbacks(module)
        .build()
        .unwrap();

    agent.run("?").await.unwrap();

    let model = "m:before_model m:after_model";
    let tool = "m:before_tool m:after_tool";
    assert_eq!(
        trace.take(),
        ["m:before_agent", model, tool, model, "m:after_agent"].join(" ")
    );
}

// Modules, and the callbacks of a run.

/// A module with every hook.
struct Module {
    name: &'static str,
    trace: Trace,
}

impl Module {
    fn note<T>(&self, hook: &str) -> Result<Action<T>> {
        self.trace.push(format!("{}:{hook}", self.name));
        Ok(Action::Continue)
    }
}

impl Hooks for Module {
    async fn before_agent(&self, _: &mut AgentRequest) -> Result<Action<AgentResponse>> {
        self.note("before_agent")
    }

    async fn after_agent(
        &self,
        _: &AgentRequest,
        _: &AgentResponse,
    ) -> Result<Action<AgentResponse>> {
        self.note("after_agent")
    }

    async fn before_model(&self, _: &mut ModelRequest) -> Result<Action<ModelResponse>> {
        self.note("before_model")
    }

    async fn after_model(
        &self,
        _: &ModelRequest,
        _: &ModelResponse,
    ) -> Result<Action<ModelResponse>> {
        self.note("after_model")
    }

    async fn on_model_error(
        &self,
        _: &mut ModelRequest,
        _: &Error,
    ) -> Result<Recovery<ModelResponse>> {
        self.trace.push(format!("{}:on_model_error", self.name));
        Ok(Recovery::Propagate)
    }

    async fn before_tool(&self, _: &mut ToolRequest) -> Result<Action<ToolResponse>> {
        self.note("before_tool")
    }

    async fn after_tool(&self, _: &ToolRequest, _: &ToolResponse) -> Result<Action<ToolResponse>> {
        self.note("after_tool")
    }

    async fn on_tool_error(
        &self,
        _: &mut ToolRequest,
        _: &Error,
    ) -> Result<Recovery<ToolResponse>> {
        self.trace.push(format!("{}:on_tool_error", self.name));
        Ok(Recovery::Propagate)
    }
}

/// A module with one hook.
struct Signs;

impl Hooks for Signs {
    async fn after_model(
        &self,
        _: &ModelRequest,
        response: &ModelResponse,
    ) -> Result<Action<ModelResponse>> {
        match response.message().text() {
            text if text.is_empty() => Ok(Action::Continue),
            text => Ok(Action::Respond(ModelResponse::from_text(
                text + " (signed)",
            ))),
        }
    }
}

#[tokio::test]
async fn a_module_is_asked_for_the_hooks_that_it_has_and_skipped_for_the_rest() {
    let trace = Trace::default();
    let (tool, _) = flaky(9);
    let agent = builder(&print(), elixir())
        .tool(tool)
        .callbacks(Signs)
        .callbacks(Module {
            name: "m",
            trace: trace.clone(),
        })
        .build()
        .unwrap();

    assert_eq!(agent.run("?").await.unwrap().text(), "done (signed)");
    assert!(
        trace
            .take()
            .contains("m:before_tool m:on_tool_error m:before_model")
    );

    let model = ScriptedModel::new([Turn::error(failure())]);
    let module = Module {
        name: "m",
        trace: trace.clone(),
    };
    let agent = builder(&model, elixir())
        .callbacks(Signs)
        .callbacks(module)
        .build()
        .unwrap();
    agent.run("?").await.unwrap_err();
    assert_eq!(
        trace.take(),
        "m:before_agent m:before_model m:on_model_error"
    );
}

#[tokio::test]
async fn callbacks_given_with_a_run_act_in_that_run_after_the_agents_own() {
    let trace = Trace::default();
    let module = |name| Module {
        name,
        trace: trace.clone(),
    };
    let model = ScriptedModel::new([Turn::from_text("1"), Turn::from_text("2")]);
    let agent = builder(&model, elixir())
        .callbacks(module("own"))
        .build()
        .unwrap();

    let request = AgentRequest::new("?")
        .with_callbacks(Signs)
        .with_callbacks(module("run"));
    assert_eq!(agent.run(request).await.unwrap().text(), "1 (signed)");
    assert_eq!(
        trace.take(),
        "own:before_agent run:before_agent own:before_model run:before_model \
         run:after_model own:after_model run:after_agent own:after_agent"
    );

    // Another run of the same agent has none of them.
    assert_eq!(agent.run("?").await.unwrap().text(), "2");
    assert_eq!(
        trace.take(),
        "own:before_agent own:before_model own:after_model own:after_agent"
    );
}

#[tokio::test]
async fn an_agents_own_callbacks_may_halt_before_those_of_the_run_are_asked() {
    let trace = Trace::default();
    let model = ScriptedModel::new([]);
    let agent = builder(&model, elixir())
        .on_model(before_model(|_| {
            Action::Respond(ModelResponse::from_text("mine"))
        }))
        .build()
        .unwrap();

    let request =
        AgentRequest::new("?").with_callbacks(Bundle::new().on_model(Logger::new("run", &trace)));
    assert_eq!(agent.run(request).await.unwrap().text(), "mine");
    model.assert_done();
    assert_eq!(trace.take(), "");
}

#[tokio::test]
async fn callbacks_given_with_a_run_follow_the_agents_semantics() {
    let trace = Trace::default();
    let (tool, calls) = flaky(9);
    let model = ScriptedModel::new([
        Turn::tool("flaky", json!("a4")),
        Turn::error(failure()),
        Turn::error(failure()),
        Turn::error(failure()),
    ]);
    let agent = builder(&model, elixir())
        .max_iterations(2)
        .tool(tool)
        .build()
        .unwrap();

    let retries = Bundle::new()
        .on_model(Logger::new("log", &trace))
        .on_model(on_model_error(|_, _| Recovery::Retry))
        .on_tool(on_tool_error(|_, _| Recovery::Retry));
    let error = agent
        .run(AgentRequest::new("?").with_callbacks(retries))
        .await
        .unwrap_err();

    // A tool is run once more; a model as often as the limit says, and `before_model` with it.
    model.assert_done();
    assert_eq!(error.message(), "500");
    assert_eq!(calls.lock().unwrap().len(), 2);
    let (once, fails) = ("log> <log", "log> log!provider failed");
    assert_eq!(trace.take(), [once, fails, fails, fails].join(" "));
}

#[tokio::test]
async fn plugins_come_first_in_every_phase_of_a_model_call_and_stand_around_other_calls() {
    let trace = Trace::default();
    let module = |name| Module {
        name,
        trace: trace.clone(),
    };
    let model = ScriptedModel::new([Turn::from_text("1")]);
    let agent = builder(&model, elixir())
        .on_model(before_model(|request| {
            assert_eq!(request.instructions(), Some("House rules."));
        }))
        .callbacks(module("own"))
        .global_callbacks(Bundle::new().on_model(before_model(|request| {
            request.add_instructions("House rules.");
        })))
        .global_callbacks(module("plugin"))
        .build()
        .unwrap();

    agent.run("?").await.unwrap();

    assert_eq!(
        trace.take(),
        "plugin:before_agent own:before_agent plugin:before_model own:before_model \
         plugin:after_model own:after_model own:after_agent plugin:after_agent"
    );
}

#[tokio::test]
async fn the_first_plugin_that_answers_is_the_only_one_asked() {
    let trace = Trace::default();
    let model = ScriptedModel::new([]);
    let agent = builder(&model, elixir())
        .on_model(Logger::new("own", &trace))
        .global_callbacks(
            Bundle::new()
                .on_model(before_model(|_| {
                    Action::Respond(ModelResponse::from_text("cached"))
                }))
                .on_model(Logger::new("second", &trace)),
        )
        .build()
        .unwrap();

    assert_eq!(agent.run("?").await.unwrap().text(), "cached");
    model.assert_done();
    assert_eq!(trace.take(), "");
}

#[tokio::test]
async fn too_many_turns_end_the_run_with_an_error() {
    let model = ScriptedModel::new([1, 2].map(|n| Turn::tool("double", json!(n))));
    let agent = builder(&model, elixir()).max_iterations(2).build().unwrap();
    assert_eq!(
        agent.run("?").await.unwrap_err().kind(),
        ErrorKind::MaxIterations
    );
    model.assert_done();
}

// Agents made of agents.

/// Writes down which agent it is asked about.
struct Paths(Trace);

impl Hooks for Paths {
    async fn before_agent(&self, request: &mut AgentRequest) -> Result<Action<AgentResponse>> {
        self.0.push(format!("{}>", request.context().path()));
        Ok(Action::Continue)
    }

    async fn after_agent(
        &self,
        request: &AgentRequest,
        _: &AgentResponse,
    ) -> Result<Action<AgentResponse>> {
        self.0.push(format!("<{}", request.context().path()));
        Ok(Action::Continue)
    }
}

fn member(name: &str, text: &str) -> Agent {
    Agent::builder(ScriptedModel::new([Turn::from_text(text)]))
        .name(name)
        .build()
        .unwrap()
}

#[tokio::test]
async fn agent_hooks_of_a_run_are_asked_for_a_team_and_for_each_of_its_members() {
    let trace = Trace::default();
    let team = Agent::sequential("team")
        .semantics(elixir())
        .agents([member("a", "1"), member("b", "2")])
        .build()
        .unwrap();

    let request = AgentRequest::new("?").with_callbacks(Paths(trace.clone()));
    team.run(request).await.unwrap();

    assert_eq!(trace.take(), "team> team/a> <team/a team/b> <team/b <team");
}

#[tokio::test]
async fn after_agent_of_a_team_transforms_what_all_its_members_said() {
    for team in [
        Agent::sequential("t"),
        Agent::parallel("t"),
        Agent::repeat("t", 1),
    ] {
        let team = team
            .semantics(elixir())
            .agents([member("a", "1"), member("b", "2")])
            .on_agent(transform(|events| events.reverse()))
            .on_agent(transform(|events| events.push(Message::assistant("3"))))
            .build()
            .unwrap();

        let response = team.run("?").await.unwrap();

        assert_eq!(texts(&response), ["2", "1", "3"]);
        assert_eq!(response.iterations(), 2);
    }
}

#[tokio::test]
async fn a_halt_before_a_team_calls_no_member() {
    let models = [(); 2].map(|()| ScriptedModel::new([]));
    let team = Agent::parallel("team")
        .semantics(elixir())
        .agents(
            ["a", "b"]
                .into_iter()
                .zip(&models)
                .map(|(name, model)| Agent::builder(model.clone()).name(name).build().unwrap()),
        )
        .on_agent(before_agent(|_| {
            Action::Respond(AgentResponse::new([Message::assistant("closed")]))
        }))
        .build()
        .unwrap();

    assert_eq!(team.run("?").await.unwrap().text(), "closed");
    models.iter().for_each(ScriptedModel::assert_done);
}

#[tokio::test]
async fn a_call_alone_that_a_before_model_returns_leaves_no_message_without_content() {
    for is_streamed in [false, true] {
        let model = ScriptedModel::new([Turn::from_text("Hello.")]);
        let agent = builder(&model, elixir())
            .on_model(before_model(|request: &mut ModelRequest| {
                if request.messages().len() > 1 {
                    return Action::Continue;
                }
                let call = ToolCall::new("1", "double", json!(1));
                Action::Respond(ModelResponse::from_tool_calls([call]))
            }))
            .build()
            .unwrap();

        let first = if is_streamed {
            let mut run = agent.stream("one");
            while futures::StreamExt::next(&mut run).await.is_some() {}
            run.response().await.unwrap()
        } else {
            agent.run("one").await.unwrap()
        };
        assert_eq!(first.new_messages().count(), 0);
        let next = AgentRequest::resume(first.checkpoint()).with_message("two");
        let second = agent.run(next).await.unwrap();

        assert_eq!(second.text(), "Hello.");
        let requests = model.requests();
        let sent = requests[0].messages().iter();
        assert!(sent.clone().all(|message| !message.parts().is_empty()));
        assert_eq!(sent.count(), 2);
    }
}
