//! Teams that run one agent for each task of a list.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use futures::StreamExt;
use test_support::team::{agent, saying, texts};
use tower_agent::agent::{AgentBuilder, TeamBuilder};
use tower_agent::callback::before_agent;
use tower_agent::stream::EventKind;
use tower_agent::{
    Agent, AgentRequest, Checkpoint, Error, ErrorKind, Message, ModelRequest, ModelResponse,
    Request, Result,
};
use tower_agent_test::{ScriptedModel, Turn};

/// A worker that needs so many seconds for a task, and says what it was.
fn worker(seconds: fn(&str) -> u64, answer: fn(&str) -> Result<String>) -> AgentBuilder {
    let model = tower::service_fn(move |request: ModelRequest| async move {
        let task = request.messages().last().map(Message::text);
        let task = task.unwrap_or_default();
        tokio::time::sleep(Duration::from_secs(seconds(&task))).await;
        answer(&task).map(ModelResponse::from_text)
    });
    Agent::builder(model).name("worker")
}

fn done(task: &str) -> Result<String> {
    Ok(format!("{task} is done"))
}

/// A team with a task for each word of the last message.
fn each_word(worker: AgentBuilder) -> TeamBuilder {
    Agent::for_each("team", worker.build().unwrap(), |request: &AgentRequest| {
        let words = request.messages().last().map(Message::text);
        let words = words.unwrap_or_default();
        Ok(words
            .split_whitespace()
            .map(str::to_owned)
            .collect::<Vec<_>>())
    })
}

#[tokio::test(start_paused = true)]
async fn a_list_in_an_earlier_answer_is_worked_off_in_its_order() {
    let paths = Arc::new(Mutex::new(Vec::new()));
    let seen = paths.clone();
    let worker = worker(|task| 9 - task.len() as u64, done);
    let worker = worker.on_agent(before_agent(move |request| {
        let context = request.context();
        let name = context.agent().to_owned();
        seen.lock().unwrap().push((name, context.call_path()));
    }));
    let team = Agent::sequential("all")
        .agent(agent("planner", &saying("a bb ccc", 0)))
        .agent(each_word(worker).build().unwrap())
        .agent(agent("writer", &saying("a report", 0)))
        .build()
        .unwrap();

    let response = team.run("?").await.unwrap();

    let expected = [
        "a bb ccc",
        "a",
        "a is done",
        "bb",
        "bb is done",
        "ccc",
        "ccc is done",
        "a report",
    ];
    assert_eq!(texts(&response), expected);
    let ids: std::collections::HashSet<_> = response
        .messages()
        .iter()
        .map(|message| message.id().unwrap())
        .collect();
    assert_eq!(ids.len(), response.messages().len());
    let mut paths = std::mem::take(&mut *paths.lock().unwrap());
    paths.sort();
    let path = |name: &str| (name.to_owned(), format!("all/team/{name}"));
    assert_eq!(paths, ["worker.0", "worker.1", "worker.2"].map(path));
}

#[tokio::test(start_paused = true)]
async fn at_most_so_many_tasks_run_at_once() {
    let running = Arc::new(AtomicUsize::new(0));
    let most = Arc::new(AtomicUsize::new(0));
    let (count, peak) = (running.clone(), most.clone());
    let model = tower::service_fn(move |_: ModelRequest| {
        let (count, peak) = (count.clone(), peak.clone());
        async move {
            peak.fetch_max(count.fetch_add(1, Ordering::SeqCst) + 1, Ordering::SeqCst);
            tokio::time::sleep(Duration::from_secs(1)).await;
            count.fetch_sub(1, Ordering::SeqCst);
            Ok::<_, Error>(ModelResponse::from_text("done"))
        }
    });
    let tasks = "1 2 3 4 5 6 7 8 9 10 11 12";
    for (concurrency, expected) in [(None, 8), (Some(3), 3), (Some(1), 1), (Some(99), 12)] {
        let team = each_word(Agent::builder(model.clone()).name("worker"));
        let team = match concurrency {
            Some(most) => team.concurrency(most),
            None => team,
        };
        let response = team.build().unwrap().run(tasks).await.unwrap();
        assert_eq!(response.new_messages().len(), 24);
        assert_eq!(most.swap(0, Ordering::SeqCst), expected);
    }
    assert_eq!(running.load(Ordering::SeqCst), 0);
}

