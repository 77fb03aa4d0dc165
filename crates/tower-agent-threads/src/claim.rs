use futures_util::future::BoxFuture;

use tower_agent::error::BoxError;

use crate::key::ThreadKey;
use crate::store::BoxStore;
use crate::thread::Thread;

/// The save that starts a run. If the request is dropped meanwhile, the run does not start and its
/// claim is released, as for a run that broke off.
pub(crate) struct Claim {
    saving: Option<BoxFuture<'static, Result<Option<u64>, BoxError>>>,
    store: BoxStore,
    key: ThreadKey,
    thread: Thread,
}

impl Claim {
    pub(crate) fn new(store: BoxStore, key: ThreadKey, thread: Thread) -> Self {
        let saving = {
            let store = store.clone();
            let key = key.clone();
            let thread = thread.clone();
            async move { store.save(&key, thread).await }
        };
        Self {
            saving: Some(Box::pin(saving)),
            store,
            key,
            thread,
        }
    }

    /// Returns the version of the claimed thread, or `None` if another run was faster.
    pub(crate) async fn save(mut self) -> Result<Option<u64>, BoxError> {
        let saved = match &mut self.saving {
            Some(saving) => saving.await,
            None => Ok(None),
        };
        // Not before the save has ended: until then, `drop` must finish and undo it.
        self.saving = None;
        saved
    }
}

impl Drop for Claim {
    fn drop(&mut self) {
        let Some(saving) = self.saving.take() else {
            return;
        };
        // A save that is dropped halfway may still be made. So it is finished, and undone if it was
        // made.
        let store = self.store.clone();
        let key = self.key.clone();
        let mut thread = Thread {
            is_cut: true,
            running: None,
            ..self.thread.clone()
        };
        let released = {
            let store = store.clone();
            async move {
                if let Some(version) = saving.await? {
                    thread.version = version;
                    store.save(&key, thread).await?;
                }
                Ok(())
            }
        };
        store.saving(released).detach();
    }
}
