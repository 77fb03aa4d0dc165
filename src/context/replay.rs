//! The amounts that calls have recorded, handed back when their effects are applied.

use std::collections::HashMap;
use std::sync::{Arc, Mutex};

use super::effects::Amounts;
use crate::lock::lock;

type Handler = Arc<dyn Fn(&[Arc<str>], &Amounts) + Send + Sync>;

/// The handlers of a run by name, with what was applied before they were registered.
#[derive(Default)]
pub(super) struct ReplayHandlers(Mutex<HashMap<Arc<str>, Entry>>);

#[derive(Default)]
struct Entry {
    handler: Option<Handler>,
    pending: Vec<(Arc<[Arc<str>]>, Amounts)>,
}

impl ReplayHandlers {
    pub(super) fn register(&self, name: Arc<str>, handler: Handler) -> bool {
        // The handler is code of others: it runs without the lock, which it may need itself.
        let pending = {
            let mut entries = lock(&self.0);
            let entry = entries.entry(name).or_default();
            if entry.handler.is_some() {
                return false;
            }
            entry.handler = Some(handler.clone());
            std::mem::take(&mut entry.pending)
        };
        for (calls, amounts) in &pending {
            handler(calls, amounts);
        }
        true
    }

    /// Hands over what was recorded, now or once there is a handler. `calls` begins with the call.
    pub(super) fn replay(&self, name: &Arc<str>, calls: &Arc<[Arc<str>]>, amounts: &Amounts) {
        let handler = {
            let mut entries = lock(&self.0);
            let entry = entries.entry(name.clone()).or_default();
            if entry.handler.is_none() {
                entry.pending.push((calls.clone(), amounts.clone()));
            }
            entry.handler.clone()
        };
        if let Some(handler) = handler {
            handler(calls, amounts);
        }
    }
}
