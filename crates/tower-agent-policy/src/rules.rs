//! A set of rules: checked when it is loaded, and cut by actions and principals.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::str::FromStr;
use std::sync::Arc;

use cedar_policy::{
    ActionConstraint, Effect, EntityUid, Policy, PolicyId, PolicySet, PrincipalConstraint,
    ResourceConstraint, ValidationMode, ValidationWarning, Validator,
};
use serde_json::Value;

use crate::error::{PolicyError, Problem, line_of, nearest};
use crate::schema::{RESULT, Requests};

/// The annotations that mean something.
const ANNOTATIONS: [&str; 4] = ["id", "ask", "tell", "doc"];

/// A set of rules that can be used. Clones share it.
#[derive(Clone)]
pub(crate) struct Rules(Arc<RuleSet>);

struct RuleSet {
    /// The rules about each action.
    slices: HashMap<EntityUid, Slice>,
    notes: HashMap<PolicyId, Note>,
    /// The actions that rules name.
    named: HashSet<EntityUid>,
}

/// The rules about one action, permits and forbids apart: each is evaluated once, and all that
/// apply are known.
#[derive(Default)]
pub(crate) struct Slice {
    pub(crate) permits: ByPrincipal,
    pub(crate) forbids: ByPrincipal,
    /// The permits that are left if nothing is known about a call but who makes it.
    pub(crate) may_permit: ByPrincipal,
    pub(crate) must_forbid: ByPrincipal,
    /// A rule names this action, or a group or a list with it.
    pub(crate) is_named: bool,
}

/// Policies of one effect about one action, cut by whom they are for.
#[derive(Default)]
pub(crate) struct ByPrincipal {
    /// The policies that may apply to several: who is in a group is known only with the entities.
    of_several: PolicySet,
    /// The policies that name one principal. For anybody else they do not apply, and cannot fail
    /// either: Cedar compares the principal before it looks at a condition.
    of_one: HashMap<EntityUid, PolicySet>,
}

impl ByPrincipal {
    fn add(&mut self, policy: Policy) -> Result<(), String> {
        let set = match policy.principal_constraint() {
            PrincipalConstraint::Eq(one) => self.of_one.entry(one).or_default(),
            _ => &mut self.of_several,
        };
        set.add(policy).map_err(|error| error.to_string())
    }

    /// Returns the sets that may apply to a principal.
    pub(crate) fn about(&self, principal: &EntityUid) -> impl Iterator<Item = &PolicySet> {
        let of_one = self.of_one.get(principal);
        let sets = std::iter::once(&self.of_several).chain(of_one);
        sets.filter(|set| !set.is_empty())
    }
}

/// The annotations of a policy besides its effect.
#[derive(Clone, Debug)]
pub(crate) struct Note {
    /// The place among the policies.
    pub(crate) place: usize,
    /// The role that is asked.
    pub(crate) ask: Option<Arc<str>>,
    /// The text for the model.
    pub(crate) tell: Option<Arc<str>>,
}

impl Rules {
    /// Parses and checks the rules in these files.
    pub(crate) fn load(
        files: &[(String, String)],
        requests: &Requests,
    ) -> Result<Self, PolicyError> {
        let mut problems = Vec::new();
        let mut policies = Vec::new();
        let mut ids = HashSet::new();
        let validator = Validator::new(requests.schema.clone());
        for (file, text) in files {
            match read(file, text, &validator) {
                Ok(read) => {
                    for policy in read {
                        if !ids.insert(policy.id().clone()) {
                            problems.push(twice(file, text, policy.id()));
                        }
                        policies.push(policy);
                    }
                }
                Err(found) => problems.extend(found),
            }
        }
        if !problems.is_empty() {
            return Err(PolicyError::new(problems));
        }
        let notes = policies.iter().enumerate().map(|(place, policy)| {
            let note = Note {
                place,
                ask: policy.annotation("ask").map(Arc::from),
                tell: policy.annotation("tell").map(Arc::from),
            };
            (policy.id().clone(), note)
        });
        let mut rules = RuleSet {
            slices: HashMap::new(),
            notes: notes.collect(),
            named: HashSet::new(),
        };
        for policy in &policies {
            rules.add(policy, requests).map_err(|error| {
                PolicyError::from(Problem::new(format!("policy `{}`: {error}", policy.id())))
            })?;
        }
        Ok(Self(Arc::new(rules)))
    }

