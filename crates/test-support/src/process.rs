//! Third-party servers as child processes.

use std::io::{BufRead, BufReader, Write, pipe};
use std::net::{Ipv4Addr, SocketAddr, TcpListener};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicU16, Ordering};

/// A server that is killed on drop.
pub struct Process {
    child: Child,
    pub address: SocketAddr,
}

/// Returns `true` if a file exists that a test needs and `script` installs. Prints a message if
/// not, and panics if it is required.
pub fn is_installed(name: &str, file: &Path, script: &str) -> bool {
    if file.exists() {
        return true;
    }
    assert!(
        std::env::var_os("REQUIRE_SERVERS").is_none_or(|value| value != "1"),
        "{name} is not installed; run {script}",
    );
    // Bypasses the capture of the test harness, so that a skipped test is noticed.
    let line = format!("skipped: {name} is not installed; run {script}\n");
    let _ = std::io::stderr().write_all(line.as_bytes());
    false
}

/// Returns a port of the loopback on which nothing listens.
///
/// It lies below the ports that the system assigns by itself, so that it stays free until the
/// caller listens on it, also if a server there stops and starts again.
pub fn free_port() -> u16 {
    // Linux, macOS and Windows assign ports from 32768 upwards.
    const FIRST: u16 = 16384;
    const COUNT: u32 = 16384;
    static NEXT: AtomicU16 = AtomicU16::new(0);
    // Test binaries that run at the same time begin at different ports.
    let start = std::process::id().wrapping_mul(64);
    for _ in 0..COUNT {
        let next = start.wrapping_add(NEXT.fetch_add(1, Ordering::Relaxed).into());
        let port = FIRST + (next % COUNT) as u16;
        // Another program may listen there.
        if TcpListener::bind((Ipv4Addr::LOCALHOST, port)).is_ok() {
            return port;
        }
    }
    panic!("all ports are in use");
}

impl Process {
    /// Starts a server on a free port of the loopback, and waits until it prints `ready`.
    pub fn start(ready: &str, command: impl FnOnce(u16) -> Command) -> Self {
        let port = free_port();
        let (output, input) = pipe().unwrap();
        let child = command(port)
            .stdin(Stdio::null())
            .stdout(input.try_clone().unwrap())
            .stderr(input)
            .spawn()
            .unwrap();
        let process = Self {
            child,
            address: (Ipv4Addr::LOCALHOST, port).into(),
        };
        let mut lines = BufReader::new(output).lines().map_while(Result::ok);
        let mut printed = String::new();
        loop {
            let Some(line) = lines.next() else {
                panic!("the server did not start: {printed}")
            };
            printed.push_str(&line);
            printed.push('\n');
            if line.contains(ready) {
                break;
            }
        }
        // A full pipe would block the server, so that its output is read to the end.
        std::thread::spawn(move || lines.for_each(drop));
        process
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        // Both may fail for a server that has exited already.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
