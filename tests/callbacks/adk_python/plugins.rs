//! Plugins: bundles of callbacks around an agent and everyone who works for it.

use serde_json::json;
use tower_agent::callback::{
    Bundle, after_model, after_tool, before_agent, before_model, before_tool, on_model_error,
    on_tool_error,
};
use tower_agent::compat::Hooks;
use tower_agent::{
    Action, AgentRequest, Callback, Error, ErrorKind, Message, ModelRequest, ModelResponse,
    Recovery, Request, Result, Role, Tool, ToolResponse,
};
use tower_agent_test::{ScriptedModel, Turn};

use super::{adk, agent_says, model_says, said, told, work};
use test_support::log::Log;

/// Writes its name down in every hook.
struct Note {
    name: &'static str,
    log: Log,
}

impl<R: Request> Callback<R> for Note {
    async fn before(&self, _: &mut R) -> Result<Action<R::Response>> {
        self.log.note(format!("{} before {}", self.name, R::CALL));
        Ok(Action::Continue)
    }

    async fn after(&self, _: &R, _: &R::Response) -> Result<Action<R::Response>> {
        self.log.note(format!("{} after {}", self.name, R::CALL));
        Ok(Action::Continue)
    }
}

fn notes(log: &Log, name: &'static str) -> Bundle {
    let note = || Note {
        name,
        log: log.clone(),
    };
    Bundle::new()
        .on_agent(note())
        .on_model(note())
        .on_tool(note())
}

fn works_once() -> ScriptedModel {
    ScriptedModel::new([Turn::tool("work", json!({})), Turn::from_text("done")])
}

#[tokio::test]
async fn the_hooks_of_a_run_come_in_the_order_of_its_calls() {
    let log = Log::default();
    let agent = adk(&works_once())
        .global_callbacks(notes(&log, "p"))
        .tool(work(&log))
        .build()
        .unwrap();

    agent.run("?").await.unwrap();

    assert_eq!(
        log.take(),
        [
            "p before agent",
            "p before model",
            "p after model",
            "p before tool",
            "work {}",
            "p after tool",
            "p before model",
            "p after model",
            "p after agent",
        ]
    );
}

#[tokio::test]
async fn plugins_registered_as_bundles_come_first_in_every_phase() {
    let log = Log::default();
    let agent = adk(&ScriptedModel::new([Turn::from_text("done")]))
        .callbacks(notes(&log, "p1"))
        .callbacks(notes(&log, "p2"))
        .on_model(Note {
            name: "own",
            log: log.clone(),
        })
        .build()
        .unwrap();

    agent.run("?").await.unwrap();

    let model: Vec<_> = log
        .take()
        .into_iter()
        .filter(|line| line.ends_with("model"))
        .collect();
    let phase = |phase: &str| ["p1", "p2", "own"].map(|name| format!("{name} {phase} model"));
    assert_eq!(model, [phase("before"), phase("after")].concat());
}

#[tokio::test]
async fn plugins_of_the_whole_tree_come_first_in_every_phase_of_every_call() {
    let log = Log::default();
    let agent = adk(&works_once())
        .callbacks(notes(&log, "own"))
        .global_callbacks(notes(&log, "p1"))
        .global_callbacks(notes(&log, "p2"))
        .tool(work(&log))
        .build()
        .unwrap();

    agent.run("?").await.unwrap();

    let log = log.take();
    for (call, times) in [("agent", 1), ("model", 2), ("tool", 1)] {
        let of_call: Vec<_> = log.iter().filter(|line| line.ends_with(call)).collect();
        let phase = |phase: &str| ["p1", "p2", "own"].map(|name| format!("{name} {phase} {call}"));
        let once = [phase("before"), phase("after")].concat();
        assert_eq!(
            of_call,
            once.iter().cycle().take(6 * times).collect::<Vec<_>>()
        );
    }
}

#[tokio::test]
async fn the_agents_own_after_tool_sees_what_a_plugin_of_the_whole_tree_answers_for_a_tool() {
    let log = Log::default();
    let plugin = before_tool(|_| Action::Respond(ToolResponse::new("from the plugin")));
    let agent = adk(&works_once())
        .global_callbacks(Bundle::new().on_tool(plugin))
        .on_tool(after_tool(|_, response| {
            let text = response.value().as_str().unwrap_or_default();
            Action::Respond(ToolResponse::new(format!("[{text}]")))
        }))
        .tool(work(&log))
        .build()
        .unwrap();

    assert_eq!(told(&agent.run("?").await.unwrap()), ["[from the plugin]"]);
    assert!(log.take().is_empty());
}

