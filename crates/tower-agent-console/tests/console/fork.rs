//! A run that goes on from a step of another one: what is called again, and what is not.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};

use futures::StreamExt;
use serde_json::{Value, json};
use tower::{Layer, ServiceExt};
use tower_agent::callback::{after_tool, before_model};
use tower_agent::message::{ToolCall, ToolResult};
use tower_agent::{
    Action, Agent, AgentRequest, AgentResponse, Effect, ErrorKind, Message, ModelRequest,
    ModelResponse, Part, Resolution, Role, Settings, Tool, ToolResponse,
};
use tower_agent_agui::conversations::{
    ConversationKey, ConversationStore, MemoryConversations, SessionLayer,
};
use tower_agent_console::{Console, Fork, NotRecorded};
use tower_agent_middleware::approval::Approval;
use tower_agent_test::{ScriptedModel, Turn};

use crate::world::{User, json, of_kind, service, user_of};

/// Tools that count their calls: what changes something tells which call it was.
#[derive(Clone, Default)]
struct Shop(Arc<Mutex<BTreeMap<String, usize>>>);

impl Shop {
    fn tool(&self, name: &'static str, effect: Effect) -> Tool {
        let shop = self.clone();
        let tool = Tool::function(name, "Does it.", move |arguments: Value| {
            let mut counts = shop.0.lock().unwrap();
            let count = counts.entry(name.to_owned()).or_default();
            *count += 1;
            match effect {
                Effect::Pure => format!("{name} {arguments}"),
                _ => format!("{name} {arguments}, number {count}"),
            }
        });
        tool.effect(effect)
    }

    fn tools(&self) -> [Tool; 3] {
        [
            self.tool("look", Effect::Pure),
            self.tool("mark", Effect::Idempotent),
            self.tool("pay", Effect::Mutating),
        ]
    }

    fn count(&self, name: &str) -> usize {
        self.0.lock().unwrap().get(name).copied().unwrap_or(0)
    }
}

/// A turn of a model: calls of tools, or a text.
type Says = Result<&'static [(&'static str, u32)], &'static str>;

/// A model whose answer follows from how often it has answered in the conversation, so that it
/// goes on from any step. A team's members see each other's answers as those of others.
fn thinking(turns: &'static [Says]) -> ScriptedModel {
    ScriptedModel::always(Turn::function(move |request| {
        let said = |message: &&Message| message.role() == Role::Assistant;
        let index = request.messages().iter().filter(said).count();
        Ok(match turns[index % turns.len()] {
            Ok(calls) => ModelResponse::from_tool_calls(calls.iter().zip(0..).map(
                |((name, value), place)| {
                    let id = format!("call_{index}_{place}");
                    ToolCall::new(id, *name, json!({ "value": value }))
                },
            )),
            Err(text) => ModelResponse::from_text(text),
        })
    }))
}

const SHOPPING: &[Says] = &[
    Ok(&[("look", 1)]),
    Ok(&[("mark", 1), ("pay", 5)]),
    Ok(&[("look", 2), ("mark", 2)]),
    Err("Done."),
];

fn shopper(console: &Console, shop: &Shop) -> Agent {
    Agent::builder(thinking(SHOPPING))
        .name("shopper")
        .tools(shop.tools())
        .global_callbacks(console.watch())
        .build()
        .unwrap()
}

fn console() -> Console {
    Console::new().record_content()
}

fn named(text: &str, id: &str) -> AgentRequest {
    AgentRequest::new(text).with_run_id(id.to_owned())
}

/// The messages, without the ids that belong to a run.
fn transcript(response: &AgentResponse) -> Vec<Value> {
    let bare = |message: &Message| {
        let mut message = json!(message);
        message.as_object_mut().unwrap().remove("id");
        message
    };
    response.messages().iter().map(bare).collect()
}

fn approved(response: &AgentResponse, is_approved: bool) -> Vec<Resolution> {
    let interrupts = response.interrupts().iter();
    interrupts
        .map(|interrupt| Resolution::resolved(&interrupt.id, json!({ "approved": is_approved })))
        .collect()
}

