//! Both sides against the official conformance suite, at three protocol versions.
//!
//! What a server of agents and its client do in another way than the suite's is named in
//! `decisions-*.yml`, with the reason. The suite fails if anything else fails, and also if
//! something named there passes. Scenarios of extensions belong to no version. Of those, client
//! credentials are run; neither side has skills, our server no tasks, and our client no other proof
//! of who it is. Tasks of a server have tests of their own.

mod client;
mod server;

use std::path::{Path, PathBuf};

use axum::Router;
use tokio::process::Command;

use crate::http::Http;
use crate::installed::{installed, node};

/// The versions of the suite's scenarios.
const VERSIONS: [&str; 3] = ["2025-06-18", "2025-11-25", "2026-07-28"];

/// Runs one side of the suite. `subject` says what is under test.
async fn run(side: &str, version: &str, subject: [&str; 2]) {
    let Some(suite) = installed("@modelcontextprotocol/conformance/dist/index.js") else {
        return;
    };
    let decisions = format!("tests/mcp/conformance/decisions-{version}.yml");
    let results = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join(format!("{side}-{version}"));
    // Results of an earlier run would be read as those of this one.
    let _ = std::fs::remove_dir_all(&results);
    let mut command = Command::new(node());
    command.arg(suite).arg(side).args(subject);
    command.args(["--suite", "all", "--spec-version", version]);
    command
        .arg("--expected-failures")
        .arg(Path::new(env!("CARGO_MANIFEST_DIR")).join(decisions));
    command.arg("--output-dir").arg(results);
    // The machine may be busy.
    command
        .args(["--timeout", "60000"])
        .env("RUST_BACKTRACE", "0")
        .kill_on_drop(true);
    let output = command.output().await.unwrap();
    let said = String::from_utf8_lossy(&output.stdout);
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{said}\n{errors}");
    // It would also succeed if it ran nothing.
    assert!(
        said.contains("tools_call: ") || said.contains("tools-list: "),
        "{said}"
    );
}

#[tokio::test]
async fn the_client_passes_the_suite() {
    let program = std::env::current_exe().unwrap();
    let test = "conformance::runs_as_the_client --exact --ignored --nocapture";
    let command = format!("{} {test}", program.display());
    for version in VERSIONS {
        run("client", version, ["--command", &command]).await;
    }
}

#[tokio::test]
async fn the_client_passes_the_extension_of_client_credentials() {
    let Some(suite) = installed("@modelcontextprotocol/conformance/dist/index.js") else {
        return;
    };
    let program = std::env::current_exe().unwrap();
    let test = "conformance::runs_as_the_client --exact --ignored --nocapture";
    let command = format!("{} {test}", program.display());
    let output = Command::new(node())
        .arg(suite)
        .args(["client", "--command", &command])
        .args(["--scenario", "auth/client-credentials-basic"])
        .args(["--timeout", "60000"])
        .kill_on_drop(true)
        .output()
        .await
        .unwrap();
    let said = String::from_utf8_lossy(&output.stdout);
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{said}\n{errors}");
}

#[tokio::test]
async fn the_server_passes_the_suite() {
    for version in VERSIONS {
        let service = server::server().unwrap().into_http();
        let http = Http::serve(Router::new().route_service("/mcp", service)).await;
        run(
            "server",
            version,
            ["--url", &format!("http://{}/mcp", http.address)],
        )
        .await;
    }
}

#[tokio::test]
#[ignore = "the client that the suite starts; its last argument is the server's URL"]
async fn runs_as_the_client() {
    if std::env::var_os("MCP_CONFORMANCE_SCENARIO").is_some() {
        client::run(&std::env::args().next_back().unwrap())
            .await
            .unwrap();
    }
}
