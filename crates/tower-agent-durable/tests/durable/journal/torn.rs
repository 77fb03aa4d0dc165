//! A last write that did not reach the disk whole.

use std::path::Path;

use super::program::Program;
use crate::support::fate::Fate;
use crate::support::kills::{end, lines, spent};

fn copy(from: &Path, to: &Path, log: &[u8]) {
    for entry in std::fs::read_dir(from).unwrap() {
        let file = entry.unwrap().file_name();
        // Data in memory is not on the disk.
        if !file.to_str().unwrap().ends_with("-shm") {
            std::fs::copy(from.join(&file), to.join(&file)).unwrap();
        }
    }
    std::fs::write(to.join("runs.db-wal"), log).unwrap();
}

#[test]
fn a_torn_last_write_loses_no_more_than_itself() {
    let whole = Program::in_file();
    assert!(whole.run(None).success());
    let expected = end(&whole.folder());

    // Killed after a call that changes something was kept.
    let cut = Program::in_file();
    assert!(
        !cut.run(Some(Fate::kill("has committed 1 tool boss/m2.0")))
            .success()
    );
    let cut = cut.folder();
    let log = std::fs::read(cut.join("runs.db-wal")).unwrap();
    // A frame is a page and its head; the last write may have several.
    let frame = 4096 + 24;
    let last = log.len() - frame;
    let steps = (0..frame)
        .step_by(103)
        .chain([1, 23, 24, 25, frame - 1, frame]);
    let torn = steps.map(|kept| log[..last + kept].to_vec());
    let flipped = [30, frame / 2, frame - 1].map(|at| {
        let mut log = log.clone();
        log[last + at] ^= 1;
        log
    });
    let mut lost = 0;
    for (number, log) in torn.chain(flipped).enumerate() {
        let program = Program::in_file();
        let root = program.folder();
        copy(&cut, &root, &log);
        assert!(program.run(None).success(), "{number}");
        assert_eq!(end(&root), expected, "{number}");
        assert!(!spent(&root).is_empty());
        lost += lines(&root, "asked").len();
    }
    // Whoever keeps what was done elsewhere was asked, for each but the whole log.
    assert!(lost > 40, "{lost}");
}
