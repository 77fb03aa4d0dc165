//! Who stands where: the tree's callbacks, the agent's own, the run's, and tower layers.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use serde_json::json;
use tower_agent::callback::{
    Bundle, after_model, before_model, on_agent_error, on_model_error, wrap_agent, wrap_model,
    wrap_tool,
};
use tower_agent::compat::Semantics;
use tower_agent::{
    Action, Agent, AgentRequest, AgentResponse, Error, ErrorKind, Message, ModelResponse, Recovery,
};
use tower_agent_test::{ScriptedModel, Turn};

use crate::bundles::{echo, logs};
use test_support::logger::Logger;
use test_support::trace::Trace;

fn model() -> ScriptedModel {
    ScriptedModel::new([Turn::tool("echo", json!(1)), Turn::from_text("done")])
}

/// An agent with a wrap and a callback of its own around each call, and its tree's callbacks.
fn agent(model: ScriptedModel, trace: &Trace) -> Agent {
    let wrapped = || (trace.clone(), trace.clone(), trace.clone());
    let (of_agent, of_model, of_tool) = wrapped();
    let own = Logger::new("own", trace);
    Agent::builder(model)
        .tool(echo())
        .agent_layer(wrap_agent(move |request, mut next| {
            let trace = of_agent.clone();
            async move {
                trace.push("[");
                let result = next.run(request).await;
                trace.push("]");
                result
            }
        }))
        .on_agent(own.clone())
        .model_layer(wrap_model(move |request, mut next| {
            let trace = of_model.clone();
            async move {
                trace.push("[");
                let result = next.run(request).await;
                trace.push("]");
                result
            }
        }))
        .on_model(own.clone())
        .tool_layer(wrap_tool(move |request, mut next| {
            let trace = of_tool.clone();
            async move {
                trace.push("[");
                let result = next.run(request).await;
                trace.push("]");
                result
            }
        }))
        .on_tool(own)
        // Registered last, and outermost all the same.
        .global_callbacks(logs("tree", trace))
        .build()
        .unwrap()
}

#[tokio::test]
async fn the_trees_callbacks_are_outermost_and_the_runs_innermost_at_every_call() {
    let trace = Trace::default();
    let agent = agent(model(), &trace);
    let request = AgentRequest::new("?").with_callbacks(logs("run", &trace));
    agent.run(request).await.unwrap();
    let call = "tree> [ own> run> <run <own ] <tree";
    let (before, after) = call.split_at("tree> [ own> run>".len());
    assert_eq!(
        trace.take(),
        format!("{before} {call} {call} {call}{after}")
    );
}

#[tokio::test]
async fn a_runs_global_callbacks_are_inside_the_trees_and_outside_the_agents_own() {
    let trace = Trace::default();
    let agent = agent(model(), &trace);
    let request = AgentRequest::new("?")
        .with_callbacks(logs("inside", &trace))
        .with_global_callbacks(logs("run", &trace));

    agent.run(request).await.unwrap();

    let call = "tree> run> [ own> inside> <inside <own ] <tree <run";
    let (before, after) = call.split_at("tree> run> [ own> inside>".len());
    assert_eq!(
        trace.take(),
        format!("{before} {call} {call} {call}{after}")
    );
}

#[tokio::test]
async fn a_runs_global_callbacks_are_around_each_of_its_agents_once() {
    let trace = Trace::default();
    let inner = Agent::builder(ScriptedModel::new([Turn::from_text("inner")]))
        .name("inner")
        .on_model(Logger::new("inner", &trace))
        .global_callbacks(Bundle::new().on_model(Logger::new("inner tree", &trace)))
        .build()
        .unwrap();
    let script = [
        Turn::tool("inner", json!({"request": "?"})),
        Turn::from_text("done"),
    ];
    let agent = Agent::builder(ScriptedModel::new(script))
        .tool(inner.into_tool("Answers."))
        .on_model(Logger::new("own", &trace))
        .global_callbacks(Bundle::new().on_model(Logger::new("tree", &trace)))
        .build()
        .unwrap();
    let request = AgentRequest::new("?")
        .with_global_callbacks(Bundle::new().on_model(Logger::new("run", &trace)));

    agent.run(request).await.unwrap();

    let own = "tree> run> own> <own <tree <run";
    let inside = "tree> run> inner tree> inner> <inner <tree <run <inner tree";
    assert_eq!(trace.take(), format!("{own} {inside} {own}"));
}