#[tokio::test]
async fn from_each_step_an_unchanged_fork_ends_as_the_run_did_and_changes_nothing() {
    let console = console();
    let shop = Shop::default();
    let agent = shopper(&console, &shop);
    let original = agent.run(named("Shop.", "r")).await.unwrap();
    let looked = shop.count("look");
    for step in 0..4 {
        let fork = console.fork("r", step).await.unwrap();
        let again = agent.run(fork).await.unwrap();
        assert_eq!(transcript(&again), transcript(&original), "step {step}");
        let streamed = console.fork("r", step).await.unwrap();
        let again = agent.stream(streamed).response().await.unwrap();
        assert_eq!(transcript(&again), transcript(&original), "step {step}");
        // The messages before the step are those of the run, ids included.
        let same = |(old, new): &(&Message, &Message)| old.id() == new.id();
        let both = original.messages().iter().zip(again.messages());
        assert_eq!(
            both.take_while(same).count(),
            [1, 3, 6, 9][step],
            "step {step}"
        );
    }
    assert!(
        shop.count("look") > looked,
        "what only looks is called again"
    );
    assert_eq!((shop.count("mark"), shop.count("pay")), (2, 1));

    // From the end it goes on with a message.
    let fork = console.fork("r", 4).await.unwrap().message("And again.");
    let response = agent.run(fork).await.unwrap();
    assert!(response.messages().len() > original.messages().len());
    let error = console.fork("r", 5).await.unwrap_err();
    let expected = NotRecorded::NoStep {
        run: "r".into(),
        step: 5,
        last: 4,
    };
    assert_eq!(error, expected);
}

#[tokio::test]
async fn a_call_that_the_run_has_not_made_waits_for_an_operator() {
    let console = console();
    let shop = Shop::default();
    let agent = shopper(&console, &shop);
    agent.run(named("Shop.", "r")).await.unwrap();

    // The model is changed to pay another sum.
    let pays_more = Agent::builder(thinking(&[
        Ok(&[("look", 1)]),
        Ok(&[("mark", 1), ("pay", 6)]),
        Err("Done."),
    ]))
    .name("shopper")
    .tools(shop.tools())
    .global_callbacks(console.watch())
    .build()
    .unwrap();
    for (is_approved, paid) in [(false, 1), (true, 2)] {
        let fork = console.fork("r", 0).await.unwrap();
        let waits = pays_more.run(fork.clone()).await.unwrap();
        let [question] = waits.interrupts() else {
            panic!("one question: {:?}", waits.interrupts());
        };
        assert_eq!(question.answerer.role(), Some(Fork::ROLE));
        assert_eq!(question.payload["tool"], "pay");
        assert_eq!(question.payload["arguments"], json!({ "value": 6 }));
        assert_eq!((shop.count("mark"), shop.count("pay")), (1 + 1, 1));

        let answers = approved(&waits, is_approved);
        let resumed = fork.resume(waits.checkpoint()).with_resolutions(answers);
        let response = pays_more.run(resumed).await.unwrap();
        assert_eq!(response.text(), "Done.");
        assert_eq!(shop.count("pay"), paid, "approved: {is_approved}");
    }
    // Once for each call of the run: a second one with the same arguments is another one.
    let pays_twice = Agent::builder(thinking(&[
        Ok(&[("pay", 5)]),
        Ok(&[("pay", 5)]),
        Err("Done."),
    ]))
    .name("shopper")
    .tools(shop.tools())
    .global_callbacks(console.watch())
    .build()
    .unwrap();
    let waits = pays_twice
        .run(console.fork("r", 0).await.unwrap())
        .await
        .unwrap();
    assert_eq!(waits.interrupts().len(), 1);
    assert_eq!(shop.count("pay"), 2);
}

