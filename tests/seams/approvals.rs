//! Guards are asked always, and an answer lets one call through once.

use std::borrow::Cow;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use serde_json::{Value, json};
use tower::{ServiceBuilder, ServiceExt, service_fn};
use tower_agent::callback::RespondIn;
use tower_agent::guard::approval::Approval;
use tower_agent::guard::timeout::TimeoutLayer;
use tower_agent::testing::{ScriptedModel, Turn};
use tower_agent::{
    Action, Agent, AgentBuilder, AgentRequest, BandSemantics, BoxError, BuildError, Bundle,
    Callback, Callbacks, Error, ErrorKind, Hooks, ModelRequest, ModelResponse, Outcome, Recovery,
    Result, Semantics, Tool, ToolCall, ToolRequest, ToolResponse, ToolSet, after_model,
    before_model, before_tool, before_tool_async, callback, on_model_error, on_tool_error,
};
use tower_layer::Layer;

type Log = Arc<Mutex<Vec<String>>>;

fn note(log: &Log, what: impl Into<String>) {
    log.lock().unwrap().push(what.into());
}

fn take(log: &Log) -> Vec<String> {
    std::mem::take(&mut *log.lock().unwrap())
}

/// Refuses every call of a tool.
struct Refuses;

fn refusal() -> ToolResponse {
    ToolResponse::error("not allowed")
}

impl Callback<ToolRequest> for Refuses {
    async fn before(&self, _: &mut ToolRequest) -> Result<Action<ToolResponse>> {
        Ok(Action::Respond(refusal()))
    }

    fn is_guard(&self) -> bool {
        true
    }
}

impl Hooks for Refuses {
    async fn before_tool(&self, _: &mut ToolRequest) -> Result<Action<ToolResponse>> {
        Ok(Action::Respond(refusal()))
    }

    fn is_guard(&self) -> bool {
        true
    }
}

async fn refuse(_: &mut ToolRequest) -> Action<ToolResponse> {
    Action::Respond(refusal())
}

/// The guard in each form in which one can be written.
fn forms() -> Vec<(&'static str, Bundle)> {
    vec![
        ("sync", Bundle::new().on_tool(before_tool(|_| Action::Respond(refusal())).guard())),
        (
            "owning",
            Bundle::new().on_tool(before_tool(|_| async { Action::Respond(refusal()) }).guard()),
        ),
        ("borrowing", Bundle::new().on_tool(before_tool_async(refuse).guard())),
        (
            "any call",
            Bundle::new().on_tool(
                callback::before(|_: &mut ToolRequest| Action::Respond(refusal())).guard(),
            ),
        ),
        ("any call, borrowing", Bundle::new().on_tool(callback::before_async(refuse).guard())),
        ("callback", Bundle::new().on_tool(Refuses)),
        ("shared callback", Bundle::new().on_tool(Arc::new(Refuses))),
        ("hooks", Bundle::from(Refuses)),
        ("shared hooks", Bundle::from(Arc::new(Refuses))),
    ]
}

/// A callback before the guard that would have it skipped.
fn skips() -> Bundle {
    Bundle::new().on_tool(before_tool(|_| Action::SkipRest))
}

#[tokio::test]
async fn a_guard_of_any_form_anywhere_keeps_a_tool_from_running_whatever_is_decided_before_it() {
    let trpc = Semantics::trpc();
    let all = [Semantics::default(), Semantics::potato(), Semantics::adk_python(), trpc];
    for semantics in all {
        for (form, guard) in forms() {
            for place in ["own", "global", "run"] {
                let log = Log::default();
                let ran = log.clone();
                let model = ScriptedModel::new([Turn::tool("pay", json!(1)), Turn::text("done")]);
                let builder = Agent::builder(model).semantics(semantics).tool(Tool::function(
                    "pay",
                    "Pays.",
                    move |_: u32| note(&ran, "paid"),
                ));
                let both = skips().and(guard.clone());
                let mut request = AgentRequest::new("?");
                let builder = match place {
                    "own" => builder.bundle(both),
                    "global" => builder.global(both),
                    _ => {
                        request = request.with_callbacks(both);
                        builder
                    }
                };
                let done = builder.build().unwrap().run(request).await.unwrap();
                let results: Vec<_> =
                    done.messages().iter().flat_map(|m| m.tool_results()).cloned().collect();
                assert_eq!(take(&log), [""; 0], "{form}, {place}, {semantics:?}");
                assert!(results[0].is_error, "{form}, {place}, {semantics:?}");
            }
        }
    }
}

