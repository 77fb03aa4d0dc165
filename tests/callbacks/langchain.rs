//! What users of LangChain's middleware expect. The originals beside it are in `vendor-tests`.

use serde_json::json;
use tower_agent::callback::{
    after_agent, after_model, after_tool, before_agent, before_model, before_tool, on_model_error,
    wrap_model, wrap_tool,
};
use tower_agent::compat::{CallbackSemantics, Semantics};
use tower_agent::stream::EventKind;
use tower_agent::{
    Action, Agent, AgentBuilder, EndReason, Error, ErrorKind, Message, ModelResponse, Recovery,
    Role, Tool,
};
use tower_agent_test::{ScriptedModel, Turn};

use futures::StreamExt;
use test_support::trace::Trace;

/// Adds a middleware that writes all of its hooks, the wraps in between and not at the end.
fn middleware(agent: AgentBuilder, name: &'static str, trace: &Trace) -> AgentBuilder {
    let write = |word: &'static str| {
        let trace = trace.clone();
        move || trace.push(format!("{name}.{word}"))
    };
    let [ba, bm, bt] = ["agent>", "model>", "tool>"].map(write);
    let [aa, am, at] = ["<agent", "<model", "<tool"].map(write);
    let [wm, mw, wt, tw] = ["wm>", "<wm", "wt>", "<wt"].map(write);
    agent
        .on_agent(before_agent(move |_| ba()))
        .on_agent(after_agent(move |_, _| aa()))
        .model_layer(wrap_model(move |request, mut next| {
            wm();
            let mw = mw.clone();
            async move {
                let response = next.run(request).await;
                mw();
                response
            }
        }))
        .on_model(before_model(move |_| bm()))
        .on_model(after_model(move |_, _| am()))
        .tool_layer(wrap_tool(move |request, mut next| {
            wt();
            let tw = tw.clone();
            async move {
                let response = next.run(request).await;
                tw();
                response
            }
        }))
        .on_tool(before_tool(move |_| bt()))
        .on_tool(after_tool(move |_, _| at()))
}

fn agent(model: ScriptedModel) -> AgentBuilder {
    Agent::builder(model)
        .semantics(Semantics::langchain())
        .tool(Tool::function("echo", "Says it.", |text: String| text))
}

fn said(model: &[&str]) -> ScriptedModel {
    ScriptedModel::new(model.iter().map(|text| Turn::from_text(*text)))
}

#[tokio::test]
async fn after_is_reversed_and_wraps_are_inside_wherever_they_were_registered() {
    let trace = Trace::default();
    let model = ScriptedModel::new([Turn::tool("echo", json!("x")), Turn::from_text("yo")]);
    let mut built = agent(model);
    for name in ["A", "B"] {
        built = middleware(built, name, &trace);
    }
    let built = built.build().unwrap();
    assert_eq!(built.run("hi").await.unwrap().text(), "yo");
    let model = "A.model> B.model> A.wm> B.wm> B.<wm A.<wm B.<model A.<model";
    let tool = "A.tool> B.tool> A.wt> B.wt> B.<wt A.<wt B.<tool A.<tool";
    assert_eq!(
        trace.take(),
        format!("A.agent> B.agent> {model} {tool} {model} B.<agent A.<agent")
    );
    // What is shown is the order in which they act.
    let shown = built.explain().to_string();
    let wrap = shown.find("wrap_model").unwrap();
    assert!(shown.rfind("after_model").unwrap() < wrap, "{shown}");
}

/// An error passes from the inside out, and a guard that was registered first sees the last word.
#[tokio::test]
async fn errors_and_replacements_pass_from_the_last_to_the_first() {
    let broken = Error::new(ErrorKind::Provider, "down");
    let built = agent(ScriptedModel::new([Turn::error(broken)]))
        .on_model(on_model_error(|_, error| {
            Recovery::Fallback(ModelResponse::from_text(format!(
                "A saw {}",
                error.message()
            )))
        }))
        .on_model(on_model_error(|_, error| {
            let message = format!("B saw {}", error.message());
            Recovery::Fail(Error::new(ErrorKind::Provider, message))
        }))
        .on_model(after_model(|_, response| {
            Action::Respond(ModelResponse::from_text(format!("{}!", response.text())))
        }))
        .build()
        .unwrap();
    assert_eq!(built.run("hi").await.unwrap().text(), "A saw B saw down!");
}

#[tokio::test]
async fn a_failed_tool_ends_the_run_and_no_after_agent_runs() {
    let trace = Trace::default();
    let fail = Tool::function("fail", "Fails.", |_: String| {
        Err::<String, _>(Error::new(ErrorKind::Tool, "boom"))
    });
    let built = agent(ScriptedModel::new([Turn::tool("fail", json!("x"))])).tool(fail);
    let built = middleware(built, "A", &trace).build().unwrap();
    let error = built.run("hi").await.unwrap_err();
    assert!(error.message().contains("boom"), "{error}");
    let seen = trace.take();
    assert!(seen.ends_with("A.tool> A.wt> A.<wt"), "{seen}");
}