#[tokio::test]
async fn a_runs_global_callbacks_join_the_agents_first_band_where_its_semantics_say_so() {
    let trace = Trace::default();
    let agent = Agent::builder(ScriptedModel::new([Turn::from_text("hi")]))
        .semantics(Semantics::adk_python())
        .on_model(Logger::new("own", &trace))
        .global_callbacks(Bundle::new().on_model(Logger::new("tree", &trace)))
        .build()
        .unwrap();
    let request = AgentRequest::new("?")
        .with_global_callbacks(Bundle::new().on_model(Logger::new("run", &trace)));

    agent.run(request).await.unwrap();

    assert_eq!(trace.take(), "tree> run> own> <tree <run <own");
}

#[tokio::test]
async fn a_run_is_explained_with_the_callbacks_of_its_request() {
    let trace = Trace::default();
    let agent = Agent::builder(model())
        .tool(echo())
        .model_layer(
            wrap_model(|request, mut next| async move { next.run(request).await }).named("retry"),
        )
        .on_model(Logger::new("own", &trace))
        .global_callbacks(Bundle::new().on_model(Logger::new("tree", &trace)))
        .build()
        .unwrap();
    let without = agent.explain().to_string();
    let request = AgentRequest::new("?")
        .with_callbacks(
            Bundle::new()
                .on_model(Logger::new("inside", &trace))
                .tool_layer(tower::layer::util::Identity::new()),
        )
        .with_global_callbacks(logs("run", &trace));

    assert_eq!(
        agent.explain_for(&request).to_string(),
        "\
agent `agent`
  run
    loop of at most 25 model calls
      model call
        tree, run
          [retry]
            own
              inside
                ScriptedModel
      tool calls, 8 at a time
        [Identity]
          run
            echo
"
    );
    assert_eq!(agent.explain_for(&"?".into()).to_string(), without);
}

#[tokio::test]
async fn a_runs_callbacks_are_for_that_run_alone() {
    let trace = Trace::default();
    let model = ScriptedModel::new(vec![Turn::from_text("hi"); 3]);
    let agent = agent(model, &trace);
    let without = "tree> [ own> tree> [ own> <own ] <tree <own ] <tree";
    let with = "tree> [ own> run> tree> [ own> run> <run <own ] <tree <run <own ] <tree";
    for is_given in [false, true, false] {
        let request = AgentRequest::new("?");
        let request = if is_given {
            request.with_callbacks(logs("run", &trace))
        } else {
            request
        };
        agent.run(request).await.unwrap();
        assert_eq!(trace.take(), if is_given { with } else { without });
    }
}

#[tokio::test]
async fn a_runs_callbacks_given_twice_stand_in_the_order_they_were_given() {
    let trace = Trace::default();
    let agent = Agent::builder(ScriptedModel::new([Turn::from_text("hi")]))
        .build()
        .unwrap();
    let request = AgentRequest::new("?")
        .with_callbacks(Bundle::new().on_model(Logger::new("first", &trace)))
        .with_callbacks(logs("second", &trace));
    agent.run(request).await.unwrap();
    assert_eq!(
        trace.take(),
        "second> first> second> <first <second <second"
    );
}

