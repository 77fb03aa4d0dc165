//! A process that takes an answer is killed by the system before, while and after it does so, on
//! each way of an answer. Another one goes on: the tool is called as often as the table says, for
//! the right user, and everybody is told what has become of it.
#![cfg(unix)]

use std::fs::read_to_string;
use std::path::{Path, PathBuf};

use futures::StreamExt;
use serde_json::json;
use test_support::property::sample;
use tower::ServiceExt;
use tower_agent::{AgentRequest, Checkpoint, Resolution};
use tower_agent_agui::{Message, RunAgentInput};
use tower_agent_conversations::{
    ConversationQuery, ConversationStore, Inbox, Question, Roles, Session, Thread,
};
use tower_agent_durable::Sqlite;
use tower_agent_durable::journal::{RunQuery, UnfinishedStep};

use crate::aged::a_minute_later;
use crate::answers::{Program, Way, run};
use crate::kept::{Kept, key};
use crate::support::answers::Case;
use crate::support::folder::Folder;
use crate::support::stops::{Point, Stops, Victim, paid};

const FOLDER: &str = "TOWER_AGENT_TEST_KILLED_ANSWERS";
const CASE: &str = "TOWER_AGENT_TEST_KILLED_ANSWERS_CASE";

/// The times that the tool is called, by the point at which the process is killed that has taken
/// the answer. A session and a thread alone do not know whether a call was made that had begun, and
/// never make it again; the model reads that.
fn calls(kept: Kept, point: Point) -> usize {
    match (kept, point) {
        (Kept::Session, Point::Taken | Point::Before) => 0,
        (Kept::Thread | Kept::ThreadAndJournal, Point::Taken | Point::Before) => 0,
        _ => 1,
    }
}

async fn open(folder: &Path, kept: Kept, at: Option<Point>) -> Program {
    Program {
        kept,
        case: Case::Once,
        database: Sqlite::open(folder.join("agent.db")).await.unwrap(),
        factor: 1,
        stops: Stops::paying_into(folder, at),
    }
}

/// Where a run without a conversation goes on.
fn from(folder: &Path) -> Checkpoint {
    let text = read_to_string(folder.join("from.json")).unwrap();
    serde_json::from_str(&text).unwrap()
}

/// The program: it takes the answer, and stops at its point.
#[test]
fn a_process_that_takes_an_answer() {
    let Some(folder) = std::env::var_os(FOLDER) else {
        return;
    };
    let folder = PathBuf::from(folder);
    let case = std::env::var(CASE).unwrap();
    let case: Vec<usize> = case
        .split(' ')
        .map(|index| index.parse().unwrap())
        .collect();
    let [kept, way, point] = case[..] else {
        panic!("{case:?}")
    };
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .unwrap();
    runtime.block_on(async {
        let program = open(&folder, Kept::ALL[kept], Some(Point::ALL[point])).await;
        let question = program.open().await.remove(0);
        program.stops.come(Point::Given).await;
        program
            .answer(Way::ALL[way], &question, &from(&folder))
            .await;
    });
    println!("\n#ended");
}

/// Kills a process that takes the answer when it has come to its point.
fn kill(folder: &Folder, case: [usize; 3]) {
    let case = case.map(|index| index.to_string()).join(" ");
    let variables = [(FOLDER, folder.file("").into()), (CASE, case.into())];
    drop(Victim::start(
        "killed_answers::a_process_that_takes_an_answer",
        &variables,
    ));
}

/// Plays the operator, who looks whether it was paid.
async fn operate(program: &Program, folder: &Path, question: Question) {
    let id = &*question.id;
    let answer = if paid(folder).is_empty() {
        UnfinishedStep::RunAgain
    } else {
        UnfinishedStep::Done(json!("paid"))
    };
    let operator = Roles::new([UnfinishedStep::ROLE]).named("olga");
    let answer = Resolution::resolved(id, answer);
    let inbox = program.inbox();
    inbox
        .answer(question.key, operator, answer)
        .await
        .unwrap()
        .await;
}

/// The user asks what has become of it. Returns what the agent says.
async fn ask_again(program: &Program) -> String {
    let database = &program.database;
    let agent = program.around(program.agent());
    if program.kept == Kept::Journal {
        let again = database.runs().request(run()).await.unwrap();
        return agent.oneshot(again).await.unwrap().text();
    }
    if program.kept.in_session() {
        let request = AgentRequest::new("And?").with_run_id("run 2");
        agent.oneshot(key().request(request)).await.unwrap();
        let session = Session::load(database, &key()).await.unwrap().unwrap();
        return session.checkpoint.messages.last().unwrap().text();
    }
    let input = RunAgentInput::new("1", "r3", [Message::user("m2", "And?")]);
    let server = program.server(program.agent());
    let run = server.run_for("ada", input).await.unwrap();
    drop(run.collect::<Vec<_>>().await);
    let threads = database.list(&ConversationQuery::new()).await.unwrap();
    let thread = Thread::load(database, &threads[0].key).await.unwrap();
    thread.unwrap().messages().last().unwrap().text()
}

async fn one(case: [usize; 3], wrong: &mut Vec<String>) {
    let kept = Kept::ALL[case[0]];
    let way = Way::ALL[case[1]];
    let point = Point::ALL[case[2]];
    let what = format!("{kept:?}, {way:?}, killed at {point:?}");
    let folder = Folder::new(&format!("killed-{}-{}-{}", case[0], case[1], case[2]));
    let root = folder.file("");
    let first = open(&root, kept, None).await;
    let asked = first.ask().await;
    let asked = serde_json::to_string(&asked).unwrap();
    std::fs::write(root.join("from.json"), asked).unwrap();
    let question = first.open().await.remove(0);
    first.database.close().await;

    kill(&folder, case);
    a_minute_later(&folder.file("agent.db")).await;

    let next = open(&root, kept, None).await;
    if kept.in_journal() {
        let agent = next.around(next.agent());
        let lost = RunQuery::of_agent("clerk");
        let runs = next.database.runs().resume_lost(&lost, agent).await;
        drop(runs.unwrap());
    }
    // Whoever has answered has heard nothing, and says it again.
    next.answer(way, &question, &from(&root)).await;
    for question in next.open().await {
        if question.interrupt.reason == UnfinishedStep::REASON {
            operate(&next, &root, question).await;
        }
    }
    let words = ask_again(&next).await;
    let calls = calls(kept, point);
    // What a session or a thread has not stored yet, nobody but a journal knows; and a thread is
    // not told of its journal's steps.
    let is_known = point == Point::Given || kept.in_journal() && !kept.in_thread();
    let is_told = words == "paid" && calls == 1 || !is_known && words.contains("is unknown");
    let open = next.open().await.len();
    let paid = paid(&root);
    if paid != vec!["ada 7"; calls] || !is_told || open > 0 {
        wrong.push(format!("{what}: paid {paid:?}, {open} open, {words}"));
    }
}

#[tokio::test]
async fn an_answer_whose_process_is_killed_counts_as_often_as_it_is_known_to() {
    let mut wrong = Vec::new();
    let mut number = 0;
    for (kept, keeper) in Kept::ALL.into_iter().enumerate() {
        for (way, on) in Way::ALL.into_iter().enumerate() {
            if !on.knows(keeper) {
                continue;
            }
            for point in 0..Point::ALL.len() {
                // Each way at some point, and each keeper at each.
                if number % sample(3, 1) == 0 {
                    one([kept, way, point], &mut wrong).await;
                }
                number += 1;
            }
        }
    }
    assert!(wrong.is_empty(), "{wrong:#?}");
}