/// `jump_to` "end".
#[tokio::test]
async fn an_end_of_the_invocation_runs_every_after_agent() {
    let trace = Trace::default();
    let mut built = agent(said(&["unsaid"]));
    built = middleware(built, "A", &trace)
        .on_model(before_model(|_| Err::<(), _>(Error::end_invocation())));
    let built = middleware(built, "B", &trace)
        .on_agent(after_agent(|_, response| {
            assert_eq!(response.new_messages().len(), 0);
            Ok(())
        }))
        .build()
        .unwrap();
    let response = built.run("hi").await.unwrap();
    assert_eq!(trace.take(), "A.agent> B.agent> A.model> B.<agent A.<agent");
    assert_eq!(response.end_reason(), &EndReason::EndedByCallback);

    // The callbacks alone decide, so the rule is one of the band.
    let mut rules = CallbackSemantics::langchain();
    rules.agent.after_end = false;
    let trace = Trace::default();
    let built = middleware(agent(said(&["unsaid"])).semantics(rules), "A", &trace)
        .on_model(before_model(|_| Err::<(), _>(Error::end_invocation())))
        .build()
        .unwrap();
    built.run("hi").await.unwrap();
    assert_eq!(trace.take(), "A.agent> A.model>");
}

/// `jump_to` "model", in every semantics.
#[tokio::test]
async fn a_response_that_asks_again_is_followed_by_its_message_and_another_call() {
    for semantics in [Semantics::default(), Semantics::langchain()] {
        let model = ScriptedModel::new([
            Turn::tool("echo", json!("x")),
            Turn::from_text("Oslo, I think."),
            Turn::from_text("Oslo."),
        ]);
        let built = agent(model.clone())
            .semantics(semantics)
            .on_model(after_model(|_, response| {
                // A replacement by a later one does not undo it.
                match response.text() {
                    text if text.is_empty() => Action::Continue,
                    text => Action::Respond(ModelResponse::from_text(text.to_lowercase())),
                }
            }))
            .on_model(after_model(|request, response| {
                match request.messages().len() {
                    1 | 2 => Action::Respond(response.clone().then_ask(Message::user("Sure?"))),
                    _ => Action::Continue,
                }
            }))
            .build()
            .unwrap();
        let mut run = built.stream("Capital of Norway?");
        let mut rejected = 0;
        while let Some(event) = run.next().await {
            let is_rejected = matches!(event.kind, EventKind::AnswerRejected { .. });
            rejected += usize::from(is_rejected);
        }
        let response = run.response().await.unwrap();
        assert_eq!(rejected, 2);
        let texts: Vec<_> = response.new_messages().map(Message::text).collect();
        // The call of the tool was dropped, and nothing is left of the first response.
        assert_eq!(texts, ["Sure?", "oslo, i think.", "Sure?", "oslo."]);
        assert!(
            response
                .new_messages()
                .all(|message| message.role() != Role::Tool)
        );
        assert_eq!(model.requests().len(), 3);
        // A later run goes on from it.
        let ids: Vec<_> = response.new_messages().filter_map(Message::id).collect();
        assert_eq!(ids.len(), 4);
    }
}

#[tokio::test]
async fn asking_again_is_bounded_by_the_limit_of_model_calls() {
    let model = said(&["no", "no", "no", "not asked"]);
    let built = agent(model.clone())
        .max_iterations(3)
        .on_model(after_model(|_, response| {
            Action::Respond(response.clone().then_ask(Message::user("Again.")))
        }))
        .build()
        .unwrap();
    let error = built.run("?").await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::MaxIterations);
    assert_eq!(model.requests().len(), 3);
}

#[tokio::test]
async fn a_stored_response_still_asks_again() {
    let asks = ModelResponse::from_text("Oslo?").then_ask(Message::user("Sure?"));
    let stored = serde_json::to_string(&asks).unwrap();
    let read: ModelResponse = serde_json::from_str(&stored).unwrap();
    assert!(read.asks_again());
    assert_eq!(read, asks);
    assert_ne!(read, ModelResponse::from_text("Oslo?"));
}

/// Rules that an agent inherits come too late for its layers, but not for its callbacks.
#[tokio::test]
async fn a_sub_agent_inherits_the_order_of_callbacks_alone() {
    let trace = Trace::default();
    let inner = ScriptedModel::new([Turn::from_text("inside")]);
    let inner = Agent::builder(inner).name("inner").description("Works.");
    let inner = ["A", "B"].into_iter().fold(inner, |inner, name| {
        let [before, after] = [">", "<"].map(|sign| {
            let trace = trace.clone();
            move || trace.push(format!("{name}{sign}"))
        });
        inner
            .on_model(before_model(move |_| before()))
            .on_model(after_model(move |_, _| after()))
    });
    let inner = inner.build().unwrap();
    let model = ScriptedModel::new([
        Turn::tool("inner", json!({ "request": "go" })),
        Turn::from_text("done"),
    ]);
    let outer = agent(model)
        .tool(inner.into_tool("Works."))
        .build()
        .unwrap();
    assert_eq!(outer.run("hi").await.unwrap().text(), "done");
    assert_eq!(trace.take(), "A> B> B< A<");
}