#[tokio::test]
async fn a_fork_is_not_resumed_without_its_guard() {
    let console = console();
    let shop = Shop::default();
    let agent = shopper(&console, &shop);
    agent.run(named("Shop.", "r")).await.unwrap();
    let other = Agent::builder(thinking(&[Ok(&[("pay", 6)]), Err("Done.")]))
        .name("shopper")
        .tools(shop.tools())
        .global_callbacks(console.watch())
        .build()
        .unwrap();
    let waits = other
        .run(console.fork("r", 0).await.unwrap())
        .await
        .unwrap();
    // As another process would, which has stored it.
    let stored = serde_json::to_string(&waits.checkpoint()).unwrap();
    let checkpoint = serde_json::from_str(&stored).unwrap();
    let resumed = AgentRequest::resume(checkpoint).with_resolutions(approved(&waits, true));
    let unwatched = Agent::builder(thinking(&[Ok(&[("pay", 6)]), Err("Done.")]))
        .name("shopper")
        .tools(shop.tools())
        .build()
        .unwrap();
    for agent in [other, unwatched] {
        let error = agent.run(resumed.clone()).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::InvalidRequest);
        assert!(error.message().contains("Fork::resume"), "{error}");
    }
    assert_eq!(shop.count("pay"), 1);
}

#[tokio::test]
async fn what_was_approved_is_asked_again() {
    let console = console();
    let shop = Shop::default();
    let agent = Agent::builder(thinking(SHOPPING))
        .name("shopper")
        .tools(shop.tools())
        .on_tool(Approval::of_tools(["pay"]).allow_edits())
        .global_callbacks(console.watch())
        .build()
        .unwrap();
    let waits = agent.run(named("Shop.", "r1")).await.unwrap();
    let resumed = AgentRequest::resume(waits.checkpoint())
        .with_run_id("r2")
        .with_resolutions(approved(&waits, true));
    let original = agent.run(resumed).await.unwrap();
    assert_eq!(
        (original.text(), shop.count("pay")),
        ("Done.".to_owned(), 1)
    );

    // Of both runs, the one that has waited and the one that has gone on, from each step.
    for (run, steps) in [("r1", 0..3), ("r2", 0..1)] {
        for step in steps {
            let fork = console.fork(run, step).await.unwrap();
            let waits = agent.run(fork.clone()).await.unwrap();
            assert_eq!(waits.interrupts().len(), 1, "{run} from {step}");
            assert_eq!(waits.interrupts()[0].reason, "tool_call");
            let yes = approved(&waits, true);
            let resumed = fork.resume(waits.checkpoint()).with_resolutions(yes);
            let response = agent.run(resumed).await.unwrap();
            assert_eq!(
                transcript(&response),
                transcript(&original),
                "{run} from {step}"
            );
            assert_eq!(shop.count("pay"), 1, "{run} from {step}");
        }
    }
    // Approved with other arguments, it is another call.
    let fork = console.fork("r1", 0).await.unwrap();
    let waits = agent.run(fork.clone()).await.unwrap();
    let edit = json!({ "approved": true, "editedArgs": { "value": 7 } });
    let edit = Resolution::resolved(&waits.interrupts()[0].id, edit);
    let resumed = fork.resume(waits.checkpoint()).with_resolutions([edit]);
    let waits = agent.run(resumed).await.unwrap();
    assert_eq!(waits.interrupts().len(), 1);
    assert_eq!(waits.interrupts()[0].answerer.role(), Some(Fork::ROLE));
    assert_eq!(shop.count("pay"), 1);
}

#[tokio::test]
async fn callbacks_are_asked_and_change_an_answer_once() {
    let console = console();
    let shop = Shop::default();
    let wrap = after_tool(|_, response: &ToolResponse| {
        let text = response.value().as_str().unwrap_or_default();
        Action::Respond(ToolResponse::new(format!("<{text}>")))
    });
    let agent = Agent::builder(thinking(SHOPPING))
        .name("shopper")
        .tools(shop.tools())
        .on_tool(wrap)
        .global_callbacks(console.watch())
        .build()
        .unwrap();
    let original = agent.run(named("Shop.", "r")).await.unwrap();
    let again = agent
        .run(console.fork("r", 0).await.unwrap())
        .await
        .unwrap();
    assert_eq!(transcript(&again), transcript(&original));
    assert_eq!(shop.count("pay"), 1);
}

