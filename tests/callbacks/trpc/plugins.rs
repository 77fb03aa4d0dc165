//! Callbacks for every agent of a tree, or for one run.

use serde_json::{Value, json};
use tower_agent::callback::{Bundle, after_model, after_tool, before_model, before_tool};
use tower_agent::compat::Hooks;
use tower_agent::{
    Action, Agent, AgentRequest, Callback, Error, Message, ModelRequest, ModelResponse, Part,
    Recovery, Request, Result, Tool, ToolRequest, ToolResponse,
};
use tower_agent_test::{ScriptedModel, Turn};

use super::{act, acts_once, agent, texts, told, with_options};
use test_support::trace::Trace;

/// Writes `name>` before a call and `<name` after it.
#[derive(Clone)]
struct Mark(&'static str, Trace);

impl<R: Request> Callback<R> for Mark {
    async fn before(&self, _: &mut R) -> Result<Action<R::Response>> {
        self.1.push(format!("{}:{}>", R::CALL, self.0));
        Ok(Action::Continue)
    }

    async fn after(&self, _: &R, _: &R::Response) -> Result<Action<R::Response>> {
        self.1.push(format!("<{}:{}", R::CALL, self.0));
        Ok(Action::Continue)
    }
}

fn bundle(name: &'static str, trace: &Trace) -> Bundle {
    let mark = Mark(name, trace.clone());
    Bundle::new()
        .on_agent(mark.clone())
        .on_model(mark.clone())
        .on_tool(mark)
}

/// Returns the lines of one kind of call.
fn of(trace: &str, call: &str) -> String {
    let words = trace.split(' ').filter(|word| word.contains(call));
    words
        .map(|word| word.replace(&format!("{call}:"), ""))
        .collect::<Vec<_>>()
        .join(" ")
}

#[tokio::test]
async fn plugins_given_first_to_an_agent_act_first_in_every_hook_as_one_chain() {
    let trace = Trace::default();
    let agent = agent(acts_once())
        .callbacks(bundle("first", &trace))
        .callbacks(bundle("second", &trace))
        .callbacks(bundle("own", &trace))
        .tool(act())
        .build()
        .unwrap();

    agent.run("?").await.unwrap();

    let once = "first> second> own> <first <second <own";
    let trace = trace.take();
    assert_eq!(of(&trace, "agent"), once);
    assert_eq!(of(&trace, "tool"), once);
    assert_eq!(of(&trace, "model"), format!("{once} {once}"));
}

#[tokio::test]
async fn global_plugins_come_first_in_every_phase_and_stand_around_agents_alone() {
    let trace = Trace::default();
    let agent = agent(acts_once())
        .global_callbacks(bundle("g1", &trace))
        .global_callbacks(bundle("g2", &trace))
        .callbacks(bundle("own", &trace))
        .tool(act())
        .build()
        .unwrap();

    agent
        .run(AgentRequest::new("?").with_callbacks(bundle("run", &trace)))
        .await
        .unwrap();

    let trace = trace.take();
    // Callbacks of the run stand inside.
    let around = "g1> g2> own> run> <run <own <g1 <g2";
    let first = "g1> g2> own> run> <run <g1 <g2 <own";
    assert_eq!(of(&trace, "agent"), around);
    assert_eq!(of(&trace, "tool"), first);
    assert_eq!(of(&trace, "model"), format!("{first} {first}"));
}

#[tokio::test]
async fn global_plugins_reach_the_agents_below() {
    let trace = Trace::default();
    let inner = agent(ScriptedModel::new([Turn::from_text("42")]))
        .name("inner")
        .build()
        .unwrap();
    let delegate = Tool::function_with("act", "", move |_: Value, request: ToolRequest| {
        let run = inner.run(AgentRequest::new("?").with_context(request.context().clone()));
        async move { run.await.map(|response| response.text()) }
    });
    let outer = agent(acts_once())
        .tool(delegate)
        .global_callbacks(bundle("g", &trace))
        .build()
        .unwrap();

    outer.run("?").await.unwrap();

    assert_eq!(
        trace.take(),
        "agent:g> model:g> <model:g tool:g> agent:g> model:g> <model:g <agent:g <tool:g \
         model:g> <model:g <agent:g"
    );
}

#[tokio::test]
async fn a_plugin_that_answers_before_the_call_keeps_the_agents_own_callbacks_out() {
    let trace = Trace::default();
    let model = ScriptedModel::new([]);
    let pong = Bundle::new()
        .on_model(before_model(|_| {
            Action::Respond(ModelResponse::from_text("pong"))
        }))
        .on_model(after_model(|_, response| {
            Action::Respond(ModelResponse::from_text(format!(
                "{}!",
                response.message().text()
            )))
        }));
    let agent = agent(model.clone())
        .global_callbacks(pong)
        .on_model(Mark("own", trace.clone()))
        .build()
        .unwrap();

    assert_eq!(agent.run("?").await.unwrap().text(), "pong!");
    model.assert_done();
    assert_eq!(trace.take(), "");
}

#[tokio::test]
async fn an_error_of_a_plugin_keeps_the_agents_own_callbacks_and_the_call_out() {
    let trace = Trace::default();
    let no = before_tool(|_| Err::<(), _>(Error::from("no"))).named("policy");
    let agent = agent(acts_once())
        .tool(act())
        .global_callbacks(Bundle::new().on_tool(no))
        .on_tool(Mark("own", trace.clone()))
        .build()
        .unwrap();

    let response = agent.run("?").await.unwrap();

    assert_eq!(texts(&told(&response)), ["callback failed: no"]);
    assert_eq!(trace.take(), "");
}

#[tokio::test]
async fn a_plugin_that_only_looks_keeps_no_other_from_looking() {
    let trace = Trace::default();
    let agent = agent(acts_once())
        .tool(act())
        .global_callbacks(Bundle::new().on_tool(before_tool(|_| ())))
        .callbacks(Bundle::new().on_tool(after_tool(|_, _| ())))
        .on_tool(Mark("own", trace.clone()))
        .build()
        .unwrap();

    let request = AgentRequest::new("?").with_callbacks(bundle("run", &trace));
    agent.run(request).await.unwrap();

    assert_eq!(of(&trace.take(), "tool"), "own> run> <run <own");
}

#[tokio::test]
async fn the_agents_own_callbacks_do_not_run_for_a_response_of_a_plugin() {
    let adds = |more: &'static str| {
        after_tool(move |_, response| {
            let text = response.value().as_str().unwrap_or("result");
            Action::Respond(ToolResponse::new(format!("{text} {more}")))
        })
    };
    let agent = agent(acts_once())
        .tool(act())
        .global_callbacks(Bundle::new().on_tool(adds("plugin")))
        .on_tool(adds("own"))
        .build()
        .unwrap();

    assert_eq!(
        texts(&told(&agent.run("?").await.unwrap())),
        ["result plugin"]
    );
}

