//! The decision about one call.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use cedar_policy::{
    Authorizer, Context, Decision, Entities, EntityUid, PolicyId, Request, RestrictedExpression,
};
use chrono::{DateTime, SecondsFormat, Utc};
use serde_json::Value;

use crate::entities::text_of;
use crate::rules::{ByPrincipal, Rules, Slice};
use crate::ruling::{RefusalReason, Ruling};
use crate::schema::{KnownTool, Requests};

/// All that is known about a call.
pub(crate) struct Facts<'a> {
    pub(crate) tool: &'a KnownTool,
    pub(crate) principal: EntityUid,
    pub(crate) resource: EntityUid,
    pub(crate) entities: &'a Entities,
    pub(crate) input: &'a Value,
    pub(crate) session: &'a Session,
    pub(crate) flow: Option<&'a FlowFacts>,
    pub(crate) app: Option<&'a Value>,
    pub(crate) output: Option<Output<'a>>,
}

/// The facts about the run.
#[derive(Clone, Debug)]
pub(crate) struct Session {
    pub(crate) time: SystemTime,
    pub(crate) calls: i64,
    pub(crate) conversation_calls: i64,
    pub(crate) iteration: i64,
    pub(crate) run_id: String,
    pub(crate) agent: String,
    pub(crate) is_streamed: bool,
}

/// The facts about the labels of a call.
#[derive(Clone, Debug, Default)]
pub(crate) struct FlowFacts {
    pub(crate) is_untrusted: bool,
    pub(crate) arguments: Vec<String>,
    pub(crate) sources: Vec<String>,
}

/// The result of a call.
#[derive(Clone, Copy)]
pub(crate) struct Output<'a> {
    pub(crate) text: &'a str,
    pub(crate) is_error: bool,
    pub(crate) value: &'a Value,
}