#[tokio::test]
async fn agents_as_tools_and_teams_are_forked_inside_too() {
    let shop = Shop::default();
    for kind in ["tool", "team", "parallel", "transfer"] {
        let console = console();
        let helper = Agent::builder(thinking(&[Ok(&[("look", 1), ("pay", 5)]), Err("Paid.")]))
            .name("helper")
            .tools(shop.tools());
        let agent = match kind {
            "tool" => Agent::builder(ScriptedModel::always(Turn::function(|request| {
                let said = |message: &&Message| message.role() == Role::Assistant;
                Ok(match request.messages().iter().filter(said).count() {
                    0 => ModelResponse::from_tool_calls([ToolCall::new(
                        "h1",
                        "helper",
                        json!({ "request": "Pay." }),
                    )]),
                    1 => ModelResponse::from_tool_calls([ToolCall::new(
                        "m1",
                        "mark",
                        json!({ "value": 1 }),
                    )]),
                    _ => ModelResponse::from_text("Done."),
                })
            })))
            .name("boss")
            .tool(helper.build().unwrap().into_tool("Pays."))
            .tools(shop.tools())
            .global_callbacks(console.watch())
            .build()
            .unwrap(),
            "parallel" => {
                let marks = [Ok(&[("mark", 1)][..]), Err("Marked.")];
                let pays = [Ok(&[("look", 1), ("pay", 5)][..]), Err("Paid.")];
                let first = Agent::builder(after_results("mark", marks));
                let second = Agent::builder(after_results("pay", pays));
                let [first, second] = [first.name("first"), second.name("second")]
                    .map(|member| member.tools(shop.tools()).build().unwrap());
                Agent::parallel("team")
                    .agents([first, second])
                    .global_callbacks(console.watch())
                    .build()
                    .unwrap()
            }
            "team" => {
                let first = Agent::builder(thinking(&[Ok(&[("mark", 1)]), Err("Marked.")]))
                    .name("first")
                    .tools(shop.tools());
                let helper = Agent::builder(member([Ok(&[("pay", 5)]), Err("Paid.")]))
                    .name("helper")
                    .tools(shop.tools());
                Agent::sequential("team")
                    .agents([first.build().unwrap(), helper.build().unwrap()])
                    .global_callbacks(console.watch())
                    .build()
                    .unwrap()
            }
            _ => {
                let helper = Agent::builder(member([Ok(&[("pay", 5)]), Err("Paid.")]))
                    .name("helper")
                    .tools(shop.tools());
                let hands_over = ScriptedModel::always(Turn::function(|_| {
                    let to = json!({ "agent_name": "helper" });
                    let call = ToolCall::new("t1", "transfer_to_agent", to);
                    Ok(ModelResponse::from_tool_calls([call]))
                }));
                Agent::builder(hands_over)
                    .name("boss")
                    .sub_agent(helper.build().unwrap())
                    .global_callbacks(console.watch())
                    .build()
                    .unwrap()
            }
        };
        let before = (shop.count("mark"), shop.count("pay"));
        let original = agent.run(named("Go.", "r")).await.unwrap();
        let made = (shop.count("mark"), shop.count("pay"));
        assert_eq!(made.1, before.1 + 1, "{kind}");
        let mut steps = 0;
        while console.fork("r", steps + 1).await.is_ok() {
            steps += 1;
        }
        assert!(steps >= 3, "{kind} has {steps} steps");
        for step in 0..steps {
            let fork = console.fork("r", step).await.unwrap();
            let again = agent.run(fork).await.unwrap();
            assert_eq!(again.interrupts(), [], "{kind} from {step}");
            assert_eq!(
                transcript(&again),
                transcript(&original),
                "{kind} from {step}"
            );
            let now = (shop.count("mark"), shop.count("pay"));
            assert_eq!(now, made, "{kind} from {step}");
        }
    }
}

