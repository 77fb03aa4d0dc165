//! The shop in a browser, with its server in a process that is killed.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::env;
use std::path::{Path, PathBuf};
use std::process::Stdio;

use test_support::process::{free_port, is_installed};
use tokio::process::Command;

/// The actions of the customer and of support, as `shop.mjs` names them.
const STEPS: usize = 10;

#[tokio::test]
async fn a_refund_from_the_question_to_the_result_on_the_customers_page() {
    let folder =
        Path::new(env!("CARGO_MANIFEST_DIR")).join("../../crates/tower-agent-agui/tests/front_end");
    let driver = folder.join("node_modules/playwright-core");
    let browser = env::var_os("CHROMIUM").unwrap_or_else(|| "/usr/bin/chromium".into());
    if !is_installed("playwright-core", &driver, ".ci/agui")
        || !is_installed("Chromium", &PathBuf::from(&browser), ".ci/agui")
    {
        return;
    }
    let output = Command::new("node")
        .arg(folder.join("shop.mjs"))
        .arg(env!("CARGO_BIN_EXE_shop"))
        .arg(free_port().to_string())
        .arg(env!("CARGO_TARGET_TMPDIR"))
        .env("CHROMIUM", browser)
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
