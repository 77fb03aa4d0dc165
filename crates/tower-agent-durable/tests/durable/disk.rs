//! A disk with little space.

use std::fs::File;
use std::io::Write;
use std::path::PathBuf;
use std::process::Command;

use crate::support::folder::Folder;

const SIZE: u64 = 4 << 20;

/// A disk of 4 MiB, in memory.
pub(crate) struct SmallDisk(Folder);

impl SmallDisk {
    /// Mounts one; without the right to do so it returns none, after saying so.
    pub(crate) fn mount(name: &str) -> Option<Self> {
        let folder = Folder::new(name);
        let mut mount = Command::new("mount");
        mount
            .args(["-t", "tmpfs", "-o", &format!("size={SIZE}"), "tmpfs"])
            .arg(folder.file(""));
        if mount.output().is_ok_and(|output| output.status.success()) {
            return Some(Self(folder));
        }
        eprintln!("skipped: mounting a small disk needs root");
        None
    }

    pub(crate) fn file(&self, name: &str) -> PathBuf {
        self.0.file(name)
    }

    /// Fills it until this many bytes are left, or all that there are.
    pub(crate) fn fill(&self, left: u64) {
        let mut filler = File::create(self.file("filler")).unwrap();
        let block = [1; 4096];
        while filler.write_all(&block).is_ok() {}
        let filled = filler.metadata().unwrap().len();
        filler.set_len(filled.saturating_sub(left)).unwrap();
    }

    /// Frees the space again.
    pub(crate) fn free(&self) {
        let filler = self.file("filler");
        // Emptied first: a process that another test starts at this moment may have it open.
        File::create(&filler).unwrap();
        std::fs::remove_file(filler).unwrap();
    }
}

impl Drop for SmallDisk {
    fn drop(&mut self) {
        let _ = Command::new("umount")
            .arg("--lazy")
            .arg(self.file(""))
            .output();
    }
}
