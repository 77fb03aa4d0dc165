//! Content at any place where a program can put it, and at any two of them, in any kind of tree: a
//! model that has read it pays, and nobody is paid.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use futures::StreamExt;
use proptest::prelude::*;
use serde_json::json;
use tower_agent::agent::CheckpointHead;
use tower_agent::callback::{
    after_agent, after_model, before_agent, before_model, before_tool, on_agent_error,
    on_model_error, on_tool_error, wrap_agent, wrap_model,
};
use tower_agent::compat::Semantics;
use tower_agent::message::{ToolCall, ToolResult};
use tower_agent::tool::{ToolDeclaration, ToolSet};
use tower_agent::{
    Action, AgentBuilder, AgentRequest, AgentResponse, Error, ErrorKind, Message, ModelResponse,
    Part, Recovery, Request, Role, ToolRequest, ToolResponse,
};
use tower_agent_middleware::context_window::ContextWindow;
use tower_agent_test::Turn;

use super::*;
use test_support::property::{cases, sample};

/// Declares the points and the list of all.
macro_rules! points {
    ($($point:ident,)*) => {
        /// Where content comes from.
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        enum Point {
            $($point,)*
        }

        const POINTS: [Point; 46] = [$(Point::$point,)*];
    };
}

points! {
    // Around the agent.
    BeforeAgentUser,
    BeforeAgentSystem,
    BeforeAgentAssistant,
    BeforeAgentOwnId,
    BeforeAgentChanges,
    BeforeAgentAnswers,
    AfterAgentAnswers,
    AfterAgentChanges,
    AfterAgentAddsUser,
    AgentErrorFallsBack,
    AgentError,
    AgentLayerAdds,
    AgentLayerAnswers,
    // Around the model.
    BeforeModelAdds,
    BeforeModelInstructs,
    BeforeModelChanges,
    BeforeModelAnswers,
    AfterModelAnswers,
    ModelErrorFallsBack,
    ModelError,
    ModelLayerAdds,
    ModelLayerAnswers,
    HelperInCallback,
    // Tools.
    ResultOfTool,
    FailedResult,
    ErrorOfTool,
    PartsOfTool,
    MessagesOfTool,
    Description,
    InPlaceOfTool,
    FallbackOfTool,
    Shown,
    Asked,
    // State and memory.
    StateInInstructions,
    StateInMessage,
    StateInTool,
    StateInTrustedTool,
    StateInTemplate,
    Remembered,
    LookedBack,
    // What a client or a program sends.
    History,
    HistoryWithIds,
    ClientsResult,
    LateResult,
    ResultOfNobody,
    ClientsTool,
}

use Point::*;

/// The tree of agents, of which the first one has the content.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Tree {
    Alone,
    /// It is the tool of another.
    InTool,
    /// Another member of its team goes on.
    Sequence,
    /// Two members at a time, and one that goes on.
    SideBySide,
    /// Each task of a team is made of what it has said.
    TaskOfWords,
    /// Each task of a team is made of the state.
    TaskOfState,
    /// It transfers the conversation.
    Transfer,
}

const TREES: [Tree; 7] = [
    Tree::Alone,
    Tree::InTool,
    Tree::Sequence,
    Tree::SideBySide,
    Tree::TaskOfWords,
    Tree::TaskOfState,
    Tree::Transfer,
];

/// How the run is read, and whether another one goes on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Then {
    Ends,
    Streamed,
    /// The stream is dropped, and the run goes on in another process.
    Dropped(usize),
    /// The conversation goes on in another process.
    GoesOn,
    /// It goes on with those messages alone that have the content.
    Cut,
    /// It goes on with the messages, and without the checkpoint.
    Messages,
    /// It goes on with the messages, and with the head of another conversation, whose run has the
    /// same id.
    UnderAnother,
}

#[derive(Clone, Debug)]
struct Case {
    points: Vec<Point>,
    tree: Tree,
    then: Then,
    hides: bool,
}

