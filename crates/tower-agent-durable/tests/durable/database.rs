//! What a file keeps, and who may open it.

use std::path::PathBuf;

use tower_agent_durable::Sqlite;

/// A folder of its own, removed at the end.
pub(crate) struct Folder(PathBuf);

impl Folder {
    pub(crate) fn new(name: &str) -> Self {
        let folder =
            std::env::temp_dir().join(format!("tower-agent-{name}-{}", std::process::id()));
        let _ = std::fs::remove_dir_all(&folder);
        std::fs::create_dir_all(&folder).unwrap();
        Self(folder)
    }

    /// Returns the path of a file, or of the folder itself.
    pub(crate) fn file(&self, name: &str) -> PathBuf {
        self.0.join(name)
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

#[tokio::test]
async fn a_file_is_created_and_opened_again_also_twice_at_once() {
    let folder = Folder::new("opened");
    let one = Sqlite::open(folder.file("a.db")).await.unwrap();
    let other = Sqlite::open(folder.file("a.db")).await.unwrap();
    one.close().await;
    other.close().await;
    Sqlite::open(folder.file("a.db")).await.unwrap();
}

#[tokio::test]
async fn a_file_that_cannot_be_opened_is_an_error() {
    let folder = Folder::new("unopened");
    let error = Sqlite::open(folder.file("missing/a.db")).await.unwrap_err();
    assert!(error.to_string().starts_with("the database failed: "), "{error}");
}
