//! Order of the callbacks of a whole tree under each preset.

use std::time::Duration;

use serde_json::{Value, json};
use tower::timeout::TimeoutLayer;
use tower_agent::callback::{
    Bundle, after_model, after_tool, before_agent, before_model, before_tool,
};
use tower_agent::compat::Semantics;
use tower_agent::{
    Action, Agent, AgentBuilder, Callback, Message, ModelResponse, Request, Result, Tool,
    ToolResponse,
};
use tower_agent_middleware::approval::Approval;
use tower_agent_test::{ScriptedModel, Turn};

use test_support::trace::Trace;

/// Writes down which hook of it runs around which call.
struct Note(&'static str, Trace);

impl<R: Request> Callback<R> for Note {
    async fn before(&self, _: &mut R) -> Result<Action<R::Response>> {
        self.1.push(format!("{}:{}>", R::CALL, self.0));
        Ok(Action::Continue)
    }

    async fn after(&self, _: &R, _: &R::Response) -> Result<Action<R::Response>> {
        self.1.push(format!("{}:<{}", R::CALL, self.0));
        Ok(Action::Continue)
    }

    async fn on_error(
        &self,
        _: &mut R,
        _: &tower_agent::Error,
    ) -> Result<tower_agent::Recovery<R::Response>> {
        self.1.push(format!("{}:!{}", R::CALL, self.0));
        Ok(tower_agent::Recovery::Propagate)
    }

    fn name(&self) -> std::borrow::Cow<'static, str> {
        self.0.into()
    }
}

fn notes(name: &'static str, trace: &Trace) -> Bundle {
    let note = || Note(name, trace.clone());
    Bundle::new()
        .on_agent(note())
        .on_model(note())
        .on_tool(note())
}

fn work() -> Tool {
    Tool::function("work", "Works.", |_: Value| "worked")
}

fn says(text: &str) -> ModelResponse {
    ModelResponse::new(Message::assistant(text))
}

fn works_once() -> AgentBuilder {
    let model = ScriptedModel::new([Turn::tool("work", json!({})), Turn::from_text("done")]);
    Agent::builder(model).tool(work())
}

/// The words about calls of one kind, without its name, each once.
fn of(trace: &str, call: &str) -> String {
    let mut words: Vec<_> = trace
        .split(' ')
        .filter_map(|word| word.strip_prefix(call))
        .collect();
    let mut seen = std::collections::BTreeSet::new();
    words.retain(|word| seen.insert(*word));
    words.join(" ")
}

const FIRST: &str = "a> b> own> <a <b <own";
const AROUND: &str = "a> b> own> <own <a <b";

#[tokio::test]
async fn global_callbacks_stand_where_each_presets_plugins_do() {
    let presets = [
        (Semantics::default(), [AROUND, AROUND, AROUND]),
        (Semantics::potato(), [AROUND, AROUND, AROUND]),
        (Semantics::adk_python(), [FIRST, FIRST, FIRST]),
        (Semantics::adk_elixir(), [AROUND, FIRST, AROUND]),
        (Semantics::trpc(), [AROUND, FIRST, FIRST]),
    ];
    for (semantics, orders) in presets {
        let trace = Trace::default();
        let agent = works_once()
            .semantics(semantics)
            .callbacks(notes("own", &trace))
            .global_callbacks(notes("a", &trace))
            .global_callbacks(notes("b", &trace))
            .build()
            .unwrap();

        agent.run("?").await.unwrap();

        let trace = trace.take();
        for (call, order) in ["agent:", "model:", "tool:"].into_iter().zip(orders) {
            assert_eq!(of(&trace, call), order, "{call} {semantics:?}");
        }
    }
}

#[tokio::test]
async fn global_callbacks_come_first_in_agents_with_the_trees_semantics() {
    let trace = Trace::default();
    let model = ScriptedModel::new([Turn::from_text("hi")]);
    let member = Agent::builder(model)
        .name("member")
        .callbacks(notes("own", &trace));
    let team = Agent::sequential("team")
        .semantics(Semantics::adk_python())
        .global_callbacks(notes("a", &trace))
        .agent(member.build().unwrap())
        .build()
        .unwrap();

    team.run("?").await.unwrap();

    assert_eq!(
        trace.take(),
        "agent:a> agent:a> agent:own> model:a> model:own> model:<a model:<own agent:<a agent:<own \
         agent:<a"
    );
}