fn case() -> impl Strategy<Value = Case> {
    let then = prop_oneof![
        3 => Just(Then::Ends),
        1 => Just(Then::Streamed),
        1 => (1..12_usize).prop_map(Then::Dropped),
        2 => Just(Then::GoesOn),
        1 => Just(Then::Cut),
        1 => Just(Then::Messages),
        1 => Just(Then::UnderAnother),
    ];
    let points = prop::collection::vec(prop::sample::select(&POINTS[..]), 1..=2);
    let tree = prop::sample::select(&TREES[..]);
    (points, tree, then, any::<bool>()).prop_map(|(points, tree, then, hides)| Case {
        points,
        tree,
        then,
        hides,
    })
}

/// What the models and the tools of a case have done.
#[derive(Clone, Default)]
struct Seen {
    paid: Arc<AtomicUsize>,
    tried: Arc<AtomicUsize>,
    has_read: Arc<AtomicUsize>,
}

fn add(count: &AtomicUsize) {
    count.fetch_add(1, Ordering::Relaxed);
}

/// A model that does these calls, one after the other, until it has read the content; then it pays,
/// and says it again.
fn obeys(seen: &Seen, steps: &[(String, Value)]) -> impl tower_agent::model::ModelService + use<> {
    let steps: Arc<[_]> = steps.into();
    let seen = seen.clone();
    tower::service_fn(move |request: tower_agent::ModelRequest| {
        let called = |name: &str| {
            let calls = request.messages().iter().flat_map(Message::tool_calls);
            calls.filter(|call| &*call.name == name).count()
        };
        let id = format!("call_{}", request.messages().len());
        let answer = if read(std::slice::from_ref(&request)).contains("SECRET") {
            add(&seen.has_read);
            if called("pay") == 0 {
                add(&seen.tried);
                let call = ToolCall::new(&*id, "pay", json!({ "to": "mallory" }));
                ModelResponse::from_text("").with_tool_call(call)
            } else {
                ModelResponse::from_text(SECRET)
            }
        } else {
            let next = steps.iter().find(|(name, _)| called(name) == 0);
            match next {
                Some((name, arguments)) => {
                    let call = ToolCall::new(&*id, &**name, arguments.clone());
                    ModelResponse::from_text("").with_tool_call(call)
                }
                None => ModelResponse::from_text("Done."),
            }
        };
        std::future::ready(Ok::<_, Error>(answer))
    })
}

fn pay(seen: &Seen) -> Tool {
    let seen = seen.clone();
    Tool::function("pay", "", move |_: Value| {
        add(&seen.paid);
        "paid"
    })
}

fn answer() -> AgentResponse {
    AgentResponse::new([Message::assistant(SECRET)])
}

/// An answer of a model that calls a tool, so that it is asked again.
fn looks() -> ModelResponse {
    ModelResponse::from_text(SECRET).with_tool_call(ToolCall::new("looks", "today", json!({})))
}

fn source(
    name: impl Into<String>,
    read: impl Fn() -> ToolResponse + Send + Sync + 'static,
) -> Tool {
    let read = Arc::new(read);
    Tool::function(name.into(), "", move |_: Value| read()).effect(Effect::Pure)
}

/// The agent with the content, while it is built.
struct Host {
    builder: AgentBuilder,
    request: AgentRequest,
}

impl Point {
    /// Returns the name of the tool by which the content comes.
    fn tool(self) -> String {
        format!("{self:?}")
    }

    /// Returns whether the content comes by the state.
    fn writes(self) -> bool {
        matches!(
            self,
            StateInInstructions
                | StateInMessage
                | StateInTool
                | StateInTrustedTool
                | StateInTemplate
        )
    }

    /// Returns the calls by which the content comes to a model.
    fn steps(self) -> Vec<(String, Value)> {
        let read = |name: &str| (name.to_owned(), json!({}));
        let own = read(&self.tool());
        match self {
            ResultOfTool | FailedResult | ErrorOfTool | PartsOfTool | MessagesOfTool
            | InPlaceOfTool | FallbackOfTool | Remembered => vec![own],
            Shown => {
                let shown = json!({ "result": reference("@m1.0") });
                vec![own, ("show_result".to_owned(), shown)]
            }
            Asked => {
                let asked = json!({
                    "about": [reference("@m1.0")],
                    "question": "?",
                    "answer": { "type": "choice", "choices": ["a", "b"] },
                });
                vec![own, ("ask_about".to_owned(), asked)]
            }
            StateInInstructions | StateInMessage | StateInTemplate => {
                vec![read("writes"), read("today")]
            }
            StateInTool | StateInTrustedTool => vec![read("writes"), own],
            LookedBack => {
                let named = json!({ "name": "m1.0" });
                vec![own, ("look_back".to_owned(), named)]
            }
            _ => Vec::new(),
        }
    }
}

