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

/// Returns whether a file that a test needs and `script` installs exists; prints a message if not,
/// and fails if it is required.
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
/// The system gives it to no connection, and to nobody who asks for any port: it stays free until
/// whoever is told of it listens, also if that stops and starts again.
pub fn free_port() -> u16 {
    // Below those that Linux, macOS and Windows give away.
    const FIRST: u16 = 16384;
    const COUNT: u32 = 16384;
    static NEXT: AtomicU16 = AtomicU16::new(0);
    // Processes at the same time begin at different ones.
    let start = std::process::id().wrapping_mul(64);
    let mut ports = (0..COUNT).map(|_| {
        let next = start.wrapping_add(NEXT.fetch_add(1, Ordering::Relaxed).into());
        FIRST + (next % COUNT) as u16
    });
    let is_free = |port: &u16| TcpListener::bind((Ipv4Addr::LOCALHOST, *port)).is_ok();
    ports.find(is_free).unwrap()
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
        let mut said = String::new();
        loop {
            let Some(line) = lines.next() else {
                panic!("the server did not start: {said}")
            };
            said.push_str(&line);
            said.push('\n');
            if line.contains(ready) {
                break;
            }
        }
        // A full pipe would block the server.
        std::thread::spawn(move || lines.for_each(drop));
        process
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
