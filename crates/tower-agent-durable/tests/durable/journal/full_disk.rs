//! A disk that is full in the middle of a run.

use std::sync::Arc;

use tower_agent::Error;
use tower_agent_durable::journal::{JournalError, RunQuery};
use tower_agent_durable::{Sqlite, StoreError};

use super::breaking::World;
use crate::disk::SmallDisk;
use crate::support::journal_error;

fn check(error: &Error) {
    let database = matches!(
        journal_error(error),
        JournalError::Store(StoreError::Database(_))
    );
    assert!(database, "{error}");
    assert!(error.message().contains("disk is full"), "{error}");
    assert!(
        error.message().ends_with("it goes on where it stopped"),
        "{error}"
    );
    assert!(
        error.to_string().contains(" of agent `agent`: aborted: "),
        "{error}"
    );
}

/// Makes a run whose disk is full from each of these operations on, until it has failed.
async fn make(disk: &Arc<SmallDisk>, full_at: &[usize]) -> (World, Vec<String>) {
    let (file, world) = (disk.file("runs.db"), World::default());
    let database = Sqlite::open(&file).await.unwrap();
    let (fills, at) = (disk.clone(), full_at.to_vec());
    let agent = world.agent(database.clone(), move |number| {
        if at.contains(&number) {
            fills.fill(0);
        }
    });
    let (runs, mut failed) = (database.runs(), 0);
    let repair = async |error| {
        check(&error);
        failed += 1;
        // Started without space, it does nothing.
        let made = world.made();
        check(&world.go_on(&agent, &runs).await.unwrap_err());
        assert_eq!(world.made(), made);
        disk.free();
    };
    let transcript = world.finish(&agent, &runs, repair).await;
    assert!(
        failed > 0 || full_at.is_empty(),
        "full at {full_at:?} of {:?}",
        world.operations()
    );
    database.close().await;
    std::fs::remove_file(file).unwrap();
    (world, transcript)
}

#[tokio::test]
async fn a_run_whose_disk_is_full_at_any_operation_goes_on_with_more_space() {
    let Some(disk) = SmallDisk::mount("full-runs").map(Arc::new) else {
        return;
    };
    let (whole, expected) = make(&disk, &[]).await;
    let operations = whole.operations();
    let ends_of_charge = operations
        .iter()
        .position(|operation| operation == "commit charge")
        .unwrap();
    let (asks, _) = make(&disk, &[ends_of_charge]).await;
    let once = (0..operations.len()).map(|at| vec![at]);
    // And again while it goes on with a call that was not finished.
    let twice = (ends_of_charge + 1..asks.operations().len()).map(|at| vec![ends_of_charge, at]);
    for full_at in once.chain(twice) {
        let (world, transcript) = make(&disk, &full_at).await;
        assert_eq!(
            transcript,
            expected,
            "full at {full_at:?} of {:?}",
            world.operations()
        );
        let times = (world.times("charge"), world.times("pay"));
        assert_eq!(times, (1, 1), "full at {full_at:?}");
        if let [at] = full_at[..] {
            match &*operations[at] {
                "commit pay" => assert_eq!(world.asked(), 1),
                "begin pay" | "end" => assert_eq!(world.asked(), 0),
                _ => {}
            }
        }
    }
}

#[tokio::test]
async fn a_file_that_is_created_on_a_full_disk_is_an_error_and_opens_with_more_space() {
    let Some(disk) = SmallDisk::mount("full-opened") else {
        return;
    };
    let mut failed = 0;
    for left in (0..).step_by(4096) {
        let file = disk.file(&format!("{left}.db"));
        disk.fill(left);
        let opened = Sqlite::open(&file).await;
        disk.free();
        if let Ok(database) = opened {
            database.close().await;
            break;
        }
        failed += 1;
        assert!(matches!(opened, Err(StoreError::Database(_))), "{opened:?}");
        let database = Sqlite::open(&file).await.unwrap();
        assert!(
            database
                .runs()
                .list(&RunQuery::new())
                .await
                .unwrap()
                .is_empty()
        );
        database.close().await;
        std::fs::remove_file(file).unwrap();
    }
    assert!(failed > 3, "{failed}");
}
