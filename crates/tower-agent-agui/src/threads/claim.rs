use futures_util::FutureExt;
use futures_util::future::BoxFuture;

use super::store::{BoxStore, ThreadKey};
use super::thread::Thread;
use tower_agent::error::BoxError;

/// The save that starts a run. If the request is dropped meanwhile, the run does not start and its
/// claim is released, as for a run that broke off.
pub(super) struct Claim {
    saving: Option<BoxFuture<'static, Result<bool, BoxError>>>,
    store: BoxStore,
    key: ThreadKey,
    thread: Thread,
}

impl Claim {
    pub(super) fn new(store: BoxStore, key: ThreadKey, thread: Thread) -> Self {
        let claim = (store.clone(), key.clone(), thread.clone());
        let saving = async move { claim.0.save(&claim.1, claim.2).await };
        Self {
            saving: Some(Box::pin(saving)),
            store,
            key,
            thread,
        }
    }

    pub(super) async fn save(mut self) -> Result<bool, BoxError> {
        let saved = match &mut self.saving {
            Some(saving) => saving.await,
            None => Ok(false),
        };
        self.saving = None;
        saved
    }
}

impl Drop for Claim {
    fn drop(&mut self) {
        let Some(saving) = self.saving.take() else {
            return;
        };
        let store = self.store.clone();
        let key = self.key.clone();
        let version = self.thread.version + 1;
        let thread = Thread {
            version,
            is_cut: true,
            running: None,
            ..self.thread.clone()
        };
        finish(Box::pin(async move {
            if saving.await? {
                store.save(&key, thread).await?;
            }
            Ok(())
        }));
    }
}

/// Saves the progress of a run whose client has disconnected, at once or in a task.
pub(crate) fn finish(mut saving: BoxFuture<'static, Result<(), BoxError>>) {
    let log = |result: Result<(), BoxError>| {
        if let Err(error) = result {
            tracing::error!(%error, "failed to save the progress of a run");
        }
    };
    match (&mut saving).now_or_never() {
        Some(result) => log(result),
        None => match tokio::runtime::Handle::try_current() {
            Ok(runtime) => drop(runtime.spawn(async move { log(saving.await) })),
            Err(_) => tracing::error!("failed to save the progress of a run: no runtime"),
        },
    }
}
