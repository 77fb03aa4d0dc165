//! What the page reads of an error: a text for people, and never the error's own unless the server
//! says so.

use std::io::Write;
use std::sync::{Arc, Mutex};

use serde_json::{Value, json};
use tower_agent::callback::{before_model, before_tool, on_tool_error};
use tower_agent::{Agent, AgentBuilder, Error, ErrorKind, Interrupt, Recovery, Tool, ToolResponse};
use tower_agent_agui::{AgUi, Conversation, Event, Message, RunAgentInput, before_translate};
use tower_agent_test::{ScriptedModel, Turn};
use tracing::subscriber::set_default;

use super::table::asks;
use super::{error, input, names, open, run, wire};

const SECRET: &str = "stack trace, db=10.0.0.7";

/// The lines of the log of this thread.
#[derive(Clone, Default)]
struct Log(Arc<Mutex<Vec<u8>>>);

impl Log {
    fn start(&self) -> tracing::subscriber::DefaultGuard {
        let log = self.clone();
        let lines = tracing_subscriber::fmt()
            .with_ansi(false)
            .with_writer(move || log.clone());
        set_default(lines.finish())
    }

    fn text(&self) -> String {
        String::from_utf8(self.0.lock().unwrap().clone()).unwrap()
    }
}

impl Write for Log {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        self.0.lock().unwrap().write(bytes)
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

fn agent(name: &str, turns: impl IntoIterator<Item = Turn>) -> AgentBuilder {
    Agent::builder(ScriptedModel::new(turns)).name(name)
}

fn breaks() -> Turn {
    Turn::error(Error::new(ErrorKind::Provider, SECRET))
}

fn text(events: &[Event]) -> String {
    serde_json::to_string(&wire(events)).unwrap()
}

/// The id in a text such as `Something went wrong on the server (error 7f-2).`
fn id(message: &str) -> &str {
    let (_, id) = message.split_once("(error ").unwrap();
    id.strip_suffix(").").unwrap()
}

#[test]
fn a_providers_text_stays_in_the_log_under_the_id_that_the_page_shows() {
    let log = Log::default();
    let _logged = log.start();
    let sent = run(
        &AgUi::new(agent("agent", [breaks()]).build().unwrap()),
        input(),
    );
    assert!(!text(&sent).contains("10.0.0.7"), "{sent:#?}");
    let error = error(&sent);
    assert_eq!(error.code.as_deref(), Some("provider"));
    let lines = log.text();
    let line = lines.lines().find(|line| line.contains(SECRET)).unwrap();
    assert!(line.contains(id(&error.message)), "{line}");
}

#[test]
fn a_log_line_holds_no_line_of_a_strangers_text() {
    let log = Log::default();
    let _logged = log.start();
    let forged = Error::new(ErrorKind::Provider, "oh\n2026-01-01 INFO paid");
    let turns = [Turn::error(forged)];
    run(&AgUi::new(agent("agent", turns).build().unwrap()), input());
    assert!(!log.text().contains("\n2026-01-01 INFO paid"));
}

/// Every way in which an error becomes an event: of the run, of a tool, a rule, a subagent, a
/// panic, and of the callbacks around the translation.
#[test]
fn no_way_of_an_error_to_the_page_says_its_text() {
    let fails = Tool::function("fails", "Fails.", |_: Value| {
        Err::<(), _>(Error::from(SECRET))
    });
    let panics = Tool::function("fails", "Fails.", |_: Value| -> u8 { panic!("{SECRET}") });
    let calls = || [asks("fails", "c1", json!({})), Turn::from_text("so be it")];
    let helper = || {
        agent("fails", [breaks()])
            .build()
            .unwrap()
            .into_tool("Helps.")
    };
    let denied = || before_tool(|_| Err::<(), _>(Error::new(ErrorKind::Denied, SECRET)));
    let aborts = before_model(|_| Err::<(), _>(Error::abort(SECRET)));
    let servers = [
        AgUi::builder(agent("a", [breaks()]).build().unwrap()),
        AgUi::builder(agent("a", calls()).tool(fails.clone()).build().unwrap()),
        AgUi::builder(agent("a", calls()).tool(panics).build().unwrap()),
        AgUi::builder(agent("a", calls()).tool(helper()).build().unwrap()),
        AgUi::builder(
            agent("a", calls())
                .tool(fails)
                .on_tool(denied())
                .build()
                .unwrap(),
        ),
        AgUi::builder(agent("a", []).on_model(aborts).build().unwrap()),
        super::says([Turn::from_text("hi")])
            .failure_message(|_, _| None)
            .on_translate(before_translate(|_| Err::<(), _>(Error::from(SECRET)))),
    ];
    for (way, server) in servers.into_iter().enumerate() {
        let sent = run(&server.build(), input());
        let sent = text(&sent);
        assert!(!sent.contains("10.0.0.7"), "{way}: {sent}");
        assert!(sent.contains("Something went wrong"), "{way}: {sent}");
    }
}

#[test]
fn a_tool_that_refuses_in_its_own_words_is_read_by_the_page() {
    let refuses = Tool::function("pay", "Pays.", |_: Value| {
        ToolResponse::error("this cannot be refunded")
    });
    let fails = Tool::function("ask", "Asks.", |_: Value| Err::<(), _>(Error::from(SECRET)))
        .failure_message("The bank is closed.");
    let turns = [
        asks("pay", "c1", json!({})),
        asks("ask", "c2", json!({})),
        Turn::from_text("so be it"),
    ];
    let agent = agent("agent", turns).tool(refuses).tool(fails);
    let sent = text(&run(&AgUi::new(agent.build().unwrap()), input()));
    assert!(sent.contains("this cannot be refunded"), "{sent}");
    assert!(sent.contains("The bank is closed."), "{sent}");
}

/// The page sends its own copy back; the model goes on with what it has read.
#[test]
fn the_model_reads_the_whole_error_of_a_tool_and_still_does_in_the_next_run() {
    let model = ScriptedModel::new([
        asks("fails", "c1", json!({})),
        Turn::from_text("so be it"),
        Turn::from_text("as I said"),
    ]);
    let fails = Tool::function("fails", "Fails.", |_: Value| {
        Err::<(), _>(Error::from(SECRET))
    });
    let agent = Agent::builder(model.clone()).tool(fails).build().unwrap();
    let server = AgUi::new(agent);
    let mut page = Conversation::new(input().messages);
    run(&server, input())
        .iter()
        .for_each(|event| page.apply(event));
    let mut messages = page.messages().to_vec();
    assert!(!serde_json::to_string(&messages).unwrap().contains(SECRET));
    messages.push(Message::user("u2", "Again."));
    run(&server, RunAgentInput::new("t", "r", messages));
    for request in &model.requests()[1..] {
        let read = request
            .messages()
            .iter()
            .flat_map(|message| message.tool_results());
        let read: Vec<_> = read.map(|result| result.text()).collect();
        assert_eq!(read, [format!("tool failed: {SECRET}")]);
    }
}

#[test]
fn a_server_says_what_its_clients_read_with_the_data_of_the_run() {
    let limit = Error::new(ErrorKind::BudgetExceeded, "3000 tokens");
    let agent = agent("agent", [Turn::error(limit)]).build().unwrap();
    let server = AgUi::builder(agent).failure_message(|error, run| match error.kind() {
        ErrorKind::BudgetExceeded => Some(format!("No more today. [{}]", run.run_id())),
        _ => None,
    });
    let sent = run(&server.build(), input());
    let message = &error(&sent).message;
    assert!(message.starts_with("No more today. ["), "{message}");
    assert!(!message.contains("3000 tokens"), "{message}");
}

#[test]
fn a_function_that_panics_shows_nothing_and_the_run_has_its_end() {
    let agent = agent("agent", [breaks()]).build().unwrap();
    let server = AgUi::builder(agent).failure_message(|_, _| panic!("no words"));
    let sent = run(&server.build(), input());
    assert_eq!(names(&sent).last(), Some(&"RUN_ERROR"));
    assert!(error(&sent).message.starts_with("Something went wrong"));
}

#[test]
fn a_question_is_no_error_and_keeps_its_words() {
    let asks_first = before_tool(|_| Err::<(), _>(Error::interrupt(Interrupt::new("i", "Pay?"))));
    let pay = Tool::function("pay", "Pays.", |_: Value| "paid");
    let turns = [asks("pay", "c1", json!({}))];
    let agent = agent("agent", turns).tool(pay).on_tool(asks_first);
    let server = open(agent.build().unwrap()).failure_message(|_, _| Some("broken".to_owned()));
    let sent = text(&run(&server.build(), input()));
    assert!(sent.contains("Pay?") && !sent.contains("broken"), "{sent}");
}

#[test]
fn a_text_of_others_adds_no_line_to_the_log() {
    let log = Log::default();
    let _logged = log.start();
    let forged = "ill\n2026-01-01 ERROR forged";
    let ill = || Turn::error(Error::new(ErrorKind::Overloaded, forged));
    // A model made up the name of the tool, and its call is made again.
    let calls = Turn::tool(forged, json!({}));
    let retried = agent("retried", [calls, Turn::from_text("Sorry.")])
        .on_tool(on_tool_error(|_, _| Recovery::Retry))
        .build();
    let team = Agent::parallel("team")
        .agents([agent("ill", [ill()]).build().unwrap(), retried.unwrap()])
        .allow_failures()
        .build()
        .unwrap();
    let sequence = Agent::sequential("sequence")
        .agents([team, agent("last", [ill()]).build().unwrap()])
        .build()
        .unwrap();
    run(&AgUi::new(sequence), input());
    let lines = log.text();
    for told in ["the team goes on", "retrying call", "not shown"] {
        assert!(lines.contains(told), "{told}: {lines}");
    }
    let forged = lines.lines().find(|line| line.starts_with("2026-01-01"));
    assert_eq!(forged, None, "{lines}");
}
