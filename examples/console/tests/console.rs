//! The console's page in a browser, with its server in a process that is killed.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::env;
use std::path::{Path, PathBuf};
use std::process::Stdio;

use test_support::process::is_installed;
use tokio::process::Command;

#[tokio::test]
async fn somebody_on_duty_can_do_all_that_the_page_offers_with_the_keyboard() {
    walks(
        "console.mjs",
        env!("CARGO_BIN_EXE_console"),
        "console_page",
        20,
    )
    .await;
}

#[tokio::test]
async fn a_page_with_much_in_it_is_small() {
    walks(
        "long.mjs",
        env!("CARGO_BIN_EXE_console-long"),
        "console_long",
        8,
    )
    .await;
}

/// Takes all the steps of a script in a browser.
async fn walks(script: &str, server: &str, pictures: &str, steps: usize) {
    let folder =
        Path::new(env!("CARGO_MANIFEST_DIR")).join("../../crates/tower-agent-agui/tests/front_end");
    let browser = env::var_os("CHROMIUM").unwrap_or_else(|| "/usr/bin/chromium".into());
    for (name, file) in [
        (
            "playwright-core",
            folder.join("node_modules/playwright-core"),
        ),
        ("axe-core", folder.join("node_modules/axe-core")),
        ("Chromium", PathBuf::from(&browser)),
    ] {
        if !is_installed(name, &file, ".ci/agui") {
            return;
        }
    }
    let output = Command::new("node")
        .arg(folder.join(script))
        .arg("-")
        .arg(Path::new(env!("CARGO_TARGET_TMPDIR")).join(pictures))
        .arg(server)
        .env("CHROMIUM", browser)
        .env("ROUNDS", "1")
        .stdin(Stdio::null())
        .kill_on_drop(true)
        .output()
        .await
        .unwrap();
    let printed = String::from_utf8_lossy(&output.stdout);
    let complaints = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{printed}\n{complaints}");
    let taken = printed.lines().filter(|line| line.starts_with("ok "));
    assert_eq!(taken.count(), steps, "{printed}");
}