impl Facts<'_> {
    /// Returns what these rules say.
    pub(crate) fn decide(&self, rules: &Rules, requests: &Requests) -> Ruling {
        let request = match self.request(requests) {
            Ok(request) => request,
            Err(ruling) => return ruling,
        };
        let empty = Slice::default();
        let slice = rules.slice(self.action()).unwrap_or(&empty);
        let forbids = satisfied(&request, &slice.forbids, self.entities);
        let permits = satisfied(&request, &slice.permits, self.entities);
        let (mut errors, mut forbids, mut permits) = (
            [forbids.errors, permits.errors].concat(),
            forbids.policies,
            permits.policies,
        );
        let place = |id: &PolicyId| rules.note(id).map(|note| note.place);
        for ids in [&mut errors, &mut forbids, &mut permits] {
            ids.sort_by_key(place);
        }
        let tell = |ids: &[PolicyId]| -> Vec<String> {
            let notes = ids.iter().filter_map(|id| rules.note(id)?.tell.as_deref());
            notes.map(str::to_owned).collect()
        };
        // Nobody is asked about a result: what would have to be asked about is refused.
        let ask = |id: &PolicyId| {
            let note = rules.note(id)?;
            note.ask.clone().filter(|_| self.output.is_none())
        };
        if !errors.is_empty() {
            return Ruling {
                policies: names(&forbids),
                errors: names(&errors),
                ..Ruling::refused(RefusalReason::RuleFailed)
            };
        }
        if forbids.iter().any(|id| ask(id).is_none()) {
            forbids.retain(|id| ask(id).is_none());
            return Ruling {
                tell: tell(&forbids),
                policies: names(&forbids),
                ..Ruling::refused(RefusalReason::Forbidden)
            };
        }
        if self.output.is_some() {
            permits.retain(|id| rules.note(id).is_some_and(|note| note.ask.is_none()));
        }
        if permits.is_empty() {
            return Ruling::refused(RefusalReason::NotPermitted);
        }
        let mut asking = forbids;
        let plain: Vec<_> = permits
            .iter()
            .filter(|id| ask(id).is_none())
            .cloned()
            .collect();
        if plain.is_empty() {
            // One of them is enough, and the first stands first in the files.
            asking.extend(permits.into_iter().take(1));
        } else {
            permits = plain;
            if asking.is_empty() {
                return Ruling::allowed(names(&permits));
            }
        }
        let mut roles: Vec<String> = Vec::new();
        for role in asking.iter().filter_map(ask) {
            if roles.iter().all(|other| **other != *role) {
                roles.push(role.to_string());
            }
        }
        Ruling {
            tell: tell(&asking),
            ..Ruling::asked(roles, names(&asking))
        }
    }

    fn action(&self) -> &EntityUid {
        if self.output.is_some() {
            &self.tool.result
        } else {
            &self.tool.call
        }
    }

    fn request(&self, requests: &Requests) -> Result<Request, Ruling> {
        let misfit = |detail: String| Ruling::refused(RefusalReason::Misfit).with_detail(detail);
        let input = self.tool.input.convert(self.input);
        let input = input.map_err(|wrong| misfit(format!("`{}`: {}", wrong.at, wrong.why)))?;
        let mut pairs = vec![
            ("input".to_owned(), input),
            (
                "session".to_owned(),
                self.session.as_record().map_err(misfit)?,
            ),
        ];
        if requests.has_flow {
            let Some(flow) = self.flow else {
                return Err(Ruling::refused(RefusalReason::NoFlow));
            };
            pairs.push(("flow".to_owned(), flow.as_record().map_err(misfit)?));
        }
        if let Some(output) = &self.output {
            let record = output.as_record(self.tool).map_err(misfit)?;
            pairs.push(("output".to_owned(), record));
        }
        let context = Context::from_pairs(pairs)
            .map_err(|error| misfit(format!("what is known of the call: {}", text_of(&error))))?;
        let context = match self.app.filter(|_| requests.has_app) {
            None => context,
            Some(app) => {
                let app = serde_json::json!({ "app": app });
                let app = Context::from_json_value(app, None);
                let merged = app
                    .map_err(|error| text_of(&error))
                    .and_then(|app| context.merge(app).map_err(|error| text_of(&error)));
                // Its text may quote the application's values.
                merged.map_err(|_| {
                    misfit("what the application adds is not of its type".to_owned())
                })?
            }
        };
        Request::new(
            self.principal.clone(),
            self.action().clone(),
            self.resource.clone(),
            context,
            Some(&requests.schema),
        )
        .map_err(|error| {
            tracing::warn!(
                run_id = self.session.run_id,
                agent = self.session.agent,
                error = %error.to_string().escape_debug(),
                tool = self.tool.declaration.name(),
                "a call does not fit the schema of the policy"
            );
            misfit("what is known of the call does not fit the schema".to_owned())
        })
    }
}

/// Returns whether a principal may have a tool called at all, whatever the arguments: `false` only
/// if no call of it can be allowed.
pub(crate) fn may_call(
    tool: &KnownTool,
    principal: &EntityUid,
    entities: &Entities,
    rules: &Rules,
) -> bool {
    let Some(slice) = rules.slice(&tool.call) else {
        return false;
    };
    let request = Request::new(
        principal.clone(),
        tool.call.clone(),
        tool.resource.clone(),
        Context::empty(),
        None,
    );
    // Only a schema refuses a request.
    let Ok(request) = request else { return true };
    let forbids = satisfied(&request, &slice.must_forbid, entities);
    let permits = satisfied(&request, &slice.may_permit, entities);
    let may_be_permitted = !permits.policies.is_empty() || !permits.errors.is_empty();
    may_be_permitted && forbids.policies.is_empty()
}

/// The policies of one effect that apply to a request.
struct Satisfied {
    policies: Vec<PolicyId>,
    errors: Vec<PolicyId>,
}

