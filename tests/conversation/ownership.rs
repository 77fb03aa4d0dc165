//! A call belongs to the agent that made it.

use std::sync::{Arc, Mutex};

use futures::StreamExt;
use serde_json::{Value, json};
use tokio_util::sync::CancellationToken;
use tower_agent::callback::{Bundle, before_agent, before_tool};
use tower_agent::message::ToolCall;
use tower_agent::{
    Agent, AgentBuilder, AgentRequest, AgentResponse, Callback, Checkpoint, Error, ErrorKind,
    Interrupt, Message, ModelResponse, Part, Request, Resolution, Role, RunContext, State, Tool,
    ToolRequest,
};
use tower_agent_middleware::approval::{Approval, Decision};
use tower_agent_test::{ScriptedModel, Turn};

/// Who has wiped what.
#[derive(Clone, Default)]
struct Wiped(Arc<Mutex<Vec<String>>>);

impl Wiped {
    fn tool(&self, by: &'static str) -> Tool {
        let wiped = self.clone();
        Tool::function("wipe", "Wipes.", move |what: Value| {
            wiped.0.lock().unwrap().push(format!("{by} {what}"));
            "wiped"
        })
    }

    fn take(&self) -> Vec<String> {
        std::mem::take(&mut self.0.lock().unwrap())
    }
}

fn yes(response: &AgentResponse) -> Vec<Resolution> {
    let ids = response.interrupts().iter().map(|pending| &pending.id);
    ids.map(|id| Resolution::resolved(id, Decision::Approve))
        .collect()
}

async fn resume(agent: &Agent, paused: &AgentResponse, answers: Vec<Resolution>) -> AgentResponse {
    let saved = serde_json::to_string(&paused.checkpoint()).unwrap();
    let checkpoint: Checkpoint = serde_json::from_str(&saved).unwrap();
    agent
        .run(AgentRequest::resume(checkpoint).with_resolutions(answers))
        .await
        .unwrap()
}

fn unguarded(name: &str, model: &ScriptedModel, wiped: &Wiped) -> Agent {
    let by = Box::leak(name.to_owned().into_boxed_str());
    Agent::builder(model.clone())
        .name(name)
        .tool(wiped.tool(by))
        .build()
        .unwrap()
}

fn guarded(name: &str, model: &ScriptedModel, wiped: &Wiped) -> Agent {
    let by = Box::leak(name.to_owned().into_boxed_str());
    let agent = Agent::builder(model.clone())
        .name(name)
        .tool(wiped.tool(by));
    agent.on_tool(Approval::of_tools(["wipe"])).build().unwrap()
}

fn wipes() -> ScriptedModel {
    ScriptedModel::new([Turn::tool("wipe", json!("disk")), Turn::from_text("Wiped.")])
}

#[tokio::test]
async fn a_namesake_without_the_guard_does_not_run_the_call() {
    let wiped = Wiped::default();
    for side_by_side in [false, true] {
        let team = |first: &ScriptedModel, second: &ScriptedModel| {
            let team = if side_by_side {
                Agent::parallel("team")
            } else {
                Agent::sequential("team")
            };
            let members = [
                unguarded("first", first, &wiped),
                guarded("second", second, &wiped),
            ];
            team.agents(members).build().unwrap()
        };
        let (first, second) = (ScriptedModel::new([Turn::from_text("Hello.")]), wipes());
        let paused = team(&first, &second).run("?").await.unwrap();

        // The messages do not say whose call it is: it is not made.
        let alone = team(&first, &second)
            .run(paused.messages().clone())
            .await
            .unwrap_err();
        assert_eq!(alone.kind(), ErrorKind::InvalidRequest);
        assert!(alone.message().contains("`wipe`"), "{alone}");
        assert!(alone.message().contains("Checkpoint"), "{alone}");
        assert!(wiped.take().is_empty());

        let again = resume(&team(&first, &second), &paused, vec![]).await;
        assert_eq!(again.interrupts().len(), 1);
        assert!(wiped.take().is_empty());

        let done = resume(&team(&first, &second), &again, yes(&again)).await;
        assert_eq!(wiped.take(), ["second \"disk\""]);
        assert!(done.interrupts().is_empty(), "nobody is asked twice");
        [first, second].iter().for_each(ScriptedModel::assert_done);
    }
}

