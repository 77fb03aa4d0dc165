//! A last write that did not reach the disk whole.

use std::path::Path;

use super::kill::{end, process, spent};
use super::world::World;
use crate::database::Folder;

fn copy(from: &Path, to: &Path, log: &[u8]) {
    for entry in std::fs::read_dir(from).unwrap() {
        let file = entry.unwrap().file_name();
        // What is in memory is not on the disk.
        if !file.to_str().unwrap().ends_with("-shm") {
            std::fs::copy(from.join(&file), to.join(&file)).unwrap();
        }
    }
    std::fs::write(to.join("runs.db-wal"), log).unwrap();
}

#[tokio::test]
async fn a_torn_last_write_loses_no_more_than_itself() {
    let whole = Folder::new("torn-never");
    assert!(process(&whole.file(""), None).success());
    let expected = end(&whole.file(""));

    // Killed after a call that changes something was kept.
    let (cut, mut at) = (Folder::new("torn"), 0);
    for line in std::fs::read_to_string(whole.file("points")).unwrap().lines() {
        let (point, what) = line.split_once(' ').unwrap();
        if what == "has committed 1 tool boss/c4" {
            at = point.parse().unwrap();
        }
    }
    assert!(!process(&cut.file(""), Some(at)).success());
    let log = std::fs::read(cut.file("runs.db-wal")).unwrap();
    // A frame is a page and its head; the last write may have several.
    let frame = 4096 + 24;
    let last = log.len() - frame;
    let steps = (0..frame).step_by(103).chain([1, 23, 24, 25, frame - 1, frame]);
    let torn = steps.map(|kept| log[..last + kept].to_vec());
    let flipped = [30, frame / 2, frame - 1].map(|at| {
        let mut log = log.clone();
        log[last + at] ^= 1;
        log
    });
    let mut lost = 0;
    for (number, log) in torn.chain(flipped).enumerate() {
        let folder = Folder::new(&format!("torn-{number}"));
        copy(&cut.file(""), &folder.file(""), &log);
        World::new(&folder.file(""), None).go_on().await.unwrap();
        assert_eq!(end(&folder.file("")), expected, "{number}");
        assert!(!spent(&folder.file("")).is_empty());
        lost += std::fs::read_to_string(folder.file("asked")).map_or(0, |it| it.lines().count());
    }
    // Whoever keeps what was done elsewhere was asked, for each but the whole log.
    assert!(lost > 40, "{lost}");
}
