//! Servers that nobody here wrote, as child processes.

use std::io::Read;
use std::net::{Ipv4Addr, SocketAddr, TcpListener};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

/// A server that is ended when this is dropped.
pub struct Process {
    child: Child,
    pub address: SocketAddr,
}

/// Where the servers are installed.
pub fn servers() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/servers")
}

/// Whether the file that a server needs is there; says loudly if not, and fails if it must be.
pub fn is_installed(name: &str, file: &Path) -> bool {
    if file.exists() {
        return true;
    }
    assert!(
        std::env::var_os("REQUIRE_SERVERS").is_none_or(|value| value != "1"),
        "{name} is not installed; run .ci/servers",
    );
    // Past the capture of the test harness, so that a skipped test is seen.
    let line = format!("skipped: {name} is not installed; run .ci/servers\n");
    let _ = std::io::Write::write_all(&mut std::io::stderr(), line.as_bytes());
    false
}

impl Process {
    /// Starts a server on a free port of the loopback, and waits until it answers there.
    pub async fn start(command: impl FnOnce(u16) -> Command) -> Self {
        let port = {
            let probe = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
            probe.local_addr().unwrap().port()
        };
        let child = command(port)
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let mut process = Self { child, address: (Ipv4Addr::LOCALHOST, port).into() };
        let deadline = Instant::now() + Duration::from_secs(60);
        while !process.answers().await {
            if process.child.try_wait().unwrap().is_some() || Instant::now() > deadline {
                let _ = process.child.kill();
                let mut said = String::new();
                process.child.stderr.take().unwrap().read_to_string(&mut said).unwrap();
                panic!("the server did not start: {said}");
            }
            tokio::task::yield_now().await;
        }
        // Nobody reads it any more, and a full pipe would stop the server.
        let mut rest = process.child.stderr.take().unwrap();
        std::thread::spawn(move || std::io::copy(&mut rest, &mut std::io::sink()));
        process
    }

    /// Whether it answers any HTTP request, which is later than that it listens.
    async fn answers(&self) -> bool {
        let Ok(mut socket) = TcpStream::connect(self.address).await else { return false };
        let request = b"GET / HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n\r\n";
        let mut first = [0];
        socket.write_all(request).await.is_ok() && socket.read_exact(&mut first).await.is_ok()
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
