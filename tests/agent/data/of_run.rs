//! `with_extension`: what the caller gives a run, read by type everywhere in it.

use futures::StreamExt;
use serde_json::{Value, json};
use tower::ServiceBuilder;
use tower_agent::callback::{
    Bundle, after_model, before_agent, before_model, before_tool, on_tool_error, wrap_model,
};
use tower_agent::context::ConversationId;
use tower_agent::message::ToolCall;
use tower_agent::{
    Agent, AgentRequest, Checkpoint, Error, ErrorKind, Interrupt, ModelRequest, ModelResponse,
    Recovery, Request, Resolution, RunContext, RunStream, Tool, ToolRequest, ToolResponse,
};
use tower_agent_test::{ScriptedModel, Turn};

use test_support::log::Log;

#[derive(Clone, Debug, PartialEq)]
struct User(&'static str);

fn user(context: &RunContext) -> String {
    context
        .extension::<User>()
        .map_or_else(|error| error.to_string(), |user| user.0.to_owned())
}

fn whoami() -> Tool {
    Tool::function_with("whoami", "Tells.", |_: Value, call: ToolRequest| {
        user(call.context())
    })
}

fn asks() -> ScriptedModel {
    ScriptedModel::always(Turn::function(|request: &ModelRequest| {
        let last = request.messages().last().unwrap();
        let result = last.tool_results().next().map(|result| result.text());
        Ok(match result {
            Some(text) => ModelResponse::from_text(text),
            None => ModelResponse::from_tool_calls([ToolCall::new("c", "whoami", json!({}))]),
        })
    }))
}

#[tokio::test]
async fn a_value_reaches_tools_sub_agents_layers_and_callbacks_of_every_kind() {
    let seen = Log::default();
    let note = |place: &'static str| {
        let seen = seen.clone();
        move |context: &RunContext| seen.push(format!("{place} {}", user(context)))
    };
    let (agent, model, after, tool, wrap, global, of_run) = (
        note("agent"),
        note("model"),
        note("after"),
        note("tool"),
        note("wrap"),
        note("global"),
        note("run"),
    );
    let inner = Agent::builder(asks())
        .name("inner")
        .tool(whoami())
        .on_tool(before_tool(move |call| tool(call.context())))
        .build()
        .unwrap();
    let lead = Agent::builder(ScriptedModel::new([
        Turn::tool("inner", json!({ "request": "Who?" })),
        Turn::from_text("done"),
    ]))
    .tool(inner.into_tool("Asks."))
    .global_callbacks(
        Bundle::new().on_agent(before_agent(move |request| global(request.context()))),
    )
    .on_agent(before_agent(move |request| agent(request.context())))
    .on_model(before_model(move |request| model(request.context())))
    .on_model(after_model(move |request, _| after(request.context())))
    .model_layer(wrap_model(move |request: ModelRequest, mut next| {
        wrap(request.context());
        async move { next.run(request).await }
    }))
    .build()
    .unwrap();
    let mine = Bundle::new().on_tool(before_tool(move |call| of_run(call.context())));
    let request = AgentRequest::new("Who?")
        .with_extension(User("Ada"))
        .with_callbacks(mine);
    let response = lead.run(request).await.unwrap();
    let result = response
        .messages()
        .iter()
        .flat_map(|message| message.tool_results())
        .next()
        .unwrap();
    assert_eq!(result.text(), "Ada");
    let seen = seen.take();
    for place in ["agent", "model", "after", "tool", "wrap", "global", "run"] {
        assert!(seen.contains(&format!("{place} Ada")), "{place}: {seen:?}");
    }
    assert!(seen.iter().all(|line| line.ends_with(" Ada")), "{seen:?}");
}

#[tokio::test]
async fn a_value_that_is_absent_is_an_error_that_names_its_type() {
    let agent = Agent::builder(asks()).tool(whoami()).build().unwrap();
    let text = agent.run("Who?").await.unwrap().text();
    assert!(text.contains("of_run::User"), "{text}");
    assert!(text.contains("with_extension"), "{text}");
    let error = RunContext::default().extension::<User>().unwrap_err();
    assert_eq!(error.kind(), ErrorKind::InvalidRequest);
}

#[tokio::test]
async fn two_users_at_once_see_each_their_own() {
    let agent = Agent::builder(asks()).tool(whoami()).build().unwrap();
    let run = |name| agent.run(AgentRequest::new("Who?").with_extension(User(name)));
    let (ada, bob) = futures::join!(run("Ada"), run("bob"));
    assert_eq!(
        (ada.unwrap().text(), bob.unwrap().text()),
        ("Ada".into(), "bob".into())
    );
}