/// A layer around the whole agent that tries again gives the same callbacks again.
#[tokio::test]
async fn a_retry_around_the_agent_keeps_the_runs_callbacks_and_adds_none() {
    use tower::ServiceExt;
    use tower::retry::{Policy, RetryLayer};
    use tower_layer::Layer;

    #[derive(Clone)]
    struct Once(bool);

    impl Policy<AgentRequest, AgentResponse, Error> for Once {
        type Future = std::future::Ready<()>;

        fn retry(
            &mut self,
            _: &mut AgentRequest,
            result: &mut tower_agent::Result<AgentResponse>,
        ) -> Option<Self::Future> {
            let again = result.is_err() && std::mem::take(&mut self.0);
            again.then(|| std::future::ready(()))
        }

        fn clone_request(&mut self, request: &AgentRequest) -> Option<AgentRequest> {
            Some(request.clone())
        }
    }

    let trace = Trace::default();
    let down = Turn::error(Error::new(ErrorKind::Provider, "down"));
    let agent = Agent::builder(ScriptedModel::new([down, Turn::from_text("hi")]));
    let agent = RetryLayer::new(Once(true)).layer(agent.build().unwrap());
    let request = AgentRequest::new("?").with_callbacks(logs("run", &trace));
    agent.oneshot(request).await.unwrap();
    let failed = "run> run> run!provider failed run!provider failed";
    assert_eq!(trace.take(), format!("{failed} run> run> <run <run"));
}

#[tokio::test]
async fn a_retry_inside_the_agent_keeps_the_runs_callbacks_and_adds_none() {
    let trace = Trace::default();
    let down = Turn::error(Error::new(ErrorKind::Provider, "down"));
    let agent = Agent::builder(ScriptedModel::new([down, Turn::from_text("hi")]))
        .on_agent(on_agent_error(|_, _| Recovery::Retry))
        .build()
        .unwrap();
    let request = AgentRequest::new("?").with_callbacks(logs("run", &trace));
    agent.run(request).await.unwrap();
    let failed = "run> run> run!provider failed run!provider failed";
    assert_eq!(trace.take(), format!("{failed} run> run> <run <run"));
}

#[tokio::test]
async fn a_bundle_is_placed_where_it_is_registered() {
    let trace = Trace::default();
    let agent = Agent::builder(model())
        .tool(echo())
        .on_model(Logger::new("a", &trace))
        .on_tool(Logger::new("x", &trace))
        .callbacks(logs("b", &trace).and(Bundle::new().on_model(Logger::new("c", &trace))))
        .on_model(Logger::new("d", &trace))
        .on_tool(Logger::new("y", &trace))
        .build()
        .unwrap();
    agent.run("?").await.unwrap();
    let model = "a> b> c> d> <a <b <c <d";
    let tool = "x> b> y> <x <b <y";
    assert_eq!(trace.take(), format!("b> {model} {tool} {model} <b"));
}

#[tokio::test]
async fn a_layer_closes_the_band_that_a_bundle_is_part_of() {
    let trace = Trace::default();
    let agent = Agent::builder(ScriptedModel::new([Turn::from_text("hi")]))
        .callbacks(Bundle::new().on_model(Logger::new("a", &trace)))
        .model_layer(tower::layer::util::Identity::new())
        .callbacks(Bundle::new().on_model(Logger::new("b", &trace)))
        .build()
        .unwrap();
    agent.run("?").await.unwrap();
    assert_eq!(trace.take(), "a> b> <b <a");
}

#[tokio::test]
async fn global_bundles_stand_in_the_order_they_were_given_and_explain_names_them() {
    let trace = Trace::default();
    let agent = Agent::builder(ScriptedModel::new([Turn::from_text("hi")]))
        .on_model(Logger::new("own", &trace))
        .global_callbacks(Bundle::new().on_model(Logger::new("first", &trace)))
        .global_callbacks(Bundle::new().on_model(Logger::new("second", &trace)))
        .build()
        .unwrap();
    agent.run("?").await.unwrap();
    assert_eq!(trace.take(), "first> second> own> <own <first <second");
    let lines = agent.explain().to_string();
    let position = |name| {
        lines
            .find(name)
            .unwrap_or_else(|| panic!("no `{name}` in:\n{lines}"))
    };
    assert!(position("first, second") < position("own"), "{lines}");
}

