//! What a decision costs, as far as it can be counted exactly.

use serde_json::json;
use test_support::log::Log;
use test_support::property::sample;
use tower_agent_policy::{Case, Principal, Rulebook};

use crate::world::{builder, tools};

/// Twenty rules about refunds, and these.
fn rulebook(others: impl IntoIterator<Item = String>) -> Rulebook {
    let mut rules = String::new();
    for number in 0..20 {
        rules.push_str(&format!(
            "permit(principal in Role::\"r{number}\", action == Action::\"refund\", resource)\n\
             when {{ context.input.cents <= {number} }};\n"
        ));
    }
    rules.extend(others);
    let tools = tools(&Log::default());
    builder(&tools).rules("rules", rules).build().unwrap()
}

/// A rule for each of many users.
fn of_users(tool: &str) -> impl Iterator<Item = String> {
    (0..sample(500, 10_000)).map(move |number| {
        format!(
            "permit(principal == User::\"u{number}\", action == Action::\"{tool}\", resource);\n"
        )
    })
}

/// Returns the number of allocations of a decision.
fn allocations(book: &Rulebook) -> u64 {
    let ann = Principal::new("User", "ann").within("Role", "r7");
    let case = Case::new(ann, "refund", json!({ "order": "o-1", "cents": 5 }));
    // The first one fills what is kept.
    assert!(book.decide(&case).is_allowed());
    let counted = allocation_counter::measure(|| {
        book.decide(&case).assert_allowed();
    });
    counted.count_total
}

#[test]
fn rules_about_other_tools_and_for_others_cost_a_call_nothing() {
    let few = allocations(&rulebook([]));
    for tool in ["look", "refund"] {
        let many = allocations(&rulebook(of_users(tool)));
        // Some hash with random keys.
        assert!(
            many <= few + few / 20,
            "{few} by 20 rules, {many} beside those about `{tool}`"
        );
    }
}