#[tokio::test]
async fn a_plugin_of_the_whole_tree_recovers_a_failure_before_the_agents_own_callbacks_see_it() {
    let log = Log::default();
    let own = log.line("own");
    let plugin = on_model_error(|_, _| Recovery::Fallback(model_says("from the plugin")));
    let down = Turn::error(Error::new(ErrorKind::Provider, "down"));
    let agent = adk(&ScriptedModel::new([down]))
        .on_model(on_model_error(move |_, _| {
            own();
            Recovery::Fallback(model_says("from the agent's own"))
        }))
        .global_callbacks(Bundle::new().on_model(plugin))
        .build()
        .unwrap();

    assert_eq!(said(&agent.run("?").await.unwrap()), ["from the plugin"]);
    assert!(log.take().is_empty());
}

/// How a plugin is given to an agent.
const WAYS: [fn(tower_agent::AgentBuilder, Bundle) -> tower_agent::AgentBuilder; 2] = [
    |agent, plugin| agent.global_callbacks(plugin),
    |agent, plugin| agent.callbacks(plugin),
];

#[tokio::test]
async fn a_plugins_answer_silences_later_plugins_and_the_agents_own_callbacks() {
    for give in WAYS {
        let log = Log::default();
        let model = ScriptedModel::new([]);
        let first = Bundle::new().on_model(before_model(|_| {
            Action::Respond(model_says("from the plugin"))
        }));
        let agent = give(give(adk(&model), first), notes(&log, "late"))
            .on_model(Note {
                name: "own",
                log: log.clone(),
            })
            .build()
            .unwrap();

        assert_eq!(said(&agent.run("?").await.unwrap()), ["from the plugin"]);
        assert_eq!(log.take(), ["late before agent", "late after agent"]);
        model.assert_done();
    }
}

#[tokio::test]
async fn a_plugins_answer_after_the_model_silences_later_plugins() {
    for give in WAYS {
        let log = Log::default();
        let late = log.line("late");
        let plugins = Bundle::new()
            .on_model(after_model(|_, _| {
                Action::Respond(model_says("from the plugin"))
            }))
            .on_model(after_model(move |_, _| late()));
        let model = ScriptedModel::new([Turn::from_text("from the model")]);
        let agent = give(adk(&model), plugins).build().unwrap();

        assert_eq!(said(&agent.run("?").await.unwrap()), ["from the plugin"]);
        assert!(log.take().is_empty());
    }
}

#[tokio::test]
async fn a_plugins_answer_for_a_tool_is_its_result_and_goes_through_the_plugins_after_tool() {
    for give in WAYS {
        let log = Log::default();
        let plugin = Bundle::new()
            .on_tool(before_tool(|_| {
                Action::Respond(ToolResponse::new("from the plugin"))
            }))
            .on_tool(after_tool(|_, response| {
                let text = response.value().as_str().unwrap_or_default();
                Action::Respond(ToolResponse::new(format!("[{text}]")))
            }));
        let agent = give(adk(&works_once()), plugin)
            .tool(work(&log))
            .build()
            .unwrap();

        assert_eq!(told(&agent.run("?").await.unwrap()), ["[from the plugin]"]);
        assert!(log.take().is_empty());
    }
}

#[tokio::test]
async fn a_plugin_recovers_a_models_and_a_tools_failure_or_leaves_it_to_the_caller() {
    for give in WAYS {
        for recovers in [true, false] {
            let plugin = Bundle::new()
                .on_model(on_model_error(move |_, error| {
                    if recovers {
                        Recovery::Fallback(model_says(error.message()))
                    } else {
                        Recovery::Propagate
                    }
                }))
                .on_tool(on_tool_error(move |_, error| {
                    if recovers {
                        Recovery::Fallback(ToolResponse::new(error.message()))
                    } else {
                        Recovery::Propagate
                    }
                }));
            let quota = || Turn::error(Error::new(ErrorKind::RateLimited, "quota"));
            let broken = Tool::function("work", "", |_: serde_json::Value| Err::<(), _>("broken"));

            let agent = give(adk(&ScriptedModel::new([quota()])), plugin.clone())
                .build()
                .unwrap();
            match agent.run("?").await {
                Ok(response) => assert!(recovers && said(&response) == ["quota"]),
                Err(error) => assert!(!recovers && error.message() == "quota"),
            }
            let agent = give(adk(&works_once()), plugin)
                .tool(broken)
                .build()
                .unwrap();
            match agent.run("?").await {
                Ok(response) => assert!(recovers && told(&response) == ["broken"]),
                Err(error) => assert!(!recovers && error.message() == "broken"),
            }
        }
    }
}

#[tokio::test]
async fn global_plugins_are_inherited_by_an_agent_that_is_a_tool_and_others_are_not() {
    let log = Log::default();
    let helper = adk(&ScriptedModel::new([Turn::from_text("helped")]))
        .name("helper")
        .on_model(Note {
            name: "helper's own",
            log: log.clone(),
        })
        .build()
        .unwrap();
    let model = ScriptedModel::new([
        Turn::tool("helper", json!({ "request": "help" })),
        Turn::from_text("done"),
    ]);
    let agent = adk(&model)
        .callbacks(notes(&log, "bundle"))
        .global_callbacks(notes(&log, "global"))
        .tool(helper.into_tool("Helps."))
        .build()
        .unwrap();

    let response = agent.run("?").await.unwrap();

    assert_eq!(told(&response), ["helped"]);
    let log = log.take();
    let from = log
        .iter()
        .position(|line| line == "bundle before tool")
        .unwrap();
    let to = log
        .iter()
        .position(|line| line == "bundle after tool")
        .unwrap();
    assert_eq!(
        log[from + 1..to],
        [
            "global before agent",
            "global before model",
            "helper's own before model",
            "global after model",
            "helper's own after model",
            "global after agent",
            "global after tool",
        ]
    );
}