    /// Returns the rules about an action; `None` if none is.
    pub(crate) fn slice(&self, action: &EntityUid) -> Option<&Slice> {
        self.0.slices.get(action)
    }

    pub(crate) fn note(&self, id: &PolicyId) -> Option<&Note> {
        self.0.notes.get(id)
    }

    /// Returns whether a rule names this action.
    pub(crate) fn names(&self, action: &EntityUid) -> bool {
        self.0.named.contains(action)
    }

    /// Returns how many policies there are.
    pub(crate) fn count(&self) -> usize {
        self.0.notes.len()
    }
}

impl RuleSet {
    /// Adds a policy to the slice of each action that it may be about.
    fn add(&mut self, policy: &Policy, requests: &Requests) -> Result<(), String> {
        let constraint = policy.action_constraint();
        let named: HashSet<EntityUid> = match &constraint {
            ActionConstraint::Any => HashSet::new(),
            ActionConstraint::Eq(action) => HashSet::from([action.clone()]),
            ActionConstraint::In(actions) => actions.iter().cloned().collect(),
        };
        let general = general(policy, requests.has_own_resources)?;
        for tool in requests.tools.values() {
            for action in [&tool.call, &tool.result] {
                let is_named = match &constraint {
                    ActionConstraint::Any => false,
                    _ if named.contains(action) => true,
                    ActionConstraint::Eq(_) => false,
                    ActionConstraint::In(_) => requests
                        .actions
                        .ancestors(action)
                        .is_some_and(|mut groups| groups.any(|group| named.contains(group))),
                };
                if !is_named && constraint != ActionConstraint::Any {
                    continue;
                }
                let slice = self.slices.entry(action.clone()).or_default();
                slice.is_named |= is_named;
                let (exact, over) = match policy.effect() {
                    Effect::Permit => (&mut slice.permits, &mut slice.may_permit),
                    Effect::Forbid => (&mut slice.forbids, &mut slice.must_forbid),
                };
                exact.add(policy.clone())?;
                if let Some(general) = &general {
                    over.add(general.clone())?;
                }
            }
        }
        self.named.extend(named);
        Ok(())
    }
}

/// Reads a file. Each policy gets its name.
fn read(file: &str, text: &str, validator: &Validator) -> Result<Vec<Policy>, Vec<Problem>> {
    let set = match PolicySet::from_str(text) {
        Ok(set) => set,
        Err(errors) => {
            let problems = errors.iter().map(|error| Problem::of(file, text, error));
            return Err(problems.collect());
        }
    };
    let mut problems: Vec<Problem> = set
        .templates()
        .map(|_| Problem {
            file: file.to_owned(),
            ..Problem::new("a template has no effect: nothing fills its slots")
        })
        .collect();
    let checked = validator.validate(&set, ValidationMode::Strict);
    problems.extend(
        checked
            .validation_errors()
            .map(|error| Problem::of(file, text, error)),
    );
    // A rule that can never apply is a mistake: nobody would notice that it is missing.
    problems.extend(
        checked
            .validation_warnings()
            // A text of a business may well be in two alphabets.
            .filter(|warning| !matches!(warning, ValidationWarning::MixedScriptString(_)))
            .map(|warning| Problem::of(file, text, warning)),
    );
    let mut numbered = BTreeMap::new();
    for policy in set.policies() {
        let id = policy.id().to_string();
        // Cedar numbers them as they stand in the text.
        let number: usize = id
            .trim_start_matches("policy")
            .parse()
            .unwrap_or(usize::MAX);
        for (name, value) in policy.annotations() {
            if let Some(problem) = wrong_annotation(policy, name, value) {
                let at = text.find(&format!("@{name}")).unwrap_or_default();
                problems.push(Problem {
                    file: file.to_owned(),
                    line: Some(line_of(text, at)),
                    ..problem
                });
            }
        }
        let id = match policy.annotation("id") {
            Some(id) => PolicyId::new(id),
            None => PolicyId::new(format!("{file}#{}", number.saturating_add(1))),
        };
        numbered.insert(number, policy.new_id(id));
    }
    if problems.is_empty() {
        Ok(numbered.into_values().collect())
    } else {
        Err(problems)
    }
}

