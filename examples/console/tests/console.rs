//! The console's page in a browser, with its server in a process that is killed.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::env;
use std::path::{Path, PathBuf};
use std::process::Stdio;

use test_support::process::is_installed;
use tokio::process::Command;

/// The actions of somebody on duty, as `console.mjs` names them.
const STEPS: usize = 18;

#[tokio::test]
async fn somebody_on_duty_can_do_all_that_the_page_offers_with_the_keyboard() {
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
        .arg(folder.join("console.mjs"))
        .arg("-")
        .arg(Path::new(env!("CARGO_TARGET_TMPDIR")).join("console_page"))
        .arg(env!("CARGO_BIN_EXE_console"))
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
    let steps = printed.lines().filter(|line| line.starts_with("ok "));
    assert_eq!(steps.count(), STEPS, "{printed}");
}