#[tokio::test]
async fn a_failing_plugin_is_named_with_its_hook_and_its_error_is_kept() {
    struct Broken;
    impl Hooks for Broken {
        async fn before_model(&self, _: &mut ModelRequest) -> Result<Action<ModelResponse>> {
            let _: u32 = "many".parse()?;
            Ok(Action::Continue)
        }

        fn name(&self) -> std::borrow::Cow<'static, str> {
            "counter".into()
        }
    }

    for give in WAYS {
        let agent = give(adk(&ScriptedModel::new([])), Broken.into())
            .build()
            .unwrap();

        let error = agent.run("?").await.unwrap_err();

        let by = error.raised_by().unwrap();
        assert_eq!((&*by.callback, &*by.hook), ("counter", "before"));
        assert!(error.downcast_ref::<std::num::ParseIntError>().is_some());
        let text = error.to_string();
        assert!(text.contains("`counter` in before"), "{text}");
    }
}

#[tokio::test]
async fn a_plugin_answers_for_a_whole_run_or_changes_what_the_user_said() {
    for (question, answer) in [("quit", "Goodbye."), ("hi", "HI?")] {
        let model = ScriptedModel::always(Turn::function(|request| {
            Ok(model_says(&format!(
                "{}?",
                request.messages().last().unwrap().text()
            )))
        }));
        let agent = adk(&model)
            .global_callbacks(Bundle::new().on_agent(before_agent(|request| {
                let said = request
                    .messages()
                    .last()
                    .map(Message::text)
                    .unwrap_or_default();
                if said == "quit" {
                    return Action::Respond(agent_says("Goodbye."));
                }
                request.messages_mut().pop();
                request
                    .messages_mut()
                    .push(Message::user(said.to_uppercase()));
                Action::Continue
            })))
            .build()
            .unwrap();

        assert_eq!(agent.run(question).await.unwrap().text(), answer);
    }
}

/// Shows the model no more than the last few things that the user said, and what followed them.
fn recent(turns: usize) -> Bundle {
    Bundle::new().on_model(before_model(move |request| {
        let is_user = |message: &Message| message.role() == Role::User;
        let messages: Vec<_> = request.messages().iter().cloned().collect();
        // Things said one after another belong to one turn.
        let begins: Vec<_> = (0..messages.len())
            .filter(|&at| is_user(&messages[at]) && (at == 0 || !is_user(&messages[at - 1])))
            .collect();
        let from = begins
            .len()
            .checked_sub(turns)
            .map_or(0, |skipped| begins[skipped]);
        *request.messages_mut() = messages.into_iter().skip(from).collect();
    }))
}

#[tokio::test]
async fn a_plugin_keeps_the_last_turns_of_a_long_conversation() {
    let history = [
        Message::user("1"),
        Message::assistant("one"),
        Message::user("2a"),
        Message::user("2b"),
        Message::assistant("two"),
    ];
    for (turns, first) in [(1, "3"), (2, "2a"), (3, "1"), (9, "1")] {
        let model = ScriptedModel::new([Turn::from_text("three")]);
        let agent = adk(&model).global_callbacks(recent(turns)).build().unwrap();

        let request = AgentRequest::new("3").with_history(history.clone());
        let response = agent.run(request).await.unwrap();

        assert_eq!(model.requests()[0].messages()[0].text(), first);
        assert_eq!(response.messages().len(), 7, "the transcript is whole");
    }
}

#[tokio::test]
async fn a_plugin_gives_every_agent_the_same_instructions_first() {
    let helper_model = ScriptedModel::new([Turn::from_text("helped")]);
    let helper = adk(&helper_model)
        .name("helper")
        .instructions("You help.")
        .build()
        .unwrap();
    let model = ScriptedModel::new([
        Turn::tool("helper", json!({ "request": "help" })),
        Turn::from_text("done"),
    ]);
    let agent = adk(&model)
        .global_callbacks(Bundle::new().on_model(before_model(|request| {
            let own = request.instructions().unwrap_or_default();
            let all = format!("Never lie. {own}");
            request.set_instructions(Some(all.trim_end().into()));
        })))
        .tool(helper.into_tool("Helps."))
        .build()
        .unwrap();

    agent.run("?").await.unwrap();

    assert_eq!(model.requests()[0].instructions(), Some("Never lie."));
    assert_eq!(
        helper_model.requests()[0].instructions(),
        Some("Never lie. You help.")
    );
}