/// Puts the content there.
fn put(point: Point, host: Host, seen: &Seen) -> Host {
    let Host { builder, request } = host;
    let push = |message: Message| {
        before_agent(move |request: &mut AgentRequest| {
            request.messages_mut().push(message.clone());
        })
    };
    let first = |context: &tower_agent::RunContext| context.iteration() == 0;
    let mut sent = request;
    let own = point.tool();
    let builder = match point {
        BeforeAgentUser => builder.on_agent(push(Message::user(SECRET))),
        BeforeAgentSystem => builder.on_agent(push(Message::system(SECRET))),
        BeforeAgentAssistant => builder.on_agent(push(Message::assistant(SECRET))),
        BeforeAgentOwnId => builder.on_agent(push(Message::user(SECRET).with_id("memory"))),
        BeforeAgentChanges => builder.on_agent(before_agent(|request: &mut AgentRequest| {
            if let Some(message) = request.messages_mut().get_mut(0) {
                message.parts_mut().push(Part::from_text(SECRET));
            }
        })),
        BeforeAgentAnswers => builder.on_agent(before_agent(|_| Action::Respond(answer()))),
        AfterAgentAnswers => builder.on_agent(after_agent(|_, _| Action::Respond(answer()))),
        AfterAgentChanges => builder.on_agent(after_agent(|_, response: &AgentResponse| {
            let changed = response.map_messages(|message| {
                let mut changed = message.clone();
                changed.parts_mut().push(Part::from_text(SECRET));
                (message.role() == Role::Assistant).then_some(changed)
            });
            changed.map_or(Action::Continue, Action::Respond)
        })),
        AfterAgentAddsUser => builder.on_agent(after_agent(|_, _| {
            let messages = [Message::user(SECRET), Message::assistant("Noted.")];
            Action::Respond(AgentResponse::new(messages))
        })),
        AgentErrorFallsBack => builder
            .on_agent(on_agent_error(|_, _| Recovery::Fallback(answer())))
            .model_layer(wrap_model(|_, _| async {
                Err::<ModelResponse, _>(Error::new(ErrorKind::Provider, "down"))
            })),
        AgentError => builder.on_agent(before_agent(|_: &mut AgentRequest| {
            Err::<(), _>(Error::new(ErrorKind::Callback, SECRET))
        })),
        AgentLayerAdds => builder.agent_layer(wrap_agent(
            |mut request: AgentRequest, mut next| async move {
                request.messages_mut().push(Message::user(SECRET));
                next.run(request).await
            },
        )),
        AgentLayerAnswers => {
            builder.agent_layer(wrap_agent(|request: AgentRequest, mut next| async move {
                next.run(request).await?;
                Ok(answer())
            }))
        }
        BeforeModelAdds => builder.on_model(before_model(|request| {
            request.messages_mut().push(Message::user(SECRET));
        })),
        BeforeModelInstructs => {
            builder.on_model(before_model(|request| request.add_instructions(SECRET)))
        }
        BeforeModelChanges => builder.on_model(before_model(|request| {
            if let Some(message) = request.messages_mut().get_mut(0) {
                message.parts_mut().push(Part::from_text(SECRET));
            }
        })),
        BeforeModelAnswers => builder.on_model(before_model(move |request| {
            if first(request.context()) {
                Action::Respond(looks())
            } else {
                Action::Continue
            }
        })),
        AfterModelAnswers => builder.on_model(after_model(
            move |request: &tower_agent::ModelRequest, _: &ModelResponse| {
                if first(request.context()) {
                    Action::Respond(looks())
                } else {
                    Action::Continue
                }
            },
        )),
        ModelErrorFallsBack => builder
            .on_model(on_model_error(|_, _| Recovery::Fallback(looks())))
            .model_layer(wrap_model(move |request, mut next| async move {
                if request.context().iteration() == 0 {
                    return Err(Error::new(ErrorKind::Provider, "down"));
                }
                next.run(request).await
            })),
        ModelError => builder.on_model(before_model(|_| {
            Err::<(), _>(Error::new(ErrorKind::Callback, SECRET))
        })),
        ModelLayerAdds => builder.model_layer(wrap_model(|mut request, mut next| async move {
            request.messages_mut().push(Message::user(SECRET));
            next.run(request).await
        })),
        ModelLayerAnswers => builder.model_layer(wrap_model(|request, mut next| async move {
            let is_first = request.context().iteration() == 0;
            let response = next.run(request).await?;
            Ok(if is_first { looks() } else { response })
        })),
        HelperInCallback => {
            let helper = obeys(seen, &[("source".to_owned(), json!({}))]);
            let helper = Agent::builder(helper).name("helper");
            let helper = helper.tools([source("source", || ToolResponse::new(SECRET)), pay(seen)]);
            let helper = helper.build().unwrap();
            builder.model_layer(wrap_model(
                move |mut request: tower_agent::ModelRequest, mut next| {
                    let helper = helper.clone();
                    async move {
                        if request.context().agent() != "helper" {
                            let asked =
                                AgentRequest::conversation([Message::user("Look.").with_id("q")]);
                            let asked = asked.with_context(request.context().clone());
                            let found = helper.run(asked).await?.text();
                            request.messages_mut().push(Message::user(found));
                        }
                        next.run(request).await
                    }
                },
            ))
        }
        ResultOfTool | Remembered => builder.tool(source(own, || ToolResponse::new(SECRET))),
        FailedResult => builder.tool(source(own, || ToolResponse::error(SECRET))),
        ErrorOfTool => builder.tool(fails(own)),
        PartsOfTool => builder.tool(source(own, || {
            ToolResponse::new(Value::Null).with_parts([Part::from_text(SECRET)])
        })),
        MessagesOfTool => builder
            .tool(source(own, || ToolResponse::new("found")))
            .tool_result_messages(|answer: tower_agent::agent::ToolAnswer| {
                let is_source = *answer.call.name == *MessagesOfTool.tool();
                is_source.then(|| vec![answer.default, Message::user(SECRET).with_id("mine")])
            }),
        Description => {
            let declaration = ToolDeclaration::new("theirs", SECRET).described_by_others();
            let service = tower::service_fn(async |_| {
                Ok::<_, tower_agent::BoxError>(ToolResponse::new("done"))
            });
            builder.tool(Tool::service(declaration, service))
        }
        InPlaceOfTool => builder
            .tool(source(own, || ToolResponse::new("found")))
            .on_tool(before_tool(|request: &mut ToolRequest| {
                match request.name() {
                    name if name == InPlaceOfTool.tool() => {
                        Action::Respond(ToolResponse::new(SECRET))
                    }
                    _ => Action::Continue,
                }
            })),
        FallbackOfTool => builder.tool(fails(own)).on_tool(on_tool_error(|_, _| {
            Recovery::Fallback(ToolResponse::new(SECRET))
        })),
        Shown | Asked => builder.tool(source(own, || ToolResponse::new(SECRET))),
        StateInInstructions => builder.on_model(before_model(|request| {
            if let Some(found) = request.context().state().get("found") {
                request.add_instructions(&found.to_string());
            }
        })),
        StateInMessage => builder.on_model(before_model(|request| {
            if let Some(found) = request.context().state().get("found") {
                request
                    .messages_mut()
                    .push(Message::user(found.to_string()));
            }
        })),
        StateInTemplate => builder
            .instructions("You know: {found?}")
            .semantics(Semantics::adk_python()),
        StateInTool | StateInTrustedTool => {
            let reads = Tool::function_with(own, "", async |_: Value, call: ToolRequest| {
                call.context().state().get("found").unwrap_or_default()
            });
            builder.tool(reads.effect(Effect::Pure))
        }
        LookedBack => builder
            .tool(source(own, || ToolResponse::new(SECRET)))
            .on_model(ContextWindow::new(100_000))
            .tool(ContextWindow::look_back()),
        History => {
            let said = [Message::user("Look."), Message::assistant(SECRET)];
            sent = sent.with_history(said);
            builder
        }
        HistoryWithIds => {
            let asked = Message::user("Look.").with_id("run-m0");
            let said = Message::assistant(SECRET).with_id("run-m1");
            sent = sent.with_history([asked, said]);
            builder
        }
        ClientsResult => {
            sent = sent.with_history(called("1", [result("1")]));
            builder
        }
        LateResult => {
            let history = called(
                "1",
                [result_of("1", "It runs."), Message::assistant("It runs.")],
            );
            sent = sent.with_history(history).with_message(result("1"));
            builder
        }
        ResultOfNobody => {
            sent = sent.with_message(result("9"));
            builder
        }
        ClientsTool => {
            let declaration = ToolDeclaration::new("page", SECRET).described_by_others();
            let tool = Tool::service(
                declaration,
                tower::service_fn(async |_| {
                    Ok::<_, tower_agent::BoxError>(ToolResponse::new("done"))
                }),
            );
            let mut tools = ToolSet::new();
            tools.insert(tool).unwrap();
            sent = sent.with_tools(tools);
            builder
        }
    };
    Host {
        builder,
        request: sent,
    }
}

