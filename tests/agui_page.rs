//! The example's page in a browser, with the example's server behind it.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

#[path = "../examples/agui_server/app.rs"]
mod app;
#[path = "../examples/quickstart/callbacks.rs"]
mod callbacks;
#[path = "../examples/agui_server/notes.rs"]
mod notes;
#[path = "../examples/agui_server/offline.rs"]
mod offline;
#[path = "../examples/quickstart/rules/mod.rs"]
mod rules;
#[path = "../examples/agui_server/session.rs"]
mod session;
mod support;
#[path = "../examples/quickstart/tools.rs"]
mod tools;

use std::path::{Path, PathBuf};
use std::process::Stdio;

use tokio::net::TcpListener;
use tokio::process::Command;

use self::app::app;
use self::offline::Offline;
use self::support::process::is_installed;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_person_at_the_page_can_do_all_that_it_offers() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/agui");
    let driver = folder.join("node_modules/playwright-core");
    let browser = std::env::var_os("CHROMIUM").unwrap_or_else(|| "/usr/bin/chromium".into());
    if !is_installed("playwright-core", &driver, ".ci/agui")
        || !is_installed("Chromium", &PathBuf::from(&browser), ".ci/agui")
    {
        return;
    }
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let base = format!("http://{}", listener.local_addr().unwrap());
    let server = tokio::spawn(async move { axum::serve(listener, app(Offline).unwrap()).await });

    let screenshots = Path::new(env!("CARGO_TARGET_TMPDIR")).join("agui_page");
    let output = Command::new("node")
        .arg(folder.join("page.mjs"))
        .arg(base)
        .arg(screenshots)
        .env("CHROMIUM", browser)
        .stdin(Stdio::null())
        .kill_on_drop(true)
        .output()
        .await
        .unwrap();

    let said = String::from_utf8_lossy(&output.stdout);
    let complained = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{said}\n{complained}");
    assert_eq!(said.lines().filter(|line| line.starts_with("ok ")).count(), 16, "{said}");
    server.abort();
}