fn request() -> ToolRequest {
    ToolRequest::new(ToolCall::new("call_1", "pay", json!(1)))
}

/// The presets, and what differs most from each of them.
fn semantics() -> Vec<BandSemantics> {
    let mut everywhere = BandSemantics::potato();
    everywhere.respond = RespondIn::Everywhere;
    vec![
        BandSemantics::default(),
        BandSemantics::potato(),
        everywhere,
        BandSemantics::adk_python(),
        BandSemantics::adk_elixir(),
        BandSemantics::trpc(false, false),
        BandSemantics::trpc(false, true),
        BandSemantics::trpc(true, false),
        BandSemantics::trpc(true, true),
    ]
}

async fn answer(callbacks: Callbacks<ModelRequest>, answer: Result<&str>) -> Result<String> {
    let answer = answer.map(ModelResponse::text);
    let model = callbacks.layer(service_fn(move |_: ModelRequest| {
        let answer = answer.clone();
        async move { answer.map_err(BoxError::from) }
    }));
    model.oneshot(ModelRequest::default()).await.map(|response| response.message().text())
}

/// Puts a star in the place of every `raw`.
fn hides() -> impl Callback<ModelRequest> {
    after_model(|_, response| {
        let text = response.message().text();
        match text.contains("raw") {
            true => Action::Respond(ModelResponse::text(text.replace("raw", "*"))),
            false => Action::Continue,
        }
    })
    .guard()
}

#[tokio::test]
async fn an_after_that_is_a_guard_sees_every_response_that_leaves_the_band() {
    for semantics in semantics() {
        let band = || Callbacks::new().with_semantics(semantics);
        let skipped = band().with(after_model(|_, _| Action::SkipRest)).with(hides());
        assert_eq!(answer(skipped, Ok("raw")).await.unwrap(), "*", "{semantics:?}");

        let replaced = band()
            .with(after_model(|_, _| Action::Respond(ModelResponse::text("another raw"))))
            .with(hides());
        assert_eq!(answer(replaced, Ok("raw")).await.unwrap(), "another *", "{semantics:?}");

        let given = band()
            .with(before_model(|_| Action::Respond(ModelResponse::text("given raw"))))
            .with(hides());
        let expected = match semantics.respond {
            RespondIn::AfterModel => "*",
            _ => "given *",
        };
        assert_eq!(answer(given, Ok("raw")).await.unwrap(), expected, "{semantics:?}");

        let recovered = band()
            .with(on_model_error(|_, _| Recovery::Fallback(ModelResponse::text("some raw"))))
            .with(hides());
        let failure = Err(Error::new(ErrorKind::Overloaded, "down"));
        assert_eq!(answer(recovered, failure).await.unwrap(), "some *", "{semantics:?}");

        let ends =
            band().with(after_model(|_, _| Err::<(), _>(Error::end_invocation()))).with(hides());
        assert_eq!(answer(ends, Ok("raw")).await.unwrap(), "*", "{semantics:?}");
    }
}

#[tokio::test]
async fn callbacks_after_a_guard_see_what_it_left_of_a_response() {
    for semantics in semantics() {
        let log = Log::default();
        let seen = log.clone();
        let callbacks = Callbacks::new()
            .with_semantics(semantics)
            .with(after_model(|_, _| Action::Respond(ModelResponse::text("another raw"))))
            .with(hides())
            .with(after_model(move |_, response| note(&seen, response.message().text())));
        answer(callbacks, Ok("raw")).await.unwrap();
        assert!(!take(&log).concat().contains("raw"), "{semantics:?}");
    }
}