fn fails(name: String) -> Tool {
    let fails = |_: Value| Err::<String, _>(tower_agent::BoxError::from(SECRET));
    Tool::function(name, "", fails).effect(Effect::Pure)
}

fn writes() -> Tool {
    let writes = Tool::function_with("writes", "", async |_: Value, call: ToolRequest| {
        call.context().state().set("found", SECRET);
        "written"
    });
    writes.effect(Effect::Pure)
}

fn called(id: &str, more: impl IntoIterator<Item = Message>) -> tower_agent::message::Messages {
    let call = ToolCall::new(id, "page", json!({}));
    let calls = Message::new(Role::Assistant, [Part::from(call)]);
    [Message::user("Look."), calls]
        .into_iter()
        .chain(more)
        .collect()
}

fn result_of(id: &str, text: &str) -> Message {
    let call = ToolCall::new(id, "page", json!({}));
    Message::tool(ToolResult::new(&call, [Part::from_text(text)]))
}

fn result(id: &str) -> Message {
    result_of(id, SECRET)
}

fn flow_of(case: &Case, seen: &Seen) -> Flow {
    let mut flow = Flow::new()
        .tool("pay", ToolFlow::action())
        .tool("today", ToolFlow::trusted())
        .tool("writes", ToolFlow::source().hidden())
        .tool("source", ToolFlow::source())
        .tool("host", ToolFlow::agent())
        .tool("transfer_to_agent", ToolFlow::agent())
        .narrow_answers(8)
        .reader(
            Agent::builder(obeys(seen, &[]))
                .name("reader")
                .build()
                .unwrap(),
        );
    for point in POINTS {
        let declared = match point {
            Shown | Asked => ToolFlow::source().hidden(),
            // What it returns is what the state has.
            StateInTrustedTool => ToolFlow::trusted(),
            _ => ToolFlow::source(),
        };
        flow = flow.tool(point.tool(), declared);
    }
    if case.hides {
        flow = flow.hide(Hide::Everything);
    }
    flow
}

