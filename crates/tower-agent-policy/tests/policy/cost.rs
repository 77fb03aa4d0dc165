//! What a decision costs, as far as it can be counted exactly.

use serde_json::json;
use test_support::log::Log;
use test_support::property::sample;
use tower_agent_policy::{Case, Principal, Rulebook};

use crate::world::{builder, tools};

/// Rules about refunds, and so many about another tool.
fn rulebook(others: usize) -> Rulebook {
    let mut rules = String::new();
    for number in 0..20 {
        rules.push_str(&format!(
            "permit(principal in Role::\"r{number}\", action == Action::\"refund\", resource)\n\
             when {{ context.input.cents <= {number} }};\n"
        ));
    }
    for number in 0..others {
        rules.push_str(&format!(
            "permit(principal == User::\"u{number}\", action == Action::\"look\", resource);\n"
        ));
    }
    let tools = tools(&Log::default());
    builder(&tools).rules("rules", rules).build().unwrap()
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
fn rules_about_other_tools_cost_a_call_nothing() {
    let (few, many) = (rulebook(0), rulebook(sample(500, 10_000)));
    // Some hash with random keys.
    let (few, many) = (allocations(&few), allocations(&many));
    assert!(
        many <= few + few / 20,
        "{few} by 20 rules, {many} beside others"
    );
}
