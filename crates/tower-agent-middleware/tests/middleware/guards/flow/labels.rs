//! Labels: their algebra, and where they are kept.

use proptest::prelude::*;
use tower_agent_middleware::flow::{Integrity, Label, Readers};

fn labels() -> impl Strategy<Value = Label> {
    let readers = prop_oneof![
        Just(Readers::Anyone),
        proptest::collection::btree_set(prop_oneof![Just("a"), Just("b"), Just("c")], 0..3)
            .prop_map(Readers::only),
    ];
    (any::<bool>(), readers).prop_map(|(is_trusted, readers)| {
        let integrity = if is_trusted {
            Integrity::Trusted
        } else {
            Integrity::Untrusted
        };
        Label::trusted()
            .with_integrity(integrity)
            .with_readers(readers)
    })
}

proptest! {
    #[test]
    fn labels_are_a_lattice(a in labels(), b in labels(), c in labels()) {
        prop_assert_eq!(a.join(&b), b.join(&a));
        prop_assert_eq!(a.join(&b).join(&c), a.join(&b.join(&c)));
        prop_assert_eq!(a.join(&a), a.clone());
        prop_assert_eq!(a.join(&Label::trusted()), a.clone());
        prop_assert!(a.is_within(&a.join(&b)));
        prop_assert_eq!(a.is_within(&b) && b.is_within(&a), a == b);
        let json = serde_json::to_string(&a).unwrap();
        prop_assert_eq!(serde_json::from_str::<Label>(&json).unwrap(), a);
    }
}

#[tokio::test]
async fn a_result_is_as_bad_as_its_worst_part() {
    use serde_json::json;
    use tower_agent_test::{ScriptedModel, Turn};

    use super::*;

    let calendar = || {
        ToolFlow::trusted()
            .label_at("/*/title", Label::untrusted())
            .label_at("/*/title/lang", Label::trusted())
    };
    let tool = || {
        Tool::function(
            "calendar",
            "",
            |_: Value| json!([{ "id": "7", "title": { "text": SECRET, "lang": "en" } }]),
        )
    };
    for (to, pays) in [
        ("@m1.0#/0/id", true),
        ("@m1.0#/0/title/lang", true),
        ("@m1.0#/0/title/text", false),
    ] {
        let log = Log::default();
        let model = ScriptedModel::new([
            Turn::tool("calendar", json!({})),
            Turn::tool("pay", json!({ "to": reference(to), "amount": 5 })),
            Turn::tool("echo", json!({ "it": reference("@m1.0") })),
            Turn::from_text("Done."),
        ]);
        let agent = assistant(&model, &log)
            .tool(tool())
            .global_callbacks(hiding().tool("calendar", calendar()))
            .build()
            .unwrap();
        agent.run("?").await.unwrap();
        assert!(!read(&model.requests()).contains("SECRET"));
        assert_eq!(log.take().len(), 1 + usize::from(pays), "{to}");
    }

    // Read as a whole, it taints.
    let log = Log::default();
    let model = ScriptedModel::new([
        Turn::tool("calendar", json!({})),
        Turn::tool("pay", pay_mallory()),
        Turn::from_text("Done."),
    ]);
    let agent = assistant(&model, &log)
        .tool(tool())
        .global_callbacks(flow().tool("calendar", calendar()))
        .build()
        .unwrap();
    agent.run("?").await.unwrap();
    assert_eq!(log.take(), [""; 0]);
}