/// Returns the agent of a case, and its request.
fn tree(case: &Case, flow: Option<&Flow>, seen: &Seen) -> (Agent, AgentRequest) {
    let mut steps: Vec<_> = case.points.iter().flat_map(|point| point.steps()).collect();
    let by_state = case.tree == Tree::TaskOfState;
    if by_state {
        steps.push(("writes".to_owned(), json!({})));
    }
    if case.tree == Tree::Transfer {
        let next = json!({ "agent_name": "next" });
        steps.push(("transfer_to_agent".to_owned(), next));
    }
    let agent = |name: &str, steps: &[(String, Value)]| {
        Agent::builder(obeys(seen, steps))
            .name(name)
            .tool(pay(seen))
    };
    let next = |name: &str| agent(name, &[]).build().unwrap();
    let today = Tool::function("today", "", |_: Value| "Monday").effect(Effect::Pure);
    let mut host = Host {
        builder: agent("host", &steps).tool(today),
        request: AgentRequest::new("What is new?"),
    };
    if let Some(flow) = flow {
        host.builder = host.builder.tools(flow.tools());
    }
    if by_state || case.points.iter().any(|point| point.writes()) {
        host.builder = host.builder.tool(writes());
    }
    for point in &case.points {
        host = put(*point, host, seen);
    }
    let Host { builder, request } = host;
    let guarded = |builder: AgentBuilder| match flow {
        Some(flow) => builder.global_callbacks(flow.clone()).build().unwrap(),
        None => builder.build().unwrap(),
    };
    let last = match case.tree {
        Tree::Alone => return (guarded(builder), request),
        Tree::Transfer => return (guarded(builder.sub_agent(next("next"))), request),
        Tree::InTool => {
            let asks = [("host".to_owned(), json!({ "request": "Look." }))];
            let boss = agent("boss", &asks).tool(builder.build().unwrap().into_tool(""));
            return (guarded(boss), request);
        }
        Tree::Sequence | Tree::SideBySide => next("last"),
        Tree::TaskOfWords | Tree::TaskOfState => {
            let tasks = Agent::for_each("each", next("next"), move |request: &AgentRequest| {
                let state = request.context().state().get("found");
                let found = state.filter(|_| by_state).map(|found| found.to_string());
                let last = || request.messages().last().map(Message::text);
                Ok::<Vec<_>, Error>(found.or_else(last).into_iter().collect())
            });
            tasks.build().unwrap()
        }
    };
    let mut first = builder.build().unwrap();
    if case.tree == Tree::SideBySide {
        let both = Agent::parallel("both").agents([first, next("next")]);
        first = both.build().unwrap();
    }
    let team = Agent::sequential("team").agents([first, last]);
    let team = match flow {
        Some(flow) => team.global_callbacks(flow.clone()),
        None => team,
    };
    (team.build().unwrap(), request)
}