#[tokio::test]
async fn a_guard_is_asked_after_a_failure_that_another_callback_recovers() {
    for semantics in semantics() {
        let log = Log::default();
        let (seen, failed) = (log.clone(), Error::new(ErrorKind::Overloaded, "raw"));
        let recovers = on_model_error(|_, _| Recovery::Fallback(ModelResponse::text("saved")));
        let guard = on_model_error(move |_, error| {
            note(&seen, error.message());
            Recovery::Fail(Error::new(error.kind(), "*"))
        });
        let callbacks =
            Callbacks::new().with_semantics(semantics).with(recovers).with(guard.guard());
        let answered = answer(callbacks, Err(failed)).await.unwrap();
        assert_eq!((answered.as_str(), take(&log)), ("saved", vec!["raw".to_owned()]));
    }
}

/// Lets a call through once for each argument that was agreed to, and says what it was asked.
struct Agreed {
    log: Log,
    to: u64,
}

impl Callback<ToolRequest> for Agreed {
    async fn before(&self, request: &mut ToolRequest) -> Result<Action<ToolResponse>> {
        note(&self.log, format!("asked about {}", request.arguments()));
        match request.arguments() == self.to {
            true => Ok(Action::Continue),
            false => Ok(Action::Respond(refusal())),
        }
    }

    fn on_end(&self, _: &ToolRequest, _: Outcome<'_, ToolResponse>) {
        note(&self.log, "ended");
    }

    fn name(&self) -> Cow<'static, str> {
        "agreed".into()
    }

    fn is_guard(&self) -> bool {
        true
    }
}

#[tokio::test]
async fn a_retry_of_a_changed_call_is_made_only_if_the_guards_let_it_through() {
    for changes in [false, true] {
        let log = Log::default();
        let guard = Agreed { log: log.clone(), to: 1 };
        let retries = on_tool_error(move |request, _| {
            if changes {
                *request.arguments_mut() = json!(1000);
            }
            Recovery::Retry
        });
        let callbacks = Callbacks::new().with(guard).with(retries);
        let ran = log.clone();
        let tool = callbacks.layer(service_fn(move |request: ToolRequest| {
            let log = ran.clone();
            async move {
                note(&log, format!("ran {}", request.arguments()));
                Err::<ToolResponse, BoxError>("busy".into())
            }
        }));
        let result = tool.oneshot(request()).await;
        let log = take(&log);
        match changes {
            true => {
                assert!(result.unwrap().is_error());
                assert_eq!(log, ["asked about 1", "ran 1", "asked about 1000", "ended"]);
            }
            false => {
                result.unwrap_err();
                assert_eq!(log, ["asked about 1", "ran 1", "ran 1", "ran 1", "ran 1", "ended"]);
            }
        }
    }
}

#[tokio::test]
async fn those_told_of_the_end_are_those_that_were_asked() {
    // What is not asked in `before` is asked in `after`, so the call must end before that.
    let log = Log::default();
    let not_asked = {
        let log = log.clone();
        EndNoted(log)
    };
    let callbacks = Callbacks::new()
        .with(before_tool(|_| Action::SkipRest))
        .with(not_asked)
        .with(Agreed { log: log.clone(), to: 1 });
    let call = callbacks.layer(service_fn(|_: ToolRequest| async {
        std::future::pending::<Result<ToolResponse, BoxError>>().await
    }));
    let mut call = Box::pin(call.oneshot(request()));
    assert!(futures::poll!(&mut call).is_pending());
    drop(call);
    assert_eq!(take(&log), ["asked about 1", "ended"]);
}

struct EndNoted(Log);

impl Callback<ToolRequest> for EndNoted {
    fn on_end(&self, _: &ToolRequest, _: Outcome<'_, ToolResponse>) {
        note(&self.0, "ended, though it was not asked");
    }
}

fn pay() -> Tool {
    Tool::function("pay", "Pays.", |amount: u32| amount)
}

fn agent(name: &'static str) -> AgentBuilder {
    Agent::builder(ScriptedModel::new([Turn::text("done")])).name(name)
}

