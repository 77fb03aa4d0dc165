//! A store of conversations whose writes a test delays or fails.

use std::sync::atomic::{AtomicUsize, Ordering};

use futures::future::BoxFuture;
use tower_agent_conversations::{
    Append, ConversationInfo, ConversationKey, ConversationQuery, ConversationStore,
    MemoryConversations, StoreError, StoredConversation,
};

/// The outcome of a write.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fate {
    Made,
    Failed,
    /// It is made, and nobody hears of it.
    Unheard,
    /// Another writer was faster.
    Conflict,
}

/// A write, as its fate is decided.
#[derive(Clone, Debug)]
pub struct Write {
    /// The number of the write, from 0.
    pub number: usize,
    pub expected: u64,
    pub append: Append,
}

type FateOf = Box<dyn Fn(Write) -> BoxFuture<'static, Fate> + Send + Sync>;

/// A store in memory. The function decides each write, and may wait first.
pub struct FatedStore {
    store: MemoryConversations,
    fate_of: FateOf,
    writes: AtomicUsize,
    yields: bool,
}

impl FatedStore {
    pub fn new<F: Future<Output = Fate> + Send + 'static>(
        fate_of: impl Fn(Write) -> F + Send + Sync + 'static,
    ) -> Self {
        Self {
            store: MemoryConversations::new(),
            fate_of: Box::new(move |write| Box::pin(fate_of(write))),
            writes: AtomicUsize::new(0),
            yields: false,
        }
    }

    /// A store that takes its time, before and after it does something.
    pub fn slow() -> Self {
        Self {
            yields: true,
            ..Self::new(async |_| Fate::Made)
        }
    }

    /// The number of writes that were tried.
    pub fn writes(&self) -> usize {
        self.writes.load(Ordering::SeqCst)
    }

    async fn wait(&self) {
        if self.yields {
            yield_now().await;
        }
    }
}

/// Also outside a runtime.
async fn yield_now() {
    let mut has_yielded = false;
    futures::future::poll_fn(|cx| {
        if std::mem::replace(&mut has_yielded, true) {
            return std::task::Poll::Ready(());
        }
        cx.waker().wake_by_ref();
        std::task::Poll::Pending
    })
    .await;
}

fn failed() -> StoreError {
    StoreError::database("the disk is full")
}

impl ConversationStore for FatedStore {
    async fn load(
        &self,
        key: &ConversationKey,
        from: usize,
    ) -> Result<Option<StoredConversation>, StoreError> {
        self.wait().await;
        let found = self.store.load(key, from).await;
        self.wait().await;
        found
    }

    async fn append(
        &self,
        key: &ConversationKey,
        expected: u64,
        append: Append,
    ) -> Result<u64, StoreError> {
        self.wait().await;
        let write = Write {
            number: self.writes.fetch_add(1, Ordering::SeqCst),
            expected,
            append: append.clone(),
        };
        let fate = (self.fate_of)(write).await;
        match fate {
            Fate::Failed => return Err(failed()),
            Fate::Conflict => return Err(StoreError::Conflict { expected }),
            Fate::Made | Fate::Unheard => {}
        }
        let written = self.store.append(key, expected, append).await;
        self.wait().await;
        if fate == Fate::Unheard {
            return Err(failed());
        }
        written
    }

    async fn list(&self, query: &ConversationQuery) -> Result<Vec<ConversationInfo>, StoreError> {
        self.wait().await;
        self.store.list(query).await
    }

    async fn delete(&self, key: &ConversationKey) -> Result<bool, StoreError> {
        self.wait().await;
        self.store.delete(key).await
    }

    async fn delete_expired(&self) -> Result<u64, StoreError> {
        self.store.delete_expired().await
    }
}

/// Shows each run that has a conversation as one whose lease has ended: for a test in which its
/// process is lost.
#[derive(Clone, Debug)]
pub struct EndedLeases<S>(pub S);

impl<S: ConversationStore> ConversationStore for EndedLeases<S> {
    async fn load(
        &self,
        key: &ConversationKey,
        from: usize,
    ) -> Result<Option<StoredConversation>, StoreError> {
        let Some(mut stored) = self.0.load(key, from).await? else {
            return Ok(None);
        };
        let mut head: serde_json::Value = serde_json::from_str(&stored.head).unwrap();
        if let Some(until) = head.pointer_mut("/claim/until") {
            *until = 0.into();
            stored.head = head.to_string();
        }
        Ok(Some(stored))
    }

    async fn append(
        &self,
        key: &ConversationKey,
        expected: u64,
        append: Append,
    ) -> Result<u64, StoreError> {
        self.0.append(key, expected, append).await
    }

    async fn list(&self, query: &ConversationQuery) -> Result<Vec<ConversationInfo>, StoreError> {
        self.0.list(query).await
    }

    async fn delete(&self, key: &ConversationKey) -> Result<bool, StoreError> {
        self.0.delete(key).await
    }

    async fn delete_expired(&self) -> Result<u64, StoreError> {
        self.0.delete_expired().await
    }
}