/// The id of a run that a program has chosen twice.
const RUN: &str = "run";

/// Returns the head of a conversation in which everything is trusted, with many messages.
async fn trusted_head(flow: Option<&Flow>) -> CheckpointHead {
    let calls = (0..9).map(|_| Turn::tool("today", json!({})));
    let model = ScriptedModel::new(calls.chain([Turn::from_text("Done.")]));
    let today = Tool::function("today", "", |_: Value| "Monday").effect(Effect::Pure);
    let agent = Agent::builder(model).name("host").tool(today);
    let agent = match flow {
        Some(flow) => agent.global_callbacks(flow.clone()),
        None => agent,
    };
    let request = AgentRequest::new("What day is it?").with_run_id(RUN);
    let ended = agent.build().unwrap().run(request).await.unwrap();
    ended.checkpoint().head
}

/// Runs a case; returns what its models and tools have done.
async fn run(case: &Case, is_guarded: bool) -> Seen {
    let seen = Seen::default();
    let flow = flow_of(case, &seen);
    let flow = is_guarded.then_some(&flow);
    let (agent, mut request) = tree(case, flow, &seen);
    if case.then == Then::UnderAnother {
        request = request.with_run_id(RUN);
    }
    let checkpoint = match case.then {
        Then::Ends | Then::GoesOn | Then::Cut | Then::Messages | Then::UnderAnother => {
            let result = agent.run(request).await;
            result.map_or_else(
                |error| error.checkpoint().cloned(),
                |done| Some(done.checkpoint()),
            )
        }
        Then::Streamed => {
            agent.stream(request).collect::<Vec<_>>().await;
            None
        }
        Then::Dropped(after) => {
            let mut run = agent.stream(request);
            for _ in 0..after {
                run.next().await;
            }
            Some(run.checkpoint())
        }
    };
    let Some(checkpoint) = checkpoint.filter(|_| case.then != Then::Ends) else {
        return seen;
    };
    // In another process.
    let saved = serde_json::to_string(&checkpoint).unwrap();
    let mut checkpoint: tower_agent::Checkpoint = serde_json::from_str(&saved).unwrap();
    if case.then == Then::Cut {
        let whole = checkpoint.messages.iter();
        let has_content = |message: &&Message| {
            let written = serde_json::to_string(message).unwrap();
            written.contains("SECRET") && message.tool_calls().next().is_none()
        };
        checkpoint.messages = whole.filter(has_content).cloned().collect();
    }
    if case.then == Then::UnderAnother {
        checkpoint.head = trusted_head(flow).await;
    }
    let request = match case.then {
        Then::Messages => AgentRequest::conversation(checkpoint.messages),
        _ => AgentRequest::resume(checkpoint),
    };
    let later = Agent::builder(obeys(&seen, &[]))
        .name("host")
        .tool(pay(&seen));
    let later = match flow {
        Some(flow) => later.global_callbacks(flow.clone()),
        None => later,
    };
    // It may have failed, and what was read until then counts.
    let _ = later
        .build()
        .unwrap()
        .run(request.with_message("Go on."))
        .await;
    seen
}