/// A layer around the agent adds it, to a run that is streamed and to one that is not.
#[tokio::test]
async fn a_layer_around_the_agent_adds_a_value_to_the_run_that_is_read() {
    let agent = Agent::builder(asks()).tool(whoami()).build().unwrap();
    let agent = ServiceBuilder::new()
        .map_request(|request: AgentRequest| {
            // Read before, as a layer that logs does.
            assert!(request.context().extensions().is_empty());
            request.with_extension(User("Ada"))
        })
        .service(agent);
    let mut run = RunStream::new(agent, "Who?".into());
    let events: Vec<_> = run.by_ref().collect().await;
    assert!(events.len() > 5);
    assert_eq!(run.checkpoint().messages.len(), 4);
    assert_eq!(run.response().await.unwrap().text(), "Ada");
}

/// The values are not stored: whoever resumes the run says again whom it is for.
#[tokio::test]
async fn a_resumed_run_has_what_its_own_request_gives() {
    let asks_first = before_tool(|call| call.ask(Interrupt::new("sure", "confirmation")).map(drop));
    let agent = Agent::builder(asks())
        .tool(whoami())
        .on_tool(asks_first)
        .build()
        .unwrap();
    let request = AgentRequest::new("Who?").with_extension(User("Ada"));
    let paused = agent.run(request).await.unwrap();
    let stored = serde_json::to_string(&paused.checkpoint()).unwrap();
    // In capitals: the ids that chance makes are of small letters.
    assert!(!stored.contains("Ada"));
    let answers = || {
        let interrupt = &paused.interrupts()[0];
        [Resolution::resolved(&*interrupt.id, true)]
    };
    for (given, read) in [(Some(User("Ada")), "Ada"), (None, "of_run::User")] {
        let checkpoint: Checkpoint = serde_json::from_str(&stored).unwrap();
        let mut request = AgentRequest::resume(checkpoint).with_resolutions(answers());
        if let Some(user) = given {
            request = request.with_extension(user);
        }
        let text = agent.run(request).await.unwrap().text();
        assert!(text.contains(read), "{text}");
    }
}

#[tokio::test]
async fn a_value_given_inside_a_run_is_for_that_part_alone() {
    let inner = Agent::builder(asks()).tool(whoami()).build().unwrap();
    let delegate = Tool::function_with("whoami", "Tells.", move |_: Value, call: ToolRequest| {
        let inner = inner.clone();
        async move {
            let request = AgentRequest::new("Who?")
                .with_context(call.context().clone())
                .with_extension(User("bob"));
            let inside = inner.run(request).await?.text();
            Ok::<_, Error>(format!("{inside} in {}", user(call.context())))
        }
    });
    let agent = Agent::builder(asks()).tool(delegate).build().unwrap();
    let request = AgentRequest::new("Who?")
        .with_extension(User("Ada"))
        .with_extension(ConversationId::new("t"));
    assert_eq!(agent.run(request).await.unwrap().text(), "bob in Ada");
}

#[tokio::test]
async fn the_second_value_of_a_type_replaces_the_first_and_others_stay() {
    let request = AgentRequest::new("?")
        .with_extension(User("Ada"))
        .with_extension(ConversationId::new("t"));
    assert_eq!(user(request.context()), "Ada");
    let changed = request.clone().with_extension(User("bob")).with_run_id("r");
    assert_eq!(user(changed.context()), "bob");
    assert_eq!(
        changed
            .context()
            .extension::<ConversationId>()
            .unwrap()
            .as_str(),
        "t"
    );
    assert_eq!(user(request.context()), "Ada");
}

#[tokio::test]
async fn a_retry_of_a_call_reads_the_same_value() {
    let tries = Log::default();
    let noted = tries.clone();
    let fails_once = Tool::function_with("whoami", "Tells.", move |_: Value, call: ToolRequest| {
        noted.push(user(call.context()));
        if noted.all().len() == 1 {
            return Err(Error::from("once"));
        }
        Ok(user(call.context()))
    });
    let agent = Agent::builder(asks())
        .tool(fails_once)
        .on_tool(on_tool_error(|_, _| Recovery::<ToolResponse>::Retry))
        .build()
        .unwrap();
    let request = AgentRequest::new("Who?").with_extension(User("Ada"));
    assert_eq!(agent.run(request).await.unwrap().text(), "Ada");
    assert_eq!(tries.take(), ["Ada", "Ada"]);
}
