//! Data that a later version of this crate has written.

use serde_json::json;
use tower_agent::{AgentRequest, Effect};
use tower_agent_durable::journal::{
    Journal, JournalError, RunEnd, RunQuery, RunStatus, StepRecord, StepState,
};
use tower_agent_durable::{Sqlite, StoreError};
use tower_agent_middleware::approval::Approval;

use crate::support::conformance::{input, intent, record, step};
use crate::support::folder::Folder;
use crate::support::{Count, calling, counting, durable, request};

fn is_newer<T>(read: Result<T, JournalError>) -> bool {
    let newer = StoreError::NewerFormat {
        found: 2,
        newest: 1,
    }
    .to_string();
    read.is_err_and(
        |error| matches!(error, JournalError::Store(stored) if stored.to_string() == newer),
    )
}

#[tokio::test]
async fn a_record_of_a_later_version_is_an_error() {
    let journal = Sqlite::in_memory().await.unwrap();
    let run = journal
        .start(&input("Do it.", "run 1").await)
        .await
        .unwrap();
    let (step, intent) = (step("run 1", "agent/c0"), intent());
    let StepState::Fresh(lease) = journal.begin(&run, &step, &intent).await.unwrap() else {
        panic!()
    };
    let mut record = record(json!("Done."));
    record.version = StepRecord::VERSION + 1;
    journal.commit(&lease, &record).await.unwrap();
    assert!(is_newer(journal.begin(&run, &step, &intent).await));
    // For a journal of somebody else's.
    let kept = serde_json::to_value(&record).unwrap();
    let error = serde_json::from_value::<StepRecord>(kept).unwrap_err();
    assert!(
        error
            .to_string()
            .contains("format 2, but this version reads up to 1"),
        "{error}"
    );
}

#[tokio::test]
async fn an_end_and_a_request_of_a_later_version_are_errors_and_are_left_alone() {
    let folder = Folder::new("later");
    let database = Sqlite::open(folder.file("runs.db")).await.unwrap();
    let pay = Count::default();
    let agent = durable(calling(&["pay"], &Count::default()), database.clone())
        .tool(counting("pay", Effect::Mutating, &pay))
        .on_tool(Approval::of_tools(["pay"]))
        .build()
        .unwrap();
    agent.run(request()).await.unwrap();
    let runs = database.runs();
    let file = format!("sqlite:{}", folder.file("runs.db").display());
    let other = sqlx::SqlitePool::connect(&file).await.unwrap();
    let write = async |statement: &'static str| {
        let written = sqlx::query(statement).execute(&other).await.unwrap();
        assert_eq!(written.rows_affected(), 1);
    };

    write(
        r#"UPDATE tower_agent_run_inputs SET request = replace(request, '"version":1', '"version":2')"#,
    )
    .await;
    let error = runs.request("run 1").await.unwrap_err().to_string();
    assert!(
        error.contains("format 2, but this version of tower-agent reads up to 1"),
        "{error}"
    );
    write(
        r#"UPDATE tower_agent_run_inputs SET request = replace(request, '"version":2', '"version":1')"#,
    )
    .await;
    drop(runs.request("run 1").await.unwrap());

    write(
        r#"UPDATE tower_agent_runs SET ended = replace(ended, '{"version":1,"end"', '{"version":2,"end"'), summary = replace(summary, '"version":1', '"version":2') WHERE run = 'run 1'"#,
    )
    .await;
    assert!(is_newer(runs.get("run 1").await));
    assert!(is_newer(runs.request("run 1").await));
    // The others are seen, and that there is one more.
    agent.run(request().with_run_id("run 2")).await.unwrap();
    let seen = async || {
        let seen = runs.list(&RunQuery::new()).await.unwrap().into_iter();
        let seen = seen.map(|run| (run.id.to_string(), run.status, run.interrupts.len()));
        let mut seen: Vec<_> = seen.collect();
        seen.sort_by(|one, other| one.0.cmp(&other.0));
        seen
    };
    let two = ("run 2".to_owned(), RunStatus::Waiting, 1);
    assert_eq!(
        seen().await,
        [("run 1".to_owned(), RunStatus::Unreadable, 0), two.clone()]
    );
    assert_eq!(runs.steps("run 1").await.unwrap().len(), 1);
    let next = AgentRequest::new("Do more.").with_run_id("run 1");
    let error = agent.run(next).await.unwrap_err();
    assert!(
        error
            .message()
            .contains("format 2, but this version reads up to 1"),
        "{error}"
    );
    write(
        r#"UPDATE tower_agent_runs SET ended = replace(ended, '{"version":2,"end"', '{"version":1,"end"'), summary = replace(summary, '"version":2', '"version":1') WHERE run = 'run 1'"#,
    )
    .await;
    assert_eq!(runs.get("run 1").await.unwrap().status, RunStatus::Waiting);

    // Of a later version of what the end contains, which a list does not read.
    write(
        r#"UPDATE tower_agent_runs SET ended = replace(ended, '"checkpoint":{"head":{"version":1', '"checkpoint":{"head":{"version":2') WHERE run = 'run 1'"#,
    )
    .await;
    assert_eq!(
        seen().await,
        [("run 1".to_owned(), RunStatus::Waiting, 1), two.clone()]
    );
    let error = runs.request("run 1").await.unwrap_err().to_string();
    assert!(
        error.contains("format 2, but this version of tower-agent reads up to 1"),
        "{error}"
    );
    write(
        r#"UPDATE tower_agent_runs SET ended = replace(ended, '"checkpoint":{"head":{"version":2', '"checkpoint":{"head":{"version":1') WHERE run = 'run 1'"#,
    )
    .await;

    write("UPDATE tower_agent_runs SET status = 'dreaming' WHERE run = 'run 1'").await;
    assert_eq!(
        seen().await,
        [("run 1".to_owned(), RunStatus::Unreadable, 1), two]
    );
    assert_eq!(
        runs.get("run 1").await.unwrap().status,
        RunStatus::Unreadable
    );
    for error in [
        runs.request("run 1").await.unwrap_err().to_string(),
        agent.run(request()).await.unwrap_err().to_string(),
    ] {
        assert!(
            error.contains("`dreaming`, the status of run `run 1`"),
            "{error}"
        );
    }
    assert_eq!(pay.get(), 0);
    other.close().await;
}

#[test]
fn an_end_that_another_journal_keeps_is_not_read_if_it_is_of_a_later_version() {
    let kept = r#"{ "version": 2, "end": { "something": "else" } }"#;
    let error = serde_json::from_str::<RunEnd>(kept)
        .unwrap_err()
        .to_string();
    assert!(
        error.contains("format 2, but this version reads up to 1"),
        "{error}"
    );
}
