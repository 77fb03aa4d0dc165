//! Random rules, entities and calls: the same decisions as Cedar's evaluator, called by hand.

use std::cell::Cell;
use std::collections::BTreeSet;
use std::str::FromStr;

use cedar_policy::{
    Authorizer, Context, Decision, Entities, EntityUid, PolicySet, Request, Schema,
};
use proptest::prelude::*;
use proptest::test_runner::{Config, TestRunner};
use serde_json::{Value, json};
use test_support::log::Log;
use test_support::property::{cases, sample};
use tower_agent_policy::{Case, Principal, RefusalReason, Rulebook};

use crate::world::{builder, tools};

/// A part of a condition, with the JSON of what may make it fail left in: strict checking leaves
/// only such as can be evaluated.
fn atom() -> impl Strategy<Value = String> {
    prop_oneof![
        (0_i64..4).prop_map(|cents| format!("context.input.cents > {cents}")),
        (0_i64..3).prop_map(|calls| format!("context.session.calls >= {calls}")),
        Just("context.input.order == \"o-1\"".to_owned()),
        Just("context.input.order like \"o-*\"".to_owned()),
        Just("(context.input has note && context.input.note == \"x\")".to_owned()),
        Just("principal in Role::\"support\"".to_owned()),
        Just("principal == User::\"ann\"".to_owned()),
        Just("resource.effect == \"mutating\"".to_owned()),
        Just("context.session.agent == \"boss\"".to_owned()),
        Just("context.session.streamed".to_owned()),
        // Adds up to more than a number can be: an error when it is evaluated.
        Just("context.input.cents + 9223372036854775807 > 0".to_owned()),
        Just("context.session.time > datetime(\"1970-01-01T00:00:01Z\")".to_owned()),
    ]
}

fn condition() -> impl Strategy<Value = String> {
    atom().prop_recursive(3, 8, 2, |inner| {
        prop_oneof![
            (inner.clone(), inner.clone()).prop_map(|(a, b)| format!("({a} && {b})")),
            (inner.clone(), inner.clone()).prop_map(|(a, b)| format!("({a} || {b})")),
            inner.prop_map(|a| format!("!({a})")),
        ]
    })
}

/// A policy about refunds, perhaps among others.
fn policy() -> impl Strategy<Value = (bool, String)> {
    let principal = prop_oneof![
        Just("principal"),
        Just("principal == User::\"ann\""),
        Just("principal in Role::\"support\""),
        Just("principal is User"),
        Just("principal is User in Role::\"customer\""),
    ];
    let action = prop_oneof![
        4 => Just("action == Action::\"refund\""),
        1 => Just("action in [Action::\"refund\"]"),
    ];
    let kind = prop_oneof![Just("when"), Just("unless")];
    let is_permit = prop_oneof![3 => Just(true), 2 => Just(false)];
    let conditions = prop::collection::vec((kind, condition()), 0..3);
    (is_permit, principal, action, conditions).prop_map(
        |(is_permit, principal, action, conditions)| {
            let effect = if is_permit { "permit" } else { "forbid" };
            let mut text = format!("{effect}({principal}, {action}, resource)");
            for (kind, condition) in conditions {
                text.push_str(&format!("\n{kind} {{ {condition} }}"));
            }
            (is_permit, text + ";")
        },
    )
}

/// Policies about other tools, which must not matter.
fn others() -> impl Strategy<Value = Vec<String>> {
    let other = prop_oneof![
        Just("permit(principal, action == Action::\"look\", resource);"),
        Just("forbid(principal, action in Action::\"effect:pure\", resource);"),
        Just("forbid(principal, action in Action::\"results:all\", resource);"),
        Just(
            "permit(principal, action in Action::\"effect:mutating\", resource) when { principal in Role::\"support\" };"
        ),
        Just("forbid(principal, action, resource) when { principal == User::\"eve\" };"),
    ];
    prop::collection::vec(other.prop_map(str::to_owned), 0..4)
}

#[derive(Clone, Debug)]
struct Call {
    user: &'static str,
    roles: BTreeSet<&'static str>,
    order: &'static str,
    cents: i64,
    note: Option<&'static str>,
    calls: u32,
    agent: &'static str,
}

fn call() -> impl Strategy<Value = Call> {
    let roles = prop::collection::btree_set(prop_oneof![Just("support"), Just("customer")], 0..3);
    let user = prop_oneof![Just("ann"), Just("sam"), Just("eve")];
    let order = prop_oneof![Just("o-1"), Just("x")];
    let note = prop_oneof![Just(None), Just(Some("x")), Just(Some("y"))];
    let agent = prop_oneof![Just("boss"), Just("agent")];
    (user, roles, order, 0_i64..5, note, 0_u32..4, agent).prop_map(
        |(user, roles, order, cents, note, calls, agent)| Call {
            user,
            roles,
            order,
            cents,
            note,
            calls,
            agent,
        },
    )
}