fn satisfied(request: &Request, policies: &ByPrincipal, entities: &Entities) -> Satisfied {
    let mut satisfied = Satisfied {
        policies: Vec::new(),
        errors: Vec::new(),
    };
    let Some(principal) = request.principal() else {
        return satisfied;
    };
    for set in policies.about(principal) {
        let response = Authorizer::new().is_authorized(request, set, entities);
        let diagnostics = response.diagnostics();
        debug_assert!(
            response.decision() == Decision::Deny || diagnostics.reason().next().is_some(),
            "what is allowed is allowed by a policy"
        );
        satisfied.policies.extend(diagnostics.reason().cloned());
        let errors = diagnostics.errors().map(|error| match error {
            cedar_policy::AuthorizationError::PolicyEvaluationError(error) => {
                error.policy_id().clone()
            }
        });
        satisfied.errors.extend(errors);
    }
    satisfied
}

fn names(ids: &[PolicyId]) -> Vec<String> {
    ids.iter().map(PolicyId::to_string).collect()
}

fn record(
    fields: impl IntoIterator<Item = (&'static str, RestrictedExpression)>,
) -> Result<RestrictedExpression, String> {
    let fields = fields
        .into_iter()
        .map(|(name, value)| (name.to_owned(), value));
    RestrictedExpression::new_record(fields).map_err(|error| error.to_string())
}

fn texts(all: &[String]) -> RestrictedExpression {
    RestrictedExpression::new_set(all.iter().cloned().map(RestrictedExpression::new_string))
}

impl Session {
    fn as_record(&self) -> Result<RestrictedExpression, String> {
        record([
            (
                "time",
                RestrictedExpression::new_datetime(datetime(self.time)),
            ),
            ("calls", RestrictedExpression::new_long(self.calls)),
            (
                "conversation_calls",
                RestrictedExpression::new_long(self.conversation_calls),
            ),
            ("iteration", RestrictedExpression::new_long(self.iteration)),
            (
                "agent",
                RestrictedExpression::new_string(self.agent.clone()),
            ),
            ("streamed", RestrictedExpression::new_bool(self.is_streamed)),
        ])
    }
}

impl FlowFacts {
    fn as_record(&self) -> Result<RestrictedExpression, String> {
        record([
            (
                "untrusted",
                RestrictedExpression::new_bool(self.is_untrusted),
            ),
            ("arguments", texts(&self.arguments)),
            ("sources", texts(&self.sources)),
        ])
    }
}

impl Output<'_> {
    fn as_record(&self, tool: &KnownTool) -> Result<RestrictedExpression, String> {
        let mut fields = vec![
            (
                "text",
                RestrictedExpression::new_string(self.text.to_owned()),
            ),
            ("is_error", RestrictedExpression::new_bool(self.is_error)),
        ];
        if let Some(of) = &tool.output {
            let value = of.convert(self.value);
            let value =
                value.map_err(|wrong| format!("the result: `{}`: {}", wrong.at, wrong.why))?;
            fields.push(("value", value));
        }
        record(fields)
    }
}

/// Returns a time as Cedar reads it, in UTC and to the millisecond.
fn datetime(time: SystemTime) -> String {
    // A clock before 1970 is no clock: the epoch is as good.
    let since = time.duration_since(UNIX_EPOCH).unwrap_or(Duration::ZERO);
    let milliseconds = i64::try_from(since.as_millis()).unwrap_or(i64::MAX);
    // Cedar refuses the last time of the calendar, as it does any after the year 9999.
    let time = DateTime::from_timestamp_millis(milliseconds).unwrap_or(DateTime::<Utc>::MAX_UTC);
    time.to_rfc3339_opts(SecondsFormat::Millis, true)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_time_is_written_as_cedar_reads_it() {
        for (seconds, text) in [
            (0, "1970-01-01T00:00:00.000Z"),
            (951_782_400, "2000-02-29T00:00:00.000Z"),
            (951_868_799, "2000-02-29T23:59:59.000Z"),
            (1_709_164_800, "2024-02-29T00:00:00.000Z"),
            (1_735_689_599, "2024-12-31T23:59:59.000Z"),
            (4_107_542_400, "2100-03-01T00:00:00.000Z"),
        ] {
            let time = UNIX_EPOCH + Duration::from_secs(seconds);
            assert_eq!(datetime(time), text);
            let read = RestrictedExpression::new_datetime(text);
            assert!(Context::from_pairs([("time".to_owned(), read)]).is_ok());
        }
    }
}
