//! Every way by which content comes to a model, and what is no such way.

use serde_json::json;
use tower_agent::agent::ToolAnswer;
use tower_agent::callback::{
    after_model, before_model, before_tool, on_model_error, on_tool_error, wrap_model,
};
use tower_agent::message::{MediaSource, Messages, ToolCall, ToolResult};
use tower_agent::model::ServerTool;
use tower_agent::tool::ToolDeclaration;
use tower_agent::{
    Action, AgentBuilder, AgentRequest, Error, ErrorKind, Message, ModelResponse, Part, Recovery,
    Request, Role, Settings, ToolResponse,
};
use tower_agent_middleware::context_window::ContextWindow;
use tower_agent_middleware::flow::{Label, label_answer, label_message};
use tower_agent_middleware::loop_guard::LoopGuard;
use tower_agent_middleware::redact::{Detector, Redact};
use tower_agent_test::{ScriptedModel, Turn};

use super::*;
use crate::guards::saved;

/// A run whose model reads something, and then pays.
struct Way {
    name: &'static str,
    /// The turns before the payment.
    turns: Vec<Turn>,
    build: Box<dyn Fn(AgentBuilder) -> AgentBuilder>,
    request: AgentRequest,
}

impl Way {
    fn new(name: &'static str, turns: impl IntoIterator<Item = Turn>) -> Self {
        Self {
            name,
            turns: turns.into_iter().collect(),
            build: Box::new(|builder| builder),
            request: AgentRequest::new("What is new?"),
        }
    }

    fn with(mut self, build: impl Fn(AgentBuilder) -> AgentBuilder + 'static) -> Self {
        self.build = Box::new(build);
        self
    }

    fn request(mut self, request: AgentRequest) -> Self {
        self.request = request;
        self
    }

    /// Returns whether the payment was made.
    async fn pays(self, flow: Flow) -> bool {
        let log = Log::default();
        let mut turns = self.turns;
        turns.push(Turn::tool("pay", json!({ "to": "bob", "amount": 5 })));
        turns.push(Turn::from_text("Done."));
        let model = ScriptedModel::new(turns);
        let builder = assistant(&model, &log).global_callbacks(flow);
        let agent = (self.build)(builder).build().unwrap();
        agent.run(self.request).await.unwrap();
        model.assert_done();
        log.take().iter().any(|entry| entry.starts_with("pay"))
    }
}

fn read_mail() -> Turn {
    Turn::tool("read_mail", json!({}))
}

/// Returns a conversation in which a tool was called.
fn called(id: &str, result: Message) -> Messages {
    let call = ToolCall::new(id, "page", json!({}));
    let calls = Message::new(Role::Assistant, [Part::from(call)]);
    [Message::user("Look."), calls, result].into()
}

fn result_of(id: &str) -> ToolResult {
    let call = ToolCall::new(id, "page", json!({}));
    ToolResult::new(&call, [Part::from_text(SECRET)])
}