impl Call {
    fn input(&self) -> Value {
        let mut input = json!({ "order": self.order, "cents": self.cents });
        if let Some(note) = self.note {
            input["note"] = note.into();
        }
        input
    }

    fn case(&self) -> Case {
        let principal = Principal::new("User", self.user);
        let principal = self
            .roles
            .iter()
            .fold(principal, |principal, role| principal.within("Role", *role));
        Case::new(principal, "refund", self.input())
            .calls(self.calls)
            .agent(self.agent)
    }

    /// Decides by Cedar alone: from JSON, over all policies.
    fn by_hand(&self, schema: &Schema, policies: &PolicySet) -> (Decision, bool) {
        let uid = |text: &str| EntityUid::from_str(text).unwrap();
        let action = uid("Action::\"refund\"");
        let parents: Vec<_> = self
            .roles
            .iter()
            .map(|role| json!({ "type": "Role", "id": role }))
            .collect();
        let entities = json!([
            { "uid": { "type": "User", "id": self.user }, "attrs": {}, "parents": parents },
            {
                "uid": { "type": "Tool", "id": "refund" },
                "attrs": { "effect": "mutating", "agent": false, "others": false },
                "parents": [],
            },
        ]);
        let entities = Entities::from_json_value(entities, Some(schema)).unwrap();
        let context = json!({
            "input": self.input(),
            "session": {
                "time": "1970-01-01T00:00:00.000Z",
                "calls": self.calls,
                "conversation_calls": self.calls,
                "iteration": 0,
                "agent": self.agent,
                "streamed": false,
            },
        });
        let context = Context::from_json_value(context, Some((schema, &action))).unwrap();
        let request = Request::new(
            uid(&format!("User::\"{}\"", self.user)),
            action,
            uid("Tool::\"refund\""),
            context,
            Some(schema),
        )
        .unwrap();
        let response = Authorizer::new().is_authorized(&request, policies, &entities);
        let has_failed = response.diagnostics().errors().next().is_some();
        (response.decision(), has_failed)
    }
}

#[test]
fn decisions_are_those_of_cedar() {
    let all = tools(&Log::default());
    let book = builder(&all).build().unwrap();
    let schema = Schema::from_str(book.schema()).unwrap();
    // Each set is asked about some calls.
    let strategy = (
        prop::collection::vec(policy(), 0..6),
        others(),
        prop::collection::vec(call(), 4),
    );
    let decided: [Cell<u32>; 3] = Default::default();
    let count = |at: usize| decided[at].set(decided[at].get() + 1);
    let mut runner = TestRunner::new(Config {
        cases: sample(200, 100_000),
        ..cases(1)
    });
    runner
        .run(&strategy, |(own, others, calls)| {
            let texts = own.iter().map(|(_, text)| text).chain(&others);
            let text = texts.cloned().collect::<Vec<_>>().join("\n");
            // What can never apply is refused when it is loaded, and is not our subject here.
            if let Err(error) = book.reload([("r", &*text)]) {
                let text = error.to_string();
                let is_impossible = error
                    .problems()
                    .iter()
                    .all(|problem| problem.message.contains("impossible"));
                prop_assert!(is_impossible, "{text}");
                return Ok(());
            }
            let policies = PolicySet::from_str(&text).unwrap();
            for call in &calls {
                let ruling = book.decide(&call.case());
                let (by_hand, has_failed) = call.by_hand(&schema, &policies);
                // The one difference: what cannot be evaluated is a refusal, and not left out.
                if has_failed {
                    prop_assert_eq!(ruling.refusal(), Some(RefusalReason::RuleFailed));
                    count(2);
                    continue;
                }
                // What may be called is shown.
                prop_assert!(!ruling.is_allowed() || book.is_shown(&call.case()));
                prop_assert_eq!(
                    ruling.is_allowed(),
                    by_hand == Decision::Allow,
                    "{:?}",
                    ruling
                );
                count(usize::from(ruling.is_allowed()));
            }
            Ok(())
        })
        .unwrap();
    println!("refused, allowed, failed: {decided:?}");
    assert!(decided.iter().all(|count| count.get() > 0), "{decided:?}");
}

#[test]
fn a_rulebook_is_the_same_whatever_stands_beside_it() {
    let all = tools(&Log::default());
    let load = |rules: &str| -> Rulebook { builder(&all).rules("r", rules).build().unwrap() };
    let few = load("@id(\"a\") permit(principal, action == Action::\"refund\", resource);");
    let mut many =
        String::from("@id(\"a\") permit(principal, action == Action::\"refund\", resource);");
    for number in 0..200 {
        many.push_str(&format!(
            "\n@id(\"{number}\") forbid(principal == User::\"u{number}\", action == Action::\"look\", resource);"
        ));
    }
    let many = load(&many);
    let case = Case::new(
        Principal::new("User", "u1"),
        "refund",
        json!({ "order": "o", "cents": 1 }),
    );
    assert_eq!(few.decide(&case), many.decide(&case));
    assert_eq!(many.decide(&case).policies, ["a"]);
}