#[tokio::test]
async fn a_sub_agents_call_is_its_own_and_its_parents_call_its_parents() {
    let wiped = Wiped::default();
    let transfer = Turn::tool("transfer_to_agent", json!({ "agent_name": "billing" }));
    let desk = |model: &ScriptedModel, sub: &ScriptedModel| {
        let agent = Agent::builder(model.clone())
            .name("desk")
            .tool(wiped.tool("desk"));
        agent
            .sub_agent(guarded("billing", sub, &wiped))
            .build()
            .unwrap()
    };
    let (model, sub) = (ScriptedModel::new([transfer]), wipes());
    let paused = desk(&model, &sub).run("?").await.unwrap();
    let alone = desk(&model, &sub)
        .run(paused.messages().clone())
        .await
        .unwrap_err();
    assert_eq!(alone.kind(), ErrorKind::InvalidRequest);
    assert!(wiped.take().is_empty());
    resume(&desk(&model, &sub), &paused, yes(&paused)).await;
    assert_eq!(wiped.take(), ["billing \"disk\""]);

    // The other way round, with the tool guarded where the call was made.
    let (model, sub) = (wipes(), ScriptedModel::new([]));
    let agent = Agent::builder(model.clone())
        .name("desk")
        .tool(wiped.tool("desk"));
    let agent = agent.on_tool(Approval::of_tools(["wipe"]));
    let agent = agent
        .sub_agent(unguarded("billing", &sub, &wiped))
        .build()
        .unwrap();
    let paused = agent.run("?").await.unwrap();
    resume(&agent, &paused, yes(&paused)).await;
    assert_eq!(wiped.take(), ["desk \"disk\""]);
    model.assert_done();
}

#[tokio::test]
async fn after_the_users_next_words_messages_alone_do() {
    let wiped = Wiped::default();
    let first = ScriptedModel::new([Turn::from_text("Hello."), Turn::from_text("Hello again.")]);
    let second = ScriptedModel::new([Turn::tool("wipe", json!(1)), Turn::from_text("Never mind.")]);
    let members = [
        unguarded("first", &first, &wiped),
        guarded("second", &second, &wiped),
    ];
    let team = Agent::sequential("team").agents(members).build().unwrap();
    let paused = team.run("?").await.unwrap();

    let request = AgentRequest::conversation(paused.messages().clone()).with_message("Stop.");
    assert_eq!(team.run(request).await.unwrap().text(), "Never mind.");
    assert!(wiped.take().is_empty());
}

#[tokio::test]
async fn an_agent_continues_its_open_calls_from_the_messages_alone() {
    let wiped = Wiped::default();
    let model = wipes();
    let paused = guarded("agent", &model, &wiped).run("?").await.unwrap();
    let request = AgentRequest::conversation(paused.messages().clone());
    let again = guarded("agent", &model, &wiped)
        .run(request.with_resolutions(yes(&paused)))
        .await;
    let again = again.unwrap();
    assert!(
        wiped.take().is_empty(),
        "no question goes with the messages, so no answer does"
    );
    let done = resume(&guarded("agent", &model, &wiped), &again, yes(&again)).await;
    assert_eq!(
        (done.text(), wiped.take()),
        ("Wiped.".into(), vec!["agent \"disk\"".into()])
    );
}