/// Returns the ways into the context. Each taints what the model does afterwards.
fn ways() -> Vec<Way> {
    let worker = ScriptedModel::new([read_mail(), Turn::from_text(SECRET)]);
    let worker = assistant(&worker, &Log::default())
        .name("worker")
        .build()
        .unwrap();
    vec![
        Way::new("a result", [read_mail()]),
        Way::new(
            "an error of a tool",
            [Turn::tool("fail", json!({ "it": SECRET }))],
        ),
        Way::new("a failed result", [Turn::tool("broken", json!({}))]).with(|builder| {
            let broken = Tool::function("broken", "", |_: Value| ToolResponse::error(SECRET));
            builder.tool(broken.effect(Effect::Pure))
        }),
        Way::new("a result of parts", [Turn::tool("picture", json!({}))]).with(|builder| {
            let picture = Tool::function("picture", "", |_: Value| {
                ToolResponse::new(Value::Null)
                    .with_parts([Part::image(MediaSource::url("https://example.org"))])
            });
            builder.tool(picture.effect(Effect::Pure))
        }),
        Way::new(
            "a trusted tool that repeats its argument",
            [
                Turn::tool("read_mail", json!({})),
                Turn::tool("echo", json!({ "it": SECRET })),
            ],
        ),
        Way::new(
            "a hidden result that is shown",
            [
                read_mail(),
                Turn::tool(
                    "show_result",
                    json!({ "result": reference("@m1.0#/0/body") }),
                ),
            ],
        )
        .with(|builder| builder.tools(Flow::new().tools())),
        Way::new(
            "the answer of an agent as a tool",
            [Turn::tool("worker", json!({ "request": "Look." }))],
        )
        .with(move |builder| builder.tool(worker.clone().into_tool(""))),
        Way::new("messages that are made of a result", [read_mail()]).with(|builder| {
            builder.tool_result_messages(|answer: ToolAnswer| {
                vec![answer.default, Message::user(SECRET)]
            })
        }),
        Way::new(
            "messages of a result with an id of their own",
            [read_mail()],
        )
        .with(|builder| {
            builder.tool_result_messages(|answer: ToolAnswer| {
                vec![answer.default, Message::user(SECRET).with_id("mine")]
            })
        }),
        Way::new(
            "a response of a callback in place of a tool",
            [Turn::tool("read_mail", json!({}))],
        )
        .with(|builder| {
            builder.on_tool(before_tool(|request| match request.name() {
                "read_mail" => Action::Respond(ToolResponse::new(SECRET)),
                _ => Action::Continue,
            }))
        }),
        Way::new(
            "a fallback of a callback for a failed tool",
            [Turn::tool("fail", json!({}))],
        )
        .with(|builder| {
            builder.on_tool(on_tool_error(|_, _| {
                Recovery::Fallback(ToolResponse::new(SECRET))
            }))
        }),
        Way::new("a message that a callback adds", []).with(|builder| {
            builder.on_model(before_model(|request| {
                request.messages_mut().push(Message::user(SECRET));
            }))
        }),
        Way::new("an example of what the model said that a callback adds", []).with(|builder| {
            builder.on_model(before_model(|request| {
                let said = Message::assistant(SECRET).with_id("m1");
                request.messages_mut().push(said);
            }))
        }),
        Way::new("a message of the user that a callback changes", []).with(|builder| {
            builder.on_model(before_model(|request| {
                if let Some(message) = request.messages_mut().get_mut(0) {
                    message.parts_mut().push(Part::from_text(SECRET));
                }
            }))
        }),
        Way::new("a changed message that a redaction has changed further", []).with(|builder| {
            let redact = Redact::new([Detector::email()]).unwrap().redact_input();
            let builder = builder.on_model(before_model(|request| {
                if let Some(message) = request.messages_mut().get_mut(0) {
                    message
                        .parts_mut()
                        .push(Part::from_text(format!("{SECRET} to a@example.org")));
                }
            }));
            builder.callbacks(redact)
        }),
        Way::new("instructions that a callback adds", []).with(|builder| {
            builder
                .instructions("Be brief.")
                .on_model(before_model(|request| request.add_instructions(SECRET)))
        }),
        Way::new("a summary in place of what was read", [read_mail()]).with(|builder| {
            builder.on_model(before_model(|request| {
                if request.messages().len() > 2 {
                    *request.messages_mut() = [Message::user(format!("Earlier: {SECRET}"))].into();
                }
            }))
        }),
        Way::new(
            "what the model said of a result that was cut out",
            [
                Turn::response(
                    ModelResponse::from_text("Reading.").with_tool_call(ToolCall::new(
                        "1",
                        "read_mail",
                        json!({}),
                    )),
                ),
                Turn::response(
                    ModelResponse::from_text(SECRET).with_tool_call(ToolCall::new(
                        "2",
                        "today",
                        json!({}),
                    )),
                ),
            ],
        )
        .with(|builder| {
            builder.on_model(before_model(|request| {
                if request.context().iteration() < 2 {
                    return;
                }
                let kept = request.messages().iter().filter(|message| {
                    let mut results = message.tool_results();
                    let has_call = message.tool_calls().any(|call| &*call.name == "read_mail");
                    !has_call && !results.any(|result| &*result.name == "read_mail")
                });
                let kept: Messages = kept.cloned().collect();
                *request.messages_mut() = kept;
            }))
        }),
        Way::new("an answer of a callback in place of the model", []).with(|builder| {
            builder.on_model(before_model(|request| {
                if request.context().iteration() > 0 {
                    return Action::Continue;
                }
                let call = ToolCall::new("1", "today", json!({}));
                Action::Respond(ModelResponse::from_text(SECRET).with_tool_call(call))
            }))
        }),
        Way::new(
            "an answer of a callback after the model has failed",
            [Turn::from_text("lost")],
        )
        .with(|builder| {
            let breaks = wrap_model(|request, mut next| async move {
                let is_first = request.context().iteration() == 0;
                let response = next.run(request).await?;
                if is_first {
                    return Err(Error::new(ErrorKind::Provider, "it broke off"));
                }
                Ok(response)
            });
            builder
                .on_model(on_model_error(|_, _| {
                    let call = ToolCall::new("1", "today", json!({}));
                    Recovery::Fallback(ModelResponse::from_text(SECRET).with_tool_call(call))
                }))
                .model_layer(breaks)
        }),
        Way::new(
            "an answer that a callback changes",
            [Turn::tool("today", json!({}))],
        )
        .with(|builder| {
            builder.on_model(after_model(|_, response| {
                Action::Respond(response.clone().with_text(SECRET))
            }))
        }),
        Way::new("a description of a tool of others", []).with(|builder| {
            let declaration = ToolDeclaration::new("theirs", SECRET).described_by_others();
            let service = tower::service_fn(async |_| {
                Ok::<_, tower_agent::BoxError>(ToolResponse::new("done"))
            });
            builder.tool(Tool::service(declaration, service))
        }),
        Way::new("a tool that the provider runs", []).with(|builder| {
            let mut settings = Settings::default();
            settings.server_tools = vec![ServerTool::web_search()];
            builder.settings(settings)
        }),
        Way::new("a history without labels", []).request(
            AgentRequest::conversation([Message::user("Look."), Message::assistant(SECRET)])
                .with_message("And now?"),
        ),
        Way::new("a result of a client's own tool", []).request(AgentRequest::conversation(
            called("1", Message::tool(result_of("1"))),
        )),
        Way::new("a late result, which becomes a message of the user", []).request({
            let message = Message::new(
                Role::User,
                [Part::from(result_of("9")), Part::from_text("And this.")],
            );
            AgentRequest::conversation(called("1", Message::tool(result_of("1"))))
                .with_message(message.with_id("late"))
        }),
    ]
}