#[tokio::test]
async fn global_callbacks_stand_around_agents_with_other_semantics() {
    let (adk, default) = (Semantics::adk_python(), Semantics::default());
    for (tree, own) in [(adk, default), (default, adk)] {
        let trace = Trace::default();
        let model = ScriptedModel::new([Turn::from_text("hi")]);
        let member = Agent::builder(model)
            .name("member")
            .on_model(Note("own", trace.clone()));
        let team = Agent::sequential("team")
            .semantics(tree)
            .global_callbacks(Bundle::new().on_model(Note("a", trace.clone())))
            .agent(member.semantics(own).build().unwrap())
            .build()
            .unwrap();

        team.run("?").await.unwrap();

        assert_eq!(trace.take(), "model:a> model:own> model:<own model:<a");
    }
}

#[tokio::test]
async fn an_error_reaches_them_before_the_agents_own() {
    for (semantics, order) in [
        (Semantics::adk_python(), "!a !own"),
        (Semantics::default(), "!own !a"),
    ] {
        let trace = Trace::default();
        let down = Turn::error(tower_agent::Error::new(
            tower_agent::ErrorKind::Provider,
            "down",
        ));
        let agent = Agent::builder(ScriptedModel::new([down]))
            .semantics(semantics)
            .on_model(Note("own", trace.clone()))
            .global_callbacks(Bundle::new().on_model(Note("a", trace.clone())))
            .build()
            .unwrap();

        agent.run("?").await.unwrap_err();

        let words = trace.take().replace("model:", "");
        assert_eq!(words, format!("a> own> {order}"));
    }
}

/// A layer closes their band, as it closes every other.
#[tokio::test]
async fn callbacks_behind_a_layer_are_inside_of_theirs() {
    let trace = Trace::default();
    let agent = works_once()
        .semantics(Semantics::adk_python())
        .global_callbacks(notes("a", &trace))
        .on_model(Note("own", trace.clone()))
        .model_layer(TimeoutLayer::new(Duration::from_secs(9)))
        .on_model(Note("inside", trace.clone()))
        .tool_layer(TimeoutLayer::new(Duration::from_secs(9)))
        .on_tool(Note("inside", trace.clone()))
        .build()
        .unwrap();

    agent.run("?").await.unwrap();

    let trace = trace.take();
    assert_eq!(of(&trace, "model:"), "a> own> inside> <inside <a <own");
    assert_eq!(of(&trace, "tool:"), "a> inside> <inside <a");
}

#[tokio::test]
async fn a_global_answer_before_a_call_reaches_the_agents_after_as_a_plugins_does() {
    // The flags: is the agent's own `after` asked about their answer before a model, and before a
    // tool?
    let presets = [
        (Semantics::default(), false, false),
        (Semantics::adk_python(), false, true),
        (Semantics::adk_elixir(), false, false),
        (Semantics::trpc(), true, false),
    ];
    for (semantics, model_seen, tool_seen) in presets {
        let trace = Trace::default();
        let (model, tool) = (trace.clone(), trace.clone());
        let agent = Agent::builder(ScriptedModel::new([Turn::tool("work", json!({}))]))
            .semantics(semantics)
            .tool(work())
            .on_model(after_model(move |_, response| {
                model.push(response.message().text())
            }))
            .on_tool(after_tool(move |_, _| tool.push("tool")))
            .global_callbacks(
                Bundle::new()
                    .on_model(before_model(|request| match request.messages().len() {
                        1 => Action::Continue,
                        _ => Action::Respond(says("given")),
                    }))
                    .on_tool(before_tool(|_| Action::Respond(ToolResponse::new("given")))),
            )
            .build()
            .unwrap();

        assert_eq!(agent.run("?").await.unwrap().text(), "given");

        let trace = trace.take();
        let seen = |word| trace.split(' ').any(|seen| seen == word);
        assert_eq!(
            (seen("given"), seen("tool")),
            (model_seen, tool_seen),
            "{semantics:?}"
        );
    }
}