/// A guard for a tool of this name, as an object with hooks for every call.
struct Named(&'static str);

impl Hooks for Named {
    fn named_tools(&self) -> Vec<Arc<str>> {
        vec![self.0.into()]
    }
}

fn unknown(built: Result<Agent, BuildError>) -> (String, String, String) {
    let error = built.unwrap_err();
    let said = error.to_string();
    let BuildError::UnknownTool { by, tool, known } = error else { panic!("{error}") };
    assert!(said.contains(&format!("`{by}`")) && said.contains(&format!("`{tool}`")), "{said}");
    assert!(said.contains(&known.join(", ")), "{said}");
    (by.into_owned(), tool.to_string(), known.join(" "))
}

#[test]
fn a_guard_or_a_limit_that_names_a_tool_that_is_not_there_is_not_built() {
    let timeout = || TimeoutLayer::new(Duration::from_secs(9));
    let typo = |by: &str| (by.to_owned(), "typo".to_owned(), "pay".to_owned());
    let own = agent("a").tool(pay()).on_tool(Approval::of_tools(["pay", "typo"]));
    assert_eq!(unknown(own.build()), typo("Approval"));
    let global = agent("a").tool(pay()).global(Approval::of_tools(["typo"]));
    assert_eq!(unknown(global.build()), typo("Approval"));
    let hooks = agent("a").tool(pay()).bundle(Arc::new(Named("typo")));
    assert_eq!(unknown(hooks.build()), typo("Named"));
    let limit = timeout().with_limit_of("pay", Duration::MAX).with_limit_of("typo", Duration::MAX);
    let layer = agent("a").tool(pay()).tool_layer(limit.clone());
    assert_eq!(unknown(layer.build()), typo("TimeoutLayer"));
    let stacked = ServiceBuilder::new().layer(limit).layer(timeout()).into_inner();
    assert_eq!(unknown(agent("a").tool(pay()).tool_layer(stacked).build()), typo("TimeoutLayer"));
    let fits = timeout().with_limit_of("pay", Duration::MAX);
    let fits = agent("a").tool(pay()).tool_layer(fits).on_tool(Approval::of_tools(["pay"]));
    fits.bundle(Named("pay")).global(Named("pay")).build().unwrap();
}

#[test]
fn a_guard_around_a_tree_may_name_the_tools_of_all_that_work_in_it() {
    let member = || agent("member").tool(pay()).build().unwrap();
    let guard = || Approval::of_tools(["pay"]);
    agent("boss").tool(member().into_tool("Pays.")).global(guard()).build().unwrap();
    agent("boss").sub_agent(member()).global(guard()).build().unwrap();
    let team = || Agent::sequential("team").agent(member());
    team().global(guard()).build().unwrap();
    agent("boss").sub_agent(team().build().unwrap()).global(guard()).build().unwrap();

    let own = agent("boss").sub_agent(member()).on_tool(guard());
    assert_eq!(unknown(own.build()).2, "transfer_to_agent", "its own calls alone");
    assert_eq!(unknown(team().global(Approval::of_tools(["typo"])).build()).2, "pay");
}

#[tokio::test]
async fn a_tool_that_comes_with_the_run_is_looked_for_when_the_run_begins() {
    let guarded =
        || agent("a").tools_of_runs(["confirm"]).on_tool(Approval::of_tools(["confirm"])).build();
    let mut tools = ToolSet::new();
    tools.insert(Tool::function("confirm", "Asks.", |_: Value| "yes")).unwrap();
    let with_tools = || AgentRequest::new("?").with_tools(tools.clone());
    assert_eq!(guarded().unwrap().run(with_tools()).await.unwrap().text(), "done");
    let error = guarded().unwrap().run("?").await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::InvalidRequest);
    assert!(error.message().contains("`Approval`"), "{error}");
    assert!(error.message().contains("`confirm`"), "{error}");

    let with_guard =
        |request: AgentRequest| request.with_callbacks(Approval::of_tools(["confirm"]));
    let bare = || agent("a").build().unwrap();
    assert_eq!(bare().run(with_guard(with_tools())).await.unwrap().text(), "done");
    let error = bare().run(with_guard(AgentRequest::new("?"))).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::InvalidRequest);
    let team = Agent::sequential("team").agent(bare()).build().unwrap();
    assert_eq!(team.run(with_guard(with_tools())).await.unwrap().text(), "done");
}