#[tokio::test]
async fn each_way_into_the_context_taints_it() {
    for way in ways() {
        let name = way.name;
        let flow = if name.contains("hidden") {
            hiding()
        } else {
            flow()
        };
        // Its own calls are checked, and what it has read is known.
        let flow = flow.tool("worker", ToolFlow::agent());
        assert!(!way.pays(flow).await, "{name}");
    }
}

#[tokio::test]
async fn what_is_no_way_in_taints_nothing() {
    let email = || Redact::new([Detector::email()]).unwrap().redact_input();
    let ways = vec![
        Way::new("the user and the program", [Turn::tool("today", json!({}))])
            .with(|builder| builder.instructions("Be brief.")),
        Way::new("a hidden result", [read_mail()]),
        Way::new("an unknown tool", [Turn::tool("no_such_tool", json!({}))]),
        Way::new(
            "arguments that do not fit",
            [Turn::tool("pay", json!({ "to": 1 }))],
        ),
        Way::new("a redacted message", [])
            .with(move |builder| builder.callbacks(email()))
            .request(AgentRequest::new("Pay bob@example.org.")),
        Way::new(
            "a model that repeats itself",
            vec![Turn::tool("today", json!({})); 4],
        )
        .with(|builder| builder.on_model(LoopGuard::new())),
        Way::new(
            "a shortened conversation",
            vec![Turn::tool("long", json!({})); 6],
        )
        .with(|builder| {
            let long = Tool::function("long", "", |_: Value| "Hello. ".repeat(300));
            builder
                .tool(long.effect(Effect::Pure))
                .on_model(ContextWindow::new(3_000).cut_to(1_500).keep_results(1))
        }),
        Way::new("a message that a callback vouches for", []).with(|builder| {
            builder.on_model(before_model(|request| {
                let message = Message::user("Today is Monday.");
                label_message(request, &message, Label::trusted());
                request.messages_mut().push(message);
            }))
        }),
        Way::new(
            "an answer that a callback changes, and vouches for",
            [Turn::tool("today", json!({}))],
        )
        .with(|builder| {
            builder.on_model(after_model(
                |request: &tower_agent::ModelRequest, response: &ModelResponse| {
                    let changed = response.clone().with_text("Well.");
                    label_answer(request, &changed, Label::trusted());
                    Action::Respond(changed)
                },
            ))
        }),
    ];
    for way in ways {
        let name = way.name;
        let flow = hiding().tool("long", ToolFlow::trusted());
        assert!(way.pays(flow).await, "{name}");
    }
}