/// As [`thinking`], for a member that follows others: it has answered as often as its tools have.
fn member(turns: [Says; 2]) -> ScriptedModel {
    after_results("pay", turns)
}

/// A model whose answer follows from how many results of this tool there are.
fn after_results(tool: &'static str, turns: [Says; 2]) -> ScriptedModel {
    ScriptedModel::always(Turn::function(move |request| {
        let results = request.messages().iter().flat_map(Message::tool_results);
        let own = |result: &&ToolResult| &*result.name == tool;
        let index = results.filter(own).count();
        Ok(match turns[index] {
            Ok(calls) => ModelResponse::from_tool_calls(calls.iter().map(|(name, value)| {
                ToolCall::new(format!("{name} 1"), *name, json!({ "value": value }))
            })),
            Err(text) => ModelResponse::from_text(text),
        })
    }))
}

#[tokio::test]
async fn edits_are_seen_by_the_agent_and_by_the_console_and_are_inherited() {
    let console = console();
    let model = ScriptedModel::new(["Blue.", "Grey.", "Black."].map(Turn::from_text));
    let more = before_model(|request: &mut ModelRequest| request.add_instructions("Be brief."));
    let agent = Agent::builder(model.clone())
        .name("painter")
        .instructions("It is night.")
        .on_model(more)
        .global_callbacks(console.watch())
        .build()
        .unwrap();
    agent.run(named("The sky?", "r")).await.unwrap();
    let mut cold = Settings::default();
    cold.temperature = Some(0.0);
    let fork = console
        .fork("r", 0)
        .await
        .unwrap()
        .messages(|messages| {
            let sea = Message::new(Role::User, [Part::from_text("The sea?")]);
            let id = messages.get(0).unwrap().id().cloned();
            *messages.get_mut(0).unwrap() = match id {
                Some(id) => sea.with_id(id),
                None => sea,
            };
        })
        .instructions("It is day.")
        .model("larger")
        .settings(cold);
    let id = fork.run_id().to_owned();
    agent.run(fork).await.unwrap();
    let again = console.fork(&id, 1).await.unwrap().message("And now?");
    let second = again.run_id().to_owned();
    assert!(second.starts_with("r-fork-") && second.matches("-fork-").count() == 1);
    agent.run(again).await.unwrap();

    let requests = model.requests();
    for request in &requests[1..] {
        assert_eq!(request.messages()[0].text(), "The sea?");
        let instructions = request.instructions().unwrap();
        assert!(instructions.starts_with("It is day."), "{instructions}");
        assert!(instructions.contains("Be brief."), "{instructions}");
        assert_eq!(request.settings().model.as_deref(), Some("larger"));
        assert_eq!(request.settings().temperature, Some(0.0));
    }
    assert_eq!(requests[2].messages().last().unwrap().text(), "And now?");
    assert!(
        requests[0]
            .instructions()
            .unwrap()
            .starts_with("It is night.")
    );

    let service = service(&console);
    let origin = json(&service, "/api/runs/r").await;
    assert_eq!(origin["run"]["forks"], json!([id]));
    let run = json(&service, &format!("/api/runs/{id}")).await;
    assert_eq!(run["run"]["fork_of"], json!({ "run": "r", "step": 0 }));
    assert_eq!(run["run"]["forks"], json!([second]));
    let call = &of_kind(&run, "model")[0]["n"];
    let shown = json(&service, &format!("/api/runs/{id}/content/{call}")).await;
    assert_eq!(shown["input"]["instructions"], "It is day.");
}