/// Returns what is wrong with an annotation: a misspelt one would do nothing.
fn wrong_annotation(policy: &Policy, name: &str, value: &str) -> Option<Problem> {
    if !ANNOTATIONS.contains(&name) {
        let problem = Problem::new(format!("the annotation `@{name}` means nothing here"));
        return Some(match nearest(name, ANNOTATIONS) {
            Some(near) => problem.with_help(format!("did you mean `@{near}`?")),
            None => problem.with_help("use `@doc` for the text of a reader"),
        });
    }
    if value.trim().is_empty() {
        return Some(Problem::new(format!("the annotation `@{name}` is empty")));
    }
    let is_about_results = |action: &EntityUid| {
        action.id().unescaped().starts_with(RESULT) || action.id().unescaped() == "results:all"
    };
    let is_of_results = match policy.action_constraint() {
        ActionConstraint::Any => false,
        ActionConstraint::Eq(action) => is_about_results(&action),
        ActionConstraint::In(actions) => actions.iter().any(is_about_results),
    };
    (name == "ask" && is_of_results)
        .then(|| Problem::new("`@ask` is for calls: nobody is asked about a result"))
}

fn twice(file: &str, text: &str, id: &PolicyId) -> Problem {
    let name = format!("\"{id}\"");
    let places = text.match_indices(&name).map(|(at, _)| at);
    let at = places.last().unwrap_or_default();
    Problem::at(
        file,
        line_of(text, at),
        format!("two policies have the id `{id}`"),
    )
}

/// Returns what is left of a policy if nothing is known but the principal and the action: a permit
/// that applies at least where the policy does, or a forbid that applies at most there. `None` for
/// a forbid of which nothing is left.
fn general(policy: &Policy, has_own_resources: bool) -> Result<Option<Policy>, String> {
    let is_permit = policy.effect() == Effect::Permit;
    // Of a question it is not known how it is answered.
    if !is_permit && policy.annotation("ask").is_some() {
        return Ok(None);
    }
    let mut json = policy.to_json().map_err(|error| error.to_string())?;
    if has_own_resources && policy.resource_constraint() != ResourceConstraint::Any {
        if !is_permit {
            return Ok(None);
        }
        json["resource"] = serde_json::json!({ "op": "All" });
    }
    let is_unknown = |body: &Value| mentions(body, has_own_resources);
    let conditions = json
        .get_mut("conditions")
        .and_then(Value::as_array_mut)
        .map(std::mem::take)
        .unwrap_or_default();
    let mut kept = Vec::new();
    for mut condition in conditions {
        let Some(body) = condition.get("body") else {
            return Err("a condition without a body".to_owned());
        };
        if !is_unknown(body) {
            kept.push(condition);
            continue;
        }
        if !is_permit {
            return Ok(None);
        }
        // Of `a && b` each part is needed.
        if condition["kind"] == "when"
            && let Some(body) = known_part(body, &is_unknown)
        {
            condition["body"] = body;
            kept.push(condition);
        }
    }
    json["conditions"] = Value::Array(kept);
    Policy::from_json(Some(policy.id().clone()), json)
        .map(Some)
        .map_err(|error| error.to_string())
}

/// Returns the parts of a conjunction of which all is known.
fn known_part(body: &Value, is_unknown: &impl Fn(&Value) -> bool) -> Option<Value> {
    if !is_unknown(body) {
        return Some(body.clone());
    }
    let both = body.get("&&")?;
    let left = known_part(both.get("left")?, is_unknown);
    let right = known_part(both.get("right")?, is_unknown);
    match (left, right) {
        (Some(left), Some(right)) => {
            Some(serde_json::json!({ "&&": { "left": left, "right": right } }))
        }
        (left, right) => left.or(right),
    }
}

/// Returns whether an expression is about what is not known before a call.
fn mentions(body: &Value, has_own_resources: bool) -> bool {
    match body {
        Value::Object(entries) => entries.iter().any(|(key, value)| {
            let is_variable =
                key == "Var" && (value == "context" || has_own_resources && value == "resource");
            is_variable || mentions(value, has_own_resources)
        }),
        Value::Array(items) => items.iter().any(|item| mentions(item, has_own_resources)),
        _ => false,
    }
}