#[tokio::test]
async fn the_program_can_trust_its_callbacks_and_a_server() {
    let log = Log::default();
    let model = ScriptedModel::new([
        Turn::tool("pay", json!({ "to": "bob", "amount": 5 })),
        Turn::from_text("Done."),
    ]);
    let theirs = ToolDeclaration::new("theirs", "").described_by_others();
    let service =
        tower::service_fn(async |_| Ok::<_, tower_agent::BoxError>(ToolResponse::new("done")));
    let agent = assistant(&model, &log)
        .tool(Tool::service(theirs, service))
        .on_model(before_model(|request| {
            request.add_instructions("Be brief.")
        }))
        .global_callbacks(
            flow()
                .callbacks(Label::trusted())
                .tool("theirs", ToolFlow::source().trust_description()),
        )
        .build()
        .unwrap();
    agent.run("?").await.unwrap();
    assert_eq!(log.take(), ["pay bob 5"]);
}

#[tokio::test]
async fn a_question_that_the_user_leaves_unanswered_taints_nothing() {
    let log = Log::default();
    let approve = || tower_agent_middleware::approval::Approval::of_tools(["pay"]);
    let agent = |model: &ScriptedModel| {
        assistant(model, &log)
            .global_callbacks(flow())
            .global_callbacks(approve())
            .build()
            .unwrap()
    };
    let model = ScriptedModel::new([Turn::tool("pay", pay_mallory())]);
    let paused = agent(&model).run("Pay.").await.unwrap();

    let model = ScriptedModel::new([
        Turn::tool("send_mail", json!({ "to": "alice" })),
        Turn::from_text("Done."),
    ]);
    let request = AgentRequest::resume(saved(&paused)).with_message("Write to alice instead.");
    agent(&model).run(request).await.unwrap();
    assert_eq!(log.take(), ["send_mail {\"to\":\"alice\"}"]);
}

#[tokio::test]
async fn a_history_that_was_cut_keeps_the_label_of_what_is_left() {
    let log = Log::default();
    let model = ScriptedModel::new([read_mail(), Turn::from_text(SECRET)]);
    let first = guarded(&model, &log, flow()).run("?").await.unwrap();
    let mut checkpoint = saved(&first);
    // A program that keeps only what was said.
    let said = checkpoint
        .messages
        .iter()
        .filter(|message| !message.text().is_empty());
    checkpoint.messages = said.cloned().collect();
    let model = ScriptedModel::new([Turn::tool("pay", pay_mallory()), Turn::from_text("Done.")]);
    let request = AgentRequest::resume(checkpoint).with_message("Go on.");
    guarded(&model, &log, flow()).run(request).await.unwrap();
    assert_eq!(log.take(), [""; 0]);
}