/// The agent's own callbacks see nothing of an answer of the tree's.
#[tokio::test]
async fn the_trees_callbacks_answer_before_anything_of_the_agents_own() {
    let trace = Trace::default();
    let script = ScriptedModel::new([]);
    let agent = Agent::builder(script.clone())
        .on_model(Logger::new("own", &trace))
        .global_callbacks(Bundle::new().on_model(before_model(|_| {
            Action::Respond(ModelResponse::from_text("from the tree"))
        })))
        .build()
        .unwrap();
    assert_eq!(agent.run("?").await.unwrap().text(), "from the tree");
    assert_eq!(trace.take(), "");
    script.assert_done();
}

#[tokio::test]
async fn the_global_on_error_sees_what_nothing_inside_recovered() {
    let asked = Arc::new(AtomicU32::new(0));
    let down = || Turn::error(Error::new(ErrorKind::Provider, "down"));
    let recover = |asked: &Arc<AtomicU32>| {
        let asked = asked.clone();
        Bundle::new().on_model(on_model_error(move |_, _| {
            asked.fetch_add(1, Ordering::SeqCst);
            Recovery::Fallback(ModelResponse::from_text("from outside"))
        }))
    };
    let agent =
        Agent::builder(ScriptedModel::new([down(), down()])).global_callbacks(recover(&asked));
    let agent = agent.build().unwrap();
    assert_eq!(agent.run("?").await.unwrap().text(), "from outside");
    // The run's own is inside, and comes first.
    let inner = Bundle::new().on_model(on_model_error(|_, _| {
        Recovery::Fallback(ModelResponse::from_text("from inside"))
    }));
    let response = agent
        .run(AgentRequest::new("?").with_callbacks(inner))
        .await
        .unwrap();
    assert_eq!(
        (response.text().as_str(), asked.load(Ordering::SeqCst)),
        ("from inside", 1)
    );
}

/// The agent's semantics are those of all its callbacks, unless those that travel bring their own.
#[tokio::test]
async fn a_runs_callbacks_bring_their_own_semantics() {
    let twice = || {
        let says = |text: &'static str| {
            after_model(move |_, _| Action::Respond(ModelResponse::from_text(text)))
        };
        Bundle::new()
            .on_model(says("first"))
            .on_model(says("second"))
    };
    let agent = |build: fn(tower_agent::AgentBuilder, Bundle) -> tower_agent::AgentBuilder| {
        let builder = Agent::builder(ScriptedModel::new([Turn::from_text("hi")]));
        build(builder.semantics(Semantics::adk_python()), twice())
            .build()
            .unwrap()
    };
    let text = async |agent: Agent, request: AgentRequest| agent.run(request).await.unwrap().text();
    assert_eq!(
        text(agent(|b, all| b.callbacks(all)), "?".into()).await,
        "first"
    );
    assert_eq!(
        text(agent(|b, all| b.global_callbacks(all)), "?".into()).await,
        "first"
    );

    let given = |bundle: Bundle| AgentRequest::new("?").with_callbacks(bundle);
    assert_eq!(text(agent(|b, _| b), given(twice())).await, "first");
    let composed = twice().semantics(Semantics::default().band);
    assert_eq!(
        text(agent(|b, _| b), given(composed.clone())).await,
        "second"
    );
    let globally = |b: tower_agent::AgentBuilder, all: Bundle| {
        b.global_callbacks(all.semantics(Semantics::default().band))
    };
    assert_eq!(text(agent(globally), "?".into()).await, "second");
    // Also after callbacks for another call.
    let trace = Trace::default();
    let earlier = Bundle::new().on_agent(Logger::new("a", &trace));
    assert_eq!(
        text(agent(|b, _| b), given(earlier).with_callbacks(composed)).await,
        "second"
    );
}

#[tokio::test]
async fn a_runs_callbacks_are_no_data_of_the_call() {
    let agent = Agent::builder(ScriptedModel::new([Turn::from_text("hi")]))
        .on_agent(tower_agent::callback::before_agent(|request| {
            assert!(request.extensions().is_empty())
        }))
        .build()
        .unwrap();
    let trace = Trace::default();
    let request = AgentRequest::new("?").with_callbacks(logs("run", &trace));
    let response = agent.run(request).await.unwrap();
    assert_eq!(response.message(), Some(&Message::assistant("hi")));
}
