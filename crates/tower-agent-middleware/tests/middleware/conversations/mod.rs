//! Two conversations of one tenant at once, around which a cache is shared: what belongs to one
//! reaches no other, and each goes as it does without a cache.

mod cached;
mod world;

use proptest::prelude::*;

use self::world::{Case, Item, Person, Preset, Reading, Step, World};
use test_support::property::{cases, sample};

fn item() -> impl Strategy<Value = Item> {
    let redact = || {
        (any::<bool>(), any::<bool>(), any::<bool>(), any::<bool>()).prop_map(
            |(numbered, restores, input, global)| Item::Redact {
                numbered,
                restores,
                input,
                global,
            },
        )
    };
    prop_oneof![
        3 => Just(Item::CacheModel),
        3 => Just(Item::CacheTools),
        1 => Just(Item::CacheOneTool),
        2 => Just(Item::CacheHelper),
        5 => redact(),
        2 => Just(Item::Hide),
        1 => Just(Item::Retry),
        1 => Just(Item::Fallback),
        1 => Just(Item::Window),
    ]
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        3 => Just(Step::Own),
        2 => Just(Step::Other),
        4 => Just(Step::Balance),
        2 => Just(Step::Mail),
        2 => Just(Step::Zoe),
        3 => Just(Step::Helper),
    ]
}

fn case() -> impl Strategy<Value = Case> {
    let preset = prop::sample::select(vec![
        Preset::Default,
        Preset::Default,
        Preset::AdkPython,
        Preset::AdkElixir,
        Preset::Trpc,
        Preset::Potato,
    ]);
    let reading = || {
        (any::<bool>(), 0..4u64).prop_map(|(is_streamed, begins_after)| Reading {
            is_streamed,
            begins_after,
        })
    };
    let stack = prop::collection::vec(item(), 1..=6);
    let steps = prop::collection::vec(step(), 1..5);
    let before = prop::option::weighted(0.3, step());
    (
        stack,
        steps,
        before,
        any::<bool>(),
        preset,
        [reading(), reading()],
    )
        .prop_map(|(stack, steps, before, is_told, preset, readings)| Case {
            stack,
            steps,
            before,
            is_told,
            preset,
            readings,
        })
}

fn checked(case: &Case) -> Result<(), TestCaseError> {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_time()
        .start_paused(true)
        .build()
        .unwrap();
    runtime.block_on(async {
        let cached = World::run_both(case).await;
        let plain = World::run_both(&case.without_caches()).await;
        for (person, other) in [(Person::Ann, Person::Bob), (Person::Bob, Person::Ann)] {
            let seen = cached.seen_by(person);
            for value in other.values() {
                prop_assert!(
                    !seen.contains(value),
                    "{:?} has seen `{}`: {}",
                    person,
                    value,
                    seen
                );
            }
            prop_assert!(
                !seen.contains("nknown placeholder"),
                "{:?}: {}",
                person,
                seen
            );
            // The tools that have effects are called as they are without a cache, with what the
            // model has meant, and the answer is the same.
            prop_assert_eq!(
                cached.done_by(person),
                plain.done_by(person),
                "{:?}",
                person
            );
            prop_assert_eq!(cached.told(person), plain.told(person), "{:?}", person);
        }
        Ok(())
    })
}

proptest! {
    // A case is eight runs, so that a short test has fewer of them than others.
    #![proptest_config(ProptestConfig {
        cases: sample(100, 2000),
        max_shrink_iters: 2000,
        ..cases(2000)
    })]

    #[test]
    fn no_value_of_a_conversation_crosses_into_another(case in case()) {
        checked(&case)?;
    }
}
