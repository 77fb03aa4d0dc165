//! The journal holds nothing that a redaction hides.

use std::sync::{Arc, Mutex};

use serde_json::Value;
use tower_agent::{Effect, Tool};
use tower_agent_durable::Sqlite;
use tower_agent_middleware::redact::{Detector, Redact};

use super::remembering::Remembering;
use crate::support::{Count, calling, durable, request};

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
async fn redacted_values_are_in_the_private_state_alone() {
    let given = Arc::<Mutex<Vec<Value>>>::default();
    let inner = Sqlite::in_memory().await.unwrap();
    let journal = Remembering {
        inner,
        given: given.clone(),
    };
    let redact = Redact::new([Detector::email()])
        .unwrap()
        .numbered()
        .restore_when(|_| true);
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