#[tokio::test]
async fn a_guard_of_the_agent_runs_whatever_the_plugins_return_after_a_call() {
    for semantics in [Semantics::adk_python(), Semantics::trpc()] {
        let hides = after_model(|_, response| {
            let text = response.message().text().replace("secret", "[hidden]");
            Action::Respond(says(&text))
        });
        let agent = Agent::builder(ScriptedModel::new([Turn::from_text("hi")]))
            .semantics(semantics)
            .on_model(hides.guard())
            .global_callbacks(
                Bundle::new()
                    .on_model(after_model(|_, _| Action::Respond(says("the secret is 5")))),
            )
            .build()
            .unwrap();

        assert_eq!(agent.run("?").await.unwrap().text(), "the [hidden] is 5");
    }
}

#[tokio::test]
async fn a_global_approval_runs_whatever_the_agents_own_callbacks_decide() {
    for semantics in [
        Semantics::default(),
        Semantics::adk_python(),
        Semantics::trpc(),
    ] {
        let trace = Trace::default();
        let ran = trace.clone();
        let pays = Tool::function("pay", "Pays.", move |_: Value| ran.push("paid"));
        let model = ScriptedModel::new([Turn::tool("pay", json!({})), Turn::from_text("done")]);
        let agent = Agent::builder(model)
            .semantics(semantics)
            .tool(pays)
            .on_tool(before_tool(|_| Action::SkipRest))
            .global_callbacks(Bundle::new().on_tool(Approval::of_tools(["pay"])))
            .build()
            .unwrap();

        let response = agent.run("?").await.unwrap();

        assert_eq!(
            (response.interrupts().len(), trace.take()),
            (1, String::new()),
            "{semantics:?}"
        );
    }
}

#[tokio::test]
async fn a_global_answer_for_an_agent_keeps_its_own_before_out() {
    for semantics in [
        Semantics::adk_python(),
        Semantics::trpc(),
        Semantics::default(),
    ] {
        let trace = Trace::default();
        let answer = || tower_agent::AgentResponse::new([Message::assistant("given")]);
        let agent = Agent::builder(ScriptedModel::new([]))
            .semantics(semantics)
            .on_agent(Note("own", trace.clone()))
            .global_callbacks(
                Bundle::new().on_agent(before_agent(move |_| Action::Respond(answer()))),
            )
            .build()
            .unwrap();

        assert_eq!(agent.run("?").await.unwrap().text(), "given");
        assert_eq!(trace.take(), "");
    }
}

/// An agent is explained as it is where it stands.
#[tokio::test]
async fn explain_shows_them_where_they_stand() {
    let trace = Trace::default();
    let member = |name: &str, semantics: Option<Semantics>| {
        let model = ScriptedModel::always(Turn::from_text("hi"));
        let agent = Agent::builder(model)
            .name(name)
            .on_model(Note("own", trace.clone()));
        let agent = match semantics {
            Some(own) => agent.semantics(own),
            None => agent,
        };
        agent.build().unwrap()
    };
    let team = Agent::sequential("team")
        .semantics(Semantics::adk_python())
        .on_agent(Note("whole", trace.clone()))
        .global_callbacks(notes("tree", &trace))
        .agent(member("plain", None))
        .agent(member("other", Some(Semantics::default())))
        .build()
        .unwrap();

    assert_eq!(
        team.explain().to_string(),
        "agent `team`\n  tree, whole\n    in turn\n      \
         agent `plain`\n        tree\n          loop of at most 25 model calls\n            \
         model call\n              tree, own\n                ScriptedModel\n            \
         tool calls, 8 at a time\n              tree\n      \
         agent `other`\n        tree\n          loop of at most 25 model calls\n            \
         model call\n              tree\n                own\n                  ScriptedModel\n            \
         tool calls, 8 at a time\n              tree\n"
    );
    let alone = member("plain", None).explain().to_string();
    assert!(!alone.contains("tree") && alone.contains("own"), "{alone}");

    let caller = |semantics| {
        let model = ScriptedModel::always(Turn::from_text("hi"));
        let caller = Agent::builder(model)
            .semantics(semantics)
            .sub_agent(member("plain", None));
        caller
            .global_callbacks(notes("tree", &trace))
            .build()
            .unwrap()
            .explain()
            .to_string()
    };
    assert!(caller(Semantics::adk_python()).contains("tree, own"));
    assert!(!caller(Semantics::default()).contains("tree, own"));
}