#[tokio::test]
async fn a_list_that_cannot_be_made_fails_the_team() {
    let of = |make: fn(&AgentRequest) -> Result<Vec<String>>| {
        let worker = worker(|_| 0, done).build().unwrap();
        Agent::for_each("team", worker, make).build().unwrap()
    };
    let error = of(|_| Ok(serde_json::from_str("no list")?)).run("?").await;
    assert_eq!(error.unwrap_err().kind(), ErrorKind::Other);
    let error = of(|_| panic!("no list")).run("?").await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Callback);
    assert!(error.message().contains("no list"), "{error}");

    let response = of(|_| Ok(Vec::new())).run("?").await.unwrap();
    assert_eq!(
        (response.new_messages().len(), response.text()),
        (0, String::new())
    );
}

#[tokio::test(start_paused = true)]
async fn a_run_that_was_dropped_goes_on_with_the_tasks_that_are_not_done() {
    let tasks = "1 2 3 4 5 6";
    let begun = Arc::new(Mutex::new(Vec::new()));
    let team = || {
        let begun = begun.clone();
        let worker = worker(|_| 1, done).on_model(tower_agent::callback::before_model(
            move |request: &mut ModelRequest| {
                let task = request.messages().last().map(Message::text);
                begun.lock().unwrap().extend(task);
            },
        ));
        each_word(worker).concurrency(2).build().unwrap()
    };
    let mut run = team().stream(tasks);
    let mut finished = 0;
    while let Some(event) = run.next().await {
        if let EventKind::AgentFinished { .. } = event.kind {
            finished += 1;
            if finished == 3 {
                break;
            }
        }
    }
    let saved = serde_json::to_string(&run.checkpoint()).unwrap();
    drop(run);
    begun.lock().unwrap().clear();

    let checkpoint: Checkpoint = serde_json::from_str(&saved).unwrap();
    let response = team().run(AgentRequest::resume(checkpoint)).await.unwrap();
    let again = std::mem::take(&mut *begun.lock().unwrap());
    assert!(again.len() <= 3, "{again:?}");
    let alone = team().run(tasks).await.unwrap();
    assert_eq!(texts(&response), texts(&alone));
}

#[tokio::test(start_paused = true)]
async fn tasks_that_fail_are_left_out_if_they_may() {
    let answer = |task: &str| match task {
        "2" => Err(Error::new(ErrorKind::Provider, "ill")),
        _ => done(task),
    };
    let team = || each_word(worker(|_| 1, answer));
    let error = team().build().unwrap().run("1 2 3").await.unwrap_err();
    assert_eq!(&*error.call().unwrap().agent, "team/worker.1");

    let team = team().allow_failures().build().unwrap();
    let response = team.run("1 2 3").await.unwrap();
    assert_eq!(texts(&response), ["1", "1 is done", "3", "3 is done"]);
}

#[tokio::test]
async fn a_user_message_begins_a_new_list() {
    let team = each_word(worker(|_| 0, done)).build().unwrap();
    let first = team.run("1 2").await.unwrap();
    let request = AgentRequest::resume(first.checkpoint()).with_message("3");
    let second = team.run(request).await.unwrap();
    assert_eq!(texts(&second), ["3", "3 is done"]);
    assert_eq!(second.messages().len(), 8);
}

#[test]
fn explain_shows_the_worker_once() {
    let worker = agent("worker", &ScriptedModel::new([Turn::pending()]));
    let team = Agent::for_each("team", worker, |_| Ok(["task"]))
        .concurrency(4)
        .allow_failures()
        .build()
        .unwrap();
    let shown = team.explain().to_string();
    let plan = "once for each task, in parallel, 4 at a time, without those that fail";
    assert!(shown.contains(plan), "{shown}");
}