fn runs(case: &Case, is_guarded: bool) -> Seen {
    let runtime = tokio::runtime::Builder::new_current_thread();
    let runtime = { runtime }.build().unwrap();
    runtime.block_on(run(case, is_guarded))
}

/// Returns whether the labels of a case are needed for more than the ids of its messages say.
fn needs_checkpoint(case: &Case) -> bool {
    // A program that keeps messages alone says what they are: they have its own ids.
    let mut points = case.points.iter();
    points.any(|point| matches!(point, BeforeAgentOwnId | BeforeAgentChanges))
}

#[test]
fn without_the_guard_each_place_takes_the_model_over() {
    for point in POINTS {
        if matches!(point, Shown | Asked) {
            // Without the guard, nothing is hidden.
            continue;
        }
        let pays = TREES.iter().any(|tree| {
            [Then::Ends, Then::GoesOn].into_iter().any(|then| {
                let case = Case {
                    points: vec![point],
                    tree: *tree,
                    then,
                    hides: false,
                };
                runs(&case, false).paid.load(Ordering::Relaxed) > 0
            })
        });
        assert!(pays, "{point:?}");
    }
}

#[test]
fn with_the_guard_each_place_is_read_where_nothing_is_hidden() {
    for point in POINTS {
        let mut tried = 0;
        for tree in TREES {
            let case = Case {
                points: vec![point],
                tree,
                then: Then::GoesOn,
                hides: false,
            };
            let seen = runs(&case, true);
            tried += seen.tried.load(Ordering::Relaxed);
            assert_eq!(seen.paid.load(Ordering::Relaxed), 0, "{case:?}");
        }
        assert!(tried > 0 || point == Asked, "{point:?}");
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: sample(600, 20_000), ..cases(20_000) })]

    #[test]
    fn content_at_any_two_places_pays_nobody(case in case()) {
        let has_its_labels = !matches!(case.then, Then::Messages | Then::UnderAnother);
        prop_assume!(has_its_labels || !needs_checkpoint(&case));
        let mut case = case;
        case.points.dedup();
        let seen = runs(&case, true);
        prop_assert_eq!(seen.paid.load(Ordering::Relaxed), 0);
    }
}

#[test]
fn what_has_paid_once_pays_nobody() {
    for (points, tree, then) in [
        // An agent in a tool call ends with the error of its own tool, which its model has not
        // read.
        ([ErrorOfTool, StateInTemplate], Tree::InTool, Then::GoesOn),
        // A result without a call has the id of another conversation's message.
        (
            [ResultOfNobody, AgentError],
            Tree::Alone,
            Then::UnderAnother,
        ),
    ] {
        for hides in [false, true] {
            let points = points.to_vec();
            let case = Case {
                points,
                tree,
                then,
                hides,
            };
            let seen = runs(&case, true);
            assert_eq!(seen.paid.load(Ordering::Relaxed), 0, "{case:?}");
        }
    }
}