/// A model whose provider names every call `call_0`.
fn reuses_ids(turns: impl IntoIterator<Item = (&'static str, Value)>) -> ScriptedModel {
    let calls = turns.into_iter().map(|(tool, arguments)| {
        let call = ToolCall::new("call_0", tool, arguments);
        let message = Message::new(Role::Assistant, [Part::ToolCall(call)]);
        Turn::response(ModelResponse::new(message))
    });
    ScriptedModel::new(calls.chain([Turn::from_text("Done.")]))
}

#[tokio::test]
async fn calls_of_one_id_are_approved_once_each() {
    let wiped = Wiped::default();
    let inner = reuses_ids([("wipe", json!(1)), ("wipe", json!(2))]);
    let ask = || ("worker", json!({ "request": "wipe" }));
    let boss = reuses_ids([ask(), ask()]);
    let agent = || {
        let worker = guarded("worker", &inner, &wiped).into_tool("Works.");
        Agent::builder(boss.clone())
            .name("boss")
            .tool(worker)
            .build()
            .unwrap()
    };
    // The second time the worker is asked it has nothing more to do.
    let mut paused = agent().run("?").await.unwrap();
    let mut asked = Vec::new();
    for number in 1..=2 {
        asked.push(paused.interrupts()[0].name.clone());
        paused = resume(&agent(), &paused, yes(&paused)).await;
        assert_eq!(wiped.take(), [format!("worker {number}")]);
        if number == 1 {
            assert_eq!(paused.interrupts().len(), 1);
        }
    }
    assert_eq!(asked, ["boss/m1.0/worker/m1.0", "boss/m1.0/worker/m2.0"]);
}

#[tokio::test]
async fn every_call_of_a_conversation_has_a_path_of_its_own_which_a_resume_gives_again() {
    let paths = Arc::new(Mutex::new(Vec::new()));
    let noted = paths.clone();
    let ask = Tool::function_with("ask", "Asks.", move |_: Value, call: ToolRequest| {
        let path = call.context().call_path();
        noted.lock().unwrap().push(path.clone());
        let answer = call.ask(Interrupt::new(path, "confirmation"));
        async move { answer.map(|_| "yes") }
    });
    let model = reuses_ids([("ask", json!(1)), ("ask", json!(2)), ("ask", json!(3))]);
    let agent = Agent::builder(model).tool(ask).build().unwrap();
    let mut response = agent.run("?").await.unwrap();
    while !response.interrupts().is_empty() {
        response = resume(&agent, &response, yes(&response)).await;
    }
    let paths = std::mem::take(&mut *paths.lock().unwrap());
    let [a, b, c] = ["agent/m1.0", "agent/m2.0", "agent/m3.0"];
    assert_eq!(paths, [a, a, b, b, c, c]);
}

type Setter = fn(AgentRequest, &RunContext) -> AgentRequest;

#[tokio::test]
async fn a_request_stays_in_its_run_whatever_is_set_on_it_in_whatever_order() {
    let setters: [Setter; 3] = [
        |request, context| request.with_context(context.clone()),
        |request, _| request.with_resolutions([Resolution::resolved("mine", 2)]),
        |request, _| request.with_cancellation(CancellationToken::new()),
    ];
    for order in [
        [0, 1, 2],
        [0, 2, 1],
        [1, 0, 2],
        [1, 2, 0],
        [2, 0, 1],
        [2, 1, 0],
    ] {
        let inner = Agent::builder(ScriptedModel::new([Turn::from_text("in")]))
            .name("inner")
            .on_agent(before_agent(|request| {
                let context = request.context();
                assert_eq!((context.run_id(), context.path()), ("run", "outer/inner"));
                assert_eq!(context.state().get("session"), Some(json!(7)));
                assert!(context.values().get::<u32>("value").unwrap().is_some());
                assert!(
                    context.resolution("mine").is_some() && context.resolution("run's").is_some()
                );
            }))
            .build()
            .unwrap();
        let tool = Tool::function_with("ask", "Asks.", move |_: Value, call: ToolRequest| {
            let inner = inner.clone();
            async move {
                call.context().values().set("value", 1_u32);
                let request = order
                    .into_iter()
                    .fold(AgentRequest::new("?"), |request, setter| {
                        setters[setter](request, call.context())
                    });
                Ok::<_, Error>(inner.run(request).await?.text())
            }
        });
        let model = ScriptedModel::new([Turn::tool("ask", json!({})), Turn::from_text("out")]);
        let outer = Agent::builder(model.clone())
            .name("outer")
            .tool(tool)
            .build()
            .unwrap();
        let request = AgentRequest::new("?")
            .with_run_id("run")
            .with_resolutions([Resolution::resolved("run's", 1)])
            .with_state(State::from_iter([("session".to_owned(), json!(7))]));
        let response = outer.run(request).await.unwrap();
        let answer = response.messages()[2].tool_results().next().unwrap().text();
        assert_eq!(answer, "in", "{order:?}");
    }
}

#[tokio::test]
async fn settings_of_a_whole_run_are_refused_inside_another_and_a_token_ends_its_part_alone() {
    let agent = Agent::builder(ScriptedModel::always(Turn::from_text("Hello.")))
        .build()
        .unwrap();
    let context = RunContext::default();
    let whole: [Setter; 2] = [
        |request, _| request.with_run_id("mine"),
        |request, _| request.with_state(State::default()),
    ];
    for set in whole {
        let before = set(AgentRequest::new("?"), &context).with_context(context.clone());
        let after = set(
            AgentRequest::new("?").with_context(context.clone()),
            &context,
        );
        for request in [before, after] {
            let error = agent.run(request).await.unwrap_err();
            assert_eq!(error.kind(), ErrorKind::InvalidRequest);
            assert!(error.message().contains(context.run_id()), "{error}");
        }
    }

    let token = CancellationToken::new();
    token.cancel();
    let request = AgentRequest::new("?")
        .with_context(context.clone())
        .with_cancellation(token);
    assert_eq!(
        agent.run(request).await.unwrap_err().kind(),
        ErrorKind::Cancelled
    );
    assert!(!context.cancellation().is_cancelled());
    assert!(
        agent
            .run(AgentRequest::new("?").with_context(context))
            .await
            .is_ok()
    );
}

#[tokio::test]
async fn values_put_into_a_run_before_its_settings_stay() {
    let request = AgentRequest::new("?");
    request.context().values().set("value", 1_u32);
    request.context().state().set("key", 1);
    let id = request.context().run_id().to_owned();
    let request = request
        .with_resolutions([Resolution::resolved("q", 1)])
        .with_cancellation(CancellationToken::new());
    let context = request.context();
    assert!(context.values().get::<u32>("value").unwrap().is_some());
    assert_eq!(
        (context.state().get("key"), context.run_id()),
        (Some(json!(1)), &*id)
    );
    let request = request.with_run_id("named").with_state(State::default());
    let context = request.context();
    assert!(context.values().get::<u32>("value").unwrap().is_some());
    assert_eq!(
        (context.state().get("key"), context.run_id()),
        (None, "named")
    );
    assert!(context.resolution("q").is_some());
}

#[tokio::test]
async fn looking_at_a_request_before_it_joins_a_run_gives_it_nothing_of_its_own() {
    let agent = Agent::builder(ScriptedModel::always(Turn::from_text("Hello.")))
        .build()
        .unwrap();
    let context = RunContext::default();
    let request = AgentRequest::new("?");
    request.context();
    let request = request.with_cancellation(CancellationToken::new());
    request.context();
    let request = request.with_context(context.clone());
    assert_eq!(request.context().run_id(), context.run_id());
    agent.run(request).await.unwrap();
}

#[test]
fn clones_of_a_request_that_is_only_printed_are_runs_of_their_own() {
    let template = AgentRequest::new("?");
    assert!(format!("{template:?}").contains("a new run"));
    let run = || template.clone().with_state(State::default());
    assert_ne!(run().context().run_id(), run().context().run_id());
}

#[tokio::test]
async fn another_agent_does_not_go_on_with_the_calls_of_a_checkpoint() {
    let wiped = Wiped::default();
    let paused = guarded("careful", &wipes(), &wiped).run("?").await.unwrap();
    let other = unguarded(
        "careless",
        &ScriptedModel::new([Turn::from_text("Stopped.")]),
        &wiped,
    );

    let error = other
        .run(AgentRequest::resume(paused.checkpoint()))
        .await
        .unwrap_err();
    assert_eq!(error.kind(), ErrorKind::InvalidRequest);
    assert!(error.message().contains("careful"), "{error}");
    let request = AgentRequest::resume(paused.checkpoint()).with_message("Stop.");
    assert_eq!(other.run(request).await.unwrap().text(), "Stopped.");
    assert!(wiped.take().is_empty());
}

/// As another version of the program, in which the tool has another name, or nobody asks.
#[tokio::test]
async fn a_call_that_waits_stays_open_for_an_agent_without_its_tool_or_its_guard() {
    let wiped = Wiped::default();
    let says = ScriptedModel::always(Turn::from_text("Wiped."));
    let builder = || Agent::builder(says.clone()).name("careful");
    let erase = Tool::function("erase", "Erases.", |_: Value| "erased");
    let renamed = builder().tool(erase).build().unwrap();
    let without_guard = unguarded("careful", &says, &wiped);
    let inside = |agent: Agent| {
        let boss = ScriptedModel::new([
            Turn::tool("careful", json!({ "request": "Wipe." })),
            Turn::from_text("Done."),
        ]);
        Agent::builder(boss)
            .tool(agent.into_tool("Is careful."))
            .build()
            .unwrap()
    };
    let alone = guarded("careful", &wipes(), &wiped);
    let nested = inside(guarded("careful", &wipes(), &wiped));

    for right in [alone, nested] {
        let paused = right.run("?").await.unwrap();
        let answered = |checkpoint: Checkpoint| {
            AgentRequest::resume(checkpoint).with_resolutions(yes(&paused))
        };
        let is_nested = right.name() != "careful";
        for other in [renamed.clone(), without_guard.clone()] {
            let other = if is_nested { inside(other) } else { other };
            let error = other.run(answered(paused.checkpoint())).await.unwrap_err();
            assert_eq!(error.kind(), ErrorKind::InvalidRequest);
            assert!(error.to_string().contains("the call stays open"), "{error}");
            // What the run has left can be resumed like what it began with.
            let left = error.checkpoint().unwrap();
            assert_eq!(left.messages, paused.checkpoint().messages);
            assert!(wiped.take().is_empty());
        }
        let done = right.run(answered(paused.checkpoint())).await.unwrap();
        assert!(done.interrupts().is_empty());
        assert_eq!(wiped.take(), ["careful \"disk\""]);
    }
}

#[tokio::test]
async fn a_team_side_by_side_that_is_dropped_at_any_event_leaves_no_call_to_another_member() {
    for events in 0.. {
        let wiped = Wiped::default();
        let member = |name: &str| {
            let turns = [Turn::tool("wipe", json!("disk")), Turn::from_text("Wiped.")];
            // One that has answered may be asked again.
            guarded(
                name,
                &ScriptedModel::new(turns.into_iter().chain([Turn::from_text("Again.")])),
                &wiped,
            )
        };
        let idle = ScriptedModel::always(Turn::from_text("Hello."));
        let fan = Agent::parallel("fan").agents(["a", "b", "c", "d"].map(member));
        let fan = fan.agent(unguarded("idle", &idle, &wiped)).build().unwrap();
        let team = Agent::sequential("team").agent(fan).build().unwrap();
        let paused = team.run("?").await.unwrap();

        let request = AgentRequest::resume(paused.checkpoint()).with_resolutions(yes(&paused));
        let mut run = team.stream(request);
        let seen = run.by_ref().take(events).count().await;
        let checkpoint = run.checkpoint();
        drop(run);
        let request = AgentRequest::resume(checkpoint).with_resolutions(yes(&paused));
        let done = team.run(request).await.unwrap();
        let mut wiped = wiped.take();
        wiped.sort();
        let each = ["a", "b", "c", "d"].map(|by| format!("{by} \"disk\""));
        assert_eq!(wiped, each, "dropped after {events} events");
        assert!(
            done.interrupts().is_empty(),
            "dropped after {events} events"
        );
        if seen < events {
            break;
        }
    }
}

#[tokio::test]
async fn calls_whose_ids_look_like_parts_of_a_name_have_paths_of_their_own() {
    let paths = Arc::new(Mutex::new(Vec::new()));
    let noted = paths.clone();
    let look = Tool::function_with("look", "Looks.", move |_: Value, call: ToolRequest| {
        noted.lock().unwrap().push(call.context().call_path());
    });
    let ids = ["a", "a/b", "a%2Fb", "a#2", "a%232", "a b", "a%20b", "a%b"];
    let calls = ids.map(|id| Part::ToolCall(ToolCall::new(id, "look", json!({}))));
    let message = ModelResponse::new(Message::new(Role::Assistant, calls));
    let model = ScriptedModel::new([Turn::response(message), Turn::from_text("Done.")]);
    Agent::builder(model)
        .tool(look)
        .build()
        .unwrap()
        .run("?")
        .await
        .unwrap();
    let mut paths = std::mem::take(&mut *paths.lock().unwrap());
    paths.sort();
    paths.dedup();
    assert_eq!(paths.len(), ids.len(), "{paths:?}");
}

/// Asks about every call, and allows it once there is any answer.
fn asks() -> impl Callback<ToolRequest> {
    let asks = before_tool(|request| {
        request
            .ask(Interrupt::new("sure", "confirmation"))
            .map(drop)
    });
    asks.named("asks").guard()
}

#[tokio::test]
async fn a_call_that_a_guard_holds_is_not_made_where_that_guard_does_not_stand() {
    let guards: [fn(AgentBuilder) -> AgentBuilder; 3] = [
        |agent| agent.on_tool(Approval::of_tools(["wipe"])),
        |agent| agent.on_tool(asks()),
        |agent| agent.global_callbacks(Bundle::new().on_tool(asks())),
    ];
    for guard in guards {
        let wiped = Wiped::default();
        // Of one name, as two agents are that were given none.
        let agent = |turn: Turn| {
            Agent::builder(ScriptedModel::new([turn, Turn::from_text("Done.")]))
                .tool(wiped.tool("agent"))
        };
        let careful = guard(agent(Turn::tool("wipe", json!("disk"))))
            .build()
            .unwrap();
        let paused = careful.run("?").await.unwrap();
        let saved = serde_json::to_string(&paused.checkpoint()).unwrap();
        let again = || AgentRequest::resume(serde_json::from_str(&saved).unwrap());

        let careless = agent(Turn::from_text("It was not wiped.")).build().unwrap();
        let refused = careless.run(again().with_resolutions(yes(&paused))).await;
        let refused = refused.unwrap_err();
        assert_eq!(refused.kind(), ErrorKind::InvalidRequest);
        assert!(wiped.take().is_empty(), "{refused}");

        // A guard of the same kind that is for other calls does not let it through either.
        let lax = agent(Turn::from_text("?"))
            .on_tool(Approval::when(|_| false))
            .build()
            .unwrap();
        let result = lax.run(again()).await;
        assert!(wiped.take().is_empty(), "{result:?}");

        let response = careful
            .run(again().with_resolutions(yes(&paused)))
            .await
            .unwrap();
        assert_eq!((response.text().as_str(), wiped.take().len()), ("Done.", 1));
    }
}
