//! Middleware that writes down its hooks.

use std::collections::{BTreeMap, VecDeque};
use std::sync::{Arc, Mutex};

use tower_agent::callback::{
    after_agent, after_model, before_agent, before_model, wrap_model, wrap_tool,
};
use tower_agent::{
    Action, AgentBuilder, AgentResponse, Error, Message, ModelResponse, Request, Result,
    RunContext, ToolResponse,
};

use super::program::{Do, World, down};

/// What a hook does, one call after another.
#[derive(Clone)]
struct Script {
    name: String,
    hook: String,
    does: Arc<Mutex<VecDeque<Option<Do>>>>,
    world: World,
}

impl Script {
    fn begin(&self, sign: &str) -> Do {
        self.world
            .write(format!("{}.{}{sign}", self.name, self.hook));
        let next = self.does.lock().unwrap().pop_front();
        next.flatten().unwrap_or_default()
    }

    fn end(&self) {
        self.world.write(format!("{}.{}<", self.name, self.hook));
    }

    /// Does what a hook of any kind may do.
    fn node(&self, context: &RunContext) -> Result<Do> {
        let does = self.begin("");
        if let Some(text) = &does.raise {
            return Err(down(text));
        }
        if let Some(key) = &does.see {
            let value = context.state().get(key);
            let value = value
                .as_ref()
                .and_then(|value| value.as_str())
                .unwrap_or("None");
            self.world.write(format!("{} sees {value}", self.name));
        }
        for (key, value) in does.set.iter().flatten() {
            context.state().set(key, value.clone());
        }
        Ok(does)
    }
}

/// Adds the hooks that a middleware has.
pub(super) fn add(
    agent: AgentBuilder,
    name: &str,
    hooks: &BTreeMap<String, Vec<Option<Do>>>,
    world: &World,
) -> AgentBuilder {
    hooks.iter().fold(agent, |agent, (hook, does)| {
        let script = Script {
            name: name.to_owned(),
            hook: hook.clone(),
            does: Arc::new(Mutex::new(does.iter().cloned().collect())),
            world: world.clone(),
        };
        add_hook(agent, script)
    })
}

fn add_hook(agent: AgentBuilder, script: Script) -> AgentBuilder {
    match &*script.hook.clone() {
        "before_agent" => agent.on_agent(before_agent(move |request| {
            let does = script.node(request.context())?;
            Ok(match (does.jump.as_deref(), does.say) {
                (Some("end"), Some(text)) => {
                    Action::Respond(AgentResponse::new([Message::assistant(text)]))
                }
                (Some("model"), None) => Action::SkipRest,
                _ => Action::Continue,
            })
        })),
        "after_agent" => agent.on_agent(after_agent(move |request, _| {
            script.node(request.context()).map(drop)
        })),
        "before_model" => agent.on_model(before_model(move |request| {
            let does = script.node(request.context())?;
            match (does.jump.as_deref(), does.say, does.calls) {
                (Some("end"), None, None) => Err(Error::end_invocation()),
                (Some("end"), Some(text), None) => {
                    Ok(Action::Respond(ModelResponse::from_text(text)))
                }
                (Some("tools"), None, Some(calls)) => {
                    let calls = script.world.calls(&calls);
                    Ok(Action::Respond(ModelResponse::from_tool_calls(calls)))
                }
                (None, Some(text), None) => {
                    request.messages_mut().push(Message::assistant(text));
                    Ok(Action::Continue)
                }
                _ => Ok(Action::Continue),
            }
        })),
        "after_model" => agent.on_model(after_model(move |request, response| {
            let does = script.node(request.context())?;
            match (does.jump.as_deref(), does.say, does.replace) {
                (Some("end"), None, None) => Err(Error::end_invocation()),
                (Some("model"), Some(text), None) => {
                    let again = Message::user(text);
                    Ok(Action::Respond(response.clone().then_ask(again)))
                }
                (None, None, Some(text)) => Ok(Action::Respond(response.clone().with_text(text))),
                _ => Ok(Action::Continue),
            }
        })),
        "wrap_model" => agent.model_layer(wrap_model(move |mut request, mut next| {
            let script = script.clone();
            async move {
                let does = script.begin(">");
                let run = async {
                    if let Some(text) = &does.raise {
                        return Err(down(text));
                    }
                    if let Some(text) = &does.answer {
                        return Ok(ModelResponse::from_text(text));
                    }
                    if let Some(calls) = &does.calls {
                        return Ok(ModelResponse::from_tool_calls(script.world.calls(calls)));
                    }
                    if let Some(text) = &does.system {
                        request.set_instructions(Some(text.as_str().into()));
                    }
                    if does.no_tools {
                        request.tools_mut().clear();
                    }
                    if does.twice {
                        next.run(request.clone()).await?;
                    }
                    for _ in 0..does.retry {
                        if let Ok(response) = next.run(request.clone()).await {
                            return Ok(response);
                        }
                    }
                    match (next.run(request).await, &does.catch, &does.replace) {
                        (Err(_), Some(text), _) | (Ok(_), _, Some(text)) => {
                            Ok(ModelResponse::from_text(text))
                        }
                        (result, ..) => result,
                    }
                };
                let result = run.await;
                script.end();
                result
            }
        })),
        "wrap_tool" => agent.tool_layer(wrap_tool(move |mut request, mut next| {
            let script = script.clone();
            async move {
                let does = script.begin(">");
                let run = async {
                    if let Some(text) = &does.raise {
                        return Err(down(text));
                    }
                    if let Some(text) = &does.answer {
                        return Ok(ToolResponse::new(text.clone()));
                    }
                    if let Some(arguments) = &does.args {
                        *request.arguments_mut() = arguments.clone();
                    }
                    for _ in 0..does.retry {
                        if let Ok(response) = next.run(request.clone()).await {
                            return Ok(response);
                        }
                    }
                    match (next.run(request).await, &does.catch, &does.replace) {
                        (Err(_), Some(text), _) => Ok(ToolResponse::error(text.clone())),
                        (Ok(_), _, Some(text)) => Ok(ToolResponse::new(text.clone())),
                        (result, ..) => result,
                    }
                };
                let result = run.await;
                script.end();
                result
            }
        })),
        other => panic!("no hook {other}"),
    }
}
