//! Entities of the application: who is in which role, and what belongs to whom.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use serde_json::{Value, json};
use test_support::log::Log;
use tower_agent::{Agent, BoxError};
use tower_agent_policy::{EntitySource, Loaded, Principal, Rulebook};
use tower_agent_test::{ScriptedModel, Turn};

use crate::world::{ANN, SAM, Seen, asked_by, builder, calling, refund, run, tools};

/// What a source does when it is asked for the n-th time.
type Answer = fn(usize, Option<&str>) -> Option<Result<Loaded, BoxError>>;

struct Directory {
    asked: Arc<AtomicUsize>,
    answer: Answer,
}

impl EntitySource for Directory {
    async fn load(&self, _: &Principal, known: Option<&str>) -> Result<Loaded, BoxError> {
        let time = self.asked.fetch_add(1, Ordering::Relaxed);
        match (self.answer)(time, known) {
            Some(answer) => answer,
            None => std::future::pending().await,
        }
    }
}

/// The chief is whoever the directory says.
const RULES: &str = r#"
@id("chiefs") permit(principal in Role::"chief", action == Action::"refund", resource);
"#;

fn chief(name: &str) -> Value {
    json!([{
        "uid": { "type": "User", "id": name },
        "attrs": {},
        "parents": [{ "type": "Role", "id": "chief" }],
    }])
}

fn book(answer: Answer) -> (Rulebook, Arc<AtomicUsize>) {
    let asked = Arc::<AtomicUsize>::default();
    let tools = tools(&Log::default());
    let book = builder(&tools)
        .rules("shop.cedar", RULES)
        .entities(Directory {
            asked: asked.clone(),
            answer,
        })
        .build()
        .unwrap();
    (book, asked)
}

async fn refunds(book: &Rulebook, times: usize) -> (Seen, Vec<String>) {
    let log = Log::default();
    let turns = (0..times).map(|_| Turn::tool("refund", refund(1).1));
    let model = ScriptedModel::new(turns.chain([Turn::from_text("done")]));
    let agent = Agent::builder(model)
        .tools(tools(&log))
        .global_callbacks(book.enforce())
        .build()
        .unwrap();
    let seen = run(&agent, asked_by(&ANN)).await;
    (seen, log.take())
}

#[tokio::test]
async fn what_has_not_changed_is_not_loaded_again() {
    let (book, asked) = book(|_, known| {
        Some(Ok(match known {
            Some("1") => Loaded::Unchanged,
            _ => Loaded::new("1", chief("ann")),
        }))
    });
    let (seen, made) = refunds(&book, 3).await;
    assert_eq!(made.len(), 3);
    assert_eq!(seen.decisions(), ["allowed chiefs"; 3]);
    // Once for the tools that the model sees, and once for each call.
    assert_eq!(asked.load(Ordering::Relaxed), 4);
}

#[tokio::test]
async fn a_role_that_was_taken_away_counts_from_the_next_call_on() {
    let (book, _) = book(|time, _| {
        Some(Ok(match time {
            0 | 1 => Loaded::new("1", chief("ann")),
            _ => Loaded::new("2", json!([])),
        }))
    });
    let (seen, made) = refunds(&book, 2).await;
    assert_eq!(made.len(), 1);
    assert_eq!(
        seen.decisions(),
        ["allowed chiefs", "refused: not_permitted"]
    );
}

#[tokio::test(start_paused = true)]
async fn a_source_that_fails_or_hangs_or_lies_refuses() {
    let fails: Answer = |_, _| Some(Err("the database is away".into()));
    let hangs: Answer = |_, _| None;
    let says_nothing: Answer = |_, _| Some(Ok(Loaded::Unchanged));
    let says_nonsense: Answer = |_, _| Some(Ok(Loaded::new("1", json!({ "no": "list" }))));
    let of_another_type: Answer = |_, _| {
        Some(Ok(Loaded::new(
            "1",
            json!([{ "uid": { "type": "Dragon", "id": "x" }, "attrs": {}, "parents": [] }]),
        )))
    };
    let twice: Answer = |_, _| {
        let ann = chief("ann");
        Some(Ok(Loaded::new(
            "1",
            json!([ann[0], { "uid": ann[0]["uid"], "attrs": {}, "parents": [] }]),
        )))
    };
    for answer in [
        fails,
        hangs,
        says_nothing,
        says_nonsense,
        of_another_type,
        twice,
    ] {
        let (book, _) = book(answer);
        let (seen, made) = refunds(&book, 1).await;
        assert!(made.is_empty());
        assert_eq!(seen.decisions(), ["refused: no_entities"]);
        assert_eq!(
            seen.results(),
            ["refused: it could not be decided whether the rules allow `refund`"]
        );
    }
}

#[tokio::test(start_paused = true)]
async fn a_version_that_never_changes_counts_for_a_time_only() {
    // It says that nothing has changed as long as anything is known.
    let (book, _) = book(|time, known| {
        Some(Ok(match known {
            Some(_) => Loaded::Unchanged,
            None if time < 2 => Loaded::new("1", chief("ann")),
            None => Loaded::new("1", json!([])),
        }))
    });
    let (_, made) = refunds(&book, 2).await;
    assert_eq!(made.len(), 2);
    tokio::time::advance(Duration::from_secs(301)).await;
    let (seen, made) = refunds(&book, 1).await;
    assert!(made.is_empty());
    assert_eq!(seen.decisions(), ["refused: not_permitted"]);
}

#[tokio::test]
async fn two_users_at_once_have_their_own_entities() {
    let (book, _) = book(|_, _| Some(Ok(Loaded::new("1", chief("ann")))));
    let log = Log::default();
    let agent = |model| {
        Agent::builder(model)
            .tools(tools(&log))
            .global_callbacks(book.enforce())
            .build()
            .unwrap()
    };
    let (ann, sam) = (
        agent(calling([refund(1), refund(2)])),
        agent(calling([refund(3), refund(4)])),
    );
    let (of_ann, of_sam) = futures::join!(run(&ann, asked_by(&ANN)), run(&sam, asked_by(&SAM)));
    assert_eq!(of_ann.decisions(), ["allowed chiefs"; 2]);
    assert_eq!(of_sam.decisions(), ["refused: not_permitted"; 2]);
    let mut made = log.take();
    made.sort();
    assert_eq!(made, ["refund o-1 1", "refund o-1 2"]);
}

/// An attribute that both give would have to be one of the two.
#[tokio::test]
async fn what_run_and_source_both_say_is_a_refusal() {
    let tools = tools(&Log::default());
    let book = Rulebook::builder()
        .schema(
            "s",
            "entity Role; entity User in [Role] = { tenant: String };",
        )
        .tools(&crate::world::declarations(&tools))
        .principals(["User"], |_| {
            Some(Principal::new("User", "ann").attribute("tenant", "one"))
        })
        .rules("r", "permit(principal, action, resource);")
        .entities(Directory {
            asked: Arc::default(),
            answer: |_, _| {
                let user = json!([{
                    "uid": { "type": "User", "id": "ann" },
                    "attrs": { "tenant": "two" },
                    "parents": [],
                }]);
                Some(Ok(Loaded::new("1", user)))
            },
        })
        .build()
        .unwrap();
    let (seen, made) = refunds(&book, 1).await;
    assert!(made.is_empty());
    assert_eq!(seen.decisions(), ["refused: no_entities"]);
}