#[tokio::test]
async fn the_agents_own_callbacks_find_the_data_of_a_plugin_in_the_request() {
    #[derive(Debug, PartialEq)]
    struct Span(u32);

    let trace = Trace::default();
    let finds = {
        let trace = trace.clone();
        move |request: &ModelRequest| {
            trace.push(format!("{:?}", request.extensions().get::<Span>()));
        }
    };
    let also = finds.clone();
    let opens = Bundle::new().on_model(before_model(|request| {
        drop(request.extensions_mut().insert(Span(1)))
    }));
    let agent = agent(ScriptedModel::new([Turn::from_text("ok")]))
        .global_callbacks(opens)
        .on_model(before_model(move |request| finds(request)))
        .on_model(after_model(move |request, _| also(request)))
        .build()
        .unwrap();

    agent.run("?").await.unwrap();

    assert_eq!(trace.take(), "Some(Span(1)) Some(Span(1))");
}

/// One object with hooks for several calls, and a count of its own.
struct Quota {
    tool_calls: std::sync::atomic::AtomicU32,
}

impl Hooks for Quota {
    async fn before_model(&self, request: &mut ModelRequest) -> Result<Action<ModelResponse>> {
        let last = request
            .messages()
            .last()
            .map(Message::text)
            .unwrap_or_default();
        Ok(if last.contains("/quota") {
            Action::Respond(ModelResponse::from_text("one tool call"))
        } else {
            Action::Continue
        })
    }

    async fn before_tool(&self, _: &mut ToolRequest) -> Result<Action<ToolResponse>> {
        match self
            .tool_calls
            .fetch_add(1, std::sync::atomic::Ordering::SeqCst)
        {
            0 => Ok(Action::Continue),
            _ => Err(Error::abort("quota")),
        }
    }

    async fn on_tool_error(
        &self,
        _: &mut ToolRequest,
        error: &Error,
    ) -> Result<Recovery<ToolResponse>> {
        Ok(Recovery::Fallback(ToolResponse::error(format!(
            "quota saw: {}",
            error.message()
        ))))
    }
}

#[tokio::test]
async fn one_object_is_a_plugin_with_hooks_for_every_call() {
    let build = |model: ScriptedModel| -> Agent {
        let quota = Quota {
            tool_calls: 0.into(),
        };
        agent(model)
            .tool(super::failing_act())
            .global_callbacks(quota)
            .build()
            .unwrap()
    };
    assert_eq!(
        build(ScriptedModel::new([]))
            .run("/quota")
            .await
            .unwrap()
            .text(),
        "one tool call"
    );

    let response = build(acts_once()).run("?").await.unwrap();
    assert_eq!(texts(&told(&response)), ["quota saw: disk full"]);

    let twice = Turn::tool("act", json!(1)).and_tool("act", json!(2));
    let error = build(ScriptedModel::new([twice]))
        .run("?")
        .await
        .unwrap_err();
    assert_eq!(error.message(), "quota");
}

#[tokio::test]
async fn callbacks_of_a_run_follow_the_agents_options() {
    let answers = |text: &'static str| {
        after_model(move |_, response: &ModelResponse| {
            let message = response.message().clone().with_part(Part::from_text(text));
            Action::Respond(ModelResponse::new(message))
        })
    };
    let callbacks = || {
        Bundle::new()
            .on_model(answers(" 1"))
            .on_model(answers(" 2"))
    };
    for (continue_on_response, expected) in [(false, "said 1"), (true, "said 2")] {
        let model = || ScriptedModel::new([Turn::from_text("said")]);
        let semantics = with_options(false, continue_on_response);
        let own = Agent::builder(model())
            .semantics(semantics)
            .callbacks(callbacks());
        let global = Agent::builder(model())
            .semantics(semantics)
            .global_callbacks(callbacks());
        let of_run = Agent::builder(model()).semantics(semantics);

        let run = AgentRequest::new("?").with_callbacks(callbacks());
        for (agent, request) in [(own, "?".into()), (global, "?".into()), (of_run, run)] {
            let response = agent.build().unwrap().run(request).await.unwrap();
            assert_eq!(response.text(), expected);
        }
    }
}
