//! What the journal has of what a redaction hides.

use std::sync::{Arc, Mutex};

use serde_json::Value;
use tower_agent::middleware::redact::{Detector, Redact};
use tower_agent::{Effect, Tool};
use tower_agent_durable::Sqlite;
use tower_agent_durable::journal::{
    Begun, Input, Intent, Journal, JournalError, Lease, OpenRun, Record, RunEnd, StepId,
};

use super::{Count, calling, durable, request};

/// A journal that remembers what it was given.
#[derive(Clone)]
struct Remembering {
    inner: Sqlite,
    given: Arc<Mutex<Vec<Value>>>,
}

impl Remembering {
    fn remember(&self, given: &impl serde::Serialize) {
        self.given.lock().unwrap().push(serde_json::to_value(given).unwrap());
    }
}

impl Journal for Remembering {
    async fn start(&self, input: &Input) -> Result<OpenRun, JournalError> {
        self.remember(&input.request);
        self.inner.start(input).await
    }

    async fn begin(
        &self,
        run: &OpenRun,
        step: &StepId,
        intent: &Intent,
    ) -> Result<Begun, JournalError> {
        self.remember(intent);
        self.inner.begin(run, step, intent).await
    }

    async fn begin_again(&self, lease: Lease) -> Result<Lease, JournalError> {
        self.inner.begin_again(lease).await
    }

    async fn commit(&self, lease: &Lease, record: &Record) -> Result<(), JournalError> {
        self.remember(record);
        self.inner.commit(lease, record).await
    }

    async fn release(&self, lease: &Lease) -> Result<(), JournalError> {
        self.inner.release(lease).await
    }

    async fn end(&self, run: &OpenRun, end: &RunEnd) -> Result<(), JournalError> {
        self.remember(end);
        self.inner.end(run, end).await
    }
}

/// Removes the private state, wherever it is.
fn without_private_state(value: &mut Value) {
    match value {
        Value::Object(object) => {
            object.remove("private_state");
            object.values_mut().for_each(without_private_state);
        }
        Value::Array(values) => values.iter_mut().for_each(without_private_state),
        _ => {}
    }
}

#[tokio::test]
async fn what_is_redacted_is_in_the_private_state_alone() {
    let given = Arc::<Mutex<Vec<Value>>>::default();
    let inner = Sqlite::in_memory().await.unwrap();
    let journal = Remembering { inner, given: given.clone() };
    let redact = Redact::new([Detector::email()]).unwrap().numbered().restore_when(|_| true);
    let find = Tool::function("find", "Finds.", |_: Value| "Write to ann@example.com.");
    let agent = durable(calling(&["find"], &Count::default()), journal)
        .callbacks(redact)
        .tool(find.effect(Effect::Pure))
        .build()
        .unwrap();
    agent.run(request()).await.unwrap();
    let all = std::mem::take(&mut *given.lock().unwrap());
    let has_secret = |value: &Value| value.to_string().contains("ann@example.com");
    assert!(all.iter().any(has_secret));
    for mut value in all {
        without_private_state(&mut value);
        assert!(!has_secret(&value), "{value}");
    }
}
