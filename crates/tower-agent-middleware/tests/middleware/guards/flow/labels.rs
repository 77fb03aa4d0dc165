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
