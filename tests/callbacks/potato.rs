//! For those who come from potato_agent: four hooks around the model and the tools, the three
//! things a hook may decide, and what it knows of the run.

use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex};

use serde_json::{Value, json};
use tower_agent::callback::{Bundle, Outcome, before_model};
use tower_agent::compat::{Hooks, Semantics};
use tower_agent::message::NoAnswer;
use tower_agent::{
    Action, Agent, AgentBuilder, Callback, EndReason, Error, ErrorKind, Message, ModelRequest,
    ModelResponse, Request, Result, Tool, ToolRequest, ToolResponse,
};
use tower_agent_test::{Ended, ProbeLayer, RecordLayer, ScriptedModel, Turn};

use test_support::trace::{Trace, pending_once, poll_times};

fn both() -> [Semantics; 2] {
    [Semantics::potato(), Semantics::default()]
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

/// Two turns with tools, then an answer.
fn two_rounds() -> ScriptedModel {
    ScriptedModel::new([
        Turn::tool("double", json!(1)),
        Turn::tool("double", json!(2)),
        Turn::from_text("2 and 4"),
    ])
}

/// One turn with a tool, then an answer.
fn one_round() -> ScriptedModel {
    ScriptedModel::new([Turn::tool("double", json!(1)), Turn::from_text("2")])
}

// The samples of the page.

/// Writes a line for each of the four hooks.
struct Logging(Arc<Mutex<Vec<String>>>);

impl Logging {
    fn line(&self, line: String) {
        self.0.lock().unwrap().push(line);
    }
}

impl Hooks for Logging {
    async fn before_model(&self, request: &mut ModelRequest) -> Result<Action<ModelResponse>> {
        let context = request.context();
        self.line(format!(
            "[{}] turn {}: asks the model",
            context.agent(),
            context.iteration()
        ));
        Ok(Action::Continue)
    }

    async fn after_model(
        &self,
        request: &ModelRequest,
        response: &ModelResponse,
    ) -> Result<Action<ModelResponse>> {
        let agent = request.context().agent();
        self.line(format!(
            "[{agent}] the model says `{}`",
            response.message().text()
        ));
        Ok(Action::Continue)
    }

    async fn before_tool(&self, request: &mut ToolRequest) -> Result<Action<ToolResponse>> {
        self.line(format!(
            "[{}] calls {}",
            request.context().agent(),
            request.name()
        ));
        Ok(Action::Continue)
    }

    async fn after_tool(
        &self,
        request: &ToolRequest,
        response: &ToolResponse,
    ) -> Result<Action<ToolResponse>> {
        self.line(format!("{} answers {}", request.name(), response.value()));
        Ok(Action::Continue)
    }
}

/// Cuts an answer that is too long.
struct LengthGuard {
    max_chars: usize,
}

impl Hooks for LengthGuard {
    async fn after_model(
        &self,
        _: &ModelRequest,
        response: &ModelResponse,
    ) -> Result<Action<ModelResponse>> {
        let text = response.message().text();
        if text.chars().count() <= self.max_chars {
            return Ok(Action::Continue);
        }
        let short: String = text.chars().take(self.max_chars).collect();
        Ok(Action::Respond(
            ModelResponse::from_text(short).without_tool_calls(),
        ))
    }
}

/// Ends the run when the model asks for a tool that it may not use.
struct ToolBlocklist {
    blocked: Vec<String>,
}

impl Hooks for ToolBlocklist {
    async fn before_tool(&self, request: &mut ToolRequest) -> Result<Action<ToolResponse>> {
        if self.blocked.iter().any(|name| name == request.name()) {
            Err(Error::abort(format!(
                "the tool `{}` is off limits",
                request.name()
            )))
        } else {
            Ok(Action::Continue)
        }
    }
}

/// Ends the run after so many rounds of tool calls.
struct BudgetGuard {
    max_rounds: u32,
}

impl Hooks for BudgetGuard {
    async fn before_model(&self, request: &mut ModelRequest) -> Result<Action<ModelResponse>> {
        if request.context().iteration() >= self.max_rounds {
            Err(Error::abort(format!(
                "no more than {} rounds",
                self.max_rounds
            )))
        } else {
            Ok(Action::Continue)
        }
    }
}

#[tokio::test]
async fn a_logger_sees_each_call_in_the_order_of_the_loop() {
    for semantics in both() {
        let lines = Arc::default();
        let model = one_round();
        let agent = builder(&model, semantics)
            .callbacks(Logging(Arc::clone(&lines)))
            .build()
            .unwrap();

        assert_eq!(agent.run("?").await.unwrap().text(), "2");

        assert_eq!(
            *lines.lock().unwrap(),
            [
                "[clerk] turn 0: asks the model",
                "[clerk] the model says ``",
                "[clerk] calls double",
                "double answers 2",
                "[clerk] turn 1: asks the model",
                "[clerk] the model says `2`",
            ]
        );
    }
}

#[tokio::test]
async fn the_length_guard_cuts_by_characters_and_ends_the_run() {
    for (answer, kept) in [("grün", "grün"), ("grüner Tee", "grüner"), ("", "")] {
        for semantics in both() {
            let model = ScriptedModel::new([Turn::from_text(answer)]);
            let guard = LengthGuard { max_chars: 6 };
            let agent = builder(&model, semantics).callbacks(guard).build().unwrap();

            let response = agent.run("?").await.unwrap();

            model.assert_done();
            let end = match kept {
                "" => EndReason::NoAnswer(NoAnswer::Empty),
                _ => EndReason::Completed,
            };
            assert_eq!(
                (response.text().as_str(), response.end_reason()),
                (kept, &end)
            );
            // The next run reads the text that stands, not the one that was cut.
            assert_eq!(response.messages().last().unwrap().text(), kept);
        }
    }
}

#[tokio::test]
async fn the_length_guard_keeps_the_tools_of_an_answer_that_it_cut_from_running() {
    for semantics in both() {
        let wordy = ModelResponse::from_text("let me double that");
        let model = ScriptedModel::new([Turn::response(wordy).and_tool("double", json!(1))]);
        let record = RecordLayer::new();
        let agent = builder(&model, semantics)
            .callbacks(LengthGuard { max_chars: 6 })
            .tool_layer(record.clone())
            .build()
            .unwrap();

        assert_eq!(agent.run("?").await.unwrap().text(), "let me");

        model.assert_done();
        assert!(record.requests().is_empty());
    }
}

#[tokio::test]
async fn the_blocklist_ends_the_run_before_the_tool_is_called() {
    for semantics in both() {
        let model = ScriptedModel::new([
            Turn::tool("double", json!(1)),
            Turn::tool("erase", json!("everything")),
        ]);
        let record = RecordLayer::new();
        let agent = builder(&model, semantics)
            .tool(Tool::function(
                "erase",
                "Erases a thing.",
                |what: String| what,
            ))
            .callbacks(ToolBlocklist {
                blocked: vec!["erase".to_owned()],
            })
            .tool_layer(record.clone())
            .build()
            .unwrap();

        let error = agent.run("?").await.unwrap_err();

        model.assert_done();
        assert_eq!(
            record
                .requests()
                .iter()
                .map(|r| r.name())
                .collect::<Vec<_>>(),
            ["double"]
        );
        assert_eq!(error.kind(), ErrorKind::Aborted);
        assert_eq!(error.message(), "the tool `erase` is off limits");
        assert_eq!(error.raised_by().unwrap().callback, "ToolBlocklist");
        assert!(error.to_string().contains("aborted"), "{error}");
    }
}

#[tokio::test]
async fn the_budget_ends_the_run_at_the_model_call_beyond_it() {
    for (max_rounds, model_calls) in [(0, 0), (1, 1), (2, 2)] {
        for semantics in both() {
            let model = two_rounds();
            let record = RecordLayer::new();
            let agent = builder(&model, semantics)
                .callbacks(BudgetGuard { max_rounds })
                .tool_layer(record.clone())
                .build()
                .unwrap();

            let error = agent.run("?").await.unwrap_err();

            assert_eq!(error.kind(), ErrorKind::Aborted);
            assert_eq!(error.message(), format!("no more than {max_rounds} rounds"));
            assert_eq!(
                (model.requests().len(), record.requests().len()),
                (model_calls, model_calls)
            );
        }
    }
}

#[tokio::test]
async fn a_budget_that_is_not_used_up_does_not_matter() {
    for semantics in both() {
        let model = two_rounds();
        let agent = builder(&model, semantics)
            .callbacks(BudgetGuard { max_rounds: 3 })
            .build();
        assert_eq!(agent.unwrap().run("?").await.unwrap().text(), "2 and 4");
    }
}

#[tokio::test]
async fn policy_metrics_and_logger_act_in_their_order_in_all_four_hooks() {
    for semantics in both() {
        let trace = Trace::default();
        let model = one_round();
        let mut builder = builder(&model, semantics);
        for name in ["policy", "metrics", "logger"] {
            builder = builder.callbacks(Voter::new(name, "", Says::Nothing, &trace));
        }

        builder.build().unwrap().run("?").await.unwrap();

        let phase = |hook| ["policy", "metrics", "logger"].map(|name| format!("{name}:{hook}"));
        let round = ["before_model", "after_model", "before_tool", "after_tool"].map(phase);
        let last = ["before_model", "after_model"].map(phase);
        assert_eq!(
            trace.take(),
            [round.concat(), last.concat()].concat().join(" ")
        );
    }
}

// Decisions of a hook, and their effect on the remaining callbacks.

#[derive(Clone, Copy)]
enum Says {
    Nothing,
    Override(&'static str),
    Abort(&'static str),
}

/// Writes down each hook it is asked in, and decides in one of them.
struct Voter {
    name: &'static str,
    hook: &'static str,
    says: Says,
    trace: Trace,
}

impl Voter {
    fn new(name: &'static str, hook: &'static str, says: Says, trace: &Trace) -> Self {
        Self {
            name,
            hook,
            says,
            trace: trace.clone(),
        }
    }

    fn vote<T>(&self, hook: &str, respond: fn(&'static str) -> T) -> Result<Action<T>> {
        self.trace.push(format!("{}:{hook}", self.name));
        match self.says {
            Says::Override(text) if hook == self.hook => Ok(Action::Respond(respond(text))),
            Says::Abort(why) if hook == self.hook => Err(Error::abort(why)),
            _ => Ok(Action::Continue),
        }
    }
}

impl Hooks for Voter {
    async fn before_model(&self, _: &mut ModelRequest) -> Result<Action<ModelResponse>> {
        self.vote("before_model", ModelResponse::from_text)
    }

    async fn after_model(
        &self,
        _: &ModelRequest,
        response: &ModelResponse,
    ) -> Result<Action<ModelResponse>> {
        if self.hook == "after_model" {
            self.trace.push(format!("`{}`", response.message().text()));
        }
        self.vote("after_model", ModelResponse::from_text)
    }

    async fn before_tool(&self, _: &mut ToolRequest) -> Result<Action<ToolResponse>> {
        self.vote("before_tool", ToolResponse::new)
    }

    async fn after_tool(&self, _: &ToolRequest, _: &ToolResponse) -> Result<Action<ToolResponse>> {
        self.vote("after_tool", ToolResponse::new)
    }
}

#[tokio::test]
async fn an_abort_in_any_hook_ends_the_run_with_its_message() {
    // The hook, and how often the model and the tool were called by then.
    let cases = [
        ("before_model", 0, 0),
        ("after_model", 1, 0),
        ("before_tool", 1, 0),
        ("after_tool", 1, 1),
    ];
    for (hook, model_calls, tool_calls) in cases {
        for semantics in both() {
            let (trace, record) = (Trace::default(), RecordLayer::new());
            let model = one_round();
            let agent = builder(&model, semantics)
                .callbacks(Voter::new("a", hook, Says::Abort("enough"), &trace))
                .tool_layer(record.clone())
                .build()
                .unwrap();

            let error = agent.run("?").await.unwrap_err();

            assert_eq!(
                (error.kind(), error.message()),
                (ErrorKind::Aborted, "enough"),
                "{hook}"
            );
            assert_eq!(
                (model.requests().len(), record.calls().len()),
                (model_calls, tool_calls)
            );
            assert!(trace.take().ends_with(&format!("a:{hook}")), "{hook}");
        }
    }
}

#[tokio::test]
async fn after_the_first_override_the_rest_see_the_original_and_are_ignored() {
    let run = async |semantics, third| {
        let trace = Trace::default();
        let model = ScriptedModel::new([Turn::from_text("original")]);
        let agent = builder(&model, semantics)
            .callbacks(Voter::new(
                "a",
                "after_model",
                Says::Override("first"),
                &trace,
            ))
            .callbacks(Voter::new(
                "b",
                "after_model",
                Says::Override("second"),
                &trace,
            ))
            .callbacks(Voter::new("c", "after_model", third, &trace))
            .build()
            .unwrap();
        let result = agent.run("?").await.map(|response| response.text());
        let words = trace.take();
        let heard = words
            .split(' ')
            .filter(|word| word.starts_with('`'))
            .collect::<Vec<_>>();
        (result.map_err(|error| error.kind()), heard.join(" "))
    };
    let (potato, default) = (Semantics::potato(), Semantics::default());
    let original = "`original` `original` `original`".to_owned();
    let composed = "`original` `first` `second`".to_owned();

    assert_eq!(
        run(potato, Says::Nothing).await,
        (Ok("first".into()), original.clone())
    );
    assert_eq!(
        run(potato, Says::Abort("late")).await,
        (Ok("first".into()), original)
    );
    // Elsewhere the next one sees what the last one made, and may still end the run.
    assert_eq!(
        run(default, Says::Nothing).await,
        (Ok("second".into()), composed.clone())
    );
    assert_eq!(
        run(default, Says::Abort("late")).await,
        (Err(ErrorKind::Aborted), composed)
    );
}

#[tokio::test]
async fn an_override_that_keeps_its_tool_calls_still_ends_the_run() {
    for (semantics, model_calls, text) in [
        (Semantics::potato(), 1, "shh"),
        (Semantics::default(), 2, "2"),
    ] {
        let model = one_round();
        let record = RecordLayer::new();
        let agent = builder(&model, semantics)
            .on_model(tower_agent::callback::after_model(|_, response| {
                let calls = response.message().tool_calls().next().is_some();
                let message = response
                    .message()
                    .clone()
                    .with_part(tower_agent::Part::from_text("shh"));
                if calls {
                    Action::Respond(ModelResponse::new(message))
                } else {
                    Action::Continue
                }
            }))
            .tool_layer(record.clone())
            .build()
            .unwrap();

        let response = agent.run("?").await.unwrap();

        assert_eq!(
            (response.text().as_str(), response.end_reason()),
            (text, &EndReason::Completed)
        );
        assert_eq!(model.requests().len(), model_calls);
        assert_eq!(record.requests().len(), model_calls - 1);
        // No call is left that the next request could not answer.
        assert_eq!(response.messages().last().unwrap().tool_calls().count(), 0);
    }
}

#[tokio::test]
async fn an_override_after_tools_keeps_what_they_said() {
    let trace = Trace::default();
    let model = one_round();
    let agent = builder(&model, Semantics::potato())
        .on_model(tower_agent::callback::after_model(
            |request, _| match request.context().iteration() {
                0 => Action::Continue,
                _ => Action::Respond(ModelResponse::from_text("two")),
            },
        ))
        .callbacks(Voter::new("b", "", Says::Nothing, &trace))
        .build()
        .unwrap();

    let response = agent.run("?").await.unwrap();

    assert_eq!(
        (response.text().as_str(), response.iterations()),
        ("two", 2)
    );
    let results = response.new_messages().flat_map(Message::tool_results);
    assert_eq!(
        results.map(|result| result.text()).collect::<Vec<_>>(),
        ["2"]
    );
    assert!(trace.take().ends_with("b:before_model b:after_model"));
}

#[tokio::test]
async fn an_override_counts_after_the_model_alone() {
    // The hook, the answer if an override counts there, and how often the tool is called then.
    let cases = [
        ("before_model", "mine", 0),
        ("before_tool", "2", 0),
        ("after_tool", "2", 1),
    ];
    for (hook, answer, tool_calls) in cases {
        for (semantics, counts) in [(Semantics::potato(), false), (Semantics::default(), true)] {
            let (trace, record) = (Trace::default(), RecordLayer::new());
            let model = one_round();
            let agent = builder(&model, semantics)
                .callbacks(Voter::new("a", hook, Says::Override("mine"), &trace))
                .callbacks(Voter::new("b", hook, Says::Nothing, &trace))
                .tool_layer(record.clone())
                .build()
                .unwrap();

            let response = agent.run("?").await.unwrap();

            let told = response
                .new_messages()
                .flat_map(Message::tool_results)
                .next();
            let told = told.map(|result| result.text());
            if counts {
                assert_eq!(
                    (response.text().as_str(), record.calls().len()),
                    (answer, tool_calls)
                );
                assert_eq!(
                    told.as_deref(),
                    (hook != "before_model").then_some("mine"),
                    "{hook}"
                );
            } else {
                assert_eq!(
                    (response.text().as_str(), record.calls().len()),
                    ("2", 1),
                    "{hook}"
                );
                assert_eq!(told.as_deref(), Some("2"), "{hook}");
                assert!(trace.take().contains(&format!("b:{hook}")), "{hook}");
            }
        }
    }
}

// Registration.

/// Needs no hook.
struct Idle;

impl Hooks for Idle {}

#[tokio::test]
async fn an_object_without_hooks_changes_nothing() {
    let plain = builder(&one_round(), Semantics::potato()).build().unwrap();
    let idle = builder(&one_round(), Semantics::potato())
        .callbacks(Idle)
        .build()
        .unwrap();
    let (plain, idle) = (plain.run("?").await.unwrap(), idle.run("?").await.unwrap());
    assert_eq!(plain.messages(), idle.messages());
    assert_eq!(plain.iterations(), idle.iterations());
}

#[tokio::test]
async fn without_tool_calls_the_tool_hooks_are_not_asked() {
    for semantics in both() {
        let trace = Trace::default();
        let model = ScriptedModel::new([Turn::from_text("blue")]);
        let voter = Voter::new("a", "", Says::Nothing, &trace);
        let agent = builder(&model, semantics)
            .max_iterations(1)
            .callbacks(voter)
            .build()
            .unwrap();

        let response = agent.run("?").await.unwrap();

        assert_eq!(
            (response.end_reason(), response.iterations()),
            (&EndReason::Completed, 1)
        );
        assert_eq!(trace.take(), "a:before_model a:after_model");
    }
}

#[tokio::test]
async fn the_tool_hooks_are_asked_once_for_each_call_of_a_turn() {
    let trace = Trace::default();
    let model = ScriptedModel::new([
        Turn::tool("double", json!(1)).and_tool("double", json!(2)),
        Turn::from_text("2 and 4"),
    ]);
    let voter = Voter::new("a", "", Says::Nothing, &trace);
    let agent = builder(&model, Semantics::potato())
        .callbacks(voter)
        .build()
        .unwrap();

    agent.run("?").await.unwrap();

    let call = "a:before_tool a:after_tool";
    let model = "a:before_model a:after_model";
    assert_eq!(trace.take(), [model, call, call, model].join(" "));
}

#[tokio::test]
async fn one_callback_serves_several_agents_and_a_clone_of_an_agent_keeps_it() {
    let trace = Trace::default();
    let shared = Bundle::from(Voter::new("a", "", Says::Nothing, &trace));
    for _ in 0..2 {
        let model = ScriptedModel::new([Turn::from_text("blue")]);
        let agent = builder(&model, Semantics::potato())
            .callbacks(shared.clone())
            .build()
            .unwrap();
        agent.clone().run("?").await.unwrap();
        assert_eq!(trace.take(), "a:before_model a:after_model");
    }
}

/// Counts the answers of the model.
#[derive(Default)]
struct Count(AtomicU32);

impl Hooks for Count {
    async fn after_model(
        &self,
        _: &ModelRequest,
        _: &ModelResponse,
    ) -> Result<Action<ModelResponse>> {
        self.0.fetch_add(1, Ordering::SeqCst);
        Ok(Action::Continue)
    }

    async fn before_tool(&self, request: &mut ToolRequest) -> Result<Action<ToolResponse>> {
        Err(Error::new(
            ErrorKind::Tool,
            format!("no {}", request.name()),
        ))
    }
}

#[tokio::test]
async fn a_callback_in_an_arc_leaves_the_caller_a_handle() {
    let count = Arc::new(Count::default());
    let trace = Trace::default();
    let agent = builder(&one_round(), Semantics::default())
        .callbacks(Arc::clone(&count))
        .on_model(Arc::new(Ends(trace.clone())))
        .build()
        .unwrap();

    let response = agent.run("?").await.unwrap();

    assert_eq!(count.0.load(Ordering::SeqCst), 2);
    let told = response
        .new_messages()
        .flat_map(Message::tool_results)
        .next()
        .unwrap();
    assert_eq!(told.text(), "tool failed: no double");
    assert_eq!(trace.take(), "model> <model model> <model");
    assert!(
        agent.explain().to_string().contains("Count"),
        "{}",
        agent.explain()
    );
}

// The context of a hook.

/// The agent, the iteration, its limit and the earlier texts, as one call saw them.
type Seen = (&'static str, String, u32, u32, Vec<String>);

struct Witness(Arc<Mutex<Vec<Seen>>>);

impl Witness {
    fn see<R: Request>(&self, hook: &'static str, request: &R) {
        let context = request.context();
        let texts = context
            .texts()
            .iter()
            .map(|text| text.to_string())
            .collect();
        self.0.lock().unwrap().push((
            hook,
            context.agent().to_owned(),
            context.iteration(),
            context.max_iterations(),
            texts,
        ));
    }
}

impl Hooks for Witness {
    async fn before_model(&self, request: &mut ModelRequest) -> Result<Action<ModelResponse>> {
        self.see("before_model", request);
        Ok(Action::Continue)
    }

    async fn after_model(
        &self,
        request: &ModelRequest,
        _: &ModelResponse,
    ) -> Result<Action<ModelResponse>> {
        self.see("after_model", request);
        Ok(Action::Continue)
    }

    async fn before_tool(&self, request: &mut ToolRequest) -> Result<Action<ToolResponse>> {
        self.see("before_tool", request);
        Ok(Action::Continue)
    }

    async fn after_tool(
        &self,
        request: &ToolRequest,
        _: &ToolResponse,
    ) -> Result<Action<ToolResponse>> {
        self.see("after_tool", request);
        Ok(Action::Continue)
    }
}

#[tokio::test]
async fn every_hook_knows_agent_iteration_limit_and_the_texts_of_earlier_turns() {
    for semantics in both() {
        let seen = Arc::default();
        let turns = || {
            [
                Turn::response(ModelResponse::from_text("One moment."))
                    .and_tool("double", json!(1))
                    .and_tool("double", json!(2)),
                Turn::from_text("2 and 4"),
            ]
        };
        let model = ScriptedModel::new(turns().into_iter().chain(turns()));
        let agent = builder(&model, semantics)
            .max_iterations(7)
            .tool_concurrency(1)
            .callbacks(Witness(Arc::clone(&seen)))
            .build()
            .unwrap();

        // A second run begins anew.
        for _ in 0..2 {
            agent.run("?").await.unwrap();

            let saw = |hook, iteration, texts: &[&str]| {
                let texts = texts.iter().map(|text| text.to_string()).collect();
                (hook, "clerk".to_owned(), iteration, 7, texts)
            };
            assert_eq!(
                std::mem::take(&mut *seen.lock().unwrap()),
                [
                    saw("before_model", 0, &[]),
                    saw("after_model", 0, &[]),
                    saw("before_tool", 0, &[]),
                    saw("after_tool", 0, &[]),
                    saw("before_tool", 0, &[]),
                    saw("after_tool", 0, &[]),
                    saw("before_model", 1, &["One moment."]),
                    saw("after_model", 1, &["One moment."]),
                ]
            );
        }
    }
}

#[tokio::test]
async fn every_run_has_an_id_of_its_own_that_all_its_hooks_see() {
    let ids = Arc::new(Mutex::new(Vec::new()));
    let model = ScriptedModel::always(Turn::from_text("blue"));
    let agent = Agent::builder(model)
        .semantics(Semantics::potato())
        .on_model(before_model({
            let ids = ids.clone();
            move |request| {
                ids.lock()
                    .unwrap()
                    .push(request.context().run_id().to_owned())
            }
        }))
        .on_model(tower_agent::callback::after_model({
            let ids = ids.clone();
            move |request, _| {
                ids.lock()
                    .unwrap()
                    .push(request.context().run_id().to_owned())
            }
        }))
        .build()
        .unwrap();

    agent.run("?").await.unwrap();
    agent.run("?").await.unwrap();

    let ids = ids.lock().unwrap();
    assert_eq!((&ids[0], &ids[2]), (&ids[1], &ids[3]));
    assert_ne!(ids[0], ids[2]);
}

// The loop around the hooks.

/// Which hooks ran for a tool or a model that fails.
#[derive(Clone)]
struct Ends(Trace);

impl<R: Request> Callback<R> for Ends {
    async fn before(&self, _: &mut R) -> Result<Action<R::Response>> {
        self.0.push(format!("{}>", R::CALL));
        Ok(Action::Continue)
    }

    async fn after(&self, _: &R, _: &R::Response) -> Result<Action<R::Response>> {
        self.0.push(format!("<{}", R::CALL));
        Ok(Action::Continue)
    }

    fn on_end(&self, _: &R, outcome: Outcome<'_, R::Response>) {
        if let Outcome::Failed(error) = outcome {
            self.0.push(format!("{}={:?}", R::CALL, error.kind()));
        }
    }
}

#[tokio::test]
async fn a_tool_that_fails_or_does_not_exist_fails_the_run_in_potato() {
    for (tool, kind) in [
        ("broken", ErrorKind::Tool),
        ("missing", ErrorKind::UnknownTool),
    ] {
        for (semantics, fails) in [(Semantics::potato(), true), (Semantics::default(), false)] {
            let trace = Trace::default();
            let model =
                ScriptedModel::new([Turn::tool(tool, json!(null)), Turn::from_text("sorry")]);
            let agent = builder(&model, semantics)
                .tool(Tool::function("broken", "", |_: Value| {
                    Err::<(), _>("no paper")
                }))
                .on_tool(Ends(trace.clone()))
                .build()
                .unwrap();

            let result = agent.run("?").await;

            assert_eq!(trace.take(), format!("tool> tool={kind:?}"));
            match result {
                Ok(response) => assert!(!fails && response.text() == "sorry", "{tool}"),
                Err(error) => {
                    assert!(fails, "{tool}");
                    assert_eq!(error.kind(), kind);
                    assert_eq!(error.call().unwrap().name.as_deref(), Some(tool));
                    assert_eq!(model.requests().len(), 1);
                }
            }
        }
    }
}

#[tokio::test]
async fn tools_run_one_by_one_and_nothing_follows_a_failure() {
    let slow = || {
        Tool::function("slow", "", async |n: i64| {
            pending_once().await;
            match n {
                0 => Err(Error::new(ErrorKind::Tool, "no zero")),
                n => Ok(n),
            }
        })
    };
    let turn = |[a, b, c]: [i64; 3]| {
        Turn::tool("slow", json!(a))
            .and_tool("slow", json!(b))
            .and_tool("slow", json!(c))
    };
    for (numbers, ran, ends) in [([1, 2, 3], 3, None), ([1, 0, 3], 2, Some(ErrorKind::Tool))] {
        let (probe, record) = (ProbeLayer::new(), RecordLayer::<ToolRequest>::new());
        let model = ScriptedModel::new([turn(numbers), Turn::from_text("done")]);
        let agent = Agent::builder(model)
            .semantics(Semantics::potato())
            .tool(slow())
            .tool_layer(probe.clone())
            .tool_layer(record.clone())
            .build()
            .unwrap();

        let result = agent.run("?").await;

        assert_eq!(result.err().map(|error| error.kind()), ends);
        assert_eq!((probe.max_in_flight(), probe.violations()), (1, 0));
        let order: Vec<_> = record
            .requests()
            .iter()
            .map(|r| r.arguments()["value"].clone())
            .collect();
        assert_eq!(
            order,
            numbers[..ran].iter().map(|n| json!(n)).collect::<Vec<_>>()
        );
        assert!(
            record
                .calls()
                .iter()
                .all(|call| !matches!(call, Ended::Dropped))
        );
    }
}

#[tokio::test]
async fn at_the_limit_a_run_that_called_tools_fails_and_one_that_answered_is_complete() {
    type Model = fn() -> ScriptedModel;
    let answers: Model = || ScriptedModel::new([Turn::from_text("blue")]);
    // The limit, the hooks that are asked, and whether the run fails.
    let round = "a:before_model a:after_model a:before_tool a:after_tool";
    let text = "a:before_model a:after_model";
    let cases: [(Model, u32, String, bool); 4] = [
        (answers, 0, String::new(), true),
        (answers, 1, text.to_owned(), false),
        (one_round, 1, round.to_owned(), true),
        (one_round, 2, format!("{round} {text}"), false),
    ];
    for (model, limit, hooks, fails) in cases {
        for semantics in both() {
            let trace = Trace::default();
            let agent = builder(&model(), semantics)
                .max_iterations(limit)
                .callbacks(Voter::new("a", "", Says::Nothing, &trace))
                .build()
                .unwrap();

            let result = agent.run("?").await;

            assert_eq!(trace.take(), hooks, "limit {limit}");
            match result {
                Ok(response) => assert!(!fails && response.end_reason() == &EndReason::Completed),
                Err(error) => {
                    assert!(fails, "limit {limit}");
                    assert_eq!(error.kind(), ErrorKind::MaxIterations);
                }
            }
        }
    }
}

#[tokio::test]
async fn an_abort_of_an_agent_behind_a_tool_keeps_its_type_for_the_agent_that_called_it() {
    for semantics in both() {
        let inner = Agent::builder(ScriptedModel::new([Turn::from_text("never said")]))
            .name("helper")
            .semantics(semantics)
            .on_model(before_model(|_| {
                Result::<()>::Err(Error::abort("not today"))
            }))
            .build()
            .unwrap();
        let ask = Turn::tool("helper", json!({ "request": "?" }));
        let model = ScriptedModel::new([ask, Turn::from_text("never said")]);
        let agent = builder(&model, semantics)
            .tool(inner.into_tool("Helps."))
            .build()
            .unwrap();

        let error = agent.run("?").await.unwrap_err();

        assert_eq!(
            (error.kind(), error.message()),
            (ErrorKind::Aborted, "not today")
        );
        assert_eq!(&*error.call().unwrap().agent, "clerk/helper");
        assert_eq!(model.requests().len(), 1);
    }
}

#[tokio::test]
async fn an_agent_answers_as_the_tool_of_another() {
    let inner = Agent::builder(ScriptedModel::new([Turn::from_text("yes")]))
        .name("helper")
        .semantics(Semantics::potato())
        .build()
        .unwrap();
    let trace = Trace::default();
    let ask = Turn::tool("helper", json!({ "request": "?" }));
    let agent = builder(
        &ScriptedModel::new([ask, Turn::from_text("It says yes.")]),
        Semantics::potato(),
    )
    .tool(inner.into_tool("Helps."))
    .callbacks(Voter::new("a", "", Says::Nothing, &trace))
    .build()
    .unwrap();

    let response = agent.run("?").await.unwrap();

    assert_eq!(response.text(), "It says yes.");
    let results = response.new_messages().flat_map(Message::tool_results);
    assert_eq!(
        results.map(|result| result.text()).collect::<Vec<_>>(),
        ["yes"]
    );
    assert!(trace.take().contains("a:before_tool a:after_tool"));
}

#[test]
fn an_abort_in_a_team_ends_the_whole_team() {
    let stops = |name: &str| {
        Agent::builder(ScriptedModel::new([]))
            .name(name)
            .semantics(Semantics::potato())
            .on_model(before_model(|_| {
                Result::<()>::Err(Error::abort("not today"))
            }))
            .build()
            .unwrap()
    };
    // With the number of calls of the agent beside the one that aborts.
    for (team, called) in [(Agent::sequential("team"), 0), (Agent::parallel("team"), 1)] {
        let (probe, model) = (ProbeLayer::new(), ScriptedModel::always(Turn::pending()));
        let waits = Agent::builder(model)
            .name("waits")
            .agent_layer(probe.clone())
            .build()
            .unwrap();
        // Side by side, the one that waits has begun before the other aborts.
        let members = match called {
            0 => [stops("stops"), waits],
            _ => [waits, stops("stops")],
        };
        let team = team
            .semantics(Semantics::potato())
            .agents(members)
            .build()
            .unwrap();

        let error = poll_times(team.run("?"), 5)
            .expect("nobody is waited for")
            .unwrap_err();

        assert_eq!(
            (error.kind(), error.message()),
            (ErrorKind::Aborted, "not today")
        );
        assert_eq!(&*error.call().unwrap().agent, "team/stops");
        assert_eq!(
            (probe.calls(), probe.cancelled(), probe.in_flight()),
            (called, called, 0)
        );
    }
}

#[tokio::test]
async fn an_override_ends_the_run_of_its_agent_and_the_next_one_reads_the_text() {
    let reads = ScriptedModel::new([Turn::from_text("noted")]);
    let first = builder(
        &ScriptedModel::new([Turn::from_text("a long story")]),
        Semantics::potato(),
    )
    .callbacks(LengthGuard { max_chars: 6 })
    .build()
    .unwrap();
    let second = Agent::builder(reads.clone())
        .name("second")
        .build()
        .unwrap();
    let team = Agent::sequential("team")
        .agents([first, second])
        .build()
        .unwrap();

    assert_eq!(team.run("?").await.unwrap().text(), "noted");

    assert_eq!(
        reads.requests()[0].messages().last().unwrap().text(),
        "a long"
    );
}
