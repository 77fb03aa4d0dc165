use std::fmt;
use std::fs::{File, OpenOptions};
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::str::FromStr;

/// The fate of a process, the first time that it is at a point of this name or number.
#[derive(Clone, Debug)]
pub(crate) struct Fate {
    what: What,
    at: String,
}

#[derive(Clone, Copy, Debug)]
enum What {
    Kill,
    Stop,
}

impl Fate {
    /// It is killed.
    pub(crate) fn kill(at: impl ToString) -> Self {
        Self {
            what: What::Kill,
            at: at.to_string(),
        }
    }

    /// It reports so, and its only thread does nothing until a test lets it [go on](go_on).
    pub(crate) fn stop(at: impl ToString) -> Self {
        Self {
            what: What::Stop,
            at: at.to_string(),
        }
    }

    pub(crate) fn is_at(&self, point: &str) -> bool {
        self.at == point
    }

    pub(crate) fn is_stop(&self) -> bool {
        matches!(self.what, What::Stop)
    }

    pub(crate) fn happen(&self, folder: &Path) {
        let me = std::process::id();
        if self.is_stop() {
            let gate = gate(folder, me);
            if !gate.exists() {
                assert!(
                    Command::new("mkfifo")
                        .arg(&gate)
                        .status()
                        .unwrap()
                        .success()
                );
            }
            report(&format!("stops at {}", self.at));
            // Waits until it is opened from the other side.
            File::open(gate).unwrap();
            return;
        }
        Command::new("kill")
            .args(["-KILL", &me.to_string()])
            .status()
            .unwrap();
        loop {
            std::thread::park();
        }
    }
}

/// As a test passes it to a process.
impl fmt::Display for Fate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?} {}", self.what, self.at)
    }
}

impl FromStr for Fate {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text.split_once(' ') {
            Some(("Kill", at)) => Ok(Self::kill(at)),
            Some(("Stop", at)) => Ok(Self::stop(at)),
            _ => Err(format!("no fate: {text}")),
        }
    }
}

/// Tells the test something, which reads lines that begin with `#`.
pub(crate) fn report(what: &str) {
    // Not what belongs to the test harness, which does not show it.
    let mut out = std::io::stdout();
    out.write_all(format!("\n#{what}\n").as_bytes())
        .and_then(|()| out.flush())
        .unwrap();
}

/// Lets a process go on that has reported that it stops.
pub(crate) fn go_on(folder: &Path, process: u32) {
    OpenOptions::new()
        .write(true)
        .open(gate(folder, process))
        .unwrap();
}

fn gate(folder: &Path, process: u32) -> PathBuf {
    folder.join(format!("{process} goes on"))
}