#[tokio::test]
async fn two_forks_at_once_and_a_fork_of_a_fork_share_nothing() {
    let console = console();
    let shop = Shop::default();
    let agent = shopper(&console, &shop);
    let original = agent.run(named("Shop.", "r")).await.unwrap();
    let fork = async || agent.run(console.fork("r", 1).await.unwrap()).await;
    let (one, other) = futures::join!(fork(), fork());
    assert_eq!(transcript(&one.unwrap()), transcript(&original));
    assert_eq!(transcript(&other.unwrap()), transcript(&original));

    let first = console.fork("r", 1).await.unwrap();
    let id = first.run_id().to_owned();
    agent.run(first).await.unwrap();
    for step in 0..3 {
        let second = console.fork(&id, step).await.unwrap();
        let again = agent.run(second).await.unwrap();
        assert_eq!(transcript(&again), transcript(&original), "step {step}");
    }
    assert_eq!((shop.count("mark"), shop.count("pay")), (2, 1));
}

#[tokio::test]
async fn a_fork_whose_stream_is_dropped_goes_on_where_it_was() {
    let console = console();
    let shop = Shop::default();
    let agent = shopper(&console, &shop);
    let original = agent.run(named("Shop.", "r")).await.unwrap();
    // However much of it was read.
    for read in [1, 6, 12, 18, 24] {
        let fork = console.fork("r", 0).await.unwrap();
        let mut stream = agent.stream(fork.clone());
        for _ in 0..read {
            stream.next().await;
        }
        let checkpoint = stream.checkpoint();
        drop(stream);
        let again = agent.run(fork.resume(checkpoint)).await.unwrap();
        assert_eq!(again.interrupts(), [], "after {read} events");
        assert_eq!(again.text(), original.text(), "after {read} events");
        assert_eq!((shop.count("mark"), shop.count("pay")), (2, 1));
    }
}

#[tokio::test]
async fn without_content_there_is_nothing_to_fork() {
    let console = Console::new();
    let shop = Shop::default();
    let agent = shopper(&console, &shop);
    agent.run(named("Shop.", "r")).await.unwrap();
    let error = console.fork("r", 0).await.unwrap_err();
    assert_eq!(error, NotRecorded::NoContent { run: "r".into() });
    let error = console.fork("other", 0).await.unwrap_err();
    assert!(matches!(error, NotRecorded::UnknownRun { .. }), "{error}");
}

#[tokio::test]
async fn the_stored_conversation_of_the_origin_is_not_touched() {
    let console = console();
    let shop = Shop::default();
    let agent = shopper(&console, &shop);
    let store = Arc::new(MemoryConversations::new());
    let sessions = SessionLayer::new(store.clone()).layer(agent.clone());
    let key = ConversationKey::new("shop", "ada", "1");
    let request = key.request("Shop.").with_run_id("r");
    sessions.clone().oneshot(request).await.unwrap();
    let before = store.load(&key, 0).await.unwrap();

    let fork = console
        .fork("r", 1)
        .await
        .unwrap()
        .message("Something else.");
    let mut stream = agent.stream(fork);
    stream.next().await;
    drop(stream);
    agent
        .run(console.fork("r", 2).await.unwrap())
        .await
        .unwrap();
    assert_eq!(store.load(&key, 0).await.unwrap(), before);
    assert_eq!(store.len(), 1, "a fork is stored nowhere by itself");
    // Both go on.
    let request = key.request("Again.").with_run_id("r2");
    let response = sessions.oneshot(request).await.unwrap();
    assert!(response.messages().len() > 10);
}

#[tokio::test]
async fn a_fork_is_part_of_the_data_of_the_user_whose_words_it_has() {
    let console = console().user_id(user_of);
    let shop = Shop::default();
    let agent = shopper(&console, &shop);
    let request = named("Shop.", "r").with_extension(User("ada"));
    agent.run(request).await.unwrap();
    agent
        .run(console.fork("r", 1).await.unwrap())
        .await
        .unwrap();
    assert_eq!(console.export_user("ada").await.unwrap().len(), 2);
    assert_eq!(console.delete_user("ada").await.unwrap(), 2);
    assert!(console.fork("r", 0).await.is_err());
}
